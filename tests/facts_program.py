"""What agviz says of tensors, names and stacks in this process, as JSON.

``python tests/facts_program.py [hidden]``: with ``hidden``, the layout of torch's objects can't be
read. It runs with every torch from 2.6 on.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import math
import sys
import warnings
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

faulthandler.enable()
if sys.argv[1:] == ["hidden"]:
    sys.modules["agviz_engine.torch_layout"] = None  # type: ignore[assignment]

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from agviz.measure import copying, saved  # noqa: E402
from agviz.measure.health import health_of, measure, unseen  # noqa: E402
from agviz.measure.saved_tensors import packing_hooks  # noqa: E402
from agviz.record.check_forward import CheckForward  # noqa: E402
from agviz.record.names import Names  # noqa: E402
from agviz.record.provenance import Provenance  # noqa: E402
from agviz.record.tensor_identity import Identities  # noqa: E402
from agviz_engine import tensor_facts  # noqa: E402
from agviz_engine.instruments import Registry  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from agviz.measure.values import Health

warnings.simplefilter("ignore")
DTYPES = [
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64),
    *(torch.complex128, torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32),
    *(torch.int64, torch.uint16, torch.float8_e4m3fn, torch.float8_e5m2),
]
SHAPES = [(), (0,), (1,), (17,), (4, 5), (0, 3), (7, 1, 9), (2, 1, 2, 3, 1, 4), (70, 80), (3, 9000)]
COMPRESSED = ("csr", "csc", "bsr", "bsc")


class Subclass(Tensor):
    """Of no kind that is measured."""


class Wrapper(Tensor):
    """Has no elements of its own."""

    @staticmethod
    def __new__(cls: Any, inner: Tensor) -> Any:
        make = cast("Any", Tensor)._make_wrapper_subclass
        wrapper = make(cls, inner.shape, dtype=inner.dtype, device=inner.device)
        wrapper.inner = inner
        return wrapper

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        given = [arg.inner if isinstance(arg, Wrapper) else arg for arg in args]
        return func(*given, **(kwargs or {}))


class Halved(torch.autograd.Function):
    """Saves a tensor, and a number."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x, None)
        ctx.factor = 0.5
        return x / 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient / 2


class Seeing(TorchFunctionMode):
    """Counts what a mode of the program sees."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.calls += 1
        return func(*args, **(kwargs or {}))


def values(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Of some magnitude, with a few special values among them; the same with every torch."""
    count = math.prod(shape)
    numbers = torch.arange(count, dtype=torch.float64).mul_(0.37).sin_().mul_(3)
    if count > 4 and dtype.itemsize > 1 and (dtype.is_floating_point or dtype.is_complex):
        numbers[1], numbers[2], numbers[3], numbers[4] = math.nan, math.inf, -math.inf, 0
    if not (dtype.is_floating_point or dtype.is_complex):
        numbers = numbers.abs()
    return numbers.reshape(shape).to(dtype)


