"""Tests that are run within tests: what can become of one that runs backward."""

SUITE = """
import unittest
import pytest, torch
from torch import nn


class Distance(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(4, 3)

    def forward(self, x):
        squares = (self.embed(x) - self.embed(x)) ** 2
        return squares.mean(-1).sqrt()


def wrong():
    model = Distance()
    model(torch.ones(2, 4)).sum().backward()
    return model


def good():
    model = nn.Linear(4, 1)
    model(torch.ones(2, 4)).sum().backward()
    return model


class Boom(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        raise ValueError("boom")


def test_nan():
    assert wrong().embed.weight.grad.isfinite().all()


def test_passes():
    good()


def test_expects_an_error():
    with pytest.raises(ValueError, match="boom"):
        Boom.apply(torch.ones(2, requires_grad=True)).sum().backward()


def test_none():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model(torch.ones(1, 2))
    model[1](model[0](torch.ones(1, 2)).detach()).sum().backward()
    torch.testing.assert_close(model[0].weight.grad, torch.ones(2, 2))


def test_raises():
    Boom.apply(torch.ones(2, requires_grad=True) * 2).sum().backward()


class TestCase(unittest.TestCase):
    def test_unittest(self):
        self.assertTrue(wrong().embed.weight.grad.isfinite().all())


@pytest.fixture(scope="module")
def broken():
    model = wrong()
    assert model.embed.weight.grad.isfinite().all()


def test_with_fixture(broken):
    raise AssertionError("is not reached")


@pytest.mark.agviz(fail_on=["nan"])
def test_marked():
    wrong()


@pytest.mark.agviz(fail_on=["inf"], max_norm=0.5)
def test_too_large():
    good()


@pytest.mark.agviz(fail_on=["nan", "inf"], max_norm=1e6)
def test_marked_and_good():
    good()


@pytest.mark.xfail(strict=True)
def test_expected_to_fail():
    assert wrong().embed.weight.grad.isfinite().all()


def test_handle(agviz, tmp_path):
    from agviz.errors import AgvizError

    with pytest.raises(AgvizError, match="has run no backward pass"):
        agviz.assert_finite()
    model = good()
    agviz.assert_finite()
    agviz.assert_reaches(model)
    agviz.assert_order(["SumBackward0", ..., "bias", ...])
    ran = [node.short_name for node in sorted(agviz.trace.nodes, key=lambda node: node.order)]
    agviz.assert_order(ran)
    agviz.assert_order([ran[0], set(ran[1:3]), *ran[3:]])
    with pytest.raises(AssertionError, match="ran in another order: SumBackward0"):
        agviz.assert_order(ran[1:])
    with pytest.raises(AssertionError, match="ran in another order"):
        agviz.assert_order([ran[0], {ran[1], "NoSuchNode"}, ...])
    agviz.assert_same_as(agviz.trace)
    wrong()
    with pytest.raises(AssertionError, match="SqrtBackward0 of Distance, in .*, at test_suite.py:"):
        agviz.assert_finite()
    unused = nn.Linear(1, 1)
    with pytest.raises(AssertionError, match="did not reach 2 parameters:\\nweight"):
        agviz.assert_reaches(nn.ModuleDict({"unused": unused})["unused"])


class Untouched(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        return x * scale

    @staticmethod
    def backward(ctx, g):
        return g, None


def test_leaf():
    x, scale = (torch.ones(3, requires_grad=True) for _ in range(2))
    Untouched.apply(x, scale).sum().backward()
    assert scale.grad is not None


class Triple(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 3

    @staticmethod
    def backward(ctx, g):
        return g * 2


def test_gradcheck():
    x = torch.ones(2, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(lambda x: Triple.apply(x).sin(), x)


@pytest.fixture
def ends_badly():
    yield
    assert wrong().embed.weight.grad.isfinite().all()


def test_ends(ends_badly):
    pass


class TestGroup:
    @pytest.fixture(scope="class")
    def trained(self):
        return good()

    def test_first(self, trained):
        assert trained.weight.grad is not None

    def test_second(self, trained):
        assert trained.weight.grad is not None


@pytest.mark.agviz("off")
@pytest.mark.xfail(strict=True)
def test_off():
    assert wrong().embed.weight.grad.isfinite().all()


def test_says_nothing_of_gradients():
    assert 1 == 2
"""

FAILED = {
    "test_suite.py--test_nan",
    "test_suite.py--test_none",
    "test_suite.py--test_raises",
    "test_suite.py--TestCase--test_unittest",
    "test_suite.py--test_with_fixture",
    "test_suite.py--test_marked",
    "test_suite.py--test_too_large",
    "test_suite.py--test_leaf",
    "test_suite.py--test_gradcheck",
    "test_suite.py--test_ends-teardown",
}
"""What is left of the suite."""
RECORDED = 16
"""Tests of it that run backward and are recorded."""
OUTCOMES = {"passed": 7, "failed": 9, "errors": 2, "xfailed": 2}
