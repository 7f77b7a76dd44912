"""Builds the one compiled part, where there is a C compiler: agviz works without it, only slower.

It is plain C behind ctypes, so that one file serves every version of Python, and neither Python's
headers nor torch's are needed.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = Path("engine/agviz_engine/health_kernel.c")
BUILT = SOURCE.with_name("_health_kernel.so")
OPTIONS = (
    *("-O3", "-std=gnu11", "-shared", "-fPIC", "-fvisibility=hidden"),
    *("-fno-math-errno", "-fno-trapping-math"),  # NaN and infinities must stay what they are
)


class CompiledParts(BuildHookInterface[Any]):
    """Puts the compiled file beside its source, and into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Compile, and say that the wheel is for this platform; or leave it out with a warning."""
        root = Path(self.root)
        if not self._compile(root):
            return
        build_data["artifacts"].append(f"/{BUILT}")
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"

    def _compile(self, root: Path) -> bool:
        (root / BUILT).unlink(missing_ok=True)
        compiler = shlex.split(os.environ.get("CC", "cc"))
        if shutil.which(compiler[0]) is None:
            self.app.display_warning(f"no C compiler ({compiler[0]}): {SOURCE} is left out")
            return False
        half = root / BUILT.with_suffix(".part")
        command = [*compiler, *OPTIONS, str(root / SOURCE), "-o", str(half), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            self.app.display_warning(f"{SOURCE} can't be compiled: {done.stderr}")
            return False
        half.replace(root / BUILT)
        return True
