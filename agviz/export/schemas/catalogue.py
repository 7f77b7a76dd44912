"""All schemas, by the name of the document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agviz.errors import AgvizError
from agviz.export.schemas import (
    chrome,
    differences,
    explained,
    gradients,
    programs,
    summarised,
    trace,
)
from agviz.export.schemas.parts import opened
from agviz.words.documents import DOCUMENTS
from agviz.words.safe import clean

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz.export.schemas.parts import Schema

STRICT: Final[dict[str, Callable[[], Schema]]] = {
    "trace": trace.trace,
    "chrome-trace": chrome.chrome_trace,
    "export": programs.export,
    "explain": explained.explain,
    "explain-element": explained.element,
    "explain-ranks": explained.ranks,
    "summary": summarised.summary,
    "summary-ranks": summarised.ranks,
    "why": gradients.why,
    "why-ranks": gradients.ranks,
    "diff": differences.diff,
    "diff-folders": differences.folders,
    "diff-ranks": differences.ranks,
    "whatif": programs.whatif,
    "whatif-ranks": programs.estimates,
    "repro": programs.repro,
    "check": programs.check,
    "verify": programs.verify,
    "doctor": programs.doctor,
}
"""In the form that refuses what is not named: what this release writes, and nothing else."""


def schema(name: str) -> Schema:
    """The schema of a document, for readers: it lets pass what later releases may add.

    Raises:
        agviz.errors.AgvizError: there is no such document.
    """
    if name not in STRICT:
        raise AgvizError(f"agviz writes no JSON of the name {clean(name)}: {', '.join(DOCUMENTS)}")
    found: Schema = opened(STRICT[name]())
    return found
