"""Write a recorded trace to a file for other programs.

dot, svg, png, pdf   the graph of a backward pass; pictures leave their .dot
                     beside them
chrome-trace         a timeline for https://ui.perfetto.dev, chrome://tracing
                     and what else reads the exports of torch.profiler
json                 everything the trace holds

  agviz export train.agviz --format svg
  agviz export train.agviz --format chrome-trace -o train.json.gz

The `dot` program draws where there is one, otherwise the Graphviz that came
with agviz. chrome-trace and json are compressed where OUT ends in .gz;
docs/formats.md describes them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from agviz.errors import AgvizError
from agviz.traces.reader import Trace
from agviz.traces.text import clean

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

GRAPHS = ("svg", "dot", "png", "pdf")
ENDINGS = {"chrome-trace": ".trace.json", "json": ".json"}
FORMATS = (*GRAPHS, *ENDINGS)


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
        help="only this backward pass, counted from 0 (default: of a graph the first that was"
        " recorded, otherwise all)",
    )
    parser.add_argument(
        "--json", action="store_true", help="say what was written as JSON, for other programs"
    )


def execute(arguments: argparse.Namespace) -> int:
    """Write the file; return 0."""
    to_stdout = str(arguments.output) == "-"
    if to_stdout and arguments.json:
        raise AgvizError("--json reports on stdout; name a file with --output")
    with Trace.open(arguments.file) as trace:
        if to_stdout:
            _print(trace, arguments.format, arguments.graph_task)
            return 0
        path, notes = _write(trace, arguments)
    if arguments.json:
        report = {"format": arguments.format, "path": clean(str(path)), "notes": notes}
        print(json.dumps(report))
        return 0
    print(f"wrote {clean(str(path))}")
    for note in notes:
        print(note)
    return 0


def _print(trace: Trace, format_: str, graph_task: int | None) -> None:
    """Write to stdout."""
    from agviz.export.dot import to_dot
    from agviz.export.draw import render
    from agviz.export.output import write_to

    if format_ in ENDINGS:
        write_to(sys.stdout.buffer, _pieces(trace, format_, graph_task))
        return
    text = to_dot(trace, graph_task)
    sys.stdout.buffer.write(text.encode() if format_ == "dot" else render(text, format_))


def _write(trace: Trace, arguments: argparse.Namespace) -> tuple[Path, list[str]]:
    """Write to a file; gives its name, and what there is to say about it."""
    from agviz.export.draw import render_graph
    from agviz.export.output import write

    format_: str = arguments.format
    ending = ENDINGS.get(format_, f".{format_}")
    output: Path = arguments.output or arguments.file.with_suffix(ending)
    if output.is_dir():
        raise AgvizError(f"{output} is a folder; name a file with --output")
    beside = [output.with_suffix(".dot")] if format_ in GRAPHS else []
    for path in (output, *beside):
        if path.exists() and path.samefile(arguments.file):
            raise AgvizError(f"{path} is the trace itself; name another file with --output")
    if format_ in ENDINGS:
        write(output, _pieces(trace, format_, arguments.graph_task))
        return output, []
    drawing = render_graph(trace, output, format_, graph_task=arguments.graph_task)
    return drawing.path, list(drawing.notes)


def _pieces(trace: Trace, format_: str, graph_task: int | None) -> Iterator[str]:
    from agviz.export.chrome_trace import chrome_trace
    from agviz.export.json_trace import json_trace

    make = chrome_trace if format_ == "chrome-trace" else json_trace
    return make(trace, graph_task)
