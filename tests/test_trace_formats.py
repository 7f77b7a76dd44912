"""A trace of any format since release 0.1.0 opens: what earlier ones wrote, read by this one."""

from __future__ import annotations

import gzip
import re
import sqlite3
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest
import torch

import agviz
from agviz.cli.main import main
from agviz.errors import TraceError
from agviz.record.recorder import Recorder
from agviz.traces import formats, schema
from agviz.traces.formats import FORMATS, TraceFormat, digest
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

GOLDEN = Path(__file__).parent / "golden"
TRACES = sorted(GOLDEN.glob("format-*.agviz.gz"))
NOW = schema.SCHEMA_VERSION


def unpacked(packed: Path, path: Path) -> Path:
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    return path


def changed(path: Path, *statements: str) -> None:
    database = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        database.execute(statement)
    database.close()


def schema_of(path: Path) -> list[tuple[Any, ...]]:
    database = sqlite3.connect(path)
    rows = database.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema").fetchall()
    database.close()
    return rows


def say(capsys: pytest.CaptureFixture[str], *call: object) -> tuple[int, str]:
    """Exit code and text of a verb, without the file's name."""
    capsys.readouterr()
    code = main([str(word) for word in call])
    captured = capsys.readouterr()
    assert captured.err == "" or code == 2
    return code, captured.out + captured.err


# --- the formats that there are -----------------------------------------------------------------


def test_every_format_is_entered_and_has_a_way_to_the_next() -> None:
    assert list(FORMATS) == list(range(min(FORMATS), NOW + 1))
    assert not FORMATS[NOW].later
    assert all(FORMATS[number].later for number in range(min(FORMATS), NOW))


def test_what_is_written_today_is_the_format_of_that_number(tmp_path: Path) -> None:
    """Tables that changed, be it in a comment, are another format: raise SCHEMA_VERSION."""
    path = tmp_path / "t.agviz"
    with Recorder(path, script="train.py"):
        growing = digest(schema_of(path))
    assert {growing, digest(schema_of(path))} == FORMATS[NOW].schemas


def test_there_is_a_golden_trace_of_each_format() -> None:
    assert [path.name for path in TRACES] == [f"format-{number}.agviz.gz" for number in FORMATS]
    assert all(path.stat().st_size < 60_000 for path in TRACES)


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_a_golden_trace_is_read_by_the_verbs(
    path: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    mine = unpacked(path, tmp_path / path.stem)
    before = mine.read_bytes()
    mine.chmod(0o444)
    code, said = say(capsys, "explain", mine)
    assert code == 1
    assert "✗ norm at zero, in SqrtBackward0 of Distance" in said
    assert "golden.py:22 in forward" in said
    assert "That is sample 2" in said
    code, said = say(capsys, "why", mine, "unused")
    assert (code, "unused has no gradient (None)" in said) == (1, True)
    code, said = say(capsys, "summary", mine)
    assert (code, "SqrtBackward0" in said, "Hooks" in said) == (0, True, True)
    assert say(capsys, "diff", mine, mine)[0] == 0
    assert say(capsys, "whatif", mine)[0] == 0
    assert say(capsys, "issue", mine)[0] == 0
    for format_ in ("svg", "timeline", "html", "dot", "json", "chrome-trace"):
        out = tmp_path / f"out.{format_}"
        assert say(capsys, "export", "--format", format_, "-o", out, mine)[0] == 0
        assert "SqrtBackward0" in out.read_text(encoding="utf-8")
    assert say(capsys, "repro", "-o", tmp_path / "alone", mine)[0] == 0
    assert mine.read_bytes() == before
    assert [each.name for each in tmp_path.glob("*.agviz*")] == [mine.name]


# --- formats that can't be read -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (NOW + 1, rf"newer agviz \(format {NOW + 1}, this one reads up to {NOW}\); update agviz"),
        (
            min(FORMATS) - 1,
            r"from before release 0\.1\.0, the first whose files .*; record it again",
        ),
        (-3, r"older agviz \(format -3, "),
    ],
)
def test_other_formats_are_refused_in_a_sentence(
    number: int, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = unpacked(TRACES[-1], tmp_path / "t.agviz")
    changed(path, f"PRAGMA user_version = {number}")
    code, said = say(capsys, "explain", path)
    assert code == 2
    assert said.count("\n") == 1
    assert re.search(told, said)


# --- an earlier format, made up -----------------------------------------------------------------

STEPS = {
    "located": "SELECT 0 AS graph_task, 0 AS node, 0 AS op, 0 AS slot, 0 AS number, 0 AS total,"
    " NULL AS value, 0 AS what, 0 AS name, 0 AS axes WHERE 0",
    "node": "SELECT graph_task, idx, name, sequence_nr, topological_nr, queue, num_inputs,"
    " dependencies, parameter, module, shapes, 1 AS recorded FROM {node}",
    "thread": "SELECT id, label AS name, queue, native_id FROM {thread}",
}
"""From a format that had no ``located``, wrote all nodes and called a thread's name its label."""
EARLIER = (
    "DROP TABLE located",
    "ALTER TABLE node DROP COLUMN recorded",
    "ALTER TABLE thread RENAME COLUMN name TO label",
)
EARLIEST = ("ALTER TABLE node DROP COLUMN shapes", "ALTER TABLE node RENAME COLUMN idx TO place")
FIRST_STEPS = {
    "node": "SELECT graph_task, place AS idx, name, sequence_nr, topological_nr, queue,"
    " num_inputs, dependencies, parameter, module, 0 AS shapes FROM {node}",
}


@pytest.fixture
def earlier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Path]:
    """Makes a file of an earlier format by so many steps, which are known from then on."""

    def make(steps: int) -> Path:
        path = unpacked(TRACES[-1], tmp_path / "earlier.agviz")
        known: dict[int, TraceFormat] = {NOW: FORMATS[NOW]}
        for number, (statements, later) in enumerate(
            [(EARLIER, STEPS), (EARLIEST, FIRST_STEPS)][:steps], 1
        ):
            changed(path, *statements, f"PRAGMA user_version = {NOW - number}")
            schemas = frozenset({digest(schema_of(path))})
            known[NOW - number] = TraceFormat(schemas, MappingProxyType(later))
        monkeypatch.setattr(formats, "FORMATS", known)
        return path

    return make


