"""Going back within a pass: the second run gives what the first would have given, bit for bit.

Fuzzed programs go back at a drawn event to a drawn earlier node. What they log is cut back to
where it was before that node, so that order and arguments of hooks and custom Functions are
compared, too.
The oracle is the native engine, which runs the program once.
"""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from agviz_engine import events, installed
from agviz_engine.api import engine
from agviz_engine.instruments import Instrument, Live
from agviz_engine.rewind import CantGoBackError, GoBack, Rewind
from tests.engine import fuzz_programs
from tests.engine.fuzz_programs import CALLS, FORWARD, HOOKS, Machine, Step
from tests.engine.oracle import described, native_outcome, our_outcome, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

pytestmark = pytest.mark.filterwarnings("ignore:.*Sparse invariant checks:UserWarning")

FEW, MANY = 25, 200
_numpy = cast("Any", np.random)
"""The generator that all of numpy draws from by default."""
NOT_UNDONE = {"multi_grad_hook"}
"""Operations whose hooks keep something outside of the engine."""
AT = (
    events.NodeStarted,
    events.NodeFinished,
    events.NodeFailed,
    events.GradientAccumulated,
    events.HookCalled,
    events.LeafAccumulated,
    events.SavedTensorsReleased,
    events.QueuePush,
)
"""Events at which a pass goes back."""


