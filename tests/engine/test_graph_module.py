"""``torch.autograd.graph``: edges, saved-tensor hooks, in-place versions, logging, regions."""

from __future__ import annotations

import gc
import logging
import re
import weakref
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import graph
from torch.utils.checkpoint import checkpoint

from agviz_engine.releases import function_keeps_node, has_node_creation_hook
from tests.engine.builders import Log, Multiply, apply, leaf, node_of, throw
from tests.engine.oracle import as_native, assert_same

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz_engine.device_policy import DevicePolicy


# -- GradientEdge, get_gradient_edge, Node ----------------------------------------------------


@as_native
def test_gradient_edges() -> Any:
    x = leaf(3, 4)
    rows = x.exp().unbind(0)
    edge = graph.get_gradient_edge(rows[1])
    products = apply(Multiply, x, x)
    results: list[Any] = [edge.node.name(), edge.output_nr, graph.get_gradient_edge(x).node.name()]
    results += torch.autograd.grad([edge], [x], [torch.ones(4)], retain_graph=True)
    results += torch.autograd.grad(
        graph.get_gradient_edge(products[1]), graph.get_gradient_edge(x), torch.ones(3, 4)
    )
    return results


@as_native
def test_an_edge_outlives_its_tensor() -> Any:
    x = leaf(3)
    y = x.exp()
    edge = graph.get_gradient_edge(y)
    z = (y * 2).sum()
    del y
    return torch.autograd.grad(z, cast("Any", [edge, x]))


@as_native
def test_a_hook_detaches_the_roots() -> Any:
    """The pass goes on through nodes that only the pass itself keeps."""
    x = leaf(3)
    y, z = apply(Multiply, apply(Multiply, x.exp(), x)[0], x)

    def detach(_: Tensor) -> None:
        y.detach_()
        z.detach_()
        gc.collect()

    y.register_hook(detach)
    torch.autograd.backward([y, z], [torch.ones(3), torch.ones(3)])
    return [x.grad, y.grad_fn is None]


def test_an_edge_whose_tensor_has_died() -> None:
    """Where a custom Function's node dies with its tensor, torch refuses the edge."""

    def program() -> Any:
        x = leaf(3)
        edge = graph.GradientEdge(node_of(apply(Multiply, x, x)[0]), 0)
        torch.autograd.backward(cast("Any", edge), torch.ones(3))
        return [x.grad]

    assert (assert_same(program).error is None) is function_keeps_node()


@as_native(raises=RuntimeError)
def test_a_tensor_without_gradient_has_no_edge() -> None:
    graph.get_gradient_edge(torch.ones(3))


@as_native
def test_what_nodes_tell_of_themselves() -> Any:
    x = leaf(3)
    found = []
    for tensor in (x.exp(), apply(Multiply, x, x)[0], x):
        node = node_of(tensor)
        found.append(
            (
                node.name(),
                [(child and child.name(), nr) for child, nr in node.next_functions],
                [list(m.shape) for m in node._input_metadata],
                node.metadata,
            )
        )
    return found


@as_native
def test_a_node_that_is_called() -> Any:
    x = leaf(3)
    y = x.exp()
    y.register_hook(lambda g: throw(AssertionError("calling a node runs no hooks")))
    return [cast("Any", y.grad_fn)(torch.ones(3))]


# -- saved_tensors_hooks ----------------------------------------------------------------------


def _logged(log: Log, fails: str = "") -> graph.saved_tensors_hooks:
    def pack(tensor: Tensor) -> Tensor:
        log.note("pack", tensor)
        return tensor.detach().clone()

    def unpack(packed: Tensor) -> Tensor:
        log.note("unpack", packed)
        return throw(ValueError("unpack")) if fails else packed

    return graph.saved_tensors_hooks(pack, unpack)


@as_native
def test_saved_tensors_hooks() -> Any:
    log = Log()
    x = leaf(3)
    with _logged(log):
        y = (x.exp() * x).sin()
        z = apply(Multiply, y, x)[0]
    z.sum().backward(retain_graph=True)
    log.note("again")
    z.sum().backward()
    return [x.grad, log.entries]


