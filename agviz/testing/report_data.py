"""What is known of a recorded test at the end of a run: plain data, which workers can send."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from agviz.testing.slug import TestPart


class ReportData(TypedDict):
    """What one report says of a recorded test."""

    test: str
    rerun: int
    part: str
    """All three as in :class:`~agviz.testing.slug.TestPart`."""
    has_recorded: bool
    problem: str
    """Why nothing could be recorded, or what is wrong with what was."""
    remark: str
    """Which engine served, where it is not the one to expect; empty: it is."""
    has_failed: bool
    """Whether the test failed, and this was to explain it."""
    is_rerun: bool
    """Whether it was run again after this."""
    heading: str
    """The verdict; empty where the test did not fail."""
    glyph: str
    """What precedes it; empty where nothing unusual was found in a test that failed."""
    cause: str
    """Equal where two tests failed for the same; empty where the test did not fail."""
    title: str
    """A heading for all that did."""
    place: str
    """The line that the verdict names, as it is shown; empty: none."""
    file: str
    """The file of it, as the trace names it."""
    line: int
    source: str
    """The text of it."""
    paragraph: str
    """What happened, and what to do."""
    error: str
    """The first line of what the test failed with."""
    test_file: str
    """Where the test is."""
    test_line: int
    """0: not known."""
    is_brief: bool
    """Whether gradients have no part in the failure, so that nothing more is to be said."""
    trace: str
    """The file that was kept; empty: none."""
    graph: str
    summary: str
    report: str
    """The page; empty: none."""
    command: str
    """Opens the trace, or says more of the verdict."""
    section: str
    shows_something: bool
    """Whether the trace itself shows something that is wrong."""
    without_baseline: bool
    """Whether it should have been compared and there was nothing to compare it with."""
    baseline: str
    """What became of that: ``updated``, ``added`` or ``removed``; empty: nothing."""
    verified: int
    """Backward passes that ran on both engines."""
    not_comparable: int


def nothing(run: TestPart) -> ReportData:
    """Of a test that left nothing."""
    return ReportData(
        test=run.test,
        rerun=run.rerun,
        part=run.part,
        has_recorded=False,
        problem="",
        remark="",
        has_failed=False,
        is_rerun=False,
        heading="",
        glyph="",
        cause="",
        title="",
        place="",
        file="",
        line=0,
        source="",
        paragraph="",
        error="",
        test_file="",
        test_line=0,
        is_brief=False,
        trace="",
        graph="",
        summary="",
        report="",
        command="",
        section="",
        shows_something=False,
        without_baseline=False,
        baseline="",
        verified=0,
        not_comparable=0,
    )