class _Noise(torch.autograd.Function):
    """Its backward draws from all generators."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, machine: Machine) -> Tensor:
        ctx.machine = machine
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        noise = torch.rand(gradients[0].shape) * random.random() * _numpy.random_sample()
        ctx.machine.note("noise", noise)
        return gradients[0] * (1 + noise), None


class _InPlace(torch.autograd.Function):
    """Its backward changes the gradient that it is given."""

    @staticmethod
    def forward(_ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(_ctx: Any, *gradients: Any) -> Any:
        return gradients[0].mul_(3)


def noise(machine: Machine, a: int, _b: int, _c: int) -> None:
    machine.push(cast("Any", _Noise).apply(machine.pick(a), machine))


def noisy_hook(machine: Machine, a: int, _b: int, _c: int) -> None:
    def hook(gradient: Tensor) -> Tensor:
        return torch.nn.functional.dropout(gradient.detach(), 0.5)

    machine.handles.append(machine.pick_fresh(a).register_hook(hook))


OWN = {"noise": noise, "noisy_hook": noisy_hook}
NAMES = [*(name for name in (*FORWARD, *HOOKS, *HOOKS, *CALLS) if name not in NOT_UNDONE), *OWN]


@pytest.fixture(autouse=True, scope="module")
def own_operations() -> Iterator[None]:
    """Noise among the operations, and no hook that removes hooks: that is not undone."""
    patch = pytest.MonkeyPatch()
    for name, operation in OWN.items():
        patch.setitem(fuzz_programs.OPERATIONS, name, operation)
    patch.delitem(fuzz_programs._ACTIONS, "remove")
    yield
    patch.undo()


@contextlib.contextmanager
def keeping(rewind: Rewind | None = None) -> Iterator[Rewind]:
    """The engine keeps what going back needs."""
    ours = engine()
    ours.rewind = rewind or Rewind()
    try:
        yield ours.rewind
        assert ours.rewind.nbytes == 0  # nothing is held when all passes are over
    finally:
        ours.rewind = None


class GoesBack(Instrument):
    """Goes back once in each pass.

    Args:
        at: how many events of a node pass before that.
        far: how many nodes it goes back; it goes to the first where there are less.
        kind: of these events.
        log: what the program logs; cut back to where it was.
        change: what to do with the node before it runs again.
    """

    def __init__(
        self,
        at: int,
        far: int,
        kind: type[events.Event] = events.NodeStarted,
        log: Callable[[], list[Any]] = list,
        change: Callable[[Live], None] = lambda _: None,
    ) -> None:
        self.at = at
        self.far = far
        self.kind = kind
        self.log = log
        self.change = change
        self.started: dict[int, list[tuple[int, int]]] = {}
        self.seen: dict[int, int] = {}
        self.again: dict[int, int] = {}
        """By the graph task that goes on: its node."""
        self.went = 0
        self.order: list[int] = []

    def any_event(self, event: events.Event, live: Live) -> None:
        if event.graph_task < 0 or isinstance(event, events.GraphTaskBegun):
            return
        if isinstance(event, events.Intervened) and event.kind == "back":
            started = self.started.pop(event.slot)
            kept = [node for node, _ in started].index(event.node)
            self.started[event.graph_task] = started[:kept]
            self.again[event.graph_task] = event.node
            return
        if isinstance(event, events.NodeStarted):
            if self.again.get(event.graph_task) == event.node:
                self.change(live)
            started = self.started.setdefault(event.graph_task, [])
            started.append((event.node, len(self.log())))
        if isinstance(event, self.kind) and event.graph_task not in self.again:
            seen = self.seen[event.graph_task] = self.seen.get(event.graph_task, -1) + 1
            if seen == self.at and event.graph_task in self.started:
                self.go_back(cast("Any", live.graph_task))

    def go_back(self, task: Any) -> None:
        started = self.started[task.id]
        place = max(0, len(started) - 1 - self.far)
        node, length = started[place]
        if task.history is None:
            return
        way = task.history.way_back(node)
        assert way.node.index == node
        if way.against:
            return
        del self.log()[length:]
        self.went += 1
        raise GoBack(task, way.number)


def _steps(names: Sequence[str], size: int) -> st.SearchStrategy[list[Step]]:
    number = st.integers(0, 15)
    return st.lists(st.tuples(st.sampled_from(names), number, number, number), max_size=size)


def _examples(number: int) -> Callable[[Any], Any]:
    return settings(
        max_examples=number,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


ARGUMENTS = {
    "steps": _steps(NAMES, 12),
    "seed": st.integers(0, 3),
    "at": st.integers(0, 20),
    "far": st.integers(0, 20),
    "kind": st.sampled_from(AT),
}


def check_again(
    steps: list[Step], seed: int, at: int, far: int, kind: type[events.Event]
) -> GoesBack:
    machines: list[Machine] = []

    def program() -> list[Any]:
        random.seed(seed)
        _numpy.seed(seed)
        machines.append(Machine(seed))
        return machines[-1].run(steps)

    native = native_outcome(program)
    goes_back = GoesBack(at, far, kind, lambda: machines[-1].log)
    with keeping():
        ours = our_outcome(program, 0, goes_back)
    assert native.error is ours.error is None
    assert list(map(repr, map(described, ours.tensors))) == list(
        map(repr, map(described, native.tensors))
    )
    return goes_back


@pytest.mark.hypothesis
@_examples(FEW)
@given(**cast("Any", ARGUMENTS))
def test_programs_that_go_back(**drawn: Any) -> None:
    check_again(**drawn)


@pytest.mark.slow
@pytest.mark.hypothesis
def test_200_programs_that_go_back() -> None:
    """Of those drawn, so many go back."""
    went = 0

    @_examples(4 * MANY)
    @given(**cast("Any", ARGUMENTS))
    def run(**drawn: Any) -> None:
        nonlocal went
        went += bool(check_again(**drawn).went)

    run()
    assert went >= MANY


def changed_natively(steps: list[Step], seed: int, label: str) -> tuple[list[Any], list[Any]]:
    leaves, root = built(steps, seed)
    (node,) = [node for node, found in walk((root,)).items() if found == label]

    def hook(gradients: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
        return tuple(None if g is None else g * -2.5 for g in gradients)

    cast("Any", node).register_prehook(hook)
    return leaves, [root]


def built(steps: list[Step], seed: int) -> tuple[list[Tensor], Tensor]:
    torch.manual_seed(seed)
    random.seed(seed)
    _numpy.seed(seed)
    machine = Machine(seed)
    for step in steps:
        machine.step(step)
    parts = [tensor.sum() for tensor in machine.pool if tensor.requires_grad]
    return machine.leaves, torch.stack([part.to(torch.float64) for part in parts]).sum()


def gradients_of(leaves: list[Tensor]) -> list[Any]:
    return [repr(described(leaf.grad)) for leaf in leaves]


def check_changed(steps: list[Step], seed: int, at: int, far: int) -> bool:
    leaves, root = built(steps, seed)
    labels = walk((root,))
    changed: list[str] = []

    def change(live: Live) -> None:
        assert live.node is not None
        changed.append(labels[live.node.node])
        for slot, gradient in enumerate(live.inputs):
            if gradient is not None:
                live.replace_input(slot, gradient * -2.5)

    goes_back = GoesBack(at, far, change=change)
    with keeping(), installed(goes_back), contextlib.suppress(*_ERRORS):
        root.backward()
    if not changed:
        return False
    expected, roots = changed_natively(steps, seed, changed[0])
    with contextlib.suppress(*_ERRORS):
        roots[0].backward()
    assert gradients_of(leaves) == gradients_of(expected)
    return True


_ERRORS = (RuntimeError, TypeError, KeyError, ValueError)
CHANGED = {
    "steps": _steps([*FORWARD, "noise"], 12),
    "seed": st.integers(0, 3),
    "at": st.integers(0, 30),
    "far": st.integers(0, 30),
}


@pytest.mark.hypothesis
@_examples(FEW)
@given(**cast("Any", CHANGED))
def test_programs_with_another_gradient(**drawn: Any) -> None:
    assume(check_changed(**drawn))


@pytest.mark.slow
@pytest.mark.hypothesis
def test_200_programs_with_another_gradient() -> None:
    went = 0

    @_examples(3 * MANY)
    @given(**cast("Any", CHANGED))
    def run(**drawn: Any) -> None:
        nonlocal went
        went += check_changed(**drawn)

    run()
    assert went >= MANY


# -- one by one ---------------------------------------------------------------------------------


def run_back(
    build: Callable[[], tuple[list[Tensor], Tensor]],
    at: int,
    far: int,
    rewind: Rewind | None = None,
    **backward: Any,
) -> tuple[list[Tensor], list[Tensor], GoesBack]:
    """Leaves of a program that ran natively once, and of one that went back."""
    expected, root = build()
    root.backward(**backward)
    leaves, root = build()
    goes_back = GoesBack(at, far)
    with keeping(rewind), installed(goes_back):
        root.backward(**backward)
    return expected, leaves, goes_back


def model() -> tuple[list[Tensor], Tensor]:
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 2))
    loss = net(torch.randn(5, 4)).square().sum()
    return list(net.parameters()), loss


def test_an_existing_grad_is_accumulated_into_once_and_stays_the_same_tensor() -> None:
    def build() -> tuple[list[Tensor], Tensor]:
        leaves, loss = model()
        for leaf in leaves:
            leaf.grad = torch.full_like(leaf, 0.5)
        return leaves, loss

    held = build()
    before = [leaf.grad for leaf in held[0]]
    expected, leaves, goes_back = run_back(lambda: held, 9, 9, retain_graph=True)
    assert goes_back.went == 1
    del expected
    assert all(leaf.grad is one for leaf, one in zip(leaves, before, strict=True))
    natively, loss = build()
    loss.backward(retain_graph=True)
    loss.backward()
    assert gradients_of(leaves) == gradients_of(natively)


def test_a_node_may_change_its_gradient_in_place() -> None:
    def build() -> tuple[list[Tensor], Tensor]:
        leaf = torch.ones(3, requires_grad=True)
        return [leaf], (cast("Any", _InPlace).apply(leaf.exp()) * 2).sum()

    for far in range(5):
        expected, leaves, goes_back = run_back(build, 4, far)
        assert goes_back.went == 1
        assert gradients_of(leaves) == gradients_of(expected)


class _Saves(torch.autograd.Function):
    """It clears what it holds where torch says that the graph is not kept, as AOTAutograd does."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        ctx.held = x.detach().clone()
        return x * x

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (x,) = ctx.saved_tensors
        held = ctx.held
        if not torch._C._autograd._get_current_graph_task_keep_graph():
            ctx.held = None
        return gradients[0] * (x + held)


