"""What a stopped thread does for the viewer: look at tensors, change them, run Python."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from agviz.debugger import tensors as of_tensors
from agviz.debugger.going_back import way_back
from agviz.debugger.protocol import field
from agviz.debugger.sampling import sample
from agviz.debugger.shell import Shell
from agviz.debugger.tensors import TensorError
from agviz.errors import AgvizError
from agviz.measure.health import measure, unseen
from agviz.measure.saved import measured as saved_of
from agviz_engine.api import engine, is_installed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor

    from agviz.debugger.debugger import Debugger
    from agviz.debugger.stops import Stop
    from agviz_engine.engine import Engine
    from agviz_engine.graph_task import GraphTask
    from agviz_engine.node import NodeRef

Request = dict[str, Any]
_LONGEST_INPUT: Final = 10_000
_MOST_SAMPLES: Final = 64


def tensors(debugger: Debugger, stop: Stop, request: Request) -> Mapping[str, Any]:  # noqa: ARG001
    """The tensors that can be looked at, with their health; where wanted, samples of them."""
    wants_samples = field(request, "samples", bool, False)
    facts: list[dict[str, Any]] = []
    with unseen():
        for what, name, tensor in _tensors(stop):
            health = measure(tensor)
            found: dict[str, Any] = {"what": what, "name": name, "health": _health(health)}
            if wants_samples and len(facts) < _MOST_SAMPLES and not health.unknown:
                found["sample"] = sample(tensor, health)
            facts.append(found)
    return {"tensors": facts}


def tensor(debugger: Debugger, stop: Stop, request: Request) -> Mapping[str, Any]:  # noqa: ARG001
    """A part of one of them as text, and the health of that part."""
    found = _tensor(stop, field(request, "what", str), field(request, "name", str))
    index = field(request, "index", str, "")
    with unseen():
        shown = of_tensors.part(found, index)
        health = measure(shown)
    return {"text": of_tensors.text_of(found, index), "health": _health(health)}


def change(debugger: Debugger, stop: Stop, request: Request) -> Mapping[str, Any]:  # noqa: ARG001
    """Give the node another gradient."""
    _check_before(stop, "gradients can be changed")
    slot = field(request, "slot", int)
    if not 0 <= slot < len(stop.live.inputs):
        raise TensorError(f"the node has no input {slot}; it has {len(stop.live.inputs)}")
    gradient = stop.live.inputs[slot]
    if gradient is None:
        raise TensorError(f"no gradient came to input {slot}")
    value = of_tensors.read_value(request.get("value"))
    how, index = field(request, "how", str), field(request, "index", str, "")
    made = of_tensors.edited(gradient, how, value, index)
    try:
        stop.live.replace_input(slot, made)
    except (TypeError, RuntimeError) as error:
        raise TensorError(f"this gradient can't be changed so: {error}") from None
    with unseen():
        return {"health": _health(measure(made))}


def undo(debugger: Debugger, stop: Stop, request: Request) -> Mapping[str, Any]:  # noqa: ARG001
    """Give the node the gradient again that it was to get before the last change."""
    _check_before(stop, "a change can be undone")
    slot = stop.live.undo_replacement()
    if slot is None:
        raise TensorError("no gradient was changed at this stop")
    gradient = stop.live.inputs[slot]
    with unseen():
        return {"slot": slot, "health": None if gradient is None else _health(measure(gradient))}


def back(debugger: Debugger, stop: Stop, request: Request) -> Mapping[str, Any]:
    """Have the pass stop before a node that ran already, which then runs again."""
    _exact_engine("a pass goes back")
    node = None if request.get("node") is None else field(request, "node", int)
    way, raising = way_back(stop, node)
    if way.against and not field(request, "force", bool, False):
        raise AgvizError(f"what ran since then can't be undone: {'; '.join(way.against)}")
    debugger.go_back(stop, raising)
    return {
        "node": way.node.index,
        "name": way.node.name,
        "nodes": way.nodes,
        "python": way.python,
        "against": way.against,
    }


def skip_hooks(debugger: Debugger, stop: Stop, request: Request) -> Mapping[str, Any]:  # noqa: ARG001
    """Have none of the node's Python hooks called."""
    _exact_engine("hooks can be left out")
    _check_before(stop, "hooks can be left out")
    stop.live.skip_hooks()
    return {}


def ready_nodes(debugger: Debugger, stop: Stop, request: Request) -> Mapping[str, Any]:  # noqa: ARG001
    """The nodes of this graph task that wait in the queue of the stopped node, as they are."""
    task, ref = _place(stop)
    waiting = _exact_engine("which nodes wait").ready_queue(task, ref.device).snapshot()
    nodes = [each.node.index for each in waiting if each.base is task and each.node is not None]
    return {"nodes": nodes}


def run_next(debugger: Debugger, stop: Stop, request: Request) -> Mapping[str, Any]:  # noqa: ARG001
    """Have a ready node run next on its thread, after the one that is stopped."""
    task, _ = _place(stop)
    index = field(request, "node", int)
    exact = _exact_engine("another node runs next")
    if not 0 <= index < len(task.nodes) or not exact.run_next(task, task.nodes[index]):
        raise AgvizError(f"node {index} does not wait in a queue")
    return {}


def shell(debugger: Debugger, stop: Stop, request: Request) -> Mapping[str, Any]:
    """Run a line of Python, or several."""
    output, more = _shell(debugger, stop).push(_typed(request, "line"))
    return {"output": output, "more": more}


def complete(debugger: Debugger, stop: Stop, request: Request) -> Mapping[str, Any]:
    """What a name could become that was begun at the Python prompt."""
    return {"names": _shell(debugger, stop).complete(_typed(request, "text"))}


def _typed(request: Request, name: str) -> str:
    text = field(request, name, str)
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
        raise AgvizError(
            f"{what} only before a node runs, and this is a stop at {type(stop.event).__name__}"
        )


def _tensors(stop: Stop) -> Iterator[tuple[str, str, Tensor]]:
    """Kind, name and the tensor itself of all that is at hand."""
    live = stop.live
    for what, several in (("input", live.inputs), ("output", live.outputs)):
        for slot, gradient in enumerate(several):
            if gradient is not None:
                yield what, str(slot), gradient
    if live.gradient is not None:
        yield "gradient", "", live.gradient
    ref = live.node
    if ref is None:
        return
    if ref.is_accumulate_grad:
        variable = ref.node.variable
        yield "parameter", "", variable
        if variable.grad is not None:
            yield "grad", "", variable.grad
        return
    for saved in saved_of(ref):
        if saved.tensor is not None:
            yield "saved", saved.name, saved.tensor


def _tensor(stop: Stop, what: str, name: str) -> Tensor:
    for kind, known, found in _tensors(stop):
        if (kind, known) == (what, name):
            return found
    raise TensorError(f"there is no {what[:50]} {name[:100]}".rstrip() + " at this stop")


def _health(health: Any) -> dict[str, Any]:
    """As JSON has it, which knows no infinity."""
    facts = dict(health._asdict())
    for name in ("min", "max", "mean", "norm"):
        value = facts[name]
        facts[name] = value if value is None or math.isfinite(value) else str(value)
    return facts
