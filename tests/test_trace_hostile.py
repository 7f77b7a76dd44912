"""Files from strangers: each is read, or refused with one sentence; nothing else ever happens."""

from __future__ import annotations

import json
import os
import sqlite3
from dataclasses import astuple, is_dataclass
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from agviz.errors import TraceError
from agviz.export.chrome_trace import chrome_trace
from agviz.export.json_trace import json_trace
from agviz.record.recorder import Recorder
from agviz.traces import schema
from agviz.traces.reader import Trace
from agviz_engine.instruments import Registry
from tests.event_simulator import Simulator, random_graph

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("good") / "t.agviz"
    registry = Registry()
    with Recorder(path, script="s.py", argv=["a"]) as recorder:
        registry.add(recorder)
        simulator = Simulator(registry, Random(0), devices=1)
        simulator.backward(random_graph(simulator.rng, 40, 1), nan_at=0)
        simulator.backward(random_graph(simulator.rng, 40), fail_at=3)
    return path.read_bytes()


def texts(value: Any) -> list[str]:
    """Every string in a row, or in rows within rows."""
    if isinstance(value, str):
        return [value]
    if is_dataclass(value) and not isinstance(value, type):
        value = astuple(value)
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    if isinstance(value, tuple | list):
        return [text for part in value for text in texts(part)]
    return []


def read_everything(path: Path) -> list[str]:
    """Use all of the reader; gives every text that it gave."""
    with Trace.open(path) as trace:
        found: list[Any] = [trace.path, trace.meta, trace.threads, trace.graph_tasks]
        found += [trace.slowest(), trace.hook_times(), trace.thread_times(), trace.nonfinite()]
        found += [trace.events(limit=10_000), trace.events(offset=7, limit=3)]
        for task in trace.graph_tasks:
            found += [list(trace.nodes(task.id)), trace.edges(task.id), trace.executions(task.id)]
            found += [trace.events(task.id, 3, 40), trace.story(task.id, 1)]
            found += [trace.saved(task.id, node) for node in range(len(trace.nodes(task.id)))]
            found += [trace.saved_health(task.id), trace.parameters(task.id)]
            found += [trace.forward_ops(task.id), trace.forward_nonfinite(task.id)]
            found += [trace.call_site(task.id), trace.version_errors(task.id)]
            found += [trace.forward_op(task.id, node) for node in range(len(trace.nodes(task.id)))]
            trace.position(50, task.id)
            trace.state_at(task.id, trace.event_count(task.id)).queues()
        found += [*trace.dumps(), *trace.optimizer_steps(), *trace.held()]
        found += [json.loads("".join(export(trace))) for export in (chrome_trace, json_trace)]
        return texts(found)


def refuse(path: Path) -> str:
    """Opening or reading fails; gives the sentence."""
    with pytest.raises(TraceError) as caught:
        read_everything(path)
    sentence = str(caught.value)
    assert sentence.isprintable()
    assert str(path.name) in sentence
    return sentence


def changed(path: Path, good: bytes, *statements: str) -> Path:
    """A copy of the good file after some SQL."""
    path.write_bytes(good)
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA writable_schema = ON")
    for statement in statements:
        database.execute(statement)
    database.close()
    return path


def test_the_good_file_is_good(good: bytes, tmp_path: Path) -> None:
    (tmp_path / "t.agviz").write_bytes(good)
    assert "MainThread" in read_everything(tmp_path / "t.agviz")


def test_no_such_file(tmp_path: Path) -> None:
    assert "no file of this name" in refuse(tmp_path / "absent.agviz")


def test_a_folder(tmp_path: Path) -> None:
    assert "is a folder" in refuse(tmp_path)


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "t.agviz").touch()
    assert "is empty" in refuse(tmp_path / "t.agviz")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "t.agviz")
    assert "not a regular file" in refuse(tmp_path / "t.agviz")


def test_a_name_that_no_file_can_have() -> None:
    with pytest.raises(TraceError, match="can't be opened"):
        Trace.open("a\0b")


def test_a_text(tmp_path: Path) -> None:
    (tmp_path / "t.agviz").write_text("import torch\n" * 500)
    assert "not a trace" in refuse(tmp_path / "t.agviz")


def test_another_database(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "t.agviz")
    database.execute("CREATE TABLE event (seq)")
    database.close()
    assert "another SQLite database" in refuse(tmp_path / "t.agviz")


def test_a_newer_format(good: bytes, tmp_path: Path) -> None:
    path = changed(tmp_path / "t.agviz", good, f"PRAGMA user_version = {2**31 - 1}")
    assert "newer agviz" in refuse(path)


