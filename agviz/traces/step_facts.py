"""What optimizers hold, find and leave behind in each step: written and read."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from agviz.traces.dumps import stack as stack_in
from agviz.traces.rows import visible
from agviz.words.shapes import read_shape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from agviz.traces.contents import Contents
    from agviz.traces.database import Database
    from agviz.traces.rows import Frame, Shape

    Text: TypeAlias = Callable[[str], int]
    Keep: TypeAlias = Callable[[tuple[Frame, ...]], int]
    Rows: TypeAlias = Iterator[tuple[str, tuple[float | None, ...]]]


class SeenOptimizer(NamedTuple):
    """An optimizer, on its way to the file."""

    graph_task: int
    number: int
    name: str
    """Of its class."""
    made: Callable[[], tuple[Frame, ...]] | None
    stepped: Callable[[], tuple[Frame, ...]] | None
    """Stacks that made it, and that called its first step; None: not known. To ask is dear."""

    def rows(self, text: Text, stack: Keep) -> Rows:
        """The table, and the row for it."""
        stacks = (_own(each, stack) for each in (self.made, self.stepped))
        yield "optimizer", (self.number, text(self.name), *stacks)


class StepFacts(NamedTuple):
    """What an optimizer held and found when it stepped, on its way to the file."""

    graph_task: int
    step: int
    optimizer: int
    least_rate: float | None
    most_rate: float | None
    decay: float | None
    eps: float | None
    held: int
    without_grad: int
    reached: int
    is_kept: bool
    sample: Sequence[tuple[str, float | None, float, float, float | None]]

    def rows(self, text: Text, _stack: object) -> Rows:
        """The tables, and the rows for them."""
        rates = self.least_rate, self.most_rate, *map(_real, (self.decay, self.eps))
        counts = self.held, self.without_grad, self.reached, self.is_kept
        yield "step_fact", (self.step, self.optimizer, *rates, *counts)
        for number, (name, *norms) in enumerate(self.sample):
            yield "step_sample", (self.step, number, text(name), *map(_real, norms))


class HeldParameters(NamedTuple):
    """What an optimizer holds from a step on, on its way to the file."""

    graph_task: int
    optimizer: int
    since: int
    parameters: Sequence[tuple[str, str, str, bool, bool]]
    """Name, shape, dtype, whether it requires a gradient, and had one."""

    def rows(self, text: Text, _stack: object) -> Rows:
        """The table, and the rows for it."""
        for number, (name, shape, dtype, *truths) in enumerate(self.parameters):
            texts = text(name), text(shape), text(dtype)
            yield "held_parameter", (self.optimizer, self.since, number, *texts, *truths)


class ModuleFlags(NamedTuple):
    """Modules with an attribute ``requires_grad`` that none of their parameters follows."""

    graph_task: int
    flags: Sequence[tuple[str, bool]]
    """Paths, and what the attribute is."""

    def rows(self, _text: Text, _stack: object) -> Iterator[tuple[str, tuple[str, str]]]:
        """The table, and the row for it."""
        yield "meta", ("module_flags", json.dumps(self.flags))


class RepeatedModules(NamedTuple):
    """Containers that hold one module several times."""

    graph_task: int
    containers: Sequence[tuple[str, int, str]]
    """Paths, how often they hold it, and by which name first."""

    def rows(self, _text: Text, _stack: object) -> Iterator[tuple[str, tuple[str, str]]]:
        """The table, and the row for it."""
        yield "meta", ("repeated_modules", json.dumps(self.containers))


class UnheldLeaf(NamedTuple):
    """A leaf that gets gradients and that no optimizer holds, on its way to the file."""

    leaf: int
    name: str
    attribute: str
    is_parameter: bool
    shape: str
    passes: int
    graph_task: int
    node: int
    is_moved: bool

    def rows(self, text: Text, _stack: object) -> Rows:
        """The table, and the row for it."""
        facts = self.passes, self.graph_task, self.node, self.is_moved
        where = text(self.name), text(self.attribute), self.is_parameter, text(self.shape)
        yield "unheld", (self.leaf, *where, *facts)


class NotFinite(NamedTuple):
    """A parameter that is not finite, or a buffer with NaN, on its way to the file."""

    graph_task: int
    number: int
    name: str
    is_buffer: bool
    optimizer: int
    step: int

    def rows(self, text: Text, _stack: object) -> Rows:
        """The table, and the row for it."""
        facts = self.is_buffer, self.optimizer, self.step
        yield "not_finite", (self.graph_task, self.number, text(self.name), *facts)


StepRow: TypeAlias = (
    "SeenOptimizer | StepFacts | HeldParameters | ModuleFlags | RepeatedModules | UnheldLeaf"
    "| NotFinite"
)
"""What goes to the file about optimizers beside the steps themselves."""


class OptimizerRow(NamedTuple):
    """An optimizer that stepped.

    Where none did: one whose parameters got gradients that were cleared each time, and stayed as
    they were.
    """

    number: int
    """In the order in which they were made or seen."""
    name: str
    """Of its class."""
    made: tuple[Frame, ...]
    """Stack that made it, outermost frame first; empty: it was there before the recording."""
    stepped: tuple[Frame, ...]
    """Stack of its first step; empty: not known, or it never stepped."""

    @property
    def frame(self) -> Frame | None:
        """The line of the user's code that made it, else the one of its first step."""
        return visible(self.made) or visible(self.stepped)


