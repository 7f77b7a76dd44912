"""Gradients in files from strangers: given, or refused with one sentence; never much memory."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from random import Random
from typing import TYPE_CHECKING

import pytest
import torch
from torch.nn import functional

import agviz
from agviz.errors import TraceError
from agviz.traces import schema
from agviz.traces.database import Database
from agviz.traces.formats import FORMATS
from agviz.traces.reader import Trace
from tests.test_trace_hostile import interior_page

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR")

MOST_MEMORY = 64 * 1024**2


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Strided, sparse and jagged gradients, one that several share, one that is not stored."""
    path = tmp_path_factory.mktemp("good") / "t.agviz"
    table = torch.randn(7, 3, requires_grad=True)
    rows = torch.eye(4).to_sparse_csr().requires_grad_()
    nested = torch.nested.nested_tensor(
        [torch.randn(2, 3), torch.randn(1, 3)], layout=torch.jagged, requires_grad=True
    )
    x = torch.randn(600_000, requires_grad=True)
    with agviz.trace(path=path, values="full", provenance=False):
        functional.embedding(torch.tensor([1, 5, 1]), table, sparse=True).sum().backward()
        (rows @ torch.randn(4, 2)).sum().backward()
        nested.sin().values().sum().backward()
        (x * 2).view(600, 1000).backward(torch.rand(600, 1000))
        torch.ones(2, device="meta", requires_grad=True).sum().backward()
    return path.read_bytes()


def read_everything(path: Path) -> list[bytes]:
    """Use all of what reads values; gives what they are made of."""
    found = []
    with Trace.open(path) as trace:
        trace.stored_values()
        for value in trace.values():
            if value.unknown:
                continue
            parts = trace.value_parts(value.seq)
            found += [bytes(part.data) for part in parts.values()]
            repr(trace.value(value.seq))
    return found


def test_the_good_file_is_good(good: bytes, tmp_path: Path) -> None:
    (tmp_path / "t.agviz").write_bytes(good)
    found = read_everything(tmp_path / "t.agviz")
    assert sum(map(len, found)) > 7_000_000
    with Trace.open(tmp_path / "t.agviz") as trace:
        layouts = {value.layout for value in trace.values()}
        assert layouts >= {"strided", "sparse_coo", "jagged"}
        assert any(value.unknown for value in trace.values())


WHERE = {
    "all": "TRUE",
    "largest": "seq = (SELECT seq FROM part ORDER BY chunk DESC LIMIT 1)",
    "sparse_coo": (
        "seq IN (SELECT seq FROM tensor JOIN string ON id = layout WHERE text = 'sparse_coo')"
    ),
    "jagged": "seq IN (SELECT seq FROM tensor JOIN string ON id = layout WHERE text = 'jagged')",
    "indices of sparse_coo": (
        "id IN (SELECT chunk FROM part JOIN string ON string.id = name WHERE text = 'indices')"
    ),
    "offsets": "id IN (SELECT chunk FROM part JOIN string ON id = name WHERE text = 'offsets')",
    "last": "id = (SELECT max(id) FROM chunk)",
    "whole": "length(bytes) = 1048576",
}


class Text(str):
    """Stands in the ``string`` table; the column gets its number."""

    __slots__ = ()


def shortened(value: object) -> str:
    """How a test is called."""
    return f"{len(value)} bytes" if isinstance(value, bytes) else str(value)[:40]


