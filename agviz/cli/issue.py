"""Write a report to paste into an issue: the answer, versions, the command, the node alone.

The report is Markdown. Where the recording holds a node that can be run alone (`agviz run --repro`)
its script is in it, and the files of `agviz repro` are written beside it. The report names the
script's path and arguments, lines of source and names of parameters: read it before you send it.

  agviz run --repro nonfinite train.py
  agviz issue agviz-train.4711.agviz -o report/

Exit code 0: written, 2: not written.
"""

from __future__ import annotations

import io
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agviz.analysis.verdict import verdicts
from agviz.cli.console import stdout_console
from agviz.cli.kept import KeptNode, command_to_keep, find_kept, kept_rows, write_kept
from agviz.cli.said import show
from agviz.errors import AgvizError
from agviz.traces.reader import Trace
from agviz.words.safe import clean

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from agviz.analysis.verdict import Verdict
    from agviz.repro.files import ReproFiles

_COLUMNS: Final = 100
_LONGEST_SCRIPT: Final = 30_000
"""Characters of a script that is quoted; an issue takes some 65,000."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``agviz issue``."""
    parser.add_argument("file", metavar="FILE", type=Path, help="a recorded trace")
    parser.add_argument(
        "--graph-task",
        metavar="N",
        type=int,
        help="about this backward pass (default: the first that went wrong)",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        type=Path,
        default=Path(),
        help="folder for the report and the files of the node (default: this one)",
    )


def execute(arguments: argparse.Namespace) -> int:
    """Write the report and, where there is one, the node."""
    folder: Path = arguments.output
    with Trace.open(arguments.file) as trace:
        found = verdicts(trace, arguments.graph_task)
        graph_task = arguments.graph_task
        graph_task = found[0].graph_task if graph_task is None else graph_task
        kept = _kept(trace, graph_task)
        files = None if kept is None or kept.node.why_not else write_kept(trace, kept, folder)
        text = report(trace, found, kept, files)
    path = folder / f"{arguments.file.stem}-issue.md"
    was_there = path.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise AgvizError(f"{clean(str(path))} can't be written: {error.strerror}") from error
    console = stdout_console()
    replaced = {*(files.replaced if files else ()), *([path] if was_there else ())}
    for each in (path, *((files.script, files.tensors) if files else ())):
        said = " (an earlier one was replaced)" if each in replaced else ""
        console.print(f"{clean(str(each))}{said}", markup=False, soft_wrap=True)
    return 0


def report(
    trace: Trace, found: Sequence[Verdict], kept: KeptNode | None, files: ReproFiles | None
) -> str:
    """The text of the report, in Markdown."""
    from rich.console import Console

    meta = trace.meta
    answer = io.StringIO()
    show(found, Console(file=answer, width=_COLUMNS, no_color=True), verbose=True)
    command = shlex.join([*shlex.split(meta.script), *meta.argv]) if meta.script else "not known"
    versions = [
        ("torch", meta.torch or "not known"),
        ("Python", meta.python),
        ("agviz", meta.agviz),
        ("engine", {"exact": "agviz's own", "native": "torch's, observed"}.get(meta.engine, "")),
    ]
    lines = [
        f"# {clean(found[0].heading)}",
        "",
        *("## Answer", "", *_fenced(answer.getvalue().rstrip(), "text"), ""),
        *("## Program", "", *_fenced(clean(command), "text"), ""),
        *("## Versions", ""),
        *(f"- {name} {clean(version)}".rstrip() for name, version in versions),
        *("", "## The node alone", "", *_alone(trace, kept, files)),
    ]
    return "\n".join(lines) + "\n"


def _kept(trace: Trace, graph_task: int | None) -> KeptNode | None:
    if graph_task is not None and kept_rows(trace, graph_task):
        return find_kept(trace, None, graph_task)
    return None


def _alone(trace: Trace, kept: KeptNode | None, files: ReproFiles | None) -> list[str]:
    if kept is None:
        again = command_to_keep(trace, "nonfinite")
        return ["None was kept; this records the program again and keeps it:", "", *_fenced(again)]
    if files is None:
        return [f"{kept.title}, can't be run alone: {kept.node.why_not}."]
    facts = kept.node.facts
    machine = f"{facts.get('machine', '')} ({facts.get('cpu', '')})"
    beside = f"`python {files.script.name}`, with `{files.tensors.name}` beside it."
    said = [f"{kept.title}, alone, on {machine}: {beside}", ""]
    text = files.script.read_text(encoding="ascii")
    if len(text) > _LONGEST_SCRIPT:
        return [*said, "The script is too long to be quoted."]
    return [*said, *_fenced(text.rstrip(), "python")]


def _fenced(text: str, language: str = "console") -> list[str]:
    """A block that nothing in the text can end."""
    fence = "```"
    while fence in text:
        fence += "`"
    return [f"{fence}{language}", text, fence]
