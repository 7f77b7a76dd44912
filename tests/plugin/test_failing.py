"""What the plugin says of a failure in which backward was right, or looks right."""

import re

import pytest

from tests.plugin.support import files, run, section

pytest_plugins = ["pytester"]

OPERATORS = """
import torch


class Triple(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 3

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        return g * -3


def agrees(function, *inputs):
    return torch.autograd.gradcheck(function, inputs, raise_exception=False)
"""
DEFINED = "operators.py:11"
SUITE = """
import torch
from torch import nn
from torch.autograd import gradcheck
from operators import Triple, agrees


def step():
    model = nn.Linear(2, 2)
    model(torch.ones(1, 2)).sum().backward()
    return model


def doubles(n):
    return torch.rand(n, dtype=torch.float64, requires_grad=True)
"""
UNRELATED = """
def test_equal():
    step()
    assert 1 == 2


def test_key():
    weights = {"a": step()}
    weights["b"]


def test_names():
    names = [name for name, _ in step().named_parameters()]
    assert names == ["weight"]


def test_status():
    step()
    class Reply:
        status = "late"
    assert Reply().status == "done"


def test_file():
    step()
    open("no such file")


def test_message():
    step()
    import pytest
    with pytest.raises(ValueError, match="no such message"):
        raise ValueError("another")


def test_custom():
    x = torch.ones(3, requires_grad=True)
    Triple.apply(x).sum().backward()
    raise LookupError("nothing to do with x")
"""
NUMBERS = """
def test_sign():
    x, y = (torch.ones(3, requires_grad=True) for _ in range(2))
    Triple.apply(x).sum().backward()
    (y * 2).sum().backward()
    assert torch.equal(x.grad, torch.full((3,), 3.0))


def test_close():
    result = [each.detach() for each in step().parameters()]
    torch.testing.assert_close(result[0], torch.full((2, 2), 9.0))


def test_training():
    step()
    losses = [1.0, 2.0]
    assert losses[-1] < losses[0]


class Trainer:
    def __init__(self):
        self.model = step()


def test_trainer():
    trainer = Trainer()
    assert trainer is None


def test_none():
    step()
    torch.ones(1).grad.sum()


def test_helper():
    ok = agrees(Triple.apply, doubles(2))
    assert ok
"""
CHECKED = """
def test_gradcheck():
    w, x = doubles(2), doubles(2)
    gradcheck(lambda w, x: (w * Triple.apply(x)).sin(), (w, x))


def test_fast():
    x = doubles(2)
    gradcheck(Triple.apply, x, fast_mode=True)


def test_factor():
    class Half(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1.0

        @staticmethod
        def backward(ctx, g):
            return g / 2

    gradcheck(Half.apply, doubles(3))


class Noisy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g + torch.rand_like(g) * 1e-9


def test_noise():
    gradcheck(Noisy.apply, doubles(3))
"""


def names(suite: str) -> list[str]:
    return re.findall(r"^def (test_\w+)", suite, re.MULTILINE)


