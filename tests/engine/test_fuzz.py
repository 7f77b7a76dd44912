"""Random programs: whatever the native engine makes of them, ours makes of them too."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engine.fuzz_programs import CALLS, FORWARD, HOOKS, Machine, Step
from tests.engine.oracle import (
    Outcome,
    assert_orders_equal,
    assert_outcomes_equal,
    assert_same,
    described,
    native_outcome,
    our_outcome,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.autograd.graph import Node

pytestmark = [
    pytest.mark.hypothesis,
    pytest.mark.filterwarnings("ignore:.*Sparse invariant checks:UserWarning"),
]

TOTAL = 20_000 if settings.get_current_profile_name() == "fuzz" else 300
"""Programs in all of this file."""

ALL = [*FORWARD, *FORWARD, *HOOKS, *HOOKS, *CALLS]
"""Names of operations, as often as they are to be drawn."""

ORDERED = {"anomaly", "batched_grad", "zero_grad"}
"""Operations whose log depends on the order in which threads get on, or on what they share."""


def _examples(share: float) -> settings:
    return settings(
        max_examples=int(TOTAL * share),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


def _steps(names: Sequence[str], size: int) -> st.SearchStrategy[list[Step]]:
    number = st.integers(0, 15)
    return st.lists(st.tuples(st.sampled_from(names), number, number, number), max_size=size)


SEEDS = st.integers(0, 3)


@_examples(0.7)
@given(steps=_steps(ALL, 16), seed=SEEDS)
def test_programs(steps: list[Step], seed: int) -> None:
    assert_same(lambda: Machine(seed).run(steps))


@_examples(0.1)
@given(steps=_steps(ALL, 16), seed=SEEDS)
def test_programs_on_one_device(steps: list[Step], seed: int) -> None:
    """All nodes on the thread of one simulated device, which does one thing after the other.

    Where the native engine asks for the level of ``vmap``, which is a thread's own and does not go
    along to device threads, it says nothing about them.
    """

    def program() -> list[Any]:
        return Machine(seed, on_devices=True).run(steps)

    native, ours = native_outcome(program), our_outcome(program, device_policy=lambda _: 0)
    if not any("called inside torch.vmap" in str(entry) for entry in native.tensors):
        assert_outcomes_equal(native, ours)
        assert_orders_equal(native, ours)


PEACEFUL = [name for name in ALL if name not in ORDERED]


@_examples(0.1)
@given(
    steps=_steps(PEACEFUL, 16),
    seed=SEEDS,
    devices=st.integers(2, 4),
    factor=st.sampled_from([1, 3, 7]),
)
def test_programs_on_several_devices(
    steps: list[Step], seed: int, devices: int, factor: int
) -> None:
    """Nodes spread over device threads and the caller: sums are exact, so no order shows in them.

    Where a program fails, how far the other threads got is open.
    """

    def policy(node: Node) -> int:
        return node._sequence_nr() * factor % devices - 1

    def program() -> list[Any]:
        return Machine(seed, exact=True, on_devices=True).run(steps)

    native, ours = native_outcome(program), our_outcome(program, device_policy=policy)
    assert native.error is ours.error is None
    if _failures(native):
        assert _failures(ours)
    else:
        assert _unordered(ours) == _unordered(native)


def _failures(outcome: Outcome) -> list[Any]:
    return [entry for entry in outcome.tensors if entry[0] in CALLS and len(entry) == 3]


def _unordered(outcome: Outcome) -> list[str]:
    """The log without the order of its entries; sparse gradients without that of their parts.

    And without strides: a sum has those of the gradient that came first.

    A multi-grad hook takes the number of gradients it waits for from the pass that called it last,
    so that it depends on the order whether it is called where a reentrant pass comes in between.
    """
    names = (name for orders in outcome.orders.values() for order in orders for name in order)
    is_reentrant = any(
        name.endswith(("_ReentrantBackward", "CheckpointFunctionBackward")) for name in names
    )
    left_out = {"multi grad"} if is_reentrant else set()
    entries = [entry for entry in outcome.tensors if entry[0] not in left_out]
    return sorted(repr(described(_contiguous(_coalesced(entry)))) for entry in entries)


def _coalesced(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.coalesce() if value.is_sparse else value
    return [_coalesced(v) for v in value] if isinstance(value, list | tuple) else value


def _contiguous(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        is_strided = value.layout is torch.strided and not (value.is_nested or value.is_conj())
        return value.contiguous() if is_strided else value
    return [_contiguous(v) for v in value] if isinstance(value, list | tuple) else value


@_examples(0.1)
@given(programs=st.lists(_steps(PEACEFUL, 8), min_size=2, max_size=4), seed=SEEDS)
def test_programs_in_several_threads(programs: list[list[Step]], seed: int) -> None:
    """Each thread has its own graphs, but for one leaf that they all use."""

    def program() -> list[Any]:
        shared = torch.ones(2, 3, dtype=torch.float64, requires_grad=True)
        machines = [Machine(seed, exact=True, shared=shared) for _ in programs]
        threads = [
            threading.Thread(target=machine.run, args=(steps,), name=f"thread {i}")
            for i, (machine, steps) in enumerate(zip(machines, programs, strict=True))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [*(machine.log for machine in machines), _coalesced(shared.grad)]

    assert assert_same(program).error is None
