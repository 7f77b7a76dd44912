"""Which sample, token or pixel it is: what the elements of a tensor that is not finite are called.

Note [Which axis is the sample's]
The first axis of what the program gives its outermost modules, as far as elements were followed to
it; an axis that a module (``batch_first``) or a function (a convolution) has by definition. Where
two of them say something else, where a parameter has that axis too, or where a module of the
program takes samples along the second axis and none of the tensors on the way was given to it,
nothing is said: the answer is an index then.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from agviz.analysis.blame import function_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.traces.elements import AxesNote, AxisRow, LocatedElements
    from agviz.traces.rows import ForwardOpRow

_MOST_SAID: Final = 3
"""Coordinates of an axis that are told."""
_PLACES: Final = frozenset({"token", "pixel", "step"})
_COLUMNS: Final = frozenset({"channel", "class"})
_REGROUPING: Final = frozenset({"reshape", "view", "flatten", "unflatten"})
_OF_DATA: Final = frozenset(
    {"Addmm", "Mm", "Bmm", "Baddbmm", "Linear", "Convolution", "Embedding", "Mul", "Div"}
)
"""Functions whose operand without a gradient is taken for data, where no module was given any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinates:
    """Where along an axis."""

    role: str
    """``token``, ``pixel``, ``step``, ``position``; ``channel``, ``class``, ``column``."""
    at: tuple[int, ...]
    sizes: tuple[int, ...]
    """Of the axis; of several for a pixel, whose coordinates ``at`` are."""

    def __str__(self) -> str:
        if self.role == "pixel" and len(self.sizes) > 1:
            return f"pixel {_listed(self.at, brackets='()')} of {' x '.join(map(str, self.sizes))}"
        several = "es" if self.role == "class" else "s"
        return f"{self.role}{several if len(self.at) > 1 else ''} {_and(self.at)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementPlace:
    """Where in the data of the program it is; ``str()`` is how that is said."""

    sample: tuple[int, ...] = ()
    """Along the axis of samples; empty: it is not known, or it is in very many."""
    position: tuple[Coordinates, ...] = ()
    """In the sample; empty: in all of it, or it is not known."""
    column: Coordinates | None = None
    """Channel, class or feature."""
    index: str
    """Of the tensor itself, ``[17, :, 3]``; empty where it is not narrower than all."""
    shape: tuple[int, ...]
    """Of that tensor."""
    count: int
    """Elements in all."""
    is_all: bool
    """Whether these are all that are not finite, or some of them."""
    given_by: str = ""
    """The function by which the program had put the rows together anew, where that is known."""
    is_met: bool = False
    """Whether it may have begun in another place of the sample."""

    def __str__(self) -> str:
        if not self.sample:
            return f"index {self.index} of {list(self.shape)}" if self.index else ""
        what = "row" if self.given_by else "sample"
        of = f" of what {self.given_by} gave" if self.given_by else ""
        said = [f"{what}{'s' if len(self.sample) > 1 else ''} {_and(self.sample)}{of}"]
        said += map(str, self.position)
        said += [str(self.column)] if self.column is not None else []
        return ", ".join(said)

    def met(self) -> ElementPlace:
        """What is known of where it began, where this is only where it was met: the sample."""
        return replace(self, position=(), column=None, index="", is_met=True)

    def after(self, ops: Sequence[ForwardOpRow]) -> ElementPlace:
        """The same, known to come after these functions of the forward."""
        return replace(self, given_by=_regrouped(ops)) if self.sample else self

    @property
    def sentence(self) -> str:
        """The same as a sentence; empty where nothing is known."""
        said = str(self)
        if not said:
            return ""
        if self.is_met:
            return f"It was met in {said}." if self.is_all else f"It was met in {said} and others."
        return f"That is {said}." if self.is_all else f"Among its elements is {said}."

    def as_json(self) -> dict[str, object]:
        """Everything, as JSON can hold it."""
        return {
            "sample": list(self.sample),
            "position": [_json(each) for each in self.position],
            "column": None if self.column is None else _json(self.column),
            "index": self.index,
            "shape": list(self.shape),
            "count": self.count,
            "all": self.is_all,
            "met": self.is_met,
        }


def _json(where: Coordinates) -> dict[str, object]:
    return {"what": where.role, "at": list(where.at), "of": list(where.sizes)}


def place_of(located: LocatedElements) -> ElementPlace:
    """What the elements of a tensor are called."""
    return _Deciding(located).place()


def _regrouped(ops: Sequence[ForwardOpRow]) -> str:
    """What changed number or order of the rows of data, that a module took; empty: nothing did."""
    known: dict[int, str] = {}
    for op in ops:
        found = next((known[row.tensor] for row in op.inputs if row.tensor in known), "")
        if op.module is not None:
            if found:
                return found
            continue
        if not found and _changes_rows(op):
            found = op.name
        if found:
            known.update((row.tensor, found) for row in op.outputs)
    return ""


