"""The hooks of a run in which something is recorded, compared or verified."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from agviz.analysis.measures import bad
from agviz.errors import AgvizError
from agviz.record.options import read_limit
from agviz.record.provenance import Provenance
from agviz.testing import cause
from agviz.testing.attempt import MOST_BYTES, PATIENCE, TRACE, Attempt, FailedSubtest
from agviz.testing.baselines import Baselines
from agviz.testing.deadlines import Deadline
from agviz.testing.failing import Failing
from agviz.testing.github import summarize
from agviz.testing.paths import shown
from agviz.testing.report_data import ReportData, nothing
from agviz.testing.reports import (
    add_picture,
    add_section,
    leave_out_our_frames,
    replace_section,
)
from agviz.testing.settings import PluginSettings, read_choice
from agviz.testing.shared import SharedFixtures, offer
from agviz.testing.slug import TEARDOWN, TestPart
from agviz.testing.teardowns import may_run_code
from agviz.testing.terminal import show
from agviz.testing.timeouts import set_timer
from agviz.testing.verified import Verified
from agviz.words.safe import clean
from agviz_engine.errors import comes_from_outside

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from agviz.testing.fixture import Agviz
    from agviz.testing.settings import Choice

_PROPERTIES: Final = (
    ("verdict", "heading"),
    ("trace", "trace"),
    ("graph", "graph"),
    ("summary", "summary"),
    ("report", "report"),
)
"""Names in a report, and in its data."""
_DIED_EARLY: Final = (
    f"no trace: a backward pass is in a file {PATIENCE:g} s after the first of its test;"
    " with --agviz=on it is at once"
)


class PluginSession:
    """Records each test from the beginning of its setup to the end of its call.

    Args:
        config: pytest's.
        settings: what holds for all tests.
    """

    def __init__(self, config: pytest.Config, settings: PluginSettings) -> None:
        self._config = config
        self._root = os.fspath(config.rootpath)
        self._settings = settings
        self._provenance = Provenance()
        self._attempts: list[Attempt] = []
        """Of the test that runs: of its setup and call, and then of its teardown."""
        self._verified: list[Verified] = []
        """The same, where its passes run on both engines instead."""
        self._data: dict[TestPart, ReportData] = {}
        """As reports came in: in this process, or from workers."""
        self._explained: dict[str, ReportData] = {}
        """The first failure of each cause, which is explained in full."""
        self._shared = SharedFixtures()
        self._baselines = Baselines(settings)
        self._max_bytes = _bound(settings)
        self._is_called = False
        """Whether a test is running, and reports are those of its subtests."""
        self._index = ""
        self._problems: list[str] = []
        """Why something of the whole run could not be written."""

    def handle(self, item: pytest.Item) -> Agviz:
        """What the fixture gives."""
        from agviz.testing.fixture import Agviz, not_recorded

        if not self._attempts:
            raise not_recorded(item.nodeid)
        return Agviz(self._attempts[-1])

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        """Begin; complain of a marker where pytest expects a setup to fail."""
        __tracebackhide__ = True
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
        self._release()
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
        if not recorded:
            return ""
        wrong = recorded[-1].wrong
        return "\n".join(each["section"] for each in self._explain(recorded, Failing(wrong=wrong)))

    def _cancel_timer(self, item: pytest.Item) -> None:
        """Have pytest-timeout not count what it takes to explain a failure."""
        if self._config.pluginmanager.has_plugin("timeout"):
            self._config.hook.pytest_timeout_cancel_timer(item=item)

    def _record(self, item: pytest.Item, choice: Choice, before: Attempt | None = None) -> None:
        run = TestPart(item.nodeid, _reruns(item), "" if before is None else TEARDOWN)
        output, most = self._settings.output, self._max_bytes
        attempt = Attempt(run, output, choice, self._provenance, before, max_bytes=most)
        self._attempts.append(attempt)
        attempt.start()

    def _verify(self, item: pytest.Item, part: str = "") -> None:
        self._verified.append(Verified(TestPart(item.nodeid, _reruns(item), part)))
        self._verified[-1].start()

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """End, and fail the test where its gradients are not as they have to be."""
        __tracebackhide__ = True
        attempt = self._attempts[-1] if self._attempts else None
        deadline = Deadline(item)
        is_watched = bool(self._attempts or self._verified)
        result: object = None
        self._is_called = True
        try:
            with deadline.lifted() if is_watched else contextlib.nullcontext():
                result = yield
        finally:
            self._is_called = False
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
    def pytest_runtest_teardown(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        """Record, or verify, what fixtures do after the test for itself."""
        __tracebackhide__ = True
        self._stop()
        if not may_run_code(item, nextitem):
            return (yield)
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

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any]
    ) -> Generator[None, object, object]:
        """Hold what is recorded where a fixture of several tests runs backward."""
        __tracebackhide__ = True
        attempt = self._attempts[-1] if self._attempts else None
        if attempt is None or fixturedef.scope == "function":
            return (yield)
        before = attempt.seconds
        try:
            return (yield)
        finally:
            if attempt.seconds > before:
                self._shared.add(fixturedef, attempt)

    def pytest_fixture_post_finalizer(self, fixturedef: pytest.FixtureDef[Any]) -> None:
        """Let go of it after the test that is torn down now."""
        self._shared.finish(fixturedef)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Explain a failure; at the end let go of what is not to be kept."""
        if call.excinfo is not None and not self._config.getoption("fulltrace"):
            leave_out_our_frames(call.excinfo)
        report = yield
        error = None if call.excinfo is None else call.excinfo.value
        if self._is_called:
            self._explain_subtest(report, error)
            return report
        if self._attempts and report.when == "call":
            self._attempts[-1].has_passed = report.passed and not self._attempts[-1].subtests
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
        has_failed = report.failed or any(attempt.subtests for attempt in attempts)
        if attempts and has_failed:
            self._attach(item, report, self._explain_failure(item, report, error, attempts))
        elif attempts and is_last:
            self._attach(item, report, [self._part(attempt) for attempt in attempts])
        if is_last:
            self._attempts = []
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect what a report says, wherever it was made."""
        data: list[ReportData] = getattr(report, "agviz", [])
        for each in data:
            each["is_rerun"] = report.outcome == "rerun"  # type: ignore[comparison-overlap]
            self._remember(each)
            if not self._is_worker and not each["is_rerun"]:
                self._refer(report, each)
        if report.when not in {"setup", "call", "teardown"}:  # pytest-xdist says "???"
            self._explain_crash(report)

    def _refer(self, report: pytest.TestReport, data: ReportData) -> None:
        """Have a second failure of one cause refer to the first."""
        if not data["shows_something"] or not data["section"]:
            return
        from agviz.testing.artefacts import referring

        first = self._explained.setdefault(data["cause"], data)
        if first is not data:
            replace_section(report, data["section"], referring(data, first))

    @property
    def _is_worker(self) -> bool:
        """Whether this is a process of pytest-xdist, which reports to another all it knows."""
        return hasattr(self._config, "workerinput")

    def _remember(self, data: ReportData) -> None:
        self._data[TestPart(data["test"], data["rerun"], data["part"])] = data

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Have a worker of pytest-xdist write where this process would."""
        node.workerinput["agviz_here"] = str(self._config.invocation_params.dir)

    def pytest_sessionfinish(self) -> None:
        """Keep what was recorded of a test that was interrupted; write what is about the run."""
        for attempt in self._attempts:
            if attempt.has_recorded and not attempt.is_reported:
                self._remember(self._part(attempt, Failing()))
        self._end()
        self._release(every=True)
        if not self._is_worker:
            from agviz.testing.pages.index import write_index

            data = list(self._data.values())
            self._index = self._try(lambda: write_index(self._settings.output, data))
            self._try(lambda: summarize(data, self._index))

    def _try(self, write: Callable[[], str | None]) -> str:
        """Call ``write``; what goes wrong is reported at the end, and no more."""
        try:
            return write() or ""
        except Exception as error:
            if comes_from_outside(error):
                raise
            self._problems.append(_problem(error))
            return ""

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was recorded, or that nothing was."""
        if not self._settings.hide_summary:
            data = list(self._data.values())
            show(terminalreporter, self._settings, data, self._index, self._problems)

    def _release(self, *, every: bool = False) -> None:
        """Let go of what shared fixtures had recorded that are torn down."""
        for attempt in self._shared.release(every=every):
            if attempt.choice.mode != "on":
                attempt.let_go()

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
        baseline = None if self._baselines.are_updated else self._baselines.of(attempt.run.test)
        if not attempt.has_recorded:
            if attempt.problem and (choice.fail_on or choice.max_norm is not None):
                return f"nothing could be recorded and checked: {attempt.problem}"
            return "" if baseline is None else f"no backward pass ran; {shown(baseline)} has some"
        if not self._is_doubtful(attempt) and baseline is None:
            return ""
        from agviz.testing import checks

        try:
            with attempt.open() as trace:
                wrong = checks.not_finite(trace, choice.fail_on) if choice.fail_on else ""
                if not wrong and choice.max_norm is not None:
                    wrong = checks.too_large(trace, choice.max_norm)
                if not wrong and baseline is not None:
                    wrong = self._baselines.difference(trace, attempt)
                return wrong
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

    def _explain_failure(
        self,
        item: pytest.Item,
        report: pytest.TestReport,
        error: BaseException | None,
        attempts: Sequence[Attempt],
    ) -> list[ReportData]:
        is_recorded = any(attempt.has_recorded for attempt in attempts)
        if is_recorded:
            self._cancel_timer(item)
        last, said = attempts[-1], report.longreprtext if is_recorded else ""
        if error is None and last.subtests:
            error = last.subtests[0].error
            said = "\n\n".join(each.said for each in last.subtests)
        late = last.has_missed_deadline
        failing = Failing(error, item.path, last.wrong, said=said, has_missed_deadline=late)
        data = self._explain(attempts, failing)
        self._offer(item, attempts, data[0])
        return data

    def _explain(self, attempts: Sequence[Attempt], failing: Failing) -> list[ReportData]:
        """What a failure is explained by: each part that shows something, else the last."""
        *before, last = attempts
        data = [self._part(last, failing)]
        data += [
            self._part(
                attempt,
                Failing(wrong=attempt.wrong, has_missed_deadline=attempt.has_missed_deadline),
            )
            for attempt in reversed(before)
        ]
        for attempt in attempts:
            attempt.is_reported = True
        first = next((each for each in data if each["trace"]), data[0])
        for each in data:
            if not each["shows_something"] and each is not first:
                each["section"] = each["cause"] = ""
        return data

    def _offer(self, item: pytest.Item, attempts: Sequence[Attempt], data: ReportData) -> None:
        """Add what shared fixtures show that a failing test used."""
        for fixtures, attempt in self._shared.used_by(item):
            if attempt in attempts:
                continue
            shared = self._shared.said.get(attempt)
            if shared is None:
                shared = self._shared.said[attempt] = self._part(attempt, Failing())
            if shared["trace"]:
                offer(data, shared, fixtures)

    def _explain_subtest(self, report: pytest.TestReport, error: BaseException | None) -> None:
        """Say what went wrong in the passes since the subtest before; the test goes on."""
        attempt = self._attempts[-1] if self._attempts else None
        if attempt is None:
            return
        first, attempt.reported_passes = attempt.reported_passes, attempt.passes
        if not report.failed:
            return
        attempt.subtests.append(FailedSubtest(error, report.longreprtext))
        if attempt.passes == first:
            return
        try:
            from agviz.testing.verdict import judge_passes, lines

            with attempt.open() as trace:
                said = "\n".join(map(clean, lines(judge_passes(trace, first))))
        except Exception as wrong:
            if comes_from_outside(wrong):
                raise
            said = f"! {_problem(wrong)}"
        add_section(report, said)

    def _part(self, attempt: Attempt, failing: Failing | None = None) -> ReportData:
        """What becomes of a recording that has ended."""
        data = nothing(attempt.run)
        try:
            self._keep(attempt, failing, data)
        except Exception as error:
            if comes_from_outside(error):
                raise
            data["problem"] = _problem(error)
        data["has_failed"] = failing is not None
        data["has_recorded"] = attempt.has_recorded
        data["remark"] = attempt.remark if attempt.has_recorded else ""
        data["problem"] = attempt.problem or data["problem"]
        if failing is not None and not data["cause"]:
            why = cause.NO_BACKWARD
            if data["problem"]:
                why = cause.FailureCause(
                    data["problem"], f"nothing was recorded: {data['problem']}"
                )
            data["cause"], data["title"] = why
            data["error"] = failing.first_line
        data["without_baseline"] = (
            attempt.has_recorded
            and not attempt.run.part
            and self._baselines.are_wanted
            and not data["baseline"]
            and self._baselines.of(attempt.run.test) is None
        )
        return data

    def _keep(self, attempt: Attempt, failing: Failing | None, data: ReportData) -> None:
        """Keep a recording, and add to ``data`` what it shows, or let go of it.

        Raises:
            agviz.errors.AgvizError: something can't be written.
        """
        is_asked = attempt.choice.mode == "on"
        if failing is None and attempt.has_passed and self._baselines.are_updated:
            data["baseline"] = self._baselines.update(attempt)
        if failing is None and not is_asked:
            if not self._shared.holds(attempt):
                attempt.let_go()
        elif attempt.has_recorded:
            attempt.keep()
            if not attempt.problem:
                from agviz.testing.artefacts import leave

                leave(attempt.folder, data, failing, is_asked=is_asked)
                if failing is not None and self._shared.holds(attempt):
                    self._shared.said[attempt] = data

    def _attach(self, item: pytest.Item, report: pytest.TestReport, data: list[ReportData]) -> None:
        """Put sections and properties into a report, and all of it for the end of the run."""
        cast("Any", report).agviz = data
        for each in data:
            self._locate(each, item.location)
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

    def _locate(self, data: ReportData, location: tuple[str, int | None, str]) -> None:
        """Note where a test is."""
        file, line, _ = location
        data["test_file"] = os.path.join(self._root, file)  # noqa: PTH118 - of every test
        data["test_line"] = 0 if line is None else line + 1

    def _explain_crash(self, report: pytest.TestReport) -> None:
        """Report a test whose worker died, from what it had written until then."""
        rerun = 1 + max((run.rerun for run in self._data if run.test == report.nodeid), default=-1)
        for part in (TEARDOWN, ""):
            run = TestPart(report.nodeid, rerun, part)
            data = nothing(run)
            folder = self._settings.output / run.folder
            if (folder / TRACE).is_file():
                try:
                    from agviz.testing.artefacts import leave

                    leave(folder, data, Failing(said=report.longreprtext))
                except Exception as error:
                    if comes_from_outside(error):
                        raise
                    data["problem"] = _problem(error)
                break
        data["has_failed"] = True
        if not data["cause"]:
            data["cause"], data["title"] = cause.DIED_EARLY
        self._locate(data, report.location)
        self._remember(data)
        add_section(report, data["section"] or _DIED_EARLY)


def _bound(settings: PluginSettings) -> int | None:
    """Bytes that a trace may have; None: as many as everywhere."""
    if not settings.keep:
        return None if settings.values == "full" else MOST_BYTES
    try:
        return read_limit(settings.keep)
    except AgvizError as error:
        raise pytest.UsageError(f"--agviz-keep: {error}") from None


def _problem(error: Exception) -> str:
    """What went wrong when something was written, on one line."""
    if isinstance(error, AgvizError):
        return clean(str(error))
    return clean(f"agviz itself failed, which is a bug: {type(error).__name__}: {error}")


def _reruns(item: pytest.Item) -> int:
    """How often pytest-rerunfailures has run it before."""
    count: int = getattr(item, "execution_count", 1)
    return count - 1
