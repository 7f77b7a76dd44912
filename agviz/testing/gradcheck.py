"""What ``torch.autograd.gradcheck`` found, in plain words."""

from __future__ import annotations

import math
import re
import traceback
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

_MISMATCH: Final = re.compile(
    r"Jacobian (?P<forward>computed with forward mode )?mismatch for output (?P<output>\d+) with"
    r" respect to input (?P<input>\d+),\s*numerical:(?P<numerical>.*?)analytical:"
    r"(?P<analytical>.*?)(?:\n\n|$)",
    re.DOTALL,
)
_ATTRIBUTE: Final = re.compile(r"\w+=[^,)]+")
"""In the text of a tensor, like ``dtype=torch.float64``."""
_NUMBER: Final = re.compile(r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|nan|inf)")
_CLOSE: Final = 0.01


class Checked(NamedTuple):
    """One error of gradcheck."""

    heading: str
    paragraph: str = ""


def checked(error: BaseException) -> Checked | None:
    """What gradcheck says, where it was that which raised ``error``."""
    if type(error).__name__ != "GradcheckError":
        return None
    found = _MISMATCH.search(str(error))
    if found is None:
        first = str(error).strip().partition("\n")[0].rstrip(",.:")
        return Checked(f"gradcheck failed: {first}")
    name = _name(error, int(found["input"]))
    which = f"input {found['input']}{f' ({name})' if name else ''}"
    way = "the forward-mode derivative" if found["forward"] else "the gradient"
    heading = f"gradcheck: {way} of output {found['output']} for {which} is wrong"
    numerical, analytical = _numbers(found["numerical"]), _numbers(found["analytical"])
    if len(numerical) != len(analytical) or not numerical:
        return Checked(heading)
    sentences = _compared("Forward mode" if found["forward"] else "Backward", numerical, analytical)
    return Checked(heading, " ".join(sentences))


def _compared(who: str, numerical: list[float], analytical: list[float]) -> Iterator[str]:
    pairs = list(zip(numerical, analytical, strict=True))
    wrong = [(n, a) for n, a in pairs if not math.isclose(n, a, rel_tol=1e-3, abs_tol=1e-6)]
    if not wrong:
        return
    n, a = max(wrong, key=lambda pair: abs(pair[0] - pair[1]))
    many = "" if len(pairs) == 1 else f"; {len(wrong)} of {plural(len(pairs), 'number')} differ"
    yield f"{who} gives {a:g} (analytical) where it is {n:g} (numerical){many}."
    ratios = [a / n for n, a in pairs if abs(n) > 1e-6]
    factor = ratios[0] if ratios else math.nan
    if not math.isfinite(factor) or any(abs(each - factor) > _CLOSE for each in ratios):
        return
    if abs(factor + 1) < _CLOSE:
        yield "The sign is the opposite of what it should be."
    elif len(ratios) > 1 and abs(factor) > _CLOSE:
        yield f"All of them are {factor:.3g} times what they should be."


def _numbers(text: str) -> list[float]:
    """Those in the text of a tensor; none of a complex one."""
    plain = _ATTRIBUTE.sub("", text)
    return [] if "j" in plain else [float(each) for each in _NUMBER.findall(plain)]


def _name(error: BaseException, number: int) -> str:
    """What the caller of gradcheck calls an input; empty where that is not known."""
    before: dict[str, Any] = {}
    for frame, _ in traceback.walk_tb(error.__traceback__):
        inputs = frame.f_locals.get("tupled_inputs")
        if inputs is not None:
            checked = [each for each in inputs if getattr(each, "requires_grad", False)]
            wanted = checked[number] if number < len(checked) else None
            names = (name for name, value in before.items() if value is wanted)
            return "" if wanted is None else next(names, "")
        if not frame.f_globals.get("__name__", "").startswith("torch."):
            before = frame.f_locals
    return ""