def test_a_custom_function_keeps_what_it_saved() -> None:
    def build() -> tuple[list[Tensor], Tensor]:
        leaf = torch.ones(3, requires_grad=True)
        return [leaf], cast("Any", _Saves).apply(leaf.exp()).sum()

    expected, leaves, goes_back = run_back(build, 3, 3)
    assert goes_back.went == 1
    assert gradients_of(leaves) == gradients_of(expected)
    _, loss = build()
    with keeping(), installed():
        loss.backward()
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()


@pytest.mark.parametrize("far", range(3))
def test_what_is_drawn_after_other_draws_is_drawn_again(far: int) -> None:
    def build() -> tuple[list[Tensor], Tensor]:
        leaf = torch.ones(3, requires_grad=True)
        value = leaf
        for _ in range(3):
            noise = cast("Any", _Noise).apply(value * 2, Machine(0))
            value = noise + value
        torch.manual_seed(1)
        random.seed(1)
        _numpy.seed(1)
        return [leaf], value.sum()

    expected, leaves, goes_back = run_back(build, 5, far)
    assert goes_back.went == 1
    assert gradients_of(leaves) == gradients_of(expected)


def test_checkpointed_parts_are_computed_again() -> None:
    def build() -> tuple[list[Tensor], Tensor]:
        torch.manual_seed(3)
        net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.Tanh())
        x = torch.randn(4, 3, requires_grad=True)
        out = checkpoint(net, x, use_reentrant=False)
        return [x, *net.parameters()], cast("Tensor", out).sum()

    for at in range(2, 7):
        expected, leaves, goes_back = run_back(build, at, at)
        assert goes_back.went == 1
        assert gradients_of(leaves) == gradients_of(expected)