class StepFactRow(NamedTuple):
    """What an optimizer held and found when it stepped."""

    step: int
    """As :attr:`agviz.traces.rows.OptimizerStepRow.number`."""
    optimizer: int
    least_rate: float | None
    """Learning rate of its groups after the step, the least and the most; None: not known."""
    most_rate: float | None
    decay: float | None
    """Largest ``weight_decay`` of its groups; None: it has none."""
    eps: float | None
    """Smallest ``eps`` of its groups; None: it has none."""
    held: int
    """Number of parameters in its groups."""
    without_grad: int
    """How many of them had no ``.grad``."""
    reached: int
    """To how many a backward pass had led since its last step."""
    is_kept: bool
    """Whether passes had added to gradients that were there, untouched, since its last step."""


class StepSampleRow(NamedTuple):
    """Norms of one parameter around a step; None where one is not finite."""

    step: int
    parameter: str
    """Empty: it has no name."""
    gradient: float | None
    """Of ``.grad`` when the step was called; None also where there was none."""
    norm: float | None
    """Of the parameter itself then."""
    change: float | None
    """Of what the step changed."""
    net: float | None
    """Where it was written after the last measured step: of what it had changed since that was
    called. None also where it was not, or that is not known."""


class HeldParameterRow(NamedTuple):
    """A parameter of an optimizer, as it was from a step on."""

    optimizer: int
    since: int
    """Number of the step."""
    name: str
    """Empty: no module that was called has it as a parameter."""
    shape: Shape
    dtype: str
    requires_grad: bool
    had_grad: bool


class UnheldRow(NamedTuple):
    """A leaf to which passes led though no optimizer held it."""

    name: str
    """Empty: no module that was called has it as a parameter."""
    attribute: str
    """Where an attribute of a module leads to it that is neither parameter nor module, like
    ``blocks[0].weight``; empty: none does."""
    is_parameter: bool
    """Whether it is an ``nn.Parameter``."""
    shape: Shape
    passes: int
    """How many there were when it was written last."""
    graph_task: int
    """The last of them."""
    node: int
    """Its AccumulateGrad there."""
    is_moved: bool
    """Whether somebody has written to it in between."""


class NotFiniteRow(NamedTuple):
    """A parameter that was not finite, or a buffer with NaN."""

    graph_task: int
    """That was beginning; -1: the recording ended."""
    name: str
    is_buffer: bool
    optimizer: int
    """Which holds it; -1: none that has stepped."""
    step: int
    """Number of the step that wrote to it last; -1: something else did."""


