"""Tables of a run, asked by DuckDB and by pyarrow."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from agviz.cli.main import main
from agviz.export import parquet
from agviz.export.parquet import TABLES, write_tables
from agviz.ranks.folder import Folder
from agviz.ranks.run import Run
from agviz.traces.reader import Trace
from tests.ranks_support import PASSES, SLEPT_NS
from tests.tui_support import NODES, record

FORMATS = Path(__file__).parent.parent / "docs" / "formats.md"


@pytest.fixture(scope="module")
def tables(two_ranks: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables") / "out"
    assert main(["export", str(two_ranks), "--format", "parquet", "-o", str(folder)]) == 0
    return folder


def ask(tables: Path, sql: str) -> list[tuple[object, ...]]:
    sql = re.sub(r"'(\w+)\.parquet'", lambda found: f"'{tables / found[0][1:-1]}'", sql)
    with duckdb.connect() as connection:
        return connection.execute(sql).fetchall()


def queries() -> list[str]:
    return re.findall(r"```sql\n(.*?)```", FORMATS.read_text(encoding="utf-8"), re.DOTALL)


def test_there_are_three_queries() -> None:
    assert len(queries()) == 3


def test_who_is_waited_for(tables: Path) -> None:
    (last, times, waited), *_ = ask(tables, queries()[0])
    assert last == 1
    assert isinstance(times, int)
    assert times >= PASSES
    assert isinstance(waited, float)
    assert waited > PASSES * SLEPT_NS * 0.5 / 1e6


def test_which_node_is_slow_on_one_rank(tables: Path) -> None:
    (name, _, slowest, ms, usual), *_ = ask(tables, queries()[1])
    assert (name, slowest) == ("SlowBackward", 1)
    assert isinstance(ms, float)
    assert isinstance(usual, float)
    assert ms > PASSES * SLEPT_NS / 1e6 > usual


def test_a_node_that_waits_has_not_worked(tables: Path) -> None:
    """DDP awaits its last buckets in the hook of the last AccumulateGrad."""
    sql = (
        "SELECT max(self_ns - held_ns), min(self_ns - held_ns) FROM 'nodes.parquet' WHERE rank = 0"
    )
    ((longest, shortest),) = ask(tables, sql)
    assert isinstance(longest, int)
    assert isinstance(shortest, int)
    assert 0 <= shortest <= longest < SLEPT_NS * 0.8


def test_which_steps_took_longest(tables: Path) -> None:
    rows = ask(tables, queries()[2])
    assert sorted(row[0] for row in rows) == list(range(PASSES))  # type: ignore[type-var]
    assert all(row[3] == 1 for row in rows)


def test_a_row_group_holds_one_rank(tables: Path) -> None:
    for name in TABLES:
        file = pq.ParquetFile(tables / f"{name}.parquet")
        assert file.num_row_groups == 2
        groups = [file.read_row_group(group, columns=["rank"]) for group in (0, 1)]
        assert [set(group["rank"].to_pylist()) for group in groups] == [{0}, {1}]


def test_tables_say_what_the_traces_do(tables: Path, two_ranks: Path) -> None:
    run = Run.read(Folder.open(two_ranks))
    zero_ns = min(rank.file.meta.start_ns for rank in run.ranks.values())
    for number, rank in run.ranks.items():
        with Trace.open(rank.file.path) as trace:
            executions = [row for p in rank.passes for row in trace.executions(p.graph_task)]
            collectives = trace.collectives()
            synchronised = trace.synchronised()
        assert ask(
            tables,
            "SELECT graph_task, position, name, start_ns, end_ns FROM 'nodes.parquet'"  # noqa: S608
            f" WHERE rank = {number} ORDER BY start_ns",
        ) == [
            (
                row.graph_task,
                row.order,
                row.name,
                row.start_ns - zero_ns,
                (row.end_ns or 0) - zero_ns,
            )
            for row in sorted(executions, key=lambda row: row.start_ns)
        ]
        assert ask(
            tables,
            "SELECT operation, seq, joined_ns FROM 'collectives.parquet'"  # noqa: S608
            f" WHERE rank = {number} ORDER BY joined_ns",
        ) == [(one.operation, one.seq, one.time_ns - zero_ns) for one in collectives]
        assert ask(
            tables,
            "SELECT begin_ns, forward_ns FROM 'passes.parquet'"  # noqa: S608
            f" WHERE rank = {number} ORDER BY pass",
        ) == [
            (one.begin_ns - zero_ns, None if one.forward_ns is None else one.forward_ns - zero_ns)
            for one in rank.passes
        ]
        assert sorted(
            ask(
                tables,
                "SELECT parameter, bucket FROM 'parameters.parquet'"  # noqa: S608
                f" WHERE rank = {number} AND kind = 'ddp'",
            )
        ) == sorted((one.parameter, one.bucket) for one in synchronised)


def test_every_column_is_described(tables: Path) -> None:
    told = FORMATS.read_text(encoding="utf-8")
    for name, columns in TABLES.items():
        (row,) = re.findall(rf"^\| `{name}` \| .*$", told, re.MULTILINE)
        described = [
            word for word in re.findall(r"`(\w+)`", row)[1:] if word not in {"ddp", "fsdp"}
        ]
        assert described == list(columns)
        assert pq.read_schema(tables / f"{name}.parquet").names == list(columns)


def test_many_rows_are_written_in_pieces(
    two_ranks: Path, tmp_path: Path, tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "_MOST_ROWS", 7)
    write_tables(Run.read(Folder.open(two_ranks)), tmp_path / "out")
    file = pq.ParquetFile(tmp_path / "out" / "nodes.parquet")
    assert all(file.metadata.row_group(i).num_rows <= 7 for i in range(file.num_row_groups))
    assert file.read().equals(pq.read_table(tables / "nodes.parquet"))


def test_a_single_trace_is_a_run_of_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = record(tmp_path / "train.agviz", graph_tasks=2)
    assert main(["export", str(path), "--format", "parquet"]) == 0
    out = tmp_path / "train.parquet"
    assert capsys.readouterr().out == f"wrote {out}\n"
    assert ask(out, "SELECT rank, world_size, host, passes FROM 'ranks.parquet'") == [
        (0, 1, None, 2)
    ]
    assert ask(out, "SELECT count(*) FROM 'nodes.parquet'") == [(2 * NODES,)]
    assert ask(out, "SELECT * FROM 'collectives.parquet'") == []


def test_pyarrow_is_an_extra_and_that_is_said(
    two_ranks: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "agviz.export.parquet")
    out = tmp_path / "out"
    assert main(["export", str(two_ranks), "--format", "parquet", "-o", str(out)]) == 2
    told = " ".join(capsys.readouterr().err.split())
    needs = "export --format parquet needs pyarrow; install it with: pip install 'agviz[parquet]'"
    assert needs in told
    assert not out.exists()


def test_nothing_else_is_written_over(
    two_ranks: Path, tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = ["export", str(two_ranks), "--format", "parquet", "-o", str(tables)]
    assert main(again) == 0
    into = ["export", str(two_ranks), "--format", "parquet", "-o", str(two_ranks)]
    assert main(into) == 2
    assert "holds something else" in capsys.readouterr().err
    assert not list(two_ranks.glob("*.parquet"))


def test_what_was_begun_is_removed(
    two_ranks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(trace: Trace, graph_task: int) -> list[int]:
        raise KeyboardInterrupt

    monkeypatch.setattr(Trace, "self_times", broken)
    with pytest.raises(KeyboardInterrupt):
        write_tables(Run.read(Folder.open(two_ranks)), tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())
