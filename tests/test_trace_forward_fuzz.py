"""Random programs: whatever they do, they do it with their torch functions observed, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agviz.record.check_forward import CheckForward
from agviz.record.names import Names
from agviz_engine import installed
from agviz_engine.api import engine
from tests.engine.fuzz_programs import CALLS, FORWARD, HOOKS, Machine, Step
from tests.engine.oracle import described
from tests.engine.programs import PROGRAMS

if TYPE_CHECKING:
    from agviz.record.forward_ops import ForwardOp

pytestmark = pytest.mark.filterwarnings("ignore")

TOTAL = 4_000 if settings.get_current_profile_name() == "fuzz" else 60


def observed(program: Any) -> tuple[Any, list[ForwardOp]]:
    """What a program gives under our engine while its functions are observed, and the functions."""
    names = Names()
    with installed(), names, CheckForward(names, engine().registry) as forward:
        torch.manual_seed(0)
        result = program()
        ops = forward.taken(-1).ops
    return result, ops


@pytest.mark.hypothesis
@settings(
    max_examples=TOTAL,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from([*FORWARD, *FORWARD, *HOOKS, *CALLS]), *[st.integers(0, 15)] * 3),
        max_size=16,
    ),
    seed=st.integers(0, 3),
)
def test_random_programs(steps: list[Step], seed: int) -> None:
    expected = described(Machine(seed).run(steps))
    result, ops = observed(lambda: Machine(seed).run(steps))
    assert described(result) == expected
    assert len({op.id for op in ops}) == len(ops)
    for op in ops:
        assert op.first_nr <= op.end_nr
        if op.sequence_nr is not None:
            assert op.first_nr <= op.sequence_nr < op.end_nr


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    torch.manual_seed(0)
    expected = described(PROGRAMS[name]())
    result, ops = observed(PROGRAMS[name])
    assert described(result) == expected
    assert ops
