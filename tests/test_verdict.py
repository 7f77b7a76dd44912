"""Never a tick over a failure: what is said of passes that raised, were cut, refused or are NaN."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import agviz
from agviz.analysis.outcome import Outcome
from agviz.analysis.pass_marks import PassMark, marks
from agviz.analysis.verdict import verdicts
from agviz.cli.main import main
from agviz.traces.reader import Trace
from tests.gallery_frame import Program, programs
from tests.test_cli_run import agviz as command

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agviz.record.capture_level import CaptureLevel

MODEL = """
import os, torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
def loss():
    return model(torch.randn(5, 4)).pow(2).mean()
"""


def run(tmp_path: Path, program: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a program as a user does; its trace is ``t.agviz``."""
    (tmp_path / "program.py").write_text(MODEL + textwrap.dedent(program))
    return command("run", "-o", "t.agviz", *options, "program.py", cwd=tmp_path)


def said(capsys: pytest.CaptureFixture[str], *call: object) -> tuple[int, str]:
    """Exit code and words of a verb, on one line."""
    capsys.readouterr()
    code = main([str(each) for each in call])
    return code, " ".join(capsys.readouterr().out.split())


def test_a_hook_that_raises_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = """
        def clip(gradient):
            if step == 2:
                raise ValueError("too large to clip")
        model[0].weight.register_hook(clip)
        for step in range(4):
            loss().backward()
    """
    ended = run(tmp_path, program)
    assert ended.returncode == 1
    assert "backward pass 2 failed in the tensor hook clip" in ended.stderr
    code, words = said(capsys, "explain", tmp_path / "t.agviz")
    assert code == 1
    assert "✓" not in words
    for part in ("backward pass 2", "clip", "0.weight", "ValueError", "too large to clip"):
        assert part in words
    assert "program.py:10 in clip" in words
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert marks(trace) == {2: PassMark.FAILED}


