"""How long reading a folder of many ranks takes, and how much memory.

    python -m benchmarks.many_ranks [8 64 512] [--events 100000] [--at FOLDER]

A program of two ranks is recorded once, on the second of which a node is slow. Its files are
copied for as many ranks as are asked for, one of which is the slow one, on hosts of eight, with
clocks that are off by known times. Then the last rank gets a graph and a collective that the
others have not.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from agviz.ranks.folder import Folder

_PROGRAM: Final = """
import sys
import time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        if dist.get_rank() == 1:
            time.sleep(0.1)
        return gradient

class Block(torch.nn.Module):
    def forward(self, x):
        return Slow.apply(x)

dist.init_process_group("gloo")
torch.manual_seed(0)
layers = [torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh()) for _ in range(100)]
layers.insert(50, Block())
model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.005)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for _ in range(int(sys.argv[1])):
    optimizer.zero_grad()
    model(torch.randn(4, 16)).square().mean().backward()
    optimizer.step()
dist.barrier()
dist.destroy_process_group()
"""
_EVENTS_OF_A_PASS: Final = 2_700
"""Of that program, about; the table says how many there are."""
_PER_HOST: Final = 8
_SKEW_NS: Final = 7_000_000
"""Between one host's clock and that of the next."""
_MEASURED: Final = {
    "Folder.open": "from agviz.ranks.folder import Folder; Folder.open(sys.argv[1])",
    "Run.read": (
        "from agviz.ranks.folder import Folder; from agviz.ranks.run import Run;"
        " Run.read(Folder.open(sys.argv[1]))"
    ),
    "meetings": (
        "from agviz.ranks.folder import Folder; from agviz.ranks.run import Run;"
        " Run.read(Folder.open(sys.argv[1])).meetings()"
    ),
    "agviz explain": "from agviz.cli.main import main; assert main(['explain', sys.argv[1]]) < 2",
    "agviz summary": "from agviz.cli.main import main; assert main(['summary', sys.argv[1]]) < 2",
}
_CHILD: Final = """
import contextlib, os, resource, sys, time
began = time.perf_counter()
with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
    {act}
took = time.perf_counter() - began
print(took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def record(folder: Path, events: int) -> list[Path]:
    """Record two ranks."""
    (folder / "train.py").write_text(_PROGRAM)
    steps = max(2, events // _EVENTS_OF_A_PASS)
    call = "-m", "agviz", "run", "--ranks", "2", "--engine", "native", "-o", "pair", "train.py"
    subprocess.run([sys.executable, *call, str(steps)], cwd=folder, check=True)
    return [rank.path for rank in Folder.open(folder / "pair").ranks]


def copy(source: Path, target: Path, rank: int, size: int) -> None:
    """A file as if another rank, of another host, had recorded it."""
    shutil.copyfile(source, target)
    database = sqlite3.connect(target)
    facts = dict(database.execute("SELECT key, value FROM meta WHERE key IN ('rank', 'start_ns')"))
    of_rank = json.loads(facts["rank"])
    host = rank // _PER_HOST
    of_rank.update(number=rank, world_size=size, local_rank=rank % _PER_HOST)
    of_rank.update(host=f"host{host}", boot=f"boot{host}")
    _set(database, "rank", of_rank)
    _set(database, "start_ns", json.loads(facts["start_ns"]) + host * _SKEW_NS)
    _set(database, "pid", 1_000 + rank)
    database.commit()
    database.close()


def _set(database: sqlite3.Connection, key: str, value: object) -> None:
    database.execute("UPDATE meta SET value = ? WHERE key = ?", (json.dumps(value), key))


def desync(path: Path) -> None:
    """Let a rank's last graph, and its last collective but one, differ."""
    database = sqlite3.connect(path)
    database.execute(
        "UPDATE fingerprint SET checksum = 1"
        " WHERE graph_task = (SELECT max(graph_task) FROM fingerprint)"
    )
    database.execute(
        "UPDATE collective SET shapes = operation WHERE id = (SELECT max(id) - 1 FROM collective)"
    )
    database.commit()
    database.close()


def make(pair: list[Path], folder: Path, size: int) -> None:
    """A folder of so many ranks; the one in the middle is slow."""
    folder.mkdir(parents=True)
    for rank in range(size):
        copy(
            pair[rank == size // 2], folder / f"agviz-train.rank{rank}.{rank + 1}.agviz", rank, size
        )


def measure(act: str, folder: Path) -> tuple[float, int] | None:
    """Seconds and MiB of a process of its own, its imports included; None: it failed."""
    ended = subprocess.run(
        [sys.executable, "-c", _CHILD.format(act=act), str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    if ended.returncode:
        return None
    seconds, mebibytes = ended.stdout.split()
    return float(seconds), int(mebibytes)


def print_row(what: str, found: tuple[float, int] | None) -> None:
    """Print a row."""
    said = "failed" if found is None else f"{found[0]:8.2f} s {found[1]:6d} MiB"
    print(f"  {what:15} {said}", flush=True)


def answers(folder: Path) -> str:
    """What is found in a folder: the kinds, and the ranks."""
    ended = subprocess.run(
        [sys.executable, "-m", "agviz", "explain", "--json", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(ended.stdout)["verdicts"]
    return ", ".join(f"{each['kind']} {each['ranks']} {each['node'] or ''}" for each in found)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", type=int, default=[8, 64, 512])
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--at", type=Path, help="where to make the folders (removed afterwards)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.at) as name:
        top = Path(name)
        pair = record(top, arguments.events)
        print(f"{pair[0].stat().st_size / 1e6:.1f} MB a rank")
        for size in arguments.sizes:
            began = time.perf_counter()
            make(pair, top / "ranks", size)
            print(f"{size} ranks (made in {time.perf_counter() - began:.0f} s)", flush=True)
            for what, act in _MEASURED.items():
                print_row(what, measure(act, top / "ranks"))
            print(f"  found: {answers(top / 'ranks')}; the slow one is {size // 2}", flush=True)
            desync(next((top / "ranks").glob(f"*.rank{size - 1}.*")))
            print_row("explain desync", measure(_MEASURED["agviz explain"], top / "ranks"))
            print(f"  found: {answers(top / 'ranks')}; the other one is {size - 1}", flush=True)
            shutil.rmtree(top / "ranks")


if __name__ == "__main__":
    main()
