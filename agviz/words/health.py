"""What was found among the numbers of a tensor."""

from __future__ import annotations


def nonfinite(nan: int, posinf: int, neginf: int, joint: str = ", ") -> str:
    """``3 NaN, 1 +Inf``; empty where all numbers are finite."""
    counts = ((nan, "NaN"), (posinf, "+Inf"), (neginf, "-Inf"))
    return joint.join(f"{count:,} {name}" for count, name in counts if count)