def _changes_rows(op: ForwardOpRow) -> bool:
    """Whether rows were cut or joined anew, left out by a mask, or put into another order.

    An index of fewer rows takes a batch, whose samples are counted as they come.
    """
    given, gave, name = op.inputs[:2], op.outputs[:1], function_name(op.name)
    if not given or not given[0].shape or not gave or not gave[0].shape or gave[0].requires_grad:
        return False
    is_same = given[0].shape[0] == gave[0].shape[0]
    if name in _REGROUPING:
        return not is_same
    is_choice = name == "getitem" and len(given) == 2 and given[1].place == "1"
    return is_choice and (given[1].dtype == "bool") != is_same


def together(function: ElementPlace | None, node: ElementPlace | None) -> ElementPlace | None:
    """What is known where a function of the forward began it and a node met it.

    Args:
        function: where it is in a tensor of the function.
        node: where it is in what the node put out.
    """
    if function is None:
        return None if node is None else node.met()
    if function.sample or node is None or not node.is_all or len(node.sample) != 1:
        return function
    return replace(function, sample=node.sample)


class _Deciding:
    def __init__(self, located: LocatedElements) -> None:
        self._count = located.total
        self._first, self._all = (note.axes for note in located.notes[:2])
        self._notes = located.notes[2:]
        self._of_parameters = {
            axis.origin
            for note in self._named("parameter")
            for axis in note.axes
            if axis.is_narrow and axis.size > 1 and axis.origin is not None
        }
        given = self._named("given")
        self._data = given or [
            note
            for note in self._named("data")
            if note.name.split()[-1] in _OF_DATA and len(note.axes) > 1
        ]

    def place(self) -> ElementPlace:
        sample = self._sample()
        position, column = ((), None) if sample is None else self._within(sample)
        rest = zip(self._first, self._all, strict=True)
        return ElementPlace(
            sample=() if sample is None else tuple(sample.at or ()),
            position=position,
            column=column,
            index=_index(self._first),
            shape=tuple(axis.size for axis in self._first),
            count=self._count,
            is_all=all(_equal(first.at, every.at) for first, every in rest),
        )

    def _named(self, what: str) -> list[AxesNote]:
        return [note for note in self._notes if note.what == what]

    # -- samples ----------------------------------------------------------------------------------

    def _sample(self) -> AxisRow | None:
        """The axis of samples, with where it is along that; None: it is not known."""
        of_modules = list(_of_role(self._named("module"), "sample"))
        of_functions = list(_of_role(self._named("function"), "sample"))
        if self._named("elsewhere"):
            return None
        if of_modules:
            claims = of_modules
        elif self._named("undecided"):
            claims = of_functions
        else:
            claims = self._of_data() or of_functions
        claims = [axis for axis in claims if axis.is_narrow]
        if not claims or any(not _equal(axis.at, claims[0].at) for axis in claims):
            return None
        found = next((axis for axis in claims if axis.origin is not None), claims[0])
        if found.origin in self._of_parameters or len(found.at or ()) > _MOST_SAID:
            return None
        return None if self._is_everywhere(found) else found

    def _is_everywhere(self, axis: AxisRow) -> bool:
        """Whether so many samples are concerned that one of them says little."""
        if axis.origin is None or axis.origin >= len(self._all):
            return False
        every = self._all[axis.origin]
        return every.at is None or (len(every.at) > _MOST_SAID and 2 * len(every.at) > every.size)

    def _of_data(self) -> list[AxisRow]:
        found = [note.axes for note in self._data if note.axes and note.axes[0].size > 1]
        one_sample = {
            len(note.axes)
            for note in self._named("function")
            if any(axis.role == "sample" and axis.size == 1 for axis in note.axes)
        }
        return [
            axes[0]
            for axes in found
            if len(axes) + 1 not in one_sample
            and not any(_is_inside(axes, others) for others in found)
        ]

    # -- positions --------------------------------------------------------------------------------

    def _within(self, sample: AxisRow) -> tuple[tuple[Coordinates, ...], Coordinates | None]:
        """Position and column: by a function, else in the data, else in the tensor itself."""
        by_role = self._by_role()
        in_data, column_of_data = self._in_data(sample)
        own, own_column = self._own(sample)
        is_vague = any(len(axis.at or ()) > 1 for axis in in_data)
        found, column = in_data, column_of_data or own_column
        if not in_data or (is_vague and own):
            found, column = own, own_column or column_of_data
        if by_role:
            column = column_of_data
        position = by_role or tuple(_coordinates("position", axis) for axis in found)
        named = self._named_column()
        if named is None and column is not None:
            named = _coordinates("column", column)
        return position, named

    def _by_role(self) -> tuple[Coordinates, ...]:
        for note in self._notes:
            axes = [axis for axis in note.axes if axis.role in _PLACES]
            if axes and all(map(_can_be_said, axes)):
                if all(axis.role == "pixel" and len(axis.at or ()) == 1 for axis in axes):
                    return (_coordinates("pixel", *axes),)
                return tuple(_coordinates(axis.role, axis) for axis in axes)
        return ()

    def _named_column(self) -> Coordinates | None:
        axes = (axis for note in self._notes for axis in note.axes)
        good = (axis for axis in axes if axis.role in _COLUMNS and _can_be_said(axis))
        return next((_coordinates(axis.role, axis) for axis in good), None)

    def _in_data(self, sample: AxisRow) -> tuple[list[AxisRow], AxisRow | None]:
        """Where in the data it is; nothing where it is not the same place in all of it."""
        split = [_split(_others(note.axes, sample)) for note in self._data]
        positions = [found for found, _ in split if found]
        columns = [[axis] for _, axis in split if axis is not None]
        position = positions[0] if positions and _are_one(positions) else []
        column = columns[0][0] if columns and _are_one(columns) else None
        return position, column

    def _own(self, sample: AxisRow) -> tuple[list[AxisRow], AxisRow | None]:
        """Where in the tensor itself, if its samples are along one axis."""
        if sample.origin is None or sample.origin >= len(self._first):
            return [], None
        axes = [axis for axis in self._first if axis.origin != sample.origin]
        narrow = [axis for axis in axes if _can_be_said(axis)]
        if not narrow or narrow[-1] is not axes[-1] or self._is_position(narrow[-1], sample):
            return narrow, None
        return narrow[:-1], narrow[-1]

    def _is_position(self, axis: AxisRow, sample: AxisRow) -> bool:
        """Whether the last axis of the tensor is one of positions in the data."""
        data = [_positions(_others(note.axes, sample)) for note in self._data]
        others = [each for axes in data for each in axes]
        return any(
            each.origin == axis.origin
            or (each.size == axis.size and (each.at is None or set(axis.at or ()) <= set(each.at)))
            for each in others
        )


