"""Whether what a tool says of a program names the cause, by the same rules for every tool."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from gallery.running import SCRIPT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gallery.index import Program

Outcome = Literal["named", "partly", "silent", "misleading", "false alarm", "can't"]
OUTCOMES: Final[tuple[Outcome, ...]] = (
    "named",
    "partly",
    "silent",
    "misleading",
    "false alarm",
    "can't",
)

_FILE: Final = re.escape(SCRIPT)
_LINE: Final = re.compile(rf'\b{_FILE}(?::|", line )(\d+)\b')
_FRAME: Final = re.compile(r'\s*File "[^"]*", line \d+')
_CARETS: Final = re.compile(r"[\s^~]*")


MOST_WORDS: Final = 120
"""An answer that is read aloud has no more."""


class Answer(NamedTuple):
    """What a tool said of one program."""

    text: str
    """Its words; empty where it found nothing."""
    claimed: tuple[int, ...] = ()
    """The lines of the program that it gives as the place of the fault."""
    cant: str = ""
    """Why the tool can't be asked about this program."""
    parts: tuple[str, ...] = ()
    """The same by question, where the tool was asked several; empty: it was asked one."""

    @property
    def words(self) -> int:
        """How many words its longest answer to one question has (:func:`word_count`)."""
        return max(map(word_count, self.parts or (self.text,)))


def word_count(text: str) -> int:
    """How many words are read where ``text`` is read aloud.

    What is between spaces and holds a letter or a digit is one: code that is quoted, places and
    numbers count, rules and marks don't.
    """
    return sum(any(map(str.isalnum, each)) for each in text.split())


def judge(program: Program, answer: Answer) -> Outcome:
    """What ``answer`` is worth.

    A healthy program is right where nothing is said of it. Of the others, an answer has *named* the
    cause where it mentions a line of it, and its own words (what it quotes of the program does
    not count) hold one alternative of each group that must be there and none that must not; it is
    *misleading* where it holds one that must not be there, or claims lines of which none is the
    cause; *partly* right where it mentions the line or holds a group; else *silent*.
    """
    if answer.cant:
        return "can't"
    if program.is_healthy:
        return "false alarm" if answer.text else "silent"
    words = own_words(program, answer.text)
    has_line = bool(set(lines_in(answer.text)) & set(program.lines()))
    if any(wrong.search(words) for wrong in program.must_not) or (answer.claimed and not has_line):
        return "misleading"
    held = [any(one.search(words) for one in group) for group in program.must]
    if has_line and all(held):
        return "named"
    return "partly" if has_line or any(held) else "silent"


def lines_in(text: str) -> tuple[int, ...]:
    """The lines of the program that ``text`` mentions, as a traceback or an editor writes them."""
    return tuple(int(number) for number in _LINE.findall(text))


def own_words(program: Program, text: str) -> str:
    """``text`` without frames of tracebacks and without what it quotes of the program."""
    quotable = {" ".join(line.split()) for line in program.text().splitlines()}
    kept = []
    rows = text.splitlines()
    after_frame = False
    for row in rows:
        words = " ".join(row.split())
        is_frame = _FRAME.match(row) is not None
        if not (is_frame or after_frame or words in quotable or _CARETS.fullmatch(row)):
            kept.append(words)
        after_frame = is_frame
    said = " ".join(kept)
    for line in sorted(quotable, key=len, reverse=True):
        if len(line) > 12:
            said = said.replace(line, "")
    return said


def tally(outcomes: Sequence[Outcome]) -> dict[Outcome, int]:
    """How often each outcome came, in the order of :data:`OUTCOMES`."""
    return {one: outcomes.count(one) for one in OUTCOMES}
