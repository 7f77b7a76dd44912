"""Random programs: whatever the native engine makes of them, ours makes of them too."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engine.fuzz_programs import CALLS, FORWARD, HOOKS, Machine, Step
from tests.engine.oracle import assert_same

FUZZING = settings.get_current_profile_name() == "fuzz"
TOTAL = 20_000 if FUZZING else 500


def _examples(share: float) -> settings:
    return settings(
        max_examples=int(TOTAL * share),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


def _steps(names: list[str], size: int) -> st.SearchStrategy[list[Step]]:
    number = st.integers(0, 15)
    return st.lists(st.tuples(st.sampled_from(names), number, number, number), max_size=size)


ALL = [*FORWARD, *FORWARD, *HOOKS, *HOOKS, *CALLS]


@pytest.mark.hypothesis
@_examples(0.7)
@given(steps=_steps(ALL, 16), seed=st.integers(0, 3))
def test_random_programs(steps: list[Step], seed: int) -> None:
    def program() -> list[Any]:
        return Machine(seed).run(steps)

    assert_same(program)
