"""Explaining non-finite gradients: rules by themselves, causal order, the verb, the API."""

from __future__ import annotations

import contextlib
import json
import os
import random
import sqlite3
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import agviz
from agviz.analysis.blame import Argument, Blame, Source
from agviz.analysis.evidence import Evidence, Received
from agviz.analysis.explanation import explain
from agviz.analysis.measures import bad
from agviz.analysis.origins import OriginKind, spread
from agviz.analysis.patterns import find, singular
from agviz.analysis.source import source_line
from agviz.cli.main import main
from agviz.errors import AgvizError, TraceError
from agviz.measure.values import Health
from agviz.traces.rows import ForwardOpRow, Frame, SavedHealthRow
from tests.gallery import anomaly
from tests.gallery_frame import programs
from tests.slow_cases import slow_but

if TYPE_CHECKING:
    from pathlib import Path

FINITE = Health(
    dtype="float32",
    shape=(4,),
    device="cpu",
    layout="strided",
    numel=4,
    nbytes=16,
    numbers=4,
    nan=0,
    posinf=0,
    neginf=0,
    zero=0,
    min=0.25,
    max=0.5,
    mean=0.4,
    norm=0.8,
    unknown="",
)
BAD = FINITE._replace(posinf=1)


def node(function: str, wrong: Health = BAD, **saved: Health | str) -> Evidence:
    """A node that was given finite gradients, put out ``wrong``, and had saved that."""
    rows = {
        name: SavedHealthRow(0, name, "", None, value)
        if isinstance(value, Health)
        else SavedHealthRow(0, name, "", value, None)
        for name, value in saved.items()
    }
    return Evidence(
        kind=OriginKind.NODE,
        node=f"{function}Backward0",
        received=(Received(0, ("SumBackward0",), FINITE),),
        outputs={0: wrong},
        wrong=wrong,
        saved=rows,
        consumers={0: ("AccumulateGrad",)},
    )


@pytest.mark.parametrize("function", sorted(singular.RULES))
def test_the_name_of_a_node_alone_is_no_reason(function: str) -> None:
    names = ("self", "other", "result", "result0", "result2", "input")
    evidence = node(function, exponent="0.5", **dict.fromkeys(names, FINITE))
    found = find(evidence)
    assert found is None or function == "Atan2", found


@pytest.mark.parametrize(
    ("function", "saved", "pattern"),
    [
        ("Sqrt", {"result": FINITE._replace(zero=1)}, "sqrt at zero"),
        ("Log", {"self": FINITE._replace(zero=1)}, "log of zero"),
        ("Log1P", {"self": FINITE._replace(min=-1.0)}, "log of zero"),
        ("Logit", {"self": FINITE._replace(max=1.0)}, "log of zero"),
        ("Xlogy", {"other": FINITE._replace(zero=1)}, "log of zero"),
        ("Div", {"other": FINITE._replace(zero=1)}, "division by zero"),
        ("Reciprocal", {"result": FINITE._replace(posinf=1)}, "division by zero"),
        ("Rsqrt", {"result": FINITE._replace(posinf=1)}, "sqrt at zero"),
        ("Exp", {"result": FINITE._replace(posinf=1)}, "overflow of exp"),
        ("Cosh", {"self": FINITE._replace(max=100.0)}, "overflow of exp"),
        ("Acos", {"self": FINITE._replace(max=1.0)}, "acos at the edge"),
        ("Atanh", {"self": FINITE._replace(min=-1.0)}, "atanh at the edge"),
        ("Hypot", {"result": FINITE._replace(zero=1)}, "norm at zero"),
        ("Std", {"self": FINITE._replace(numel=1)}, "standard deviation of one element"),
        (
            "NativeGroupNorm",
            {"result2": FINITE._replace(posinf=1)},
            "normalisation with zero variance",
        ),
    ],
)
def test_a_singular_point_is_named(function: str, saved: dict[str, Health], pattern: str) -> None:
    found = find(node(function, **saved))
    assert found is not None
    assert found.pattern == pattern
    assert found.reason
    assert found.remedy.endswith(".")


