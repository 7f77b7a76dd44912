"""What can be chosen about a recording, and how it is written on a command line."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from agviz.errors import AgvizError
from agviz.record.capture_level import LEVELS, CaptureLevel
from agviz.record.copies import MOST_BYTES
from agviz.record.recorder import LEAST_BYTES
from agviz.record.stores import OCCASIONS
from agviz_engine.engines import AUTO, ENGINES

_UNITS: Final = {"": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000, "t": 1_000_000_000_000}
FILE_BYTES: Final = 2_000_000_000
"""Bound of a file by default: some 1,800 passes of 10,000 events. Less than many a disk for
temporary files has free, and read by ``agviz summary`` within minutes."""
ENGINE_HELP: Final = (
    "which engine runs backward: agviz's own (exact), torch's, observed from hooks (native: what it"
    " does with its queues is inferred), or the exact one where it fits this torch (auto; default:"
    " what AGVIZ_ENGINE says, else auto)"
)
"""For ``--engine`` of a command line."""
LONGEST_TIMEOUT: Final = 10_000_000
"""Seconds; some four months."""
FALSE: Final = frozenset({"", "0", "f", "false", "n", "no", "off"})
"""What a variable of the environment is set to that is off, in any case; ``agviz.pth`` has them."""
KEPT: Final = 3
"""Backward passes a flight recorder keeps unless chosen otherwise."""


def engine_asked_for() -> str:
    """What ``AGVIZ_ENGINE`` is set to; ``auto`` where it is not.

    Raises:
        agviz.errors.AgvizError: that is no engine.
    """
    said = os.environ.get("AGVIZ_ENGINE", "").strip().lower() or AUTO
    if said not in ENGINES:
        raise AgvizError(f"AGVIZ_ENGINE={said!r} is none of {', '.join(ENGINES)}")
    return said


class SomePasses(NamedTuple):
    """Which calls of backward are recorded."""

    first: int = 50
    """So many of the first."""
    few: int = 8
    """After that, so many in a row."""
    every: int = 1024
    """Of so many."""

    def has(self, number: int) -> bool:
        """Whether a call is recorded, counted from 0 without reentrant ones."""
        return number < self.first or (number - self.first) % self.every >= self.every - self.few

    def __str__(self) -> str:
        return f"the first {self.first} and then {self.few} of each {self.every}"


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to record.

    Raises:
        agviz.errors.AgvizError: a value makes no sense.
    """

    steps: range | None = None
    """Calls of backward, counted from 0 without reentrant ones; None: all."""
    thinned: SomePasses | None = None
    """Which calls of backward are recorded of a program that makes very many; None: all."""
    nodes: re.Pattern[str] | None = None
    """Only the events of nodes in whose name, parameter or module this is found."""
    values: CaptureLevel = "health"
    """What to record of gradients besides shapes and bytes."""
    max_values_bytes: int = MOST_BYTES
    """Bytes of the gradients that are recorded themselves (``values="full"``)."""
    repro: str = ""
    """Of which nodes to keep what it takes to run them alone: ``nonfinite``, or a regular
    expression that is found in a node's name, parameter or module; empty: of none."""
    elements: re.Pattern[str] | None = None
    """Of nodes in whose name, parameter or module this is found: where the largest element of what
    they put out comes from; None: of none."""
    provenance: bool = True
    """Whether to record the line that created every node, and what it saved for backward."""
    check_forward: bool = False
    """Whether to record each torch function that the program calls, and the health of tensors."""
    max_bytes: int | None = None
    """Bound of the file: it keeps the first passes, the last ones, and those that failed; 0: there
    is none; None: :data:`FILE_BYTES`, or four times ``max_values_bytes`` where that is more."""
    on: frozenset[str] = frozenset()
    """Occasions on which a flight recorder writes; without any, all is written as it happens."""
    keep: int = KEPT
    """Calls of backward that the flight recorder keeps."""
    timeout: float | None = None
    """Seconds: a backward pass that is under way for so long is reported on stderr."""
    stop_on_timeout: bool = False
    """Whether the program is ended then."""
    engine: str = field(default_factory=engine_asked_for)
    """Which engine runs: ``exact``, ``native`` or ``auto`` (:mod:`agviz_engine.engines`)."""

    def __post_init__(self) -> None:
        if self.max_bytes and self.max_bytes < LEAST_BYTES:
            raise AgvizError(f"a trace needs at least {LEAST_BYTES:,} bytes; allow it more")
        if self.max_values_bytes < 1:
            raise AgvizError(f"no gradient fits into {self.max_values_bytes:,} bytes; allow more")
        if self.keep < 1:
            raise AgvizError(f"a flight recorder can't keep {self.keep} backward passes; keep 1")
        if self.timeout is not None and not 0 < self.timeout <= LONGEST_TIMEOUT:
            raise AgvizError(
                f"timeout={self.timeout!r} is no time to wait; it is at most {LONGEST_TIMEOUT:,} s"
            )
        if self.stop_on_timeout and self.timeout is None:
            raise AgvizError("there is no timeout on which to stop; say after how many seconds")
        if self.elements is not None and self.values == "none":
            raise AgvizError("elements are of gradients that are measured; record their health")
        if self.engine not in ENGINES:
            raise AgvizError(f"engine={self.engine!r} is none of {', '.join(ENGINES)}")
        if self.values not in LEVELS:
            raise AgvizError(f"values={self.values!r} is none of {', '.join(LEVELS)}")
        if strange := self.on - set(OCCASIONS):
            raise AgvizError(
                f"{min(strange)!r} is no occasion to write on; name some of {', '.join(OCCASIONS)}"
            )

    @property
    def limit(self) -> int | None:
        """Bytes that the file may have; None: as many as it takes."""
        if self.max_bytes is not None:
            return self.max_bytes or None
        return max(FILE_BYTES, 4 * self.max_values_bytes if self.values == "full" else 0)