@pytest.mark.parametrize(
    "planted",
    [
        "CREATE TRIGGER t AFTER INSERT ON event BEGIN DELETE FROM event; END",
        "CREATE VIEW v AS SELECT * FROM event",
        "CREATE TABLE more (x)",
        "CREATE INDEX i ON event (abs(t))",
        "CREATE VIRTUAL TABLE v USING fts5(x)",
        "DROP TABLE edge",
        "ALTER TABLE event ADD COLUMN z GENERATED ALWAYS AS (abs(t))",
        """UPDATE sqlite_schema SET sql = 'CREATE VIEW event AS SELECT load_extension(1)',
        type = 'view', rootpage = 0 WHERE name = 'event'""",
        """UPDATE sqlite_schema SET sql = replace(sql, 'node INTEGER,', 'node TEXT,')
        WHERE name = 'event'""",
        "DROP INDEX event_of_finding",
    ],
)
def test_a_planted_schema_is_refused(good: bytes, tmp_path: Path, planted: str) -> None:
    path = changed(tmp_path / "t.agviz", good, planted)
    if planted.startswith("DROP INDEX"):
        read_everything(path)  # an index may be missing
    else:
        assert "damaged" in refuse(path)


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize(
    "lie",
    [
        "UPDATE event SET t = 'soon' WHERE seq = 9",
        "UPDATE event SET kind = 99 WHERE seq = 9",
        "UPDATE event SET kind = -1 WHERE seq = 9",
        "UPDATE event SET kind = 1.5 WHERE seq = 9",
        "UPDATE event SET node = NULL WHERE kind = 26",
        "DELETE FROM timeline; UPDATE event SET node = 123456789012 WHERE kind = 27",
        "UPDATE timeline SET bytes = 'x'",
        "UPDATE event SET node = -1 WHERE kind = 13",
        "UPDATE event SET a = 9e99 WHERE seq = 9",
        "UPDATE event SET b = 9223372036854775807, c = 9223372036854775807 WHERE kind = 13",
        "UPDATE node SET idx = idx + 1000",
        "UPDATE node SET name = 424242",
        "UPDATE node SET name = x'00ff'",
        "UPDATE node SET shapes = 424242",
        "UPDATE string SET text = '2,three;' WHERE id = 1; UPDATE node SET shapes = 1",
        "UPDATE string SET text = hex(zeroblob(3000)) || ';'; UPDATE node SET shapes = 1",
        "UPDATE node SET sequence_nr = 'x'",
        "UPDATE edge SET consumer = 1000000000",
        "UPDATE edge SET output = output + 1000000000",
        "DELETE FROM run; UPDATE graph_task SET begin_t = NULL",
        "DELETE FROM run; UPDATE graph_task SET error = 'x'",
        "DELETE FROM run; UPDATE graph_task SET parent = id",
        "DELETE FROM run; UPDATE graph_task SET parent = id + 1, parent_node = 0",
        "UPDATE run SET bytes = 'x'",
        "UPDATE run SET bytes = x'00'",
        "UPDATE run SET bytes = substr(bytes, 1, length(bytes) - 1)",
        "UPDATE run SET bytes = zeroblob(length(bytes))",
        "UPDATE run SET id = id + 1",
        "DELETE FROM string",
        "UPDATE string SET text = x'ff'",
        "UPDATE string SET text = 7",
        "UPDATE anchor SET position = position + 10000",
        "UPDATE anchor SET seq = -position",
        "UPDATE anchor SET seq = 'x'",
        "DELETE FROM meta WHERE key = 'pid'",
        "UPDATE meta SET value = '[' WHERE key = 'argv'",
        "UPDATE meta SET value = '[1]' WHERE key = 'argv'",
        "UPDATE meta SET value = 'true' WHERE key = 'pid'",
        "UPDATE meta SET value = replace(hex(zeroblob(30000)), '00', '[') WHERE key = 'argv'",
        "UPDATE meta SET value = replace(hex(zeroblob(60000)), '00', '9') WHERE key = 'pid'",
    ],
)
def test_lies_are_noticed(good: bytes, tmp_path: Path, lie: str) -> None:
    assert "damaged" in refuse(told(tmp_path / "t.agviz", good, lie))


def told(path: Path, good: bytes, lie: str) -> Path:
    """A copy of the good file in which a lie stands that its constraints would forbid."""
    without_constraints = [
        "UPDATE sqlite_schema SET sql = replace(replace(sql, ' NOT NULL', ''), ' TEXT', '')"  # noqa: S608
        f" WHERE name = '{table}'"
        for table in schema.TABLES
    ]
    changed(path, good, *without_constraints)
    database = sqlite3.connect(path, isolation_level=None)
    database.executescript(lie)
    assert database.total_changes
    database.execute("PRAGMA writable_schema = ON")
    for table, statement in schema.TABLES.items():
        restore = "UPDATE sqlite_schema SET sql = ? WHERE name = ?"
        database.execute(restore, (statement.strip(), table))
    database.close()
    return path


@pytest.mark.parametrize("lie", ["DELETE FROM event", "DELETE FROM node", "DELETE FROM graph_task"])
def test_what_is_missing_is_missing(good: bytes, tmp_path: Path, lie: str) -> None:
    path = changed(tmp_path / "t.agviz", good, lie)
    try:
        read_everything(path)
    except TraceError as error:
        assert str(error).isprintable()  # noqa: PT017 - either outcome is right


