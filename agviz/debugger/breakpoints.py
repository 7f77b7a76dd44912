"""Breakpoints: where a backward pass is to stop, and how one is written down.

A breakpoint says one or several things of a node; it is hit before a node runs of which all of them
are true. One for a kind of event is hit when such an event has happened.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from agviz.debugger.bounds import Bound
from agviz.debugger.expressions import Condition
from agviz.debugger.log_text import LogText
from agviz.errors import AgvizError
from agviz_engine.events import EVENT_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.traces.rows import Frame

KINDS: Final = {kind.__name__: kind for kind in EVENT_TYPES}
"""Kinds of events, by their names."""
LONGEST: Final = 300
"""Characters of a name, a path or a regular expression in a breakpoint."""
_LARGEST: Final = 2**63
_MOST_WORDS: Final = 40
_HELP: Final = (
    "write a node's name or regex, file.py:LINE, or name=, module=, parameter=, seq=, node=,"
    " line=, device=, event=, hit=, ignore=, and at the end: if CONDITION, log TEXT; or when BOUND,"
    " like fc.weight.grad.norm() > 1e3"
)


class BreakpointError(AgvizError):
    """What was asked for is no breakpoint; the message says why in one sentence."""


@dataclass(frozen=True, kw_only=True)
class Breakpoint:
    """One breakpoint. What is empty or None is not asked for.

    Raises:
        agviz.errors.AgvizError: a value makes no sense.
    """

    number: int = 0
    """By which it is listed and edited; 0: it has none yet."""
    name: str = ""
    """Regular expression, found in torch's name of the node; upper and lower case are alike where
    it has no upper-case letter: ``Mul`` is not in AccumulateGrad."""
    module: str = ""
    """Path of a module, whose nodes and those of modules in it are meant."""
    parameter: str = ""
    """Name of a parameter, whose AccumulateGrad is meant."""
    sequence_nr: int | None = None
    node: int | None = None
    """Index of the node in its graph task."""
    line: str = ""
    """``file.py:LINE``: nodes that this line of the forward made, or a call on it."""
    device: int | None = None
    """Index of the device thread's queue, -1: that of the thread that called backward."""
    event: str = ""
    """Kind of event; empty: before a node runs."""
    condition: str = ""
    """Of one of the gradients, or of parameters; see :mod:`agviz.debugger.expressions`."""
    when: str = ""
    """It is at no node, but at what passes a bound: a data breakpoint, see
    :mod:`agviz.debugger.bounds`."""
    log: str = ""
    """It stops nothing and prints this: a log point, see :mod:`agviz.debugger.log_text`."""
    hit_count: int | None = None
    """Stops only when it is hit for the time with this number, from 1."""
    ignore_count: int = 0
    """So many hits from the first on do not stop."""
    temporary: bool = False
    """It goes away when it has stopped the program."""
    enabled: bool = True
    hits: int = 0
    """How often it was hit since it was made."""

    _pattern: re.Pattern[str] | None = field(init=False, repr=False, compare=False, default=None)
    _place: tuple[str, int] | None = field(init=False, repr=False, compare=False, default=None)
    _predicate: Condition | None = field(init=False, repr=False, compare=False, default=None)
    _bound: Bound | None = field(init=False, repr=False, compare=False, default=None)
    _log_text: LogText | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        for name, kind in _FIELDS.items():
            _check(name, getattr(self, name), kind)
        if self.event and self.event not in KINDS:
            raise BreakpointError(f"there is no event {self.event!r}; there are {', '.join(KINDS)}")
        if self.hit_count is not None and self.hit_count < 1:
            raise BreakpointError("hits are counted from 1")
        if self.ignore_count < 0 or self.hits < 0:
            raise BreakpointError("a number of hits can't be negative")
        if not self.says_something:
            raise BreakpointError(f"a breakpoint has to say something of a node: {_HELP}")
        self._read_texts()

    def _read_texts(self) -> None:
        if self.name:
            object.__setattr__(self, "_pattern", _compiled(self.name))
        if self.line:
            object.__setattr__(self, "_place", _place(self.line))
        if self.condition:
            object.__setattr__(self, "_predicate", Condition(self.condition))
        if self.when:
            if self.is_of_a_node or self.event or self.condition:
                raise BreakpointError(
                    "a data breakpoint is at no place: what is behind `when` is all that it says"
                )
            object.__setattr__(self, "_bound", Bound(self.when))
        if self.log:
            object.__setattr__(self, "_log_text", LogText(self.log))

    @property
    def says_something(self) -> bool:
        """Whether it asks for anything at all."""
        return any(getattr(self, name) not in {"", None} for name in _CRITERIA)

    @property
    def is_of_a_node(self) -> bool:
        """Whether it asks for anything that only a node has."""
        others = {"event", "condition", "when"}
        return any(
            getattr(self, name) not in {"", None} for name in _CRITERIA if name not in others
        )

    @property
    def predicate(self) -> Condition | None:
        """Its condition, read."""
        return self._predicate

    @property
    def bound(self) -> Bound | None:
        """What has to be passed, read; None: it is at a place."""
        return self._bound

    @property
    def log_text(self) -> LogText | None:
        """What it prints, read; None: it stops."""
        return self._log_text

    def asks_for(self, facts: NodeProperties) -> bool:
        """Whether everything it says is true, but for its condition and the kind of event."""
        return (
            self.node in {None, facts.node}
            and self.sequence_nr in {None, facts.sequence_nr}
            and self.device in {None, facts.device}
            and (self._pattern is None or self._pattern.search(facts.name) is not None)
            and (not self.parameter or facts.parameter == self.parameter)
            and (not self.module or _is_within(facts.module, self.module))
            and (self._place is None or any(_is_at(each, *self._place) for each in facts.stack))
        )

    def stops_at(self, hits: int) -> bool:
        """Whether the hit with this number stops the program."""
        if self.hit_count is not None:
            return hits == self.hit_count
        return hits > self.ignore_count

    def changed(self, **changes: Any) -> Self:
        """A copy with other values.

        Raises:
            agviz.errors.AgvizError: a value makes no sense.
        """
        if strange := sorted(set(changes) - set(_FIELDS)):
            raise BreakpointError(f"a breakpoint has no {strange[0]!r}")
        return replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        """As it goes through the channel and into the file: what differs from the default."""
        return {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if each.init and getattr(self, each.name) != each.default
        }

    @classmethod
    def from_json(cls, data: object) -> Self:
        """A breakpoint that :meth:`to_json` gave, or somebody wrote by hand.

        Raises:
            agviz.errors.AgvizError: it is none.
        """
        if not isinstance(data, Mapping) or not all(isinstance(key, str) for key in data):
            raise BreakpointError("a breakpoint is an object with names")
        if strange := sorted(set(data) - set(_FIELDS)):
            raise BreakpointError(f"a breakpoint has no {strange[0][:LONGEST]!r}")
        return cls(**data)

    def describe(self) -> str:
        """As :func:`parse` reads it, without its number, hits and switches."""
        defaults = {each.name: each.default for each in fields(self)}
        values = {word: (name, getattr(self, name)) for word, name in _WORDS.items()}
        said = [
            f"{word}={value}" for word, (name, value) in values.items() if value != defaults[name]
        ]
        if self.condition:
            said += ["if", self.condition]
        if self.when:
            said += ["when", self.when]
        if self.log:
            said += ["log", self.log]
        return " ".join(said)


