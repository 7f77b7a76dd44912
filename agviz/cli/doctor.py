"""Say what is installed, whether agviz supports it, and how to get what is missing."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import shutil
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import agviz_engine
from agviz import __version__
from agviz.cli.console import bare_table, stdout_console
from agviz.errors import AgvizError
from agviz.export import renderers
from agviz.record import capturing
from agviz.words.documents import head
from agviz_engine.support import REQUIREMENT, WINDOW, is_tested, remark

if TYPE_CHECKING:
    import argparse

SMALLEST_TERMINAL = (80, 24)
_GET_TORCH = f"pip install '{REQUIREMENT}'"
_BUILD = (
    "to build it, have a C compiler (cc) on PATH and install agviz again from its sources"
    " (pip install --no-binary agviz --force-reinstall --no-deps agviz)"
)


@dataclass(frozen=True)
class CheckResult:
    """One thing that was looked at."""

    subject: str
    ok: bool
    found: str
    remedy: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``agviz doctor``."""
    parser.add_argument("--json", action="store_true", help="for other programs")


def execute(arguments: argparse.Namespace) -> int:
    """Print the findings; return 0 where all is well, 1 where something is missing."""
    torch = _torch()
    engine = _engine() if torch.ok else []
    findings = [_python(), torch, *engine, _graphviz(), _terminal()]
    if arguments.json:
        found = {"agviz": __version__, "findings": [asdict(f) for f in findings]}
        print(json.dumps({**head("doctor"), **found}))
    else:
        table = bare_table()
        for finding in findings:
            mark = "[red]✗[/]"
            if finding.ok:
                mark = "[yellow]![/]" if finding.remedy else "[green]✓[/]"
            table.add_row(mark, finding.subject, finding.found)
            if finding.remedy:
                table.add_row("", "", f"[bold]{finding.remedy}[/]")
        stdout_console().print(table)
    return 0 if all(finding.ok for finding in findings) else 1


def require_torch() -> None:
    """Raise AgvizError unless a torch is installed; whether it fits is found out later."""
    torch = _torch()
    if not torch.ok:
        raise AgvizError(f"torch: {torch.found}; {torch.remedy}")


def _python() -> CheckResult:
    return CheckResult("python", ok=True, found=f"{platform.python_version()} ({sys.executable})")


def _torch() -> CheckResult:
    if importlib.util.find_spec("torch") is None:
        found = "not installed: recorded traces can be read, not made"
        return CheckResult("torch", ok=False, found=found, remedy=_GET_TORCH)
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:  # found on a path, not installed
        version = "of an unknown version"
    if is_tested(version):
        found = f"{version}, one of {WINDOW}, which agviz is tested with"
        return CheckResult("torch", ok=True, found=found)
    found = f"{version}, not one of {WINDOW}, which agviz is tested with"
    return CheckResult("torch", ok=True, found=found, remedy=_GET_TORCH)


def _engine() -> list[CheckResult]:
    """What the engine relies on in torch's private parts, tried out."""
    try:
        import torch
    except Exception as error:  # noqa: BLE001 - a broken torch raises anything
        return [CheckResult("engine", ok=False, found=f"torch can't be imported: {error}")]
    try:
        found = agviz_engine.probe()
    except agviz_engine.UnsupportedTorchError as error:
        refused = f"torch's own serves, and nothing is recorded: {error}"
        return [CheckResult("engine", ok=False, found=refused, remedy=_GET_TORCH)]
    serves = CheckResult("engine", ok=True, found="agviz's serves: all that was tried out fits")
    if untested := remark(torch.__version__):
        serves = CheckResult(
            "engine", ok=True, found=f"agviz's serves: {untested}", remedy=_GET_TORCH
        )
    findings = [CheckResult("engine", ok=True, found=f"{what}: {at}") for what, at in found.items()]
    return [serves, *findings, _health_kernel(), _capture()]


def _health_kernel() -> CheckResult:
    from agviz.measure import kernel

    if kernel.is_built():
        return CheckResult("gradients", ok=True, found="measured in one pass, by compiled code")
    return CheckResult(
        "gradients",
        ok=True,
        found="measured by torch's reductions: the compiled code, which is quicker, is not built",
        remedy=_BUILD,
    )


def _capture() -> CheckResult:
    if capturing.is_built():
        return CheckResult("provenance", ok=True, found="stacks are captured by compiled code")
    if capturing.way() is None:
        found = "no lines are recorded: this torch captures stacks in another way"
        return CheckResult("provenance", ok=True, found=found)
    return CheckResult(
        "provenance",
        ok=True,
        found="stacks are captured by torch: the compiled code, which is quicker, is not built",
        remedy=_BUILD,
    )


def _graphviz() -> CheckResult:
    """Which Graphviz draws, and why that one."""
    tried = [(each, renderers.try_out(each)) for each in renderers.candidates()]
    refused = [
        f"{renderers.said(each, what)} could not: {what.lacks}"
        for each, what in tried
        if what.lacks
    ]
    able = [renderers.said(each, what) for each, what in tried if not what.lacks]
    if not able:
        found = "; ".join([*refused, "graphs are written as .dot only"])
        return CheckResult("graphviz", ok=False, found=found, remedy=renderers.INSTALL)
    also = [f"{each} could, too" for each in able[1:]]
    return CheckResult("graphviz", ok=True, found="; ".join([f"{able[0]} draws", *also, *refused]))


def _terminal() -> CheckResult:
    if not sys.stdout.isatty():
        return CheckResult(
            "terminal", ok=True, found="stdout is no terminal: text is written plainly"
        )
    columns, lines = shutil.get_terminal_size()
    found = f"{columns} columns, {lines} lines"
    if columns < SMALLEST_TERMINAL[0] or lines < SMALLEST_TERMINAL[1]:
        return CheckResult(
            "terminal",
            ok=False,
            found=found,
            remedy="make it at least {} columns and {} lines".format(*SMALLEST_TERMINAL),
        )
    return CheckResult("terminal", ok=True, found=found)
