"""No deadline counts what recording costs: a test that passes without agviz passes with it."""

import pytest

from tests.plugin.support import folders, run

pytest_plugins = ["pytester"]

SLOW_MACHINE = """
import time
import pytest
from agviz_engine import Instrument
from agviz_engine.api import engine

class Load(Instrument):
    def graph_task_begun(self, event, live):
        time.sleep(0.3)

@pytest.fixture(autouse=True)
def load():
    engine().registry.add(Load())
"""
"""Whatever agviz's engine runs takes longer, and nothing else does."""

HURRIED = """
import time, unittest
import pytest, torch
from hypothesis import example, given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule


def step():
    x = torch.ones(2, requires_grad=True)
    (x * 3).sum().backward()
    return x.grad


few = settings(
    max_examples=2,
    database=None,
    phases=["explicit", "generate"],
    suppress_health_check=["function_scoped_fixture", "differing_executors"],
)


@few
@given(st.integers())
def test_passes(n):
    step()


@pytest.mark.parametrize("k", [1, 2])
@few
@example(3)
@given(st.integers())
def test_with_examples(k, n):
    step()


class TestCase(unittest.TestCase):
    @few
    @given(st.integers())
    def test_unittest(self, n):
        step()


class Machine(RuleBasedStateMachine):
    @rule()
    def step(self):
        step()


TestMachine = Machine.TestCase
TestMachine.settings = settings(few, stateful_step_count=1, deadline=200)


@pytest.mark.asyncio
@few
@given(st.integers())
async def test_coroutine(n):
    step()


@few
@given(st.integers())
def test_is_slow(n):
    time.sleep(0.25)
    step()


class Sleeps(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        time.sleep(0.25)
        return g


@few
@given(st.integers())
def test_is_slow_in_backward(n):
    Sleeps.apply(torch.ones(2, requires_grad=True)).sum().backward()


class TestSlow(unittest.TestCase):
    @few
    @given(st.integers())
    def test_is_slow_in_unittest(self, n):
        time.sleep(0.3)
        step()


@settings(max_examples=2, deadline=None, database=None)
@given(st.integers())
def test_without_deadline(n):
    step()


@few
@given(st.integers())
def test_is_wrong(n):
    assert step()[0] == 2
"""
FAILING = {"test_is_slow", "test_is_slow_in_backward", "test_is_slow_in_unittest", "test_is_wrong"}


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("--agviz=retain-on-failure",), marks=pytest.mark.slow),
        pytest.param(("--agviz=on", "-n", "2"), marks=pytest.mark.slow),
        pytest.param(("--agviz-verify",), marks=pytest.mark.slow),
    ],
)
def test_deadlines_of_hypothesis_hold_for_the_test_alone(
    pytester: pytest.Pytester, options: tuple[str, ...]
) -> None:
    pytester.makeconftest(SLOW_MACHINE)
    pytester.makepyfile(test_hurried=HURRIED)
    alone = run(pytester, "-p", "no:agviz")
    alone.assert_outcomes(passed=7, failed=4)
    with_agviz = run(pytester, *options)
    with_agviz.assert_outcomes(passed=7, failed=4)
    output = with_agviz.stdout.str()
    for name in FAILING:
        assert f"{name} _" in output
    assert output.count("DeadlineExceeded: Test took") >= 3
    if options == ("--agviz=retain-on-failure",):
        kept = {name.rpartition("--")[2] for name in folders(pytester.path / "agviz-results")}
        assert kept == FAILING


@pytest.mark.slow
def test_a_test_about_its_recording_is_not_run_without_one(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(SLOW_MACHINE)
    pytester.makepyfile(
        HURRIED.partition("@few")[0]
        + """
@few
@given(n=st.integers())
def test_recorded(agviz, n):
    step()
    agviz.assert_finite()
    agviz.assert_order(["SumBackward0", "MulBackward0", ...])
"""
    )
    run(pytester).assert_outcomes(passed=1)


PATIENT = """
import time, torch


def step():
    (torch.ones(2, requires_grad=True) * 3).sum().backward()


def test_many_passes():
    for _ in range(9):
        step()


def test_hangs_after_them():
    for _ in range(3):
        step()
    time.sleep(10_000)
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["signal", "thread"])
def test_a_timeout_does_not_count_what_recording_costs(
    pytester: pytest.Pytester, method: str
) -> None:
    pytester.makeconftest(SLOW_MACHINE)
    pytester.makepyfile(test_patient=PATIENT)
    options = "--timeout=2", f"--timeout-method={method}"
    output = run(pytester, *options, "--agviz=retain-on-failure", "-v").stdout.str()
    assert "::test_many_passes PASSED" in output
    assert "::test_hangs_after_them PASSED" not in output
    assert "time.sleep(10_000)" in output
    assert "no anomaly found in 3 backward passes" in output or "MainThread" in output
