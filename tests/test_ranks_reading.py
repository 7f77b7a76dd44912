"""A folder of ranks, read: one recording of four ranks, against what its program does.

The program is a gallery's: rank 1 sleeps 150 ms in the backward of one node, the others wait.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest

from agviz.cli.main import main
from agviz.errors import TraceError
from agviz.ranks.answers.collectives import exchanged
from agviz.ranks.folder import Folder
from agviz.ranks.run import Run, waits_for_all
from agviz.ranks.work import own_times_of_passes
from agviz.traces.reader import Trace
from tests.gallery_frame import ROOT, programs
from tests.json_documents import hold
from tests.ranks_support import record_ranks
from tests.test_ranks_answers import check_cause

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = ROOT / "ranks" / "slow_node.py"
RANKS = 3
PASSES = 6
SLEEP_NS = 150_000_000
SLOW = 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_ranks(SCRIPT, tmp_path_factory.mktemp("ranks"), size=RANKS)


def edited(folder: Path, tmp_path: Path, number: int, **facts: Any) -> Path:
    """A copy of the folder in which what the trace of a rank says of itself is another."""
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    path = Folder.open(copy).rank(number).path
    with closing(sqlite3.connect(path)) as database, database:
        for key, value in facts.items():
            database.execute("UPDATE meta SET value = ? WHERE key = ?", (json.dumps(value), key))
    return copy


def test_each_file_says_which_rank_it_is_of(folder: Path) -> None:
    found = Folder.open(folder)
    assert [file.number for file in found.ranks] == list(range(RANKS))
    assert found.world_size == RANKS
    assert not found.missing
    for file in found.ranks:
        assert f".rank{file.number}.{file.meta.pid}.agviz" in file.path.name
        assert (file.rank.backend, file.rank.local_rank) == ("gloo", file.number)


def test_all_ranks_joined_the_same_collectives_and_made_the_same_graphs(folder: Path) -> None:
    run = Run.read(Folder.open(folder))
    kinds = [[one.kind for one in rank.joined] for rank in run.ranks.values()]
    assert kinds[0]
    assert all(each == kinds[0] for each in kinds)
    prints = {one.fingerprint for rank in run.ranks.values() for one in rank.passes}
    assert len(prints) == 1
    assert None not in prints


def test_a_rank_waits_as_long_as_the_slow_one_sleeps(folder: Path) -> None:
    run = Run.read(Folder.open(folder))
    own = own_times_of_passes(run)
    for rank, passes in own.items():
        assert len(passes) == PASSES
        # Medians: on a busy machine the others are late for want of a CPU, now and then.
        assert (median(one.backward for one in passes) > SLEEP_NS) == (rank == SLOW)
        assert (median(one.waiting for one in passes) > 0.5 * SLEEP_NS) == (rank != SLOW)
    for meeting in run.meetings():
        for rank in meeting.joined:
            held = meeting.waiting_ns(rank) + meeting.transfer_ns(rank)
            assert held <= meeting.by_rank[rank].blocked_ns
        assert meeting.waiting_ns(meeting.last) == 0


def test_parameters_and_buckets_are_those_of_ddp(folder: Path) -> None:
    with Folder.open(folder).trace(0) as trace:
        found = trace.synchronised()
    names = {one.parameter for one in found}
    assert names == {
        f"module.{part}.{number}.{kind}"
        for part in ("encoder", "decoder")
        for number in (0, 2)
        for kind in ("weight", "bias")
    }
    assert all(one.is_hooked for one in found)
    last = {one.parameter: one.bucket for one in found}
    assert set(last.values()) == set(range(max(last.values()) + 1))


def test_checksums_are_equal_on_all_ranks(folder: Path) -> None:
    found = [trace.digests() for _, trace in Folder.open(folder).traces()]
    assert found[0]
    assert all(each == found[0] for each in found)


def with_names(folder: Path, tmp_path: Path, *names: list[list[str]]) -> Path:
    """A copy of the folder in which ranks hand in tensors of these names, from the first on."""
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    ranks = Run.read(Folder.open(folder)).ranks
    for number, of_rank in enumerate(names):
        keys = [one.key for one in ranks[number].joined if waits_for_all(one)]
        handed = [[key[0], key[2], each] for key, each in zip(keys, of_rank, strict=False)]
        with closing(sqlite3.connect(Folder.open(copy).rank(number).path)) as database, database:
            row = "handed_in", json.dumps(handed)
            database.execute("INSERT INTO meta (key, value) VALUES (?, ?)", row)
    return copy


@pytest.mark.parametrize(
    ("names", "ranks"),
    [
        ([[["a"], ["b"]], [["a"], ["b"]], [["b"], ["a"]]], [2]),
        ([[["a"], ["b"]], [["b"], ["a"]]], [0, 1]),
        ([[["a", "x"], ["b", "x"]], [["b", "x"], ["a", "x"]]], [0, 1]),
        ([[["x"], ["x"]], [["x"], ["x"]]], None),
        ([[["a"], ["b"]], [["c"], ["d"]]], None),
        ([[["a"], ["b"]], [["b"], ["b"]]], None),
        ([[["a"], ["b"]], []], None),
    ],
    ids=[
        "one differs",
        "two differ",
        "a variable of both",
        "only such",
        "other names",
        "not crosswise",
        "unknown",
    ],
)
def test_tensors_that_are_handed_in_crosswise(
    names: list[list[list[str]]], ranks: list[int] | None, folder: Path, tmp_path: Path
) -> None:
    found = exchanged(Run.read(Folder.open(with_names(folder, tmp_path, *names))))
    assert (None if found is None else list(found.ranks)) == ranks


def test_names_that_are_none_are_damage(folder: Path, tmp_path: Path) -> None:
    copy = with_names(folder, tmp_path, [[1]])  # type: ignore[list-item]  # a number for a name
    with pytest.raises(TraceError, match="names of tensors are none"):
        Run.read(Folder.open(copy))


def test_where_it_sleeps_was_seen(folder: Path) -> None:
    with Folder.open(folder).trace(SLOW) as trace:
        seen = [pause.stack[-1] for pause in trace.pauses() if pause.is_inside]
    assert any(frame.function == "backward" for frame in seen)


def test_another_host_is_set_right_by_common_collectives(folder: Path, tmp_path: Path) -> None:
    apart_ns = 12_345_678_901_234
    before = Run.read(Folder.open(folder))
    start_ns = Folder.open(folder).rank(2).meta.start_ns
    end_ns = Folder.open(folder).rank(2).meta.end_ns or 0
    facts = Folder.open(folder).rank(2).rank._asdict() | {"boot": "another", "host": "another"}
    copy = edited(
        folder, tmp_path, 2, rank=facts, start_ns=start_ns - apart_ns, end_ns=end_ns - apart_ns
    )
    clock = Run.read(Folder.open(copy)).clocks[2]
    assert before.clocks[2].source == "monotonic"
    assert clock.source == "collectives"
    assert clock.error_ns is not None
    assert abs(clock.offset_ns - apart_ns) <= min(clock.error_ns, SLEEP_NS // 2)


def test_of_each_rank_the_last_run_counts(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    shutil.copy(Folder.open(copy).rank(0).path, copy / "earlier.agviz")
    with closing(sqlite3.connect(copy / "earlier.agviz")) as database, database:
        database.execute("UPDATE meta SET value = '1' WHERE key = 'started_unix_ns'")
    found = Folder.open(copy)
    assert [path.name for path in found.older] == ["earlier.agviz"]
    assert len(found.ranks) == RANKS
    assert "earlier.agviz" in found.remarks()[0]


def test_a_rank_that_left_no_trace_is_said(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    Folder.open(copy).rank(2).path.unlink()
    assert Folder.open(copy).missing == [2]
    main(["summary", str(copy)])
    assert "rank 2 left no trace here" in capsys.readouterr().out


def test_the_cause_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = (one for one in programs("ranks") if one.path == SCRIPT)
    assert main(["explain", "--json", str(folder)]) == 1
    found: list[dict[str, Any]] = hold(capsys.readouterr().out, "explain-ranks")["verdicts"]
    (said,) = (each for each in found if each["kind"] == "straggler")
    check_cause(program, said)


def test_a_folder_without_ranks_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(TraceError, match="holds no trace of a rank"):
        Folder.open(tmp_path)
    assert main(["explain", str(tmp_path)]) == 2
    assert "agviz run --ranks" in capsys.readouterr().err


def test_the_summary_has_a_row_for_each_rank(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["summary", "--json", str(folder)]) == 0
    rows = json.loads(capsys.readouterr().out)["ranks"]
    assert [row["rank"] for row in rows] == list(range(RANKS))
    assert max(rows, key=lambda row: row["backward_ns"])["rank"] == SLOW
    assert min(rows, key=lambda row: row["waiting_ns"])["rank"] == SLOW
    assert main(["summary", str(folder)]) == 0
    assert "rank 1 is a straggler" in capsys.readouterr().out


def test_ranks_are_held_against_each_other(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", "--json", str(folder)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["graphs"], found["collectives"], found["parameters"]) == (None, None, None)
    backward = next(row for row in found["times"] if row["what"] == "backward")
    assert backward["most"]["rank"] == SLOW


def test_why_says_the_same_of_all_ranks_once(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["why", str(folder), "module.encoder.0.weight"]) == 0
    said = capsys.readouterr().out
    assert said.count("module.encoder.0.weight") == 1
    assert "ranks 0 to 2" in said
    assert "ddp bucket" in said


def test_why_says_of_all_parameters_what_ranks_have_in_common_once(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["why", str(folder)]) == 0
    said = capsys.readouterr().out
    assert said.count("ranks 0 to 2:") == said.count("✓ all") == 1
    assert main(["why", "--json", str(folder)]) == 0
    assert sorted(json.loads(capsys.readouterr().out)["ranks"]) == ["0", "1", "2"]


def test_an_estimate_without_the_straggler(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["whatif", "--json", str(folder), "--bucket-mb", "1"]) == 0
    found = json.loads(capsys.readouterr().out)["estimates"]
    saved = found[0]["now_ns"] - found[0]["then_ns"]
    assert 0.5 * SLEEP_NS < saved < 1.5 * SLEEP_NS
    assert [each["of"] for each in found] == ["step", "backward"]
    assert main(["whatif", str(folder), "--bucket-mb", "0"]) == 2
    assert main(["whatif", str(folder), "--first", "nothing"]) == 2


def test_nothing_of_a_closed_rank_is_left_beside_its_trace(folder: Path) -> None:
    assert {path.suffix for path in folder.iterdir()} == {".agviz"}
    for _, trace in Folder.open(folder).traces():
        assert trace.last_moment() is None


def test_a_single_trace_knows_its_rank(folder: Path) -> None:
    with Trace.open(Folder.open(folder).rank(1).path) as trace:
        assert trace.meta.rank is not None
        assert trace.meta.rank.number == 1
        assert len(trace.forwards()) == PASSES
        assert len(trace.scheduled()) == PASSES
