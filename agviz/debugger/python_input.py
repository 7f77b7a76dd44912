"""What is typed at a Python prompt: whether it is whole, and how far the next line is indented."""

from __future__ import annotations

import ast
import codeop
import warnings
from typing import Final

INDENT: Final = "    "


def is_whole(text: str) -> bool:
    """Whether Python would run it now, or else waits for another line, as at Python's own prompt.

    What ends with a compound statement (``for``, ``with``, ``def``) needs a blank line at its end.
    What is wrong is whole: running it says what is wrong.
    """
    source = text.rstrip()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they come when it is run
        try:
            if codeop.compile_command(source, symbol="exec") is None and source:
                return False
            statements = ast.parse(source).body
        except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError):
            return True
    is_compound = bool(statements) and not _is_simple(statements[-1])
    _, newline, last = text.rpartition("\n")
    return not is_compound or (bool(newline) and not last.strip())


def indent_after(line: str) -> str:
    """The blanks with which the line behind ``line`` begins, as far as that can be guessed."""
    stripped = line.strip()
    blanks = line[: len(line) - len(line.lstrip())]
    if stripped.partition("#")[0].rstrip().endswith(":"):
        return blanks + INDENT
    if stripped.split(" ")[0] in {"return", "pass", "break", "continue", "raise"}:
        return blanks[: -len(INDENT)]
    return blanks


def _is_simple(statement: ast.stmt) -> bool:
    return not hasattr(statement, "body") and not hasattr(statement, "cases")
