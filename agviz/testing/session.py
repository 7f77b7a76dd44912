"""The hooks of a run in which something is recorded, compared or verified."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

import agviz_engine
from agviz.errors import AgvizError
from agviz.testing import checks
from agviz.testing.artefacts import Told, leave, nothing, shown
from agviz.testing.attempt import TRACE, Attempt, wait_for_all
from agviz.testing.fixture import Agviz, not_recorded
from agviz.testing.settings import Settings, read_choice
from agviz.testing.slug import slug
from agviz.testing.terminal import show
from agviz.testing.verified import Verified
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType

_PROPERTY: Final = "agviz_"
_ENGINE: Final = str(Path(agviz_engine.__file__).parent) + os.sep


class Session:
    """Records each test from the beginning of its setup to the end of its call.

    Args:
        config: pytest's.
        settings: what holds for all tests.
    """

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._config = config
        self._settings = settings
        self._attempt: Attempt | None = None
        self._verified: Verified | None = None
        self._told: dict[str, Told] = {}
        """By test, as reports came in: in this process, or from workers."""

    def handle(self, item: pytest.Item) -> Agviz:
        """What the fixture gives."""
        if self._attempt is None:
            raise not_recorded(item.nodeid)
        return Agviz(self._attempt)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        """Begin; complain of a marker where pytest expects a setup to fail."""
        self._stop()
        wrong: pytest.UsageError | None = None
        try:
            self._begin(item)
        except pytest.UsageError as error:
            wrong = error
        result = yield
        if wrong is not None:
            raise wrong
        return result

    def _begin(self, item: pytest.Item) -> None:
        item.user_properties[:] = [
            each for each in item.user_properties if not each[0].startswith(_PROPERTY)
        ]
        choice = read_choice(item, self._settings)
        if choice.mode != "off":
            rerun = getattr(item, "execution_count", 1) - 1  # of pytest-rerunfailures
            folder = self._settings.output / slug(item.nodeid, rerun)
            self._attempt = Attempt(item.nodeid, folder, choice)
            self._attempt.start()
        elif self._settings.verify:
            self._verified = Verified()
            self._verified.start()

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self) -> Generator[None, object, object]:
        """End, and fail the test where its gradients are not as they have to be."""
        attempt, verified = self._attempt, self._verified
        try:
            result = yield
        finally:
            if attempt is not None:
                attempt.stop()
            if verified is not None:
                verified.stop()
        wrong = "" if verified is None else verified.difference
        if attempt is not None:
            wrong = attempt.wrong = self._check(attempt)
        if wrong:
            pytest.fail(wrong, pytrace=False)
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Explain a failure; at the end let go of what is not to be kept."""
        if call.excinfo is not None and not self._config.getoption("fulltrace"):
            leave_out_our_frames(call.excinfo)
        report = yield
        attempt, verified = self._attempt, self._verified
        if verified is not None and (report.failed or report.when == "teardown"):
            verified.stop()
            self._attach(item, report, verified.told(item.nodeid))
            self._verified = None
        if attempt is None:
            return report
        is_last = report.when == "teardown"
        if report.failed or is_last:
            attempt.stop()
        if report.failed and not attempt.is_told:
            if attempt.has_recorded and self._config.pluginmanager.has_plugin("timeout"):
                self._config.hook.pytest_timeout_cancel_timer(item=item)
            attempt.is_told = True
            self._attach(item, report, self._leave(attempt, is_failure=True))
        elif is_last and not attempt.is_told:
            keep = attempt.choice.mode == "on"
            if not keep:
                attempt.let_go()
            self._attach(item, report, self._leave(attempt, is_failure=False, keep=keep))
        if is_last:
            self._attempt = None
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Hear what a report tells, wherever it was made."""
        told: Told | None = getattr(report, "agviz", None)
        if told is not None:
            self._told[told["test"]] = told
        elif report.failed and report.nodeid not in self._told:
            self._explain_crash(report)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Have a worker of pytest-xdist write where this process would."""
        node.workerinput["agviz_here"] = str(self._config.invocation_params.dir)

    def pytest_sessionfinish(self) -> None:
        """Complete all files, that of a test that was interrupted too."""
        self._stop()
        wait_for_all()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was recorded, or that nothing was."""
        if not self._settings.hide_summary:
            show(terminalreporter, self._settings, list(self._told.values()))

    def _stop(self) -> None:
        if self._attempt is not None:
            self._attempt.stop()
            self._attempt = None
        if self._verified is not None:
            self._verified.stop()
            self._verified = None

    def _check(self, attempt: Attempt) -> str:
        """What is wrong with the gradients that a test that passed has recorded."""
        choice = attempt.choice
        if not attempt.has_recorded:
            if attempt.problem and (choice.fail_on or choice.max_norm is not None):
                return f"nothing could be recorded and checked: {attempt.problem}"
            before = self._baseline(attempt.node_id)
            return "" if before is None else f"no backward pass ran; {shown(before)} has some"
        checks_values = bool(choice.fail_on) or choice.max_norm is not None
        if not checks_values and self._baseline(attempt.node_id) is None:
            return ""  # opening the file would wait until it is complete
        try:
            with attempt.open() as trace:
                wrong = checks.not_finite(trace, choice.fail_on) if choice.fail_on else ""
                if not wrong and choice.max_norm is not None:
                    wrong = checks.too_large(trace, choice.max_norm)
                return wrong or self._compare(trace, attempt)
        except AgvizError as error:
            return f"what was recorded can't be checked: {error}"

    def _compare(self, trace: Trace, attempt: Attempt) -> str:
        from agviz.analysis.comparing import Tolerance
        from agviz.analysis.diff import diff

        path = self._baseline(attempt.node_id)
        if path is None:
            return ""
        with Trace.open(path) as before:
            found = diff(before, trace, tolerance=Tolerance(rtol=self._settings.rtol).checked())
        if found.same:
            return ""
        files = shlex.join(map(shown, (path, attempt.folder / TRACE)))
        return f"gradients are not those of {shown(path)}. {found} More: agviz diff {files}"

    def _baseline(self, node_id: str) -> Path | None:
        if self._settings.baseline is None:
            return None
        path = self._settings.baseline / slug(node_id) / TRACE
        return path if path.is_file() else None

    def _leave(self, attempt: Attempt, *, is_failure: bool, keep: bool = True) -> Told:
        """What becomes of a recording that has ended."""
        told = nothing(attempt.node_id)
        if attempt.has_recorded and keep:
            attempt.wait()
            try:
                told = leave(
                    attempt.folder, attempt.node_id, is_failure=is_failure, wrong=attempt.wrong
                )
            except AgvizError as error:
                told["problem"] = str(error)
        told["has_recorded"] = attempt.has_recorded
        told["problem"] = attempt.problem or told["problem"]
        told["without_baseline"] = (
            attempt.has_recorded
            and self._settings.baseline is not None
            and self._baseline(attempt.node_id) is None
        )
        return told

    @staticmethod
    def _attach(item: pytest.Item, report: pytest.TestReport, told: Told) -> None:
        """Put a section and properties into a report, and all of it for the end of the run."""
        cast("Any", report).agviz = told
        properties = [
            (f"{_PROPERTY}{name}", str(cast("Any", told)[key]))
            for name, key in (
                ("verdict", "heading"),
                *((n, n) for n in ("trace", "graph", "summary")),
            )
            if cast("Any", told)[key]
        ]
        item.user_properties += properties
        report.user_properties += properties
        if told["section"]:
            add_section(report, told["section"])

    def _explain_crash(self, report: pytest.TestReport) -> None:
        """Tell of a test whose worker died, from what it had written until then."""
        folder = self._settings.output / slug(report.nodeid)
        if report.when in {"setup", "call", "teardown"} or not (folder / TRACE).is_file():
            return
        try:
            told = leave(folder, report.nodeid, is_failure=True)
        except AgvizError as error:
            told = nothing(report.nodeid)
            told["problem"] = str(error)
        self._told[report.nodeid] = told
        if told["section"]:
            add_section(report, told["section"])


def leave_out_our_frames(error: pytest.ExceptionInfo[BaseException]) -> None:
    """Show the traceback that torch's own engine, which is C++, would have left."""
    kept: TracebackType | None = error.tb
    while kept is not None:
        while kept.tb_next is not None and kept.tb_next.tb_frame.f_code.co_filename.startswith(
            _ENGINE
        ):
            kept.tb_next = kept.tb_next.tb_next
        kept = kept.tb_next


def add_section(report: pytest.TestReport, text: str) -> None:
    """Show ``text`` below the traceback, whatever ``--show-capture`` says."""
    add = getattr(report.longrepr, "addsection", None)
    if add is None:
        report.sections.append(("agviz", text))
    else:
        add("agviz", text)
