"""Nodes whose derivative is infinite, or not a number, where the forward came to.

What a node saved shows: a root that is 0, a divisor that is 0, an argument at the edge of the
domain. Where a hook packed what it saved (checkpointing), what the forward recorded takes its
place; and without that, the only point at which such a node can make an infinity of moderate
gradients.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.evidence import SQUARE, base_name
from agviz.analysis.measures import LARGEST, bad, counts, magnitude, number, places
from agviz.analysis.origins import OriginKind
from agviz.analysis.patterns.finding import Finding
from agviz.analysis.patterns.fused import fused
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agviz.analysis.evidence import Evidence
    from agviz.measure.values import Health

SQRT: Final = "sqrt at zero"
NORM: Final = "norm at zero"
LOG: Final = "log of zero"
UNDERFLOW: Final = "log of nearly zero"
DIVISION: Final = "division by zero"
POW: Final = "pow with zero base"
NEGATIVE_BASE: Final = "pow of a negative base"
EXP: Final = "overflow of exp"
SOFTMAX: Final = "softmax of a row of -inf"
LOGADDEXP: Final = "logaddexp of -inf and -inf"
VARIANCE: Final = "normalisation with zero variance"

REMEDIES: Final[Mapping[str, str]] = {
    SQRT: "Add a small eps under the root, or clamp its argument from below.",
    NORM: (
        "Use torch.linalg.vector_norm, whose gradient at 0 is 0, or add a small eps under the root."
    ),
    LOG: (
        "Clamp the argument from below, add a small eps, or choose the argument too where a factor"
        " of 0 is meant to leave it out: torch.where(ok, log(torch.where(ok, x, 1.0)), 0.0)."
    ),
    UNDERFLOW: (
        "Products and sums of probabilities or densities get that small: compute with their"
        " logarithms (log_prob, log_softmax, sums in place of products, logsumexp in place of the"
        " log of a sum)."
    ),
    DIVISION: "Add a small eps to the divisor, or clamp it away from 0.",
    POW: "Clamp the base away from 0, or add a small eps to it.",
    NEGATIVE_BASE: (
        "Clamp the base from below, or take the power of its absolute value; torch.where behind it"
        " leaves NaN in the gradient."
    ),
    EXP: (
        "Bound the argument, or subtract its maximum first, as softmax and logsumexp do by"
        " themselves."
    ),
    SOFTMAX: (
        "Leave at least one entry of each row unmasked, or mask with a large finite number"
        " (torch.finfo(dtype).min) and drop those rows afterwards."
    ),
    LOGADDEXP: (
        "Take a large negative number (-1e30) in place of -inf for what can't be reached, or leave"
        " those places out before it: torch.where behind it leaves the NaN in the gradient."
    ),
    VARIANCE: "Give it an eps that the dtype can hold beside the variance, such as 1e-5.",
}

_OF_EXP: Final = (
    "It is made of exp, which underflows to 0: add up logarithms (log_softmax, logsumexp), clamp"
    " the argument from below, or choose it, too: log(torch.where(ok, x, 1.0))."
)

_MASKS: Final[Mapping[str, str]] = {
    "Where": "torch.where",
    "MaskedFill": "masked_fill",
    "MaskedSelect": "masked_select",
    "Mul": "a mask",
    **dict.fromkeys(("Index", "IndexSelect", "Select", "Slice", "Gather", "Narrow"), "indexing"),
    **dict.fromkeys(("Clamp", "ClampMin", "ClampMax"), "clamp"),
    **dict.fromkeys(("Relu", "Threshold", "Hardtanh"), "an activation"),
    **dict.fromkeys(("NanToNum", "Nansum"), "nan_to_num"),
}
"""What makes gradients zero, and what users call it."""


class Singular(NamedTuple):
    """A point where the derivative is infinite."""

    pattern: str
    what: str
    """What is there: ``its result is 0 in 3 places, where the derivative is infinite``."""
    remedy: str = ""

    def finding(self) -> Finding:
        """The same as an answer."""
        return Finding(self.pattern, self.what, self.remedy or REMEDIES[self.pattern])


BEHIND: Final = " behind "
"""In the name of a pattern: what let through what was not meant to count."""
_NO_TRAPS: Final = {(NORM, "masked_fill"), *((NEGATIVE_BASE, behind) for behind in _MASKS.values())}
"""Torch's own derivative of a norm masks, and this is the derivative of that; the logarithm of a
negative number is NaN whatever comes in."""
_HIDING: Final = {"torch.where", "masked_fill", "nan_to_num"}
"""Those of them by which a program hides what is not finite."""
_SAFE: Final = (
    "Make the argument safe as well, not only the result:"
    " torch.where(ok, f(torch.where(ok, x, 1.0)), 0.0)."
)


_SMALLEST: Final[Mapping[str, tuple[str, str, str]]] = {
    "float16": ("3e-8", "1e-5", "1e-3"),
    "bfloat16": ("4e-41", "1e-5", "1e-2"),
    "float32": ("7e-46", "1e-12", "1e-6"),
    "float64": ("2e-324", "1e-24", "1e-12"),
}
"""By dtype: below what a number is 0, an eps to add to 0, and one to take away from 1."""
_FROM_ZERO: Final = frozenset({"Sqrt", "Log", "Log2", "Log10", "Div", "Reciprocal", "Rsqrt", "Pow"})
_EDGED: Final = frozenset({"Acos", "Acosh", "Asin", "Atanh", "Erfinv", "Log1P", "Logit"})
_CLAMPS: Final = frozenset({"Clamp", "ClampMin", "ClampMax"})


def _already(evidence: Evidence, remedy: str) -> str:
    """The advice where the program has an eps or a clamp there already; empty: it has none.

    What an addition adds to a single way has no graph: a number.
    """
    behind = _behind(evidence, 1 if evidence.function == "Div" else 0)
    dtype = "" if evidence.wrong is None else evidence.wrong.dtype
    if not behind or dtype not in _SMALLEST:
        return ""
    zero, small, beside_one = _SMALLEST[dtype]
    if behind[0] in _CLAMPS and evidence.function in _EDGED:
        return (
            "It is clamped before, but not away from there, or by so little that"
            f" {dtype} rounds it off: leave {beside_one} at least."
        )
    if evidence.function not in _FROM_ZERO:
        return ""
    if behind[0] in _CLAMPS:
        return f"It is clamped before, but not away from 0: give clamp a min such as {small}."
    if behind[0] == "Add" and len(behind) > 1:
        return (
            f"If what is added before is an eps: below {zero} an eps is 0 in {dtype}, take {small}."
            f" Else {remedy[:1].lower()}{remedy[1:]}"
        )
    return ""


def of_half(remedy: str, health: Health | None) -> str:
    """The same advice, where it names an eps and float16 computes."""
    if health is None or health.dtype != "float16" or "small eps" not in remedy:
        return remedy
    return f"{remedy} Below 3e-8 an eps is 0 in float16: take 1e-5, or compute this in float32."


def zero_times_infinity(evidence: Evidence) -> Finding | None:
    """A gradient of zero met an infinite derivative: the trap behind ``torch.where``."""
    wrong = evidence.wrong
    behind = _MASKS.get(base_name(evidence.zeroed_by))
    zeros = sum(given.health.zero for given in evidence.received if given.health is not None)
    if behind is None or wrong is None or any(_inf(health) for health in evidence.outputs.values()):
        return None
    if not 0 < wrong.nan <= zeros:  # element by element
        return None
    found = of_node(evidence)
    if found is not None and (found.pattern, behind) in _NO_TRAPS:
        return None
    if found is not None and behind == "a mask" and (found.pattern == LOG or evidence.is_weight):
        return _factor_of_zero(found, zeros)
    what = "inf"
    there = found.what if found is not None and found.pattern not in {SOFTMAX, VARIANCE} else ""
    if not there:
        what, there = _hidden(evidence, zeros) if behind in _HIDING else ("", "")
    if not there:
        return None
    return Finding(
        f"0 * {what}{BEHIND}{behind}",
        f"{_passes(behind)} a gradient of 0 on to what it did not take ({plural(zeros, 'zero')}"
        f" came in), and there {there}: 0 * {what} is NaN",
        f"{found.remedy} Or m{_SAFE[1:]}" if found is not None and found.remedy else _SAFE,
    )


def _hidden(evidence: Evidence, zeros: int) -> tuple[str, str]:
    """What is not finite in what the node had saved, ``inf`` or ``NaN``, and where; or nothing."""
    measured = [(row.name, row.health) for row in evidence.saved.values() if row.health is not None]
    is_undefined = any(_nan(health) for _, health in measured)
    for name, health in measured:
        if _inf(health) if not is_undefined else 0 < _nan(health) <= zeros:
            what = "NaN" if is_undefined else "inf"
            return what, f"what it had saved as {name} holds {counts_of(health)}"
    return "", ""


def _factor_of_zero(found: Singular, zeros: int) -> Finding:
    """A target, a one-hot vector or a weight of 0 times a log of 0, or a gate that is 0.

    The product is NaN in the forward already, or the factor is learnt: it masks nothing.
    """
    return found.finding()._replace(
        reason=f"{found.what}; the factor of 0 behind it ({plural(zeros, 'zero')} came in) does not"
        " help: 0 * inf is NaN",
    )


def singular(evidence: Evidence) -> Finding | None:
    """The derivative is infinite where the forward came to."""
    found = of_node(evidence)
    if found is None:
        return None
    finding = found.finding()
    remedy = _already(evidence, finding.remedy) or of_half(finding.remedy, evidence.wrong)
    return finding._replace(remedy=remedy)


def unreachable(evidence: Evidence) -> Finding | None:
    """A sum of two logarithms of 0, which is -inf as it should be; its derivative is not."""
    if evidence.function not in {"Logaddexp", "Logaddexp2"}:
        return None
    values = [_value(evidence, name) for name in ("self", "other")]
    known = [one for one in values if one is not None]
    if len(known) < 2 or not all(one.neginf and not one.nan + one.posinf for one in known):
        return None
    name = evidence.function.lower()
    return Finding(
        LOGADDEXP,
        f"{name} was given -inf {places(known[0].neginf)} and {places(known[1].neginf)}: where both"
        " are, its value is -inf, and its derivative is exp(-inf - -inf), NaN, whatever gradient"
        " comes",
        REMEDIES[LOGADDEXP],
    )


def singular_here(evidence: Evidence) -> Finding | None:
    """The same, where the forward was finite up to this very function."""
    is_earlier = evidence.blame is not None and not evidence.is_blamed
    return None if is_earlier else singular(evidence)


def of_node(evidence: Evidence) -> Singular | None:
    """Which derivative of the node is infinite, and where; None where none is known to be."""
    rule = RULES.get(evidence.function)
    if rule is None or evidence.kind is not OriginKind.NODE:
        return None
    return rule(evidence)


def counts_of(health: Health | None) -> str:
    """As ``counts``, of what may not be known."""
    return "unknown numbers" if health is None else counts(health)


def _passes(behind: str) -> str:
    return f"{behind} passes"


def _inf(health: Health) -> int:
    return health.posinf + health.neginf


def _nan(health: Health | None) -> int:
    return 0 if health is None else health.nan


def _value(evidence: Evidence, name: str) -> Health | None:
    """What the node had saved as ``name``; None: not known."""
    row = evidence.saved.get(name)
    if row is not None and row.health is not None and not row.health.unknown:
        return row.health
    if name == "result":
        return evidence.result
    place = {"self": 0, "input": 0, "other": 1, "exponent": 1}.get(name, len(evidence.arguments))
    return evidence.arguments[place].health if place < len(evidence.arguments) else None


def _number(evidence: Evidence, name: str) -> float | None:
    row = evidence.saved.get(name)
    try:
        return float(row.value) if row is not None and row.value is not None else None
    except ValueError:
        return None


def is_moderate(evidence: Evidence) -> bool:
    """Whether all that the node was given is known, finite, and far from the largest number."""
    if evidence.wrong is None:
        return False
    limit = LARGEST.get(evidence.wrong.dtype, 0.0) ** 0.5
    return all(
        given.health is not None and not bad(given.health) and magnitude(given.health) <= limit
        for given in evidence.received
    )


def _must_be(evidence: Evidence) -> int:
    """In how many places the derivative must be infinite, if nothing else is known."""
    wrong = evidence.wrong
    if wrong is None or not is_moderate(evidence):
        return 0
    zeros = sum(given.health.zero for given in evidence.received if given.health is not None)
    return _inf(wrong) + (wrong.nan if zeros else 0)


def _count(evidence: Evidence, name: str, count: Callable[[Health], int]) -> int:
    """In how many places what was saved as ``name`` is where the derivative is infinite."""
    health = _value(evidence, name)
    return _must_be(evidence) if health is None else count(health)


def _zeros(health: Health) -> int:
    return health.zero


def _behind(evidence: Evidence, output: int = 0) -> list[str]:
    return [base_name(name) for name in evidence.consumers.get(output, ())]


def _is_norm(behind: list[str]) -> bool:
    """Whether it is the root of a sum of squares."""
    return len(behind) > 1 and behind[0] in {"Sum", "Mean"} and behind[1] in {"Pow", SQUARE}


def _is_spread(behind: list[str]) -> bool:
    """Whether it is a variance, a standard deviation, or made of one."""
    return any(name in {"Var", "Std", "VarMean", "StdMean"} for name in behind[:3])


def _sqrt(evidence: Evidence) -> Singular | None:
    count = _count(evidence, "result", _zeros)
    if not count:
        return None
    behind = _behind(evidence)
    pattern = VARIANCE if _is_spread(behind) else NORM if _is_norm(behind) else SQRT
    return Singular(
        pattern,
        f"the square root is 0 {places(count)}, where its derivative 1 / (2 sqrt(x)) is infinite",
    )


def _log(evidence: Evidence) -> Singular | None:
    count = _count(evidence, "self", _zeros)
    if not count:
        return _log_of_underflow(evidence)
    return Singular(
        LOG,
        f"its argument is 0 {places(count)}, where the derivative 1 / x is infinite",
        fused(_behind(evidence)) or (_OF_EXP if "Exp" in evidence.near else ""),
    )


def _log_of_underflow(evidence: Evidence) -> Singular | None:
    health = _value(evidence, "self")
    if health is None or health.min is None or health.dtype not in LARGEST:
        return None
    if not 0 < health.min < 1 / LARGEST[health.dtype]:
        return None
    return Singular(
        UNDERFLOW,
        f"its argument goes down to {number(health.min)}, which {health.dtype} hardly tells from 0,"
        " and the derivative 1 / x is beyond its range there",
        fused(_behind(evidence)),
    )


def _log1p(evidence: Evidence) -> Singular | None:
    health = _value(evidence, "self")
    if not (_must_be(evidence) if health is None else health.min == -1.0):
        return None
    return Singular(
        LOG,
        "its argument goes down to -1, where the derivative 1 / (1 + x) is infinite",
        fused(_behind(evidence)),
    )


def _xlogy(evidence: Evidence) -> Singular | None:
    health = _value(evidence, "other")
    if health is None or not health.zero:
        return None
    return Singular(
        LOG,
        f"its second argument is 0 {places(health.zero)}, where the derivative x / y is"
        " infinite, or 0 / 0",
        fused(_behind(evidence, 1)),
    )


_LOGS: Final = frozenset({"Log", "Log2", "Log10", "Log1P"})


def _logit(evidence: Evidence) -> Singular | None:
    health = _value(evidence, "self")
    if health is None or not (health.min == 0.0 or health.max == 1.0):
        return None
    return Singular(
        LOG,
        "its argument reaches 0 or 1, where the derivative is infinite",
        "Clamp the argument into (0, 1), or give logit its eps.",
    )


def _div(evidence: Evidence) -> Singular | None:
    count = _count(evidence, "other", _zeros)
    if not count:
        return None
    behind = _behind(evidence, 1)
    pattern = DIVISION
    if _is_spread(behind):
        pattern = VARIANCE
    elif any(name in _NORMS for name in behind[:3]) or _is_norm(behind[1:]):
        pattern = NORM
    what = {
        VARIANCE: "the standard deviation that it divides by",
        NORM: "the norm that it divides by",
    }.get(pattern, "the divisor")
    remedy = DIVIDED.get(pattern, "")
    return Singular(pattern, f"{what} is 0 {places(count)}", remedy)


_NORMS: Final = {"LinalgVectorNorm", "Norm", "LinalgMatrixNorm"}
DIVIDED: Final = {
    VARIANCE: "Add a small eps to the standard deviation, or use a layer that has one.",
    NORM: "Add a small eps to the norm, or use torch.nn.functional.normalize, which has one.",
}


def _reciprocal(evidence: Evidence) -> Singular | None:
    count = _count(evidence, "result", _inf)
    return Singular(DIVISION, f"the divisor is 0 {places(count)}") if count else None


def _rsqrt(evidence: Evidence) -> Singular | None:
    count = _count(evidence, "result", _inf)
    if not count:
        return None
    behind = _behind(evidence)
    pattern = VARIANCE if _is_variance(behind) else NORM if _is_norm(behind) else SQRT
    return Singular(pattern, f"the argument of rsqrt is 0 {places(count)}")


def _mul(evidence: Evidence) -> Singular | None:
    """A product with a logarithm, an inverse standard deviation or a norm that is infinite."""
    for output, name in ((0, "self"), (1, "other")):
        health = _value(evidence, name)
        behind = _behind(evidence, output)
        if health is None or not _inf(health) or not behind:
            continue
        if behind[0] in _LOGS and health.neginf:
            return Singular(
                LOG,
                f"the logarithm that it multiplies with is -inf {places(health.neginf)}",
                fused(behind[1:]),
            )
        if behind[0] == "LogSoftmax" and health.neginf and not health.posinf:
            return of_masked_product(health.neginf)
        if behind[0] in {"Rsqrt", "Reciprocal"}:
            rest = behind[1:]
            pattern = VARIANCE if _is_variance(rest) else NORM if _is_norm(rest) else DIVISION
            return Singular(
                pattern, f"the inverse that it multiplies with is infinite {places(_inf(health))}"
            )
    return None


def of_masked_product(count: int) -> Singular:
    """A product with the log of a probability that a mask made 0.

    Args:
        count: places in which it is -inf.
    """
    return Singular(
        "0 * -inf of a mask",
        f"it multiplies by a log of probabilities that is -inf {places(count)}, as what a mask of"
        " -inf leaves out has it; with a probability of 0 that is NaN",
        "Put a number there before the product, logp.masked_fill(~mask, 0.0), or mask by a large"
        " finite number (torch.finfo(dtype).min); torch.where behind the product leaves NaN in the"
        " gradient.",
    )


def _is_variance(behind: list[str]) -> bool:
    """Whether it is a variance, or a mean of squares."""
    return _is_spread(behind) or (_is_norm(behind) and behind[0] == "Mean")


def _pow(evidence: Evidence) -> Singular | None:
    health = _value(evidence, "self")
    by_exponent = evidence.outputs.get(1)
    if by_exponent is not None and by_exponent.nan and health is not None and (health.min or 0) < 0:
        return Singular(
            NEGATIVE_BASE,
            f"the base goes down to {number(health.min or 0)}, and the derivative by the exponent"
            " holds the logarithm of the base",
        )
    exponent = _number(evidence, "exponent")
    given = _value(evidence, "exponent")
    by_base = evidence.outputs.get(0)
    is_broken = exponent is not None and exponent % 1 and by_base is not None and by_base.nan
    if is_broken and health is not None and (health.min or 0) < 0:
        return Singular(
            NEGATIVE_BASE,
            f"the base goes down to {number(health.min or 0)}, and the exponent is no whole number",
        )
    smallest = exponent if exponent is not None else given.min if given is not None else None
    if smallest is not None and smallest >= 1:
        return None
    count = _must_be(evidence) if health is None else health.zero
    if not count:
        return None
    power = "" if exponent is None else f" to the power {exponent:g}"
    return Singular(POW, f"the base{power} is 0 {places(count)}, where the derivative is infinite")


def _exp(evidence: Evidence) -> Singular | None:
    health = _value(evidence, "result")
    if health is None or not _inf(health):
        return None
    return Singular(EXP, f"the exponential is infinite {places(_inf(health))}")


def _cosh(evidence: Evidence) -> Singular | None:
    health = _value(evidence, "self")
    if health is None or magnitude(health) < math.log(2 * LARGEST.get(health.dtype, math.inf)):
        return None
    return Singular(EXP, f"its argument goes up to {magnitude(health):g}, where exp(x) is infinite")


def _edge(function: str, *edges: float) -> Callable[[Evidence], Singular | None]:
    """A function whose derivative is infinite at the edges of its domain."""

    def rule(evidence: Evidence) -> Singular | None:
        health = _value(evidence, "self")
        if health is None:
            reached = list(edges) if _must_be(evidence) else []
        else:
            reached = [edge for edge in edges if edge in {health.min, health.max}]
        if not reached:
            return None
        where = " and ".join(f"{edge:g}" for edge in reached)
        domain = "(-1 + eps, 1 - eps)" if len(edges) > 1 else f"from {edges[0]:g} + eps on"
        angle = ", or take the angle from atan2" if function in {"acos", "asin"} else ""
        return Singular(
            f"{function} at the edge",
            f"its argument reaches {where}, where the derivative of {function} is infinite",
            f"Clamp the argument a little inside of the domain, {domain}{angle}.",
        )

    return rule


def _atan2(evidence: Evidence) -> Singular | None:
    y, x = _value(evidence, "self"), _value(evidence, "other")
    if bad(y) or bad(x) or not _must_be(evidence):
        return None
    return Singular(
        "atan2 at the edge",
        "both arguments are next to 0 at once, where the derivative x / (x² + y²) is infinite",
        "Keep the point away from the origin: add a small eps to the length of (x, y), or leave"
        " such points out before atan2.",
    )


def _hypot(evidence: Evidence) -> Singular | None:
    count = _count(evidence, "result", _zeros)
    if not count:
        return None
    return Singular(NORM, f"hypot is 0 {places(count)}, where its derivative is 0 / 0")


def _softmax(evidence: Evidence) -> Singular | None:
    health = _value(evidence, "result")
    given = evidence.arguments[0].health if evidence.arguments else None
    name = "neginf" if evidence.function == "Logsumexp" else "nan"
    if health is None or not getattr(health, name):
        return None
    if given is None and not _is_behind_mask(evidence):
        return None  # it may be NaN that came in
    if given is not None and (given.nan or given.posinf or not given.neginf):
        return None
    function = {"LogSoftmax": "log_softmax", "Logsumexp": "logsumexp"}.get(
        evidence.function, "softmax"
    )
    last = (health.shape or (0,))[-1] if name == "nan" and health.shape else 1
    rows = getattr(health, name) // last if last else 0
    how_many = f" of {plural(rows, 'row')}" if rows and getattr(health, name) == rows * last else ""
    doubt = ""
    if given is None:
        doubt = "; or NaN came in from before the mask, which --check-forward would tell"
    return Singular(
        SOFTMAX,
        f"every entry{how_many} was -inf before the {function}, which gives 0 / 0{doubt}",
    )


def _is_behind_mask(evidence: Evidence) -> bool:
    """Whether what came in was masked, by its two nearest nodes.

    What is added has to have no graph, else it may be a bias; and behind it there is one way only.
    """
    behind = _behind(evidence)
    is_added = "Add" in behind[:-1][:2]
    return is_added or not {"MaskedFill", "Where", "Baddbmm"}.isdisjoint(behind[:2])


def _normalised(evidence: Evidence) -> Singular | None:
    inverse = _value(evidence, "result2")
    if inverse is None or not _inf(inverse):
        return None
    return Singular(
        VARIANCE,
        f"the variance and eps are both 0 {places(_inf(inverse))}, so that 1 / sqrt(var + eps) is"
        " infinite",
    )


def _std(evidence: Evidence) -> Singular | None:
    health = _value(evidence, "self")
    if health is None or health.numel != 1:
        return None
    return Singular(
        "standard deviation of one element",
        "it was taken of a single element, and with Bessel's correction that is 0 / 0",
        "Take it of two elements or more: look at its dim, or leave such batches out.",
    )


def _ctc(evidence: Evidence) -> Singular | None:
    health = _value(evidence, "result0")
    if health is None or not health.posinf:
        return None
    return Singular(
        "ctc_loss without an alignment",
        f"the loss is infinite for {plural(health.posinf, 'sequence')}: the target does not fit"
        " into the input",
        "Leave out targets that are longer than their input, or give ctc_loss zero_infinity=True.",
    )


def _nll(evidence: Evidence) -> Singular | None:
    total = _value(evidence, "total_weight")
    if total is None or total.zero != total.numel:
        return None
    return Singular(
        "mean over targets without weight",
        "the weights of its targets' classes add up to 0, and a mean divides by their sum, 0 / 0",
        "Give each class a weight above 0, or leave out batches that hold none but such targets:"
        " reduction='sum' over max(1, their number) is 0 there.",
    )


RULES: Final[Mapping[str, Callable[[Evidence], Singular | None]]] = {
    "Sqrt": _sqrt,
    **dict.fromkeys(("Log", "Log2", "Log10", "SpecialEntr"), _log),
    "Log1P": _log1p,
    "Xlogy": _xlogy,
    "Logit": _logit,
    "Div": _div,
    "Reciprocal": _reciprocal,
    "Rsqrt": _rsqrt,
    "Mul": _mul,
    "Pow": _pow,
    **dict.fromkeys(("Exp", "Exp2", "Expm1"), _exp),
    **dict.fromkeys(("Sinh", "Cosh"), _cosh),
    "Acos": _edge("acos", -1.0, 1.0),
    "Asin": _edge("asin", -1.0, 1.0),
    "Atanh": _edge("atanh", -1.0, 1.0),
    "Erfinv": _edge("erfinv", -1.0, 1.0),
    "Acosh": _edge("acosh", 1.0),
    "Atan2": _atan2,
    "Hypot": _hypot,
    **dict.fromkeys(("Softmax", "LogSoftmax", "Logsumexp"), _softmax),
    **dict.fromkeys(("NativeLayerNorm", "NativeGroupNorm", "NativeBatchNorm"), _normalised),
    "Std": _std,
    "CtcLoss": _ctc,
    **dict.fromkeys(("NllLoss", "NllLoss2D"), _nll),
}
