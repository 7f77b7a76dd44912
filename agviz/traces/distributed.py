"""What one process of a distributed program knows of the others: written and read.

Collectives come from torch's flight recorder, which notes each when it is created, below Python:
those of DDP's reducer are among them. When one completes is known with NCCL only.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from agviz.traces.dumps import stack
from agviz_engine.events import NO_GRAPH_TASK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from agviz.traces.contents import Contents
    from agviz.traces.database import Database
    from agviz.traces.rows import Frame


UNKNOWN: Final = -1
"""In place of a bucket: DDP has not said."""
NOT_WRAPPED: Final = -2
"""In place of a bucket: the parameter came into the module after DDP had wrapped it."""

GRADIENT: Final = ".grad"
"""Ends what the gradient of a parameter is called that is handed to a collective."""


class ProcessGroup(NamedTuple):
    """A process group that collectives were called in."""

    name: str
    description: str
    """Like ``default_pg``."""
    ranks: tuple[int, ...]
    """Global ranks of its members; empty where not known."""


class Collective(NamedTuple):
    """A collective, or a point-to-point operation, that this rank has joined."""

    number: int
    """In the order in which the process created them, from 0."""
    time_ns: int
    """When it was created: ``time.monotonic_ns()`` of the process."""
    thread: int
    """Thread id of the operating system, 0 where unknown."""
    group: str
    """Name of the process group."""
    seq: int
    """Number among the collectives, or among the point-to-point operations, of the group."""
    is_p2p: bool
    operation: str
    """Like ``all_reduce``."""
    shapes: str
    """Of its inputs: ``[2, 3];[4]``."""
    dtypes: str
    """Of its inputs, one after the other: ``Float;Float``."""
    is_retired: bool
    """Whether it had completed when the flight recorder was read last."""
    begin_ns: int | None
    end_ns: int | None
    """When it ran, where the backend measures that (NCCL)."""
    stack: tuple[Frame, ...]
    """Outermost frame first."""
    names: tuple[str, ...] = ()
    """What the program calls the tensor that it handed in, of the first calls; empty: not known."""

    @property
    def kind(self) -> str:
        """What has to be the same on all ranks: operation, shapes, dtypes."""
        return f"{self.operation} {self.shapes or 'of nothing'} {self.dtypes}".rstrip()


class Synchronised(NamedTuple):
    """A parameter whose gradient is synchronised between ranks, since one backward pass."""

    since: int
    """Graph task, at the beginning of which that was seen."""
    parameter: str
    unit: str
    """Path of the module that does it; empty: the outermost."""
    kind: str
    """``ddp`` or ``fsdp``."""
    bucket: int
    """What is reduced together has the same number; they are reduced in the order of numbers.
    :data:`UNKNOWN` or :data:`NOT_WRAPPED`: none."""
    nbytes: int
    is_hooked: bool | None
    """Whether the AccumulateGrad has a hook that was made in C++, as the reducer's is; None: not
    known."""
    converted: tuple[Frame, ...]
    """Where it has none: the stack of the last conversion of a module with the parameter, outermost
    frame first; empty where there was none, or it was not recorded."""


class Stage(NamedTuple):
    """A backward pass of one microbatch in one stage of a pipeline."""

    graph_task: int
    stage: int
    stages: int
    microbatch: int

    def rows(self, _text: object, _stack: object) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Tables and the rows for them."""
        yield "stage", self


class Pause(NamedTuple):
    """Where the thread that calls backward was while nothing had happened for a while."""

    time_ns: int
    """``time.monotonic_ns()``."""
    graph_task: int
    """The last outermost one that had begun; -1: none."""
    is_inside: bool
    """Whether it had not ended."""
    thread: int
    """Thread id of the operating system."""
    stack: tuple[Frame, ...]
    """Outermost frame first."""


class Digest(NamedTuple):
    """Some elements of a parameter and of its gradient after an optimizer stepped, as checksums."""

    step: int
    parameter: str
    value: int
    gradient: int | None
    """None: it had no gradient."""


