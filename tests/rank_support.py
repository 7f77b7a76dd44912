"""Programs of several ranks, run under torchrun and recorded into a folder."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_SECONDS = 240


def launch(
    folder: Path,
    ranks: int,
    *command: str,
    python: str = sys.executable,
    environment: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Have torchrun start a command of Python in each rank, from a folder."""
    torchrun = "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"
    return subprocess.run(
        [python, *torchrun, *command],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
    )


def record(
    program: Path, folder: Path, ranks: int, *arguments: str, options: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a program with `agviz run` in each rank: the traces lie in the folder.

    Args:
        program: the script.
        folder: where it is run and recorded.
        ranks: how many processes.
        arguments: of the script.
        options: of `agviz run`.
    """
    return launch(folder, ranks, "-m", "agviz", "run", *options, str(program), *arguments)
