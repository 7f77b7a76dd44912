"""Graphs of past passes that were alive when later ones began, and what kept them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.traces import dumps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from agviz.traces.contents import Contents
    from agviz.traces.database import Database
    from agviz.traces.rows import Frame

TENSOR: Final = "tensor"
"""A variable or an attribute is a tensor whose graph leads to them."""
NUMBERED: Final = "#"
"""In the place of numbers in the name of several tensors that it is all that differs in."""
CONTAINER: Final = "container"
"""A list or its like holds such tensors."""
GRADIENT: Final = "gradient"
"""Gradients of parameters have graphs of their own."""
CLOSURE: Final = "closure"
"""Functions refer to such tensors."""
STORED: Final = "stored"
"""A list or its like holds more tensors with each pass; they have no graphs."""
STORED_GRAPHS: Final = "stored graphs"
"""The same, and they have graphs, which no pass may have gone through."""
CYCLE: Final = "cycle"
"""A custom Function's node refers to what it gave, which holds the node."""
LONGER: Final = "longer"
"""The graph of a tensor, through which no pass went, gets longer with each pass."""
STATE: Final = "state"
"""An optimizer has states of parameters that were replaced; it keeps them and what they are of."""
CYCLED: Final = "itertools.cycle"
"""What the container is that ``itertools.cycle`` makes of all that it has given."""
EXCEPTIONS: Final = "exceptions"
"""Ends what a container is called that keeps tensors by the tracebacks of exceptions in it."""
KEYS: Final = "keys"
"""Ends what a dictionary is called whose keys are tensors that nothing else refers to."""
UNKNOWN: Final = "unknown"
"""Nothing was counted, after a count had found something: that would have taken too long."""

LEAST_ALIVE: Final = 3
"""Graphs alive, and optimizer steps, of which something is said."""
_LEAST_PASSES: Final = 8
"""The same in passes, of a program that has no optimizer."""


_MORE: Final = {STORED, STORED_GRAPHS, LONGER, CYCLE, STATE}


def is_doubled(passes: int) -> bool:
    """Whether everything that is alive is counted after so many passes: 1, 2, 4 and so on."""
    return passes & (passes - 1) == 0


class Holder(NamedTuple):
    """What keeps graphs alive."""

    kind: str
    name: str
    """Of the variable, ``Class.attribute``, function or parameter; empty: not known."""
    what: str
    """Type of the container; empty for others."""
    reached: int
    """Graphs that it keeps; where something becomes more, how many tensors, or nodes, came since
    the count before."""
    stack: tuple[Frame, ...]
    """That made the tensor or one of them, or the definition of the function, outermost frame
    first."""


class LiveGraphsLook(NamedTuple):
    """One count of them."""

    number: int
    """In order of time, from 0."""
    graph_task: int
    """The pass that was about to run."""
    passes: int
    """Graphs of passes before it."""
    created: int
    """Those of them with ``create_graph=True``."""
    steps: int
    """Optimizer steps before it."""
    alive: int
    """Those of the graphs that were alive."""
    alive_steps: int
    """Different numbers of optimizer steps before their passes."""
    holders: tuple[Holder, ...] = ()

    @property
    def is_growing(self) -> bool:
        """Whether half of all graphs are alive, and of several optimizer steps."""
        if self.alive < LEAST_ALIVE or 2 * self.alive < self.passes:
            return False
        if not self.steps:
            return self.passes >= _LEAST_PASSES or self.created >= LEAST_ALIVE
        return 2 * self.alive_steps >= self.steps >= LEAST_ALIVE

    @property
    def is_searched(self) -> bool:
        """Whether something was found that keeps graphs of past passes."""
        return any(
            each.kind in {TENSOR, CONTAINER, GRADIENT, CLOSURE, CYCLE} for each in self.holders
        )

    @property
    def is_counted(self) -> bool:
        """Whether everything that is alive may have been counted: not where the time was short."""
        return is_doubled(self.passes) and all(each.kind != UNKNOWN for each in self.holders)

    @property
    def growing(self) -> Holder | None:
        """Where something became more with each pass up to this one; None: nothing is known to."""
        kinds = {STORED, STORED_GRAPHS, LONGER, STATE} if self.is_growing else _MORE
        return next((each for each in self.holders if each.kind in kinds), None)

    def rows(
        self, text: Callable[[str], int], stack: Callable[[tuple[Frame, ...]], int]
    ) -> Iterator[tuple[str, tuple[int, ...]]]:
        """The tables, and the rows for them."""
        yield "live_graphs", tuple(self[:-1])
        for number, holder in enumerate(self.holders):
            texts = text(holder.kind), text(holder.name), text(holder.what)
            yield "graph_holder", (self.number, number, *texts, holder.reached, stack(holder.stack))


def is_rising(looks: Sequence[LiveGraphsLook]) -> bool:
    """Whether ever more graphs of ``create_graph=True`` stay, as often as at first, though not all.

    As of models that are made anew now and then: what only lasts longer becomes no more. Most
    passes make such graphs, or most of these are alive.
    """
    by_passes = {look.passes: look for look in looks}
    last = looks[-1]
    before = by_passes.get(last.passes // 2), by_passes.get(last.passes // 4)
    return (
        last.passes % 4 == 0
        and last.created >= LEAST_ALIVE
        and (2 * last.created >= last.passes or 2 * last.alive >= last.created)
        and all(
            look is not None
            and look.alive >= LEAST_ALIVE
            and 4 * last.alive * look.passes >= 3 * look.alive * last.passes
            for look in before
        )
    )


def read(database: Database, contents: Contents) -> list[LiveGraphsLook]:
    """In order of time.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    holders: dict[int, list[Holder]] = {}
    for look, kind, name, what, reached, stack in database.integers(
        "SELECT look, kind, name, what, reached, stack FROM graph_holder ORDER BY look, number"
    ):
        texts = contents.name(kind), contents.name(name), contents.name(what)
        found = Holder(*texts, reached, dumps.stack(database, contents, stack))
        holders.setdefault(look, []).append(found)
    rows = database.integers(
        "SELECT id, graph_task, passes, created, steps, alive, alive_steps"
        " FROM live_graphs ORDER BY id"
    )
    looks = []
    for number, graph_task, passes, created, steps, alive, alive_steps in rows:
        counts = passes, created, steps, alive, alive_steps
        looks.append(
            LiveGraphsLook(number, graph_task, *counts, holders=tuple(holders.get(number, ())))
        )
    return looks
