"""Fixtures of several tests that ran backward: their recording is offered to each that fails.

Such a fixture is set up while the first test that needs it is recorded. What was recorded of that
test is held until the fixture is torn down, also where the test itself passes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

    from agviz.testing.attempt import Attempt
    from agviz.testing.report_data import ReportData

_ANSWER = (
    *("heading", "glyph", "cause", "title", "place", "file", "line", "source", "paragraph"),
    *("trace", "graph", "summary", "report", "command"),
)


class _Shared(NamedTuple):
    fixture: pytest.FixtureDef[Any]
    attempt: Attempt


class SharedFixtures:
    """Those that are set up, with the recordings of the tests in which they were."""

    def __init__(self) -> None:
        self._held: list[_Shared] = []
        self._finished: list[_Shared] = []
        self.said: dict[Attempt, ReportData] = {}
        """What was said already of recordings that are held."""

    def add(self, fixture: pytest.FixtureDef[Any], attempt: Attempt) -> None:
        """Hold what was recorded, because the fixture ran backward in it."""
        self._held.append(_Shared(fixture, attempt))

    def holds(self, attempt: Attempt) -> bool:
        """Whether a recording is held."""
        return any(each.attempt is attempt for each in (*self._held, *self._finished))

    def used_by(self, item: pytest.Item) -> Iterator[tuple[str, Attempt]]:
        """Recordings of those that a test used, each with the fixtures' names, as a phrase."""
        used = getattr(getattr(item, "_request", None), "_fixture_defs", {}).values()
        found: dict[Attempt, list[str]] = {}
        for each in (*self._finished, *self._held):
            if any(each.fixture is fixture for fixture in used):
                found.setdefault(each.attempt, []).append(each.fixture.argname)
        for attempt, names in found.items():
            noun = "fixture" if len(names) == 1 else "fixtures"
            yield f"{noun} {', '.join(names)}", attempt

    def finish(self, fixture: pytest.FixtureDef[Any]) -> None:
        """Note that a fixture is torn down; the last test that used it may still be explained."""
        done = [each for each in self._held if each.fixture is fixture]
        self._finished += done
        self._held = [each for each in self._held if each.fixture is not fixture]

    def release(self, *, every: bool = False) -> Iterator[Attempt]:
        """Recordings that nobody needs any more.

        Args:
            every: those of fixtures that are not torn down, too.
        """
        if every:
            self._finished, self._held = [*self._finished, *self._held], []
        attempts = dict.fromkeys(each.attempt for each in self._finished)
        self._finished = []
        for attempt in attempts:
            if not self.holds(attempt) and self.said.pop(attempt, None) is None:
                yield attempt


def offer(own: ReportData, shared: ReportData, fixtures: str) -> None:
    """Have a failing test's answer name a shared fixture's, or be that where it has none itself.

    Args:
        own: what is known of the test that failed.
        shared: what is known of the recording in which fixtures were set up.
        fixtures: which ran backward in it, as a phrase.
    """
    line = f"{fixtures} ran backward when {shared['test']} was set up"
    if own["shows_something"] or (own["has_recorded"] and not shared["shows_something"]):
        more = f"{line}: {shared['heading']}: {shared['command']}"
        own["section"] = "\n".join(filter(None, (own["section"], more)))
        return
    answer: dict[str, Any] = {name: value for name, value in shared.items() if name in _ANSWER}
    ran = "ran no backward pass itself"
    if own["has_recorded"]:
        ran = f"has a trace of its own, in which no anomaly was found: {own['trace']}"
    own.update(answer)  # type: ignore[typeddict-item]
    own["is_brief"], own["shows_something"] = False, shared["shows_something"]
    own["section"] = f"{line}; this test {ran}\n{shared['section']}"
