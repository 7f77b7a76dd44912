"""The gallery: small programs with one known cause each, which state what must be said of them.

``tests/gallery/<kind>/<name>.py`` defines ``program()``. The first line of its docstring says what
is wrong; its last paragraph may be lines of the form ``key: value``: what an answer has to name.
The forward line that an answer has to name ends with the comment ``# cause``.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

import agviz

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parent / "gallery"

_EXPECTATION = re.compile(r"([a-z][a-z_]*): (\S.*)")


class Program(NamedTuple):
    """One program of the gallery."""

    path: Path
    says: str
    """What is wrong, in words."""
    expected: tuple[tuple[str, str], ...]
    """Keys and values, in the order of the file; a key may come more than once."""
    cause: int | None
    """Number of the line that is marked with ``# cause``."""

    @property
    def kind(self) -> str:
        """Its folder."""
        return self.path.parent.name

    @property
    def name(self) -> str:
        """Its file, without the ending."""
        return self.path.stem

    def all(self, key: str) -> list[str]:
        """Every value of ``key``."""
        return [value for name, value in self.expected if name == key]

    def one(self, key: str) -> str | None:
        """The value of ``key``, None where the file does not state it.

        Raises:
            ValueError: the file states several.
        """
        found = self.all(key)
        if len(found) > 1:
            raise ValueError(f"{self.path} states {key!r} {len(found)} times")
        return found[0] if found else None

    def load(self) -> ModuleType:
        """The program as a module of its own, loaded anew."""
        spec = importlib.util.spec_from_file_location(f"gallery_{self.kind}_{self.name}", self.path)
        if spec is None or spec.loader is None:
            raise ImportError(self.path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def run(self) -> Any:
        """Call it, with a fixed seed; gives what ``program()`` gives and lets pass what it raises.

        A ``device_policy`` is of use in :meth:`record` only.
        """
        module = self.load()
        torch.manual_seed(0)
        return module.program()

    def record(self, path: Path, **options: Any) -> Any:
        """Call it within ``agviz.trace``, which writes ``path``; gives what ``program()`` gives.

        Args:
            path: the trace to write.
            options: of ``agviz.trace``. A ``device_policy`` that the program defines is used.
        """
        module = self.load()
        policy = getattr(module, "device_policy", None)
        torch.manual_seed(0)
        with agviz.trace(path=path, device_policy=policy, **options):
            return module.program()


def programs(kind: str) -> list[Program]:
    """The programs of a kind, by name.

    Raises:
        ValueError: a file does not say what is wrong, or marks several causes.
    """
    return [_read(path) for path in sorted((ROOT / kind).glob("*.py"))]


def _read(path: Path) -> Program:
    text = path.read_text(encoding="utf-8")
    says, *more = (ast.get_docstring(ast.parse(text)) or "").split("\n\n")
    if not says:
        raise ValueError(f"{path} does not say what is wrong")
    found = [_EXPECTATION.fullmatch(line) for line in more[-1].splitlines()] if more else []
    stated = [(match[1], match[2]) for match in found if match is not None]
    if stated and len(stated) < len(found):
        raise ValueError(f"{path} mixes words with what it expects")
    causes = [n for n, line in enumerate(text.splitlines(), 1) if line.endswith("  # cause")]
    if len(causes) > 1:
        raise ValueError(f"{path} marks several causes")
    return Program(path, " ".join(says.split()), tuple(stated), causes[0] if causes else None)
