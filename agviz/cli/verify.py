"""Run a script's backward passes on torch's own engine and on agviz's, and compare.

Gradients are compared bit for bit, and so are the order in which nodes run on each thread and the
exceptions. The script is not changed. Each pass runs three times, twice on torch's engine (does it
repeat itself?) and once on agviz's, so whatever hooks, custom Functions and checkpointed modules do
besides computing gradients happens three times. A pass that can't be repeated is not compared.

  agviz verify train.py --epochs 1
  agviz verify --steps :20 -m my_package.train

The exit code is 1 where anything differs, the engine does not fit this torch, or the script itself
fails. With --json the report is all
that is on stdout; what the script prints goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import agviz.verify
import agviz_engine
from agviz import __version__
from agviz.after_import import after_import
from agviz.cli.console import bare_table, stdout_console
from agviz.cli.doctor import require_torch
from agviz.cli.program import Program
from agviz.cli.run import argument
from agviz.cli.to_the_end import run_to_the_end, stdout_for_report
from agviz.record.options import read_steps
from agviz.recording import say
from agviz.verify.findings import ComparisonOutcome, ComparisonReport
from agviz.words.documents import head
from agviz.words.safe import clean
from agviz.words.units import backward_passes, plural
from agviz_engine.support import remark

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from agviz.verify.findings import PassComparison

SHOWN = 10
"""Passes that differ, and reasons why passes were not compared, that are printed one by one."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``agviz verify``."""
    parser.usage = "agviz verify [--json] [--steps A:B] (script.py | -m module) [args ...]"
    parser.add_argument("--json", action="store_true", help="for other programs")
    parser.add_argument(
        "--steps",
        metavar="A:B",
        type=argument(read_steps),
        help="compare only the backward passes A to B-1, counted from 0; A or B may be left out",
    )
    parser.add_argument("-m", dest="as_module", action="store_true", help="run a module")
    parser.add_argument("target", metavar="script.py", help="the script, or with -m the module")
    parser.add_argument(
        "arguments", metavar="args", nargs=argparse.REMAINDER, help="the script's own arguments"
    )


def execute(arguments: argparse.Namespace) -> Callable[[], int]:
    """Make everything ready and return the program."""
    program = Program(arguments.target, arguments.arguments, as_module=arguments.as_module)
    require_torch()
    return _Verifying(program, arguments.steps, as_json=arguments.json).run


class _Verifying:
    """A program with what is found about it."""

    def __init__(self, program: Program, wanted: range | None, *, as_json: bool) -> None:
        self.program = program
        self.wanted = wanted
        self.as_json = as_json
        self.process = os.getpid()
        self.stop: Callable[[], ComparisonReport | None] = ComparisonReport
        self.refused = ""
        """Why nothing is compared."""

    def run(self) -> int:
        """Run the program to its end, its threads included, and report."""
        report = stdout_for_report(as_json=self.as_json)
        after_import("torch", self._start)
        try:
            failed = run_to_the_end(self.program, self.process, agviz.verify)
        except KeyboardInterrupt:
            self._report(report, failed=True)
            raise
        return self._report(report, failed=failed)

    def _start(self) -> None:
        try:
            agviz_engine.probe()
            from agviz.verify.session import Verification

            verification = Verification(self.wanted)
            verification.start()
        except agviz_engine.UnsupportedTorchError as error:
            self.refused = clean(str(error))
            say(f"{self.refused}; the program goes on, and nothing is compared")
            return
        import torch

        if untested := remark(torch.__version__):
            say(untested)
        self.stop = verification.stop

    def _report(self, stdout: Any, *, failed: bool) -> int:
        sys.stdout.flush()
        findings = self.stop() or ComparisonReport()
        if self.as_json:
            with stdout:
                json.dump(self._as_dict(findings, failed=failed), stdout)
                print(file=stdout)
        else:
            _print(findings, self.program.target, stdout_console(), self.refused, failed=failed)
        return int(failed or bool(self.refused or findings.outcomes[ComparisonOutcome.DIFFERENT]))

    def _as_dict(self, findings: ComparisonReport, *, failed: bool) -> dict[str, Any]:
        first = findings.first_difference
        return {
            **head("verify"),
            "agviz": __version__,
            "script": self.program.target,
            "argv": self.program.arguments,
            "failed": failed,
            "refused": self.refused,
            "passes": findings.passes,
            "reentrant": findings.reentrant,
            **{
                outcome.replace(" ", "_"): findings.outcomes[outcome]
                for outcome in ComparisonOutcome
            },
            "gradients": findings.gradients,
            "hook_calls": findings.hooks,
            "first_difference": None if first is None else asdict(first),
            "findings": [asdict(finding) for finding in findings.kept],
        }


