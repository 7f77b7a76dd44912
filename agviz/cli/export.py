"""Write a recorded trace to a file for other programs.

dot, svg, png, pdf   the graph of a backward pass
html                 the same to walk through in a browser, in one file that
                     asks no network: pan, zoom, search, fold, replay
chrome-trace         a timeline for https://ui.perfetto.dev, chrome://tracing
                     and what else reads the exports of torch.profiler;
                     --with lays such an export over it
timeline             an SVG of who did what when: a lane for each rank and
                     device thread on one axis of time, modules over nodes
json                 everything the trace holds
parquet              a folder of tables for DuckDB, Polars or Spark: ranks,
                     passes, nodes, collectives, parameters

Of a folder with a trace for each rank of a distributed program there are
chrome-trace (a process for each rank, on one clock), timeline and parquet.

  agviz export train.agviz --format svg
  agviz export traces/ --format timeline -o step.svg --graph-task 12
  agviz export train.agviz --format chrome-trace -o train.json.gz
  agviz export train.agviz --format chrome-trace --with profiler.json

  agviz export train.agviz --format svg --around 92 --depth 3
  agviz export train.agviz --format svg --to blocks.0.mlp.0.weight
  agviz export train.agviz --format svg --diff yesterday.agviz

The Graphviz that came with agviz draws, else a `dot` program that can do what
it can (see agviz doctor). chrome-trace and json are compressed where OUT ends
in .gz; docs/formats.md describes them.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from agviz.errors import AgvizError
from agviz.export.choices import make_look, make_view
from agviz.export.chrome_ranks import chrome_trace_of_ranks
from agviz.export.chrome_trace import chrome_trace
from agviz.export.json_trace import json_trace
from agviz.export.output import write, write_to
from agviz.export.overlay import Overlay
from agviz.export.palette import THEMES
from agviz.export.pass_timeline import AROUND, PassTimeline
from agviz.export.timeline import TimePicture
from agviz.ranks.alone import alone
from agviz.ranks.folder import Folder
from agviz.ranks.run import Run
from agviz.traces.reader import Trace
from agviz.words.documents import head
from agviz.words.safe import clean
from agviz.words.units import plural

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from agviz.export.look import Look
    from agviz.graph.view import GraphView

GRAPHS = ("svg", "dot", "png", "pdf", "html")
ENDINGS = {"chrome-trace": ".trace.json", "json": ".json"}
TIMELINE, PARQUET = "timeline", "parquet"
FORMATS = (*GRAPHS, *ENDINGS, TIMELINE, PARQUET)
OF_FOLDERS = ("chrome-trace", TIMELINE, PARQUET)
"""Formats that show all ranks."""
OF_GRAPHS = (
    *("by", "fold", "budget", "around", "depth", "to", "at", "saved"),
    *("diff", "theme", "links", "source_root"),
)
"""Options that only graphs have."""
OF_TIMELINES = ("theme", "around", "depth")
"""Those of them that a timeline has, too; one of ranks has the first."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``agviz export``."""
    parser.add_argument(
        "file",
        metavar="FILE",
        type=Path,
        help="a recorded trace, or a folder of those of all ranks",
    )
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
        help="only this backward pass, counted from 0, and those inside of it (default: of a graph"
        " one that failed, else the first with NaN or infinities, else the largest of the"
        " program's own; of a timeline those around the longest wait; otherwise all). Of a folder"
        " and in a timeline: the pass of this number in each rank",
    )
    parser.add_argument(
        "--with",
        dest="overlay",
        metavar="PROFILE",
        type=Path,
        help="lay what torch.profiler exported of the same run over a chrome-trace",
    )
    parser.add_argument(
        "--json", action="store_true", help="say what was written as JSON, for other programs"
    )
    what = parser.add_argument_group("what of the graph is drawn")
    what.add_argument(
        "--by",
        choices=("execution", "module", "device"),
        help="group nodes by module (default), by the device thread that ran them, or not at all",
    )
    what.add_argument(
        "--fold",
        choices=("auto", "repeats", "chains"),
        help="draw repeated blocks, or these and nodes in a row, as one; auto (default): as much"
        " as the budget demands",
    )
    what.add_argument(
        "--budget", metavar="N", type=int, help="nodes to draw (default: 400, html: 1500)"
    )
    what.add_argument(
        "--around",
        metavar="NODE",
        help="a node and its neighbours: its number in execution, its name, module or parameter",
    )
    what.add_argument(
        "--depth",
        metavar="N",
        type=int,
        help="so many edges away (default: 2); in a timeline, nodes before and after (20)",
    )
    what.add_argument("--to", metavar="PARAM", help="what leads to this parameter")
    what.add_argument(
        "--at", metavar="EVENT", type=int, help="the state right after the event of this number"
    )
    what.add_argument("--diff", metavar="OTHER", type=Path, help="with another trace laid over it")
    what.add_argument(
        "--saved", action="store_true", default=None, help="with the tensors that nodes had saved"
    )
    how = parser.add_argument_group("how the graph is drawn")
    how.add_argument("--theme", choices=("light", "dark"), help="light (default) suits paper, too")
    how.add_argument(
        "--links",
        choices=("file", "vscode"),
        help="let each node open the line that created it",
    )
    how.add_argument(
        "--source-root",
        metavar="DIR",
        type=Path,
        help="where that file is found (default: this folder)",
    )


