"""The lines at the end of a run."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from agviz.testing.github import commands
from agviz.testing.grouping import groups, named
from agviz.testing.paths import shown
from agviz.words.units import backward_passes, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pytest

    from agviz.testing.report_data import ReportData
    from agviz.testing.settings import PluginSettings

_MOST: Final = 20


def show(
    reporter: pytest.TerminalReporter,
    settings: PluginSettings,
    data: Sequence[ReportData],
    index: str,
    problems: Sequence[str],
) -> None:
    """Print what was recorded, compared or verified, and what could not be.

    Args:
        reporter: pytest's.
        settings: what holds for all tests.
        data: what is known of them.
        index: the page about the run; empty: there is none.
        problems: why something of the whole run could not be written.
    """
    reporter.section("agviz")
    for line in _lines(settings, data):
        reporter.line(line)
    if index:
        reporter.line(f"index: {shown(index)}")
    for problem in problems:
        reporter.line(f"! {problem}")
    for command in commands(data):
        reporter.line(command)


def _lines(settings: PluginSettings, data: Sequence[ReportData]) -> Iterator[str]:
    problems = Counter(
        problem
        for problem, _ in {(each["problem"], each["test"]) for each in data if each["problem"]}
    )
    nothing = ""
    has_worked = any(each["has_recorded"] or each["verified"] for each in data)
    if problems and not has_worked:
        nothing = f"nothing was {'compared' if settings.verify else 'recorded'}: "
    elif settings.verify:
        yield from _verified(data)
    elif settings.mode == "off" and not any(each["has_recorded"] for each in data):
        yield "the tests that ask to be recorded ran no backward pass: nothing was recorded"
    else:
        yield from _recorded(settings, data)
    for problem, count in problems.items():
        yield f"! {nothing}{problem} ({plural(count, 'test')})"
    for said in sorted({each["remark"] for each in data} - {""}):
        yield f"! {said}"


def _recorded(settings: PluginSettings, data: Sequence[ReportData]) -> Iterator[str]:
    recorded = len({each["test"] for each in data if each["has_recorded"]})
    if not recorded:
        tests = plural(len({each["test"] for each in data}), "test")
        yield (
            f"asked to record (--agviz={settings.mode}), but none of {tests}"
            " ran a backward pass: nothing was recorded"
        )
        return
    kept = [each for each in data if each["trace"]]
    traces = len({each["trace"] for each in kept})
    yield (
        f"{plural(recorded, 'test')} ran backward; {plural(traces, 'trace')} in"
        f" {shown(settings.output)}"
    )
    failed = groups(each for each in kept if each["heading"] and not each["is_brief"])
    for group in failed[:_MOST]:
        first, others = group.first, len(group.failures) - 1
        said = first["heading"]
        if others:
            where = f", at {first['place']}" if first["place"] and not group.is_plain else ""
            said = f"{group.title}{where} (and {plural(others, 'other test')})"
        yield f"{first['glyph'] or '·'} {named(first)}: {said}"
        yield f"    {first['command']}"
    if len(failed) > _MOST:
        yield f"and {plural(len(failed) - _MOST, 'more cause')}"
    brief = sum(each["is_brief"] for each in kept)
    if brief:
        yield f"no anomaly found in {plural(brief, 'test')} that failed for something else"
    if settings.baseline is not None:
        yield _compared(settings, data, shown(settings.baseline))


def _compared(settings: PluginSettings, data: Sequence[ReportData], folder: str) -> str:
    if settings.update:
        changed = Counter(each["baseline"] for each in data if each["baseline"])
        said = ", ".join(f"{count:,} {what}" for what, count in sorted(changed.items()))
        return f"baselines in {folder}: {said or 'nothing changed'}"
    without = sum(each["without_baseline"] for each in data)
    compared = sum(each["has_recorded"] and not each["part"] for each in data) - without
    return f"{compared} compared with {folder}; {without} not in it"


def _verified(data: Sequence[ReportData]) -> Iterator[str]:
    passes = sum(each["verified"] for each in data)
    not_comparable = sum(each["not_comparable"] for each in data)
    if not passes + not_comparable:
        yield "asked to verify, but no test ran a backward pass: nothing was compared"
        return
    different = len({each["test"] for each in data if each["heading"] and not each["has_recorded"]})
    yield (
        f"{backward_passes(passes, 0)} ran on both engines, {plural(different, 'test')} differed;"
        f" {backward_passes(not_comparable, 0)} could not be compared"
    )
    recorded = sum(each["has_recorded"] for each in data)
    if recorded:
        yield f"{plural(recorded, 'test')} asked to be recorded instead"
