"""Judging a custom Function by its kept calls."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import torch

from agviz.analysis.median import median
from agviz.analysis.outcome import Outcome
from agviz.check.backward_code import defined_at, made_in, talks_to_others, writes_at
from agviz.check.evaluation import GOES_ON, TO_INTEGERS, Evaluation, EvaluationError, unnoticed
from agviz.check.probes import Prober, SlopeMatch
from agviz.words.shapes import write_shape
from agviz.words.units import plural
from agviz_engine.errors import comes_from_outside

if TYPE_CHECKING:
    from agviz.check.kept_call import CustomFunction, KeptCall
    from agviz.check.probes import ArgumentProbe

_STEPPED: Final = {
    TO_INTEGERS,
    "bernoulli",
    "bucketize",
    "ceil",
    "fake_quantize_per_tensor_affine",
    "floor",
    "frac",
    "heaviside",
    "round",
    "sgn",
    "sign",
    "trunc",
}
"""Operators whose derivative is zero: a forward that has them is often meant to be passed over."""
_LEAST_STEPPED: Final = 3
"""Elements at which a mean slope has to be known."""
_ALIKE: Final = 0.2
"""What ratios to mean slopes, which are known to about one step, may differ by."""
_FACTOR: Final = 1.5
"""So many times the mean slope, or as little of it, is no such slope."""
_BOUNDS: Final = {"clamp", "clamp_", "clamp_max", "clamp_min", "nan_to_num", "nan_to_num_"}


@dataclass(frozen=True)
class FunctionFinding:
    """One thing to be said of a Function."""

    outcome: Outcome
    heading: str
    paragraph: str
    place: tuple[str, int, str] | None
    """File, line and function of the cause."""
    call: KeptCall | None = None
    """The call that it was seen at."""
    is_overwritten: bool = False
    """Whether later calls write to what it keeps for backward."""


@dataclass(frozen=True)
class FunctionAnswer:
    """What came of looking at a Function."""

    findings: list[FunctionFinding]
    looked_at: int = 0
    """Calls that were held against numerical derivatives."""
    by_design: str = ""
    """Why its gradient is not to be the derivative of its forward, or can't be told."""


def judge(about: CustomFunction) -> FunctionAnswer:
    """Hold the backward of a Function against its forward, at all its kept calls."""
    if talks_to_others(about.function):
        return FunctionAnswer([], by_design="it communicates with other processes")
    if not about.kept:
        return FunctionAnswer([], by_design=about.not_kept)
    looked_at = 0
    reason = ""
    for call in about.kept.values():
        findings, why_not = _judge_call(about, call)
        if findings:
            return FunctionAnswer(findings, looked_at + 1)
        reason = reason or why_not
        looked_at += not why_not
    return FunctionAnswer([], looked_at, reason)


def _judge_call(about: CustomFunction, call: KeptCall) -> tuple[list[FunctionFinding], str]:
    """What was found at a call, and why nothing can be said of it."""
    reason = ""
    for in_double in (True, False):
        evaluation = Evaluation(about, call, in_double=in_double)
        try:
            with unnoticed():
                return _compared(about, call, evaluation)
        except EvaluationError as error:
            reason = str(error)
        except Exception as error:
            if comes_from_outside(error):
                raise
            reason = f"it can't be called again ({type(error).__name__})"
    return [], reason


def _compared(
    about: CustomFunction, call: KeptCall, evaluation: Evaluation
) -> tuple[list[FunctionFinding], str]:
    once, again = evaluation.outputs(evaluation.start), evaluation.outputs(evaluation.start)
    if not _equal(once, again):
        return [], "its forward gives something else each time"
    prober = Prober(evaluation)
    if about.writes_to_incoming:
        return [_writes(about, call)], ""
    if about.writes_to:
        return [_writes_to_arguments(about, call)], ""
    if prober.keeps_state():
        if about.overtaken:
            return [_keeps_state(about, call)], ""
        return [], "its backward gives something else where forward was called once more before it"
    return _differentiated(about, call, evaluation, prober)


