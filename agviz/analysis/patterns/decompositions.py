"""Decompositions of matrices whose derivative divides by what is zero for equal or zero values.

Vectors of equal eigenvalues or singular values are a matter of choice, so they have no derivative:
torch divides by the differences of eigenvalues (``linalg_eig_backward``), by those of squared
singular values and by singular values (``svd_backward``), and solves with R
(``linalg_qr_backward``; all in torch/csrc/autograd/FunctionsManual.cpp). A recording does not hold
values one by one; but where what came in and what was saved is finite and moderate, nothing else
makes infinity or NaN there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agviz.analysis.measures import bad, number
from agviz.analysis.origins import OriginKind
from agviz.analysis.patterns.finding import Finding
from agviz.analysis.patterns.singular import is_moderate
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agviz.analysis.evidence import Evidence
    from agviz.measure.values import Health

EIGENVALUES: Final = "equal eigenvalues"
SINGULAR_VALUES: Final = "equal or zero singular values"
COLUMNS: Final = "QR of dependent columns"

_TIE: Final = "too close for the quotient to be finite"


def decomposition(evidence: Evidence) -> Finding | None:
    """A decomposition that has no derivative where the forward came to."""
    kind = _KINDS.get(evidence.function)
    if kind is None or evidence.kind is not OriginKind.NODE or not is_moderate(evidence):
        return None
    names, rule = kind
    saved = []
    for name in names:
        row = evidence.saved.get(name)
        if row is None or row.health is None or row.health.unknown or bad(row.health):
            return None
        saved.append(row.health)
    return rule(saved[0])


def _eigenvalues(values: Health) -> Finding:
    if values.min is not None and values.min == values.max and values.numbers > 1:
        there = (
            f"all {values.numbers} eigenvalues are {number(values.min)}, and their differences 0"
        )
    else:
        there = f"two eigenvalues are equal, or {_TIE}"
    return Finding(
        EIGENVALUES,
        f"the derivative of eigenvectors divides by the differences of eigenvalues; {there}",
        "Use the eigenvalues alone (torch.linalg.eigvalsh) if they suffice; else break the tie"
        " before: add a small diagonal of distinct numbers to the matrix.",
    )


def _singular_values(values: Health) -> Finding:
    zeros = f"{values.zero} of {plural(values.numbers, 'value')} are 0"
    there = zeros if values.zero else f"two are equal, or {_TIE}"
    return Finding(
        SINGULAR_VALUES,
        "the derivative of singular vectors divides by singular values, and by the differences of"
        f" their squares; {there}",
        "Use the values alone (torch.linalg.svdvals) if they suffice; else break the tie"
        " before: add small random numbers to the matrix.",
    )


def _columns(_values: Health) -> Finding:
    return Finding(
        COLUMNS,
        "its derivative solves with R, which is singular, or nearly: a column depends on those to"
        " its left",
        "Leave out columns that depend on others, or add small random numbers to the matrix.",
    )


_KINDS: Final[Mapping[str, tuple[tuple[str, ...], Callable[[Health], Finding]]]] = {
    "LinalgEigh": (("eigenvalues", "eigenvectors"), _eigenvalues),
    "LinalgEig": (("eigenvalues", "eigenvectors"), _eigenvalues),
    "LinalgSvd": (("S", "U", "Vh"), _singular_values),
    "LinalgQr": (("R", "Q"), _columns),
}
"""By name of the node: what it saved that has to be finite, and what is said then of the first."""