@pytest.mark.parametrize("around", ["forward", "backward", "both"])
def test_saved_tensors_hooks_and_double_backward(
    around: str, device_policy: DevicePolicy | None
) -> None:
    """Hooks around a backward with ``create_graph`` get what its nodes save."""

    def program() -> Any:
        log = Log()
        x = leaf(3)
        hooks = _logged(log)
        if around != "backward":
            hooks.__enter__()
        y = (x.exp() * x).sum()
        if around == "forward":
            hooks.__exit__()
        if around == "backward":
            hooks.__enter__()
        (slope,) = torch.autograd.grad(y, x, create_graph=True)
        if around != "forward":
            hooks.__exit__()
        slope.sum().backward()
        return [x.grad, log.entries]

    ours = assert_same(program, device_policy=device_policy, order=False)
    assert ours.error is None


@pytest.mark.parametrize("kind", ["generated", "custom"])
@pytest.mark.parametrize(
    ("pack", "unpack"),
    [
        (lambda t: t, lambda _: throw(ValueError("unpack"))),
        (lambda _: 1, lambda t: t),
        (lambda t: t, lambda t: t.double()),
        (lambda t: throw(ValueError("pack")), lambda t: t),
        (lambda t: t.mul_(2), lambda t: t),
    ],
    ids=["unpack raises", "unpack gives no tensor", "another dtype", "pack raises", "in place"],
)
def test_saved_tensors_hooks_that_fail(
    kind: str, pack: Callable[..., Any], unpack: Callable[..., Any]
) -> None:
    def program() -> Any:
        x = leaf(3)
        with graph.saved_tensors_hooks(pack, unpack):
            y = x.exp() if kind == "generated" else apply(Multiply, x, x)[0]
        y.sum().backward()
        return [x.grad]

    assert_same(program)


@as_native
def test_what_pack_returned_is_dropped_when_its_node_has_run() -> Any:
    class Box:
        def __init__(self, tensor: Tensor) -> None:
            self.tensor = tensor

    boxes: list[weakref.ref[Box]] = []

    def pack(tensor: Tensor) -> Box:
        box = Box(tensor.detach())
        boxes.append(weakref.ref(box))
        return box

    log = Log()
    x = leaf(3)
    with graph.saved_tensors_hooks(pack, lambda box: box.tensor):
        y = x.exp()
        z = apply(Multiply, y, y)[0].sin()
    x.register_hook(lambda _: log.note([box() is not None for box in boxes]))
    y.register_hook(lambda _: log.note([box() is not None for box in boxes]))
    z.sum().backward(retain_graph=True)
    z.sum().backward()
    log.note([box() is not None for box in boxes])
    return [x.grad, log.entries]


@as_native(raises=RuntimeError)
def test_packed_tensors_are_gone_after_backward() -> None:
    with graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        y = leaf(3).exp()
    y.sum().backward()
    y.sum().backward()


@as_native
def test_hooks_of_one_saved_tensor() -> Any:
    log = Log()
    x = leaf(3)
    y = x.exp()
    saved = cast("Any", y.grad_fn)._raw_saved_result
    saved.register_hooks(log.hook("pack", lambda t: t * 1), log.hook("unpack", lambda t: t))
    y.sum().backward()
    return [x.grad, log.entries]


@as_native
def test_save_on_cpu() -> Any:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    x = leaf(2, 3)
    with graph.save_on_cpu():
        y = model(x)
    y.sum().backward()
    return [x.grad, *(p.grad for p in model.parameters())]


@as_native(raises=RuntimeError)
def test_disabled_saved_tensors_hooks() -> None:
    with graph.disable_saved_tensors_hooks("not here"), _logged(Log()):
        leaf(3).exp()


@as_native(raises=RuntimeError)
def test_saved_tensors_hooks_disabled_around_a_backward() -> None:
    def enter(_: Tensor) -> None:
        with _logged(Log()):
            pass

    y = leaf(3).exp()
    y.register_hook(enter)
    with graph.disable_saved_tensors_hooks("not in this backward"):
        y.sum().backward()


# -- in-place versions ------------------------------------------------------------------------


@as_native(raises=RuntimeError)
def test_increment_version() -> None:
    y = leaf(3).exp()
    z = y.sin()
    graph.increment_version(y)
    z.sum().backward()


@as_native
def test_allow_mutation_on_saved_tensors() -> Any:
    with graph.allow_mutation_on_saved_tensors():
        x = leaf(3)
        y = x.clone()
        z = (y**2).sum()
        y.mul_(5)
        w = y.exp()
        w.add_(1)
        (z + w.sum()).backward()
    return [x.grad]