class NodeProperties(Protocol):
    """What a breakpoint may ask of a node; what is dear is found out when it is asked for."""

    @property
    def node(self) -> int:
        """Index in its graph task."""

    @property
    def name(self) -> str:
        """Torch's name."""

    @property
    def sequence_nr(self) -> int | None:
        """None: it is an AccumulateGrad."""

    @property
    def device(self) -> int:
        """Index of its queue."""

    @property
    def module(self) -> str:
        """Path of the module whose forward made it, or that has the parameter; empty: none."""

    @property
    def parameter(self) -> str:
        """Name of the parameter that it accumulates into; empty: none."""

    @property
    def stack(self) -> tuple[Frame, ...]:
        """Where the forward made it, outermost frame first."""


_FIELDS: Final[dict[str, tuple[type, ...]]] = {
    "number": (int,),
    "name": (str,),
    "module": (str,),
    "parameter": (str,),
    "sequence_nr": (int, type(None)),
    "node": (int, type(None)),
    "line": (str,),
    "device": (int, type(None)),
    "event": (str,),
    "condition": (str,),
    "when": (str,),
    "log": (str,),
    "hit_count": (int, type(None)),
    "ignore_count": (int,),
    "temporary": (bool,),
    "enabled": (bool,),
    "hits": (int,),
}
_CRITERIA: Final = (
    *("name", "module", "parameter", "sequence_nr", "node", "line", "device", "event"),
    *("condition", "when"),
)
_OF_TEXT: Final = {"condition", "when", "log"}
"""Fields that have a length of their own."""
_WORDS: Final = {
    "name": "name",
    "module": "module",
    "parameter": "parameter",
    "seq": "sequence_nr",
    "node": "node",
    "line": "line",
    "device": "device",
    "event": "event",
    "hit": "hit_count",
    "ignore": "ignore_count",
}
"""Words on the command line, and the fields they name."""


