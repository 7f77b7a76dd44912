"""Pictures of a distributed program of four ranks, one of which is late."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from agviz.export.timeline import TimePicture
from agviz.ranks.folder import Folder
from agviz.ranks.run import Run
from agviz.tui.ranks_app import RanksApp
from screenshots.shooting import DARK, LIGHT, Shot

SIZE: Final = 4
HOST: Final = "node-1"
"""In the pictures, wherever they are drawn."""
SCRIPT: Final = """\
import os, sys, time
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=size)
torch.set_num_threads(1)


class Checked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        if rank == 2:
            time.sleep(0.08)
        return gradient


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(*[nn.Linear(256, 256) for _ in range(4)])
        self.decoder = nn.Sequential(*[nn.Linear(256, 256) for _ in range(4)])

    def forward(self, x):
        return self.decoder(Checked.apply(self.encoder(x).tanh()))


torch.manual_seed(0)
model = DistributedDataParallel(Net(), bucket_cap_mb=0.5)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randn(256, 256)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
"""


SHOTS: Final = (
    Shot("view-ranks-80x24", 80, 24, DARK, ()),
    Shot("view-ranks-120x40", 120, 40, DARK, ("j", "j")),
    Shot("view-ranks-200x60-light", 200, 60, LIGHT, ("minus", "minus", "j", "j")),
)


def render(out_dir: Path) -> list[Path]:
    """Record the program, draw its time and photograph its ranks; returns the pictures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "traces")
        folder.mkdir()
        record(folder)
        picture = out_dir / "timeline-ranks.svg"
        drawn = TimePicture(Run.read(Folder.open(folder)))
        picture.write_text("".join(drawn.pieces()), encoding="ascii")
        pictures = [picture]
        for shot in SHOTS:
            app = RanksApp(folder)
            shooting = shot.shoot(app, app.ranks_reader.wait, "agviz view traces/", out_dir)
            pictures.append(asyncio.run(shooting))
        return pictures


def record(folder: Path) -> None:
    """A trace of each rank."""
    (folder / "train.py").write_text(SCRIPT, encoding="utf-8")
    command = [sys.executable, "-m", "agviz", "run", "train.py", str(folder / "meeting")]
    processes = [
        subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | {"RANK": str(rank), "WORLD_SIZE": str(SIZE)},
            stdout=subprocess.DEVNULL,
        )
        for rank in range(SIZE)
    ]
    for process in processes:
        if process.wait():
            raise RuntimeError("the program failed")
    for path in folder.glob("*.agviz"):
        with contextlib.closing(sqlite3.connect(path)) as database, database:
            ((text,),) = database.execute("SELECT value FROM meta WHERE key = 'rank'")
            rank = json.loads(text) | {"host": HOST}
            database.execute("UPDATE meta SET value = ? WHERE key = 'rank'", (json.dumps(rank),))
