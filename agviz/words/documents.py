"""The JSON documents that agviz writes: their names and versions (docs/formats.md)."""

from __future__ import annotations

from typing import Final

DOCUMENTS: Final = {
    "trace": 20,
    "chrome-trace": 1,
    "export": 1,
    "explain": 1,
    "explain-element": 1,
    "explain-ranks": 1,
    "summary": 1,
    "summary-ranks": 1,
    "why": 1,
    "why-ranks": 1,
    "diff": 1,
    "diff-folders": 1,
    "diff-ranks": 1,
    "whatif": 1,
    "whatif-ranks": 1,
    "repro": 1,
    "check": 1,
    "verify": 1,
    "doctor": 1,
}
"""The version of each. Raised by one where a field goes, or means or holds something else."""


def head(name: str) -> dict[str, str | int]:
    """What each document of this name begins with."""
    return {"document": name, "version": DOCUMENTS[name]}
