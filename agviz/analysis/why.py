"""Why gradients are None, zero, or of no use, as a trace shows."""

from __future__ import annotations

import difflib
import math
import re
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.causes import Cause
from agviz.analysis.code_search import (
    assignment,
    decorator_around,
    definition,
    only_call,
    only_return,
    parameter_made,
)
from agviz.analysis.constant_calls import (
    equal_throughout,
    of_single_values,
    span,
    why_constant,
    why_ignored,
)
from agviz.analysis.faint import LEAST, Faintness
from agviz.analysis.gradient_flow import GradientValue
from agviz.analysis.gradients import INTENDED, GradientRow, Gradients, GradientWord
from agviz.analysis.lineage import Lineage, last_name
from agviz.analysis.measures import bad, counts
from agviz.analysis.pass_marks import PassMark, marks
from agviz.analysis.phrases import (
    by_node,
    called_by_user,
    is_bounded,
    learnt,
    not_in_graph,
    practically_zero,
    reached,
    unreached,
)
from agviz.analysis.place import backward_pass
from agviz.analysis.saturation.openness import (
    FUNCTIONS,
    INPUT_TOO_LARGE,
    LOGITS_TOO_LARGE,
    RIM,
    openness,
    openness_of_rows,
    slope,
)
from agviz.analysis.untrained import LAST_PASSES, led_to
from agviz.analysis.vanishing import SAMPLERS, Vanished, Vanishing
from agviz.analysis.zero_factor import ZeroFactors
from agviz.errors import AgvizError
from agviz.traces.rows import GraphTaskStatus, NodeStatus, ParameterRow, visible
from agviz.words.shapes import write_shape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agviz.analysis.faint import Faint
    from agviz.analysis.lineage import Cut
    from agviz.measure.values import Health
    from agviz.traces.health import HealthRow
    from agviz.traces.reader import Trace
    from agviz.traces.rows import ForwardOpRow, ForwardTensorRow, Frame, GraphTaskRow, NodeRow

HINT: Final = "--check-forward (check_forward=True) finds the line that cuts it off."
UNNAMED: Final = (
    "Parameters are known by modules that are called while they are recorded, or that the caller "
    "of backward has in a variable; agviz.trace(model) knows them beforehand."
)
_BOUNDED: Final = (
    "Nothing leads back from there: look at scale, units and start values of what goes in, or bound"
    " it by a function with a slope throughout (tanh, sigmoid)."
)
_CONSTANT: Final = (
    "What comes before it makes no difference there: look at the shapes that it is called with."
)
_ONE_ENTRY: Final = (
    "Take it over several entries (look at its dim); of a single score, a sigmoid has a slope."
)
_NEAREST: Final = (
    "The nearest pixel does not change with the grid, save where it jumps: interpolate"
    " (mode='bilinear')."
)
_MOMENTUM: Final = 20.0
"""Times a rate and a gradient that a step of plain SGD goes at most."""
_IGNORED: Final = "Look at what makes the targets, or leave such batches out."
_OF_NUMBERS: Final = "Look at what it is given: that is not zero."
_STEPPED: Final = ("Ceil", "Floor", "Heaviside", "Round", "Sgn", "Sign", "Trunc")
OF_MORE: Final = "Take it over more numbers, or leave it out."
"""Advice where a mean is over one number: nothing is left once it is taken away."""
_ONE_WAY: Final = "If only one of the ways is meant, detach() what the other leads through."
_FUNCTIONAL: Final = (
    "Hand the tensor itself over: torch.func.functional_call(module, {name: tensor}, inputs), or"
    " functional.linear and the like."
)
_EQUAL_TERMS: Final = "Look at what makes the terms equal: weights, indices, what is subtracted."
_MOST_USES: Final = 2
_OF_USES: Final = (
    "and what comes through one use cancels what comes through the others. Where a use is to be a"
    " constant, as an old log-probability or a target, detach it or compute it under no_grad."
)
_OVER_MORE: Final = (
    "Normalise over more than one value (fewer groups, a larger map), or leave the norm out there."
)
LARGER: Final = (
    "Look at how they are initialised: torch's own start values let about half of a gradient"
    " through each layer."
)
_BOTH: Final = (
    "It never learns by itself: both factors of this product were zeros from the first, so that"
    " each leaves the other without a gradient. Start one of them from other values."
)
_SMALL_FACTOR: Final = 0.2
"""By which a layer's weights multiply what passes, at most: torch's own start values give 0.6."""
_IN_NODE: Final = {NodeStatus.RUNNING, NodeStatus.FAILED}
_WITHOUT_GRADIENTS: Final = {Cause.NO_GRAD, Cause.INFERENCE_MODE}
_FORWARDS: Final = 8
"""Calls of backward whose forward is looked at."""
_MOST_OPS: Final = 50_000
_FEW_NODES: Final = 10
"""Up to so many nodes for each parameter, all are read in one go."""
_MOST_NAMED: Final = 3
_ADDING: Final = ("Addm", "Baddbmm")
"""Nodes of products to which something is added: that gets output 0."""
_DIGITS: Final = "0123456789"
_MATRICES: Final = frozenset({"linear", "matmul", "mm", "bmm", "mv", "addmm", "baddbmm", "addmv"})
_PADDING: Final = re.compile(r"tensor, tensor, (?:padding_idx=)?\d+")
_NO_UNDERFLOW: Final = 1e-25
"""Of the size of a gradient and of a factor: products of more are above the least float32."""
_DROPOUT: Final = re.compile(r"(feature_)?(alpha_)?dropout(1d|2d|3d)?_?")
_PRODUCTS: Final = frozenset({"mul", "mul_", "multiply", "__mul__", "__rmul__", "__imul__"})
_FLOATS: Final = ("float", "bfloat")
_LEVEL: Final = 1e-4
"""What rounding leaves of a gradient that a softmax takes out."""
_LEARNT: Final = 1e-3
"""Of the first loss: less is next to nothing."""
_RANK: Final = {
    GradientValue.NONE: 0,
    GradientValue.ZERO: 1,
    GradientValue.UNKNOWN: 2,
    GradientValue.SOME: 3,
}


