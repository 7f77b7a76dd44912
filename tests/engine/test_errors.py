"""What goes wrong goes wrong as in the native engine: type, message, cause, traceback."""

from __future__ import annotations

import collections
import contextlib
import traceback
import weakref
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge

from tests.engine.builders import (
    Log,
    Multiply,
    apply,
    custom,
    engine,
    leaf,
    node_of,
    throw,
)
from tests.engine.oracle import as_native, assert_same, failure, our_outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz_engine.device_policy import DevicePolicy

    Case = Callable[[Tensor, Tensor], Any]

ONE = torch.ones(3)
Single = collections.namedtuple("Single", "value")  # noqa: PYI024 - a subclass of tuple


def _run(*args: Any, **kwargs: Any) -> Any:
    return engine().run_backward(*args, **kwargs)


# -- arguments of run_backward ----------------------------------------------------------------
# Each gets a leaf x and y = x.exp(). Two more arguments make native crash, and ours with it: a
# GradientEdge whose output number does not exist, as root and as input.

ARGUMENTS: dict[str, Case] = {
    "nothing": lambda _x, _y: _run(),
    "unknown keyword": lambda x, y: _run((y,), (ONE,), False, False, (x,), unknown=1),
    "too many": lambda x, y: _run((y,), (ONE,), False, False, (x,), True, True, True),
    "all keywords": lambda x, y: _run(
        tensors=(y,),
        grad_tensors=(ONE,),
        keep_graph=False,
        create_graph=False,
        inputs=(x,),
        allow_unreachable=True,
        accumulate_grad=False,
    ),
    "list of tensors": lambda _, y: _run([y], (ONE,), False, False),
    "a tensor for tensors": lambda _, y: _run(y, (ONE,), False, False),
    "list of gradients": lambda _, y: _run((y,), [ONE], False, False),
    "more gradients than tensors": lambda _, y: _run((y,), (ONE, ONE), False, False),
    "a number for a tensor": lambda _x, _y: _run((1,), (ONE,), False, False),
    "a tensor without gradient": lambda _x, _y: _run((ONE,), (ONE,), False, False),
    "no gradient": lambda _, y: _run((y,), (None,), False, False, accumulate_grad=True),
    "a number for a gradient": lambda _, y: _run((y,), (3,), False, False, accumulate_grad=True),
    "list of inputs": lambda x, y: _run((y,), (ONE,), False, False, [x]),
    "a number for an input": lambda _, y: _run((y,), (ONE,), False, False, (3,)),
    "an input without gradient": lambda _, y: _run((y,), (ONE,), False, False, (ONE,)),
    "an unused input": lambda _, y: _run((y,), (ONE,), False, False, (leaf(3),)),
    "a second input is unused": lambda x, y: _run((y,), (ONE,), False, False, (x, leaf(3))),
    "an unused edge": lambda _, y: _run(
        (y,), (ONE,), False, False, (GradientEdge(node_of(leaf(3)), 0),)
    ),
    "an unused input is allowed": lambda x, y: _run(
        (y,), (ONE,), False, False, (leaf(3), x), allow_unreachable=True
    ),
    "no inputs for grad": lambda _, y: _run((y,), (ONE,), False, False, ()),
    "inputs not given for grad": lambda _, y: _run((y,), (ONE,), False, False),
    "None for inputs": lambda _, y: _run((y,), (ONE,), False, False, None, accumulate_grad=True),
    "text for keep_graph": lambda x, y: _run((y,), (ONE,), "a", False, (x,)),
    "None for keep_graph": lambda x, y: _run((y,), (ONE,), None, False, (x,)),
    "numbers for flags": lambda x, y: _run((y,), (ONE,), 1, 0, (x,)),
    "nothing to differentiate": lambda _x, _y: _run((), (), False, False, (), accumulate_grad=True),
    "nothing to differentiate for": lambda x, _: _run(
        (), (), False, False, (x,), allow_unreachable=True
    ),
    "a named tuple of tensors": lambda x, y: _run(Single(y), Single(ONE), False, False, (x,)),
    "a named tuple of inputs": lambda x, y: _run((y,), (ONE,), False, False, Single(x)),
    "an edge without node": lambda x, _: _run((GradientEdge(3, 0),), (ONE,), False, False, (x,)),  # type: ignore[arg-type]
    "an input edge without node": lambda _, y: _run(
        (y,),
        (ONE,),
        False,
        False,
        (GradientEdge(3, 0),),  # type: ignore[arg-type]
    ),
    "an edge without gradient": lambda x, y: _run(
        (GradientEdge(node_of(y), 0),), (None,), False, False, (x,)
    ),
    "a callback outside": lambda _x, _y: engine().queue_callback(lambda: None),
    "is a checkpoint valid outside": lambda _x, _y: engine().is_checkpoint_valid(),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_of_run_backward(name: str) -> None:
    def program() -> Any:
        x = leaf(3)
        found = ARGUMENTS[name](x, x.exp())
        return [found, x.grad]

    assert_same(program)


ROOT_GRADIENTS: dict[str, Callable[[], Any]] = {
    "wrong shape": lambda: torch.ones(4),
    "larger shape": lambda: torch.ones(2, 3),
    "smaller shape": lambda: torch.ones(1),
    "double": lambda: torch.ones(3, dtype=torch.float64),
    "integer": lambda: torch.ones(3, dtype=torch.int64),
    "complex": lambda: torch.ones(3, dtype=torch.complex64),
    "meta": lambda: torch.ones(3, device="meta"),
    "sparse": lambda: torch.ones(3).to_sparse(),
    "parameter": lambda: nn.Parameter(torch.ones(3)),
    "expanded": lambda: torch.ones(()).expand(3),
}


@pytest.mark.parametrize("roots", [1, 2])
@pytest.mark.parametrize("of", ["leaf", "other"])
@pytest.mark.parametrize("name", ROOT_GRADIENTS)
def test_gradients_of_roots(name: str, of: str, roots: int) -> None:
    def program() -> Any:
        x = leaf(3)
        y = x if of == "leaf" else x * 2
        gradients = (ROOT_GRADIENTS[name](),) * roots
        _run((y,) * roots, gradients, False, False, accumulate_grad=True)
        return [x.grad]

    assert_same(program)


# -- arguments of backward and grad -----------------------------------------------------------

CALLS: dict[str, Case] = {
    "not a scalar": lambda _, y: y.backward(),
    "not scalars": lambda x, y: torch.autograd.backward([x.sum(), y], [None, None]),
    "complex scalar": lambda x, _: (x.sum() * 1j).backward(),
    "wrong shape": lambda _, y: y.backward(torch.ones(4)),
    "wrong kind": lambda _, y: y.backward(torch.ones(3, dtype=torch.complex64)),
    "text": lambda _, y: y.backward("a"),
    "empty inputs": lambda x, _: x.sum().backward(inputs=[]),
    "input without gradient": lambda x, _: x.sum().backward(inputs=[ONE]),
    "text as input": lambda x, _: x.sum().backward(inputs=["a"]),
    "text for retain_graph": lambda x, _: x.sum().backward(retain_graph="a"),
    "output without gradient": lambda x, _: torch.autograd.grad(ONE.sum(), x),
    "unused": lambda _, y: torch.autograd.grad(y.sum(), leaf(3)),
    "materialize but not allow": lambda x, y: torch.autograd.grad(
        y.sum(), x, materialize_grads=True, allow_unused=False
    ),
    "batched gradient of wrong shape": lambda x, y: torch.autograd.grad(
        y, x, torch.ones(4), is_grads_batched=True
    ),
    "create_graph of in-place change": lambda x, y: (y.mul_(2), torch.autograd.grad(y.sum(), x)),
    "leaf changed in place": lambda x, _: x.mul_(2),
}


@pytest.mark.parametrize("name", CALLS)
def test_arguments_of_backward_and_grad(name: str) -> None:
    def program() -> None:
        x = leaf(3)
        CALLS[name](x, x.exp())

    assert assert_same(program).error is not None


# -- exceptions -------------------------------------------------------------------------------


class _Unprintable(Exception):  # noqa: N818 - a name of its own
    def __str__(self) -> str:
        raise ValueError("no text")


def _with_notes() -> None:
    error = ValueError("noted")
    error.add_note("a note")
    raise error


def _decode() -> str:
    return b"\xff".decode()


def _from_another() -> None:
    try:
        throw(ZeroDivisionError("inner"))
    except ZeroDivisionError as error:
        raise RuntimeError("outer") from error


def _while_handling_another() -> None:
    try:
        throw(ZeroDivisionError("inner"))
    except ZeroDivisionError:
        throw(KeyError("outer"))


EXCEPTIONS: dict[str, Callable[[], Any]] = {
    "value error": lambda: throw(ValueError("x")),
    "with cause": _from_another,
    "with context": _while_handling_another,
    "with notes": _with_notes,
    "of the system": lambda: throw(FileNotFoundError(2, "No such file", "name")),
    "of several arguments": _decode,
    "group": lambda: throw(ExceptionGroup("group", [ValueError("x"), KeyError("y")])),
    "keyboard interrupt": lambda: throw(KeyboardInterrupt()),
    "system exit": lambda: throw(SystemExit(2)),
    "generator exit": lambda: throw(GeneratorExit()),
    "stop iteration": lambda: throw(StopIteration()),
    "of torch": lambda: torch.ones(2) + torch.ones(3),
}


@pytest.mark.parametrize("name", EXCEPTIONS)
@pytest.mark.parametrize("where", ["custom Function", "hook", "final callback"])
def test_exceptions(name: str, where: str, device_policy: DevicePolicy | None) -> None:
    def program() -> None:
        x = leaf(3)
        y = x.exp()
        if where == "custom Function":
            y = custom(lambda _c, _g: EXCEPTIONS[name]())(y)
        elif where == "hook":
            y.register_hook(lambda _: EXCEPTIONS[name]())
        else:
            y.register_hook(lambda _: engine().queue_callback(EXCEPTIONS[name]))
        y.sum().backward()

    ours = assert_same(program, device_policy=device_policy, order=device_policy is None)
    assert ours.error is not None
    *_, (last, _) = traceback.walk_tb(ours.error.__traceback__)
    assert last.f_globals["__package__"] != "agviz_engine"


@as_native(raises=KeyError)
def test_exception_while_the_caller_handles_another() -> None:
    x = leaf(3)
    try:
        throw(ValueError("handled"))
    except ValueError:
        custom(lambda _c, _g: throw(KeyError("raised")))(x).sum().backward()


@as_native(raises=RuntimeError)
def test_refused_argument_while_the_caller_handles_another() -> None:
    try:
        throw(ValueError("handled"))
    except ValueError:
        leaf(3).sum().backward(inputs=["a"])


@as_native
def test_exception_without_text() -> Any:
    x = leaf(3)
    try:
        custom(lambda _c, _g: throw(_Unprintable()))(x).sum().backward()
    except _Unprintable as error:
        return [type(error).__name__]


@as_native
def test_one_exception_raised_twice() -> Any:
    error = ValueError("same")
    y = custom(lambda _c, _g: throw(error))(leaf(3)).sum()
    same = []
    for _ in range(2):
        try:
            y.backward(retain_graph=True)
        except ValueError as caught:
            same.append((caught is error, len(failure(caught).frames)))  # type: ignore[union-attr]
    return same


@as_native
def test_an_exception_leaves_what_was_done_before_it() -> Any:
    results = []
    for failing in range(2):
        x, w = leaf(3), leaf(3)
        parts = [x.exp(), w.sin()]
        parts[failing].register_hook(lambda _: throw(ValueError("hook")))
        loss = (parts[0] + 1).sum() + (parts[1] * 2).sum()
        try:
            loss.backward()
        except ValueError:
            results += [x.grad, w.grad]
    return results


@as_native
def test_the_graph_after_an_exception() -> Any:
    x = leaf(3)
    y = x.exp()
    fails = [True, False]

    def hook(_: Tensor) -> None:
        if fails.pop(0):
            throw(ValueError("first"))

    y.register_hook(hook)
    z = y.sin().sum()
    messages = []
    for _ in range(2):
        try:
            z.backward()
        except (ValueError, RuntimeError) as error:
            messages.append(str(error))
    return [x.grad, messages]


def test_an_exception_keeps_no_graph_alive(device_policy: DevicePolicy | None) -> None:
    def program() -> Any:
        x = leaf(3)
        y = x.exp()
        alive = weakref.ref(y)
        z = custom(lambda _c, _g: throw(ValueError("x")))(y).sum()
        with contextlib.suppress(ValueError):
            z.backward()
        del y, z
        return [alive() is None, torch.is_grad_enabled(), torch._C._current_graph_task_id()]

    ours = assert_same(program, device_policy=device_policy, order=False)
    assert ours.tensors == [True, True, -1]


@as_native
def test_an_exception_inside_a_reentrant_call() -> Any:
    log = Log()

    def reenter(_: Any, gradient: Tensor) -> Tensor:
        with torch.enable_grad():
            inner = custom(lambda _c, _g: throw(ValueError("inner")))(leaf(3)).sum()
            try:
                inner.backward()
            except ValueError as error:
                log.note(str(error), torch.is_grad_enabled())
        return gradient * 2

    x = leaf(3)
    custom(reenter)(x.exp()).sum().backward()
    return [x.grad, log.entries]


@as_native(raises=ValueError)
def test_an_exception_passes_through_a_reentrant_call() -> None:
    def reenter(_: Any, _gradient: Tensor) -> None:
        with torch.enable_grad():
            custom(lambda _c, _g: throw(ValueError("inner")))(leaf(3)).sum().backward()

    custom(reenter)(leaf(3).exp()).sum().backward()


# -- what a custom Function returns -----------------------------------------------------------

RETURNS: dict[str, Callable[[Any, Tensor], Any]] = {
    "gradient": lambda _, g: g,
    "None": lambda _c, _g: None,
    "two": lambda _, g: (g, g),
    "two, the second None": lambda _, g: (g, None),
    "three": lambda _, g: (g, g, g),
    "three, the last None": lambda _, g: (g, g, None),
    "nothing": lambda _c, _g: (),
    "list": lambda _, g: [g],
    "text": lambda _c, _g: "a",
    "tuple of text": lambda _c, _g: ("a",),
    "number": lambda _c, _g: 1,
    "tuple of a number": lambda _c, _g: (1.0,),
    "wrong shape": lambda _c, _g: torch.ones(4),
    "larger": lambda _, g: g.expand(5, 2, 3),
    "smaller": lambda _, g: g.sum(),
    "of one element": lambda _, g: g.sum().view(1),
    "double": lambda _, g: g.double(),
    "half": lambda _, g: g.half(),
    "integer": lambda _, g: g.long(),
    "boolean": lambda _, g: g > 0,
    "complex": lambda _, g: g.to(torch.complex64),
    "meta": lambda _, g: g.to("meta"),
    "meta scalar": lambda _c, _g: torch.ones((), device="meta"),
    "sparse": lambda _, g: g.to_sparse(),
    "sparse csr": lambda _c, _g: torch.eye(3).to_sparse_csr(),
    "mkldnn": lambda _, g: g.to_mkldnn(),
    "nested": lambda _, g: torch.nested.nested_tensor([g, g]),
    "parameter": lambda _, g: nn.Parameter(g),
}


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize("inputs", [1, 2])
@pytest.mark.parametrize("name", RETURNS)
def test_what_a_custom_function_returns(
    name: str, inputs: int, device_policy: DevicePolicy | None
) -> None:
    for leaves in (True, False):

        def program(leaves: bool = leaves) -> Any:
            xs = [leaf(3) for _ in range(inputs)]
            y = custom(RETURNS[name], inputs)(*(x if leaves else x.exp() for x in xs)).sum()
            found = torch.autograd.grad(y, xs, allow_unused=True, retain_graph=True)
            y.backward()
            return [found, *(x.grad for x in xs)]

        assert_same(program, device_policy=device_policy, order=device_policy is None)


class _TwoWays(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(_ctx: Any, *gradients: Any) -> Any:
        return gradients[0]

    @staticmethod
    def vjp(_ctx: Any, *gradients: Any) -> Any:
        return gradients[0]


class _NoBackward(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, x: Tensor) -> Tensor:
        return x * 2


class _OldStyle(torch.autograd.Function):
    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return x


@as_native(raises=NotImplementedError)
def test_a_function_without_backward() -> None:
    apply(_NoBackward, leaf(3)).sum().backward()


@as_native(raises=RuntimeError)
def test_a_function_with_two_backwards() -> None:
    apply(_TwoWays, leaf(3)).sum().backward()


@as_native(raises=RuntimeError)
def test_a_function_of_the_old_style() -> None:
    cast("Any", _OldStyle)()(leaf(3))


# -- saved tensors ----------------------------------------------------------------------------


def _build(kind: str, x: Tensor) -> Tensor:
    if kind == "generated":
        return x.exp()
    if kind == "custom":
        return cast("Tensor", custom(lambda ctx, g: g * ctx.saved_tensors[0])(x))
    if kind == "in-place view":
        y = x.clone()
        y[1].mul_(x[0])
        return y
    return nn.functional.layer_norm(x, (3,))


KINDS = ["generated", "custom", "in-place view", "of several saved tensors"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("retain", [(False, False), (True, False), (None, False), (True, True)])
def test_backward_a_second_time(kind: str, retain: tuple[Any, Any]) -> None:
    def program() -> Any:
        x = leaf(3)
        y = _build(kind, x).sum()
        y.backward(retain_graph=retain[0])
        first = x.grad.clone()  # type: ignore[union-attr]
        y.backward(retain_graph=retain[1])
        return [first, x.grad]

    assert (assert_same(program).error is None) == (retain[0] is True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("retain", [True, False, None])
@pytest.mark.parametrize("create", [True, False])
def test_retain_graph_and_create_graph(kind: str, retain: Any, create: bool) -> None:
    def program() -> Any:
        x = leaf(3)
        y = _build(kind, x).pow(3).sum()
        (g,) = torch.autograd.grad(y, x, retain_graph=retain, create_graph=create)
        results: list[Any] = [g, g.requires_grad]
        for root in (g.sum(), y):
            try:
                root.backward()
            except RuntimeError as error:
                results.append(str(error))
            results.append(x.grad)
        return results

    assert assert_same(program).error is None


@as_native
def test_access_to_freed_tensors() -> Any:
    x = leaf(3)
    messages = []
    for y, names in [
        (x.exp(), ["_saved_result", "_raw_saved_result"]),
        (x * x, ["_saved_self", "_raw_saved_other"]),
        (custom(lambda _, g: g)(x), ["saved_tensors", "_raw_saved_tensors"]),
    ]:
        y.sum().backward()
        for name in names:
            try:
                messages.append(type(getattr(y.grad_fn, name)).__name__)
            except RuntimeError as error:
                messages.append(str(error))
    return messages


@pytest.mark.parametrize("keep", [False, True])
def test_memory_of_saved_tensors(keep: bool, device_policy: DevicePolicy | None) -> None:
    """Each node lets go of its tensors as soon as it has run, before the next one runs."""

    def program() -> Any:
        log = Log()
        x = leaf(3)
        values = [torch.randn(3) for _ in range(4)]
        alive = [weakref.ref(value) for value in values]

        def note(*_: Any) -> None:
            log.note([ref() is not None for ref in alive])

        y = x * values[0]
        y.register_hook(note)
        y = apply(Multiply, y, values[1])[0]
        y.register_hook(note)
        part = y.clone()
        part[1:].mul_(values[2][1:])
        part.register_hook(note)
        y = part * values[3]
        y.register_hook(note)
        x.register_hook(note)
        del values
        y.sum().backward(retain_graph=keep)
        note()
        y.sum().backward()
        note()
        return [x.grad, log.entries]

    ours = assert_same(program, device_policy=device_policy, order=False)
    assert (ours.error is None) == keep


def _changed_in_place(kind: str) -> Any:
    x = leaf(3)
    y = x * 2
    z = custom(lambda ctx, g: g * ctx.saved_tensors[0])(y) if kind == "custom" else y.sin()
    y.mul_(2)
    z.sum().backward()


@pytest.mark.parametrize("kind", ["custom", "generated"])
@pytest.mark.parametrize("anomaly", [True, False])
def test_saved_tensor_changed_in_place(kind: str, anomaly: bool) -> None:
    def program() -> None:
        with torch.autograd.set_detect_anomaly(anomaly):
            _changed_in_place(kind)

    assert isinstance(assert_same(program).error, RuntimeError)


# -- leaves that changed since the forward ----------------------------------------------------


@as_native
def test_leaf_of_another_dtype() -> Any:
    x = leaf(3)
    y = x.exp()
    x.data = x.data.double()
    y.sum().backward()
    return [x.grad]


@as_native
def test_gradient_of_another_dtype() -> Any:
    x, w = leaf(3), leaf(3)
    x.grad_dtype = torch.float64
    w.grad_dtype = None
    x.exp().sum().backward()
    w.backward(torch.ones(3, dtype=torch.bfloat16))
    return [x.grad, w.grad]


def test_errors_reach_the_right_call() -> None:
    """Ten failing calls and ten that go through, in turns: none hears of another's error."""
    for turn in range(20):
        x = leaf(3)
        y = x.exp()
        if turn % 2:
            y.register_hook(lambda _, turn=turn: throw(ValueError(turn)))
        outcome = our_outcome(y.sum().backward)
        assert (str(outcome.error) == str(turn)) if turn % 2 else outcome.error is None
