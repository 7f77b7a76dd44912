"""Every message of agviz's answers, as a list to be read by people.

``python -m tests.messages`` writes it into ``docs/messages.md``. Messages are found in the syntax
trees of the modules that answer: texts of several words outside of docstrings, what is filled in as
``{…}``; texts that follow each other in one expression are one message.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parent.parent
DOCUMENT: Final = ROOT / "docs" / "messages.md"
ANSWERING: Final = ("agviz/analysis", "agviz/check", "agviz/ranks/answers", "agviz/live_why.py")
_FEWEST_WORDS: Final = 3
_WORD: Final = re.compile(r"[A-Za-z][a-z'-]*[a-z]|\ba\b")
_CODE: Final = re.compile(r"^\w+(?: \| \w+)+$|\w+\\|\(\?|SELECT |\|\w+\||^\S+$|^\w+\[")
_HEAD: Final = """# Every message

What `agviz explain`, `why`, `diff`, `check` and their kin can say, by the module that says it, as
the code has it; `{…}` is filled in. `python -m tests.messages` writes this list, and a test holds
it to the code. [Answers](answers.md) says what each rests on.
"""


def messages(path: Path) -> list[str]:
    """The messages in a module, in the order of its lines, each once."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return list(dict.fromkeys(_found(tree)))


def _found(tree: ast.AST) -> Iterator[str]:
    silent = set(_docstrings(tree)) | set(_of_programmers(tree))
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop(0)
        if id(node) in silent:
            continue
        text = _text(node)
        if text is not None:
            if _is_message(text):
                yield " ".join(text.split())
            inner = node.values if isinstance(node, ast.JoinedStr) else []
            waiting[:0] = [each for each in inner if isinstance(each, ast.FormattedValue)]
            continue
        waiting[:0] = list(ast.iter_child_nodes(node))


def _text(node: ast.AST) -> str | None:
    """A text, with what is filled in as an ellipsis; None: it is none."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        parts = (_text(each) if isinstance(each, ast.Constant) else "{…}" for each in node.values)
        return "".join(part or "" for part in parts)
    return None


def _docstrings(tree: ast.AST) -> Iterator[int]:
    """Texts that stand alone: docstrings, and those below attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield id(node.value)


def _of_programmers(tree: ast.AST) -> Iterator[int]:
    """What is raised, logged, joined into SQL or compared with, and types in quotes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign):
            yield id(node.annotation)
        if isinstance(node, ast.Call) and _called(node.func) in _NOT_SAID:
            yield from map(id, node.args)
        if isinstance(node, ast.Compare):
            yield from map(id, node.comparators)


_NOT_SAID: Final = {"cast", "compile", "warning", "exception", "debug", "getattr", "hasattr"}


def _called(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _is_message(text: str) -> bool:
    return len(_WORD.findall(text)) >= _FEWEST_WORDS and not _CODE.search(text)


def document() -> str:
    """What ``docs/messages.md`` is to hold."""
    parts = [_HEAD]
    for place in ANSWERING:
        path = ROOT / place
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            found = messages(file)
            if found:
                name = file.relative_to(ROOT)
                parts.append("\n".join([f"## {name}", "", *(f"- {_safe(each)}" for each in found)]))
    return "\n".join(f"{part.rstrip()}\n" for part in parts)


def _safe(text: str) -> str:
    """As Markdown shows it: nothing of it is a mark."""
    return re.sub(r"([*_`<>\[\]#|])", r"\\\1", text)


def main() -> int:
    """Write the document."""
    DOCUMENT.write_text(document(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
