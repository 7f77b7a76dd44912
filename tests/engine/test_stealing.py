"""When a gradient becomes ``.grad`` as it is: what has hold of it sees what is added later."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

from tests.engine.builders import leaf, node_of
from tests.engine.oracle import assert_same

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from torch import Tensor

HOOKS: dict[str, Callable[[Tensor, list[Any]], object]] = {
    "none": lambda _x, _kept: None,
    "tensor": lambda x, _: x.register_hook(lambda g: None),
    "tensor, the same": lambda x, _: x.register_hook(lambda g: g),
    "tensor, another": lambda x, _: x.register_hook(lambda g: g * 2),
    "tensor, keeping": lambda x, kept: x.register_hook(kept.append),
    "pre": lambda x, _: node_of(x).register_prehook(lambda g: None),
    "pre, the same": lambda x, _: node_of(x).register_prehook(lambda g: g),
    "pre, the same in a tuple": lambda x, _: node_of(x).register_prehook(lambda g: (g[0],)),
    "pre, another": lambda x, _: node_of(x).register_prehook(lambda g: (g[0] * 2,)),
    "pre, keeping the tuple": lambda x, kept: node_of(x).register_prehook(kept.append),
    "pre, keeping": lambda x, kept: node_of(x).register_prehook(lambda g: kept.append(g[0])),
}


@pytest.mark.parametrize("with_post_hook", [False, True], ids=["", "post hook"])
@pytest.mark.parametrize("second", HOOKS)
@pytest.mark.parametrize("first", HOOKS)
def test_what_hooks_had_hold_of_is_added_to_or_not(
    first: str, second: str, with_post_hook: bool
) -> None:
    def program() -> Any:
        x, kept, seen = leaf(3), [], []  # type: ignore[var-annotated]
        node = node_of(x)
        HOOKS[first](x, kept)
        HOOKS[second](x, kept)
        if with_post_hook:
            node.register_hook(lambda _, inputs: seen.append(inputs[0]))
        (x * 3).sum().backward()
        with torch.no_grad():
            x.grad.add_(100)  # type: ignore[union-attr]
        return [x.grad, seen, kept]

    assert_same(program)


def test_a_leaf_that_was_frozen_meanwhile_gets_no_gradient() -> None:
    def before_backward() -> Any:
        x = leaf(3)
        y = (x * 3).sum()
        x.requires_grad_(False)
        y.backward()
        return [x.grad]

    def in_a_hook() -> Any:
        x = leaf(3)
        y = x * 3
        y.register_hook(lambda gradient: [gradient, x.requires_grad_(False)][0])
        y.sum().backward()
        return [x.grad]

    for program in (before_backward, in_a_hook):
        assert assert_same(program).tensors == [None]


class _BackwardInside(TorchDispatchMode):
    """Calls backward where a leaf takes its gradient."""

    def __init__(self, loss: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.losses = [loss]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default and self.losses:
            self.losses.pop().backward()
        return func(*args, **(kwargs or {}))


@pytest.mark.slow
def test_another_backward_while_a_leaf_takes_its_gradient() -> None:
    def program() -> Any:
        x, y = leaf(3), leaf(3)
        loss = (x * 3).sum()
        with _BackwardInside((y * 2).sum()):
            torch.autograd.backward(loss)
        return [x.grad, y.grad]

    same: list[Any] = []
    thread = threading.Thread(target=lambda: same.append(assert_same(program)), daemon=True)
    thread.start()
    thread.join(60)
    assert same, "deadlock, or not the same"


@pytest.fixture
def process_group(tmp_path: Path) -> Iterator[None]:
    """Of one rank."""
    store = torch._C._distributed_c10d.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.skipif(not dist.is_available(), reason="this torch was built without distributed")
@pytest.mark.parametrize("as_views", [False, True], ids=["", "bucket views"])
@pytest.mark.parametrize("with_hook", [False, True], ids=["", "hook"])
@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.usefixtures("process_group")
def test_a_gradient_is_stolen_in_front_of_the_hook_of_ddps_reducer(
    *, as_views: bool, with_hook: bool, passes: int
) -> None:
    def program() -> Any:
        torch.manual_seed(0)
        module = torch.nn.Linear(3, 2)
        ddp = DistributedDataParallel(module, gradient_as_bucket_view=as_views)
        seen: list[Any] = []
        if with_hook:
            module.weight.register_hook(lambda gradient: seen.append(gradient.sum().item()))
        for _ in range(passes):
            flowing: list[int] = []
            output = ddp(torch.arange(12.0).reshape(4, 3))
            node: Any = output.grad_fn
            node.register_hook(
                lambda outputs, _, flowing=flowing: flowing.extend(
                    each.data_ptr() for each in outputs if each is not None
                )
            )
            output.square().sum().backward()
            gradients = [parameter.grad for parameter in module.parameters()]
            seen += [each is not None and each.data_ptr() in flowing for each in gradients]
            after: Any = (torch.ones(1, requires_grad=True) * 2).grad_fn
            seen.append(after._sequence_nr() - node._sequence_nr())
        return [*gradients, seen]

    said = assert_same(program).tensors[-1]
    assert str(said).count("True") == (0 if as_views else 2), said