def lie(path: Path, good: bytes, column: str, value: object, where: str) -> Path:
    """A copy of the good file in which ``value`` stands in ``table.column``."""
    path.write_bytes(good)
    database = sqlite3.connect(path, isolation_level=None)
    if isinstance(value, Text):
        database.execute("INSERT INTO string VALUES (900000, ?)", (str(value),))
        value = 900_000
    table, name = column.split(".")
    changed = database.execute(
        f"UPDATE {table} SET {name} = ? WHERE {WHERE[where]}",  # noqa: S608
        (value,),
    )
    assert changed.rowcount
    database.close()
    return path


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize(
    ("column", "value", "where"),
    [
        ("part.shape", Text("[1000000, 1000000]"), "largest"),
        ("part.shape", Text("[9223372036854775807, 9223372036854775807]"), "all"),
        ("part.shape", Text("[99999999999999999999999]"), "all"),
        ("part.shape", Text("[0, 9223372036854775807, 9223372036854775807]"), "all"),
        ("part.shape", Text("[-1, -600000]"), "all"),
        ("part.shape", Text("[600000.0]"), "all"),
        ("part.shape", Text("[true]"), "all"),
        ("part.shape", Text("[null]"), "all"),
        ("part.shape", Text("[" * 5000), "all"),
        ("part.shape", Text("[" + "1, " * 100 + "1]"), "all"),
        ("part.shape", Text("9" * 60_000), "all"),
        ("part.shape", 0, "all"),
        ("part.shape", 424_242, "all"),
        ("tensor.shape", Text("{}"), "all"),
        ("tensor.shape", Text("[null, null]"), "all"),
        ("tensor.shape", Text("[null]"), "all"),
        ("tensor.shape", Text("[-5]"), "all"),
        ("tensor.shape", Text("[9223372036854775807, 9223372036854775807]"), "all"),
        ("tensor.shape", Text("[3]"), "largest"),
        ("tensor.shape", Text("[1]"), "sparse_coo"),
        ("tensor.shape", Text("[1, 1]"), "sparse_coo"),
        ("tensor.shape", Text("[7, 3]"), "jagged"),
        ("tensor.shape", 0, "all"),
        ("part.dtype", Text("quint8"), "all"),
        ("part.dtype", Text("Tensor"), "all"),
        ("part.dtype", Text("__class__"), "all"),
        ("part.dtype", Text("float64"), "largest"),
        ("part.dtype", Text("float16"), "largest"),
        ("part.dtype", Text("float64"), "sparse_coo"),
        ("part.dtype", 0, "all"),
        ("part.dtype", b"\0", "all"),
        ("tensor.layout", Text("sparse_csr"), "all"),
        ("tensor.layout", Text("sparse_coo"), "all"),
        ("tensor.layout", Text("_mkldnn"), "all"),
        ("tensor.layout", Text("load"), "all"),
        ("tensor.layout", Text("jagged"), "all"),
        ("tensor.layout", Text("strided"), "jagged"),
        ("part.name", Text("lengths"), "largest"),
        ("tensor.coalesced", 1, "sparse_coo"),
        ("tensor.coalesced", 7, "all"),
        ("tensor.dtype", 424_242, "all"),
        ("tensor.unknown", -1, "all"),
        ("part.chunk", 2**63 - 1, "all"),
        ("part.chunk", -(2**63), "all"),
        ("part.chunk", 1.5, "all"),
        ("part.chunk", "x", "all"),
        ("part.chunk", 0, "largest"),
        ("chunk.id", 10**9, "last"),
        ("chunk.bytes", b"", "last"),
        ("chunk.bytes", b"\0" * 100, "last"),
        ("chunk.bytes", b"\0" * 1_048_575, "whole"),
        ("chunk.bytes", b"\0" * 1_048_577, "whole"),
        ("chunk.bytes", b"\0" * 100_000_000, "last"),
        ("chunk.bytes", "a text", "last"),
        ("chunk.bytes", 7, "last"),
        ("chunk.bytes", b"\xff" * 48, "indices of sparse_coo"),
        ("chunk.bytes", b"\x09" + b"\0" * 47, "indices of sparse_coo"),
    ],
    ids=shortened,
)
def test_lies_are_refused(
    good: bytes, tmp_path: Path, column: str, value: object, where: str
) -> None:
    path = lie(tmp_path / "t.agviz", good, column, value, where)
    with pytest.raises(TraceError) as caught:
        read_everything(path)
    assert "damaged" in str(caught.value)
    assert str(caught.value).isprintable()
    with Trace.open(path) as trace:
        assert trace.graph_tasks


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("seed", range(20))
def test_rubbish_in_place_of_elements_and_indices_harms_nobody(
    good: bytes, tmp_path: Path, seed: int
) -> None:
    path = tmp_path / "t.agviz"
    path.write_bytes(good)
    database = sqlite3.connect(path, isolation_level=None)
    rng = Random(seed)
    sizes = database.execute("SELECT id, length(bytes) FROM chunk").fetchall()
    for number, size in sizes:
        rubbish = (rng.randbytes(size), b"\x7f" * size, b"\x80" * size)[seed % 3]
        database.execute("UPDATE chunk SET bytes = ? WHERE id = ?", (rubbish, number))
    database.close()
    with pytest.raises(TraceError, match="damaged"):
        read_everything(path)  # no indices are right


