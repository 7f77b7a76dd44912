"""The lines at the end of a run."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from agviz.testing.paths import shown
from agviz.words.units import backward_passes, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pytest

    from agviz.testing.artefacts import ReportData
    from agviz.testing.settings import PluginSettings

_MOST: Final = 20


def show(
    reporter: pytest.TerminalReporter, settings: PluginSettings, data: Sequence[ReportData]
) -> None:
    """Print what was recorded, compared or verified, and what could not be."""
    reporter.section("agviz")
    for line in _lines(settings, data):
        reporter.line(line)


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
    yield (
        f"{plural(recorded, 'test')} ran backward; {plural(len(kept), 'trace')} in"
        f" {shown(settings.output)}"
    )
    failed = [each for each in kept if each["heading"] and not each["is_brief"]]
    for each in failed[:_MOST]:
        rerun = f"rerun {each['rerun']}" if each["rerun"] else ""
        run = ", ".join(filter(None, (rerun, each["part"])))
        glyph = each["glyph"] or "·"
        yield f"{glyph} {each['test']}{f' ({run})' if run else ''}: {each['heading']}"
        yield f"    {each['command']}"
    if len(failed) > _MOST:
        yield f"and {len(failed) - _MOST} more"
    brief = sum(each["is_brief"] for each in kept)
    if brief:
        yield f"no anomaly found in {plural(brief, 'test')} that failed for something else"
    without = sum(each["without_baseline"] for each in data)
    if settings.baseline is not None:
        compared = sum(each["has_recorded"] and not each["part"] for each in data) - without
        yield f"{compared} compared with {shown(settings.baseline)}; {without} not in it"


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
