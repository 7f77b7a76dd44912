"""Programs for the fuzzer: a list of small steps, each of which always means something.

A step is the name of an operation and three small numbers. The numbers choose operands out of a
pool of tensors, and variants of the operation; they are taken modulo what there is, so that every
list of steps is a program and shrinks well. What torch refuses in the forward is noted and passed
over. The log that a run leaves behind is what the two engines are compared by.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.autograd.graph import (
    get_gradient_edge,
    register_multi_grad_hook,
    saved_tensors_hooks,
)
from torch.autograd.variable import Variable
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable

Step: TypeAlias = tuple[str, int, int, int]
Operation: TypeAlias = "Callable[[Machine, int, int, int], None]"

FORWARD: dict[str, Operation] = {}
HOOKS: dict[str, Operation] = {}
CALLS: dict[str, Operation] = {}
_MAX_CALL_DEPTH = 2
_REACH = 6


def _register(kind: dict[str, Operation]) -> Callable[[Operation], Operation]:
    def add(operation: Operation) -> Operation:
        kind[operation.__name__] = operation
        return operation

    return add


class Machine:
    """Runs steps. ``log`` holds all that is to be compared, in the order in which it happened."""

    def __init__(
        self,
        seed: int,
        *,
        exact: bool = False,
        on_devices: bool = False,
        shared: Tensor | None = None,
    ) -> None:
        """Start with four leaves.

        Args:
            seed: of the values.
            exact: whole numbers and operations that keep them exact, so that gradients come out
                the same whatever order they are added in.
            on_devices: whether other threads than the caller's run nodes. What these make gets
                those threads' sequence numbers, and a hook can't tell what has run already, so
                that there is no ``create_graph``, and no hook runs a backward or removes hooks.
            shared: a leaf that other machines use too.
        """
        self.generator = torch.Generator().manual_seed(seed)
        self.exact = exact
        self.on_devices = on_devices
        self.log: list[Any] = []
        self.pool: list[Tensor] = []
        self.leaves: list[Tensor] = []
        self.handles: list[Any] = []
        self.depth = 0
        self.retained: list[Tensor] = []
        self.nodes: list[Any] = []
        for shape in ((2, 3), (2, 3), (3,), (3, 3)):
            self.add_leaf(shape)
        self.outside = self.leaves[0] if shared is None else shared
        """The leaf that backward passes inside backward passes reach."""
        if shared is not None:
            self.pool.append(shared * 2)

    def random(self, *shape: int) -> Tensor:
        """Small values; whole numbers where sums have to come out the same in any order."""
        if self.exact:
            values = torch.randint(-2, 3, shape, generator=self.generator)
            return values.to(torch.float64)
        return torch.randn(shape, generator=self.generator)

    def add_leaf(self, shape: tuple[int, ...], *, requires_grad: bool = True) -> None:
        """Put a new leaf into the pool."""
        leaf = self.random(*shape).requires_grad_(requires_grad)
        self.leaves.append(leaf)
        self.pool.append(leaf)

    def pick(self, number: int) -> Tensor:
        """One of the pool's youngest; the very youngest is number 0."""
        return self.pool[-1 - number % min(len(self.pool), _REACH)]

    def pick_fresh(self, number: int) -> Tensor:
        """As ``pick``, with a ``grad_fn`` that is up to date.

        Torch crashes in ``register_hook`` of a view whose base was changed in place since.
        """
        tensor = self.pick(number)
        tensor.grad_fn  # noqa: B018 - made anew on access
        return tensor

    def pick_alike(self, number: int, other: Tensor) -> Tensor:
        """One of the pool's youngest, brought to the shape of ``other``."""
        tensor = self.pick(number)
        if tensor.shape == other.shape:
            return tensor
        return tensor.sum().expand(other.shape)

    def pick_matrix(self, number: int) -> Tensor:
        """One of the pool's youngest that has two dimensions, or its outer product."""
        tensor = self.pick(number)
        return tensor if tensor.dim() == 2 and tensor.numel() else tensor.reshape(1, -1)

    def push(self, *tensors: Tensor) -> None:
        """Put results into the pool."""
        self.pool.extend(tensors)

    def note(self, what: str, *values: Any) -> None:
        """Log something; tensors as they are now."""
        self.log.append((what, *(_snapshot(value) for value in values)))

    def failed(self, what: str, error: BaseException) -> None:
        """Log an exception."""
        message = re.sub(r"0x[0-9a-f]+", "0x", str(error))
        self.log.append((what, type(error).__name__, message))

    def run(self, steps: list[Step]) -> list[Any]:
        """Run ``steps``; end with a backward from the youngest tensor, and look at everything."""
        for step in steps:
            self.step(step)
        self.step(("backward_from_all", 0, 0, 0))
        for handle in self.handles:
            handle.remove()
        for tensor in (*self.leaves, *self.retained):
            self.note("grad", tensor.grad)
        return self.log

    def step(self, step: Step) -> None:
        """Run one step; an exception is part of the log."""
        name, a, b, c = step
        try:
            OPERATIONS[name](self, a, b, c)
        except Exception as error:  # noqa: BLE001 - compared with the other engine's
            self.failed(name, error)


