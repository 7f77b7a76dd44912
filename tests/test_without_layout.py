"""What is measured and recorded where torch's objects can't be read in memory."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from agviz.measure import saved_tensors
from agviz.measure.saved_tensors import PackingHooks
from agviz.record.modified import modified
from agviz_engine import tensor_facts, torch_layout

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
PROGRAM = ROOT / "tests" / "facts_program.py"


def facts(*arguments: str) -> dict[str, Any]:
    """What the program says in a process of its own."""
    ended = subprocess.run(
        [sys.executable, str(PROGRAM), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "engine")])},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


@pytest.mark.slow
def test_all_is_the_same_where_memory_can_not_be_read() -> None:
    read, asked = facts(), facts("hidden")
    assert (read.pop("reads memory"), asked.pop("reads memory")) == (True, False)
    recorded = read["facts"]["recorded"]
    assert recorded["asked"] == 0, "no mode of the program sees what provenance asks"
    assert recorded["stacks"][-1] == [], "torch did not make the GraphRoot"
    for part in read["facts"]:
        assert asked["facts"][part] == read["facts"][part], part


def test_where_it_can_nothing_is_in_between() -> None:
    assert tensor_facts.tensor_block is torch_layout.tensor_block
    assert tensor_facts.storage_address is torch_layout.storage_address
    assert saved_tensors.raw_saved is getattr


@pytest.fixture
def hooks() -> Iterator[PackingHooks]:
    noting = PackingHooks()
    noting.start()
    yield noting
    noting.stop()


def nodes(rng: random.Random, depth: int = 0) -> Iterator[Any]:
    """Of random operations in random contexts."""
    for _ in range(rng.randrange(1, 6)):
        if depth < 3 and rng.random() < 0.4:
            with saved_tensors_hooks(lambda tensor: tensor.clone(), lambda tensor: tensor):
                yield from list(nodes(rng, depth + 1))
        else:
            x = torch.ones(2, requires_grad=True)
            if rng.random() < 0.7:
                yield x.exp().grad_fn
            if rng.random() < 0.3:
                yield (x * 2).sin().grad_fn


def is_packed(node: Any) -> bool:
    """Whether a hook has packed what it saved, by what a newer torch shows."""
    name = next(name for name in dir(type(node)) if name.startswith("_raw_saved_"))
    return getattr(node, name).unpack_hook is not None


@pytest.mark.slow_but_one_in(5)
@pytest.mark.parametrize("seed", range(40))
def test_nodes_made_where_there_were_hooks_are_known(seed: int, hooks: PackingHooks) -> None:
    made = list(nodes(random.Random(seed)))
    assert [hooks.may_have_packed(node) for node in made] == list(map(is_packed, made))


def test_on_several_threads_none_is_missed(hooks: PackingHooks) -> None:
    made: list[Any] = []

    def work(seed: int) -> None:
        for each in range(10):
            made.extend(nodes(random.Random(100 * seed + each)))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert any(map(is_packed, made))
    assert all(hooks.may_have_packed(node) for node in made if is_packed(node))


def test_hooks_that_are_in_force_count_on_every_thread(hooks: PackingHooks) -> None:
    said: list[bool] = []
    before = torch.ones(2, requires_grad=True).exp()
    with saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
        inside = torch.ones(2, requires_grad=True).exp()
        ask = threading.Thread(target=lambda: said.append(hooks.may_have_packed(inside.grad_fn)))
        ask.start()
        ask.join()
        assert not hooks.may_have_packed(before.grad_fn)
    assert said == [True]


def test_what_was_made_unnoticed_counts_as_packed() -> None:
    before = torch.ones(2, requires_grad=True).exp()
    hooks = PackingHooks()
    assert hooks.may_have_packed(before.grad_fn)
    with saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
        hooks.start()
        inside = torch.ones(2, requires_grad=True).exp()
    said = [hooks.may_have_packed(each.grad_fn) for each in (before, inside)]
    hooks.stop()
    assert said == [True, True]
    hooks.start()
    after = torch.ones(2, requires_grad=True).exp()
    assert not hooks.may_have_packed(after.grad_fn)
    hooks.stop()
    assert hooks.may_have_packed(after.grad_fn), "nobody notes any more"


def test_nothing_is_left_of_it() -> None:
    own = saved_tensors_hooks.__enter__, saved_tensors_hooks.__exit__
    first, second = PackingHooks(), PackingHooks()
    for each in (first.start, first.start, second.start, second.stop, first.stop):
        each()
        assert saved_tensors_hooks.__enter__ is not own[0]
    first.stop()
    assert (saved_tensors_hooks.__enter__, saved_tensors_hooks.__exit__) == own


def test_a_tensor_that_was_written_to_is_named(
    hooks: PackingHooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.rand(4, 3, requires_grad=True)
    other, given = x.t().clone(), x * 1
    made = [x.exp(), x @ other, cast("Any", Kept).apply(given)]
    changed = [made[0], other, given]
    found = []
    for output, tensor in zip(made, changed, strict=True):
        tensor.detach().zero_()
        with pytest.raises(RuntimeError) as raised:
            output.sum().backward(retain_graph=True)
        ref: Any = SimpleNamespace(node=output.grad_fn, index=3)
        with monkeypatch.context() as patch:
            found.append(modified(7, ref, str(raised.value), lambda _: "p", lambda _: 5))
            patch.setattr(saved_tensors, "packing_hooks", hooks)
            patch.setattr(saved_tensors, "raw_saved", saved_tensors._unpacked)
            found.append(modified(7, ref, str(raised.value), lambda _: "p", lambda _: 5))
    for shown, refused in zip(found[::2], found[1::2], strict=True):
        assert shown is not None
        name = shown.name.partition("[")[0]
        assert refused == shown._replace(name=name, parameter="", memory=-1)


class Kept(torch.autograd.Function):
    """Saves a tensor, and none."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x, None)
        return x / 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        return gradient.div(2) + x.mul(0)


def test_unpacking_shows_what_newer_releases_show(
    hooks: PackingHooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved_tensors, "packing_hooks", hooks)
    called: list[str] = []
    x, index = torch.rand(4, 3, requires_grad=True), torch.tensor([0, 2])
    made = [x.exp(), x @ x.t(), x[index], x[:, None].pow(2), cast("Any", Kept).apply(x)]

    def unpack(number: int) -> Tensor:
        called.append("unpack")
        return x * number

    with saved_tensors_hooks(lambda tensor: 7, unpack):
        packed = x.exp()
    assert saved_tensors._unpacked(packed.grad_fn, "_raw_saved_result").unpack_hook is not None
    assert not called
    looked_at = 0
    for output in made:
        node = output.grad_fn
        for name in (name for name in dir(type(node)) if name.startswith("_raw_saved_")):
            shown, unpacked = getattr(node, name), saved_tensors._unpacked(node, name)
            assert isinstance(shown, tuple | list) == isinstance(unpacked, tuple | list)
            pairs = zip(shown, unpacked, strict=True) if isinstance(shown, tuple | list) else None
            for a, b in pairs or [(shown, unpacked)]:
                looked_at += 1
                assert b.unpack_hook is None
                if a.data is None:
                    assert b.data is None
                else:
                    assert torch.equal(a.data, b.data)
    assert looked_at >= 6
    made[0].detach().zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved_tensors._unpacked(made[0].grad_fn, "_raw_saved_result")
