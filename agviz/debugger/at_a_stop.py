"""What a stopped thread does for the viewer: look at tensors, change them, run Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from agviz.debugger import messages as m
from agviz.debugger import tensors as of_tensors
from agviz.debugger.expressions import Expression, write_value
from agviz.debugger.going_back import way_back
from agviz.debugger.live_scope import scope_at
from agviz.debugger.sampling import sample
from agviz.debugger.shell import Shell
from agviz.debugger.tensors import TensorError
from agviz.errors import AgvizError
from agviz.measure.health import measure, unseen
from agviz.measure.saved import measured as saved_of
from agviz.words.health import nonfinite
from agviz.words.shapes import write_shape
from agviz_engine.api import engine, is_installed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from torch import Tensor

    from agviz.debugger.debugger import Debugger
    from agviz.debugger.expressions import Scope
    from agviz.debugger.stops import Stop
    from agviz.measure.values import Health
    from agviz_engine.engine import Engine
    from agviz_engine.graph_task import GraphTask
    from agviz_engine.node import NodeRef

R = TypeVar("R")
_LONGEST_INPUT: Final = 10_000
_MOST_SAMPLES: Final = 64
_MOST_EXPRESSIONS: Final = 200


def carry_out(debugger: Debugger, stop: Stop, request: m.AtAStop[R]) -> R:
    """Do what was asked of a stopped thread, on this thread, which is that one."""
    reply: R = _AT_A_STOP[type(request)](debugger, stop, request)
    return reply


def _find_tensors(_: Debugger, stop: Stop, request: m.AskTensors) -> tuple[m.StopTensor, ...]:
    found: list[m.StopTensor] = []
    with unseen():
        for what, name, tensor in _tensors(stop):
            health = measure(tensor)
            is_wanted = request.samples and len(found) < _MOST_SAMPLES and not health.unknown
            sampled = sample(tensor, health) if is_wanted else None
            found.append(m.StopTensor(what, name, health, sampled))
    return tuple(found)


def _show_tensor(_: Debugger, stop: Stop, request: m.AskTensor) -> m.Shown:
    found = _tensor(stop, request.what, request.name)
    with unseen():
        shown = of_tensors.part(found, request.index)
        health = measure(shown)
    return m.Shown(of_tensors.text_of(found, request.index), health)


def _values(debugger: Debugger, stop: Stop, request: m.AskValues) -> tuple[m.ExpressionValue, ...]:
    if len(request.expressions) > _MOST_EXPRESSIONS:
        raise AgvizError(f"at most {_MOST_EXPRESSIONS} expressions are worked out at once")
    scope = scope_at(debugger.names, stop.event, stop.live)
    with unseen():
        return tuple(_value(text, scope) for text in request.expressions)


def _value(text: str, scope: Scope) -> m.ExpressionValue:
    try:
        expression = Expression(text)
        value = expression.value(scope)
    except AgvizError as error:
        return m.ExpressionValue(str(error), is_known=False)
    if not expression.is_tensor or value is None:
        return m.ExpressionValue(write_value(value))
    health = measure(value)
    facts = [f"{write_shape(health.shape, '?')} {health.dtype}"]
    facts += filter(None, [nonfinite(health.nan, health.posinf, health.neginf), health.unknown])
    facts += [] if health.norm is None else [f"norm {health.norm:.6g}"]
    return m.ExpressionValue(", ".join(facts))


def _change(_: Debugger, stop: Stop, request: m.ChangeGradient) -> Health:
    _check_before(stop, "gradients can be changed")
    slot = request.slot
    if not 0 <= slot < len(stop.live.inputs):
        raise TensorError(f"the node has no input {slot}; it has {len(stop.live.inputs)}")
    gradient = stop.live.inputs[slot]
    if gradient is None:
        raise TensorError(f"no gradient came to input {slot}")
    value = of_tensors.read_value(request.value)
    made = of_tensors.edited(gradient, request.how, value, request.index)
    try:
        stop.live.replace_input(slot, made)
    except (TypeError, RuntimeError) as error:
        raise TensorError(f"this gradient can't be changed so: {error}") from None
    with unseen():
        return measure(made)


def _undo(_: Debugger, stop: Stop, __: m.UndoChange) -> m.UndoneChange:
    _check_before(stop, "a change can be undone")
    slot = stop.live.undo_replacement()
    if slot is None:
        raise TensorError("no gradient was changed at this stop")
    gradient = stop.live.inputs[slot]
    with unseen():
        return m.UndoneChange(slot, None if gradient is None else measure(gradient))


def _back(debugger: Debugger, stop: Stop, request: m.GoBackTo) -> m.WentBack:
    _exact_engine("a pass goes back")
    way, raising = way_back(stop, request.node)
    if way.against and not request.force:
        raise AgvizError(f"what ran since then can't be undone: {'; '.join(way.against)}")
    debugger.go_back(stop, raising)
    python, against = tuple(way.python), tuple(way.against)
    return m.WentBack(way.node.index, way.node.name, way.nodes, python, against)


def _skip_hooks(_: Debugger, stop: Stop, __: m.SkipHooks) -> None:
    _exact_engine("hooks can be left out")
    _check_before(stop, "hooks can be left out")
    stop.live.skip_hooks()


def _ready_nodes(_: Debugger, stop: Stop, __: m.AskReadyNodes) -> tuple[int, ...]:
    """The nodes of this graph task that wait in the queue of the stopped node, as they are."""
    task, ref = _place(stop)
    waiting = _exact_engine("which nodes wait").ready_queue(task, ref.device).snapshot()
    nodes = (each.node.index for each in waiting if each.base is task and each.node is not None)
    return tuple(nodes)


def _run_next(__: Debugger, stop: Stop, request: m.RunNext) -> None:
    (task, _), index = _place(stop), request.node
    exact = _exact_engine("another node runs next")
    if not 0 <= index < len(task.nodes) or not exact.run_next(task, task.nodes[index]):
        raise AgvizError(f"node {index} does not wait in a queue")


def _run_python(debugger: Debugger, stop: Stop, request: m.RunPython) -> m.ShellAnswer:
    return m.ShellAnswer(*_shell(debugger, stop).push(_bounded(request.line)))


def _complete(debugger: Debugger, stop: Stop, request: m.CompletePython) -> tuple[str, ...]:
    return tuple(_shell(debugger, stop).complete(_bounded(request.text)))


_AT_A_STOP: Final[Mapping[type[m.AtAStop[Any]], Callable[[Debugger, Stop, Any], Any]]] = {
    m.AskTensors: _find_tensors,
    m.AskTensor: _show_tensor,
    m.AskValues: _values,
    m.ChangeGradient: _change,
    m.UndoChange: _undo,
    m.GoBackTo: _back,
    m.SkipHooks: _skip_hooks,
    m.AskReadyNodes: _ready_nodes,
    m.RunNext: _run_next,
    m.RunPython: _run_python,
    m.CompletePython: _complete,
}


def _bounded(text: str) -> str:
    if len(text) > _LONGEST_INPUT:
        raise AgvizError(f"input has at most {_LONGEST_INPUT:,} characters")
    return text


def _shell(debugger: Debugger, stop: Stop) -> Shell:
    if stop.shell is None:
        module = debugger.module_of(stop)
        stop.shell = Shell(stop.live, module, can_replace=stop.is_before_a_node)
    return stop.shell


def _exact_engine(what: str) -> Engine:
    if not is_installed():
        raise AgvizError(f"{what} only with agviz's own engine; this is torch's, observed")
    return engine()


def _place(stop: Stop) -> tuple[GraphTask, NodeRef]:
    task, ref = stop.live.graph_task, stop.live.node
    if task is None or ref is None:
        raise AgvizError("this stop is at no node")
    return task, ref


def _check_before(stop: Stop, what: str) -> None:
    if not stop.is_before_a_node:
        raise AgvizError(f"{what} only at a stop before a node runs; stop before one first")


def _tensors(stop: Stop) -> Iterator[tuple[m.TensorKind, str, Tensor]]:
    """Kind, name and the tensor itself of all that is at hand, in the order of TensorKind."""
    live = stop.live
    if live.gradient is not None:
        yield "gradient", "", live.gradient
    gradients: tuple[tuple[m.TensorKind, Sequence[Tensor | None]], ...]
    gradients = (("output", live.outputs), ("input", live.inputs))
    for what, several in gradients:
        for slot, gradient in enumerate(several):
            if gradient is not None:
                yield what, str(slot), gradient
    ref = live.node
    if ref is None:
        return
    if ref.is_accumulate_grad:
        variable = ref.node.variable
        if variable.grad is not None:
            yield "grad", "", variable.grad
        yield "parameter", "", variable
        return
    for saved in saved_of(ref):
        if saved.tensor is not None:
            yield "saved", saved.name, saved.tensor


def _tensor(stop: Stop, what: str, name: str) -> Tensor:
    for kind, known, found in _tensors(stop):
        if (kind, known) == (what, name):
            return found
    raise TensorError(f"there is no {what[:50]} {name[:100]}".rstrip() + " at this stop")
