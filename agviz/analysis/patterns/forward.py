"""Forwards that were non-finite before the backward pass began."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

from agviz.analysis.blame import SOFTMAX as SOFTMAX_FUNCTIONS
from agviz.analysis.blame import WRITING, Source
from agviz.analysis.measures import LARGEST, bad, counts, magnitude, number, places
from agviz.analysis.patterns import singular
from agviz.analysis.patterns.finding import Finding
from agviz.analysis.patterns.fused import fused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agviz.analysis.blame import Blame
    from agviz.analysis.evidence import Evidence
    from agviz.measure.values import Health

WRITTEN: Final = "infinity that the program wrote"
UNKNOWN: Final = "non-finite in the forward"
_ANY_TIME: Final = (
    "Look at the step before: a non-finite gradient that was applied, or a learning rate that is"
    " too large; else at what initialised or loaded it."
)
_POLES: Final = frozenset(
    {
        *("remainder", "fmod", "floor_divide", "mod", "floordiv"),
        *("lgamma", "digamma", "polygamma", "tan", "logit", "erfinv"),
    }
)
"""What gives NaN or infinities at single points, however small its arguments are."""
_SUMS: Final = frozenset(
    {
        *("linear", "bilinear", "matmul", "mm", "bmm", "mv", "dot", "addmm", "baddbmm", "einsum"),
        *("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "cumsum", "cdist"),
        *("sum", "mean", "var", "std", "var_mean", "std_mean", "norm", "softmax", "log_softmax"),
        *("layer_norm", "group_norm", "batch_norm", "instance_norm", "rms_norm", "normalize"),
        *("cosine_similarity", "scaled_dot_product_attention", "multi_head_attention_forward"),
        *("lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "cross_entropy"),
        *("kl_div", "mse_loss", "logsumexp", "prod", "cumprod", "pow"),
    }
)
"""What computes with sums or products of its own, of which one may overflow, and NaN be left."""
_LARGE_WEIGHT: Final = 1e4
"""What no parameter becomes in a training that goes well."""


def of_blame(blame: Blame, scale: float | None = None) -> Finding:
    """The pattern of the function of the forward with which it began.

    Args:
        blame: that function.
        scale: by what the loss is multiplied, where that is known.
    """
    if blame.source is Source.DATA:
        return _data(blame)
    if blame.source is Source.PARAMETER:
        return _parameter_of(blame)
    return _function(blame, scale)


def data(evidence: Evidence) -> Finding | None:
    """NaN or infinities came with the data."""
    blame = evidence.blame
    return None if blame is None or blame.source is not Source.DATA else _data(blame)


def _data(blame: Blame) -> Finding:
    if blame.is_of_graph:
        return Finding(
            f"{_kind(blame.wrong)} in a tensor without a graph",
            f"{blame.op.name} was given {counts(blame.wrong)} in a tensor that no node made: data,"
            " or what was computed of data without gradients",
            "Look at the batch, and at what computes it. Recorded with --check-forward"
            " (check_forward=True), the function that made it is named, if one did.",
        )
    whence = "and no function of the forward made it"
    if blame.written is not None:
        whence = f"which was written into it at {blame.written}"
    if blame.is_masked:
        return Finding(
            "NaN in the data, multiplied by a mask",
            f"{blame.op.name} multiplies NaN by a mask, which keeps it, since 0 * NaN is NaN. The"
            f" data held {counts(blame.wrong)}, {whence}",
            "Leave such elements out before anything is computed of them: index with the mask"
            " (x[mask]), or put numbers there (torch.nan_to_num). A torch.where after that leaves"
            " NaN in the gradient.",
        )
    remedy = (
        "Look at the batch: torch.isfinite(x) finds the samples, which have to be cleaned or left"
        " out."
    )
    if bad(blame.wrong) == blame.wrong.numbers > 1 and blame.written is None:
        remedy = (
            "No number of it is finite: look at what computes it outside of torch, as numpy, which"
            " may divide by 0 (a standard deviation of equal numbers), or at the batch."
        )
    return Finding(
        f"{_kind(blame.wrong)} in the data",
        f"a tensor that {blame.op.name} was given holds {counts(blame.wrong)}, {whence}",
        remedy,
    )


def parameter(evidence: Evidence) -> Finding | None:
    """A parameter was not finite."""
    blame = evidence.blame
    if blame is not None:
        if blame.source is not Source.PARAMETER:
            return None
        return _parameter_of(blame)
    found = [
        (row.parameter, row.health)
        for row in evidence.saved.values()
        if row.parameter and row.health is not None and bad(row.health)
    ]
    if not found:
        return None
    name, wrong = found[0]
    return _parameter(name, wrong, _ANY_TIME)


def _parameter_of(blame: Blame) -> Finding:
    found = _parameter(blame.parameter, blame.wrong, _before(blame))
    op = blame.spoiler
    if op is None:
        return found
    return found._replace(
        reason=f"{found.reason}; {op.name}, called at {op.line}, wrote it there",
        remedy=f"Look at what {op.name} is given there: a divisor of 0, or NaN itself.",
    )


def _before(blame: Blame) -> str:
    """What to look at, by whether a step may have made a parameter so."""
    if blame.steps:
        return _ANY_TIME
    if blame.unfilled is not None:
        return (
            f"{blame.unfilled.name} made it at {blame.unfilled.line}, with what was in memory, and"
            " it was never initialised: fill it, as by torch.nn.init."
        )
    at = "" if blame.assigned is None else f"; it is made at {blame.assigned}"
    return f"No optimizer had stepped: it was initialised, loaded or written so{at}."


def _parameter(name: str, wrong: Health, remedy: str) -> Finding:
    return Finding(
        f"{_kind(wrong)} in a parameter",
        f"the parameter {name} held {counts(wrong)} before this backward pass began",
        remedy,
    )


def function(evidence: Evidence) -> Finding | None:
    """A function of the forward made something non-finite of finite arguments."""
    blame = evidence.blame
    if blame is None or blame.source is not Source.FUNCTION:
        return None
    return _function(blame, evidence.scale)


def _function(blame: Blame, scale: float | None) -> Finding:
    rule = _RULES.get(blame.function)
    found = None if rule is None else rule(blame)
    if found is not None:
        return found._replace(remedy=singular.of_half(found.remedy, blame.wrong))
    found = _overflow(blame, scale)
    if found is None and blame.function in WRITING:
        found = Finding(
            WRITTEN,
            f"{blame.op.name} wrote {counts(blame.wrong)}, which it was given as a number",
            "If it is meant as a mask, look at what takes it later, and leaves nothing else there.",
        )
    if found is None:
        found = Finding(
            UNKNOWN,
            f"{blame.op.name} gave {counts(blame.wrong)} of what it was given{_only_zeros(blame)}",
            "Look at the arguments of this call: no known pattern fits.",
        )
    return found


def _only_zeros(blame: Blame) -> str:
    zero = next((one for one in blame.arguments if one.health and _is_zero(one.health)), None)
    if zero is None:
        return ""
    what = f"the parameter {zero.parameter}" if zero.parameter else f"argument {zero.place}"
    return f", of which {what} holds zeros only"


def _is_zero(health: Health) -> bool:
    return 0 < health.numbers == health.zero


def unknown(evidence: Evidence) -> Finding | None:
    """What the node had saved was non-finite, and nobody knows since when."""
    found = [row for row in evidence.saved.values() if bad(row.health)]
    if not found or found[0].health is None:
        return None
    return Finding(
        UNKNOWN,
        f"what it had saved in the forward as {found[0].name} held {counts(found[0].health)}"
        " already",
        "Record it with --check-forward (check_forward=True), which tells the function of the"
        " forward with which it began.",
    )


def _kind(health: Health) -> str:
    return "NaN" if health.nan else "infinity"


def _argument(blame: Blame, number_: int = 0) -> Health | None:
    return blame.arguments[number_].health if number_ < len(blame.arguments) else None


def _made_by(blame: Blame, number_: int) -> str:
    return blame.arguments[number_].made_by if number_ < len(blame.arguments) else ""


def _finding(pattern: str, what: str, remedy: str = "") -> Finding:
    return singular.Singular(pattern, what, remedy).finding()


def _outside(blame: Blame, low: float, high: float = math.inf) -> Finding | None:
    """The argument lies outside of the function's domain."""
    given = _argument(blame)
    if given is None or given.min is None or given.max is None or not blame.wrong.nan:
        return None
    beyond = given.min if given.min < low else given.max if given.max > high else None
    if beyond is None:
        return None
    domain = f"[{low:g}, {high:g}]" if math.isfinite(high) else f"at or above {low:g}"
    return Finding(
        f"{blame.function} outside its domain",
        f"the argument of {blame.function} reaches {number(beyond)}; it is defined {domain}",
        _clamped(blame),
    )


