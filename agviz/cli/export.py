"""Write the graph of a recorded backward pass to a file.

Formats: dot (Graphviz source, for other tools) and the pictures svg, png and pdf, which leave
their .dot beside them. The `dot` program draws them where there is one, otherwise the Graphviz
that came with agviz.
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

FORMATS = ("svg", "dot", "png", "pdf")


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
    from agviz.export.draw import render, render_graph

    format_: str = arguments.format
    with Trace.open(arguments.file) as trace:
        if str(arguments.output) == "-":
            text = to_dot(trace, arguments.graph_task)
            sys.stdout.buffer.write(text.encode() if format_ == "dot" else render(text, format_))
            return 0
        output: Path = arguments.output or arguments.file.with_suffix(f".{format_}")
        if output.is_dir():
            raise AgvizError(f"{output} is a folder; name a file with --output")
        for path in (output, output.with_suffix(".dot")):
            if path.exists() and path.samefile(arguments.file):
                raise AgvizError(f"{path} is the trace itself; name another file with --output")
        drawing = render_graph(trace, output, format_, graph_task=arguments.graph_task)
    print(f"wrote {clean(str(drawing.path))}")
    for note in drawing.notes:
        print(note)
    return 0