def rearranged(tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Views of it of all kinds."""
    yield "whole", tensor
    yield "expanded", tensor.expand(3, *tensor.shape)
    if tensor.dim() > 1:
        yield "transposed", tensor.transpose(0, -1)
        yield "part", tensor[1:].transpose(0, 1)
        yield "permuted", tensor.permute(*reversed(range(tensor.dim())))
    if tensor.dim() and tensor.shape[-1] > 2:
        yield "strided", tensor[..., 1::2]
    if tensor.dim() == 4:
        yield "channels last", tensor.contiguous(memory_format=torch.channels_last)
    if tensor.is_complex():
        yield "conj", tensor.conj()
        yield "neg", tensor.conj().imag
    yield "detached", tensor.detach()
    yield "parameter", nn.Parameter(tensor, requires_grad=False)


def tensors() -> Iterator[tuple[str, Tensor]]:
    """Of all kinds."""
    for dtype in DTYPES:
        for shape in SHAPES:
            for how, tensor in rearranged(values(shape, dtype)):
                yield f"{dtype} {shape} {how}", tensor
    for dtype in (torch.float32, torch.float64, torch.complex64):
        dense = values((6, 8), dtype)
        yield f"sparse {dtype}", dense.to_sparse()
        yield f"hybrid {dtype}", dense.to_sparse(1)
        indices = torch.tensor([[0, 1, 1], [1, 0, 1]])
        yield (
            f"uncoalesced {dtype}",
            torch.sparse_coo_tensor(indices, torch.tensor([3.0, -4.0, math.nan], dtype=dtype)),
        )
        for layout in COMPRESSED:
            blocks = ((2, 2),) if layout.startswith("b") else ()
            yield f"{layout} {dtype}", getattr(dense, f"to_sparse_{layout}")(*blocks)
    plain = values((4, 5), torch.float32)
    yield "nested", torch.nested.nested_tensor([plain, plain[1:]])
    yield "jagged", torch.nested.nested_tensor([plain, plain[1:]], layout=torch.jagged)
    yield "subclass", plain.as_subclass(Subclass)
    yield "wrapper", Wrapper(plain)
    yield "meta", plain.to("meta")
    yield "quantized", torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8)
    yield "mkldnn", torch.ones(3, 4).to_mkldnn()
    yield "zero", torch._efficientzerotensor((3, 4))
    freed = values((9,), torch.float32)
    behind = freed[2:]
    freed.untyped_storage().resize_(0)
    yield "freed", freed
    yield "freed, behind its beginning", behind
    with torch.inference_mode():
        yield "inference", values((4, 5), torch.float32)
    unfilled = nn.LazyLinear(3).weight
    yield "not made yet", unfilled


def figures(health: Health) -> list[Any]:
    """Every bit of it."""
    return [each.hex() if isinstance(each, float) else each for each in health]


def measured(tensor: Tensor) -> list[list[Any]]:
    """In all ways in which it is measured: at once, known, and with torch's reductions."""
    ways = [health_of(tensor), health_of(tensor)]
    with unseen():
        ways.append(measure(tensor))
    return [figures(each) for each in ways]


def written() -> list[list[Any]]:
    """A large tensor that is measured, written to, and measured again."""
    large = values((90, 100), torch.float32)
    found = [health_of(large), health_of(large.view(-1)), health_of(large[:50])]
    large.zero_()
    return [figures(each) for each in (*found, health_of(large), health_of(large.t()))]


def transformed() -> list[list[Any]]:
    """Inside of ``torch.func`` and of vmap as gradients know it."""
    found: list[list[Any]] = []

    def look(tensor: Tensor) -> Tensor:
        with unseen():
            found.append(figures(measure(tensor)))
        return tensor * 2

    torch.func.vmap(look)(values((3, 4), torch.float32))
    torch.func.grad(lambda x: look(x).sum())(values((5,), torch.float32).nan_to_num())
    x = torch.ones(3, requires_grad=True)
    y = x * x
    y.register_hook(look)
    torch.autograd.grad(y, x, torch.eye(3), is_grads_batched=True)
    return found


class Model(nn.Module):
    """Has modules in modules, shared parameters, views, and a custom Function."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.LayerNorm(6))
        self.norm = nn.BatchNorm1d(6)
        self.second = nn.Linear(6, 4, bias=False)
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(checkpoint(self.first, x, use_reentrant=False))
        x = cast("Any", Halved).apply(self.second(x)) * self.scale
        x = torch.stack(x.unbind(1))[:, 1:].clone()
        x[0].mul_(2)
        return torch.cat([x.exp(), x.t().reshape(x.shape)]).log_softmax(0)


def nodes(loss: Tensor) -> list[Any]:
    """All nodes behind ``loss``, in an order of their own."""
    waiting: list[Any] = [loss.grad_fn]
    found: dict[Any, None] = {}
    while waiting:
        node = waiting.pop(0)
        if node is not None and node not in found:
            found[node] = None
            waiting += [each for each, _ in node.next_functions]
    return list(found)


def stood_in(node: Any, index: int) -> Any:
    """What is asked of a NodeRef, where nobody has looked where the node is."""
    is_custom = isinstance(node, cast("Any", torch._C)._FunctionBase)
    return SimpleNamespace(
        node=node, index=index, base=0, saves_tensors=not is_custom, is_custom_function=is_custom
    )


def recorded() -> dict[str, Any]:
    """What names, provenance and the forward say of a model."""
    torch.manual_seed(0)
    model, registry, names, provenance = Model(), Registry(), Names(), Provenance()
    given = {name: values(tuple(p.shape), p.dtype) for name, p in model.named_parameters()}
    model.load_state_dict({k: v.nan_to_num(0.1, 0.2, 0.3) for k, v in given.items()}, strict=False)
    seeing = Seeing()
    packing_hooks.start()
    with provenance, names, CheckForward(names, registry, provenance) as forward:
        first = torch._C._autograd._get_sequence_nr()
        loss = model(values((5, 4), torch.float32).nan_to_num(0.5, 1, 2)).sum()
        ops = forward.taken(0)
        refs = [stood_in(node, index) for index, node in enumerate(nodes(loss))]
        root: Any = SimpleNamespace(
            node=lambda: (), index=99, base=0, saves_tensors=False, is_custom_function=False
        )
        with seeing:
            origins = provenance.of(0, [*refs, root])
            asked = seeing.calls
        stacks = cast("Any", origins.stacks)()
        called = [
            [
                *(op.name, op.module, op.arguments, op.error, op.grad_enabled),
                None if op.sequence_nr is None else op.sequence_nr - first,
                *(op.first_nr - first, op.end_nr - first),
                [described(each) for each in (*op.inputs, *op.outputs)],
            ]
            for op in ops.ops
        ]
        values_saved = [
            [each.name, each.value, each.health and figures(each.health)]
            for ref in refs
            for each in saved.measured(ref)
        ]
        known = names.parameters(with_norms=True)
        owners = [names.owner(ref.node.variable) for ref in refs if hasattr(ref.node, "variable")]
        numbers = [ref.node._sequence_nr() for ref in refs if not hasattr(ref.node, "variable")]
    packing_hooks.stop()
    loss.backward()
    return {
        "asked": asked,
        "parameters": known,
        "owners": owners,
        "modules": [names.module(number) for number in numbers],
        "stacks": [[list(frame) for frame in stack] for stack in stacks],
        "saved": origins.saved,
        "saved values": values_saved,
        "forward": called,
        "resolved": [len(stack) for stack in ops.resolve([op.captured for op in ops.ops])],
        "gradients": [cast("Tensor", p.grad).tolist() for p in model.parameters()],
    }


def described(tensor: Any) -> list[Any]:
    """A tensor of the forward."""
    return [figures(each) if hasattr(each, "numbers") else each for each in tensor]


def identities() -> list[Any]:
    """Numbers of tensors and memory; a dead one's are never given again."""
    known = Identities()
    keep = torch.ones(3)
    found: list[Any] = []
    for tensor in (keep, keep[1:], torch.ones(2), torch.ones(2).to_sparse(), keep):
        memory = known.memory(tensor)
        found.append((known.tensor(tensor).number, memory and memory.number))
    del tensor
    gc.collect()
    return [*found, known.tensor(torch.ones(2)).number, known.tensor(keep).number]


def deep() -> int:
    """Nodes of a long chain that are known; the chain is let go of after that."""
    with CheckForward(Names(), Registry()) as forward:
        x = torch.ones(1, requires_grad=True)
        for _ in range(60_000):
            x = x * 1
        ops = forward.taken(0).ops
    del x
    return len({op.sequence_nr for op in ops})


def contents(tensor: Tensor) -> Any:
    """What would be copied of it."""
    with unseen():
        parts = copying.parts(tensor)
        copied = [(name, copying.contents(part).hex()[:200]) for name, part in parts.parts]
    return [parts.dtype, parts.shape, parts.layout, parts.coalesced, copied, parts.unknown]


def each(ask: Callable[[Tensor], Any], among: Iterable[tuple[str, Tensor]]) -> dict[str, Any]:
    """Its answers by the names of the tensors."""
    return {name: ask(tensor) for name, tensor in among}


if __name__ == "__main__":
    facts = {
        "health": each(measured, tensors()),
        "contents": each(contents, tensors()),
        "written": written(),
        "transformed": transformed(),
        "recorded": recorded(),
        "identities": identities(),
        "deep": deep(),
    }
    is_read = "torch_layout" in tensor_facts.tensor_block.__module__
    print(json.dumps({"reads memory": is_read, "torch": torch.__version__, "facts": facts}))
