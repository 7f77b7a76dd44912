"""The hooks of a run in which something is recorded, compared or verified."""

from __future__ import annotations

import base64
import contextlib
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

import agviz_engine
from agviz.analysis.comparing import Tolerance
from agviz.analysis.diff import diff
from agviz.analysis.measures import bad
from agviz.errors import AgvizError
from agviz.record.provenance import Provenance
from agviz.testing import checks
from agviz.testing.artefacts import ReportData, leave, nothing
from agviz.testing.attempt import PATIENCE, TRACE, Attempt
from agviz.testing.deadlines import Deadline
from agviz.testing.failing import Failing
from agviz.testing.fixture import Agviz, not_recorded
from agviz.testing.paths import shown
from agviz.testing.settings import Choice, PluginSettings, read_choice
from agviz.testing.slug import TEARDOWN, TestPart, slug
from agviz.testing.terminal import show
from agviz.testing.timeouts import set_timer
from agviz.testing.verified import Verified
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from types import TracebackType

_PROPERTIES: Final = (
    ("verdict", "heading"),
    ("trace", "trace"),
    ("graph", "graph"),
    ("summary", "summary"),
)
"""Names in a report, and in its data."""
_DIED_EARLY: Final = (
    f"no trace: a backward pass is in a file {PATIENCE:g} s after the first of its test;"
    " with --agviz=on it is at once"
)
_ENGINE: Final = str(Path(agviz_engine.__file__).parent) + os.sep


