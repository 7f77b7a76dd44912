"""What a rule finds."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """A pattern that fits."""

    pattern: str
    """Its name, e.g. ``sqrt at zero``."""
    reason: str
    """What shows it, with the numbers: a clause without a full stop."""
    remedy: str
    """What to do, in a sentence."""