def execute(arguments: argparse.Namespace) -> int:
    """Write the file; return 0."""
    format_: str = arguments.format
    _refuse(arguments)
    drawn: dict[str, list[int] | int] = {}
    if format_ == PARQUET:
        path, notes = _tables(arguments)
    elif str(arguments.output) == "-":
        _print(arguments)
        return 0
    elif format_ == TIMELINE or arguments.file.is_dir():
        pieces, notes = _in_time(arguments)
        path = _output(arguments)
        write(path, pieces)
    else:
        with Trace.open(arguments.file) as trace:
            path, notes, drawn = _write(trace, arguments)
    if arguments.json:
        report = {"format": format_, "path": clean(str(path)), "notes": notes, **drawn}
        print(json.dumps({**head("export"), **report}))
        return 0
    print(f"wrote {clean(str(path))}")
    for note in notes:
        print(note)
    return 0


def _refuse(arguments: argparse.Namespace) -> None:
    """Raise AgvizError where the options do not go together."""
    format_: str = arguments.format
    given = [name for name in OF_GRAPHS if getattr(arguments, name) is not None]
    if format_ == TIMELINE:
        known = OF_TIMELINES[:1] if arguments.file.is_dir() else OF_TIMELINES
        given = [name for name in given if name not in known]
    if given and format_ not in GRAPHS:
        option = given[0].replace("_", "-")
        raise AgvizError(f"--{option} is for graphs: {', '.join(GRAPHS)}")
    if arguments.overlay and (format_ != "chrome-trace" or arguments.file.is_dir()):
        raise AgvizError("--with is for a chrome-trace of one process")
    if str(arguments.output) == "-" and arguments.json:
        raise AgvizError("--json reports on stdout; name a file with --output")
    if arguments.file.is_dir() and format_ not in OF_FOLDERS:
        raise AgvizError(
            f"{clean(str(arguments.file))} is a folder: of all ranks there are"
            f" {', '.join(OF_FOLDERS)}; name the trace of one for {format_}"
        )


def _view(arguments: argparse.Namespace) -> GraphView:
    names = ("graph_task", "by", "fold", "budget", "around", "depth", "to", "at", "saved")
    given = {name: getattr(arguments, name) for name in names}
    return make_view(**{name: value for name, value in given.items() if value is not None})


def _look(arguments: argparse.Namespace) -> Look:
    given = {name: getattr(arguments, name) for name in ("theme", "links", "source_root")}
    return make_look(**{name: value for name, value in given.items() if value is not None})


def _print(arguments: argparse.Namespace) -> None:
    """Write to stdout."""
    from agviz.export.draw import drawn

    format_: str = arguments.format
    if format_ == TIMELINE or arguments.file.is_dir():
        pieces, _ = _in_time(arguments)
        write_to(sys.stdout.buffer, pieces)
        return
    with Trace.open(arguments.file) as trace:
        if format_ in ENDINGS:
            pieces, _ = _pieces(trace, arguments)
            write_to(sys.stdout.buffer, pieces)
            return
        with _other(arguments) as other:
            look = _look(arguments)
            content = drawn(trace, format_, view=_view(arguments), look=look, other=other)
    sys.stdout.buffer.write(content)


