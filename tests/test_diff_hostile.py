"""Comparing and simulating what a stranger wrote ends in an answer or in one sentence."""

from __future__ import annotations

import sqlite3
from random import Random
from typing import TYPE_CHECKING

import pytest
import torch

import agviz
from agviz.cli.main import main
from tests.engine.programs import PROGRAMS
from tests.slow_cases import slow_but

if TYPE_CHECKING:
    from pathlib import Path

NUMBERS = {
    "event": ("t", "thread", "graph_task", "kind", "node", "a", "b", "c", "d"),
    "edge": ("output", "consumer", "slot"),
    "node": ("name", "module", "parameter", "sequence_nr", "queue", "dependencies", "shapes"),
    "graph_task": ("parent", "parent_node", "begin_seq", "end_seq", "nodes", "begin_t", "end_t"),
    "health": ("tensor_type", "nan", "min", "norm"),
    "tensor_type": ("shape", "numel", "unknown"),
    "tensor": ("dtype", "shape", "unknown"),
    "part": ("name", "dtype", "shape", "chunk"),
}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two passes, one with others inside."""
    path = tmp_path_factory.mktemp("good") / "good.agviz"
    torch.manual_seed(0)
    with agviz.trace(path=path, values="full", provenance=False):
        PROGRAMS["reentrant_checkpoint"]()
        PROGRAMS["rnn_with_shared_cell"]()
    return path


@pytest.mark.slow_but_one_in(2)
@pytest.mark.parametrize("seed", slow_but(set(map(str, range(8))), range(60)))
def test_numbers_that_lie(
    good: Path, seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = Random(seed)
    bad = tmp_path / "bad.agviz"
    bad.write_bytes(good.read_bytes())
    database = sqlite3.connect(bad, isolation_level=None)
    database.create_function("one_in", 1, lambda count: rng.randrange(count) == 0)
    for _ in range(rng.choice([1, 3, 10])):
        table = rng.choice(list(NUMBERS))
        column = rng.choice(NUMBERS[table])
        value = rng.choice([-1, 0, 1, 2, 7, 1000, 2**31, 2**62, -(2**62)])
        share = rng.choice([2, 10, 100])
        database.execute(
            f"UPDATE OR IGNORE {table} SET {column} = ? WHERE one_in(?)",  # noqa: S608
            (value, share),
        )
    database.close()
    for call in (
        ["diff", str(good), str(bad)],
        ["diff", str(bad), str(good), "--rtol", "0.1", "--json"],
        ["diff", str(bad), str(bad), "--verbose"],
        ["whatif", str(bad)],
        ["whatif", str(bad), "--graph-task", str(agviz.load(good).graph_tasks[0].id)],
    ):
        code = main(call)
        said = capsys.readouterr()
        assert code in {0, 1, 2}
        assert (code == 2) == bool(said.err)
        assert said.err.count("\n") <= 1
        assert said.err[:-1].isprintable()