def _of_role(notes: Sequence[AxesNote], role: str) -> Iterator[AxisRow]:
    """Axes of a role of which there are several coordinates."""
    for note in notes:
        yield from (axis for axis in note.axes if axis.role == role and axis.size > 1)


def _is_inside(axes: Sequence[AxisRow], others: Sequence[AxisRow]) -> bool:
    """Whether the first axis of a tensor is a later one of a larger tensor, as of positions."""
    return (
        len(axes) < len(others)
        and any(axis.size == axes[0].size and _equal(axis.at, axes[0].at) for axis in others[1:])
        and not _equal(axes[0].at, others[0].at)
    )


def _others(axes: Sequence[AxisRow], sample: AxisRow) -> Sequence[AxisRow]:
    """The axes but that of samples; none where it is not known which that is."""
    known = [axis for axis in axes if axis.origin is not None and axis.origin == sample.origin]
    known += [axis for axis in axes if axis.size == sample.size and _equal(axis.at, sample.at)]
    return [axis for axis in axes if axis is not known[0]] if known else ()


def _split(axes: Sequence[AxisRow]) -> tuple[list[AxisRow], AxisRow | None]:
    """Positions and column, as far as they are narrow, of all axes but that of samples."""
    positions = _positions(axes)
    columns = [axis for axis in axes[len(positions) :] if _can_be_said(axis)]
    return [axis for axis in positions if _can_be_said(axis)], columns[0] if columns else None


def _positions(axes: Sequence[AxisRow]) -> Sequence[AxisRow]:
    """The axes before that of columns."""
    return axes if axes and axes[-1].role in _PLACES else axes[:-1]


def _can_be_said(axis: AxisRow) -> bool:
    return axis.is_narrow and axis.size > 1 and len(axis.at or ()) <= _MOST_SAID


def _are_one(places: Sequence[Sequence[AxisRow]]) -> bool:
    """Whether all are the same coordinates of the same axes."""
    known = [[(axis.origin, *(axis.at or ())) for axis in place] for place in places]
    return all(each == known[0] for each in known)


def _equal(one: Sequence[int] | None, other: Sequence[int] | None) -> bool:
    return (one is None) == (other is None) and tuple(one or ()) == tuple(other or ())


def _coordinates(role: str, *axes: AxisRow) -> Coordinates:
    at = tuple(each for axis in axes for each in axis.at or ())
    return Coordinates(role=role, at=at, sizes=tuple(axis.size for axis in axes))


def _index(axes: Sequence[AxisRow]) -> str:
    if not any(axis.is_narrow and axis.size > 1 for axis in axes):
        return ""
    said = [":" if axis.at is None or not axis.is_narrow else _run(axis.at) for axis in axes]
    return f"[{', '.join(said)}]"


def _run(at: Sequence[int]) -> str:
    if len(at) == 1:
        return str(at[0])
    if at[-1] - at[0] == len(at) - 1:
        return f"{at[0]}:{at[-1] + 1}"
    shown = [*map(str, at[:_MOST_SAID]), *["…"] * (len(at) > _MOST_SAID)]
    return f"[{', '.join(shown)}]"


def _listed(at: Sequence[int], brackets: str) -> str:
    return f"{brackets[0]}{', '.join(map(str, at))}{brackets[1]}"


def _and(at: Sequence[int]) -> str:
    *before, last = map(str, at)
    return f"{', '.join(before)} and {last}" if before else last
