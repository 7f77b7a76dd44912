"""Programs of two ranks, forked from one process that has imported what all of them import.

``python -c "from tests.rank_pairs import main; main()" COMMAND...`` runs each command in both
ranks, one after the other: the path of a script, or arguments of ``agviz``. What the n-th prints is
left in ``n.RANK.out`` and ``n.RANK.err``; a list of their exit codes is printed.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import shlex
import socket
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tests import python_process

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT: Final = Path(__file__).parent.parent
RANKS: Final = 2
IMPORTED: Final = ("torch._dynamo", "torch.distributed", "agviz.cli.check", "agviz.cli.main")
"""Optimizers import the first, which takes seconds."""
_START: Final = "from tests.rank_pairs import main; main()"


class Ended(NamedTuple):
    """A command in one rank."""

    returncode: int
    stdout: str
    stderr: str


def in_pairs(folder: Path, *commands: str) -> list[list[Ended]]:
    """Run commands in both ranks, from a folder; gives for each what became of each rank."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "engine")])
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = python_process.run(
        [sys.executable, "-c", _START, *commands], cwd=folder, env=environment, check=True
    )
    return [
        [
            Ended(
                code, *((folder / f"{number}.{rank}.{end}").read_text() for end in ("out", "err"))
            )
            for rank, code in enumerate(codes)
        ]
        for number, codes in enumerate(json.loads(done.stdout))
    ]


def main() -> None:
    """Run what the command line says."""
    for name in IMPORTED:
        importlib.import_module(name)
    print(json.dumps([_pair(number, words) for number, words in enumerate(sys.argv[1:])]))


def _pair(number: int, command: str) -> list[int]:
    """The exit codes of both ranks."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    children = []
    for rank in range(RANKS):
        child = os.fork()
        if not child:
            os.environ.update(
                {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS)},
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=port,
            )
            os._exit(_run(shlex.split(command), f"{number}.{rank}"))
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def _run(words: Sequence[str], prints_to: str) -> int:
    """Run one command in this process, which is a rank."""
    for number, end in enumerate(("out", "err"), 1):
        os.dup2(os.open(f"{prints_to}.{end}", os.O_WRONLY | os.O_CREAT), number)
    code: object = 1
    try:
        if words[0].endswith(".py"):
            sys.argv = list(words)
            runpy.run_path(words[0], run_name="__main__")
            code = 0
        else:
            from agviz.cli.main import main as agviz

            sys.argv = ["agviz", *words]
            code = agviz()
    except SystemExit as leave:
        code = leave.code
    except BaseException:  # noqa: BLE001 - as the interpreter does with all of them
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    return code if isinstance(code, int) else int(code is not None)