def test_saved_tensors_are_let_go_of_when_the_pass_ends() -> None:
    _, loss = model()
    with keeping(), installed():
        loss.backward()
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()


def test_what_exceeds_the_bound_is_let_go_of_and_that_is_said() -> None:
    leaf = torch.ones(1000, requires_grad=True)
    value = leaf
    for _ in range(20):
        value = value.sin()
    said: list[str] = []
    kept: list[int] = []

    class Looks(Instrument):
        def node_started(self, event: events.NodeStarted, live: Live) -> None:
            kept.append(rewind.nbytes)
            if event.node == 15:
                with pytest.raises(CantGoBackError) as refused:
                    cast("Any", live.graph_task).history.way_back(2)
                said.append(str(refused.value))
                assert cast("Any", live.graph_task).history.way_back(14).against == []

    with keeping(Rewind(20_000)) as rewind, installed(Looks()):
        value.sum().backward()
    assert max(kept) <= 20_000
    (sentence,) = said
    assert sentence.startswith("SinBackward0 (node 2) ran before all that is kept, for ")
    assert torch.isfinite(cast("Tensor", leaf.grad)).all()


def test_saved_tensors_count_towards_the_bound() -> None:
    def saved(ref: Any) -> list[Tensor]:
        return [ref.node._saved_self] if "SinBackward" in ref.name else []

    leaf = torch.ones(1000, requires_grad=True)
    loss = leaf.sin().sin().sum()
    kept: list[int] = []

    class Looks(Instrument):
        def node_finished(self, event: events.NodeFinished, live: Live) -> None:
            kept.append(rewind.nbytes)

    with keeping(Rewind(saved=saved)) as rewind, installed(Looks()):
        loss.backward()
    with keeping() as rewind, installed(Looks()):
        leaf.sin().sin().sum().backward()
    assert kept[2] - kept[6] == 8_000


def test_a_node_that_has_not_run_and_one_that_is_none() -> None:
    said: list[str] = []

    class Looks(Instrument):
        def node_started(self, event: events.NodeStarted, live: Live) -> None:
            history = cast("Any", live.graph_task).history
            for node in (None, 3, 99):
                with pytest.raises(CantGoBackError) as refused:
                    history.way_back(node)
                said.append(str(refused.value))

    leaf = torch.ones(3, requires_grad=True)
    with keeping(), installed(Looks()):
        torch.autograd.grad(leaf.exp().sum(), [leaf.exp()], allow_unused=True)
    assert said[0] == "no node ran before this one"
    assert said[2] == "there is no node 99 in this pass"


def obstacles(build: Callable[[], tuple[list[Tensor], Tensor]]) -> tuple[list[str], list[str]]:
    """What ran of the program, and what is against going back, at the last node."""
    leaves, loss = build()
    python: list[str] = []
    against: list[str] = []

    class Looks(Instrument):
        def node_started(self, event: events.NodeStarted, live: Live) -> None:
            way = cast("Any", live.graph_task).history.way_back(0)
            python[:], against[:] = way.python, way.against

    with keeping(), installed(Looks()):
        loss.backward()
    del leaves
    return python, against


def test_what_python_ran_is_listed() -> None:
    def build() -> tuple[list[Tensor], Tensor]:
        leaf = torch.ones(3, requires_grad=True)
        value = leaf.exp()
        value.register_hook(double)
        return [leaf], (cast("Any", _InPlace).apply(value * 2) * 2).sum()

    def double(gradient: Tensor) -> Tensor:
        return gradient * 2

    python, against = obstacles(build)
    assert python == [
        "_InPlaceBackward (node 2): a custom Function",
        "ExpBackward0 (node 4): hooks double",
    ]
    assert against == []