def _within(blame: Blame, low: float, high: float) -> Finding | None:
    """The argument lies outside of the function's domain, or at its edge, a pole."""
    given = _argument(blame)
    if given is not None and not blame.wrong.nan and _infinite(blame.wrong):
        reached = [edge for edge in (low, high) if edge in {given.min, given.max}]
        if reached:
            ends = " and ".join(f"{edge:g}" for edge in reached)
            return Finding(
                f"{blame.function} at the edge of its domain",
                f"the argument of {blame.function} reaches {ends}, where it is infinite",
                f"Clamp the argument of {blame.function} to less than that, by an eps that its"
                " dtype can hold beside 1.",
            )
    return _outside(blame, low, high)


def _clamped(blame: Blame) -> str:
    return f"Clamp the argument of {blame.function}: rounding alone may carry it over the edge."


def _sqrt(blame: Blame) -> Finding | None:
    given = _argument(blame)
    if given is None and blame.is_of_graph:  # its node saves the result only
        name, wrong = blame.function, blame.wrong
        if wrong.nan:
            what = f"the argument of {name} is negative {places(wrong.nan)}"
            return Finding(f"{name} outside its domain", what, _clamped(blame))
        if name == "rsqrt" and wrong.posinf:
            what = f"the argument of {name} is 0 {places(wrong.posinf)}"
            return Finding(singular.SQRT, what, _clamped(blame))
        return None  # the root of infinity
    if blame.function == "rsqrt" and given is not None and given.zero and blame.wrong.posinf:
        is_normalised = _made_by(blame, 0) in {*_SPREADS, "mean"}
        pattern = singular.VARIANCE if is_normalised else singular.SQRT
        return _finding(pattern, f"the argument of rsqrt is 0 {places(given.zero)}")
    return _outside(blame, 0.0)