class CollectivesRead(NamedTuple):
    """What the flight recorder gave, on its way to the file."""

    groups: Sequence[ProcessGroup]
    collectives: Sequence[Collective]
    start_ns: int
    graph_task: int = NO_GRAPH_TASK

    def rows(
        self, text: Callable[[str], int], numbered: Callable[[tuple[Frame, ...]], int]
    ) -> Iterator[tuple[str, tuple[int | None, ...]]]:
        """Tables and the rows for them."""
        for group in self.groups:
            ranks = text(json.dumps(group.ranks))
            yield "process_group", (text(group.name), text(group.description), ranks)
        for one in self.collectives:
            yield (
                "collective",
                (
                    one.number,
                    one.time_ns - self.start_ns,
                    one.thread,
                    text(one.group),
                    one.seq,
                    one.is_p2p,
                    text(one.operation),
                    text(one.shapes),
                    text(one.dtypes),
                    one.is_retired,
                    None if one.begin_ns is None else one.begin_ns - self.start_ns,
                    None if one.end_ns is None else one.end_ns - self.start_ns,
                    numbered(one.stack),
                ),
            )


class Synchronisation(NamedTuple):
    """Which parameters are synchronised, and how, on its way to the file."""

    graph_task: int
    parameters: Sequence[Synchronised]

    def rows(
        self, text: Callable[[str], int], numbered: Callable[[tuple[Frame, ...]], int]
    ) -> Iterator[tuple[str, tuple[int | None, ...]]]:
        """Tables and the rows for them."""
        for one in self.parameters:
            texts = text(one.parameter), text(one.unit), text(one.kind)
            numbers = one.bucket, one.nbytes, one.is_hooked, numbered(one.converted)
            yield "synchronised", (one.since, *texts, *numbers)


class Fingerprint(NamedTuple):
    """Checksum of a pass's graph, on its way to the file."""

    graph_task: int
    checksum: int

    def rows(self, _text: object, _stack: object) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Tables and the rows for them."""
        yield "fingerprint", self


class Scheduled(NamedTuple):
    """What the thread that called a backward pass had had of the CPU, in ns since it began."""

    graph_task: int
    ran_before: int
    delayed_before: int
    """Ready to run, without a CPU."""
    ran_after: int
    delayed_after: int
    """The same when the pass had ended."""

    def rows(self, _text: object, _stack: object) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Tables and the rows for them."""
        yield "scheduled", self


class Paused(NamedTuple):
    """A pause, on its way to the file."""

    pause: Pause
    number: int
    start_ns: int
    graph_task: int = NO_GRAPH_TASK

    def rows(
        self, _text: object, numbered: Callable[[tuple[Frame, ...]], int]
    ) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Tables and the rows for them."""
        one = self.pause
        place = one.graph_task, one.is_inside, one.thread, numbered(one.stack)
        yield "pause", (self.number, one.time_ns - self.start_ns, *place)


class Digests(NamedTuple):
    """Checksums after one step, on their way to the file."""

    digests: Sequence[Digest]
    graph_task: int = NO_GRAPH_TASK

    def rows(
        self, text: Callable[[str], int], _stack: object
    ) -> Iterator[tuple[str, tuple[int | None, ...]]]:
        """Tables and the rows for them."""
        for one in self.digests:
            yield "digest", (one.step, text(one.parameter), one.value, one.gradient)


OfRank: TypeAlias = (
    CollectivesRead | Synchronisation | Stage | Fingerprint | Scheduled | Paused | Digests
)
"""What goes to the file of a rank besides what every file has."""


def process_groups(database: Database, contents: Contents) -> list[ProcessGroup]:
    """In order of their names.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    rows = database.integers("SELECT name, description, ranks FROM process_group")
    return sorted(
        ProcessGroup(contents.name(name), contents.name(said), _ranks(contents.name(ranks)))
        for name, said, ranks in rows
    )


