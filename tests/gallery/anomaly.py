"""What anomaly mode says of the programs that go non-finite, beside what agviz says.

``python -m tests.gallery.anomaly`` writes the table into ``docs/answers.md``.
"""

from __future__ import annotations

import re
import sys
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import torch

import agviz
from agviz.analysis.explanation import explain
from tests.gallery_frame import programs

if TYPE_CHECKING:
    from tests.gallery_frame import Program

DOCUMENT: Final = Path(__file__).parent.parent.parent / "docs" / "answers.md"
BEGIN: Final = "<!-- written by `python -m tests.gallery.anomaly` -->"
END: Final = "<!-- end of what it wrote -->"


class Said(NamedTuple):
    """What somebody says of a program."""

    node: str
    """Name of the node; empty: nothing was said."""
    line: int | None
    """Line of the program that was named."""


class Row(NamedTuple):
    """One program."""

    program: Program
    anomaly: Said
    ours: Said
    pattern: str


def by_anomaly_mode(program: Program) -> Said:
    """Run it natively under ``torch.autograd.set_detect_anomaly(True)``."""
    with warnings.catch_warnings(record=True) as warned, torch.autograd.set_detect_anomaly(True):
        warnings.simplefilter("always")
        try:
            program.run()
        except RuntimeError as error:
            named = re.search(r"Function '(?:torch::autograd::)?(\w+)' returned nan", str(error))
            if named is None:
                raise
            told = "".join(str(w.message) for w in warned if "forward call" in str(w.message))
            lines = re.findall(rf'/{program.name}\.py", line (\d+)', told)
            return Said(named[1], int(lines[-1]) if lines else None)
    return Said("", None)


def by_us(program: Program) -> tuple[Said, str]:
    """Record it, with check_forward where the program asks for that; and the pattern."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder, "t.agviz")
        program.record(path, check_forward=program.one("check_forward") is not None)
        with agviz.Trace.open(path) as trace:
            found = explain(trace)
    if found is None:
        return Said("", None), ""
    line = None if found.frame is None else found.frame.line
    return Said(found.node.short_name, line), found.pattern or "no known pattern"


def rows() -> list[Row]:
    """One for each program that goes non-finite."""
    return [Row(p, by_anomaly_mode(p), *by_us(p)) for p in programs("nonfinite")]


def table(found: list[Row]) -> str:
    """The rows as Markdown, with what they come to."""
    silent = sum(not row.anomaly.node for row in found)
    nodes = sum(row.anomaly.node == row.program.one("node") for row in found)
    lines = sum(_is_right(row.program, row.anomaly) for row in found)
    forwards = sum(row.program.one("check_forward") is not None for row in found)
    ours = sum(
        row.ours.node == row.program.one("node") and _is_right(row.program, row.ours)
        for row in found
    )
    summary = (
        f"Of {len(found)} programs, anomaly mode names the node in {nodes} and the line to change"
        f" in {lines}; in {silent} it says nothing, as of infinities, hooks and `.grad`. It takes"
        " the first NaN for the beginning, which is often a node that an infinity came to, and it"
        f" stops the program there. agviz names node, line and pattern in {ours}; {forwards} of"
        " them, marked *f*, were recorded with `--check-forward`, because what is wrong there"
        " happened in the forward."
    )
    text = [
        summary,
        "",
        "| program | anomaly mode names | agviz names | pattern |",
        "|---|---|---|---|",
    ]
    for program, anomaly, mine, pattern in found:
        name = program.name + (" *f*" if program.one("check_forward") else "")
        text.append(f"| {name} | {_told(program, anomaly)} | {_told(program, mine)} | {pattern} |")
    return "\n".join(text)


def _is_right(program: Program, said: Said) -> bool:
    return bool(said.node) and (program.cause is None or said.line == program.cause)


def _told(program: Program, said: Said) -> str:
    if not said.node:
        return "nothing"
    node = f"`{said.node}`" + ("" if said.node == program.one("node") else " ✗")
    if program.cause is None:
        return node
    where = "no line" if said.line is None else f"line {said.line}"
    return f"{node}, {where}" + ("" if said.line == program.cause else " ✗")


def written(document: str, part: str) -> str:
    """``document`` with ``part`` in its place.

    Raises:
        ValueError: the document has no place for it.
    """
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{DOCUMENT} lacks {BEGIN} or {END}")
    return f"{before}{BEGIN}\n\n{part}\n\n{END}{after}"


def main() -> None:
    """Write the table."""
    document = DOCUMENT.read_text(encoding="utf-8")
    DOCUMENT.write_text(written(document, table(rows())), encoding="utf-8")
    print(f"wrote {DOCUMENT}", file=sys.stderr)


if __name__ == "__main__":
    main()