def _log(blame: Blame) -> Finding | None:
    given = _argument(blame)
    if given is not None and blame.wrong.neginf:
        edge = -1.0 if blame.function == "log1p" else 0.0
        if given.zero or given.min == edge:
            where = places(given.zero) if given.zero and not edge else "somewhere"
            return _finding(
                singular.LOG,
                f"the argument of {blame.function} is {edge:g} {where}",
                fused([_made_by(blame, 0).capitalize()]),
            )
    return _outside(blame, -1.0 if blame.function == "log1p" else 0.0)


_SPREADS: Final = {"std", "var", "std_mean", "var_mean"}
_LENGTHS: Final = {"norm", "vector_norm", "linalg_norm", "linalg_vector_norm", "hypot", "cdist"}


def _div(blame: Blame) -> Finding | None:
    is_reflected = blame.op.name.endswith(("__rtruediv__", "__rdiv__", "reciprocal"))
    place = 0 if is_reflected or len(blame.arguments) < 2 else 1
    divisor = _argument(blame, place)
    if divisor is None or not divisor.zero:
        return None
    maker = _made_by(blame, place)
    pattern, what = singular.DIVISION, "the divisor"
    if maker in _SPREADS:
        pattern, what = singular.VARIANCE, f"the {maker} that it divides by"
    elif maker in _LENGTHS:
        pattern, what = singular.NORM, "the norm that it divides by"
    remedy = singular.DIVIDED.get(pattern, "")
    gave = f", which gives {counts(blame.wrong)}" if pattern == singular.DIVISION else ""
    return _finding(pattern, f"{what} is 0 {places(divisor.zero)}{gave}", remedy)