@pytest.mark.slow_but_one_in(2)
@pytest.mark.parametrize(
    ("bad", "others"),
    [
        ((3,), ""),
        ((1, 3), "Backward pass {} failed, too."),
        ((0, 2, 4), "Backward passes {} and {} failed, too."),
        ((0, 1, 2, 3, 4, 5), "Backward passes {}, {}, {} and 2 more failed, too."),
    ],
)
def test_every_pass_that_raised_and_was_caught_is_told(
    bad: tuple[int, ...], others: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.agviz"
    weight = torch.ones(3, requires_grad=True)
    with agviz.trace(path=path):
        for step in range(7):

            def look_up(_: torch.Tensor, step: int = step) -> None:
                if step in bad:
                    raise KeyError(8)

            loss = (weight * 2).sum()
            loss.register_hook(look_up)
            with contextlib.suppress(KeyError):
                loss.backward()
    code, words = said(capsys, "explain", path)
    assert code == 1
    with Trace.open(path) as trace:
        first = trace.graph_tasks[0].id  # they are counted on in this process
    assert f"backward pass {first + bad[-1]} failed" in words
    assert "KeyError: 8. It was raised in" in words, "a bare 8 is no sentence"
    assert words.endswith(others.format(*(first + number for number in bad)))
    assert ("failed, too" in words) is bool(others)
    _, words = said(capsys, "explain", "--graph-task", first + bad[0], path)
    assert "failed, too" not in words, "one pass was asked about"


NEVER = {
    "computed under no_grad": "with torch.no_grad():\n    extra = head(body(x)).mean()",
    "detached by mistake": "extra = head(body(x)).detach().mean()",
    "left out of the loss": "head(body(x)); extra = 0.0",
}


@pytest.mark.parametrize(
    ("kind", "steps"),
    [(kind, 3) for kind in NEVER]
    + [pytest.param("detached by mistake", steps, marks=pytest.mark.slow) for steps in (1, 25)],
)
def test_a_tick_names_the_parameters_that_no_pass_leads_to(
    kind: str, steps: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As native torch has it: their ``.grad`` is None when the program ends."""
    program = f"""
body, head, tail = nn.Linear(4, 8), nn.Linear(8, 2), nn.Linear(8, 1)
tail.bias.requires_grad_(False)
x = torch.randn(5, 4)
for _ in range({steps}):
    {NEVER[kind].replace(chr(10), chr(10) + "    ")}
    (tail(body(x)).mean() + extra).backward()
parameters = nn.ModuleDict(dict(body=body, head=head, tail=tail)).named_parameters()
print([name for name, each in parameters if each.grad is None and each.requires_grad])
"""
    ended = run(tmp_path, program)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "['head.weight', 'head.bias']\n"
    assert "got no gradient" in ended.stderr
    assert "to read why: agviz why t.agviz" in ended.stderr
    code, words = said(capsys, "explain", tmp_path / "t.agviz")
    assert code == 0
    assert "2 of 5 parameters got no gradient" in words
    assert ("in the last 20 backward passes" in words) is (steps > 20)
    assert "tail" not in words
    code, words = said(capsys, "explain", "--graph-task", 0, tmp_path / "t.agviz")
    assert "2 of 5 parameters got no gradient (" in words


def test_parameters_that_take_turns_are_not_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = """
    generator, critic = nn.Linear(4, 4), nn.Linear(4, 1)
    for step in range(4):
        made = generator(torch.randn(5, 4))
        critic(made.detach()).mean().backward()
        critic.requires_grad_(False)
        critic(made).mean().backward()
        critic.requires_grad_(True)
    """
    ended = run(tmp_path, program)
    assert "to look at it: agviz view t.agviz" in ended.stderr, ended.stderr
    _, words = said(capsys, "explain", tmp_path / "t.agviz")
    assert "got no gradient" not in words


@pytest.mark.parametrize("kind", ["post_hook", "node", "final_callback", "post_accumulate_grad"])
def test_whatever_raises_is_named(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Variants that no rule was made for."""

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(_ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(_ctx: Any, _gradient: torch.Tensor) -> Any:
            raise KeyError("no such key")

    def fails(*_: Any) -> None:
        raise KeyError("no such key")

    path = tmp_path / "t.agviz"
    with contextlib.suppress(KeyError), agviz.trace(path=path):
        x = torch.ones(3, requires_grad=True)
        y: Any = cast("Any", Doubled).apply(x) if kind == "node" else x * 2
        if kind == "post_hook":
            y.grad_fn.register_hook(fails)
        if kind == "post_accumulate_grad":
            x.register_post_accumulate_grad_hook(fails)
        if kind == "final_callback":
            engine = torch.autograd.Variable._execution_engine
            y.register_hook(lambda _: engine.queue_callback(fails))
        y.sum().backward()
    code, words = said(capsys, "explain", path)
    assert code == 1
    assert "KeyError" in words
    assert ("Doubled" if kind == "node" else "fails") in words
    assert "test_verdict.py" in words


@pytest.mark.slow
def test_gloo_that_times_out_in_a_hook(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = f"""
        import datetime, torch.distributed as dist
        store = dist.FileStore({str(tmp_path / "store")!r}, 2)
        rank = int(os.environ["RANK_"])
        dist.init_process_group("gloo", store=store, rank=rank, world_size=2,
                                timeout=datetime.timedelta(seconds=3))
        def average(parameter):
            if rank == 0:
                dist.all_reduce(parameter.grad)
        model[2].weight.register_post_accumulate_grad_hook(average)
        loss().backward()
        import time; time.sleep(0 if rank == 0 else 12)
    """
    (tmp_path / "program.py").write_text(MODEL + textwrap.dedent(program))
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    other = subprocess.Popen(
        [sys.executable, "program.py"], cwd=tmp_path, env=environment | {"RANK_": "1"}
    )
    try:
        subprocess.run(
            [sys.executable, "-m", "agviz", "run", "-o", "t.agviz", "program.py"],
            cwd=tmp_path, env=environment | {"RANK_": "0"}, check=False, capture_output=True,
            timeout=300,
        )  # fmt: skip
    finally:
        other.kill()
        other.wait()
    code, words = said(capsys, "explain", tmp_path / "t.agviz")
    assert code == 1
    assert "✓" not in words
    assert "average" in words
    assert "2.weight" in words


def test_a_process_that_leaves_in_backward(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = """
        def leave(gradient):
            if step == 1:
                os._exit(7)
        model[0].weight.register_hook(leave)
        for step in range(3):
            loss().backward()
    """
    assert run(tmp_path, program).returncode == 7
    code, words = said(capsys, "explain", tmp_path / "t.agviz")
    assert code == 1
    assert words.startswith(
        "✗ backward pass 1 was under way when the program called os._exit program.py:10 in leave"
    )
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert marks(trace) == {1: PassMark.CUT}


def test_a_call_that_torch_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = """
        def evaluate():
            torch.set_grad_enabled(False)
            return loss()
        for step in range(3):
            loss().backward()
            if step == 1:
                evaluate()
    """
    run(tmp_path, program)
    code, words = said(capsys, "explain", tmp_path / "t.agviz")
    assert code == 1
    assert "✓" not in words
    assert "no graph: gradients were off from program.py:9 in evaluate" in words
    assert "program.py:12 in <module>" in words


@pytest.mark.parametrize("is_off", [True, False])
def test_a_refused_call_that_is_caught(
    is_off: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.agviz"
    x = torch.ones(3, requires_grad=True)
    with agviz.trace(path=path):
        (x * 2).sum().backward()
        with torch.no_grad():
            loss = (x * 2).sum()
        with (
            torch.no_grad() if is_off else contextlib.nullcontext(),
            pytest.raises(RuntimeError, match="does not require grad"),
        ):
            loss.backward()
    code, words = said(capsys, "explain", path)
    assert code == 1
    assert ("gradients were off from" in words) is is_off
    assert ("the loss requires no gradient" in words) is not is_off
    assert torch.autograd.grad_mode.set_grad_enabled.__init__.__module__.startswith("torch")


def test_a_penalty_on_gradients_without_a_graph(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.agviz"
    x = torch.ones(3, requires_grad=True)
    with agviz.trace(path=path):
        (gradient,) = torch.autograd.grad((x * x).sum(), x)
        with pytest.raises(RuntimeError, match="does not require grad"):
            gradient.norm().backward()
    _, words = said(capsys, "explain", path)
    assert "The pass before was autograd.grad at" in words
    assert "without create_graph=True" in words


def test_a_loss_that_is_no_scalar(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, "loss().backward(); model(torch.randn(5, 4)).backward()")
    code, words = said(capsys, "explain", tmp_path / "t.agviz")
    assert code == 1
    assert "the loss is no scalar" in words


LOSSES: dict[str, tuple[Callable[[nn.Module], torch.Tensor], str]] = {
    "ignored targets": (
        lambda m: nn.functional.cross_entropy(m(torch.randn(5, 4)), torch.full((5,), -100)),
        "every target is ignore_index (-100)",
    ),
    "ignored targets, beside another term": (
        lambda m: (
            0.1 * m(torch.ones(1, 4)).sum()
            + nn.functional.cross_entropy(m(torch.randn(2, 4)), torch.full((2,), 3), ignore_index=3)
        ),
        "every target is ignore_index (3)",
    ),
    "mean of nothing": (
        lambda m: m(torch.randn(5, 4))[torch.zeros(5, dtype=torch.bool)].mean(),
        "a mean over no numbers",
    ),
    "a term without gradient": (
        lambda m: m(torch.randn(5, 4)).sum() + torch.zeros(()).log().detach() * 0,
        "why is not known",
    ),
}


@pytest.mark.slow_but_one_in(5)
@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_that_is_not_finite(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make, why = LOSSES[name]
    model = nn.Linear(4, 3)
    path = tmp_path / "t.agviz"
    with agviz.trace(path=path):
        for step in range(3):
            value = make(model) if step == 1 else model(torch.randn(5, 4)).pow(2).mean()
            value.backward()
            assert bool(value.isnan()) is (step == 1)
    assert all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None)
    code, words = said(capsys, "explain", path)
    assert code == 1
    assert "✓" not in words
    assert re.search(r"the loss of backward pass \d+ \(the 2nd of 3\) is NaN", words)
    assert why in words
    with Trace.open(path) as trace:
        assert list(marks(trace).values()) == [PassMark.LOSS]


@pytest.mark.slow
def test_recursion_is_summed_up_and_times_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Events go on all the while; the timeout counts the pass."""
    program = """
        import time
        w = torch.ones(3, requires_grad=True)
        @torch.enable_grad()
        def smooth(gradient):
            time.sleep(0.02)
            h = w * 2
            h.register_hook(smooth)
            h.sum().backward()
        x = w * 3
        x.register_hook(smooth)
        x.sum().backward()
    """
    ended = run(tmp_path, program, "--timeout", "3", "--stop-on-timeout")
    assert ended.returncode == 124
    assert "a backward pass has been under way for 3 s" in ended.stderr
    code, words = said(capsys, "explain", tmp_path / "t.agviz")
    assert code == 1
    assert len(words) < 2_000
    assert "The tensor hook smooth (program.py:10) calls backward, in which it is called" in words
    assert words.count("smooth") < 12


@pytest.mark.slow
def test_a_program_that_hangs_outside_of_backward(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = """
        import threading
        lock = threading.Lock()
        def save():
            with lock, lock:
                pass
        loss().backward()
        save()
    """
    (tmp_path / "program.py").write_text(MODEL + textwrap.dedent(program))
    call = [sys.executable, "-m", "agviz", "run", "-o", "t.agviz", "program.py"]
    child = subprocess.Popen(call, cwd=tmp_path)
    path = tmp_path / "t.agviz"
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            time.sleep(0.3)
            with contextlib.suppress(agviz.AgvizError), Trace.open(path) as trace:
                if len(trace.dumps()) > 1:  # after two seconds it is too soon to say something
                    break
        code, words = said(capsys, "explain", path)
    finally:
        child.kill()
        child.wait()
    assert code == 2
    assert words.startswith("? no backward is running; MainThread is at program.py:11 in save")
    code, words = said(capsys, "explain", path)  # after it was killed
    assert code == 1
    assert words.startswith("✗ the recording was cut off after backward pass 0")
    assert "MainThread was at program.py:11 in save" in words
    assert "For at least" in words


def test_nothing_unusual_says_what_was_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = nn.Linear(4, 3)
    levels: tuple[CaptureLevel, ...] = ("health", "none")
    paths = [tmp_path / f"{values}.agviz" for values in levels]
    for path, values in zip(paths, levels, strict=True):
        with agviz.trace(path=path, values=values):
            model(torch.randn(5, 4)).sum().backward()
    code, words = said(capsys, "explain", paths[0])
    assert code == 0
    assert words.startswith("✓ nothing unusual in 1 backward pass")
    assert "Not looked at: whether the gradients are right" in words
    code, words = said(capsys, "explain", paths[1])
    assert code == 2
    assert words.startswith("? whether gradients are finite can't be told of 1 backward pass")
    code, words = said(capsys, "diff", paths[1], paths[1])
    assert "✓" not in words
    code, words = said(capsys, "diff", paths[0], paths[0])
    assert "✓ No difference" in words


def ticked(path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The verbs that put a tick on a whole recording."""
    found = []
    for verb in (["explain", path], ["summary", path], ["diff", path, path]):
        _, words = said(capsys, *verb)
        if "✓" in words:
            found.append(f"{verb[0]}: {words}")
    said_json = json.loads(_json(capsys, path))
    if said_json["verdicts"][0]["outcome"] == Outcome.NOTHING_UNUSUAL:
        found.append("explain --json")
    return found


def _json(capsys: pytest.CaptureFixture[str], path: Path) -> str:
    capsys.readouterr()
    main(["explain", "--json", str(path)])
    return capsys.readouterr().out


BAD = [*programs("nonfinite"), *programs("version")]


def by_name(program: Program) -> str:
    return f"{program.kind}/{program.name}"


@pytest.mark.filterwarnings("ignore:std\\(\\). degrees of freedom:UserWarning")
@pytest.mark.slow_but_one_in(80)
@pytest.mark.parametrize("program", BAD, ids=by_name)
def test_no_tick_over_the_gallery(
    program: Program, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.agviz"
    with contextlib.suppress(RuntimeError):
        program.record(path)
    assert not ticked(path, capsys)


KINDS = ("fine", "nan", "hook", "refused", "loss", "inside")


def _pass(kind: str, model: nn.Module) -> None:
    loss = model(torch.randn(2, 4)).pow(2).mean()
    if kind == "nan":
        loss = loss + (model(torch.zeros(2, 4)) * 0).sqrt().sum()
    elif kind == "hook":
        loss.register_hook(lambda _: 1 / 0)
    elif kind == "refused":
        loss = loss.detach()
    elif kind == "loss":
        loss = loss + torch.tensor(float("nan"))
    elif kind == "inside":
        inner = (torch.ones(1, requires_grad=True) * 0).sqrt().sum()

        def call(_: torch.Tensor) -> None:
            with contextlib.suppress(RuntimeError):
                inner.register_hook(lambda _: 1 / 0)
                inner.backward()

        loss.register_hook(call)
    with contextlib.suppress(RuntimeError, ZeroDivisionError):
        loss.backward()


@settings(
    max_examples=settings().max_examples // 40,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=4),
    cut=st.booleans(),
    parameterless=st.booleans(),
)
def test_no_tick_over_drawn_failures_and_cut_files(
    kinds: list[str],
    cut: bool,
    parameterless: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "t.agviz"
    path.unlink(missing_ok=True)
    model = nn.Sequential(nn.Linear(4, 3, bias=not parameterless), nn.Tanh())
    left = tmp_path / "cut.agviz"
    with agviz.trace(path=path) as t:
        for kind in kinds:
            _pass(kind, model)
        if cut:
            assert t.trace.graph_tasks  # what has happened is in the file now
            for end in ("", "-wal"):
                shutil.copy(f"{path}{end}", f"{left}{end}")
    if cut:
        with contextlib.closing(sqlite3.connect(left)) as database, database:
            database.execute("UPDATE meta SET value = '999999999' WHERE key = 'pid'")
        path = left
    if cut or set(kinds) != {"fine"}:
        assert not ticked(path, capsys)
    else:
        with Trace.open(path) as trace:
            assert [v.outcome for v in verdicts(trace)] == [Outcome.NOTHING_UNUSUAL]


def test_a_pass_of_another_thread_that_goes_on_after_the_recording_is_no_fault(
    tmp_path: Path,
) -> None:
    is_inside, may_go_on = threading.Event(), threading.Event()
    weight = torch.ones(2, requires_grad=True)

    def hold(gradient: torch.Tensor) -> None:
        is_inside.set()
        may_go_on.wait()

    def train() -> None:
        product = weight * 2
        product.register_hook(hold)
        product.sum().backward()

    for before in (0, 1):
        training = threading.Thread(target=train)
        with agviz.trace(path=tmp_path / f"{before}.agviz"):
            for _ in range(before):
                (weight * 3).sum().backward()
            training.start()
            is_inside.wait()
        may_go_on.set()
        training.join()
        is_inside.clear()
        may_go_on.clear()
    with Trace.open(tmp_path / "0.agviz") as trace:
        found = verdicts(trace)[0]
        number = trace.graph_tasks.ids[0]
    assert found.outcome is Outcome.CANT_TELL
    assert found.heading == f"backward pass {number} was under way when the recording ended"
    with Trace.open(tmp_path / "1.agviz") as trace:
        (found,) = verdicts(trace)
    assert found.outcome is Outcome.NOTHING_UNUSUAL
    assert "came to their end but 1 that was under way when the recording ended" in found.paragraph
