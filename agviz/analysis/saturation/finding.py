"""What is said of activations that are saturated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agviz.analysis.blame import function_name
from agviz.analysis.gradient_flow import is_custom
from agviz.analysis.place import backward_pass
from agviz.analysis.program_writes import memories_of_parameters, written
from agviz.analysis.saturation.gates import shut_gates
from agviz.analysis.saturation.judging import saturated
from agviz.analysis.saturation.openness import CLAMP, INPUT_TOO_LARGE, LOGITS_TOO_LARGE, SLOPES
from agviz.analysis.saturation.reading import RunSaturation
from agviz.words.labels import of_owner
from agviz.words.units import percent, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agviz.analysis.saturation.gates import ShutGates
    from agviz.analysis.saturation.judging import Saturated, Trend
    from agviz.measure.values import Health
    from agviz.traces.reader import Trace
    from agviz.traces.rows import ForwardOpRow, Frame

_MOST_NAMED: Final = 3
_STATES: Final[Mapping[str, str]] = {"softmax": "nearly one-hot", "relu": "nearly all 0"}
_NEAR: Final = 0.05
"""Of the ends of the range: what counts as the rim where a share of outputs is told."""
_LEAST_SHARE: Final = 0.5
_MOVED: Final = 0.02
"""Of a parameter's norm: what can't take an activation from open to its rim."""
_REMEDIES: Final[Mapping[str, Mapping[str, str]]] = {
    "relu": {
        "passes": "A step has moved what goes in below 0: take a smaller learning rate or clip"
        " gradients, and make that layer anew, or use an activation with a slope on both sides"
        " (leaky ReLU, GELU).",
        "start": "Look at the initial bias and weights before it, and at the scale of the data.",
    },
    "softmax": {
        "passes": "Its logits have grown: take a smaller learning rate, or bound them by"
        " normalising what they are made of.",
        "start": LOGITS_TOO_LARGE,
    },
    CLAMP: {
        "start": "What goes in is beyond its bounds, and of that nothing is learnt: scale it, or"
        " bound it by what has a slope throughout (tanh, sigmoid; of errors, a Huber loss).",
    },
    "": {
        "passes": "What goes in has grown: take a smaller learning rate, or normalise what goes in"
        " (LayerNorm).",
        "start": INPUT_TOO_LARGE,
    },
}
"""By function (the last: any other), by trend; what has none of its own is told ``start``."""
_LARGE: Final = 10.0
"""Root mean square of what a layer takes: what is normalised has about 1."""
_WIDTHS: Final[Mapping[str, float]] = {"sigmoid": 1.0, "tanh": 2.0}
"""From the least to the largest of what they give."""
_OF_CALLS: Final = (
    "What comes back in from step to step is too large: use smaller (orthogonal) recurrent"
    " weights, normalise the state, or take gates (GRU, LSTM)."
)


_CHECKPOINTS: Final = "CheckpointFunction"
"""torch's own Function: it computes the gradients of what was checkpointed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saturation:
    """Activations that let next to nothing of a gradient through, and how that came."""

    trend: Trend
    """Held against what: earlier ``passes``, earlier ``calls`` in the pass, ``siblings``; or so
    from the ``start``."""
    function: str
    module: str
    """Of the first of them; empty: it is in none."""
    graph_task: int
    """The pass that was looked at last."""
    frame: Frame | None
    heading: str
    paragraph: str
    slope: float
    """The norm of what it lets through over that of what comes."""
    evidence: tuple[str, ...]

    def details(self) -> Iterator[str]:
        """What the answer rests on, line by line."""
        yield from self.evidence

    def as_json(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {
            "kind": f"saturation: {self.trend}",
            "heading": self.heading,
            "function": self.function,
            "module": self.module or None,
            "graph_task": self.graph_task,
            "line": None if self.frame is None else str(self.frame),
            "slope": self.slope,
            "paragraph": self.paragraph,
        }


def saturation(trace: Trace, graph_task: int | None = None) -> Saturation | None:
    """The activations that are saturated in a run, or in one pass; None: none are.

    Raises:
        agviz.errors.TraceError: there is no such graph task, or the file is damaged.
    """
    run = RunSaturation(trace, graph_task)
    found = [
        each
        for each in saturated(run)
        if not (_is_annealed(trace, each) or each.at.is_passed_by(each.site.key))
    ]
    if found:
        return _told(trace, found)
    gates = shut_gates(run)
    return None if gates is None else _of_gates(gates)


def _is_annealed(trace: Trace, found: Saturated) -> bool:
    """Whether what comes in was scaled by a number that the program has changed meanwhile.

    It is sharpened on purpose then, as by a temperature that is lowered.
    """
    scaled = set()
    for at in (found.open_at, found.at):
        site = None if at is None else at.sites.get(found.site.key)
        if at is None or site is None:
            return False
        for edge in trace.edges_from(at.graph_task, site.nodes[-1].index):
            op = trace.forward_op(at.graph_task, edge.consumer)
            if op is None or len(op.inputs) != 1 or function_name(op.name) not in {"mul", "div"}:
                return False
            scaled.add(op.arguments)
    return len(scaled) > 1


def _of_gates(found: ShutGates) -> Saturation:
    what = f"the LSTM {found.op.module}" if found.op.module else "an LSTM"
    return Saturation(
        trend="start",
        function="sigmoid",
        module=found.op.module or "",
        graph_task=found.graph_task,
        frame=found.op.frame,
        heading=f"the gates of {what} are saturated from the first backward pass on",
        paragraph=(
            f"In backward pass {found.graph_task} its input, forget and output gates are so near to"
            f" 0 or 1 that the slope of their sigmoids is {percent(found.open)} of what it is where"
            " they are half open; it was no better before anything was learnt. What enters them"
            " is too large: use smaller initial weights, or normalise the input."
        ),
        slope=found.open * SLOPES["sigmoid"],
        evidence=(f"mean slope in backward pass {found.graph_task}: {found.open:.3f} of 1/4",),
    )


def _told(trace: Trace, found: list[Saturated]) -> Saturation:
    first = found[0]
    function, module, _ = first.site.key
    return Saturation(
        trend=first.trend,
        function=function,
        module=module,
        graph_task=first.at.graph_task,
        frame=first.site.frame,
        heading=_heading(trace, first),
        paragraph=" ".join(_said(trace, found)),
        slope=first.now,
        evidence=tuple(_evidence(found)),
    )


def _heading(trace: Trace, found: Saturated) -> str:
    what = of_owner(found.site.key.function, found.site.key.module or None)
    state = _STATES.get(found.site.key.function, "saturated")
    state = "dead" if found.site.key.function == "relu" and not found.now else state
    if found.trend == "passes":
        where = backward_pass(trace, found.since.graph_task)
        return f"{what} is {state} from {where} on"
    where = f"backward pass {found.at.graph_task}"
    if found.trend == "calls":
        several = f"{found.others:,} {_calls(found)}"
        return f"{what} is {state} after the first of its {several}, in {where}"
    if found.trend == "siblings":
        return f"{what} is {state}, {plural(found.others, 'other')} like it are not, in {where}"
    return f"{what} is {state} from the first backward pass on"


def _said(trace: Trace, found: list[Saturated]) -> Iterator[str]:
    first = found[0]
    function = first.site.key.function
    now, beside = percent(first.now), percent(first.beside)
    lets = f"it lets {now} of the norm of the gradient through"
    if first.trend == "passes":
        yield f"In backward pass {first.at.graph_task} {lets}; before, it was up to {beside}."
        yield from _of_loss(trace, first)
    elif first.trend == "calls":
        half = first.others - first.others // 2
        yield (
            f"In the last {half:,} of its {first.others:,} {_calls(first)} {lets}, in the first"
            f" {beside}: of what comes before them hardly anything is learnt."
        )
    elif first.trend == "siblings":
        yield f"There {lets}, in the other places the pass calls {function} {beside}."
    else:
        yield f"Before anything was learnt, {lets}; open, it would let {beside} through."
    yield from _at_the_rim(trace, first)
    others = [each for each in found[1:] if each.site.key.function == function]
    if others:
        yield f"So is {function} in {plural(len(others), 'other place')}."
    yield from _behind(first)
    own = _REMEDIES.get(function, _REMEDIES[""])
    moved = _moved(trace, first) if first.trend == "passes" else None
    if beyond := _of_targets(trace, first):
        yield beyond
    elif first.trend == "calls" and first.at.is_recurrent(first.site.key):
        yield _OF_CALLS
    elif moved is not None and moved < _MOVED:
        yield (
            f"These moved by {percent(moved)} of their norm at most meanwhile, so what goes in has"
            f" changed: look at the batches from backward pass {first.since.graph_task} on."
        )
    elif first.trend == "passes" and (write := _written(trace, first)) is not None:
        yield (
            f"Besides steps, {write.name} wrote to a parameter before it meanwhile, at"
            f" {write.line}: look at that first."
        )
    else:
        weight, scale = first.since.scale_before(first.site.key)
        yield (
            f"What {weight} is multiplied by is not normalised: its root mean square is at least"
            f" {scale:,.3g}, by the gradients. Bring its features to mean 0 and deviation 1."
            if first.trend == "start" and scale > _LARGE
            else own.get(first.trend, own["start"])
        )
        if first.trend == "passes" and (name := _by_hand(trace, first)):
            yield (
                f"The backward of {name} is the program's own, and steps follow what it gives:"
                " agviz check looks whether that is right."
            )


def _of_targets(trace: Trace, found: Saturated) -> str:
    """What to do where a loss takes the outputs, and is larger than any of its range makes it.

    Empty: it is not.
    """
    function, graph_task = found.site.key.function, found.at.graph_task
    first = found.site.nodes[0].index
    above = [edge.producer for edge in trace.edges(graph_task) if edge.consumer == first]
    if function not in _WIDTHS or above != [0]:
        return ""
    differences = _differences(trace, graph_task, trace.losses().get(graph_task, 0.0))
    if differences <= _WIDTHS[function]:
        return ""
    least = 0 if function == "sigmoid" else -1
    return (
        f"It is what the loss is given, which differs from the targets by"
        f" {differences:.3g} (root mean square), more than numbers from {least} to 1 can differ:"
        f" the targets are beyond them, and no step can reach them. Bring the targets there, or"
        f" leave the {function} out behind the last layer."
    )


def _differences(trace: Trace, graph_task: int, loss: float) -> float:
    """The root mean square of what a loss squares, where it is a mean; 0: it is none.

    A mean over n squares gives a gradient whose norm is 2 * sqrt(loss / n).
    """
    if trace.node(graph_task, 0).short_name != "MseLossBackward0" or not loss > 0:
        return 0.0
    for row in trace.health(graph_task, 0):
        square = (row.norm or 0.0) ** 2 * row.numel
        if (row.role, row.slot) == ("output", 0) and math.isclose(square, 4 * loss, rel_tol=1e-3):
            return math.sqrt(loss)
    return 0.0


def _by_hand(trace: Trace, found: Saturated) -> str:
    """The custom Function through which the gradient comes, as far as is known; empty: none."""
    last = found.site.nodes[-1].order or 0
    nodes = trace.nodes(found.at.graph_task)
    names = [node.short_name for node in nodes if is_custom(node) and (node.order or last) < last]
    own = [name.removesuffix("Backward") for name in names if not name.startswith(_CHECKPOINTS)]
    return own[0] if own else ""


def _written(trace: Trace, found: Saturated) -> ForwardOpRow | None:
    """What the program itself wrote last to a parameter that learns through it, while it shut."""
    if found.open_at is None:
        return None
    leaves, _ = found.at.reached(found.site.key)
    meanwhile = range(found.open_at.graph_task + 1, found.since.graph_task + 1)
    writes = [
        op
        for memory in memories_of_parameters(trace, found.at.names(leaves))
        for op in trace.forward_changes(memory, -1)
        if op.graph_task in meanwhile
        and op.line is not None
        and not any("torch/optim/" in frame.file for frame in op.stack)
        and any(row.memory == memory for row in written(op))
    ]
    return max(writes, key=lambda op: op.id, default=None)


def _moved(trace: Trace, found: Saturated) -> float | None:
    """How far a parameter that learns through a line moved at most since that was open.

    Of its norm; by steps or by what else writes to it. None: not all of them were measured.
    """
    if found.open_at is None:
        return None
    passes = trace.passes_before_steps()
    first: dict[str, float] = {}
    far: dict[str, float] = {}
    for row in trace.step_samples():
        if not found.open_at.graph_task <= passes.get(row.step, -1) <= found.at.graph_task:
            continue
        if row.change is None or not row.norm:
            return None
        name = row.parameter
        began = first.setdefault(name, row.norm)
        far[name] = max(far.get(name, 0.0) + row.change / row.norm, abs(row.norm / began - 1))
    leaves, _ = found.at.reached(found.site.key)
    names = found.at.names(leaves)
    is_known = bool(names) and len(names) == len(leaves) and far.keys() >= set(names)
    return max(far.values()) if is_known else None


def _calls(found: Saturated) -> str:
    return "steps" if found.at.is_recurrent(found.site.key) else "calls"


def _of_loss(trace: Trace, found: Saturated) -> Iterator[str]:
    losses = trace.losses()
    if found.open_at is None:
        return
    then, now = losses.get(found.open_at.graph_task), losses.get(found.at.graph_task)
    if then is not None and now is not None and math.isfinite(then) and math.isfinite(now):
        yield f"The loss was {then:.3g} then and is {now:.3g} now."


def _behind(found: Saturated) -> Iterator[str]:
    leaves, of = found.at.reached(found.site.key)
    names = found.at.names(leaves)
    if not leaves or len(leaves) == of:
        return
    shown = ", ".join(names[:_MOST_NAMED])
    more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    told = f" ({shown}{more})" if names else ""
    yield f"{len(leaves):,} of {plural(of, 'parameter')} get gradients through it{told}."


def _at_the_rim(trace: Trace, found: Saturated) -> Iterator[str]:
    """The least share of its outputs that must be at the rim, by mean and norm of the forward."""
    shares = [
        share
        for node in found.site.nodes[-1:]
        if (op := trace.forward_op(found.at.graph_task, node.index)) is not None
        for row in op.outputs[:1]
        if row.health is not None
        and (share := share_at_the_rim(found.site.key.function, row.health)) is not None
    ]
    if not shares or shares[0] < _LEAST_SHARE:
        return
    told = f"{math.floor(100 * shares[0])} %"
    if found.site.key.function == "relu":
        yield f"{told} of its outputs are 0."
    elif found.site.key.function == "softmax":
        yield f"In at least {told} of its rows one entry is above {1 - _NEAR:.2f}."
    else:
        least = "0" if found.site.key.function == "sigmoid" else "-1"
        yield f"At least {told} of its outputs are within {_NEAR:.2f} of {least} or 1."


def share_at_the_rim(function: str, outputs: Health) -> float | None:
    """The share of outputs (of softmax: of rows) that must be at the rim, at least.

    Markov's inequality: a slope is never negative, so no more than the mean slope over a bound of
    them are above that bound. The mean slope is known from the mean and the norm of the outputs.

    Args:
        function: which.
        outputs: what was measured of what it put out.

    Returns:
        From 0 to 1; None: not measured, or not finite.
    """
    count, mean, norm = outputs.numbers, outputs.mean, outputs.norm
    if not count or mean is None or norm is None or not outputs.is_finite:
        return None
    square = norm * norm / count
    if function == "relu":
        return outputs.zero / count
    if function not in {"sigmoid", "softmax", "tanh"}:
        return None
    if function == "softmax":
        slope, bound = 1 - square / mean if mean > 0 else 1.0, _NEAR
    elif function == "sigmoid":
        slope, bound = mean - square, _NEAR * (1 - _NEAR)
    else:
        slope, bound = 1 - square, 1 - (1 - _NEAR) ** 2
    return min(1.0, max(0.0, 1 - max(0.0, slope) / bound))


def _evidence(found: list[Saturated]) -> Iterator[str]:
    for each in found:
        site = each.site
        where = f" at {site.key.line}" if site.key.line else ""
        calls = ", ".join(f"{far:.2g}" for far in site.open[:8])
        yield (
            f"{of_owner(site.key.function, site.key.module or None)}{where}: open to {calls} of 1"
            f" in backward pass {each.at.graph_task} ({each.trend})"
        )