def _exp(blame: Blame) -> Finding | None:
    given = _argument(blame)
    limit = math.log(LARGEST.get(blame.wrong.dtype, math.inf))
    if blame.function == "exp2":
        limit /= math.log(2)
    if not _infinite(blame.wrong):
        return None
    ends = f"{blame.wrong.dtype} ends at {blame.function}({limit:.1f})"
    if given is None and blame.is_of_graph:  # its node saves the result only
        gave = f"{blame.function} gave {counts(blame.wrong)}, and {ends}"
        return _finding(singular.EXP, gave)
    if given is None or magnitude(given) <= limit:
        return None
    reached = f"the argument of {blame.function} goes up to {number(magnitude(given))}"
    return _finding(singular.EXP, f"{reached}, and {ends}")


def _infinite(health: Health) -> int:
    return health.posinf + health.neginf


def _softmax(blame: Blame) -> Finding | None:
    if blame.is_of_graph and blame.wrong.nan and _made_by(blame, 0) in WRITING:
        seen = f"{_made_by(blame, 0)} left nothing but -inf in some row before {blame.function}"
        return _finding(singular.SOFTMAX, f"{seen}, which gives 0 / 0")
    masked = [one.health for one in blame.arguments if one.health and one.health.neginf]
    given = masked[0] if masked else None
    if given is None or given.nan or given.posinf or not blame.wrong.nan + blame.wrong.neginf:
        return None
    seen = (
        f"{given.neginf:,} of {given.numbers:,} entries were -inf before {blame.function}, all of"
        " some row among them"
    )
    if blame.function == "logsumexp":
        remedy = singular.REMEDIES[singular.SOFTMAX]
        what = f"{seen}, whose sum is 0 and its log -inf"
        return Finding("logsumexp of a row of -inf", what, remedy)
    return _finding(singular.SOFTMAX, f"{seen}, which gives 0 / 0")


def _pow(blame: Blame) -> Finding | None:
    base = _argument(blame)
    if base is None:
        return None
    if base.zero and blame.wrong.posinf:
        return _finding(
            singular.POW, f"the base is 0 {places(base.zero)}, and the exponent is negative"
        )
    if base.min is not None and base.min < 0 and blame.wrong.nan:
        return _finding(
            singular.NEGATIVE_BASE,
            f"the base goes down to {number(base.min)}, and the exponent is no whole number",
        )
    return None


def _normalised(blame: Blame) -> Finding | None:
    eps = re.search(r"\beps=([-+.\de]+)", blame.op.arguments)
    given = _argument(blame)
    if bad(given) or eps is None or float(eps[1]) > 0:
        return None
    return _finding(
        singular.VARIANCE, "the variance of what it normalises is 0 somewhere, and so is its eps"
    )


def _spread(blame: Blame) -> Finding | None:
    given = _argument(blame)
    if given is None or given.numel != blame.wrong.numel or not blame.wrong.nan:
        return None
    return Finding(
        "standard deviation of one element",
        f"{blame.function} was taken of single elements: with Bessel's correction that is 0 / 0",
        "Take it of two elements or more: look at its dim, or leave such batches out.",
    )


