"""Run a script and say whether its gradients are right.

The script runs once, as it is, and its results stay the same. Looked at are: the backward of custom
torch.autograd.Functions, held against numerical derivatives of their forward at the tensors of the
run; tensors that were changed between forward and backward past torch's version counter; losses
whose shapes broadcast; checkpoints that compute something else in backward; and gradients of which
float32 loses more than rounding explains. Custom Functions, and the forward of two backward passes,
are called again when the script has ended. With --compile, these forwards are also compiled by
torch.compile, and their gradients compared.

With --ranks, torchrun starts the program in several ranks, and their gradients are also held
against those of one process: whether they are equal on all ranks, and the mean of what each rank's
own backward gave; how losses weigh samples; whether all ranks get the same batch.

  agviz check train.py --epochs 1
  agviz check -m my_package.train
  agviz check --ranks 2 train.py

The exit code is 1 where something is wrong or the script itself fails, 2 where nothing can be said.
With --json the report is all that is on stdout; what the script prints goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import agviz.check
from agviz import __version__
from agviz.after_import import after_import
from agviz.analysis.outcome import EXIT_CODES, Outcome
from agviz.analysis.verdict import Verdict
from agviz.cli.console import stdout_console
from agviz.cli.doctor import require_torch
from agviz.cli.launch_ranks import OF_RANKS, check_torchrun, torchrun
from agviz.cli.program import Program
from agviz.cli.run import argument
from agviz.cli.said import show
from agviz.cli.to_the_end import run_to_the_end, stdout_for_report
from agviz.errors import AgvizError
from agviz.record.options import read_count
from agviz.recording import say
from agviz.words.documents import head

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz.check.ranks.together import TogetherReport
    from agviz.check.report import CheckReport
    from agviz.check.session import GradientCheck

_NO_TORCH = Verdict(
    outcome=Outcome.CANT_TELL,
    heading="no backward pass ran",
    paragraph="The program did not import torch.",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``agviz check``."""
    parser.usage = "agviz check [--json] [--compile] [--ranks N] (script.py | -m module) [args ...]"
    parser.add_argument("--json", action="store_true", help="for other programs")
    parser.add_argument(
        "--compile",
        action="store_true",
        help="also hold gradients against those of the same functions under torch.compile",
    )
    parser.add_argument(
        "--ranks",
        metavar="N",
        type=argument(read_count),
        help="have torchrun start the program N times on this machine, and compare the ranks",
    )
    parser.add_argument(OF_RANKS, dest="of_ranks", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("-m", dest="as_module", action="store_true", help="run a module")
    parser.add_argument("target", metavar="script.py", help="the script, or with -m the module")
    parser.add_argument(
        "arguments", metavar="args", nargs=argparse.REMAINDER, help="the script's own arguments"
    )


def execute(arguments: argparse.Namespace) -> Callable[[], int] | int:
    """Make everything ready and return the program; with --ranks, run and compare them."""
    program = Program(arguments.target, arguments.arguments, as_module=arguments.as_module)
    require_torch()
    if arguments.ranks is not None and arguments.of_ranks is None:
        if arguments.ranks == 1:
            raise AgvizError("one rank has no other to be compared with; say --ranks 2")
        check_torchrun()
        return _check_ranks(program, arguments)
    checking = _Checking(
        program,
        as_json=arguments.json,
        compiles=arguments.compile,
        of_ranks=arguments.of_ranks,
    )
    return checking.run


def _check_ranks(program: Program, arguments: argparse.Namespace) -> int:
    """Run the program in several ranks, and report what they and their comparison have found."""
    from agviz.check.ranks.together import read_together

    with tempfile.TemporaryDirectory(prefix="agviz-check-") as folder:
        stdout = sys.stderr.fileno() if arguments.json else None
        code = torchrun(arguments.ranks, "check", Path(folder), arguments.given[1:], stdout)
        report = read_together(Path(folder), arguments.ranks)
    _print(report, program, sys.stdout, as_json=arguments.json, failed=bool(code) or report.failed)
    return 1 if code or report.failed else EXIT_CODES[report.outcome]


def _print(
    report: CheckReport | TogetherReport | None,
    program: Program,
    stdout: Any,
    *,
    as_json: bool,
    failed: bool,
) -> None:
    if failed and report is not None:
        from agviz.check.report import of_a_failure

        report.verdicts = of_a_failure(report.verdicts)
    if as_json:
        json.dump(_as_dict(report, program, failed=failed), stdout)
        print(file=stdout, flush=True)
        return
    console = stdout_console()
    show([_NO_TORCH] if report is None else report.verdicts, console)
    if failed:
        console.print("\nThe script failed, see above; the check is of what ran before.")


def _as_dict(
    report: CheckReport | TogetherReport | None, program: Program, *, failed: bool
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "outcome": str(Outcome.CANT_TELL),
        "verdicts": [_NO_TORCH.as_json()],
    }
    return {
        **head("check"),
        "agviz": __version__,
        "script": program.target,
        "argv": program.arguments,
        "failed": failed,
        **(found if report is None else report.as_json()),
    }


class _Checking:
    """A program with what is found about it."""

    def __init__(
        self, program: Program, *, as_json: bool, compiles: bool, of_ranks: Path | None
    ) -> None:
        self.program = program
        self.as_json = as_json and of_ranks is None
        self.compiles = compiles
        self.of_ranks = of_ranks
        self.process = os.getpid()
        self.check: GradientCheck | None = None

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

        check = GradientCheck(compiles=self.compiles, in_ranks=self.of_ranks is not None)
        try:
            check.start()
        except Exception as error:  # noqa: BLE001 - whatever happens here, the program goes on
            say(f"gradients can't be checked with this torch ({error!r}); the program goes on")
            return
        self.check = check

    def _report(self, stdout: Any, *, failed: bool) -> int:
        sys.stdout.flush()
        report = None if self.check is None else self.check.stop()
        if self.of_ranks is not None:
            self._leave(self.of_ranks, report, failed=failed)
            return 1 if failed else 0
        outcome = Outcome.CANT_TELL if report is None else report.outcome
        _print(report, self.program, stdout, as_json=self.as_json, failed=failed)
        return 1 if failed else EXIT_CODES[outcome]

    def _leave(self, folder: Path, report: CheckReport | None, *, failed: bool) -> None:
        """Leave what was found for the process that has started the ranks."""
        from agviz.check.ranks.together import leave

        notes = None if self.check is None else self.check.notes()
        if report is None or notes is None:
            return
        try:
            leave(folder, int(os.environ["RANK"]), notes, report, failed=failed)
        except OSError as error:
            say(f"what this rank has found can't be written ({error.strerror})")