def _snapshot(value: Any) -> Any:
    if isinstance(value, Tensor):
        if _is_batched(value):  # by is_grads_batched; it means nothing outside
            return list(value.shape)
        return value.detach().clone()
    if isinstance(value, tuple | list):
        return [_snapshot(element) for element in value]
    return value


def _is_batched(tensor: Tensor) -> bool:
    functorch = torch._C._functorch
    return functorch.is_batchedtensor(tensor) or functorch.is_legacy_batchedtensor(tensor)


# -- forward ----------------------------------------------------------------------------------

_UNARY: tuple[Callable[[Tensor], Tensor], ...] = (
    torch.tanh,
    torch.sin,
    torch.neg,
    torch.relu,
    lambda t: t * 2,
    torch.clone,
    torch.sigmoid,
    lambda t: t.abs().sqrt(),
)
_EXACT_UNARY: tuple[Callable[[Tensor], Tensor], ...] = (
    torch.neg,
    torch.relu,
    lambda t: t * 2,
    torch.clone,
    lambda t: t + 1,
)


@_register(FORWARD)
def unary(machine: Machine, a: int, b: int, _c: int) -> None:
    functions = _EXACT_UNARY if machine.exact else _UNARY
    machine.push(functions[b % len(functions)](machine.pick(a)))


@_register(FORWARD)
def binary(machine: Machine, a: int, b: int, c: int) -> None:
    functions: tuple[Callable[[Tensor, Tensor], Tensor], ...]
    functions = (torch.add, torch.sub, torch.add, torch.maximum)
    if not machine.exact:
        functions = (*functions, torch.mul, torch.mul, torch.atan2, torch.minimum)
    tensor = machine.pick(a)
    machine.push(functions[c % len(functions)](tensor, machine.pick_alike(b, tensor)))


@_register(FORWARD)
def matmul(machine: Machine, a: int, b: int, _c: int) -> None:
    left, right = machine.pick_matrix(a), machine.pick_matrix(b)
    if machine.exact:
        return
    if left.shape[1] != right.shape[0]:
        right = left.t()
    machine.push((left @ right).tanh())


@_register(FORWARD)
def fan_out(machine: Machine, a: int, b: int, _c: int) -> None:
    """Several consumers of one tensor."""
    tensor = machine.pick(a)
    machine.push(sum((tensor * factor for factor in range(1, 2 + b % 4)), tensor))


@_register(FORWARD)
def shape(machine: Machine, a: int, b: int, _c: int) -> None:
    tensor = machine.pick_matrix(a)
    results = (
        tensor.sum,
        lambda: tensor.sum(0),
        lambda: tensor.reshape(-1),
        lambda: tensor.flip(0),
        lambda: tensor.unsqueeze(0).expand(2, *tensor.shape).sum(0),
        lambda: torch.cat([tensor, tensor]).narrow(0, 1, 1),
        lambda: tensor.repeat(2, 1),
    )
    machine.push(results[b % len(results)]())


@_register(FORWARD)
def view(machine: Machine, a: int, b: int, _c: int) -> None:
    tensor = machine.pick_matrix(a)
    results = (
        tensor.t,
        lambda: tensor.reshape(-1),
        lambda: tensor[1:],
        lambda: tensor[0],
        tensor.diagonal,
        lambda: tensor.narrow(-1, 0, 1),
        lambda: tensor.expand(2, *tensor.shape),
        lambda: tensor.unsqueeze(0),
        tensor.detach,
        lambda: tensor.as_strided((1, 2), (1, 1)),
    )
    machine.push(results[b % len(results)]())