def _differentiated(
    about: CustomFunction, call: KeptCall, evaluation: Evaluation, prober: Prober
) -> tuple[list[FunctionFinding], str]:
    probes = [prober.argument(number) for number in range(len(call.needs_grad))]
    if all(each.match is SlopeMatch.SAME for each in probes):
        return _second(about, call, prober) if about.is_differentiated_twice else ([], "")
    wrong = [each for each in probes if _is_wrong(each, call)]
    design = _design(about, prober, evaluation, probes, is_wrong=bool(wrong))
    if evaluation.ops & _STEPPED and prober.is_linear():
        for number in range(len(probes)):
            if (scaled := _scaled_steps(about, call, prober, number)) is not None:
                return [scaled], ""
    if not wrong or design:
        return [], design or _why_unclear(about, probes)
    if prober.is_linear():
        return [_wrong(about, call, wrong, probes)], ""
    return _not_linear(about, call, evaluation, prober, probes)


def _scaled_steps(
    about: CustomFunction, call: KeptCall, prober: Prober, number: int
) -> FunctionFinding | None:
    """That backward gives a multiple of the slope over many steps of a forward that rounds.

    None: it hands the gradient on, or gives that slope, or it is not known.
    """
    known = prober.over_steps(number)
    ratios = [each.given / each.slope for each in known if each.slope]
    if len(known) < _LEAST_STEPPED or len(ratios) < len(known):
        return None
    if any(each.is_handed_on for each in known):
        return None
    ratio = median(ratios)
    if not all(math.isclose(each, ratio, rel_tol=_ALIKE) for each in ratios):
        return None
    if 1 / _FACTOR < ratio < _FACTOR:
        return None
    place = call.needs_grad[number]
    first, name = known[0], about.argument(place)
    where = f"[{', '.join(map(str, first.index))}]" if first.index else ""
    return FunctionFinding(
        Outcome.FOUND,
        f"the backward of {about.name} scales the gradient of {name} by a wrong factor",
        f"forward goes up in steps. Over {first.levels} of them around {name}{where} its mean slope"
        f" is {first.slope:.3g}; backward gives {first.given:.3g} there, and {ratio:.3g} times the"
        f" slope at {plural(len(known), 'place')}. A straight-through estimator has the slope of"
        " the line that the steps follow, or hands the gradient on: take the factor out.",
        made_in(about.function, place),
        call,
    )


def _not_linear(
    about: CustomFunction,
    call: KeptCall,
    evaluation: Evaluation,
    prober: Prober,
    probes: list[ArgumentProbe],
) -> tuple[list[FunctionFinding], str]:
    """What is to be said of a backward that does not give twice as much of twice as much."""
    unasked = {
        number: how
        for number, each in enumerate(probes)
        if _is_wrong(each, call) and (how := prober.from_nothing(number)) is not None
    }
    if not unasked:
        return [], "its gradient is not linear in the one that comes in: does it clip?"
    if not about.is_scaled:  # a loss may take the 1 that comes for granted
        again = Prober(evaluation, in_ones=True)
        probes = [again.argument(number) for number in range(len(probes))]
        unasked = {each: how for each, how in unasked.items() if _is_wrong(probes[each], call)}
        if not unasked:
            return [], "its backward ignores the gradient that comes in, which was 1 in this run"
    finding = _wrong(about, call, [probes[number] for number in unasked], probes)
    if all(how == "all" for how in unasked.values()):
        said = "It is the same whatever gradient comes in: multiply by grad_output."
    else:
        said = (
            "backward gives something even where a gradient of zeros comes in, which no"
            " derivative does: multiply every term by grad_output."
        )
    return [replace(finding, paragraph=f"{finding.paragraph} {said}")], ""


