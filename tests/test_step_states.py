"""What is observed of states that are loaded and saved, and of seeds that are set again."""

from __future__ import annotations

import io
import json
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import agviz
from agviz.errors import TraceError
from agviz.traces.module_states import EQUAL, SAME, SAVED, UNUSED
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.ones(3, 2)).square().sum().backward()
    optimizer.step()


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 2), nn.Tanh())


@pytest.mark.parametrize(
    ("change", "more", "less"),
    [
        (lambda state: {f"module.{name}": one for name, one in state.items()}, "module.", ""),
        (lambda state: {name.removeprefix("0."): one for name, one in state.items()}, "", "0."),
        (lambda state: {"model": state, "epoch": 3}, "['model']", ""),
        (lambda state: {f"x{name}": one for name, one in state.items()}, "", ""),
    ],
)
def test_what_names_of_a_state_have_besides_is_found(
    tmp_path: Path, change: Callable[[dict[str, Any]], dict[str, Any]], more: str, less: str
) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with agviz.trace(path=tmp_path / "t.agviz"):
        model.load_state_dict(change(network().state_dict()), strict=False)
        step(model, optimizer)
    with Trace.open(tmp_path / "t.agviz") as trace:
        (fact,) = trace.module_states()
    assert (fact.kind, fact.more, fact.less) == (UNUSED, more, less)
    assert (fact.missing, fact.parameters) == (2, 2)


def test_a_load_that_finds_something_takes_it_back(tmp_path: Path) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with agviz.trace(path=tmp_path / "t.agviz"):
        model.load_state_dict({"other": torch.ones(1)}, strict=False)
        model.load_state_dict(network().state_dict())
        with pytest.raises(RuntimeError, match="Missing key"):
            model.load_state_dict({})
        step(model, optimizer)
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert trace.module_states() == ()


def test_the_memory_of_parameters_is_known_again(tmp_path: Path) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with agviz.trace(path=tmp_path / "t.agviz"):
        taken = model.state_dict()
        torch.save(taken, io.BytesIO())
        step(model, optimizer)
        torch.save({"state": [taken]}, io.BytesIO())
        model.load_state_dict({name: one.clone() for name, one in taken.items()})
        model.load_state_dict(dict(taken))
        step(model, optimizer)
    with Trace.open(tmp_path / "t.agviz") as trace:
        facts = trace.module_states()
    assert [(fact.kind, fact.steps) for fact in facts] == [(SAVED, 1), (EQUAL, 1), (SAME, 1)]
    assert {fact.taken for fact in facts} == {facts[0].taken}


def test_a_seed_counts_while_one_optimizer_goes_on_and_torch_draws(tmp_path: Path) -> None:
    model = network()
    with agviz.trace(path=tmp_path / "t.agviz"):
        for draws in (True, False):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(4):
                torch.manual_seed(5 if draws else 6)
                if draws:
                    torch.rand(1)
                step(model, optimizer)
        for _ in range(4):
            torch.manual_seed(7)
            torch.rand(1)
            with torch.random.fork_rng():
                torch.manual_seed(8)
                torch.rand(1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            step(model, optimizer)
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert [(fact.seed, fact.times) for fact in trace.seedings()] == [(5, 3)]


def test_a_container_that_holds_one_module_twice_is_seen(tmp_path: Path) -> None:
    layer = nn.Linear(2, 2)
    model = nn.Sequential(nn.Sequential(nn.Tanh(), layer, nn.Tanh(), layer), nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with agviz.trace(path=tmp_path / "t.agviz"):
        step(model, optimizer)
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert trace.repeated_modules() == [("0", 2, "1")]


@pytest.mark.parametrize("fact", ["module_states", "repeated_modules", "seedings"])
@pytest.mark.parametrize("value", [[3], [[1, 2]], {"a": 1}, [["x", None, None, 1, 2, 3, 4, 5, 6]]])
def test_facts_that_are_none_damage_a_file(tmp_path: Path, fact: str, value: object) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with agviz.trace(path=tmp_path / "t.agviz"):
        step(model, optimizer)
    with sqlite3.connect(tmp_path / "t.agviz") as file:
        file.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (fact, json.dumps(value)))
    file.close()
    with Trace.open(tmp_path / "t.agviz") as trace, pytest.raises(TraceError, match=r"are none"):
        getattr(trace, fact)()