class PluginSession:
    """Records each test from the beginning of its setup to the end of its call.

    Args:
        config: pytest's.
        settings: what holds for all tests.
    """

    def __init__(self, config: pytest.Config, settings: PluginSettings) -> None:
        self._config = config
        self._settings = settings
        self._provenance = Provenance()
        self._attempts: list[Attempt] = []
        """Of the test that runs: of its setup and call, and then of its teardown."""
        self._verified: list[Verified] = []
        """The same, where its passes run on both engines instead."""
        self._data: dict[TestPart, ReportData] = {}
        """As reports came in: in this process, or from workers."""

    def handle(self, item: pytest.Item) -> Agviz:
        """What the fixture gives."""
        if not self._attempts:
            raise not_recorded(item.nodeid)
        return Agviz(self._attempts[-1])

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        """Begin; complain of a marker where pytest expects a setup to fail."""
        self._end()
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
            each for each in item.user_properties if not each[0].startswith("agviz_")
        ]
        choice = read_choice(item, self._settings)
        if choice.mode != "off":
            self._record(item, choice)
        elif self._settings.verify:
            self._verify(item)

    @pytest.hookimpl(optionalhook=True)
    def pytest_timeout_set_timer(self, item: pytest.Item, settings: Any) -> bool:
        """Give a test the time that recording takes; explain one that hangs before all ends."""
        set_timer(item, settings, self._explain_hang, self._recorded_seconds)
        return True

    def _recorded_seconds(self) -> float:
        return sum(attempt.seconds for attempt in self._attempts)

    def _explain_hang(self) -> str:
        recorded = [attempt for attempt in self._attempts if attempt.has_recorded]
        for attempt in recorded:
            attempt.freeze()
        return "\n".join(each["section"] for each in self._explain(recorded)) if recorded else ""

    def _cancel_timer(self, item: pytest.Item) -> None:
        """Have pytest-timeout not count what it takes to explain a failure."""
        if self._config.pluginmanager.has_plugin("timeout"):
            self._config.hook.pytest_timeout_cancel_timer(item=item)

    def _record(self, item: pytest.Item, choice: Choice, before: Attempt | None = None) -> None:
        run = TestPart(item.nodeid, _reruns(item), "" if before is None else TEARDOWN)
        attempt = Attempt(run, self._settings.output, choice, self._provenance, before)
        self._attempts.append(attempt)
        attempt.start()

    def _verify(self, item: pytest.Item, part: str = "") -> None:
        self._verified.append(Verified(TestPart(item.nodeid, _reruns(item), part)))
        self._verified[-1].start()

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """End, and fail the test where its gradients are not as they have to be."""
        attempt = self._attempts[-1] if self._attempts else None
        deadline = Deadline(item)
        is_watched = bool(self._attempts or self._verified)
        result: object = None
        try:
            with deadline.lifted() if is_watched else contextlib.nullcontext():
                result = yield
        finally:
            self._stop()
        if deadline.is_in_doubt and "agviz" not in getattr(item, "fixturenames", ()):
            if attempt is not None:
                attempt.has_missed_deadline = True
            item.runtest()  # without agviz, which the fixture is all about
        wrong = self._verified[-1].difference if self._verified else ""
        if attempt is not None:
            wrong = attempt.wrong = self._check(attempt)
        if wrong:
            pytest.fail(wrong, pytrace=False)
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        """Record, or verify, what fixtures do after the test for itself."""
        self._stop()
        if self._attempts:
            self._record(item, self._attempts[-1].choice, self._attempts[-1])
        if self._verified:
            self._verify(item, TEARDOWN)
        try:
            result = yield
        finally:
            self._stop()
        if self._verified and self._verified[-1].difference:
            pytest.fail(self._verified[-1].difference, pytrace=False)
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Explain a failure; at the end let go of what is not to be kept."""
        if call.excinfo is not None and not self._config.getoption("fulltrace"):
            leave_out_our_frames(call.excinfo)
        report = yield
        is_last = report.when == "teardown"
        verified = [each for each in self._verified if not each.is_reported]
        if verified and (report.failed or is_last):
            self._stop()
            self._attach(item, report, [each.report_data() for each in verified])
            for each in verified:
                each.is_reported = True
        if is_last:
            self._verified = []
        attempts = [attempt for attempt in self._attempts if not attempt.is_reported]
        if not attempts:
            return report
        if report.failed:
            if any(attempt.has_recorded for attempt in attempts):
                self._cancel_timer(item)
            error = None if call.excinfo is None else call.excinfo.value
            self._attach(item, report, self._explain(attempts, error, item.path))
        elif is_last:
            self._attach(item, report, [self._part(attempt) for attempt in attempts])
        if is_last:
            self._attempts = []
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect what a report says, wherever it was made."""
        data: list[ReportData] = getattr(report, "agviz", [])
        for each in data:
            self._remember(each)
        if report.when not in {"setup", "call", "teardown"}:  # pytest-xdist says "???"
            self._explain_crash(report)

    def _remember(self, data: ReportData) -> None:
        self._data[TestPart(data["test"], data["rerun"], data["part"])] = data

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Have a worker of pytest-xdist write where this process would."""
        node.workerinput["agviz_here"] = str(self._config.invocation_params.dir)

    def pytest_sessionfinish(self) -> None:
        """Keep what was recorded of a test that was interrupted."""
        for attempt in self._attempts:
            if attempt.has_recorded and not attempt.is_reported:
                self._remember(self._part(attempt, Failing()))
        self._end()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was recorded, or that nothing was."""
        if not self._settings.hide_summary:
            show(terminalreporter, self._settings, list(self._data.values()))

    def _end(self) -> None:
        """Stop where the test before had no end."""
        self._stop()
        self._attempts, self._verified = [], []

    def _stop(self) -> None:
        running: list[Attempt | Verified] = [*self._attempts, *self._verified]
        for each in running:
            each.stop()

    def _check(self, attempt: Attempt) -> str:
        """What is wrong with the gradients that a test that passed has recorded."""
        choice = attempt.choice
        if not attempt.has_recorded:
            if attempt.problem and (choice.fail_on or choice.max_norm is not None):
                return f"nothing could be recorded and checked: {attempt.problem}"
            before = self._baseline(attempt.run.test)
            return "" if before is None else f"no backward pass ran; {shown(before)} has some"
        if not self._is_doubtful(attempt) and self._baseline(attempt.run.test) is None:
            return ""
        try:
            with attempt.open() as trace:
                wrong = checks.not_finite(trace, choice.fail_on) if choice.fail_on else ""
                if not wrong and choice.max_norm is not None:
                    wrong = checks.too_large(trace, choice.max_norm)
                return wrong or self._compare(trace, attempt)
        except AgvizError as error:
            return f"what was recorded can't be checked: {error}"

    @staticmethod
    def _is_doubtful(attempt: Attempt) -> bool:
        """Whether gradients have to be looked at more closely, which takes a file."""
        choice = attempt.choice
        if not choice.fail_on and choice.max_norm is None:
            return False
        measured = attempt.measured()
        return measured is None or any(
            bad(each)
            or (
                choice.max_norm is not None
                and each.norm is not None
                and each.norm > choice.max_norm
            )
            for each in measured
        )

    def _compare(self, trace: Trace, attempt: Attempt) -> str:
        path = self._baseline(attempt.run.test)
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

    def _explain(
        self,
        attempts: Sequence[Attempt],
        error: BaseException | None = None,
        path: Path | None = None,
    ) -> list[ReportData]:
        """What a failure is explained by: each part that shows something, else the last."""
        *before, last = attempts
        data = [self._part(last, _failing(last, error, path))]
        data += [self._part(attempt, _failing(attempt)) for attempt in reversed(before)]
        for attempt in attempts:
            attempt.is_reported = True
        first = next((each for each in data if each["trace"]), data[0])
        for each in data:
            if not each["shows_something"] and each is not first:
                each["section"] = ""
        return data

    def _part(self, attempt: Attempt, failing: Failing | None = None) -> ReportData:
        """What becomes of a recording that has ended."""
        data = nothing(attempt.run)
        is_asked = attempt.choice.mode == "on"
        if failing is None and not is_asked:
            attempt.let_go()
        elif attempt.has_recorded:
            attempt.keep()
            if not attempt.problem:
                try:
                    data = leave(attempt.folder, data, failing, is_asked=is_asked)
                except AgvizError as error:
                    data["problem"] = str(error)
        data["has_recorded"] = attempt.has_recorded
        data["remark"] = attempt.remark if attempt.has_recorded else ""
        data["problem"] = attempt.problem or data["problem"]
        data["without_baseline"] = (
            attempt.has_recorded
            and not attempt.run.part
            and self._settings.baseline is not None
            and self._baseline(attempt.run.test) is None
        )
        return data

    def _attach(self, item: pytest.Item, report: pytest.TestReport, data: list[ReportData]) -> None:
        """Put sections and properties into a report, and all of it for the end of the run."""
        cast("Any", report).agviz = data
        for each in data:
            found: dict[str, Any] = cast("Any", each)
            properties = [
                ("_".join(filter(None, ("agviz", each["part"], name))), found[key])
                for name, key in _PROPERTIES
                if found[key] and (each["section"] or not each["heading"])
            ]
            item.user_properties += properties
            report.user_properties += properties
            if each["section"]:
                add_section(report, each["section"])
                if self._config.getoption("htmlpath", None):  # of pytest-html
                    add_picture(report, Path(each["graph"]))

    def _explain_crash(self, report: pytest.TestReport) -> None:
        """Report a test whose worker died, from what it had written until then."""
        rerun = 1 + max((run.rerun for run in self._data if run.test == report.nodeid), default=-1)
        for part in (TEARDOWN, ""):
            run = TestPart(report.nodeid, rerun, part)
            data = nothing(run)
            folder = self._settings.output / run.folder
            if (folder / TRACE).is_file():
                try:
                    data = leave(folder, data, Failing())
                except AgvizError as error:
                    data["problem"] = str(error)
                break
        self._remember(data)
        add_section(report, data["section"] or _DIED_EARLY)


def _failing(
    attempt: Attempt, error: BaseException | None = None, path: Path | None = None
) -> Failing:
    late = attempt.has_missed_deadline
    return Failing(error, path, attempt.wrong, has_missed_deadline=late)


def _reruns(item: pytest.Item) -> int:
    """How often pytest-rerunfailures has run it before."""
    count: int = getattr(item, "execution_count", 1)
    return count - 1


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