def asked_to_check_forward() -> bool:
    """Whether ``AGVIZ_CHECK_FORWARD`` is set, to anything but :data:`FALSE`."""
    return os.environ.get("AGVIZ_CHECK_FORWARD", "").strip().lower() not in FALSE


def read_steps(text: str) -> range:
    """The range that ``A:B`` names; A or B may be left out."""
    match = re.fullmatch(r"(\d*):(\d*)", text)
    first, last = (int(n) if n else None for n in match.groups()) if match else (None, None)
    wanted = range(first or 0, sys.maxsize if last is None else last)
    if not match or not wanted:
        raise AgvizError(f"{text!r} is no range; write it like 10:12, 10: or :2")
    return wanted


def read_count(text: str) -> int:
    """A number from 1 on."""
    if not re.fullmatch(r"\d{1,18}", text) or not int(text):
        raise AgvizError(f"{text!r} is no number from 1 on")
    return int(text)


def read_seconds(text: str) -> float:
    """A time: ``30``, ``0.5``, ``90s``, ``10min``, ``2h``."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)\s*(s|min|h|)", text.strip().lower())
    seconds = float(match[1]) * {"": 1, "s": 1, "min": 60, "h": 3600}[match[2]] if match else 0.0
    if not 0 < seconds <= LONGEST_TIMEOUT:
        raise AgvizError(f"{text!r} is no time to wait; write it in seconds, like 60 or 0.5")
    return seconds


def read_pattern(text: str) -> re.Pattern[str]:
    """A regular expression."""
    try:
        return re.compile(text)
    except re.error as error:
        raise AgvizError(f"{text!r} is no regular expression: {error}") from None


def read_repro(text: str) -> str:
    """``nonfinite``, or a regular expression."""
    if not text:
        raise AgvizError("no node is chosen; say nonfinite, or . for all")
    return read_pattern(text).pattern


def read_size(text: str) -> int:
    """A number of bytes: ``200MB``, ``1.5 GB``, ``1GiB``, ``3000000``."""
    match = re.fullmatch(r"(\d{1,15}(?:\.\d+)?)\s*([kmgt]?)(i?)b?", text.strip().lower())
    if not match or (match[3] and not match[2]):
        raise AgvizError(f"{text!r} is no size; write it like 200MB or 1.5GB")
    unit = _UNITS[match[2]]
    if match[3]:
        unit = 1024 ** (len(str(unit)) // 3)
    return int(float(match[1]) * unit)


def read_limit(text: str) -> int:
    """A size in bytes, or ``none``: 0."""
    return 0 if text.strip().lower() in {"0", "none"} else read_size(text)


def read_occasions(text: str) -> frozenset[str]:
    """Names of occasions, separated by commas."""
    return frozenset(filter(None, (word.strip() for word in text.split(","))))
