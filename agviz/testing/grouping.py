"""Failures of one cause together, in the order in which they are to be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agviz.analysis.outcome import Outcome
from agviz.testing.cause import NO_ANOMALY, NO_BACKWARD

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agviz.testing.report_data import ReportData


class FailureGroup(NamedTuple):
    """Tests that failed for the same."""

    failures: list[ReportData]
    """One for each test, its last run; never empty."""

    @property
    def first(self) -> ReportData:
        """The one that represents all."""
        return self.failures[0]

    @property
    def title(self) -> str:
        """The heading."""
        return self.first["title"]

    @property
    def is_found(self) -> bool:
        """Whether something was found that is wrong."""
        return self.first["glyph"] == Outcome.FOUND.glyph

    @property
    def is_plain(self) -> bool:
        """Whether there is nothing to be said but that, which any failure can have."""
        return self.first["cause"] in {NO_ANOMALY.key, NO_BACKWARD.key}


def groups(data: Iterable[ReportData]) -> list[FailureGroup]:
    """All failures: what was found first, the most frequent causes first, plain ones last."""
    last: dict[tuple[str, str, str], ReportData] = {}
    for each in data:
        if each["cause"]:
            last[each["test"], each["part"], each["cause"]] = each
    found: dict[str, list[ReportData]] = {}
    for each in last.values():
        found.setdefault(each["cause"], []).append(each)
    return sorted(map(FailureGroup, found.values()), key=_rank)


def _rank(group: FailureGroup) -> tuple[bool, bool, int]:
    return not group.is_found, group.is_plain, -len(group.failures)


def named(each: ReportData) -> str:
    """A test by its name, with the run and the part of it."""
    run = [f"rerun {each['rerun']}"] if each["rerun"] else []
    run += [each["part"]] if each["part"] else []
    return f"{each['test']} ({', '.join(run)})" if run else each["test"]
