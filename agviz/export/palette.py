"""Colours and marks. A colour never stands alone: each lane and each finding has its mark.

The colours are those of Okabe and Ito, which people with any colour vision tell apart.
"""

from __future__ import annotations

from dataclasses import dataclass

LANE_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#F0E442")
LANE_MARKS = ("●", "■", "▲", "◆", "★", "▼")
NO_LANE = "#999999"
SEVERAL_LANES = "◍"
ALARM = "#D55E00"
"""Failures and non-finite gradients; no lane has it."""
INK = "#1A1A1A"
FAINT = "#666666"
FRAME = "#9A9A9A"
PAPER = "#FFFFFF"
SHADE = "#F7F7F7"
"""Behind what belongs to a module."""


@dataclass(frozen=True, slots=True)
class LaneLook:
    """How a lane is drawn."""

    mark: str
    strong: str
    """Behind its mark and number."""
    pale: str
    """Behind the rest."""


def lane_look(position: int | None) -> LaneLook:
    """The look of the lane at ``position``, or of a node that no thread took up."""
    if position is None:
        return LaneLook("○", _tint(NO_LANE, 0.25), _tint(NO_LANE, 0.08))
    turn, place = divmod(position, len(LANE_COLOURS))
    mark = LANE_MARKS[place] + (str(turn + 1) if turn else "")
    return LaneLook(mark, _tint(LANE_COLOURS[place], 0.5), _tint(LANE_COLOURS[place], 0.14))


def mixed_look() -> LaneLook:
    """The look of a group whose nodes ran in several lanes."""
    return LaneLook(SEVERAL_LANES, _tint(NO_LANE, 0.5), _tint(NO_LANE, 0.14))


def _tint(colour: str, strength: float) -> str:
    """``colour`` on white paper."""
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(255 - (255 - part) * strength):02X}" for part in parts)