@pytest.fixture
def operators(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(operators=OPERATORS)
    pytester.makeini("[pytest]\npythonpath = .")


@pytest.mark.slow
@pytest.mark.usefixtures("operators")
@pytest.mark.parametrize("options", [(), pytest.param(("-n", "2"), marks=pytest.mark.slow)])
def test_a_failure_that_has_nothing_to_do_with_gradients_gets_a_line(
    pytester: pytest.Pytester, options: tuple[str, ...]
) -> None:
    pytester.makepyfile(test_suite=SUITE + UNRELATED)
    result = run(pytester, "--agviz=retain-on-failure", "--junitxml=junit.xml", *options)
    tests = names(UNRELATED)
    result.assert_outcomes(failed=len(tests))
    output = result.stdout.str()
    results = pytester.path / "agviz-results"
    for name in tests:
        said = section(output, name)
        custom = f"; custom Functions that took part: Triple ({DEFINED})"
        assert said == (
            f"no anomaly found in 1 backward pass{custom if name == 'test_custom' else ''}:"
            f" agviz view agviz-results/test_suite.py--{name}/trace.agviz"
        )
        assert files(results / f"test_suite.py--{name}") == {"trace.agviz", "report.html"}
    for glyph in "✗✓?":
        assert glyph not in output.partition("= agviz =")[2]
    result.stdout.fnmatch_lines(
        [f"no anomaly found in {len(tests)} tests that failed for something else"]
    )
    assert "agviz_graph" not in (pytester.path / "junit.xml").read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("operators")
def test_wrong_numbers_lead_to_the_custom_functions_of_all_passes(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(test_suite=SUITE + NUMBERS)
    result = run(pytester, "--agviz=retain-on-failure")
    tests = names(NUMBERS)
    result.assert_outcomes(failed=len(tests))
    output = result.stdout.str()
    for name in tests:
        said = section(output, name)
        assert said.startswith("no anomaly found in ")
        assert "Not looked at: whether the gradients are right" in " ".join(said.split())
        assert "✓" not in said
        assert (pytester.path / f"agviz-results/test_suite.py--{name}/graph.svg").is_file()
    sign = " ".join(section(output, "test_sign").split())
    assert sign.startswith(
        "no anomaly found in 2 backward passes; custom Functions that took part: Triple"
        f" ({DEFINED}) {DEFINED} in backward def backward(ctx, g):"
    )
    assert "applied at test_suite.py:" in sign
    assert "gradcheck called" not in sign
    helper = " ".join(section(output, "test_helper").split())
    assert re.search(r"gradcheck called \d of them: .* raise_exception=True", helper)
    assert "nothing is wrong" not in output
    assert "✗" not in output


@pytest.mark.usefixtures("operators")
def test_gradcheck_is_told_in_plain_words(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_suite=SUITE + CHECKED)
    result = run(pytester, "--agviz=retain-on-failure")
    result.assert_outcomes(failed=4)
    output = result.stdout.str()
    said = section(output, "test_gradcheck")
    assert said.startswith("gradcheck: the gradient of output 0 for input 1 (x) is wrong\n")
    assert f"\n  {DEFINED} in backward\n" in said
    plain = " ".join(said.split())
    analytical, numerical = re.findall(r"gives (\S+) \(analytical\) where it is (\S+) ", plain)[0]
    assert float(analytical) == pytest.approx(-float(numerical), rel=1e-3)
    assert "2 of 4 numbers differ. The sign is the opposite of what it should be." in plain
    assert "input 0 (x) is wrong" in section(output, "test_fast")
    factor = " ".join(section(output, "test_factor").split())
    assert "Backward gives 0.5 (analytical) where it is 1 (numerical)" in factor
    assert "All of them are 0.5 times what they should be." in factor
    assert re.search(r"by hand: Half \(test_suite\.py:\d+\)", factor)
    noise = " ".join(section(output, "test_noise").split())
    assert noise.startswith("gradcheck failed: Backward is not reentrant, i.e., running backward")
    assert re.search(r"by hand: Noisy \(test_suite\.py:\d+\)", noise)
    result.stdout.fnmatch_lines(
        ["✗ test_suite.py::test_gradcheck: gradcheck: the gradient of output 0 for input 1 (x)*"]
    )


@pytest.mark.slow
def test_what_is_advised_is_an_option_of_pytest(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import torch
        from torch import nn

        def test_cut():
            model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
            model(torch.ones(1, 2))
            model[1](model[0](torch.ones(1, 2)).detach()).sum().backward()
            assert model[0].weight.grad is not None

        def test_modified():
            x = torch.ones(2, requires_grad=True)
            y = x.exp()
            y += 1
            y.sum().backward()

        def test_nan():
            x = torch.zeros(2, requires_grad=True)
            (x * torch.tensor([1.0, float("nan")])).sum().backward()
            assert x.grad.isfinite().all()
        """
    )
    without = run(pytester, "--agviz=retain-on-failure").stdout.str()
    assert without.count("--agviz-check-forward") == 3
    assert " --check-forward" not in without
    said = run(pytester, "--agviz=retain-on-failure", "--agviz-check-forward").stdout.str()
    assert "--agviz-check-forward" not in said
    assert "test_what_is_advised_is_an_option_of_pytest.py:7" in section(said, "test_cut")
    assert "test_what_is_advised_is_an_option_of_pytest.py:13" in section(said, "test_modified")