class _Found(NamedTuple):
    """What arrived for a parameter in one graph task."""

    value: GradientValue
    health: HealthRow | None
    graph_task: GraphTaskRow
    node: int
    """Its AccumulateGrad; -1: the graph task does not hold it."""


def why(trace: Trace, parameter: str | None = None, graph_task: int | None = None) -> Gradients:
    """What became of the gradients of all known parameters, or of one.

    Args:
        trace: the recording.
        parameter: its name, or the path of a module (``encoder`` or ``encoder.*``), whose
            parameters are meant; None: all.
        graph_task: only this one, with the reentrant ones in it; None: the last calls of backward.
            A parameter that got a gradient in one of them has one.

    Raises:
        agviz.errors.AgvizError: no parameter or module of this name is known, or nothing was
            recorded.
        agviz.errors.TraceError: there is no such graph task, or the file is damaged.
    """
    asked = _Why(trace, graph_task)
    names = list(asked.parameters)
    if parameter is not None:
        names = known_names(parameter, names)
    rows = [asked.row(name) for name in names]
    if not rows:
        return Gradients(rows, UNNAMED)
    is_missing = any(row.cause is Cause.NOT_REACHED for row in rows)
    return Gradients(rows, HINT if is_missing else "", asked.doubt())


def known_names(parameter: str, names: Sequence[str]) -> list[str]:
    """``parameter``, or what is in the module of this path; else AgvizError, with what is near."""
    if parameter in names:
        return [parameter]
    inside = [name for name in names if name.startswith(f"{parameter.removesuffix('.*')}.")]
    if inside:
        return inside
    near = [name for name in names if name.endswith(f".{parameter}")]
    near = near or difflib.get_close_matches(parameter, names, _MOST_NAMED, 0.5)
    meant = f"; is {' or '.join(near[:_MOST_NAMED])} meant?" if near else ""
    if not names:
        meant = ", and no other: call the modules that own them while it is recorded"
    raise AgvizError(f"no parameter {parameter!r} is known{meant}")


