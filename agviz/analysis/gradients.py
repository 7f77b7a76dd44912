"""The answer to why gradients are None or zero: a row for each parameter, and its words."""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, overload

from agviz.analysis.causes import REMEDIES, Cause, is_choice
from agviz.analysis.outcome import Outcome
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agviz.traces.rows import Frame

GradientWord = Literal["some", "faint", "nonfinite", "zero", "none", "unknown"]
"""What a gradient is: ``unknown`` where it was not measured, ``faint`` where it is practically
zero (:mod:`agviz.analysis.faint`)."""
WORDS: Final[dict[GradientWord, str]] = {
    "some": "ok",
    "unknown": "reached",
    "nonfinite": "not finite",
    "faint": "≈ 0",
    "zero": "zero",
    "none": "None",
}
"""The same in a word, as tables show it."""
_WHAT: Final[dict[GradientWord, str]] = {
    "none": "no gradient (None)",
    "zero": "a gradient of zeros",
    "nonfinite": "a gradient that is not finite",
    "faint": "a gradient that is practically zero",
}
"""What is wrong with a gradient."""
_ALL: Final = "*"
"""In place of a name: every parameter there is."""
_MOST_NAMED: Final = 3
_WITH_NORM: Final = frozenset({"some", "faint"})
INTENDED: Final = {
    Cause.FROZEN,
    Cause.EMPTY,
    Cause.SHIFT,
    Cause.NOT_HELD,
    Cause.PUT_THERE,
    Cause.DIFFERENCE,
    Cause.LEARNT,
    Cause.NO_ELEMENTS,
}
"""Causes that are no fault in themselves."""


class GradientRow(NamedTuple):
    """What became of the gradient of one parameter."""

    parameter: str
    shape: tuple[int, ...] | None
    """None: not known."""
    dtype: str
    gradient: GradientWord
    norm: float | None
    """Its Euclidean norm; None where there is none, it is not finite or was not measured."""
    cause: Cause | None
    """Why it is None, zero or of no use; None where it is none of these."""
    reason: str
    """The same in one phrase."""
    line: str | None = None
    """The line that did it, like ``train.py:42 in forward``."""
    module: str | None = None
    """The module in whose forward that was."""
    op: str = ""
    """The torch function that did it, where that is known: ``Tensor.detach``."""
    node: int | None = None
    """The node that did it, of ``graph_task``."""
    node_name: str = ""
    """Its short name."""
    graph_task: int | None = None
    """The graph task that ``gradient`` and ``node`` describe; None: there was none."""
    details: tuple[str, ...] = ()
    """What else is known, in sentences."""
    frame: Frame | None = None
    """The same as ``line``, in parts."""
    beside: str = ""
    """Beside what its norm is next to nothing, in words."""
    advice: str = ""
    """What to do, where that is another thing than its cause tells; empty: it is not."""

    def at(self, frame: Frame | None) -> GradientRow:
        """The same with a line to look at; None leaves it as it is."""
        if frame is None:
            return self
        return self._replace(frame=frame, line=str(frame))

    @property
    def is_there(self) -> bool:
        """Whether it has a gradient of use, as far as that was measured."""
        return self.gradient in {"some", "unknown"}

    @property
    def is_fine(self) -> bool:
        """The same, or it is meant to have none."""
        return self.is_there or self.cause in INTENDED

    @property
    def outcome(self) -> Outcome:
        """✓ only where its gradient was looked at."""
        if not self.is_fine:
            return Outcome.FOUND
        return Outcome.CANT_TELL if self.gradient == "unknown" else Outcome.NOTHING_UNUSUAL

    def __str__(self) -> str:
        return "\n".join([self.sentence, *self.details])

    def as_json(self) -> dict[str, object]:
        """The same as JSON can hold it: an infinite norm is a text."""
        facts = self._asdict()
        del facts["frame"], facts["beside"], facts["advice"]
        if self.norm is not None and not math.isfinite(self.norm):
            facts["norm"] = str(self.norm)
        return facts

    @property
    def sentence(self) -> str:
        """One paragraph that a person can act on."""
        return self.about(self.parameter)

    @property
    def remedy(self) -> str:
        """What to do about it, in a sentence; empty where there is nothing."""
        if self.node_name.startswith("CompiledFunction"):
            return "Run it without torch.compile to learn which line cut it off."
        if self.cause is Cause.MASKED and self.node_name.startswith("Embedding"):
            return "Leave padding_idx to an index that stands for padding alone."
        if self.cause is Cause.MASKED and is_choice(self.node_name):
            return "Look at the scale of both arguments: only the one that is taken is trained."
        if self.advice:
            return self.advice
        return REMEDIES.get(self.cause, "") if self.cause else ""

    def about(self, name: str, *, many: bool = False) -> str:
        """The same of parameters of which the same is to be said, under their common name."""
        if self.is_there:
            return f"{self.heading(name, many=many)}."
        place = f", at {self.line}" if self.line else ""
        module = f" ({self.module})" if self.module and self.line else ""
        said = f"{self.heading(name, many=many)}{place}{module}."
        return f"{said} {self.remedy}" if self.remedy else said

    def heading(self, name: str, *, many: bool = False, which: str = "") -> str:
        """What and why, without the line.

        Args:
            name: of the parameters.
            many: whether these are several.
            which: which they are, where ``name`` says how many.
        """
        is_, has = ("are", "have") if many else ("is", "has")
        if self.gradient == "unknown":
            said = f"; {self.reason}" if self.reason else ""
            return f"{name} {is_} reached from the loss{said}"
        if self.gradient == "some":
            norm = "" if self.norm is None or many else f", of norm {self.norm:.3g}"
            said = f" ({self.reason})" if self.reason else ""
            return f"{name} {has} a gradient{norm}{said}"
        what = _WHAT[self.gradient]
        if self.gradient == "faint" and self.norm is not None and not many:
            what += f" (norm {self.norm:.3g}{self.beside})"
        return f"{name} {has} {what}{which}: {self.reason}"


