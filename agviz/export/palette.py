"""Colours and marks. A colour is never alone: each lane and each finding has its mark.

The colours are those of Okabe and Ito, which people with any colour vision distinguish.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LANE_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#F0E442")
LANE_MARKS = ("●", "■", "▲", "◆", "★", "▼")
NO_LANE = "#999999"
SEVERAL_LANES = "◍"


@dataclass(frozen=True, slots=True)
class LaneLook:
    """How a lane is drawn."""

    mark: str
    strong: str
    """Behind its mark and number."""
    pale: str
    """Behind the rest."""


@dataclass(frozen=True, slots=True)
class Theme:
    """The colours of a picture, as ``#RRGGBB``."""

    name: str
    ink: str
    faint: str
    frame: str
    paper: str
    shade: str
    """Behind what belongs to a module."""
    alarm: str
    """Failures and non-finite gradients; no lane has it."""
    strength: tuple[float, float]
    """How much of a lane's colour there is in its strong look and in its pale one."""

    def lane(self, position: int | None) -> LaneLook:
        """The look of the lane at ``position``, or of a node that no thread took up."""
        strong, pale = self.strength
        if position is None:
            return LaneLook("○", self._tint(NO_LANE, strong / 2), self._tint(NO_LANE, pale / 2))
        turn, place = divmod(position, len(LANE_COLOURS))
        mark = LANE_MARKS[place] + (str(turn + 1) if turn else "")
        colour = LANE_COLOURS[place]
        return LaneLook(mark, self._tint(colour, strong), self._tint(colour, pale))

    def mixed(self) -> LaneLook:
        """The look of a group whose nodes ran in several lanes."""
        strong, pale = self.strength
        return LaneLook(SEVERAL_LANES, self._tint(NO_LANE, strong), self._tint(NO_LANE, pale))

    def _tint(self, colour: str, strength: float) -> str:
        """``colour`` on the paper."""
        mixed = (
            round(paper + (part - paper) * strength)
            for paper, part in zip(_parts(self.paper), _parts(colour), strict=True)
        )
        return "#" + "".join(f"{part:02X}" for part in mixed)


def in_the_dark() -> dict[str, str]:
    """The dark theme's colour in place of each of the light one's."""
    names = ("ink", "faint", "frame", "paper", "shade", "alarm")
    found = {getattr(LIGHT, name): getattr(DARK, name) for name in names}
    for position in (None, *range(len(LANE_COLOURS))):
        light, dark = LIGHT.lane(position), DARK.lane(position)
        found |= {light.strong: dark.strong, light.pale: dark.pale}
    mixed = LIGHT.mixed(), DARK.mixed()
    return found | {mixed[0].strong: mixed[1].strong, mixed[0].pale: mixed[1].pale}


def _parts(colour: str) -> tuple[int, ...]:
    return tuple(int(colour[i : i + 2], 16) for i in (1, 3, 5))


LIGHT: Final = Theme(
    name="light",
    ink="#1A1A1A",
    faint="#5C5C5C",
    frame="#9A9A9A",
    paper="#FFFFFF",
    shade="#F7F7F7",
    alarm="#C24E00",
    strength=(0.5, 0.14),
)
"""For paper, too: little ink, and marks that are read without colours."""
DARK: Final = Theme(
    name="dark",
    ink="#ECECEC",
    faint="#A3ABB5",
    frame="#6B7480",
    paper="#14181D",
    shade="#1B2027",
    alarm="#FF8A3D",
    strength=(0.4, 0.18),
)
THEMES: Final = {theme.name: theme for theme in (LIGHT, DARK)}