def _ranks(text: str) -> tuple[int, ...]:
    try:
        found = json.loads(text)
    except ValueError:
        return ()
    if not isinstance(found, list) or not all(type(rank) is int for rank in found):
        return ()
    return tuple(found)


def collectives(database: Database, contents: Contents) -> list[Collective]:
    """In order of their creation.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    start_ns = contents.meta.start_ns
    whens = {
        number: (begin, end)
        for number, begin, end in database.integers(
            "SELECT id, begin_t, end_t FROM collective WHERE begin_t NOT NULL AND end_t NOT NULL"
        )
    }
    handed_in = contents.handed_in
    found = []
    for (
        number,
        t,
        thread,
        group,
        seq,
        p2p,
        operation,
        shapes,
        dtypes,
        retired,
        where,
    ) in database.integers(
        "SELECT id, t, thread, process_group, seq, is_p2p, operation, shapes, dtypes,"
        " is_retired, stack FROM collective ORDER BY id"
    ):
        begin, end = whens.get(number, (None, None))
        found.append(
            Collective(
                number,
                t + start_ns,
                thread,
                contents.name(group),
                seq,
                bool(p2p),
                contents.name(operation),
                contents.name(shapes),
                contents.name(dtypes),
                bool(retired),
                None if begin is None else begin + start_ns,
                None if end is None else end + start_ns,
                stack(database, contents, where),
                () if p2p else handed_in.get((contents.name(group), seq), ()),
            )
        )
    return found


def synchronised(database: Database, contents: Contents) -> list[Synchronised]:
    """In order of time, and there of buckets.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    hooked = {
        (since, parameter): bool(is_hooked)
        for since, parameter, is_hooked in database.integers(
            "SELECT since, parameter, is_hooked FROM synchronised WHERE is_hooked NOT NULL"
        )
    }
    return [
        Synchronised(
            since,
            contents.name(parameter),
            contents.name(unit),
            contents.name(kind),
            bucket,
            nbytes,
            hooked.get((since, parameter)),
            stack(database, contents, where),
        )
        for since, parameter, unit, kind, bucket, nbytes, where in database.integers(
            "SELECT since, parameter, unit, kind, bucket, nbytes, converted FROM synchronised"
            " ORDER BY since, unit, bucket, parameter"
        )
    ]


def stages(database: Database) -> dict[int, Stage]:
    """By graph task.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    rows = database.integers("SELECT graph_task, stage, stages, microbatch FROM stage")
    return {row[0]: Stage(*row) for row in rows}


def fingerprints(database: Database) -> dict[int, int]:
    """Checksums of graphs, by graph task.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    rows = database.integers("SELECT graph_task, checksum FROM fingerprint")
    return {graph_task: checksum for graph_task, checksum in rows}  # noqa: C416 - a row is of any length to mypy


def scheduled(database: Database) -> dict[int, Scheduled]:
    """By graph task.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    rows = database.integers(f"SELECT {', '.join(Scheduled._fields)} FROM scheduled")  # noqa: S608 - our words
    return {row[0]: Scheduled(*row) for row in rows}


def pauses(database: Database, contents: Contents) -> list[Pause]:
    """In order of time.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    start_ns = contents.meta.start_ns
    return [
        Pause(t + start_ns, graph_task, bool(inside), thread, stack(database, contents, where))
        for t, graph_task, inside, thread, where in database.integers(
            "SELECT t, graph_task, is_inside, thread, stack FROM pause ORDER BY id"
        )
    ]


def digests(database: Database, contents: Contents) -> list[Digest]:
    """In order of steps, and there of names.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    gradients = {
        (step, parameter): gradient
        for step, parameter, gradient in database.integers(
            "SELECT step, parameter, gradient FROM digest WHERE gradient NOT NULL"
        )
    }
    return sorted(
        Digest(step, contents.name(parameter), value, gradients.get((step, parameter)))
        for step, parameter, value in database.integers("SELECT step, parameter, value FROM digest")
    )