class Group(NamedTuple):
    """Parameters of which the same is to be said."""

    name: str
    """Of the only one, or of the module whose parameters they are all: ``encoder.*``; of the first
    and the last where there are several of these."""
    rows: list[GradientRow]

    @classmethod
    def of(cls, groups: Sequence[Group]) -> Group:
        """Several as one, under the names of the first of them."""
        names = [group.name for group in groups]
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        rows = [row for group in groups for row in group.rows]
        return cls(", ".join(names[:_MOST_NAMED]) + more, rows)

    @property
    def sentence(self) -> str:
        """What is to be said of all of them."""
        return self.rows[0].about(self._who, many=len(self.rows) > 1)

    @property
    def heading(self) -> str:
        """The same without the line."""
        return self.rows[0].heading(self._who, many=len(self.rows) > 1)

    def heading_among(self, total: int) -> str:
        """The same with how many they are of so many parameters."""
        count = len(self.rows)
        which = "" if self.name == _ALL else f", {self.name}"
        who = f"{count:,} of {plural(total, 'parameter')}"
        return self.rows[0].heading(who, many=count > 1, which=which)

    @property
    def _who(self) -> str:
        return f"all {len(self.rows):,} parameters" if self.name == _ALL else self.name


class Gradients(Sequence[GradientRow]):
    """What became of the gradients of parameters; ``str`` of it is the answer.

    ``pandas.DataFrame(...)`` takes it, ``answer["encoder.weight"]`` is one row.

    Args:
        rows: in the order of the parameters.
        hint: how more could be known, in a sentence; empty where nothing is missing.
        doubt: what went wrong in the last backward pass of those, in a sentence; empty: nothing.
    """

    def __init__(self, rows: Iterable[GradientRow], hint: str = "", doubt: str = "") -> None:
        self.rows = list(rows)
        self.hint = hint
        self.doubt = doubt

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int | str) -> GradientRow: ...
    @overload
    def __getitem__(self, index: slice) -> list[GradientRow]: ...
    def __getitem__(self, index: int | str | slice) -> GradientRow | list[GradientRow]:
        if isinstance(index, str):
            found = next((row for row in self.rows if row.parameter == index), None)
            if found is None:
                raise KeyError(index)
            return found
        return self.rows[index]

    @property
    def is_fine(self) -> bool:
        """Whether every parameter has a gradient, or is meant to have none."""
        return not self._is_all_shift and all(row.is_fine for row in self.rows)

    @property
    def outcome(self) -> Outcome:
        """The worst of the rows; no ✓ where the pass itself went wrong."""
        found = {row.outcome for row in self.rows}
        if self._is_all_shift or Outcome.FOUND in found:
            return Outcome.FOUND
        if self.doubt or not found or Outcome.CANT_TELL in found:
            return Outcome.CANT_TELL
        return Outcome.NOTHING_UNUSUAL

    def groups(self, *, apart: bool = False) -> list[Group]:
        """The rows, those together of which the same is to be said of a whole module.

        Args:
            apart: each by itself.
        """
        return [Group(row.parameter, [row]) for row in self.rows] if apart else _grouped(self.rows)

    @property
    def trained(self) -> list[GradientRow]:
        """Those of parameters that require a gradient."""
        return [row for row in self.rows if row.cause is not Cause.FROZEN]

    @property
    def _is_all_shift(self) -> bool:
        """Whether all that is trained is normalised away; a bias beside weights may be."""
        return bool(self.trained) and all(row.cause is Cause.SHIFT for row in self.trained)

    @property
    def verdict(self) -> str:
        """All of them in one sentence."""
        if not self.rows:
            return "no parameter is known"
        trained = self.trained
        frozen = len(self.rows) - len(trained)
        if not trained:
            return f"no parameter requires a gradient ({plural(frozen, 'parameter')})"
        said = f"; {frozen:,} {'is' if frozen == 1 else 'are'} frozen" if frozen else ""
        others = [row for row in trained if row.cause is not Cause.SHIFT]
        judged = others or trained
        counts = {kind: sum(row.gradient == kind for row in judged) for kind in _WHAT}
        if shifts := len(trained) - len(judged):
            said += f"; {shifts:,} practically zero, normalised away"
        if not any(counts.values()):
            whose = (
                "the parameter has"
                if len(trained) == 1
                else f"all {len(trained):,} parameters have"
            )
            if any(row.gradient == "unknown" for row in trained):
                whose = whose.replace("has", "is").replace("have", "are")
                return f"{whose} reached from the loss{said}"
            return f"{whose} a gradient{said}"
        of = f" of {plural(len(trained), 'parameter')}"
        wrong: list[str] = []
        for kind, what in _WHAT.items():
            if count := counts[kind]:
                which = what.replace("a gradient", "one", 1) if wrong else what
                has = "has" if count == 1 else "have"
                wrong.append(f"{count:,}{'' if wrong else of} {has} {which}")
        return ", ".join(wrong) + said

    def __str__(self) -> str:
        if len(self.rows) == 1:
            return " ".join(filter(None, [self.rows[0].sentence, self.doubt, self.hint]))
        lines = [self.verdict]
        for group in self.groups():
            row = group.rows[0]
            if not row.is_fine:
                lines.append(group.sentence)
        return "\n".join([*lines, *filter(None, [self.doubt, self.hint])])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        heading = ("parameter", "gradient", "norm", "why", "line")
        rows = [_cells(group) for group in self.groups()]
        table = "".join(
            f"<tr>{''.join(f'<{cell}>{html.escape(text)}</{cell}>' for text in row)}</tr>"
            for cell, row in [("th", heading), *(("td", row) for row in rows)]
        )
        said = "<br>".join(map(html.escape, filter(None, [self.verdict, self.doubt, self.hint])))
        return f"<p>{said}</p><table>{table}</table>"


