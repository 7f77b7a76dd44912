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
    about.is_scaled = True  # as below a mean: to a gradient of ones, more backwards are right
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


@pytest.mark.slow_but_one_in(4)
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


def backward_of(give: Any, make: Any = torch.sin) -> type[Any]:
    """A Function of x whose backward returns what ``give`` makes of x and the gradient."""

    class Made(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            found: torch.Tensor = make(x)
            return found

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> Any:
            return give(*ctx.saved_tensors, gradient)

    return Made


def scaled(function: type[Any], *, is_scaled: bool = True) -> FunctionAnswer:
    about = CustomFunction(function)
    about.is_scaled = is_scaled
    about.kept[()] = KeptCall((torch.randn(6, 3, requires_grad=True),))
    return judge(about)


@pytest.mark.parametrize(
    ("give", "said"),
    [
        (lambda x, _: x.cos(), "It is the same whatever gradient comes in"),
        (lambda x, grad: grad * x.cos() + x, "even where a gradient of zeros comes in"),
    ],
    ids=["all of it", "a term of it"],
)
def test_what_does_not_come_from_the_incoming_gradient_is_named(give: Any, said: str) -> None:
    (found,) = scaled(backward_of(give)).findings
    assert found.heading == "the backward of Made gives a wrong gradient of x"
    assert said in found.paragraph


def test_of_two_arguments_the_one_without_the_incoming_gradient_is_named() -> None:
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x, scale)
            return x * scale

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> Any:
            x, scale = ctx.saved_tensors
            return gradient * scale, x.sum()

    about = CustomFunction(Scaled)
    about.is_scaled = True
    args = torch.randn(5, requires_grad=True), torch.tensor(1.5, requires_grad=True)
    about.kept[()] = KeptCall(args)
    (found,) = judge(about).findings
    assert found.heading.endswith("a wrong gradient of scale")
    assert "The gradient of x is right." in found.paragraph


@pytest.mark.parametrize(
    "give",
    [
        lambda x, grad: (grad * x.cos()).clamp(-0.1, 0.1),
        lambda x, grad: grad * x.cos() / (grad.norm() + 1e-6),
        lambda x, grad: grad * x.cos() + 0.1 * torch.randn_like(x),
    ],
    ids=["clips", "normalises", "adds noise"],
)
def test_what_is_done_to_the_incoming_gradient_is_not_blamed(give: Any) -> None:
    found = scaled(backward_of(give))
    assert not found.findings
    assert found.by_design


def test_a_loss_may_count_on_the_one_that_came_but_has_to_be_right_for_it() -> None:
    def square(x: torch.Tensor) -> torch.Tensor:
        return x.square().sum()

    right_for_one = scaled(backward_of(lambda x, _: 2 * x, square), is_scaled=False)
    assert not right_for_one.findings
    assert "which was 1" in right_for_one.by_design
    (found,) = scaled(backward_of(lambda x, _: x, square), is_scaled=False).findings
    assert "always 1/2 of it" in found.paragraph
