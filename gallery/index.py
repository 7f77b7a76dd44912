"""What the gallery holds: programs, and of each its cause, symptom and what an answer must hold."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

HERE: Final = Path(__file__).parent
KINDS: Final = (
    "non-finite",
    "none",
    "zero-or-tiny",
    "version",
    "second-time",
    "hang",
    "wrong-gradient",
    "whole-step",
    "growing",
    "ranks",
    "healthy",
)
SETS: Final = ("open", "held-out")
MARK: Final = "  # CAUSE"

Manner = Literal["prints", "raises", "hangs"]

_NEEDED: Final = ("name", "kind", "set", "cause", "symptom", "source")
_OPTIONAL: Final = ("must", "must_not")


class Program(NamedTuple):
    """One program of the gallery."""

    name: str
    kind: str
    """One of :data:`KINDS`."""
    set: str
    """One of :data:`SETS`."""
    cause: str
    """What is wrong, in words; of a healthy program, what looks suspicious."""
    manner: Manner
    """How the symptom shows without any tool: the program prints, raises or hangs."""
    sign: re.Pattern[str]
    """Found in what it prints, in its exception, or in what it prints before it hangs."""
    must: tuple[tuple[re.Pattern[str], ...], ...]
    """Groups of alternatives; a right answer holds one of each group."""
    must_not: tuple[re.Pattern[str], ...]
    """What only a wrong answer holds."""
    source: str
    """``own``, or the public report that it follows, as ``pytorch/pytorch#2421``."""

    @property
    def path(self) -> Path:
        """Its file."""
        return HERE / "programs" / self.kind / f"{self.name}.py"

    @property
    def is_healthy(self) -> bool:
        """Whether nothing is wrong with it."""
        return self.kind == "healthy"

    def text(self) -> str:
        """Its source without the marks of the cause, with the same line numbers."""
        return self.path.read_text(encoding="utf-8").replace(MARK, "")

    def lines(self) -> tuple[int, ...]:
        """The numbers of the lines that are the cause: an answer has to name one of them.

        Where a statement that is marked takes several lines, they are all of them.
        """
        text = self.path.read_text(encoding="utf-8")
        marked = [n for n, line in enumerate(text.splitlines(), 1) if line.endswith(MARK)]
        found = set(marked)
        for part in ast.walk(ast.parse(text)):
            if isinstance(part, ast.stmt) and not hasattr(part, "body"):
                rows = range(part.lineno, (part.end_lineno or part.lineno) + 1)
                if any(n in rows for n in marked):
                    found.update(rows)
        return tuple(sorted(found))


def load(path: Path = HERE / "index.toml") -> tuple[Program, ...]:
    """All programs, in the order of the index.

    Raises:
        ValueError: an entry lacks a key, has an unknown one, or holds what is not allowed there.
    """
    entries = tomllib.loads(path.read_text(encoding="utf-8"))["program"]
    found = tuple(_read(entry) for entry in entries)
    names = [program.name for program in found]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"index.toml holds {name!r} more than once; rename one")
    return found


def _read(entry: dict[str, Any]) -> Program:
    name = entry.get("name", "a program without a name")
    for key in _NEEDED:
        if not isinstance(entry.get(key), str):
            raise ValueError(f"index.toml: {name} lacks {key!r}; add it")  # noqa: TRY004
    if unknown := entry.keys() - {*_NEEDED, *_OPTIONAL}:
        raise ValueError(f"index.toml: {name} has the unknown key {min(unknown)!r}; drop it")
    for key, allowed in (("kind", KINDS), ("set", SETS)):
        if entry[key] not in allowed:
            raise ValueError(f"index.toml: {key} of {name} must be one of {', '.join(allowed)}")
    manner, _, sign = entry["symptom"].partition(" ")
    if manner not in {"prints", "raises", "hangs"} or not sign:
        raise ValueError(
            f"index.toml: symptom of {name} must be prints, raises or hangs, and an expression"
        )
    must = entry.get("must", [])
    if (entry["kind"] == "healthy") == bool(must):
        raise ValueError(f"index.toml: {name} must state {'no ' * bool(must)}`must`")
    return Program(
        name,
        entry["kind"],
        entry["set"],
        entry["cause"],
        manner,
        re.compile(sign, re.MULTILINE),
        tuple(tuple(_fold(one) for one in group) for group in must),
        tuple(_fold(one) for one in entry.get("must_not", [])),
        entry["source"],
    )


def _fold(expression: str) -> re.Pattern[str]:
    return re.compile(expression, re.IGNORECASE)