def everything(path: Path) -> Iterable[object]:
    """What a trace says, but for what the made-up formats do not hold."""
    with Trace.open(path) as trace:
        yield trace.meta
        yield [thread._asdict() for thread in trace.threads]
        yield from trace.graph_tasks
        yield trace.events(limit=10**6)
        for task in trace.graph_tasks:
            for node in trace.nodes(task.id):
                yield (node.index, node.name, node.status, node.module, node.parameter, node.stack)
            yield trace.edges(task.id)
            yield trace.executions(task.id)
            yield trace.leaves(task.id)
            yield [state.running() for state in (trace.state_at(task.id, 5),)]


@pytest.mark.parametrize("steps", [1, 2])
def test_an_earlier_format_says_the_same(
    steps: int,
    earlier: Callable[[int], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = earlier(steps)
    before = path.read_bytes()
    of_today = unpacked(TRACES[-1], tmp_path / "today.agviz")
    assert list(everything(path)) == list(everything(of_today))
    with Trace.open(path) as trace, Trace.open(of_today) as today:
        shapes = [[node.input_shapes for node in each.nodes(0)] for each in (trace, today)]
    assert (shapes[0] == shapes[1]) == (steps == 1)
    assert steps == 1 or set(shapes[0]) == {None}
    code, said = say(capsys, "explain", path)
    assert code == 1
    assert "✗ norm at zero, in SqrtBackward0 of Distance" in said
    assert "That is sample" not in said
    for call in (["summary"], ["why"], ["export", "--format", "svg", "-o", tmp_path / "t.svg"]):
        assert say(capsys, *call, path)[0] in {0, 1}
    assert path.read_bytes() == before
    assert {each.name for each in tmp_path.iterdir()} == {"earlier.agviz", "today.agviz", "t.svg"}


def test_what_is_not_of_the_earlier_format_is_not_looked_at(
    earlier: Callable[[int], Path],
) -> None:
    path = earlier(1)
    changed(
        path, "CREATE TRIGGER evil AFTER INSERT ON thread BEGIN SELECT load_extension('x'); END"
    )
    with pytest.raises(TraceError, match="its tables are not those of a trace"):
        Trace.open(path)


def test_an_earlier_format_that_grows_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its views show what has come since the file was opened."""
    path = tmp_path / "t.agviz"
    with agviz.trace(path=path):
        torch.ones(2, requires_grad=True).exp().sum().backward()
    changed(path, "ALTER TABLE thread RENAME COLUMN name TO label")
    changed(path, f"PRAGMA user_version = {NOW - 1}", "PRAGMA journal_mode = WAL")
    known = TraceFormat(frozenset({digest(schema_of(path))}), {"thread": STEPS["thread"]})
    monkeypatch.setattr(formats, "FORMATS", {NOW - 1: known, NOW: FORMATS[NOW]})
    with Trace.open(path) as trace:
        count = len(trace.threads)
        changed(path, "INSERT INTO thread VALUES (77, 0, -1, 0)")
        assert len(trace.threads) == count + 1