def _why_unclear(about: CustomFunction, probes: list[ArgumentProbe]) -> str:
    off = [each for each in probes if each.match is not SlopeMatch.SAME]
    missing = [each for each in off if each.is_none]
    if missing:
        return f"it returns None for {_names(about, missing)}, on which its result depends"
    if any(each.match is SlopeMatch.ROUGH for each in off):
        return "its gradient differs by less than 1 %: an approximation?"
    return "its numerical derivative is too inexact"


def _design(
    about: CustomFunction,
    prober: Prober,
    evaluation: Evaluation,
    probes: list[ArgumentProbe],
    *,
    is_wrong: bool,
) -> str:
    """Why the gradient is not meant to be the derivative of forward; empty: it may be a fault."""
    off = [number for number, each in enumerate(probes) if each.match is not SlopeMatch.SAME]
    if any(prober.is_identity(number) for number in range(len(probes))):
        return "its forward hands its argument on as it is: another gradient is its purpose"
    stepped = sorted(evaluation.ops & _STEPPED)
    if stepped:
        return f"its forward has {stepped[0]}: a straight-through estimator?"
    if GOES_ON in evaluation.ops:
        return f"its forward has {GOES_ON}: near enough, not exact?"
    flat = [number for number in off if probes[number].of(SlopeMatch.FLAT)]
    if flat and not is_wrong:
        names = _names(about, [probes[number] for number in flat])
        return f"its forward does not change with {names} where backward has a slope"
    return _limited(prober, evaluation, probes)


def _limited(prober: Prober, evaluation: Evaluation, probes: list[ArgumentProbe]) -> str:
    """Why backward may be meant to bound gradients."""
    bounds = evaluation.backward_ops & _BOUNDS
    off = [number for number, each in enumerate(probes) if each.match is not SlopeMatch.SAME]
    if bounds and all(prober.is_right_without(frozenset(bounds), number) for number in off):
        return f"it is right but for {min(bounds)} in its backward"
    return ""


def _is_wrong(probe: ArgumentProbe, call: KeptCall) -> bool:
    """Whether more than one element is wrong, or the only one; None is returned on purpose."""
    if probe.is_none and probe.place not in call.parameters:
        return False
    return len(probe.of(SlopeMatch.WRONG)) > 1 or (
        bool(probe.of(SlopeMatch.WRONG)) and len({each.index for each in probe.elements}) == 1
    )


def _wrong(
    about: CustomFunction, call: KeptCall, wrong: list[ArgumentProbe], probes: list[ArgumentProbe]
) -> FunctionFinding:
    names = _names(about, wrong)
    first = wrong[0]
    off = first.of(SlopeMatch.WRONG)
    example = off[0]
    where = f"[{', '.join(map(str, example.index))}]" if example.index else ""
    name = about.argument(first.place)
    shape = write_shape(call.args[first.place].shape)
    said = [
        f"The numerical derivative by {name}{where}, of shape {shape}, is {example.true:.4g};",
        f"backward gives {example.given:.4g}{_hint(first, call)}.",
        f"It differs in {len(off)} of {plural(len(first.elements), 'probe')}.",
    ]
    right = [each for each in probes if each.match is SlopeMatch.SAME]
    if right:
        verb = "is" if len(right) == 1 else "are"
        said.append(f"The gradient of {_names(about, right)} {verb} right.")
    is_none = first.is_none and first.place in call.parameters
    if is_none:
        said.insert(0, f"backward returns None for the parameter {name}.")
    said.append("torch.autograd.gradcheck on its apply shows more.")
    return FunctionFinding(
        Outcome.FOUND,
        f"the backward of {about.name} gives a wrong gradient of {names}",
        " ".join(said),
        made_in(about.function, first.place),
        call,
    )


