"""What counts as whole at the Python prompt: checked beside Python's own."""

from __future__ import annotations

import code
import contextlib
import io

import pytest

from agviz.debugger.python_input import indent_after, is_whole

WHOLE = [
    "",
    "1 + 1",
    "# nothing",
    "x = (1,\n2)",
    "a = 1\nb = 2",
    "for i in range(3): print(i)\n",
    "for i in range(3):\n    print(i)\n",
    "for i in range(3):\n    print(i)\n    ",
    "if x:\n    y\nelse:\n    z\n",
    "@d\ndef f():\n    return 1\n",
    "def f():\n    return 1\n\nf()",
    "match x:\n    case 1:\n        pass\n",
    "for i in",
    "1 +* 2",
    "'''a\nb'''",
    "print(1))",
    "x = 'unterminated",
]
NOT_WHOLE = [
    "for i in range(3): print(i)",
    "for i in range(3):",
    "for i in range(3):\n    print(i)",
    "for i in range(3):\n    print(i)\n    print(2)",
    "def f():\n    return 1\n\ndef g():",
    "@d",
    "with a:",
    "x = (1,",
    "print(1",
    "'''a",
    "a = \\",
    "if x:\n    y\nelse:",
    "try:\n    x\n",
    "class A: pass",
]


def at_pythons_own_prompt(text: str) -> bool:
    """Whether Python's own prompt waits for no further line."""
    console, more = code.InteractiveConsole(), False
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        for line in text.split("\n"):
            more = console.push(line)
    return not more


@pytest.mark.parametrize("text", WHOLE)
def test_what_is_whole(text: str) -> None:
    assert is_whole(text)
    if not ("\n    " in text and text.endswith("    ")):
        assert at_pythons_own_prompt(text)


@pytest.mark.parametrize("text", NOT_WHOLE)
def test_what_waits_for_another_line(text: str) -> None:
    assert not is_whole(text)
    assert not at_pythons_own_prompt(text)


@pytest.mark.parametrize(
    ("line", "blanks"),
    [
        ("for i in x:", 4),
        ("    if i:  # why", 8),
        ("    y = 1", 4),
        ("    return y", 0),
        ("        break", 4),
        ("x = 1", 0),
        ("for i in range(3): print(i)", 0),
    ],
)
def test_how_far_the_next_line_is_indented(line: str, blanks: int) -> None:
    assert indent_after(line) == " " * blanks
