"""What anomaly mode says of version errors, beside what agviz says.

``python -m tests.gallery.anomaly_version`` writes the table into ``docs/answers.md``.
"""

from __future__ import annotations

import re
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch

import agviz
from agviz.analysis.version_errors import version_error
from tests.gallery.anomaly import DOCUMENT, Said
from tests.gallery_frame import programs

if TYPE_CHECKING:
    from tests.gallery_frame import Program

BEGIN: Final = "<!-- written by `python -m tests.gallery.anomaly_version` -->"
END: Final = "<!-- end of what anomaly_version wrote -->"


def by_anomaly_mode(program: Program) -> Said:
    """Run it natively under ``torch.autograd.set_detect_anomaly(True)``."""
    with warnings.catch_warnings(record=True) as warned, torch.autograd.set_detect_anomaly(True):
        warnings.simplefilter("always")
        try:
            program.run()
        except RuntimeError:
            told = "".join(str(w.message) for w in warned if "forward call" in str(w.message))
            nodes = re.findall(r"Error detected in (\w+)", told)
            lines = re.findall(rf'/{program.name}\.py", line (\d+)', told)
            return Said(nodes[-1] if nodes else "", int(lines[-1]) if lines else None)
    raise ValueError(f"{program.name} does not fail")


def by_us(program: Program) -> Said:
    """Record it with ``check_forward``."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t.agviz")
        try:
            program.record(path, check_forward=True)
        except RuntimeError:
            with agviz.Trace.open(path) as trace:
                tasks = [task.id for task in trace.graph_tasks if task.parent < 0]
                errors = [version_error(trace, task) for task in tasks]
            (found,) = [error for error in errors if error is not None]
            return Said(found.node.short_name, None if found.frame is None else found.frame.line)
    raise ValueError(f"{program.name} does not fail")


def table() -> str:
    """The programs as Markdown, with what they come to."""
    found = [(each, by_anomaly_mode(each), by_us(each)) for each in programs("version")]
    theirs = sum(anomaly.line == each.cause for each, anomaly, _ in found)
    ours = sum(said.line == each.cause for each, _, said in found)
    summary = (
        f"Of {len(found)} programs, anomaly mode names the line to look at in {theirs}: it names"
        " the one that made the node. agviz names the line that modified what was saved (recorded"
        f" with `--check-forward`), or that went through the graph first, in {ours}."
    )
    text = [
        summary,
        "",
        "| program | error | anomaly mode names | agviz names |",
        "|---|---|---|---|",
    ]
    for each, *said in found:
        names = [
            f"`{one.node}`, line {one.line}{'' if one.line == each.cause else ' ✗'}" for one in said
        ]
        text.append(f"| {each.name} | {each.one('error')} | {' | '.join(names)} |")
    return "\n".join(text)


def written(document: str) -> str:
    """``document`` with the table in its place.

    Raises:
        ValueError: the document has no place for it.
    """
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{DOCUMENT} lacks {BEGIN} or {END}")
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


if __name__ == "__main__":
    DOCUMENT.write_text(written(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