def test_a_backward_inside_is_against_going_back() -> None:
    def build() -> tuple[list[Tensor], Tensor]:
        leaf = torch.ones(3, requires_grad=True)
        out = checkpoint(lambda x: x.exp() * 2, leaf * 1, use_reentrant=True)
        return [leaf], cast("Tensor", out).sum()

    _, against = obstacles(build)
    assert against == [
        "torch::autograd::CheckpointFunctionBackward began a backward pass inside"
    ] or ("began a backward pass inside" in against[0])


def test_a_parameter_that_a_hook_changes_is_against_going_back() -> None:
    def build() -> tuple[list[Tensor], Tensor]:
        first = torch.ones(3, requires_grad=True)
        second = torch.ones(3, requires_grad=True)

        def step(parameter: Tensor) -> None:
            with torch.no_grad():
                parameter -= 0.1
            parameter.grad = None

        second.register_post_accumulate_grad_hook(step)
        return [first, second], (first.exp() * 2 + second.sin().sin().sin()).sum()

    _, against = obstacles(build)
    assert any("was changed in place since the pass began" in each for each in against)


@pytest.mark.parametrize("node", [None, 0])
def test_a_grad_that_the_program_changes_later_is_against_going_back(node: int | None) -> None:
    """Whether the leaf's own node is undone or not."""
    first = torch.ones(3, requires_grad=True)
    second = torch.ones(3, requires_grad=True)
    against: list[str] = []

    def meddle(_gradient: Tensor) -> None:
        with torch.no_grad():
            cast("Tensor", first.grad).mul_(2)

    class Looks(Instrument):
        def node_finished(self, event: events.NodeFinished, live: Live) -> None:
            if live.node is not None and live.node.name == "CosBackward0":
                history = cast("Any", live.graph_task).history
                found = history.way_back(event.node if node is None else node)
                against[:] = found.against

    value = second.cos()
    value.register_hook(meddle)
    total = (value.exp() + first.sin()).sum()
    with keeping(), installed(Looks()):
        total.backward()
    assert len(against) == 1
    assert against[0].endswith("was changed since by the program")


def test_going_back_from_a_failure() -> None:
    """The pass goes on as if the node had not raised."""
    leaf = torch.ones(3, requires_grad=True)
    value = leaf.exp()
    raises = [True]

    def hook(_gradient: Tensor) -> None:
        if raises.pop() if raises else False:
            raise ValueError("once")

    value.register_hook(hook)
    goes_back = GoesBack(0, 1, events.NodeFailed)
    with keeping(), installed(goes_back):
        (value * 2).sum().backward()
    assert goes_back.went == 1
    assert torch.equal(cast("Tensor", leaf.grad), leaf.exp() * 2)


def test_final_callbacks_of_what_is_undone_are_not_run() -> None:
    leaf = torch.ones(3, requires_grad=True)
    value = leaf.exp()
    called: list[str] = []

    def hook(_gradient: Tensor) -> None:
        ours = cast("Any", torch.autograd.Variable)._execution_engine
        ours.queue_callback(lambda: called.append("called"))

    value.register_hook(hook)
    goes_back = GoesBack(3, 3)
    with keeping(), installed(goes_back):
        (value * 2).sum().backward()
    assert goes_back.went == 1
    assert called == ["called"]


def test_ties_leave_the_queue_in_the_same_order_again() -> None:
    def build() -> tuple[list[Tensor], Tensor]:
        leaves = [torch.ones(2, requires_grad=True) for _ in range(9)]
        return leaves, torch.stack(leaves).sum()

    class Orders(Instrument):
        def __init__(self) -> None:
            self.nodes: list[int] = []

        def node_started(self, event: events.NodeStarted, _live: Live) -> None:
            self.nodes.append(event.node)

    once, again = Orders(), Orders()
    with installed(once):
        build()[1].backward()
    with keeping(), installed(again, GoesBack(7, 4)):
        build()[1].backward()
    assert again.nodes == once.nodes[:8] + once.nodes[3:]


def test_nodes_run_on_the_calling_thread() -> None:
    class Threads(Instrument):
        def __init__(self) -> None:
            self.found: set[int] = set()

        def graph_task_begun(self, event: events.GraphTaskBegun, _live: Live) -> None:
            self.found.add(event.thread)

        def node_started(self, event: events.NodeStarted, _live: Live) -> None:
            self.found.add(event.thread)

    threads = Threads()
    _, loss = model()
    with keeping(), installed(threads, device_policy=lambda _: 0):
        loss.backward()
    assert len(threads.found) == 1
