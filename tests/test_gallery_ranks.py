"""Every program of several ranks ends as it states, recorded or not; each rank leaves a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agviz.traces.reader import Trace
from tests.gallery_frame import Program, programs
from tests.rank_support import launch, record

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

PROGRAMS = [*programs("ranks"), *programs("ranks/unseen")]
SICK = [program for program in PROGRAMS if program.one("kind") != "healthy"]


def ranks_of(program: Program) -> int:
    return int(program.one("ranks") or 0)


def check_end(
    program: Program, ended: subprocess.CompletedProcess[str], *, is_healthy: bool
) -> None:
    ends_well = is_healthy or program.one("ends") == "well"
    assert (ended.returncode == 0) == ends_well, ended.stderr
    if not is_healthy:
        assert all(says in ended.stderr for says in program.all("says")), ended.stderr


def check_traces(program: Program, folder: Path) -> None:
    numbers = []
    for path in folder.glob(f"agviz-{program.name}.rank*.agviz"):
        with Trace.open(path) as trace:
            assert trace.meta.rank is not None
            assert trace.meta.rank.world_size == ranks_of(program)
            assert trace.graph_tasks
            assert trace.collectives()
            numbers.append(trace.meta.rank.number)
    assert sorted(numbers) == list(range(ranks_of(program)))


def test_each_states_what_it_is() -> None:
    assert len(PROGRAMS) >= 20
    for program in PROGRAMS:
        assert ranks_of(program) in range(2, 5)
        assert program.one("ends") in ("well", "error")
        assert (program.cause is None) == (program.one("kind") == "healthy")


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_it_ends_as_it_states(program: Program, tmp_path: Path) -> None:
    ended = record(program.path, tmp_path, ranks_of(program))
    check_end(program, ended, is_healthy=False)
    check_traces(program, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("program", SICK, ids=lambda program: program.name)
def test_its_healthy_twin_ends_well(program: Program, tmp_path: Path) -> None:
    ended = record(program.path, tmp_path, ranks_of(program), "healthy")
    check_end(program, ended, is_healthy=True)
    check_traces(program, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_it_ends_so_without_being_recorded(program: Program, tmp_path: Path) -> None:
    ended = launch(tmp_path, ranks_of(program), str(program.path))
    check_end(program, ended, is_healthy=False)
