"""The one place where strings of a trace file become harmless.

Names and messages come from user code, or from whoever wrote the file. A control character could
speak to the reader's terminal, and a bidirectional override could make a name read as another.
"""

from __future__ import annotations

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

_HARMFUL = dict.fromkeys(
    [
        *range(0x20),  # C0, escape among them
        *range(0x7F, 0xA0),  # delete and C1
        0x061C,
        0x200E,
        0x200F,
        *range(0x2028, 0x202F),  # line separators, bidirectional embeddings and overrides
        *range(0x2066, 0x206A),  # bidirectional isolates
        0xFEFF,
        *range(0xFFF9, 0xFFFC),
    ],
    REPLACEMENT,
)
_HARMFUL_IN_MESSAGE = {code: text for code, text in _HARMFUL.items() if code not in {0x09, 0x0A}}


def clean(text: str) -> str:
    """``text`` on one line, every control and direction character replaced."""
    return text if text.isprintable() else text.translate(_HARMFUL)


def clean_message(text: str) -> str:
    """The same for an exception's message, which keeps its line ends and tabs."""
    return text if text.isprintable() else text.translate(_HARMFUL_IN_MESSAGE)


def storable(text: str, limit: int) -> str:
    """``text`` cut to ``limit`` characters, in a form that UTF-8 can hold."""
    text = text[:limit]
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")