@_register(FORWARD)
def several_outputs(machine: Machine, a: int, b: int, c: int) -> None:
    """Push only some outputs, so that the others stay undefined in the backward."""
    tensor = machine.pick_matrix(a)
    kind = b % (3 if machine.exact else 4)
    if kind == 0:
        outputs: tuple[Tensor, ...] = tensor.unbind(0)
    elif kind == 1:
        outputs = tensor.split(1)
    elif kind == 2:
        outputs = tensor.clone().chunk(2)
    else:
        outputs = tuple(tensor.sort(dim=0))[:1] + tuple(tensor.max(dim=0))[:1]
    machine.push(*outputs[c % len(outputs) :][:2])


@_register(FORWARD)
def in_place(machine: Machine, a: int, b: int, c: int) -> None:
    target = machine.pick_matrix(a)
    if target.requires_grad and (target.is_leaf or b & 8 or _breaks_retain_grad(target)):
        target = target.clone()
        machine.push(target)
    part = target[b % len(target)] if b & 4 else target
    other = machine.pick_alike(b, part)
    actions: tuple[Callable[[], object], ...] = (
        lambda: part.mul_(2),
        lambda: part.add_(other),
        lambda: part.copy_(other),
        part.neg_,
        lambda: part.view(-1)[1:].mul_(2),
        part.zero_,
        lambda: part.t().sub_(other.t()),
    )
    if not machine.exact:
        actions = (*actions, part.tanh_, lambda: torch.sin_(part.view(-1)[:2]))
    actions[c % len(actions)]()
    machine.push(part)


def _breaks_retain_grad(tensor: Tensor) -> bool:
    """Whether torch would crash in the backward after the tensor was changed in place.

    Where a view of a tensor changes, its ``retain_grad`` hook moves to the new node, but goes on to
    read the gradient by the number the tensor had among the outputs of the old one, which may lie
    beyond those of the new one (``VariableHooks::rebase_history``).
    """
    base = tensor if tensor._base is None else tensor._base
    return base.retains_grad and base.output_nr > 0


@_register(FORWARD)
def custom(machine: Machine, a: int, b: int, c: int) -> None:
    function = _CUSTOM[(b + c) % len(_CUSTOM)]
    tensor = machine.pick(a)
    if function is _Dirty and (tensor.is_leaf or _breaks_retain_grad(tensor)):
        tensor = tensor.clone()
    outputs = cast("Any", function).apply(tensor, machine.pick_alike(b, tensor), machine)
    machine.push(*(outputs if isinstance(outputs, tuple) else (outputs,)))


@_register(FORWARD)
def leaf(machine: Machine, a: int, b: int, _c: int) -> None:
    machine.add_leaf(((2, 3), (3,), (3, 3))[a % 3], requires_grad=bool(b % 8))


@_register(FORWARD)
def no_grad(machine: Machine, a: int, b: int, _c: int) -> None:
    with torch.no_grad():
        unary(machine, a, b, 0)


@_register(FORWARD)
def embedding(machine: Machine, a: int, b: int, c: int) -> None:
    """Sparse gradients, which meet dense ones where the table is used otherwise too."""
    tables = [leaf for leaf in machine.leaves if leaf.dim() == 2]
    table = machine.pick_matrix(b) if a == 15 else tables[a % len(tables)]
    rows = torch.tensor([b, c, 1]) % len(table)
    machine.push(torch.nn.functional.embedding(rows, table, sparse=True))


@_register(FORWARD)
def complex_numbers(machine: Machine, a: int, b: int, _c: int) -> None:
    real = machine.pick(a)
    tensor = torch.complex(real, machine.pick_alike(b, real))
    product = tensor.conj() if machine.exact else (tensor * tensor.conj()).tanh()
    machine.push(product.real + tensor.conj().imag)


@_register(FORWARD)
def checkpointed(machine: Machine, a: int, b: int, c: int) -> None:
    def body(tensor: Tensor) -> Tensor:
        functions = _EXACT_UNARY if machine.exact else _UNARY
        return functions[b % len(functions)](tensor * 2) + tensor

    def nested(tensor: Tensor) -> Tensor:
        return cast("Tensor", checkpoint(body, tensor * 2, use_reentrant=bool(c & 4)))

    machine.push(checkpoint(nested if c & 2 else body, machine.pick(a), use_reentrant=bool(c & 1)))


@_register(FORWARD)
def saved_tensor_hooks(machine: Machine, a: int, b: int, c: int) -> None:
    def pack(tensor: Tensor) -> Tensor:
        machine.note("pack", tensor)
        return tensor.detach().clone()

    def unpack(tensor: Tensor) -> Tensor:
        machine.note("unpack", tensor)
        if c == 15:
            raise ValueError("unpack")
        return tensor

    with saved_tensors_hooks(pack, unpack):
        unary(machine, a, b, 0)


