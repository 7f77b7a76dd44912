"""Tests that call backward so often that only some of the passes are recorded."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from agviz.record.options import SomePasses
from tests.plugin.support import files, folders, run, section

pytest_plugins = ["pytester"]

PLAN = SomePasses()
MANY = PLAN.first + PLAN.every
TRAINING = f"""
import hashlib
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

MANY = {MANY}


def train(passes, odd=None, at=-1):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    batch = torch.randn(16, 4)
    for number in range(passes):
        optimizer.zero_grad()
        out = model(batch)
        loss = (out - batch.sum(1, keepdim=True)).pow(2).mean()
        if number == at and odd == "nan":
            loss = loss + (out * 0).pow(2).sum().sqrt()
        loss.backward()
        if number == at and odd == "twice":
            loss.backward()
        optimizer.step()
    return model, loss
"""
WRONG = """

def test_wrong():
    _, loss = train(MANY)
    assert loss.item() < -1
"""
FAILING = (
    TRAINING
    + """

def test_nan():
    model, loss = train(300, "nan", 250)
    assert torch.isfinite(loss)


def test_nan_at_the_end():
    model, _ = train(251, "nan", 250)
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


def test_twice():
    train(300, "twice", 250)


def test_piles_up():
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for _ in range(300):
        model(torch.ones(8, 4)).pow(2).mean().backward()
        optimizer.step()
    assert model(torch.ones(8, 4)).sum() == 0


def test_accumulates():
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for number in range(MANY):
        model(torch.randn(8, 4)).pow(2).mean().backward()
        if number % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
    assert model(torch.ones(8, 4)).sum() == 0


@pytest.mark.agviz
def test_marked():
    train(300)
    assert False


def test_asks(agviz):
    train(300)
    assert len(agviz.trace.graph_tasks) == 300
    assert False
"""
)
SAME = (
    TRAINING
    + """

class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        called.append(torch._C._current_graph_task_id() >= 0)
        return g * 2


called = []


def test_hooks_and_checkpoints():
    torch.manual_seed(0)
    first, last = nn.Linear(4, 8), nn.Linear(8, 1)
    parameters = [*first.parameters(), *last.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)
    last.weight.register_hook(lambda g: (called.append("hook"), g * 0.5)[1])
    for number in range(260):
        batch = torch.randn(8, 4, requires_grad=True)
        hidden = checkpoint(lambda x: first(x).tanh(), batch, use_reentrant=bool(number % 2))
        loss = Twice.apply(last(hidden)).pow(2).mean()
        (slope,) = torch.autograd.grad(last(first(batch)).sum(), batch, create_graph=True)
        optimizer.zero_grad()
        (loss + slope.pow(2).sum()).backward()
        optimizer.step()
    state = b"".join(p.detach().numpy().tobytes() for p in parameters)
    print("SUM", hashlib.sha256(state).hexdigest(), len(called), called.count(True))


def test_warns_once():
    with pytest.warns(UserWarning, match="create_graph=True") as told:
        for _ in range(150):
            w = torch.ones(2, requires_grad=True)
            w.pow(2).sum().backward(create_graph=True)
            w.grad = None
    print("WARNED", len(told))
