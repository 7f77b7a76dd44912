"""Run a script and say whether its gradients are right.

The script runs once, as it is, and its results stay the same. Looked at are: the backward of custom
torch.autograd.Functions, held against numerical derivatives of their forward at the tensors of the
run; tensors that were changed between forward and backward past torch's version counter; losses
whose shapes broadcast; checkpoints that compute something else in backward; and gradients of which
float32 loses more than rounding explains. Custom Functions, and the forward of two backward passes,
are called again when the script has ended. With --compile, these forwards are also compiled by
torch.compile, and their gradients compared.

  agviz check train.py --epochs 1
  agviz check -m my_package.train

The exit code is 1 where something is wrong or the script itself fails, 2 where nothing can be told.
With --json the report is all that is on stdout; what the script prints goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING, Any

import agviz.check
from agviz import __version__
from agviz.after_import import after_import
from agviz.analysis.outcome import EXIT_CODES, Outcome
from agviz.analysis.verdict import Verdict
from agviz.cli.console import stdout_console
from agviz.cli.doctor import require_torch
from agviz.cli.program import Program
from agviz.cli.said import show
from agviz.cli.to_the_end import run_to_the_end, stdout_for_report
from agviz.recording import say
from agviz.words.documents import head

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz.check.report import CheckReport

_NO_TORCH = Verdict(
    outcome=Outcome.CANT_TELL,
    heading="no backward pass ran",
    paragraph="The program did not import torch.",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``agviz check``."""
    parser.usage = "agviz check [--json] [--compile] (script.py | -m module) [args ...]"
    parser.add_argument("--json", action="store_true", help="for other programs")
    parser.add_argument(
        "--compile",
        action="store_true",
        help="also hold gradients against those of the same functions under torch.compile",
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
    return _Checking(program, as_json=arguments.json, compiles=arguments.compile).run


class _Checking:
    """A program with what is found about it."""

    def __init__(self, program: Program, *, as_json: bool, compiles: bool) -> None:
        self.program = program
        self.as_json = as_json
        self.compiles = compiles
        self.process = os.getpid()
        self.stop: Callable[[], CheckReport] | None = None

    def run(self) -> int:
        """Run the program to its end, its threads included, and report."""
        report = stdout_for_report(as_json=self.as_json)
        after_import("torch", self._start)
        try:
            failed = run_to_the_end(self.program, self.process, agviz.check)
        except KeyboardInterrupt:
            self._report(report, failed=True)
            raise
        return self._report(report, failed=failed)

    def _start(self) -> None:
        from agviz.check.session import GradientCheck

        check = GradientCheck(compiles=self.compiles)
        try:
            check.start()
        except Exception as error:  # noqa: BLE001 - whatever happens here, the program goes on
            say(f"gradients can't be checked with this torch ({error!r}); the program goes on")
            return
        self.stop = check.stop

    def _report(self, stdout: Any, *, failed: bool) -> int:
        sys.stdout.flush()
        report = None if self.stop is None else self.stop()
        verdicts = [_NO_TORCH] if report is None else report.verdicts
        outcome = Outcome.CANT_TELL if report is None else report.outcome
        if self.as_json:
            with stdout:
                json.dump(self._as_dict(report, failed=failed), stdout)
                print(file=stdout)
        else:
            console = stdout_console()
            show(verdicts, console)
            if failed:
                console.print("\nThe script failed, see above; the check is of what ran before.")
        return 1 if failed else EXIT_CODES[outcome]

    def _as_dict(self, report: CheckReport | None, *, failed: bool) -> dict[str, Any]:
        found: dict[str, Any] = {
            "outcome": str(Outcome.CANT_TELL),
            "verdicts": [_NO_TORCH.as_json()],
        }
        return {
            **head("check"),
            "agviz": __version__,
            "script": self.program.target,
            "argv": self.program.arguments,
            "failed": failed,
            **(found if report is None else report.as_json()),
        }
