"""Builds the compiled parts, where there is a C compiler: agviz works without them, only slower.

They are plain C behind ctypes, so that one file serves every version of Python, and neither
Python's headers nor torch's are needed. What they rely on is checked when they are loaded.
``AGVIZ_PURE=1`` leaves them out; the wheel is then for all platforms.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

OPTIONS = ("-std=gnu11", "-shared", "-fPIC", "-fvisibility=hidden")
LATE = ("-undefined", "dynamic_lookup") if sys.platform == "darwin" else ()
"""Python's functions are found in the process that loads it."""
SOURCES = {
    Path("agviz/measure/kernel.c"): (
        *("-O3", "-fno-math-errno", "-fno-trapping-math"),  # NaN and infinities must stay
        "-lm",
        *LATE,
    ),
    Path("agviz/record/capture.c"): ("-O2", *LATE),
}
"""What is compiled, and with which options of its own."""


def built(source: Path) -> Path:
    """The compiled file beside a source."""
    return source.with_name(f"_{source.stem}.so")


class CompiledParts(BuildHookInterface[Any]):
    """Puts the compiled files beside their sources, and into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Compile, and say that the wheel is for this platform; or leave out what can't be."""
        for source, options in SOURCES.items():
            if self._compile(source, options):
                build_data["artifacts"].append(f"/{built(source)}")
                build_data["pure_python"] = False
                platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
                build_data["tag"] = f"py3-none-{platform}"

    def _compile(self, source: Path, options: tuple[str, ...]) -> bool:
        root = Path(self.root)
        target = root / built(source)
        target.unlink(missing_ok=True)
        if os.environ.get("AGVIZ_PURE", "0") not in {"", "0"}:
            return False
        compiler = shlex.split(os.environ.get("CC", "cc"))
        if shutil.which(compiler[0]) is None:
            self.app.display_warning(f"no C compiler ({compiler[0]}): {source} is left out")
            return False
        half = target.with_suffix(".part")
        command = [*compiler, *OPTIONS, str(root / source), "-o", str(half), *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            self.app.display_warning(f"{source} can't be compiled: {done.stderr}")
            return False
        half.replace(target)
        return True