def norms(group: Group) -> str:
    """The norm, or the least and the largest of several; empty where there is none."""
    found = [row.norm for row in group.rows if row.norm is not None and row.gradient in _WITH_NORM]
    if not found:
        return ""
    least, most = f"{min(found):.2g}", f"{max(found):.2g}"
    return least if least == most else f"{least}…{most}"


def _cells(group: Group) -> tuple[str, ...]:
    row = group.rows[0]
    many = f" ({len(group.rows):,} of them)" if len(group.rows) > 1 else ""
    reason = f"{row.reason}. {row.remedy}" if row.remedy and not row.is_fine else row.reason
    return group.name + many, WORDS[row.gradient], norms(group), reason, row.line or ""


def _grouped(rows: Sequence[GradientRow]) -> list[Group]:
    """Join all parameters of a module, outermost modules first, where they are alike.

    Then join neighbours that are alike as well: ``layers.1.* … layers.9.*``.
    """
    found: list[Group] = []
    position = 0
    below = _below(rows)
    around = _around(rows, below)
    while position < len(rows):
        taken = [rows[position]]
        name = rows[position].parameter
        parts = name.split(".")
        for depth in range(around, len(parts)):
            prefix = ".".join(parts[:depth])
            inside = below[prefix]
            if len(inside) > 1 and inside[0] == position and _are_alike(rows, inside):
                taken = [rows[number] for number in inside]
                name = f"{prefix}.*" if prefix else _ALL
                break
        found.append(Group(name, taken))
        position += len(taken)
    joined: list[Group] = []
    for _, alike in itertools.groupby(found, key=lambda group: _said(group.rows[0])):
        groups = list(alike)
        name = groups[0].name if len(groups) == 1 else f"{groups[0].name} … {groups[-1].name}"
        joined.append(Group(name, [row for group in groups for row in group.rows]))
    return joined


def _below(rows: Sequence[GradientRow]) -> dict[str, list[int]]:
    """Positions of the parameters of every module, by its path."""
    found: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        parts = row.parameter.split(".")
        for depth in range(len(parts)):
            found.setdefault(".".join(parts[:depth]), []).append(number)
    return found


def _around(rows: Sequence[GradientRow], below: Mapping[str, Sequence[int]]) -> int:
    """Depth of the innermost module that all parameters are in."""
    depth = 0
    for parts in [row.parameter.split(".") for row in rows[:1]]:
        while len(below.get(".".join(parts[: depth + 1]), ())) == len(rows) > 1:
            depth += 1
    return depth


def _are_alike(rows: Sequence[GradientRow], numbers: Sequence[int]) -> bool:
    if numbers[-1] - numbers[0] != len(numbers) - 1:
        return False  # others are between
    return len({_said(rows[number]) for number in numbers}) == 1


def _said(row: GradientRow) -> tuple[object, ...]:
    return row.gradient, row.cause, row.reason, row.line, row.advice
