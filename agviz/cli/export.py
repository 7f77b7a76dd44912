"""Write the graph of a recorded backward pass to a file.

Formats: dot (Graphviz source, for other tools) and svg (a picture; drawn by the `dot` program
where there is one, by the Graphviz that came with agviz where not).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from agviz.errors import AgvizError
from agviz.trace.reader import Trace
from agviz.trace.text import clean

if TYPE_CHECKING:
    import argparse

FORMATS = ("svg", "dot")
DRAWING_SECONDS = 120.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``agviz export``."""
    parser.add_argument("file", metavar="FILE", type=Path, help="a recorded trace")
    parser.add_argument("--format", choices=FORMATS, required=True, help="what to write")
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        type=Path,
        help="where to (default: FILE's name with the format's ending; - is stdout)",
    )
    parser.add_argument(
        "--graph-task",
        metavar="N",
        type=int,
        help="number of the backward pass, from 0 (default: the first one that was recorded)",
    )


def execute(arguments: argparse.Namespace) -> int:
    """Write the file; return 0."""
    from agviz.export.dot import to_dot
    from agviz.export.draw import render

    with Trace.open(arguments.file) as trace:
        text = to_dot(trace, arguments.graph_task)
    content = text.encode() if arguments.format == "dot" else render(text, "svg", DRAWING_SECONDS)
    output: Path = arguments.output or arguments.file.with_suffix(f".{arguments.format}")
    if str(output) == "-":
        sys.stdout.buffer.write(content)
        return 0
    if output.exists() and output.samefile(arguments.file):
        raise AgvizError(f"{output} is the trace itself; name another file with --output")
    try:
        output.write_bytes(content)
    except OSError as error:
        raise AgvizError(f"{output} can't be written: {error.strerror}") from None
    print(f"wrote {clean(str(output))}")
    return 0