def parse(text: str, *, temporary: bool = False) -> Breakpoint:
    """Read a breakpoint as it is written on a command line: ``name=Mul module=encoder if nan > 0``.

    A word without ``=`` is ``file.py:LINE`` where it looks like that, else a node's name. Behind
    ``when`` is what passes a bound, behind ``log`` at the end what is printed.

    Raises:
        agviz.errors.AgvizError: it is none.
    """
    text, log_found, log = _split(text, "log")
    if log_found and not log:
        raise BreakpointError("behind `log` comes the text to print, like norm is {norm}")
    head, when_found, when = _split(text, "when")
    if when_found and not when:
        raise BreakpointError("behind `when` comes a bound, like fc.weight.grad.norm() > 1e3")
    head, found, condition = _split(head, "if")
    if found and not condition:
        raise BreakpointError("behind `if` comes a condition, like norm > 1e3")
    said: dict[str, Any] = {"when": when, "log": log}
    for word, value in _words(head):
        name = _WORDS.get(word)
        if name is None:
            raise BreakpointError(f"{word!r} is not known: {_HELP}")
        if name in said:
            raise BreakpointError(f"{word} is said twice")
        said[name] = _number(word, value) if int in _FIELDS[name] else value
    return Breakpoint(**said, condition=condition, temporary=temporary)


def log_words(text: str) -> tuple[str, str]:
    """Where a log point is, and what it prints: ``parameter=fc.weight hit=3 norm is {norm}``.

    The first word says where, and what follows it as ``word=value``; quotes around the text go.
    """
    words = text.split(" ")
    many = 1
    while many < len(words) and words[many].partition("=")[0] in _WORDS and "=" in words[many]:
        many += 1
    printed = " ".join(words[many:]).strip()
    if len(printed) > 1 and printed[0] == printed[-1] and printed[0] in "\"'":
        printed = printed[1:-1]
    return " ".join(words[:many]), printed


def _split(text: str, word: str) -> tuple[str, bool, str]:
    """What is in front of a word, whether it is there, and what is behind it."""
    match = re.search(rf"(?:^|\s){word}(?:\s|$)", text)
    if match is None:
        return text, False, ""
    return text[: match.start()], True, text[match.end() :].strip()


def _words(text: str) -> Iterator[tuple[str, str]]:
    words = text.split()
    if len(words) > _MOST_WORDS:
        raise BreakpointError("a breakpoint does not need so many words")
    for word in words:
        key, is_said, value = word.partition("=")
        if is_said and key in _WORDS:
            yield key, value
        elif is_said and key.isidentifier():
            raise BreakpointError(f"{key!r} is not known: {_HELP}")
        elif re.fullmatch(r".+\.py:\d+", word):
            yield "line", word
        else:
            yield "name", word


def _number(word: str, value: str) -> int:
    if not re.fullmatch(r"[+-]?\d{1,18}", value):
        raise BreakpointError(f"{word}= takes a whole number, not {value!r}")
    return int(value)


def _check(name: str, value: object, kinds: tuple[type, ...]) -> None:
    if type(value) not in kinds:
        raise BreakpointError(f"{name} can't be {str(value)[:LONGEST]!r}")
    if isinstance(value, str) and name not in _OF_TEXT and len(value) > LONGEST:
        raise BreakpointError(f"{name} has at most {LONGEST} characters")
    if isinstance(value, int) and abs(value) >= _LARGEST:
        raise BreakpointError(f"{name} can't be so large")


def _compiled(pattern: str) -> re.Pattern[str]:
    letters = re.sub(r"\\.", "", pattern)
    try:
        return re.compile(pattern, re.IGNORECASE if letters == letters.lower() else 0)
    except (re.error, RecursionError, OverflowError) as error:
        raise BreakpointError(f"{pattern!r} is no regular expression: {error}") from None


def _place(line: str) -> tuple[str, int]:
    file, _, number = line.rpartition(":")
    if not file or not re.fullmatch(r"\d{1,9}", number) or int(number) < 1:
        raise BreakpointError(f"{line!r} is no line; write one like train.py:12")
    return file.removeprefix("./"), int(number)


def _is_at(frame: Frame, file: str, line: int) -> bool:
    return frame.line == line and (
        frame.file == file or frame.file.endswith(f"/{file.lstrip('/')}")
    )


def _is_within(module: str, wanted: str) -> bool:
    return module == wanted or module.startswith(f"{wanted}.")
