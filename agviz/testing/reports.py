"""What is put into pytest's reports, and left out of them."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import agviz_engine

if TYPE_CHECKING:
    from types import TracebackType

    import pytest

_ENGINE: Final = str(Path(agviz_engine.__file__).parent) + os.sep


def leave_out_our_frames(error: pytest.ExceptionInfo[BaseException]) -> None:
    """Show the traceback that torch's own engine, which is C++, would have left."""
    kept: TracebackType | None = error.tb
    while kept is not None:
        while kept.tb_next is not None and kept.tb_next.tb_frame.f_code.co_filename.startswith(
            _ENGINE
        ):
            kept.tb_next = kept.tb_next.tb_next
        kept = kept.tb_next


def add_picture(report: pytest.TestReport, path: Path) -> None:
    """Have pytest-html show an SVG file; where there is none, its DOT file is among the paths."""
    if path.suffix != ".svg":
        return
    from pytest_html import extras

    picture = extras.svg(base64.b64encode(path.read_bytes()).decode(), "agviz: graph")
    shown = cast("Any", report)
    shown.extras = [*getattr(report, "extras", []), picture]


def add_section(report: pytest.TestReport, text: str) -> None:
    """Show ``text`` below the traceback, whatever ``--show-capture`` says."""
    add = getattr(report.longrepr, "addsection", None)
    if add is None:
        report.sections.append(("agviz", text))
    else:
        add("agviz", text)


def replace_section(report: pytest.TestReport, old: str, new: str) -> None:
    """Show another text where :func:`add_section` showed one."""
    sections: list[Any] = getattr(report.longrepr, "sections", report.sections)
    for number, (name, content, *rest) in enumerate(sections):
        if name == "agviz" and content == old:
            sections[number] = (name, new, *rest)