def _write(
    trace: Trace, arguments: argparse.Namespace
) -> tuple[Path, list[str], dict[str, list[int] | int]]:
    """Write to a file; gives its name, what there is to say about it, and what is drawn in it."""
    from agviz.export.draw import render_graph

    format_: str = arguments.format
    output = _output(arguments)
    if format_ in ENDINGS:
        pieces, notes = _pieces(trace, arguments)
        write(output, pieces)
        return output, notes, {}
    with _other(arguments) as other:
        drawing = render_graph(
            trace, output, format_, view=_view(arguments), look=_look(arguments), other=other
        )
    drawn: dict[str, list[int] | int] = {
        "graph_tasks": list(drawing.graph_tasks),
        "nodes": drawing.nodes,
        "edges": drawing.edges,
    }
    return drawing.path, list(drawing.notes), drawn


def _output(arguments: argparse.Namespace) -> Path:
    """Where to write to: no folder, and none of the traces."""
    format_: str = arguments.format
    ending = ".timeline.svg" if format_ == TIMELINE else ENDINGS.get(format_, f".{format_}")
    named: Path = arguments.file.absolute() if arguments.file.is_dir() else arguments.file
    output: Path = arguments.output or named.with_suffix(ending)
    if output.is_dir():
        raise AgvizError(f"{output} is a folder; name a file with --output")
    beside = [output.with_suffix(".dot")] if format_ in GRAPHS else []
    traces = [path for path in (arguments.file, arguments.diff, arguments.overlay) if path]
    if arguments.file.is_dir():
        traces += arguments.file.glob("*.agviz")
    for path in (output, *beside):
        if path.exists() and any(each.exists() and path.samefile(each) for each in traces):
            raise AgvizError(f"{path} is the trace itself; name another file with --output")
    return output


def _in_time(arguments: argparse.Namespace) -> tuple[Iterator[str], list[str]]:
    """A picture or a file of time, and what there is to say about it."""
    place, number = arguments.file, arguments.graph_task
    if arguments.format == "chrome-trace":
        folder = Folder.open(place)
        return chrome_trace_of_ranks(folder, number), _missing(folder)
    theme = THEMES[arguments.theme or "light"]
    if not place.is_dir():
        with Trace.open(place) as trace:
            if trace.meta.rank is None:
                depth = AROUND if arguments.depth is None else arguments.depth
                drawn = PassTimeline(trace, number, theme, around=arguments.around, depth=depth)
                return drawn.pieces(), list(drawn.notes)
    if arguments.around is not None:
        raise AgvizError("--around is for the timeline of one process, which is no rank")
    picture = TimePicture(_run(place), number, theme)
    return picture.pieces(), list(picture.notes)


def _tables(arguments: argparse.Namespace) -> tuple[Path, list[str]]:
    """Write tables; gives their folder, and what there is to say about them."""
    try:
        from agviz.export.parquet import write_tables
    except ModuleNotFoundError as error:
        raise AgvizError(
            "export --format parquet needs pyarrow; install it with: pip install 'agviz[parquet]'"
        ) from error
    place: Path = arguments.file
    if arguments.graph_task is not None:
        raise AgvizError("parquet holds all passes: leave --graph-task to the query")
    if str(arguments.output) == "-":
        raise AgvizError("parquet is a folder of files; name it with --output")
    run = _run(place)
    output: Path = arguments.output or place.absolute().with_suffix(".parquet")
    if output.exists() and not output.is_dir():
        raise AgvizError(f"{output} is a file; name a folder with --output")
    write_tables(run, output)
    return output, _missing(run.folder) if place.is_dir() else []


def _run(place: Path) -> Run:
    """The ranks of a folder, or a single process."""
    return Run.read(Folder.open(place)) if place.is_dir() else alone(place)


def _missing(folder: Folder) -> list[str]:
    """Which ranks left no trace, in a sentence; empty: all did."""
    missing = folder.missing
    if not missing:
        return []
    named = ", ".join(map(str, missing[:9])) + (", …" if len(missing) > 9 else "")
    return [f"{folder.path} holds no trace of {plural(len(missing), 'rank')}: {named}"]


def _other(arguments: argparse.Namespace) -> contextlib.AbstractContextManager[Trace | None]:
    """The trace that is laid over the first, where there is one."""
    return Trace.open(arguments.diff) if arguments.diff else contextlib.nullcontext()


def _pieces(trace: Trace, arguments: argparse.Namespace) -> tuple[Iterator[str], list[str]]:
    """A file of everything, and what there is to say about it."""
    if arguments.format == "json":
        return json_trace(trace, arguments.graph_task), []
    overlay = Overlay(arguments.overlay, trace) if arguments.overlay else None
    notes = [] if overlay is None else [overlay.note]
    return chrome_trace(trace, arguments.graph_task, overlay), notes