"""
)


def _trace(pytester: pytest.Pytester, test: str) -> Path:
    return pytester.path / "agviz-results" / f"test_it.py--{test}" / "trace.agviz"


def _passes(trace: Path) -> tuple[int, list[tuple[int, ...]]]:
    with closing(sqlite3.connect(trace)) as file:
        (kept,) = file.execute("SELECT count(*) FROM graph_task").fetchone()
        return kept, file.execute("SELECT last - first + 1, passes FROM left_out").fetchall()


def test_some_passes_are_recorded_and_the_answer_says_so(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=TRAINING + WRONG)
    output = run(pytester, "--agviz=retain-on-failure").stdout.str()

    between = PLAN.every - PLAN.few
    assert _passes(_trace(pytester, "test_wrong")) == (PLAN.first + PLAN.few, [(between, between)])
    words = " ".join(section(output, "test_wrong").split())
    assert f"no anomaly found in {PLAN.first + PLAN.few} backward passes" in words
    assert f"Of {MANY:,} backward passes the file has {PLAN.first + PLAN.few}" in words
    assert "--agviz-keep=200MB records all" in words

    with closing(sqlite3.connect(_trace(pytester, "test_wrong"))) as file:
        ((last,),) = file.execute("SELECT last FROM left_out").fetchall()
        of_step = "SELECT sequence_nr FROM optimizer_step WHERE graph_task = ?"
        of_forward = "SELECT min(sequence_nr) FROM node WHERE graph_task = ?"
        ((made,),) = file.execute(of_step, (last,)).fetchall()
        assert made <= file.execute(of_forward, (last + 1,)).fetchone()[0]  # it came before


@pytest.mark.slow
def test_what_fails_among_passes_left_out_is_named(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=FAILING)
    output = run(pytester, "--agviz=retain-on-failure").stdout.str()
    said = [" ".join(section(output, f"test_nan{end}").split()) for end in ("", "_at_the_end")]
    assert all(each.startswith("NaN or infinities in the gradient of") for each in said)
    assert "That pass was left out" in said[0]
    kept, gone = _passes(_trace(pytester, "test_nan"))
    assert kept == PLAN.first + 49  # those after it
    assert [passes for _, passes in gone] == [251 - PLAN.first]

    words = " ".join(section(output, "test_twice").split())
    assert ", which was not recorded, raised RuntimeError" in words
    assert "test_it.py:" in words
    assert "backward through the graph a second time" in words

    words = " ".join(section(output, "test_piles_up").split())
    assert words.startswith("gradients pile up from step to step of SGD")
    assert f"That is of the first {PLAN.first} backward passes" in words
    assert section(output, "test_accumulates").startswith("no anomaly found")

    for name in ("test_marked", "test_asks"):
        assert _passes(_trace(pytester, name)) == (300, [])


@pytest.mark.slow
def test_all_are_recorded_where_all_were_asked_for(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=TRAINING + "\n\ndef test_it():\n    train(300)\n")
    run(pytester, "--agviz=on")
    assert _passes(_trace(pytester, "test_it")) == (300, [])
    pytester.makepyfile(test_it=TRAINING + "\n\ndef test_it():\n    train(300, 'twice', 250)\n")
    said = run(pytester, "--agviz=retain-on-failure", "--agviz-keep=200MB").stdout.str()
    assert "backward through the graph a second time, in" in said
    assert _passes(_trace(pytester, "test_it")) == (252, [])
    pytester.makepyfile(test_it=TRAINING + "\n\ndef test_it():\n    train(3)\n")
    run(pytester, "--agviz=on")
    run(pytester, "--agviz=retain-on-failure", "--agviz-compare=agviz-results", "--agviz-output=x")
    assert "test_it.py--test_it" not in folders(pytester.path / "x")
    assert "trace.agviz" in files(_trace(pytester, "test_it").parent)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["exact", pytest.param("native", marks=pytest.mark.slow)])
def test_nothing_changes_for_the_program(pytester: pytest.Pytester, engine: str) -> None:
    pytester.makepyfile(test_it=SAME)
    told = []
    for mode in ("off", "retain-on-failure"):
        done = run(pytester, "-s", f"--agviz={mode}", f"--agviz-engine={engine}", fresh=True)
        done.assert_outcomes(passed=2)
        lines = done.stdout.str().splitlines()
        told.append([line.lstrip(".") for line in lines if "SUM" in line or "WARNED" in line])
    assert len(told[0]) == 2
    assert told[1] == told[0]


@pytest.mark.slow
def test_a_pass_that_was_left_out_and_hangs_is_no_tick(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it="""
        import time, torch

        def test_hangs():
            w = torch.ones(3, requires_grad=True)
            for number in range(300):
                loss = (w * 2).sum()
                if number == 250:
                    loss.register_hook(lambda g: time.sleep(60))
                loss.backward()
        """
    )
    timeout = ("--timeout=5", "--timeout-method=thread")
    said = run(pytester, "--agviz=retain-on-failure", *timeout).stdout.str()
    assert "backward pass 250 had not ended" in said
    assert "That pass was left out" in said


def test_a_subtest_says_what_ran_unseen(pytester: pytest.Pytester) -> None:
    pytest.importorskip("pytest", minversion="9", reason="subtests came with pytest 9")
    pytester.makepyfile(
        test_it=TRAINING
        + """

def test_it(subtests):
    with subtests.test("early"):
        train(150)
        assert False
    with subtests.test("later"):
        train(50)
        assert False
"""
    )
    said = run(pytester, "--agviz=retain-on-failure").stdout.str()
    assert "no anomaly found in 0 backward passes; 50 backward passes ran unseen" in said