class _Why:
    """Everything that is read once for all parameters."""

    def __init__(self, trace: Trace, graph_task: int | None) -> None:
        self._trace = trace
        self._vanishing = Vanishing(trace)
        self._faintness: dict[int, Faintness] = {}
        self.parameters: dict[str, ParameterRow] = {}
        """As they were known last, by name."""
        self._ops_of: dict[tuple[int, int], ForwardOpRow | None] = {}
        """The torch functions that made nodes."""
        self._later: dict[str, str] = {}
        """Names that later passes know, by what is after their first part."""
        self._found: dict[str, _Found] = {}
        self._in_graph: dict[str, _Found] = {}
        """The last graph task that holds a parameter's AccumulateGrad."""
        self._is_last = graph_task is None
        self._passes = self._choose(graph_task)
        for task in self._passes:
            self._look_at(task)
        if not self._passes:
            self._learn_from_forward()

    def doubt(self) -> str:
        """What went wrong in the last pass that is meant, in a sentence; empty: nothing."""
        last = self._passes[0].id if self._passes else None
        outermost = self._trace.graph_tasks.outermost.ids
        if self._is_last and len(outermost):
            last = outermost[-1]
        mark = None if last is None else marks(self._trace).get(last)
        if mark is None or mark is PassMark.NON_FINITE:  # the rows say of which parameter
            return ""
        return f"But of backward pass {last}: {mark}; agviz explain says more."

    def row(self, name: str) -> GradientRow:
        """What became of one parameter."""
        parameter = self.parameters[name]
        found = self._found.get(name)
        value = GradientValue.NONE if found is None else found.value
        if value in {GradientValue.SOME, GradientValue.UNKNOWN} and found is not None:
            return self._reached(parameter, found)
        in_graph = self._in_graph.get(name)
        is_put_there = in_graph is None and value is GradientValue.NONE and name in self._put_there
        if is_put_there or not parameter.requires_grad:
            return unreached(parameter, Cause.PUT_THERE if is_put_there else Cause.FROZEN)
        if value is GradientValue.ZERO and found is not None:
            return self._vanished(parameter, found)
        if in_graph is not None:
            return self._undefined(parameter, in_graph)
        row = self._not_reached(parameter)
        earlier = self._earlier.get(name)
        if earlier is None:
            return row
        said = f"backward pass {earlier} led to it, the last {LAST_PASSES} did not"
        return row._replace(reason=f"{row.reason}; {said}")

    @cached_property
    def _earlier(self) -> dict[str, int]:
        """Parameters that calls before those that are meant led to, and the last of those."""
        if not self._is_last or len(self._passes) < LAST_PASSES:
            return {}
        tasks = self._trace.graph_tasks.outermost
        found = led_to(self._trace, (tasks.accumulating or tasks)[:-LAST_PASSES])
        # What had no class in its name is of the module that was called first.
        later = {name.partition(".")[2]: name for name in reversed(self.parameters)}
        return {later.get(name, name): number for name, number in found.items()} | found

    def _choose(self, graph_task: int | None) -> Sequence[GraphTaskRow]:
        """The outermost graph tasks that are meant, the last one first."""
        if graph_task is not None:
            return [self._trace.graph_task(graph_task)]
        tasks = self._trace.graph_tasks.outermost
        return (tasks.accumulating or tasks)[: -LAST_PASSES - 1 : -1]

    def _look_at(self, outermost: GraphTaskRow) -> None:
        """What the parameters got in a pass, of which no later one says more."""
        self._later = {}
        for name in self.parameters:
            self._later.setdefault(name.partition(".")[2], name)
        for number in self._trace.family(outermost.id):
            task = self._trace.graph_task(number)
            rows = self._trace.parameters(number)
            if task.nodes < _FEW_NODES * len(rows):
                self._vanishing.flow(number).read_all()
            for row in rows:
                name = self._learn(row)
                before = self._found.get(name)
                if before is not None and before.value is GradientValue.SOME:
                    continue
                found = self._arrived(task, -1 if row.node is None else row.node)
                if row.node is not None:
                    self._in_graph.setdefault(name, found)
                if before is None or _RANK[found.value] > _RANK[before.value]:
                    self._found[name] = found

    def _learn(self, row: ParameterRow) -> str:
        """The name by which a parameter was known last.

        While there are several outermost modules, names begin with their classes.
        """
        if row.name not in self.parameters:
            owner, _, own = row.name.partition(".")
            last = self.parameters.get(own)  # since then, the other modules have gone
            if last is not None and "#" not in owner and last.shape == row.shape:
                return own
            later = self._later.get(row.name)
            if later is not None and self.parameters[later].shape == row.shape:
                return later
        return self.parameters.setdefault(row.name, row).name

    def _arrived(self, task: GraphTaskRow, node: int) -> _Found:
        if node >= 0:
            flow = self._vanishing.flow(task.id)
            if flow.nodes[node].status in _taken_up(task):
                return _Found(*flow.gradient(node), task, node)
        return _Found(GradientValue.NONE, None, task, node)

    def _learn_from_forward(self) -> None:
        """Without a backward pass, the parameters are known that functions took."""
        for op in self._ops:
            for row in op.inputs:
                if row.parameter:
                    self.parameters[row.parameter] = ParameterRow(
                        name=row.parameter,
                        shape=row.shape,
                        dtype=row.dtype,
                        requires_grad=row.requires_grad,
                        had_grad=False,
                        node=None,
                    )
        if not self.parameters:
            raise AgvizError(f"no backward pass was recorded in {self._trace.path}")

    def _reached(self, parameter: ParameterRow, found: _Found) -> GradientRow:
        task, health = found.graph_task, found.health
        if health is not None and bad(health):
            return self._nonfinite(parameter, health, task.id)
        if health is not None and health.norm is not None:
            next_to_nothing = self._faint(task.id).find(found.node, health.norm, parameter.norm)
            step = self._rates.get(parameter.name, 0.0) * health.norm
            if next_to_nothing is not None and (
                next_to_nothing.cause is Cause.SHIFT or step <= LEAST * (parameter.norm or 0.0)
            ):
                row = self._practically_zero(parameter, found, health.norm, next_to_nothing)
                return self._unless_learnt(row, task)
        reason = ""
        if found.value is GradientValue.UNKNOWN:
            reason = "whether its gradient is zero was not measured"
        elif self._passes[0].id not in {task.id, task.parent}:
            ended = self._passes[0].status is not GraphTaskStatus.RUNNING
            yet = "" if ended else " yet"
            reason = f"from backward pass {task.id}; later ones gave it none{yet}"
        elif not task.accumulate_grad:
            reason = "given back by grad(), not put in .grad"
        elif hook := self._vanishing.flow(task.id).hook_afterwards(found.node):
            reason = f"the hook {hook} ran afterwards and may have taken it"
        return GradientRow(
            parameter=parameter.name,
            shape=parameter.shape,
            dtype=parameter.dtype,
            gradient="some" if found.value is GradientValue.SOME else "unknown",
            norm=health.norm if health else None,
            cause=None,
            reason=reason,
            graph_task=task.id,
        )

    @cached_property
    def _rates(self) -> dict[str, float]:
        """The rates of parameters that steps changed by what they account for, unlike Adam."""
        rates = {fact.step: fact.most_rate or 0.0 for fact in self._trace.step_facts()}
        last = {row.parameter: row for row in self._trace.step_samples()}
        return {
            name: rates.get(row.step, 0.0)
            for name, row in last.items()
            if row.change
            and row.change <= _MOMENTUM * rates.get(row.step, 0.0) * (row.gradient or 0)
        }

    def _practically_zero(
        self, parameter: ParameterRow, found: _Found, norm: float, faint: Faint
    ) -> GradientRow:
        node, graph_task = faint.node, found.graph_task.id
        is_sum = self._is_sum(graph_task, node)
        shut = None if is_sum else self._shut(graph_task, node)
        row = practically_zero(parameter, graph_task, norm, faint, shut, is_sum=is_sum)
        if is_sum:
            row = row.at(self._line_above(graph_task, node))
        elif shut is not None and FUNCTIONS[node.short_name] == "softmax":
            row = row._replace(advice=LOGITS_TOO_LARGE)
        elif shut is not None and faint.steps == 1:
            row = row._replace(advice=INPUT_TOO_LARGE)
        op = self._op_of(graph_task, node.index)
        constant = "" if op is None else why_constant(op, self._health)
        if constant:
            is_single = op is not None and constant == of_single_values(op)
            advice = _OVER_MORE if is_single else _CONSTANT
            return row._replace(reason=f"{row.reason}: {constant}", advice=advice)
        if shut is None and faint.cause is Cause.FAINT:
            return self._of_small_weights(row, found, faint)
        return self._of_uses(row, graph_task, node)

    def _of_uses(self, row: GradientRow, graph_task: int, leaf: NodeRow) -> GradientRow:
        """The row of a parameter of which the gradients of several uses cancel."""
        uses = self._uses_apart(graph_task, leaf) if leaf.is_leaf else []
        if not uses:
            return row
        said = f"It is used through {' and '.join(map(str, uses[:_MOST_USES]))}, {_OF_USES}"
        return row.at(uses[-1])._replace(advice=said)

    def _uses_apart(self, graph_task: int, leaf: NodeRow) -> list[Frame]:
        """Where the stacks of what uses a parameter part, from the line of the use outwards."""
        flow = self._vanishing.flow(graph_task)
        users = [flow.nodes[edge.producer] for edge in flow.edges_into(leaf.index)]
        stacks = [[each for each in node.stack if not each.hidden][::-1] for node in users]
        for frames in zip(*stacks, strict=False):
            found = list(dict.fromkeys(frames))
            if len(found) > 1:
                return found
        return []

    def _of_small_weights(self, row: GradientRow, found: _Found, faint: Faint) -> GradientRow:
        """The row of a gradient that fell, where it is weights that made it fall.

        Where it fell in one product with the weight's input, that was made small by layers before.

        Args:
            row: as it is without that.
            found: where the gradient arrived.
            faint: where it fell.
        """
        modules = self._faint(found.graph_task.id).modules(found.node)
        if faint.steps == 1:
            modules = [name.removesuffix(".weight") for name in self.parameters]
        small: dict[str, tuple[float, float]] = {}
        for module in modules:
            weight = self.parameters.get(f"{module}.weight")
            if weight is None or not weight.norm or weight.shape is None or len(weight.shape) < 2:
                continue
            numel, outputs = math.prod(weight.shape), weight.shape[0]
            factor = weight.norm / math.sqrt(min(outputs, numel // outputs))
            if factor < _SMALL_FACTOR:
                small[weight.name] = factor, weight.norm / math.sqrt(numel)
        fall = math.log(faint.before / row.norm) if row.norm else 0.0
        if len(small) < 2 or 2 * sum(-math.log(factor) for factor, _ in small.values()) < fall:
            return row
        largest = max(size for _, size in small.values())
        said = (
            f"the weights of its layers are too small (about {largest:.0e}): each of them shrinks"
            " what goes through it, forwards and backwards"
        )
        row = row._replace(reason=said, advice=LARGER)
        return row.at(self._zero_factors.initialised(next(reversed(small))))

    def _faint(self, graph_task: int) -> Faintness:
        found = self._faintness.get(graph_task)
        if found is None:
            found = self._faintness[graph_task] = Faintness(self._vanishing.flow(graph_task))
        return found

    def _shut(self, graph_task: int, node: NodeRow) -> float | None:
        """What share an activation lets through whose outputs are at the rim; None: it is none.

        Of a softmax, the gradient alone does not tell: one that is the same for all entries of a
        row does not pass either.
        """
        flow = self._vanishing.flow(graph_task)
        if FUNCTIONS.get(node.short_name) == "softmax":
            far = self._open_rows(graph_task, node)
        else:
            far = openness(flow, node)
        return None if far is None or far > RIM else slope(flow, node)

    def _line_above(self, graph_task: int, node: NodeRow) -> Frame | None:
        """The line of a node that gave a gradient to another one."""
        flow = self._vanishing.flow(graph_task)
        edges = flow.edges_into(node.index)
        return flow.nodes[edges[0].producer].frame if edges else None

    def _is_sum(self, graph_task: int, node: NodeRow) -> bool:
        """Whether a softmax is open, and lets nothing through all the same.

        So what came to it is the same for all entries of a row.
        """
        if FUNCTIONS.get(node.short_name) != "softmax":
            return False
        far, met = self._open_rows(graph_task, node), slope(self._vanishing.flow(graph_task), node)
        return far is not None and far > RIM and met is not None and met < _LEVEL

    def _open_rows(self, graph_task: int, node: NodeRow) -> float | None:
        """How far a softmax is open, by what it gave; None: that was not recorded."""
        op = self._op_of(graph_task, node.index)
        health = op.outputs[0].health if op is not None and len(op.outputs) == 1 else None
        return None if health is None else openness_of_rows(health)

    def _nonfinite(
        self, parameter: ParameterRow, health: HealthRow, graph_task: int
    ) -> GradientRow:
        what = "NaN" if health.nan else "infinite"
        which = f"It holds {counts(health)}, in {backward_pass(self._trace, graph_task)}."
        return unreached(
            parameter,
            Cause.NON_FINITE,
            gradient="nonfinite",
            graph_task=graph_task,
            what=f"{what} in backward pass {graph_task}",
            details=(which,),
        )

    def _vanished(self, parameter: ParameterRow, found: _Found) -> GradientRow:
        if parameter.shape is not None and 0 in parameter.shape:
            return unreached(parameter, Cause.EMPTY, gradient="zero")
        row = self._by_node(parameter, "zero", found.graph_task.id, found.node)
        number = row.graph_task
        if (
            row.cause is Cause.UNDERFLOW
            and row.node is not None
            and number is not None
            and self._is_met(number, row.node)
        ):
            return _as_learnt(row, "what the loss compares is equal but for rounding")
        return self._unless_learnt(row, found.graph_task)

    def _is_met(self, graph_task: int, node: int) -> bool:
        """Whether next to nothing came to a node because outputs are as the loss wants them.

        What is compared has to be known, and to be large beside its difference.
        """
        found = self._faint(graph_task).compared(node)
        op = None if found is None else self._op_of(graph_task, found.node)
        if found is None or op is None:
            return False
        norms = [health.norm for row in op.inputs if (health := self._health(row)) is not None]
        return LEAST * max((norm for norm in norms if norm), default=0.0) > found.apart

    def _unless_learnt(self, row: GradientRow, task: GraphTaskRow) -> GradientRow:
        """The row of a gradient of zeros, or next to nothing, but where training is at its end."""
        fell = self._fell(task)
        if fell is None or row.cause in INTENDED or not self._had_gradient(row.parameter):
            return row
        what = f"the loss is {fell[1]:.3g}, and was {fell[0]:.3g}"
        return _as_learnt(row, what)

    def _fell(self, task: GraphTaskRow) -> tuple[float, float] | None:
        """The loss of the first pass, and of this one if steps have brought it to nothing.

        None: they have not, passes of several losses take turns, or all end at one and the same
        number: nothing is learnt there, of which there may be much.
        """
        if not self._is_last or not self._trace.passes_before_steps():
            return None
        tasks = self._trace.graph_tasks.outermost.accumulating
        losses = self._trace.losses()
        first, last = tasks[0].id, self._trace.graph_tasks.root(task.id)
        call = self._trace.call_site(last)[-1:]
        if first not in losses or self._trace.call_site(first)[-1:] != call:
            return None
        late = [losses.get(each.id, math.inf) for each in self._passes]
        began = losses[first]
        is_nothing = all(0 <= loss <= _LEARNT * began for loss in late)
        is_nothing &= not any(late) or len(set(late)) > 1 or len(late) == 1
        return (began, losses[last]) if is_nothing and last in losses else None

    def _had_gradient(self, name: str) -> bool:
        """Whether the first pass gave a parameter a gradient."""
        first = self._trace.graph_tasks.outermost.accumulating[0]
        norms = self._trace.leaf_norms(first.begin_seq, first.last_seq)
        return any(row.parameter == name and row.norm for row in norms)

    def _undefined(self, parameter: ParameterRow, found: _Found) -> GradientRow:
        """Its AccumulateGrad is in the graph, but nothing arrived there."""
        task, node = found.graph_task, found.node
        if self._vanishing.flow(task.id).nodes[node].status in _taken_up(task):
            return self._by_node(parameter, "none", task.id, node)
        if task.inputs:
            row = unreached(parameter, Cause.NOT_IN_INPUTS, graph_task=task.id)
            return row.at(visible(self._trace.call_site(task.id)))
        is_there = self._vanishing.flow(task.id).nodes[node].status in _IN_NODE
        if task.status is GraphTaskStatus.RUNNING:
            how = "is there now, in its AccumulateGrad" if is_there else "has not come there yet"
            return reached(parameter, f"the backward pass {how}")
        return unreached(
            parameter,
            Cause.IN_NODE if is_there else Cause.FAILED,
            graph_task=task.id,
            what=task.error or str(task.status),
        )

    def _by_node(
        self, parameter: ParameterRow, gradient: GradientWord, graph_task: int, leaf: int
    ) -> GradientRow:
        end = self._vanishing.find(graph_task, leaf)
        op = None if end is None else self._op_of(end.graph_task, end.node.index)
        steps = 0
        if end is not None and end.cause is Cause.UNDERFLOW:
            shrunk = self._faint(end.graph_task).shrunk(end.node.index)
            if shrunk is not None:
                end, op = end._replace(cause=Cause.VANISHED, node=shrunk.node), None
                steps = shrunk.steps
        if end is not None and op is not None:
            end = self._by_factors(end, op)
            if end.cause is Cause.ZERO_FACTOR and (dropped := self._all_dropped(op)) is not None:
                end, op = end._replace(cause=Cause.DROPPED), dropped
        zeros = "" if end is None or op is None else self._because(end, op)
        if end is not None and self._is_difference(parameter, end):
            end = end._replace(cause=Cause.DIFFERENCE)
        if end is not None and end.cause is Cause.MASKED and self._is_stuck(end):
            end = end._replace(cause=Cause.ZERO_FACTOR)
        row = by_node(parameter, gradient, graph_task, end, op, zeros, steps)
        return row if end is None else self._completed(row, end, op)

    def _because(self, end: Vanished, op: ForwardOpRow) -> str:
        """What the function was given that explains the end of a gradient; empty: not known."""
        if end.cause in {Cause.ZERO_FACTOR, Cause.MASKED}:
            both = all(map(self._holds_zeros, op.inputs))  # then one answer suffices for both
            factors = op.inputs if both else _factors(end, op)
            return next((f": {what}" for row in factors if (what := self._zeros(row))), "")
        if end.cause is Cause.CANCELLED:
            is_one = len(op.inputs) < 2 or _is_added(end, op)
            return "" if is_one else equal_throughout(_factors(end, op), self._health)
        if end.cause in {Cause.FLAT, Cause.UNKNOWN}:
            constant = why_constant(op, self._health) or why_ignored(op)
            return f": {constant}" if constant else ""
        if end.cause is Cause.DEAD_ACTIVATION and is_bounded(end.node.short_name):
            came = span(op, self._health)
            return f" ({came})" if came else ""
        return ""

    def _completed(self, row: GradientRow, end: Vanished, op: ForwardOpRow | None) -> GradientRow:
        """The row with another line or advice than its cause alone gives."""
        if end.cause is Cause.DEAD_ACTIVATION and is_bounded(row.node_name):
            row = row._replace(advice=_BOUNDED)
        elif end.cause is Cause.CANCELLED and (end.output >= 0 or end.node.is_leaf):
            row = row._replace(advice=_EQUAL_TERMS if end.output >= 0 else row.advice)
            row = self._of_uses(row, end.graph_task, end.node)
        elif end.cause is Cause.HOOK and row.frame is None:
            defined = definition(self._trace, end.hook)
            row = row.at(only_return(self._trace, defined) or defined)
        elif end.cause is Cause.FLAT and (found := self._of_flat(row, end, op)) is not None:
            row = found
        elif end.ways:
            row = self._parted(row, end)
        elif end.node.short_name.startswith(_STEPPED) and (cut := self._beside(row.parameter)):
            row = row._replace(reason=f"{row.reason}; the way around it is cut at {cut.frame}")
        elif op is not None and end.cause is Cause.DROPPED:
            row = self._dropped_at(row, op)
        elif op is not None and (made := self._zeros_made(end, op)) is not None:
            why = self._zero_factors.why(made)
            gave = "" if self._because(end, op) else f": {last_name(made)}() gave zeros"
            said = f"{row.reason}{gave}{why}"
            advice = OF_MORE if why else _OF_NUMBERS
            row = row._replace(reason=said, advice=advice).at(made.frame)
        elif op is not None or end.cause is Cause.ZERO_FACTOR:
            row = row._replace(advice=self._advice_of(end, op))
        return row

    def _of_flat(
        self, row: GradientRow, end: Vanished, op: ForwardOpRow | None
    ) -> GradientRow | None:
        """The row of a softmax or a sampler that is flat there; None: it is another function."""
        if row.node_name.startswith(tuple(SAMPLERS)):
            return row._replace(advice=_NEAREST)
        if self._shut(end.graph_task, end.node) is not None:
            reason = f"{row.node_name} let nothing through: its rows are all but one-hot"
            return row._replace(reason=reason, advice=LOGITS_TOO_LARGE)
        shapes = end.node.input_shapes or ((),)
        is_softmax = FUNCTIONS.get(end.node.short_name) == "softmax"
        if op is None and is_softmax and shapes[0][-1:] == (1,):
            shape = write_shape(shapes[0])
            reason = f"{row.reason} (of shape {shape}: over one entry it is always 1)"
            return row._replace(reason=reason, advice=_ONE_ENTRY)
        return None

    def _beside(self, parameter: str) -> Cut | None:
        """The one detach on another way from a parameter to the loss; None: not one."""
        cuts = () if self._lineage is None else self._lineage.cuts(parameter)
        found = [cut for cut in cuts if cut.cause is Cause.DETACH]
        return found[0] if len(found) == 1 else None

    def _parted(self, row: GradientRow, end: Vanished) -> GradientRow:
        """The row of gradients that cancel, with the line at which their ways part."""
        parted, *between = end.ways
        op = self._op_of(end.graph_task, parted.index)
        if op is None or op.frame is None:
            return row
        said = f"{row.reason}: their ways part at {called_by_user(op)}()"
        ops = (self._op_of(end.graph_task, node.index) for node in reversed(between))
        lines = {None, op.line, row.line}
        other = next((each for each in ops if each is not None and each.line not in lines), None)
        if other is None:  # one and the same tensor comes there twice: the row has its line
            return row._replace(reason=f"{said}, at {op.line}", advice=_ONE_WAY)
        said += f", and one leads through {called_by_user(other)}() ({other.line})"
        row = row._replace(reason=said, advice=_ONE_WAY, module=op.module)
        return row.at(op.frame)

    def _zeros_made(self, end: Vanished, op: ForwardOpRow) -> ForwardOpRow | None:
        """The function that computed a factor of zeros of other numbers; None: none did."""
        if end.cause not in {Cause.ZERO_FACTOR, Cause.ZERO_WEIGHT}:
            return None
        of = [self._zero_factors.of(row) for row in op.inputs if self._holds_zeros(row)]
        return next((each.maker for each in of if each.maker is not None), None)

    def _dropped_at(self, row: GradientRow, op: ForwardOpRow) -> GradientRow:
        """The row with the line that made the dropout, unless the line that called it shows it."""
        name, row = last_name(op), row.at(op.frame)._replace(module=op.module)
        is_called_here = row.frame is not None and name in row.frame.source
        return row if is_called_here else row.at(only_call(self._trace, name.capitalize()))

    def _advice_of(self, end: Vanished, op: ForwardOpRow | None) -> str:
        """What to do, by what a function was given; empty: what its cause tells."""
        if op is None or end.cause is Cause.ZERO_FACTOR:
            told = "" if op is None else self._of_zeros(op)
            return told or (_BOTH if self._is_stuck(end) else "")
        if why_ignored(op):
            return _IGNORED
        is_single = last_name(op).endswith("softmax") and why_constant(op, self._health)
        return _ONE_ENTRY if end.cause is Cause.FLAT and is_single else ""

    def _by_factors(self, end: Vanished, op: ForwardOpRow) -> Vanished:
        """The end of a gradient, where what the function was given shows another cause."""
        if _drops_all(op):
            return end._replace(cause=Cause.DROPPED)
        if (by_terms := self._by_terms(end, op)) is not None:
            return by_terms
        given = [self._health(row) for row in op.inputs]
        known = [health for health in given if health is not None and health.numbers]
        hooks = self._vanishing.flow(end.graph_task).hooks(end.node.index)
        if end.cause is Cause.MASKED and last_name(op) in _PRODUCTS and self._are_weights(op):
            return end._replace(cause=Cause.ZERO_FACTOR)
        has_looked = end.cause is Cause.HOOK and not any(event.changed for event in hooks)
        if has_looked and any(health.zero == health.numbers for health in known):
            return end._replace(cause=Cause.ZERO_FACTOR)
        return end

    def _by_terms(self, end: Vanished, op: ForwardOpRow) -> Vanished | None:
        """The end of a gradient that is a sum of terms, of which none is zero; or none needs be.

        None: it is no such sum, or that is not known.
        """
        if end.node.short_name.startswith("EmbeddingBackward") and end.cause is Cause.MASKED:
            return end if _PADDING.match(op.arguments) else end._replace(cause=Cause.CANCELLED)
        if end.cause is Cause.ZERO_FACTOR and _is_added(end, op):
            return end._replace(cause=Cause.CANCELLED)
        rows = _factors(end, op)
        factors = [each for row in rows if (each := self._health(row)) is not None and each.numbers]
        is_product = end.cause is Cause.ZERO_FACTOR or (
            end.cause is Cause.MASKED and last_name(op) in _PRODUCTS
        )
        if not is_product or not factors:
            return None
        if any(each.zero for each in factors) or len(factors) < len(rows):
            return end if end.cause is Cause.ZERO_FACTOR else None
        is_sure = self._cannot_underflow(end, factors)
        return end._replace(cause=Cause.CANCELLED if is_sure else Cause.UNKNOWN)

    def _cannot_underflow(self, end: Vanished, factors: Sequence[Health]) -> bool:
        """Whether products of the gradient that came with any of these are far above the least."""
        came = self._vanishing.flow(end.graph_task).inputs(end.node.index)
        sizes = [row.norm for _, row in came if row is not None]
        sizes += [health.norm for health in factors]
        return math.prod(size or 0.0 for size in sizes) > _NO_UNDERFLOW

    def _all_dropped(self, op: ForwardOpRow) -> ForwardOpRow | None:
        """The dropout that made zeros of everything which a function was given; None: none did."""
        makers = (self._measured.get((row.tensor, row.version), (None,))[0] for row in op.inputs)
        return next((one for one in makers if one is not None and _drops_all(one)), None)

    def _are_weights(self, op: ForwardOpRow) -> bool:
        """Whether the zeros that a product was given were computed of numbers: they are no mask."""
        made = [self._zero_factors.computed(row) for row in op.inputs if self._holds_zeros(row)]
        return bool(made) and all(
            maker is not None
            and bool(maker.inputs)
            and all(row.dtype.startswith(_FLOATS) for row in (*maker.inputs, *maker.outputs))
            for maker in made
        )

    def _is_difference(self, parameter: ParameterRow, end: Vanished) -> bool:
        """Whether a bias cancels where the weight of its module does not."""
        if end.cause is not Cause.CANCELLED or not end.node.is_leaf:
            return False
        module, _, own = parameter.name.rpartition(".")
        weight = self._found.get(f"{module}.weight".lstrip("."))
        return own == "bias" and weight is not None and weight.value is GradientValue.SOME

    def _health(self, row: ForwardTensorRow) -> Health | None:
        return self._measured.get((row.tensor, row.version), (None, None))[1]

    def _zeros(self, row: ForwardTensorRow) -> str:
        """What a tensor is that held zeros only; empty where it did not, or it is not known."""
        made, health = self._measured.get((row.tensor, row.version), (None, None))
        if health is None or not health.numbers or health.zero != health.numbers:
            return ""
        if row.parameter:
            since = self._zero_factors.of(row).made
            return f"the parameter {row.parameter}" + (f", zeros since {since}" if since else "")
        if made is None or not made.line:
            return ""
        made = self._zero_factors.computed(row) or made
        since = self._zero_factors.of(row).made
        of = "" if since is None or str(since) == made.line else f", of zeros since {since}"
        return f"what {last_name(made)}() gave, at {made.line}{of}"

    def _of_zeros(self, op: ForwardOpRow) -> str:
        """Whether what a product was given of zeros can change, in a sentence; empty: it can."""
        rows = [row for row in op.inputs if self._holds_zeros(row)]
        sources = list(dict.fromkeys(map(self._zero_factors.of, rows)))
        names = {each.parameter: each for each in sources if each.parameter}
        if not sources or any(self._moves(name) for name in names):
            return ""
        if names:
            told = " and ".join(
                name + (f" (zeros since {each.made})" if each.made else "")
                for name, each in names.items()
            )
            if len(names) > 1:
                return (
                    f"None of them will ever move: {told} are multiplied by each other, and both"
                    " are zeros. Start one of them from other values."
                )
            return f"It stays so: {told} gets no gradient but zeros itself."
        if not any(each.has_graph for each in sources):
            return (
                "What it is multiplied by has no gradient: it stays zero unless the program"
                " changes it."
            )
        return ""

    def _is_stuck(self, end: Vanished) -> bool:
        """Whether the one place where a gradient ended multiplies parameters of zeros."""
        return not end.others and (end.graph_task, end.node.index) in self._stuck

    @cached_property
    def _stuck(self) -> set[tuple[int, int]]:
        """The nodes of products at which the gradients to both factors end.

        On the way to each of them is a parameter that began as zeros and got no others since.
        """
        ended: dict[tuple[int, int], set[int]] = {}
        for name, found in self._found.items():
            if found.value is GradientValue.ZERO and self.parameters[name].norm == 0:
                end = self._vanishing.find(found.graph_task.id, found.node)
                if end is not None and not end.others:
                    ended.setdefault((end.graph_task, end.node.index), set()).add(end.output)
        return {place for place, outputs in ended.items() if len(outputs) > 1}

    def _moves(self, name: str) -> bool:
        found = self._found.get(name)
        return found is not None and found.value in {GradientValue.SOME, GradientValue.UNKNOWN}

    def _holds_zeros(self, row: ForwardTensorRow) -> bool:
        return self._zero_factors.is_zero(row)

    @cached_property
    def _zero_factors(self) -> ZeroFactors:
        return ZeroFactors(self._trace, self._ops, self._health)

    @cached_property
    def _measured(self) -> dict[tuple[int, int | None], tuple[ForwardOpRow | None, Health]]:
        """What was measured of tensors in the forward, and the functions that made them."""
        found: dict[tuple[int, int | None], tuple[ForwardOpRow | None, Health]] = {}
        for op in self._ops:
            for made, rows in ((None, op.inputs), (op, op.outputs)):
                for row in rows:
                    if row.health is not None:
                        found[row.tensor, row.version] = made, row.health
        return found

    def _op_of(self, graph_task: int, node: int) -> ForwardOpRow | None:
        place = graph_task, node
        if place not in self._ops_of:
            self._ops_of[place] = self._trace.forward_op(*place)
        return self._ops_of[place]

    def _not_reached(self, parameter: ParameterRow) -> GradientRow:
        lineage = self._lineage
        last = self._passes[0] if self._passes else None
        number = last.id if last else None
        if lineage is None:
            return unreached(
                parameter, Cause.NOT_REACHED, graph_task=number, details=self._evidence(parameter)
            )
        has_inputs = last is not None and last.inputs > 0
        row = not_in_graph(parameter, lineage, parameter.name, number, has_inputs=has_inputs)
        if row.cause is Cause.UNSEEN:
            row = self._new_parameter(row, lineage)
        if row.cause is Cause.NOT_IN_INPUTS and number is not None:
            row = row.at(visible(self._trace.call_site(number)))
        if row.cause in _WITHOUT_GRADIENTS and self._is_left_out(parameter.name):
            return unreached(parameter, Cause.NOT_HELD, graph_task=number)
        if row.cause in _WITHOUT_GRADIENTS and row.frame is not None:
            around = decorator_around(self._trace, row.frame, _WITHOUT_GRADIENTS)
            if around is not None:
                return row._replace(
                    advice=f"The function has the decorator @{around[0]} in line {around[1]}: take"
                    " it off if it is to be trained."
                )
        if row.cause is Cause.UNUSED and (twin := self._twin(parameter)) is not None:
            name, op = twin
            said = f"{row.reason}; {name}, which is like it, was called twice: is one meant for it?"
            return row._replace(reason=said).at(op.frame)
        if row.cause is Cause.UNUSED and row.frame is None:
            owner = [part for part in parameter.name.split(".")[:-1] if not part.isdigit()]
            return row.at(assignment(self._trace, owner[-1])) if owner else row
        return row

    def _new_parameter(self, row: GradientRow, lineage: Lineage) -> GradientRow:
        """The row with the line that makes a parameter of what was computed, where one does."""
        cut = lineage.cut(row.parameter)
        made = parameter_made(self._trace) if cut is not None and cut.is_new_leaf else None
        if made is None:
            return row
        reason = "cut by nn.Parameter(), which makes a new leaf of it, without its graph"
        return row._replace(reason=reason, advice=_FUNCTIONAL).at(made)

    def _twin(self, parameter: ParameterRow) -> tuple[str, ForwardOpRow] | None:
        """The module beside an unused one, of like shape and name, that two lines of a pass call.

        Names are alike but for a number at the end. With the last call of it.
        """
        owner, _, own = parameter.name.rpartition(".")
        found: dict[tuple[str, int], dict[int, ForwardOpRow]] = {}
        for op in self._ops:
            for row in op.inputs:
                other, _, name = row.parameter.rpartition(".")
                is_like = (name, row.shape) == (own, parameter.shape) and other != owner
                beside = other.rstrip(_DIGITS) == owner.rstrip(_DIGITS)
                if row.parameter and is_like and beside and op.frame is not None:
                    found.setdefault((other, op.graph_task), {})[op.frame.line] = op
        twice = [(name, by_line) for (name, _), by_line in found.items() if len(by_line) == 2]
        if not twice or len({name for name, _ in twice}) > 1:
            return None
        name, by_line = twice[-1]
        return name, max(by_line.values(), key=attrgetter("id"))

    def _is_left_out(self, name: str) -> bool:
        """Whether optimizers stepped, and none holds a parameter by any name that it had."""
        known_as = {name, name.partition(".")[2]}
        return bool(self._held) and not known_as & self._held

    @cached_property
    def _put_there(self) -> set[str]:
        """What optimizers find a gradient of, where no pass writes ``.grad``."""
        if not self._is_last or self._trace.graph_tasks.outermost.accumulating:
            return set()
        return {row.name for row in self._trace.held_parameters() if row.had_grad}

    @cached_property
    def _held(self) -> set[str]:
        """Names of what optimizers hold; empty where one holds something without a name."""
        names = {row.name for row in self._trace.held_parameters()}
        return set() if "" in names else names

    def _evidence(self, parameter: ParameterRow) -> tuple[str, ...]:
        """What the graph says of the module that owns a parameter which it does not hold."""
        path, _, _ = parameter.name.rpartition(".")
        number = self._passes[0].id
        nodes = self._trace.nodes(number)
        own = next((node for node in nodes if node.module and node.module == path), None)
        if own is not None:
            place = f", at {own.line}" if own.line else ""
            said = (
                f"The graph of backward pass {number} holds nodes that the module {path} made"
                f" ({own.short_name}{place}): it was called, but without this parameter, or what it"
                " did with it was cut off."
            )
        elif path:
            said = (
                f"The graph of backward pass {number} holds no node of the module {path}: it was"
                " not called, it ran where gradients are disabled, or what it returned was cut off."
            )
        else:
            return ()
        return (said,)

    @cached_property
    def _ops(self) -> list[ForwardOpRow]:
        """What was called in the forward before the last passes."""
        if not self._passes:
            return self._trace.forward_ops(limit=_MOST_OPS)
        found: list[ForwardOpRow] = []
        last = self._passes[0].id
        outermost = self._trace.graph_tasks.outermost
        until = len(outermost) - len(outermost.after(last))
        for task in reversed(outermost[:until][-_FORWARDS:]):
            for number in self._trace.family(task.id):
                found += self._trace.forward_ops(number, limit=_MOST_OPS)
            if len(found) > _MOST_OPS:
                break
        return sorted(found, key=attrgetter("id"))

    @cached_property
    def _lineage(self) -> Lineage | None:
        """What the forward did; None where it was not recorded."""
        if not self._ops:
            return None
        loss: list[int] = []
        reached: set[int] = set()
        for task in self._passes[:_FORWARDS]:
            loss += self._roots(task)
            for number in self._trace.family(task.id):
                reached.update(self._trace.sequence_nrs(number))
        if not self._passes:
            loss = _computed_last(self._ops)
        return Lineage(self._ops, loss, frozenset(reached), self.parameters)

    def _roots(self, task: GraphTaskRow) -> list[int]:
        """Numbers of the tensors of which a pass was called."""
        roots = [0]
        if task.roots != 1:
            roots = [edge.consumer for edge in self._trace.edges(task.id) if edge.producer == 0]
        found = []
        for node in roots:
            op = self._trace.forward_op(task.id, node) if task.nodes else None
            if op is not None:
                found += [row.tensor for row in op.outputs if row.requires_grad]
        return found


def _as_learnt(row: GradientRow, what: str) -> GradientRow:
    """The row of a gradient that is next to nothing, and no fault."""
    row = row._replace(cause=Cause.LEARNT, reason=learnt(what))
    return row._replace(frame=None, line=None, module=None)


def _is_added(end: Vanished, op: ForwardOpRow) -> bool:
    """Whether what got no gradient is a bias, which is added and not multiplied."""
    kind = end.node.short_name
    if kind.startswith("Convolution"):
        return last_name(op).startswith("conv") and end.output == 2
    return kind.startswith(_ADDING) and end.output == 0


def _factors(end: Vanished, op: ForwardOpRow) -> Sequence[ForwardTensorRow]:
    """By what a product multiplied a gradient; all that it was given where that is not known."""
    name, kind = last_name(op), end.node.short_name
    operands = op.inputs[1:] if name.startswith(("addm", "baddbmm")) else op.inputs[:2]
    place = end.output - kind.startswith(_ADDING)
    is_known = name in _MATRICES | _PRODUCTS or name.startswith("conv")
    if is_known and len(operands) == 2 and place in {0, 1}:
        return operands[1 - place : 2 - place]
    return op.inputs


def _drops_all(op: ForwardOpRow) -> bool:
    gave = op.outputs[0].health if len(op.outputs) == 1 else None
    is_dropout = _DROPOUT.fullmatch(last_name(op)) is not None
    return is_dropout and gave is not None and gave.zero == gave.numbers


def _taken_up(task: GraphTaskRow) -> set[NodeStatus]:
    """The states of an AccumulateGrad node to which a gradient may have come."""
    if task.status is GraphTaskStatus.RUNNING:
        return {NodeStatus.DONE}
    taken = {NodeStatus.DONE, NodeStatus.UNKNOWN}
    return taken if task.accumulate_grad else taken | {NodeStatus.SKIPPED}


def _computed_last(ops: Sequence[ForwardOpRow]) -> list[int]:
    """Number of the last tensor of one element, which is most likely the loss."""
    for op in reversed(ops):
        found = [
            row.tensor for row in op.outputs if row.shape is not None and math.prod(row.shape) == 1
        ]
        if found:
            return found[-1:]
    return []