def test_a_count_is_not_believed(good: bytes, tmp_path: Path) -> None:
    path = changed(
        tmp_path / "t.agviz",
        good,
        "DELETE FROM run",
        "UPDATE graph_task SET nodes = 1000000000000, edges = 1000000000000, roots = 1 << 62",
    )
    read_everything(path)
    with Trace.open(path) as trace:
        assert len(trace.nodes(0)) == 40


def test_a_long_value_is_not_loaded(good: bytes, tmp_path: Path) -> None:
    path = changed(
        tmp_path / "t.agviz", good, "UPDATE string SET text = hex(zeroblob(20000000)) WHERE id = 1"
    )
    assert "damaged" in refuse(path)


def test_names_cannot_speak_to_the_terminal(good: bytes, tmp_path: Path) -> None:
    evil = "a\x1b]0;owned\x07\x9b31m\r\n\u202e\u2066\x7f\0b"
    path = tmp_path / "t.agviz"
    path.write_bytes(good)
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("UPDATE string SET text = ? || text", (evil,))
    database.execute("UPDATE meta SET value = json_quote(?) WHERE key = 'script'", (evil,))
    database.execute("UPDATE meta SET value = json_array(?) WHERE key = 'argv'", (evil,))
    database.close()
    found = read_everything(path)
    assert sum("owned" in text for text in found) > 100
    for text in found:
        assert text.replace("\n", "").replace("\t", "").isprintable()
    with Trace.open(path) as trace:
        assert "\n" not in "".join(texts([trace.meta, trace.threads, list(trace.nodes(0))]))


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("seed", range(60))
def test_flipped_bits(good: bytes, tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    data = bytearray(good)
    for _ in range(rng.choice([1, 5, 50])):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    check_either(tmp_path, bytes(data))


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize("seed", range(30))
def test_cut_off_or_shuffled(good: bytes, tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    if seed % 2:
        check_either(tmp_path, good[: rng.randrange(1, len(good))])
        return
    pages = [good[start : start + 4096] for start in range(0, len(good), 4096)]
    rest = pages[1:]
    rng.shuffle(rest)  # trees that lead in circles, tables in place of indexes
    check_either(tmp_path, b"".join([pages[0], *rest]))


@pytest.mark.parametrize("beside", ["-wal", "-journal", "-shm"])
@pytest.mark.parametrize("seed", range(4))
def test_rubbish_beside_the_file(good: bytes, tmp_path: Path, beside: str, seed: int) -> None:
    (tmp_path / f"t.agviz{beside}").write_bytes(Random(seed).randbytes(5000))
    check_either(tmp_path, good)


def check_either(folder: Path, data: bytes) -> None:
    path = folder / "t.agviz"
    path.write_bytes(data)
    try:
        for text in read_everything(path):
            assert text.replace("\n", "").replace("\t", "").isprintable()
    except TraceError as error:
        assert "\x1b" not in str(error)  # noqa: PT017 - either outcome is right
    assert path.read_bytes() == data, "reading changed the file"


def interior_page(child: int, cells: int, size: int) -> bytes:
    """A page of a table's tree whose children are all the same page."""
    page = bytearray(size)
    at = size
    for cell in range(cells):
        at -= 6
        page[at : at + 6] = child.to_bytes(4, "big") + bytes([0x81, cell % 128])
        page[12 + 2 * cell : 14 + 2 * cell] = at.to_bytes(2, "big")
    page[0] = 5
    page[3:5] = cells.to_bytes(2, "big")
    page[5:7] = at.to_bytes(2, "big")
    page[8:12] = child.to_bytes(4, "big")
    return bytes(page)


@pytest.mark.slow_but_one_in(2)
@pytest.mark.parametrize("levels", [1, 5, 30])
def test_a_tree_of_endless_rows_ends(good: bytes, tmp_path: Path, levels: int) -> None:
    """Pages that name one page as their child a hundred times make 101**levels times its rows."""
    indexes = (f"DROP INDEX {name}" for name in schema.INDEXES)
    path = changed(tmp_path / "t.agviz", good, *indexes, "DELETE FROM anchor")
    database = sqlite3.connect(path)
    (root,) = database.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'event'").fetchone()
    (size,) = database.execute("PRAGMA page_size").fetchone()
    database.close()
    data = bytearray(path.read_bytes())
    page = (root - 1) * size
    assert data[page] == 5, "the table has an interior page"
    leaf = int.from_bytes(data[page + 8 : page + 12], "big")
    last = len(data) // size
    data[page : page + size] = interior_page(last + 1, 100, size)
    for level in range(1, levels + 1):
        child = last + level + 1 if level < levels else leaf
        data += interior_page(child, 100, size)
    data[28:32] = (len(data) // size).to_bytes(4, "big")
    check_either(tmp_path, bytes(data))
    if levels > 1:
        with Trace.open(path) as trace:
            for question in (trace.event_count, trace.hook_times):
                with pytest.raises(TraceError, match="damaged"):
                    question()