# -- custom Functions -------------------------------------------------------------------------


class _TwoOutputs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, machine: Machine) -> Any:
        ctx.save_for_backward(x, y)
        ctx.machine = machine
        return x * 2, x + y

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, y = ctx.saved_tensors
        ctx.machine.note("two outputs", x, y, grads, list(ctx.needs_input_grad))
        return grads[0] * 2 + grads[1], grads[1], None


class _NoneFirst(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, x: Tensor, y: Tensor, _machine: Machine) -> Any:
        return x + y

    @staticmethod
    def backward(_ctx: Any, *grads: Any) -> Any:
        return None, grads[0], None


class _Undefined(torch.autograd.Function):
    """Takes and gives undefined gradients as they come."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, machine: Machine) -> Any:
        ctx.set_materialize_grads(False)
        ctx.machine = machine
        return x * 1, y * 1, x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        ctx.machine.note("undefined", grads)
        return grads[0], grads[1], None


class _Swallow(torch.autograd.Function):
    """Lets nothing through: everything behind it gets undefined gradients."""

    @staticmethod
    def forward(_ctx: Any, x: Tensor, _y: Tensor, _machine: Machine) -> Any:
        return x.clone()

    @staticmethod
    def backward(_ctx: Any, *_grads: Any) -> Any:
        return None, None, None


class _Dirty(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, _machine: Machine) -> Any:
        ctx.mark_dirty(x)
        return x.add_(y)

    @staticmethod
    def backward(_ctx: Any, *grads: Any) -> Any:
        return grads[0], grads[0], None


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, _machine: Machine) -> Any:
        ctx.save_for_backward(x)
        return x * 2 + y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grads[0] * 2 + x, grads[0], None


class _Expanded(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, x: Tensor, y: Tensor, _machine: Machine) -> Any:
        return x + y

    @staticmethod
    def backward(_ctx: Any, *grads: Any) -> Any:
        return grads[0].expand(2, *grads[0].shape), grads[0].to(torch.float32), None


class _Raising(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, x: Tensor, y: Tensor, _machine: Machine) -> Any:
        return x + y

    @staticmethod
    def backward(_ctx: Any, *_grads: Any) -> Any:
        raise KeyError("backward")


class _WrongCount(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, x: Tensor, y: Tensor, _machine: Machine) -> Any:
        return x + y

    @staticmethod
    def backward(_ctx: Any, *grads: Any) -> Any:
        return grads[0], grads[0]


class _WrongShape(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, x: Tensor, y: Tensor, _machine: Machine) -> Any:
        return x + y

    @staticmethod
    def backward(_ctx: Any, *grads: Any) -> Any:
        return grads[0].new_ones(5), None, None


class _NotDifferentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, _machine: Machine) -> Any:
        positive = x > 0
        ctx.mark_non_differentiable(positive)
        ctx.save_for_backward(positive)
        return x + y, positive

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (positive,) = ctx.saved_tensors
        return grads[0] * positive, grads[0], None


class _Reentrant(torch.autograd.Function):
    """Its backward runs another backward, which also reaches a leaf of the outer graph."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, machine: Machine) -> Any:
        ctx.save_for_backward(x, y)
        ctx.machine = machine
        return x * 2 + y

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, y = ctx.saved_tensors
        machine = ctx.machine
        with torch.enable_grad():
            x, y = (t.detach().requires_grad_() for t in (x, y))
            inner = x * 2 + y
            inner.register_hook(lambda g: machine.note("inner", g))
            (inner.sum() + (machine.outside * 3).sum()).backward()
        machine.note("reentrant", x.grad, y.grad)
        return grads[0] * 2, grads[0], None


class _Context(torch.autograd.Function):
    """The newer style, with an output among what is saved."""

    @staticmethod
    def forward(x: Tensor, y: Tensor, machine: Machine) -> Any:
        return x * 2 if machine.exact else (x + y).tanh()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(output)
        ctx.exact = inputs[2].exact

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (output,) = ctx.saved_tensors
        if ctx.exact:
            return grads[0] * 2, None, None
        slope = grads[0] * (1 - output * output)
        return slope, slope, None