def _hint(probe: ArgumentProbe, call: KeptCall) -> str:
    """What the numbers have in common."""
    if probe.is_zero:
        return ", and zero everywhere"
    pairs = [each for each in probe.of(SlopeMatch.WRONG) if each.true and each.given]
    ratios = [each.given / each.true for each in pairs]
    if len(pairs) < 2 or max(ratios) - min(ratios) > 1e-2 * abs(ratios[0]):
        return ""
    ratio = ratios[0]
    if abs(ratio + 1) < 1e-2:
        return ", always of the opposite sign"
    whole = 1 / ratio if abs(ratio) < 1 else ratio
    of_shape = {
        size
        for arg in call.args
        if isinstance(arg, torch.Tensor)
        for size in (*arg.shape, arg.numel())
    }
    size = next((size for size in sorted(of_shape) if size > 4 and abs(whole / size - 1) < 1e-2), 0)
    said = f"{ratio:.3g} times as much" if abs(ratio) >= 1 else f"1/{whole:.3g} of it"
    return f", always {said}{f' ({size} is the size of an argument)' if size else ''}"


def _second(
    about: CustomFunction, call: KeptCall, prober: Prober
) -> tuple[list[FunctionFinding], str]:
    match = prober.second()
    if match is SlopeMatch.SAME:
        return [], ""
    if match not in {SlopeMatch.WRONG, SlopeMatch.FLAT}:
        return [], "its second derivative can't be told"
    finding = FunctionFinding(
        Outcome.FOUND,
        f"the second derivative of {about.name} is wrong",
        f"The first one is right, but the program differentiates the backward of {about.name}"
        " again (create_graph=True), and what comes is not its numerical derivative: a part is"
        " missing from the graph. An intermediate that forward made has none: compute it anew in"
        " backward from inputs or outputs that ctx.save_for_backward saved, or return it as an"
        " output. torch.autograd.gradgradcheck tells whether it is right.",
        made_in(about.function, call.needs_grad[0]),
        call,
    )
    return [finding], ""


def _writes(about: CustomFunction, call: KeptCall) -> FunctionFinding:
    return FunctionFinding(
        Outcome.FOUND,
        f"the backward of {about.name} writes to the gradient that it is given",
        "torch hands the same tensor to other nodes, whose gradients become wrong, too. Use an"
        " operation that is not in place, or a clone of the gradient.",
        defined_at(about.function),
        call,
    )


def _writes_to_arguments(about: CustomFunction, call: KeptCall) -> FunctionFinding:
    names = [about.argument(place) for place in sorted(about.writes_to)]
    return FunctionFinding(
        Outcome.FOUND,
        f"the backward of {about.name} changes {' and '.join(names)}, which forward was given",
        "What comes later in the same backward pass, and had saved it, computes its gradients with"
        " other numbers than the forward did; written through .data, torch does not notice. Give"
        " the gradient back, and change parameters in the optimizer's step.",
        writes_at(about.function),
        call,
    )


def _keeps_state(about: CustomFunction, call: KeptCall) -> FunctionFinding:
    return FunctionFinding(
        Outcome.FOUND,
        f"the backward of {about.name} uses what a later call of forward left",
        f"What {about.name} keeps for backward is overwritten by its next call:"
        f" the backward of {plural(about.overtaken, 'call')} ran after a later call of forward in"
        " this run, and gave gradients of that call. torch does not see it. Keep tensors by"
        " ctx.save_for_backward (a clone, where their memory is used again), other"
        " values as attributes of ctx, and nothing on the class or in a global.",
        defined_at(about.function),
        call,
        is_overwritten=True,
    )


def _names(about: CustomFunction, probes: list[ArgumentProbe]) -> str:
    names = [about.argument(each.place) for each in probes]
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _equal(once: list[torch.Tensor], again: list[torch.Tensor]) -> bool:
    return len(once) == len(again) and all(
        torch.equal(one.nan_to_num(), two.nan_to_num())
        for one, two in zip(once, again, strict=True)
    )