def _print(
    findings: ComparisonReport, target: str, console: Console, refused: str, *, failed: bool
) -> None:
    from rich.markup import escape

    passes = backward_passes(findings.passes + findings.reentrant, findings.reentrant)
    seen = "nothing was compared" if refused else f"{passes}, {findings.compared:,} compared"
    console.print(f"[bold]{escape(clean(target))}[/]: {seen}")
    table = bare_table()
    results = [("?", "", refused)] if refused else _results(findings)
    for mark, subject, text in [*results, *_remarks(findings, failed=failed)]:
        table.add_row(_MARKS.get(mark, ""), subject, escape(clean(text)))
    console.print(table)


_MARKS = {
    "✓": "[green]✓[/]",
    "✗": "[red]✗[/]",
    "!": "[yellow]![/]",
    "?": "[yellow]?[/]",
    "·": "·",
}
_Row = tuple[str, str, str]


def _results(findings: ComparisonReport) -> list[_Row]:
    """Gradients, order, exceptions: equal, or what differs."""
    if not findings.compared:
        return [("!", "", "nothing was compared" if findings.passes else "no backward pass ran")]
    handed_on = findings.compared - findings.order_compared
    equal = {
        "gradient": f"{plural(findings.gradients, 'tensor')} equal bit for bit",
        "order": f"the same in {plural(findings.order_compared, 'pass', 'passes')}"
        + (f"; {handed_on:,} were handed to torch's engine" if handed_on else ""),
        "exception": f"the same in {plural(findings.raised, 'pass', 'passes')} that raised one"
        if findings.raised
        else "none",
    }
    rows: list[_Row] = []
    for kind, text in equal.items():
        different = [
            f"{_which(finding)}, {difference.described()}"
            for finding in findings.kept
            for difference in finding.differences
            if difference.kind == kind
        ]
        if not different:
            rows.append(("✓", f"{kind}s" if kind != "order" else kind, text))
            continue
        count = plural(findings.kinds[kind], "pass", "passes")
        rows.append(("✗", f"{kind}s" if kind != "order" else kind, f"different in {count}:"))
        rows += [("", "", text) for text in different[:SHOWN]]
        if len(different) > SHOWN:
            rows.append(("", "", f"and in {plural(len(different) - SHOWN, 'pass', 'passes')} more"))
    return rows


def _remarks(findings: ComparisonReport, *, failed: bool) -> list[_Row]:
    """What else the reader has to know."""
    rows: list[_Row] = []
    for outcome in (ComparisonOutcome.NOT_COMPARABLE, ComparisonOutcome.NOT_COMPARED):
        found = [finding for finding in findings.kept if finding.outcome is outcome]
        reasons = Counter(finding.reason for finding in found)
        if found:
            rows.append(("!", outcome, plural(findings.outcomes[outcome], "pass", "passes")))
        for reason, count in reasons.most_common(SHOWN):
            first = next(finding for finding in found if finding.reason == reason)
            again = f", and {plural(count - 1, 'pass', 'passes')} more" if count > 1 else ""
            rows.append(("", "", f"{_which(first)}{again}: {reason}"))
    if findings.hooks:
        calls = plural(findings.hooks, "call")
        rows.append(("·", "hooks", f"{calls} in one run; they were made three times"))
    if failed:
        rows.append(("✗", "script", "it failed, see above"))
    return rows


def _which(finding: PassComparison) -> str:
    return f"pass {finding.number}, {finding.call}() at {finding.place}"
