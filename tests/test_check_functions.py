"""Custom Functions under ``agviz check``: planted faults are found, right ones are not blamed.

The outside oracle is torch's own ``gradcheck`` where a Function is meant to have the derivative of
its forward; which Functions are wrong, and in which argument, was decided when they were written.
"""

from typing import Any

import pytest
import torch
from torch.autograd.gradcheck import GradcheckError

from agviz.check.functions import FunctionAnswer, judge
from agviz.check.kept_call import CustomFunction, KeptCall
from tests.functions import right, wrong

RIGHT: dict[str, Any] = right.RIGHT
WRONG: dict[str, Any] = wrong.WRONG


def some(names: list[str], every: int) -> list[object]:
    """All of them, those but one in ``every`` marked as slow."""
    return [
        pytest.param(name, marks=[pytest.mark.slow] if number % every else [])
        for number, name in enumerate(names)
    ]


def answer(function: type[Any], args: tuple[object, ...], *, twice: bool) -> FunctionAnswer:
    about = CustomFunction(function)
    about.is_differentiated_twice = twice
    about.overtaken = 1
    about.kept[()] = KeptCall(args)
    return judge(about)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Tiny tensors; several threads only wait for each other."""
    torch.manual_seed(0)
    torch.set_num_threads(1)


def test_there_are_as_many_as_promised() -> None:
    assert len(RIGHT) >= 40
    assert len(WRONG) >= 20


@pytest.mark.parametrize("name", some(sorted(RIGHT), 4))
def test_a_right_function_is_not_blamed(name: str) -> None:
    function, make, twice = RIGHT[name]
    found = answer(function, make(), twice=twice)
    assert found.findings == []
    assert found.looked_at or found.by_design


@pytest.mark.parametrize("name", some(sorted(WRONG), 5))
def test_a_planted_fault_is_found(name: str) -> None:
    function, make, arguments, twice = WRONG[name]
    found = answer(function, make(), twice=twice)
    assert len(found.findings) == 1
    assert found.findings[0].heading.endswith(" and ".join(arguments))
    assert len(found.findings[0].paragraph.split()) <= 110
    place = found.findings[0].place
    assert place is not None
    assert place[2] == "backward"


DIFFERENTIABLE = [
    "MemoryEfficientSwish",
    "LSTMCellFunction",
    "RotaryEmbedding",
]


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_it_agrees_with_gradcheck(name: str) -> None:
    function, make, twice = RIGHT[name]
    assert torch.autograd.gradcheck(function.apply, doubled(make()))
    assert answer(function, make(), twice=twice).looked_at == 1


@pytest.mark.parametrize("name", ["LinearTransposed", "SoftmaxDiagonalOnly"])
def test_it_agrees_with_gradcheck_on_faults(name: str) -> None:
    function, make, _, _ = WRONG[name]
    with pytest.raises(GradcheckError):
        torch.autograd.gradcheck(function.apply, doubled(make()))


def doubled(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(
        arg.detach().double().requires_grad_(arg.requires_grad)
        if isinstance(arg, torch.Tensor) and arg.is_floating_point()
        else arg
        for arg in args
    )
