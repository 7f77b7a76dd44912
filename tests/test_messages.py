"""The list of every message is what the code says."""

import re
from pathlib import Path
from typing import Final

from tests.messages import DOCUMENT, document, messages

MOST_WORDS: Final = 70
"""Of one message: with heading, line and code an answer may have 120."""
INTERNAL: Final = re.compile(r"graph task|GraphTask|NodeTask|InputBuffer")
"""What only who knows the engine from inside has a word for."""


def test_the_list_is_of_this_code() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == document(), "run python -m tests.messages"


def test_messages_are_short_and_in_words_of_their_reader() -> None:
    listed = [line.removeprefix("- ") for line in document().splitlines() if line[:2] == "- "]
    assert len(listed) > 500
    assert not [each for each in listed if len(each.split()) > MOST_WORDS]
    assert not [each for each in listed if INTERNAL.search(each)]


def test_a_message_is_found_as_it_is_said(tmp_path: Path) -> None:
    file = tmp_path / "answer.py"
    file.write_text(
        '"""A docstring of some words."""\n'
        "class A:\n"
        "    name: str\n"
        '    """A text below an attribute."""\n'
        "def say(n):\n"
        '    log.warning("not said to a user of it")\n'
        '    return f"{n} of them came to" " their end, and"\\\n'
        "        f\" {f'with {n} words more in it' if n else str()} it is over.\"\n"
    )
    assert messages(file) == [
        "{…} of them came to their end, and {…} it is over.",
        "with {…} words more in it",
    ]