BOUNDED = """
import resource, sys, torch
from agviz.errors import TraceError
from agviz.traces.reader import Trace
torch.set_num_threads(1)
import tests.test_trace_values_hostile as hostile
from pathlib import Path
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    hostile.read_everything(Path(sys.argv[1]))
except TraceError as error:
    print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.parametrize(
    ("column", "value", "where"),
    [
        ("part.shape", Text("[2500000000]"), "largest"),
        pytest.param("part.shape", Text("[25000000000]"), "largest", marks=pytest.mark.slow),
        pytest.param("chunk.bytes", bytes(500_000_000), "last", marks=pytest.mark.slow),
    ],
    ids=shortened,
)
def test_no_memory_is_asked_for(
    good: bytes, tmp_path: Path, column: str, value: object, where: str
) -> None:
    """Measured in a process of its own."""
    path = lie(tmp_path / "t.agviz", good, column, value, where)
    done = subprocess.run(
        [sys.executable, "-c", BOUNDED, path],
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    sentence, used = done.stdout.splitlines()
    assert "damaged" in sentence
    assert int(used) < MOST_MEMORY


def test_an_endless_tree_of_chunks_gives_no_more_than_the_file_is_large(
    good: bytes, tmp_path: Path
) -> None:
    """A page that names one child a hundred times; its ids repeat, and are not consecutive."""
    path = tmp_path / "t.agviz"
    path.write_bytes(good)
    database = sqlite3.connect(path)
    (root,) = database.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'chunk'").fetchone()
    (size,) = database.execute("PRAGMA page_size").fetchone()
    database.close()
    data = bytearray(good)
    page = (root - 1) * size
    assert data[page] == 5, "the table has an interior page"
    leaf = int.from_bytes(data[page + 8 : page + 12], "big")
    data[page : page + size] = interior_page(leaf, 100, size)
    path.write_bytes(bytes(data))
    with pytest.raises(TraceError, match="damaged"):
        read_everything(path)


def test_no_gradient_is_larger_than_its_file(
    good: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks may share their pages in a file that was made to harm."""
    (tmp_path / "t.agviz").write_bytes(good)
    monkeypatch.setattr(Database, "size", 1_000_000)
    with Trace.open(tmp_path / "t.agviz") as trace:
        small, large = (
            next(v for v in trace.values() if v.shape == shape) for shape in ((7, 3), (600_000,))
        )
        trace.value(small.seq)
        with pytest.raises(TraceError, match="damaged"):
            trace.value(large.seq)


@pytest.mark.parametrize("seed", range(40))
def test_flipped_bits(good: bytes, tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    data = bytearray(good)
    for _ in range(rng.choice([5, 50, 500])):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path = tmp_path / "t.agviz"
    path.write_bytes(bytes(data))
    try:
        read_everything(path)
    except TraceError as error:
        assert str(error).isprintable()  # noqa: PT017 - either outcome is right
    assert path.read_bytes() == bytes(data)


def test_an_older_format_is_refused(good: bytes, tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    path.write_bytes(good)
    database = sqlite3.connect(path, isolation_level=None)
    first, now = min(FORMATS), schema.SCHEMA_VERSION
    database.execute(f"PRAGMA user_version = {first - 1}")
    database.close()
    told = rf"older agviz \(format {first - 1}, this one reads {first} to {now}\)"
    with pytest.raises(TraceError, match=told):
        Trace.open(path)
