"""The language of conditions, watches and log points, held against what Python and torch say."""

from __future__ import annotations

import itertools
import math
import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from agviz.debugger.bounds import Bound, Watched, changed
from agviz.debugger.expressions import (
    Condition,
    Expression,
    ExpressionError,
    Facts,
    UnknownValueError,
    facts_of,
    write_value,
)
from agviz.debugger.live_scope import LiveScope
from agviz.debugger.log_text import LogText
from agviz.measure.health import measure, unseen
from agviz.record.names import Names

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from agviz_engine.instruments import Live


class Net(nn.Module):
    """Its parameters have names of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.Linear(4, 2)))
        self.norm = nn.LayerNorm(2)
        self.odd = nn.ParameterDict({"a-b": nn.Parameter(torch.ones(2))})

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.norm(self.layers(value)) * self.odd["a-b"]
        return found


torch.manual_seed(0)
NET = Net()
NAMES = Names()
NAMES.learn(NET)
NET(torch.randn(5, 3)).square().sum().backward()
NET.layers[1][0].bias.grad = None  # type: ignore[index]
with torch.no_grad():
    NET.norm.bias[0] = torch.nan
INPUTS = (torch.randn(2, 3), None)
LIVE = cast("Live", SimpleNamespace(inputs=INPUTS, outputs=(torch.arange(6).reshape(2, 3),)))
GIVEN = INPUTS[0]
SCOPE = LiveScope(NAMES, LIVE, (0, GIVEN))
PARAMETERS = dict(NET.named_parameters())
FACTS = facts_of(measure(GIVEN), 0)


def value(text: str) -> Any:
    """What the language says."""
    with unseen():
        return Expression(text).value(SCOPE)


def by_torch(text: str) -> Any:
    """What Python and torch say, where a name of a parameter is what the module has."""
    for name in sorted(PARAMETERS, key=len, reverse=True):
        text = text.replace(f'parameter("{name}")', f"P[{name!r}]")
        text = re.sub(rf"(?<![\w.\"']){re.escape(name)}(?![\w\"'])", f"P[{name!r}]", text)
    # As numbers of Python: torch rounds what it computes with tensors of one element.
    text = re.sub(r"\.(norm|min|max|mean|sum|any|all)\(\)", r".\1().item()", text)
    known = {**FACTS, "P": PARAMETERS, "input": INPUTS, "output": LIVE.outputs}
    return eval(text, {"__builtins__": {"abs": abs}}, known)  # noqa: S307 - what is made below


TENSORS = st.sampled_from(
    [f"{name}{grad}" for name in PARAMETERS if "-" not in name for grad in ("", ".grad")]
    + ['parameter("odd.a-b").grad', "input[0]", "output[0]"]
)
METHODS = ("norm", "min", "max", "mean", "sum", "numel")
NUMBERS: SearchStrategy[str] = st.one_of(
    st.builds(
        "{}{}.{}()".format, TENSORS, st.sampled_from(["", ".abs()"]), st.sampled_from(METHODS)
    ),
    st.builds(
        "{}.{}().{}()".format,
        TENSORS,
        st.sampled_from(["isnan", "isinf", "isfinite"]),
        st.sampled_from(["any", "all", "sum"]),
    ),
    st.builds("{}.shape[{}]".format, TENSORS, st.sampled_from("01")),
    st.builds("({} is {}None)".format, TENSORS, st.sampled_from(["", "not "])),
    st.sampled_from(["norm", "min", "max", "numel", "shape[1]", "nan", "slot", "1e3", "0", "2.5"]),
    st.integers(0, 100).map(str),
)
EXPRESSIONS = st.recursive(
    NUMBERS,
    lambda inner: st.one_of(
        st.builds(
            "({} {} {})".format, inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner
        ),
        st.builds(
            "({} {} {})".format, inner, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), inner
        ),
        st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner),
        st.builds("({} < {} <= {})".format, inner, inner, inner),
        st.builds("({} {})".format, st.sampled_from(["-", "+", "not"]), inner),
        st.builds("abs({})".format, inner),
    ),
    max_leaves=8,
)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(EXPRESSIONS)
def test_random_expressions_say_what_python_and_torch_say(text: str) -> None:
    try:
        wanted = by_torch(text)
    except (AttributeError, ArithmeticError, IndexError, RuntimeError):
        with pytest.raises(UnknownValueError) as caught:
            value(text)
        assert "\n" not in str(caught.value)
        return
    found = value(text)
    if isinstance(wanted, float) and math.isnan(wanted):
        assert math.isnan(found)
    else:
        assert (found, type(found)) == (wanted, type(wanted)) or found == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("layers.0.weight.shape", "[4, 3]"),
        ("layers.0.weight.dtype == 'float32'", "True"),
        ("layers.0.weight.device", "cpu"),
        ("layers.1.0.bias.grad is None", "True"),
        ("norm.bias.isnan().sum()", "1"),
        ("norm.bias.norm()", "nan"),
        ('parameter("odd.a-b").norm().item()', "1.41421"),
        ("input[1] is None", "True"),
        ("output[0].max()", "5"),
        ("1.5e-3 + 2", "2.0015"),
        ("layers.0.weight.ndim", "2"),
    ],
)
def test_names_and_facts(text: str, wanted: str) -> None:
    assert write_value(value(text)) == wanted


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("layers.7.weight.norm()", "no parameter layers.7.weight is known"),
        ("layers.1.0.bias.grad.norm()", "it is None"),
        ("input[4].norm()", r"no input\[4\]"),
        ("norm / 0", "division by zero"),
        ("shape[7]", "no such dimension"),
        ("output[0].mean()", "mean"),
        ("layers.0.weight.item()", "layers.0.weight.item()"),
        ("'a' * 3", "only numbers"),
        ("shape < 3", "not supported"),
    ],
)
def test_what_has_no_value_says_why(text: str, why: str) -> None:
    with pytest.raises(UnknownValueError, match=why) as caught:
        value(text)
    assert "\n" not in str(caught.value)


def test_what_is_not_measured_or_not_at_hand_is_not_known() -> None:
    with pytest.raises(UnknownValueError, match="only where a program is stopped"):
        Expression("fc.weight.norm()").value(Facts(FACTS))
    assert not Condition("fc.weight.norm() > 0").holds(Facts(FACTS))
    meta = nn.Linear(2, 2, device="meta")
    names = Names()
    names.learn(meta)
    scope = LiveScope(names, LIVE)
    with pytest.raises(UnknownValueError, match="can't be looked at"):
        Expression("weight.norm()").value(scope)
    assert Expression("weight.shape").value(scope) == (2, 2)
    with pytest.raises(UnknownValueError, match="no gradient here"):
        Expression("norm").value(scope)


def test_nothing_is_left_behind() -> None:
    weight = PARAMETERS["layers.0.weight"]
    before = weight._version, weight.grad, torch.get_rng_state(), torch.is_grad_enabled()
    copy = weight.detach().clone()
    for text in ("layers.0.weight.norm()", "layers.0.weight.grad.abs().max()", "norm"):
        value(text)
    assert weight._version == before[0]
    assert weight.grad is before[1]
    assert torch.equal(torch.get_rng_state(), before[2])
    assert torch.is_grad_enabled() is before[3]
    assert torch.equal(weight, copy)
    hidden = weight * 2  # no leaf: asking for its .grad warns in torch
    assert SCOPE.grad(hidden) is None


@pytest.mark.parametrize(
    "text",
    ["a {norm", "a norm}", "{}", "{open('x')}", "{fc.weight.__dict__}", "{norm!r}", "{a{b}c}"],
)
def test_a_bad_text_of_a_log_point_gives_one_sentence(text: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        LogText(text)
    assert "\n" not in str(caught.value)


def test_the_text_of_a_log_point_has_values() -> None:
    text = LogText("{{norm}} of {layers.0.weight.shape}: {layers.7.weight.norm()} {1 + 2}")
    with unseen():
        assert text.written(SCOPE) == (
            "{norm} of [4, 3]: <no parameter layers.7.weight is known; one is known once its module"
            " was called> 3"
        )


@pytest.mark.parametrize(
    "text",
    [
        "norm > 3",
        "fc.weight.grad changes 10x",
        "fc.weight.norm() changes 1x",
        "changes 3x",
        "1 > 0",
        "a " * 9_999,
    ],
)
def test_a_bad_bound_gives_one_sentence(text: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        Bound(text)
    assert "\n" not in str(caught.value)


SPECIAL = st.sampled_from(
    [0.0, 1.0, 9.9, 10.0, -10.0, 1e300, 1e-300, math.inf, -math.inf, math.nan]
)


@given(SPECIAL | st.floats(), SPECIAL | st.floats())
def test_what_changes_changes_both_ways(before: float, now: float) -> None:
    assert changed(before, now, 10) is changed(now, before, 10)
    if math.isfinite(before) and math.isfinite(now) and before and now:
        assert changed(before, now, 10) is (
            abs(before) >= 10 * abs(now) or abs(now) >= 10 * abs(before)
        )
    else:
        kinds = [(math.isfinite(each), each == 0) for each in (before, now)]
        assert changed(before, now, 10) is (kinds[0] != kinds[1])


class Series:
    """A scope in which a parameter's norm takes some values, one after the other."""

    def __init__(self) -> None:
        self.now: float | None = None

    def parameter(self, name: str) -> Any:
        return name

    def grad(self, tensor: Any) -> Any:
        return None if self.now is None else tensor

    def of(self, _: Any, what: str) -> Any:
        assert what == "norm"
        return self.now

    fact = slot = cast("Any", None)