def _overflow(blame: Blame, scale: float | None) -> Finding | None:
    """Finite arguments, and a result beyond what the dtype can hold."""
    limit = LARGEST.get(blame.wrong.dtype)
    given = [argument.health for argument in blame.arguments if argument.health is not None]
    if limit is None or not given or any(map(bad, given)) or blame.function in _POLES:
        return None
    if not _infinite(blame.wrong) and blame.function not in _SUMS:
        return None  # NaN is the difference of two sums that overflowed
    largest = max(map(magnitude, given))
    terms = max(health.numel for health in given)
    if largest <= limit and max(1.0, largest) ** 2 * terms <= limit:
        return None
    # Its node had not saved the result, and a sum behind it may have overflowed instead.
    is_product = blame.is_of_graph and blame.function == "mul"
    if is_product and (len(given) < 2 or math.prod(map(magnitude, given)) <= limit):
        return None
    dtype = blame.wrong.dtype
    remedy = "Rescale the arguments, or normalise what comes before."
    if dtype in {"float16", "bfloat16"}:
        remedy = "Have autocast leave this call in float32, or use bfloat16; or rescale it."
    if dtype == "bfloat16":
        remedy = "Compute this call in float32, or rescale its arguments."
    grown = [
        one for one in blame.arguments if one.parameter and magnitude(one.health) > _LARGE_WEIGHT
    ]
    if grown:
        name, size = grown[0].parameter, number(magnitude(grown[0].health))
        remedy = (
            f"The parameter {name} has grown to {size}: lower the learning rate, or clip the"
            " gradients."
            if blame.steps
            else f"The parameter {name} goes up to {size}, and no optimizer had stepped: look at"
            " what initialises or loads it."
        )
    scaled = f"; the loss is scaled by {number(scale)}" if scale is not None else ""
    return Finding(
        f"overflow in {dtype}",
        f"the arguments of {blame.op.name} go up to {number(largest)}, and the result is beyond"
        f" {number(limit)}, where {dtype} ends{scaled}",
        remedy,
    )


def _mul(blame: Blame) -> Finding | None:
    """Probabilities, some of which a mask made 0, times their logarithms."""
    if len(blame.arguments) != 2 or not blame.wrong.nan:
        return None
    logs = [one.health for one in blame.arguments if one.made_by in {"log_softmax", "sub"}]
    others = [one.health for one in blame.arguments if one.made_by not in {"log_softmax", "sub"}]
    if len(logs) != 1 or logs[0] is None or not logs[0].neginf or logs[0].posinf:
        return None
    if others[0] is None or not others[0].zero or bad(others[0]):
        return None
    return singular.of_masked_product(logs[0].neginf).finding()


_RULES: Final[Mapping[str, Callable[[Blame], Finding | None]]] = {
    **dict.fromkeys(("sqrt", "rsqrt"), _sqrt),
    **dict.fromkeys(("log", "log2", "log10", "log1p"), _log),
    **dict.fromkeys(("div", "reciprocal"), _div),
    **dict.fromkeys(("exp", "exp2", "expm1", "sinh", "cosh"), _exp),
    **dict.fromkeys(SOFTMAX_FUNCTIONS, _softmax),
    **dict.fromkeys(("pow", "float_power"), _pow),
    **dict.fromkeys(("layer_norm", "group_norm", "instance_norm", "batch_norm"), _normalised),
    **dict.fromkeys(("std", "var", "std_mean", "var_mean"), _spread),
    **dict.fromkeys(("acos", "asin"), lambda blame: _outside(blame, -1.0, 1.0)),
    **dict.fromkeys(("atanh", "erfinv"), lambda blame: _within(blame, -1.0, 1.0)),
    "mul": _mul,
    "logit": lambda blame: _within(blame, 0.0, 1.0),
    "acosh": lambda blame: _outside(blame, 1.0),
}


def function_of(node: str) -> str:
    """``log1p`` of the node ``Log1P``, ``log_softmax`` of ``LogSoftmax``.

    Args:
        node: name of a node without ``Backward0``.
    """
    return _BY_NODE.get(node.lower(), re.sub(r"(?<=[a-z])(?=[A-Z])", "_", node).lower())


_BY_NODE: Final = {name.replace("_", ""): name for name in _RULES}