@pytest.mark.parametrize(("exponent", "is_named"), [("0.5", True), ("-1", True), ("2.0", False)])
def test_a_power_of_zero_depends_on_the_exponent(exponent: str, is_named: bool) -> None:
    evidence = node("Pow", self=FINITE._replace(zero=2), exponent=exponent)
    assert (find(evidence) is not None) is is_named


def blamed(function: str, wrong: Health, *given: Health, arguments: str = "") -> Evidence:
    """A node that met what a function of the forward made non-finite of ``given``."""
    op = ForwardOpRow(
        id=0,
        time_ns=0,
        thread=0,
        name=function,
        arguments=arguments,
        module=None,
        stack=(),
        grad_enabled=True,
        graph_task=0,
        recomputed_in=-1,
        sequence_nr=None,
        sequence_nrs=range(0),
        error="",
        inputs=(),
        outputs=(),
    )
    rows = tuple(Argument(str(place), "", "", health) for place, health in enumerate(given))
    return replace(node("MseLoss"), blame=Blame(op, Source.FUNCTION, rows, wrong, ""))


NAN = FINITE._replace(nan=1)
ZERO = FINITE._replace(zero=1, min=0.0)


@pytest.mark.parametrize(
    ("evidence", "pattern"),
    [
        (blamed("torch.sqrt", NAN, FINITE._replace(min=-1.0)), "sqrt outside its domain"),
        (blamed("Tensor.acosh", NAN, FINITE), "acosh outside its domain"),
        (blamed("Tensor.asin", NAN, FINITE._replace(max=1.1)), "asin outside its domain"),
        (blamed("torch.log", NAN, FINITE._replace(min=-1.0)), "log outside its domain"),
        (blamed("torch.atanh", BAD, FINITE._replace(max=1.0)), "atanh at the edge of its domain"),
        (blamed("torch.logit", BAD, FINITE._replace(max=1.0)), "logit at the edge of its domain"),
        (blamed("torch.logit", NAN, FINITE._replace(max=1.1)), "logit outside its domain"),
        (
            blamed("torch.erfinv", BAD, FINITE._replace(min=-1.0)),
            "erfinv at the edge of its domain",
        ),
        (blamed("torch.log", FINITE._replace(neginf=1), ZERO), "log of zero"),
        (blamed("Tensor.rsqrt", BAD, ZERO), "sqrt at zero"),
        (blamed("Tensor.__truediv__", NAN, FINITE, ZERO), "division by zero"),
        (blamed("Tensor.__rtruediv__", BAD, ZERO), "division by zero"),
        (blamed("Tensor.reciprocal", BAD, ZERO), "division by zero"),
        (blamed("Tensor.exp", BAD, FINITE._replace(max=100.0)), "overflow of exp"),
        (blamed("Tensor.pow", BAD, ZERO, arguments="tensor, -1"), "pow with zero base"),
        (
            blamed("Tensor.pow", NAN, FINITE._replace(min=-1.0), arguments="tensor, 0.5"),
            "pow of a negative base",
        ),
        (
            blamed("torch.nn.functional.softmax", NAN, FINITE._replace(neginf=2)),
            "softmax of a row of -inf",
        ),
        (
            blamed("torch.nn.functional.layer_norm", NAN, FINITE, arguments="tensor, eps=0.0"),
            "normalisation with zero variance",
        ),
        (blamed("torch.matmul", BAD, *[FINITE._replace(max=1e20)] * 2), "overflow in float32"),
        (blamed("torch.matmul", NAN, *[FINITE._replace(max=1e20)] * 2), "overflow in float32"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_function_of_the_forward_is_named(evidence: Evidence, pattern: str) -> None:
    found = find(evidence)
    assert found is not None
    assert found.pattern == pattern
    assert found.remedy.endswith(".")


@pytest.mark.parametrize(
    "function",
    ["sqrt", "rsqrt", "log", "log1p", "div", "reciprocal", "exp", "acos", "acosh", "pow",
     "softmax", "matmul"],
)  # fmt: skip
def test_the_name_of_a_function_alone_is_no_reason(function: str) -> None:
    harmless = FINITE._replace(min=1.0, max=1.0) if function == "acosh" else FINITE
    found = find(blamed(f"torch.{function}", NAN, harmless, harmless))
    assert found is not None
    assert found.pattern == "non-finite in the forward"


def test_an_overflow_needs_numbers_that_are_large_enough() -> None:
    large = FINITE._replace(max=300.0, dtype="float16")
    wrong = BAD._replace(dtype="float16")
    evidence = node("Mm", wrong, self=large)
    assert find(evidence) is None
    heavy = Received(0, ("SumBackward0",), FINITE._replace(max=300.0, dtype="float16"))
    facts: dict[str, Any] = {"wrong": wrong, "outputs": {0: wrong}, "saved": evidence.saved}
    heavier = Evidence(
        kind=OriginKind.NODE, node="MmBackward0", received=(heavy,), scale=512.0, **facts
    )
    found = find(heavier)
    assert found is not None
    assert found.pattern == "overflow in float16"
    assert "512" in found.remedy


def test_a_zero_gradient_is_a_trap_only_where_something_masked_it() -> None:
    wrong = FINITE._replace(nan=1)
    zeros = (Received(0, ("WhereBackward0",), FINITE._replace(zero=1)),)
    root = node("Sqrt", wrong, result=FINITE._replace(zero=1))
    facts: dict[str, Any] = {
        name: getattr(root, name) for name in ("kind", "node", "outputs", "wrong", "saved")
    }
    trapped = find(Evidence(**facts, received=zeros, zeroed_by="WhereBackward0"))
    plain = find(Evidence(**facts, received=zeros, zeroed_by=""))
    assert trapped is not None
    assert plain is not None
    assert (trapped.pattern, plain.pattern) == ("0 * inf behind torch.where", "sqrt at zero")


def test_origins_are_told_from_what_they_cause(tmp_path: Path) -> None:
    """Two that are independent, a sum that overflows, and what only passes through."""
    path = tmp_path / "t.agviz"
    with agviz.trace(path=path):
        x = torch.tensor([0.0, 1.0], requires_grad=True)
        (x.sqrt().sum() + x.log().sum()).backward()
        y = torch.ones(2, requires_grad=True)
        z = y * 1
        ((z * 3e38).sum() + (z * 3e38).sum()).backward()
        torch.autograd.grad((y * 2).sum(), y, torch.tensor(float("nan")))
    with agviz.Trace.open(path) as trace:
        first, second, third = (spread(trace, task.id) for task in trace.graph_tasks)
        assert first is not None
        names = {trace.node(o.graph_task, o.node).short_name for o in first.origins}
        assert names == {"SqrtBackward0", "LogBackward0"}
        assert {o.kind for o in first.origins} == {OriginKind.NODE}
        assert second is not None
        assert [o.kind for o in second.origins] == [OriginKind.SUM]
        assert third is not None
        assert [o.kind for o in third.origins] == [OriginKind.ROOT]
        assert (third.captured, third.leaves) == (1, ())
        found = explain(trace)
        assert found is not None
        assert found.later == 2
        assert found.paragraph.endswith("2 later backward passes had such gradients, too.")
        assert "In 1 other place" in found.paragraph
        third_found = explain(trace, trace.graph_tasks[2].id)
        assert third_found is not None
        assert "1 result of torch.autograd.grad" in third_found.paragraph


@pytest.mark.parametrize("check_forward", [True, False])
def test_what_the_same_function_of_the_forward_made_is_not_called_independent(
    check_forward: bool, tmp_path: Path
) -> None:
    """One NaN in the batch meets every term of the loss."""
    path = tmp_path / "t.agviz"
    model = nn.Linear(3, 3)
    with agviz.trace(model, path=path, check_forward=check_forward):
        batch = torch.ones(4, 3)
        scaled = (batch - batch.mean(0)) / batch.std(0)
        out = model(scaled)
        (out.exp().sum() + out.pow(2).mean() + (out - scaled).pow(2).mean()).backward()
    with agviz.Trace.open(path) as trace:
        found = explain(trace)
    assert found is not None
    assert len(found.spread.origins) > 1
    assert "independently" not in found.paragraph
    assert all("independent of it" not in line for line in found.details())
    assert "It came into this backward pass in 2 other places, too." in found.paragraph
    if check_forward:
        assert found.pattern == "normalisation with zero variance"
    else:
        assert found.pattern == "NaN in a tensor without a graph"


def test_only_what_another_function_made_is_independent(tmp_path: Path) -> None:
    """Two faults of the forward that have nothing to do with each other."""
    path = tmp_path / "t.agviz"
    with agviz.trace(path=path, check_forward=True):
        x = torch.ones(3, requires_grad=True)
        zero = x - x
        one = (x * (zero.detach() / zero.detach())).sum()
        two = (x * (zero.detach() - 1).sqrt()).sum()
        (one + two).backward()
    with agviz.Trace.open(path) as trace:
        found = explain(trace)
    assert found is not None
    assert len(found.spread.origins) == 2
    assert "In 1 other place of this backward pass" in found.paragraph
    assert "independently of it" in found.paragraph


@pytest.mark.parametrize("kind", [torch.bool, torch.float32])
def test_a_mask_that_keeps_nan_of_the_data_is_named(kind: torch.dtype, tmp_path: Path) -> None:
    """The program writes NaN itself, for what is missing: that is no fault."""
    path = tmp_path / "t.agviz"
    with agviz.trace(path=path, check_forward=True):
        weight = torch.ones(3, requires_grad=True)
        target = torch.arange(12.0).view(4, 3)
        known = (target > 3).to(kind)
        target[target < 2] = float("nan")
        error = (weight - target).square()
        loss = (error * known).sum()
        loss.backward()
    assert weight.grad is not None
    assert weight.grad.isnan().tolist() == [True, True, False]
    with agviz.Trace.open(path) as trace:
        found = explain(trace)
    assert found is not None
    assert found.pattern == "NaN in the data, multiplied by a mask"
    assert found.frame is not None
    assert found.frame.source == "loss = (error * known).sum()"
    assert "The data held 2 NaN among 12 numbers, which was written into it" in found.paragraph


@pytest.mark.parametrize("factor", [[0.0, 1.0, 1.0], [0.0, 0.5, 1.0], [1.0, 1.0, 1.0]])
def test_a_factor_that_is_no_mask_is_not_called_one(factor: list[float], tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    with agviz.trace(path=path, check_forward=True):
        weight = torch.ones(3, requires_grad=True)
        data = torch.tensor([float("nan"), float("nan"), 1.0])
        (weight * data * torch.tensor(factor)).sum().backward()
    with agviz.Trace.open(path) as trace:
        found = explain(trace)
    assert found is not None
    assert found.pattern == "NaN in the data"


def test_an_argument_of_zeros_is_told_where_no_pattern_fits(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    with agviz.trace(path=path, check_forward=True):
        layer = nn.Linear(3, 2)
        nn.init.zeros_(layer.weight)
        nn.utils.parametrizations.weight_norm(layer)(torch.ones(4, 3)).sum().backward()
    with agviz.Trace.open(path) as trace:
        found = explain(trace)
    assert found is not None
    assert "parametrizations.weight.original1 holds zeros only" in found.paragraph


def test_the_summary_sums_up_passes_that_broke_at_the_same_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.agviz"
    with agviz.trace(path=path):
        x = torch.ones(2, requires_grad=True)
        for step in range(16):
            y = x if step < 2 else (x * 0).sqrt()
            (y if step < 15 else (x * 0).log()).sum().backward()
    with agviz.Trace.open(path) as trace:
        first = trace.graph_tasks[0].id
    assert main(["summary", str(path)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("non-finite gradients begin at") == 1
    assert f"in backward pass {first + 2})" in said
    assert f"so do those of 9 later backward passes: {first + 3} to {first + 11}" in said
    assert f"4 more backward passes have non-finite gradients, the last {first + 15}" in said


def test_the_first_harmful_call_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    with agviz.trace(path=path):
        x = torch.randn(3, requires_grad=True)
        is_out = torch.tensor([True, False, False])
        masked = x.masked_fill(is_out, 0.0)
        torch.where(is_out, 0.0, masked.abs().sqrt()).sum().backward()
        (x * 0).sqrt().sum().backward()
    with agviz.Trace.open(path) as trace:
        numbers = [task.id for task in trace.graph_tasks]
        found, harmless = explain(trace), explain(trace, numbers[0])
        assert found is not None
        assert harmless is not None
        assert (found.graph_task, found.is_harmless) == (numbers[1], False)
        assert harmless.is_harmless
        assert str(harmless).startswith("no non-finite gradient reached a parameter")


def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.agviz"
    with agviz.trace(path=path) as t:
        model = nn.Linear(2, 2)
        model(torch.ones(1, 2)).sum().backward()
        assert t.explain() is None
        (model(torch.zeros(1, 2)) * 0).sqrt().sum().backward()
        answer = t.explain()
    assert answer is not None
    assert answer.pattern == "sqrt at zero"
    assert main(["explain", str(path)]) == 1
    short = capsys.readouterr().out
    last = t.graph_tasks[-1].id
    which = f"in backward pass {last} (the 2nd of 2)"
    assert short.startswith(f"✗ sqrt at zero, in SqrtBackward0, {which}\n")
    assert "test_explain.py:" in short
    assert all(len(line) <= 80 for line in short.splitlines())
    assert main(["explain", str(path), "--verbose"]) == 1
    assert "saved result: float32 [1, 2], 0, norm 0, 2 zeros" in capsys.readouterr().out
    first, second = (task.id for task in t.graph_tasks)
    assert main(["explain", str(path), "--graph-task", str(first)]) == 0
    fine = capsys.readouterr().out
    assert fine.startswith(f"✓ nothing unusual in backward pass {first}\n")
    assert "Not looked at: whether the gradients are right" in " ".join(fine.split())
    assert main(["explain", str(path), "--graph-task", "99999"]) == 2
    assert "holds no graph task 99999" in capsys.readouterr().err
    assert main(["explain", str(path), "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert facts["explanation"]["answer"] == str(answer)
    assert facts["explanation"]["graph_task"] == second
    assert facts["explanation"]["reached"] == ["bias", "weight"]
    assert main(["explain", str(path), "--json", "--graph-task", str(first)]) == 0
    assert json.loads(capsys.readouterr().out)["explanation"] is None


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("hook", "in what a hook gave"),
        (".grad", "in .grad"),
        ("root", "in the gradient given to backward"),
        ("sum", "in the sum of gradients that it receives"),
        ("node", "in its output 0"),
        ("grad", "in its output 0"),
    ],
)
def test_the_summary_says_where_it_began(
    where: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.agviz"
    with agviz.trace(path=path):
        x = torch.ones(2, requires_grad=True)
        y = x * 1
        if where == "hook":
            x.register_hook(lambda gradient: gradient / 0)
        elif where == ".grad":
            x.grad = torch.full((2,), float("nan"))
        elif where == "sum":
            y = y * 3e38 + y * 3e38
        elif where == "node":
            y = (y * 0).sqrt()
        if where == "grad":
            torch.autograd.grad((y * 0).sqrt().sum(), x)
        else:
            y.sum().backward(torch.tensor(float("inf")) if where == "root" else None)
    assert main(["summary", str(path)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert words in said
    assert "why: agviz explain" in said


def test_what_was_not_looked_at_is_not_called_finite(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    with agviz.trace(path=path, values="none"):
        (torch.zeros(1, requires_grad=True)).sqrt().backward()
    with agviz.Trace.open(path) as trace, pytest.raises(AgvizError, match="--values none"):
        explain(trace)


def test_a_flight_recorder_that_only_checked_still_names_the_node(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    with agviz.trace(path=path, values="none", on="nonfinite"):
        (torch.zeros(1, requires_grad=True) * 1).sqrt().sum().backward()
    with agviz.Trace.open(path) as trace:
        found = explain(trace)
    assert found is not None
    assert found.node.short_name == "SqrtBackward0"
    assert found.pattern is None
    assert "No known pattern fits." in found.paragraph


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize(
    "name", ["recurrence_that_explodes", "log_in_a_reentrant_checkpoint", "two_device_threads"]
)
def test_origins_are_those_of_a_plain_search(name: str, tmp_path: Path) -> None:
    """By the definition: what is non-finite, though nothing that it was made of is."""
    (program,) = [one for one in programs("nonfinite") if one.name == name]
    path = tmp_path / "t.agviz"
    program.record(path)
    with agviz.Trace.open(path) as trace:
        found: set[tuple[int, int]] = set()
        for task in trace.graph_tasks:
            rows = trace.health(task.id)
            wrong = {(r.node, r.slot) for r in rows if r.role == "output" and bad(r)}
            given = {e.consumer for e in trace.edges(task.id) if (e.producer, e.output) in wrong}
            given |= {r.node for r in rows if r.role in {"sum", "root"} and bad(r)}
            inside = {t.parent_node for t in trace.graph_tasks if t.parent == task.id}
            found |= {(task.id, n) for n, _ in wrong if n not in given and n not in inside}
        assert found
        outermost = next(task.id for task in trace.graph_tasks if task.parent < 0)
        told = spread(trace, outermost)
        assert told is not None
        assert {(o.graph_task, o.node) for o in told.origins} == found


def test_what_was_left_out_is_not_called_finite(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    with agviz.trace(path=path, nodes="Mul"):
        x = torch.zeros(2, requires_grad=True)
        (x * 2).sqrt().sum().backward()
    with agviz.Trace.open(path) as trace:
        found = explain(trace)
    assert found is not None
    assert "it may have begun before" in found.paragraph


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("seed", slow_but({"0", "1", "2", "3"}, range(12)))
def test_no_lie_of_a_file_is_believed(seed: int, tmp_path: Path) -> None:
    """Whatever stands in it: an answer, or one sentence that says that it is damaged."""
    rng = random.Random(seed)
    (program,) = [one for one in programs("nonfinite") if one.name == "scaler_in_autocast"]
    path = tmp_path / "t.agviz"
    program.record(path, check_forward=True)
    good = path.read_bytes()
    values = (-1, 0, 1, 7, 10**6, 2**62, -(2**62), "NULL", "9e999", "0.5", "'text'", "x'00'")
    with sqlite3.connect(path) as database:
        tables = [
            (table, [row[1] for row in database.execute(f"PRAGMA table_info({table})")])
            for (table,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        ]
    database.close()
    for _ in range(40):
        path.write_bytes(good)
        database = sqlite3.connect(path, isolation_level=None)
        database.create_function("one_in", 1, lambda count: rng.randrange(count) == 0)
        for _ in range(rng.randrange(1, 4)):
            table, columns = rng.choice(tables)
            where = f"WHERE one_in({rng.choice((1, 2, 9))})"
            with contextlib.suppress(sqlite3.Error):
                database.execute(
                    f"UPDATE {table} SET {rng.choice(columns)} = {rng.choice(values)} {where}"  # noqa: S608
                )
        database.close()
        try:
            with agviz.Trace.open(path) as trace:
                found = explain(trace)
                if found is not None:
                    json.dumps(found.as_json(), allow_nan=False)
                    assert "\n" not in found.paragraph + "".join(found.details())
        except AgvizError as error:
            assert str(path.name) in str(error)  # noqa: PT017 - either is right


def test_gradients_that_begin_nowhere_are_a_lie(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    with agviz.trace(path=path):
        torch.zeros(2, requires_grad=True).sqrt().sum().backward()
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("UPDATE edge SET consumer = producer WHERE producer > 0")
    database.close()
    with agviz.Trace.open(path) as trace, pytest.raises(TraceError, match="begin nowhere"):
        explain(trace)


def test_a_damaged_file_is_no_answer(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    path.write_bytes(b"no trace")
    with pytest.raises(TraceError):
        agviz.load(path)


def test_only_source_is_read_and_only_where_there_is_some(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("x = 1\n    y = x\x1b[31m.sqrt()\n", encoding="utf-8")
    (tmp_path / "secret.txt").write_text("secret\n", encoding="utf-8")
    os.mkfifo(tmp_path / "pipe.py")
    trace = tmp_path / "t.agviz"

    def line(file: str, number: int) -> str:
        return source_line(Frame(file, number, "f", hidden=False), trace)

    assert line("train.py", 1) == "x = 1"
    assert line(str(script), 2).startswith("y = x")
    assert "\x1b" not in line(str(script), 2)
    assert line("train.py", 3) == ""
    assert line("gone.py", 1) == ""
    assert line(str(tmp_path / "secret.txt"), 1) == ""
    assert line("pipe.py", 1) == ""
    assert line("train.py\0", 1) == ""


@pytest.mark.slow
def test_the_table_beside_anomaly_mode_is_up_to_date() -> None:
    found = anomaly.rows()
    assert len(found) == len(programs("nonfinite"))
    document = anomaly.DOCUMENT.read_text(encoding="utf-8")
    assert anomaly.written(document, anomaly.table(found)) == document