_HARMLESS = (
    _TwoOutputs,
    _NoneFirst,
    _Undefined,
    _Swallow,
    _Dirty,
    _Once,
    _Expanded,
    _NotDifferentiable,
    _Reentrant,
    _Context,
)
_CUSTOM = (*_HARMLESS, _Raising, *_HARMLESS, _WrongCount, *_HARMLESS, _WrongShape)


# -- hooks ------------------------------------------------------------------------------------


_PEACEFUL = ("look", "double", "add", "look", "expand", "callback", "same", "ask", "reenter")
_VARIANTS = (*_PEACEFUL, "raise", *_PEACEFUL, "reshape", *_PEACEFUL, "nonsense", "remove")


def _reenter(machine: Machine, number: int) -> None:
    if machine.depth < _MAX_CALL_DEPTH and not machine.on_devices:
        machine.depth += 1
        with torch.enable_grad():
            machine.step(("backward", number, 0, 3))
        machine.depth -= 1


def _remove_all(machine: Machine, _number: int) -> None:
    for handle in () if machine.on_devices else machine.handles:
        handle.remove()


def _queue_callback(machine: Machine, _number: int) -> None:
    Variable._execution_engine.queue_callback(lambda: machine.note("final callback"))


def _raise(_machine: Machine, number: int) -> None:
    raise ValueError(f"hook {number}")


def _ask(machine: Machine, _number: int) -> None:
    machine.note("task", torch._C._current_graph_task_id() >= 0, _node_name())


_ACTIONS: dict[str, Callable[[Machine, int], None]] = {
    "ask": _ask,
    "callback": _queue_callback,
    "raise": _raise,
    "reenter": _reenter,
    "remove": _remove_all,
}
_CHANGES: dict[str, Callable[[Tensor], Any]] = {
    "add": lambda g: g.clone() + 1,
    "double": lambda g: g * 2,
    "expand": lambda g: g.sum().expand(g.shape),
    "same": lambda g: g,
    "reshape": lambda g: g.new_ones(7),
    "nonsense": lambda _: "nonsense",
}


def _behaviour(machine: Machine, kind: str, number: int) -> Callable[..., Any]:
    """What a hook does; ``kind`` is "tensor" or "node", whose gradients come in a tuple."""
    variant = _VARIANTS[number % len(_VARIANTS)]
    act, change = _ACTIONS.get(variant), _CHANGES.get(variant)

    def hook(gradients: Any, *outputs: Any) -> Any:
        machine.note(f"{kind} hook {number}", gradients, *outputs)
        if act is not None:
            act(machine, number)
        if change is None or gradients is None:
            return None
        if kind == "tensor":
            return change(gradients)
        return tuple(None if g is None else change(g) for g in gradients)

    return hook


def _node_name() -> str | None:
    node = cast("Any", torch._C._current_autograd_node())
    return None if node is None else cast("str", node.name())


@_register(HOOKS)
def tensor_hook(machine: Machine, a: int, b: int, c: int) -> None:
    hook = _behaviour(machine, "tensor", b + c)
    machine.handles.append(machine.pick_fresh(a).register_hook(hook))


@_register(HOOKS)
def retain_grad(machine: Machine, a: int, _b: int, _c: int) -> None:
    tensor = machine.pick_fresh(a)
    tensor.retain_grad()
    machine.retained.append(tensor)


def _node(machine: Machine, number: int) -> Any:
    """A node that stays: a leaf's AccumulateGrad would go, hooks and all, when no graph has it."""
    node = get_gradient_edge(machine.pick(number)).node
    machine.nodes.append(node)
    return node


@_register(HOOKS)
def node_prehook(machine: Machine, a: int, b: int, c: int) -> None:
    hook = _behaviour(machine, "node", b + c)
    machine.handles.append(_node(machine, a).register_prehook(hook))


@_register(HOOKS)
def node_hook(machine: Machine, a: int, b: int, c: int) -> None:
    hook = _behaviour(machine, "node", b + c)
    machine.handles.append(_node(machine, a).register_hook(hook))


@_register(HOOKS)
def post_accumulate_grad_hook(machine: Machine, a: int, b: int, _c: int) -> None:
    def hook(parameter: Tensor) -> None:
        machine.note("post accumulate", None if machine.exact else parameter.grad)
        if b % 4 == 1:
            parameter.grad = None
        if b % 8 == 2:
            raise ValueError("post accumulate")

    chosen = machine.leaves[a % len(machine.leaves)]
    machine.handles.append(chosen.register_post_accumulate_grad_hook(hook))