def optimizers(database: Database, contents: Contents) -> list[OptimizerRow]:
    """In order of their numbers.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    rows = database.integers("SELECT id, name, made, stepped FROM optimizer ORDER BY id")
    return [
        OptimizerRow(
            number,
            contents.name(name),
            stack_in(database, contents, made),
            stack_in(database, contents, stepped),
        )
        for number, name, made, stepped in rows
    ]


def facts(database: Database) -> list[StepFactRow]:
    """In order of steps.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    rows = database.stream(
        "SELECT step, optimizer, held, without_grad, reached, is_kept,"
        " least_rate, most_rate, decay, eps FROM step_fact ORDER BY step",
        types="iiiiiirrrr",
    )
    found, rates = [], (None, None, None, None)
    for row in rows:
        step, optimizer, held, without, reached, is_kept = row[:6]
        rates = rates if rates == row[6:] else row[6:]  # mostly equal, so that they are shared
        least, most, decay, eps = rates
        of_rates = least, most, decay, eps
        found.append(StepFactRow(step, optimizer, *of_rates, held, without, reached, bool(is_kept)))
    return found


def samples(database: Database, contents: Contents) -> list[StepSampleRow]:
    """In order of steps.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    rows = database.stream(
        "SELECT step, parameter, gradient, norm, change, net FROM step_sample"
        " ORDER BY step, number",
        types="iirrrr",
    )
    found = []
    for step, name, *norms in rows:
        if any(norm is not None and not 0 <= norm < math.inf for norm in norms):
            raise database.damaged("a norm is none")
        found.append(StepSampleRow(step, contents.name(name), *norms))
    return found


def held_parameters(database: Database, contents: Contents) -> list[HeldParameterRow]:
    """In order of optimizers and steps.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    rows = database.integers(
        "SELECT optimizer, since, name, shape, dtype, requires_grad, had_grad"
        " FROM held_parameter ORDER BY optimizer, since, number"
    )
    return [
        HeldParameterRow(
            optimizer,
            since,
            contents.name(name),
            _shape(database, contents, shape),
            contents.name(dtype),
            bool(requires_grad),
            bool(had_grad),
        )
        for optimizer, since, name, shape, dtype, requires_grad, had_grad in rows
    ]


def unheld(database: Database, contents: Contents) -> list[UnheldRow]:
    """In the order in which they were met; those that an optimizer holds now are left out.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    rows = database.integers(
        "SELECT name, attribute, is_parameter, shape, passes, graph_task, node, is_moved"
        " FROM unheld WHERE passes > 0 ORDER BY leaf"
    )
    return [
        UnheldRow(
            contents.name(name),
            contents.name(attribute),
            bool(is_parameter),
            _shape(database, contents, shape),
            passes,
            task,
            node,
            bool(is_moved),
        )
        for name, attribute, is_parameter, shape, passes, task, node, is_moved in rows
    ]


def not_finite(database: Database, contents: Contents) -> list[NotFiniteRow]:
    """In the order in which they were found: those at the end come last.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    rows = database.integers(
        "SELECT graph_task, name, is_buffer, optimizer, step FROM not_finite"
        " ORDER BY graph_task < 0, graph_task, number"
    )
    return [
        NotFiniteRow(task, contents.name(name), bool(is_buffer), optimizer, step)
        for task, name, is_buffer, optimizer, step in rows
    ]


def _own(stack: Callable[[], tuple[Frame, ...]] | None, keep: Keep) -> int:
    """The stack as far as the innermost frame that is not hidden."""
    whole = () if stack is None else stack()
    shown = max((place for place, frame in enumerate(whole) if not frame.hidden), default=-1)
    return keep(whole[: shown + 1])


def _real(value: float | None) -> float | None:
    """What SQLite keeps as it is: it has no NaN, and no reader wants infinities of norms."""
    return value if value is not None and math.isfinite(value) else None


def _shape(database: Database, contents: Contents, number: int) -> Shape:
    try:
        return read_shape(contents.name(number)) or ()
    except (ValueError, RecursionError) as error:
        raise database.damaged("a shape is none") from error