@pytest.mark.parametrize("how", ["outside", "cleared"])
def test_allow_mutation_on_saved_tensors_that_are_gone(how: str) -> None:
    def program() -> None:
        with graph.allow_mutation_on_saved_tensors() as context:
            y = leaf(3).clone()
            z = (y**2).sum()
            y.mul_(5)
            if how == "cleared":
                context.clear()
                z.backward()
        z.backward()

    assert isinstance(assert_same(program).error, AssertionError)


# -- logging and regions ----------------------------------------------------------------------


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(re.sub("0x[0-9a-f]+", "0x", record.getMessage()))


@as_native
def test_log_of_the_whole_graph() -> Any:
    logger, handler = logging.getLogger("torch.autograd.graph"), _Lines()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logger, "handlers", [handler])
        patch.setattr(logger, "propagate", False)
        patch.setattr(logger, "level", logging.DEBUG)
        logging.Logger.manager._clear_cache()  # type: ignore[attr-defined]
        x, w = leaf(3), leaf(3)
        y = (x.exp() * w).sin()
        z = apply(Multiply, y, x)[0].sum()
        z.backward(retain_graph=True)
        torch.autograd.grad(z, [x, y], retain_graph=True)
        torch.autograd.backward([z, y], [None, torch.ones(3)])
    logging.Logger.manager._clear_cache()  # type: ignore[attr-defined]
    assert handler.lines
    return [x.grad, w.grad, handler.lines]


@pytest.mark.skipif(
    not hasattr(graph, "region_activation_memory_budget"), reason="this torch has no such region"
)
def test_region_activation_memory_budget() -> None:
    def program() -> Any:
        torch._dynamo.reset()
        x = leaf(3)

        @torch.compile(backend="aot_eager")
        def body(x: Tensor) -> Tensor:
            with graph.region_activation_memory_budget(0.5):
                return (x.exp() * x).sin()

        body(x).sum().backward()
        return [x.grad]

    assert assert_same(program).error is None


@pytest.mark.skipif(
    not has_node_creation_hook(), reason="this torch calls nobody for a node that it makes"
)
def test_nodes_that_a_pass_makes() -> None:
    def program() -> Any:
        x, w = leaf(3), leaf(3)
        seen: list[str] = []
        with cast("Any", graph).node_creation_hook(lambda node: seen.append(node.name())):
            leaf(3).backward(torch.ones(3))
            y = apply(Multiply, x.exp(), x.sin())[0]
            (gradient,) = torch.autograd.grad(y.sum(), [x], create_graph=True)
            (gradient * w).sum().backward()
            checkpoint(lambda x: x.exp().sin(), x, use_reentrant=False).sum().backward()
        return [x.grad, w.grad, seen]

    ours = assert_same(program)
    assert ours.error is None
    assert "AccumulateGrad" in ours.tensors[2][0]
    assert "SinBackward0" in ours.tensors[2]


@pytest.mark.skipif(not hasattr(graph, "queue_callback"), reason="this torch has no such function")
def test_callbacks_queued_by_its_function() -> None:
    def program() -> Any:
        x, called = leaf(3), Log()
        y = x.exp()
        y.register_hook(
            lambda _: cast("Any", graph).queue_callback(lambda: called.note(x.grad is not None))
        )
        y.sum().backward()
        return [x.grad, called.entries]

    ours = assert_same(program)
    assert ours.error is None
    assert ours.tensors[1] == [[True]]


def test_all_of_the_module_is_covered_here() -> None:
    """A torch that adds something to ``torch.autograd.graph`` needs another test here."""
    elsewhere = {"register_multi_grad_hook"}
    of_gpus = {"set_warn_on_accumulate_grad_stream_mismatch"}
    of_some = {
        "node_creation_hook",
        "queue_callback",
        "region_activation_memory_budget",
        "set_override_stale_capture_stream",
    }
    here = {
        "GradientEdge",
        "Node",
        "allow_mutation_on_saved_tensors",
        "disable_saved_tensors_hooks",
        "get_gradient_edge",
        "increment_version",
        "save_on_cpu",
        "saved_tensors_hooks",
    }
    assert set(graph.__all__) - of_some == here | elsewhere | of_gpus