@_register(HOOKS)
def multi_grad_hook(machine: Machine, a: int, b: int, c: int) -> None:
    tensors = [machine.pick_fresh(number) for number in {a, b, a + b}]
    tensors = [tensor for tensor in tensors if tensor.requires_grad]
    handle = register_multi_grad_hook(
        tensors,
        lambda gradients: machine.note("multi grad", gradients),
        mode="any" if c % 2 and not machine.exact else "all",
    )
    machine.handles.append(handle)


@_register(HOOKS)
def remove_hook(machine: Machine, a: int, _b: int, _c: int) -> None:
    if machine.handles:
        machine.handles[a % len(machine.handles)].remove()


# -- calls of the engine ----------------------------------------------------------------------


def _roots(machine: Machine, a: int, c: int) -> tuple[list[Any], list[Tensor]]:
    """One to three roots, some as GradientEdge, with gradients that fit."""
    roots: list[Any] = []
    gradients = []
    for i in range(1 + (c % 3)):
        tensor = machine.pick(a + i * (1 + c // 3))
        gradients.append(machine.random(*tensor.shape).to(tensor.dtype))
        as_edge = c % 5 == 4 and tensor.requires_grad
        roots.append(get_gradient_edge(tensor) if as_edge else tensor)
    return roots, gradients


def _inputs(machine: Machine, b: int, c: int) -> list[Any]:
    """Leaves, other tensors of the pool, GradientEdges, tensors that need no gradient."""
    inputs: list[Any] = [machine.leaves[b % len(machine.leaves)]]
    if c & 1:
        inputs.append(machine.pick(b + c))
    if c & 2:
        inputs.append(machine.leaves[(b + 1) % len(machine.leaves)])
    if c & 4 and inputs[-1].requires_grad:
        inputs[-1] = get_gradient_edge(inputs[-1])
    if c & 8:
        inputs.append(inputs[0])
    return inputs


class _Flags(NamedTuple):
    retain_graph: bool
    create_graph: bool


def _flags(machine: Machine, number: int) -> _Flags:
    create = number % 5 == 3 and not machine.on_devices
    return _Flags(retain_graph=number % 4 != 1, create_graph=create)


@_register(CALLS)
def backward(machine: Machine, a: int, b: int, c: int) -> None:
    roots, gradients = _roots(machine, a, c)
    retain, create = _flags(machine, b)
    inputs = _inputs(machine, b, c) if b % 4 == 2 else None
    torch.autograd.backward(
        roots, gradients, retain_graph=retain, create_graph=create, inputs=inputs
    )


@_register(CALLS)
def backward_from_all(machine: Machine, a: int, b: int, _c: int) -> None:
    """One scalar that most of the pool leads to."""
    parts = [tensor.sum() for tensor in machine.pool[-_REACH - a :] if tensor.requires_grad]
    retain, create = _flags(machine, b)
    torch.stack([part.to(torch.float64) for part in parts]).sum().backward(
        retain_graph=retain, create_graph=create
    )


@_register(CALLS)
def grad(machine: Machine, a: int, b: int, c: int) -> None:
    roots, gradients = _roots(machine, a, c)
    retain, create = _flags(machine, b)
    found = torch.autograd.grad(
        roots,
        _inputs(machine, b, a + c),
        gradients,
        retain_graph=retain,
        create_graph=create,
        allow_unused=bool(b % 6),
        materialize_grads=b % 8 == 5,
    )
    machine.note("grad()", found)
    if create:
        machine.push(*(g for g in cast("Any", found) if g is not None))


@_register(CALLS)
def batched_grad(machine: Machine, a: int, b: int, _c: int) -> None:
    root = machine.pick(a)
    found = torch.autograd.grad(
        root,
        machine.leaves[b % len(machine.leaves)],
        machine.random(2, *root.shape),
        retain_graph=True,
        is_grads_batched=True,
        allow_unused=True,
    )
    machine.note("batched grad()", found)


@_register(CALLS)
def anomaly(machine: Machine, a: int, b: int, c: int) -> None:
    with torch.autograd.set_detect_anomaly(True, check_nan=bool(c % 2)):
        unary(machine, a, b, 0)
        backward(machine, 0, b, c)


@_register(CALLS)
def zero_grad(machine: Machine, a: int, b: int, _c: int) -> None:
    chosen = machine.leaves[a % len(machine.leaves)]
    chosen.grad = None if b % 2 or not chosen.requires_grad else torch.ones_like(chosen)


OPERATIONS: dict[str, Operation] = {**FORWARD, **HOOKS, **CALLS}
