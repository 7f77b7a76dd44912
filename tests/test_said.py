"""Of several long answers only the first is printed whole, and how to read the others is said."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from agviz.analysis.outcome import Outcome
from agviz.analysis.verdict import Verdict
from agviz.cli.said import show

LONG = " ".join(["word"] * 80)


@pytest.mark.parametrize(
    ("paragraphs", "verbose", "is_told"),
    [
        ([LONG, LONG], False, True),
        ([LONG, LONG], True, False),
        ([LONG], False, False),
        ([LONG, ""], False, False),
        (["word", "word"], False, False),
    ],
)
def test_how_to_read_the_rest(*, paragraphs: list[str], verbose: bool, is_told: bool) -> None:
    found = [
        Verdict(outcome=Outcome.FOUND, heading="wrong", paragraph=paragraph)
        for paragraph in paragraphs
    ]
    output = io.StringIO()
    show(found, Console(file=output, width=100), verbose=verbose)
    assert ("--verbose" in output.getvalue()) is is_told