def passed(bound: str, *series: float | None, tasks: list[int] | None = None) -> list[str]:
    """What a data breakpoint says at each of some values."""
    scope, watched = Series(), Watched()
    found = []
    for number, scope.now in zip(tasks or itertools.count(), series, strict=False):
        found.append(watched.passes(Bound(bound), cast("Any", scope), number))
    return found


def test_a_bound_is_passed_where_it_comes_to_hold() -> None:
    bound = "fc.weight.grad.norm() > 3"
    assert passed(bound, None, 1, 4, 5, 2, 6) == [
        *("", "", f"{bound}: 1 → 4", "", "", f"{bound}: 2 → 6")
    ]
    assert passed(bound, 4) == [f"{bound}: first → 4"]


def test_a_change_is_held_against_the_last_pass() -> None:
    bound = "fc.weight.grad.norm() changes 10x"
    assert passed(bound, 1, 9, 90, 91, 1) == ["", "", f"{bound}: 9 → 90", "", f"{bound}: 91 → 1"]
    assert passed(bound, 1, 5, 20, 30, tasks=[0, 0, 0, 1]) == ["", "", "", ""]
    assert passed(bound, 1, None, 20) == ["", "", f"{bound}: 1 → 20"]
    assert passed(bound, 1, math.nan, math.nan, 1)[1:] == [
        f"{bound}: 1 → nan",
        "",
        f"{bound}: nan → 1",
    ]
