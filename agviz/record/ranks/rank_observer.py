"""RankObserver: what is recorded of a process because it is one of several."""

from __future__ import annotations

import itertools
import logging
import threading
import time
import weakref
import zlib
from array import array
from typing import TYPE_CHECKING, Any, Final

from agviz.record import capturing
from agviz.record.ranks import place
from agviz.record.ranks.calls import CollectiveCalls
from agviz.record.ranks.digests import digests, is_due
from agviz.record.ranks.flight_recorder import FlightRecorder, process_groups
from agviz.record.ranks.pauses import Pauses
from agviz.record.ranks.scheduling import Scheduling
from agviz.record.ranks.units import passed_over, stage_of, synchronised
from agviz.traces.distributed import (
    CollectivesRead,
    Digests,
    Fingerprint,
    Paused,
    Scheduled,
    Synchronisation,
)
from agviz_engine.errors import comes_from_outside

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor
    from torch.nn import Module

    from agviz.record.names import Names
    from agviz.record.provenance import Provenance
    from agviz.record.ranks.black_box import BlackBox
    from agviz.record.ranks.conversions import Conversions
    from agviz.record.writer import Graph, SideRow
    from agviz.traces.distributed import Collective, Pause, Synchronised
    from agviz.traces.rows import Frame
    from agviz_engine.graph_task import GraphTask

log = logging.getLogger("agviz")

_NAMES: Final = 1
"""Among the columns of a graph."""
_FIRST_PASSES: Final = 3
"""In which it is looked how parameters are synchronised; after them where AccumulateGrads changed,
and in every 64th."""


class RankObserver:
    """Observes what this process does with the others of its program, once it has any.

    Args:
        names: names parameters and modules.
        provenance: resolves stacks.
        start_ns: of the recording.
        side: takes what goes to the file.
        note: has a fact about the recording replaced in the file.
        progress: anything that differs once something has happened.
    """

    def __init__(
        self,
        names: Names,
        provenance: Provenance,
        start_ns: int,
        side: Callable[[SideRow], None],
        note: Callable[[str, object], None],
        progress: Callable[[], object],
    ) -> None:
        self._names, self._provenance = names, provenance
        self._start_ns, self._side, self._note = start_ns, side, note
        self._progress = progress
        self._is_at_work = False
        self._is_over = False
        self.conversions: Conversions | None = None
        """Knows where modules were converted; None: nobody observes that."""
        self.when_at_work: Callable[[], None] | None = None
        """Called once the process has made a process group and calls backward."""
        self.box: BlackBox | None = None
        """What outlives the process; None: nothing does."""
        self._calls: CollectiveCalls | None = None
        self._pauses: Pauses | None = None
        self._flights: FlightRecorder | None = None
        self._reading = threading.RLock()
        self._graph_task = -1
        self._under_way = 0
        self._passes = 0
        self._leaves: object = None
        self._synchronised: tuple[Synchronised, ...] = ()
        self._passed_over: list[weakref.ref[Module]] = []
        self._handed: dict[tuple[str, int], tuple[str, ...]] = {}
        """What the program calls the tensor of a collective, by process group and number."""
        self._scheduling = Scheduling()
        self._begun_at: tuple[int, int] | None = None
        self._next_pause = itertools.count().__next__

    def begun(self, graph_task: int, parent: int) -> None:
        """A call of backward or grad begins, on this thread."""
        if parent >= 0 or self._is_over:
            return
        if not self._is_at_work:
            if not place.group_is_made():
                return
            self._guarded(self._start)
        self._graph_task = graph_task
        self._under_way += 1
        self._guarded(self._step, graph_task)

    def ended(self, graph_task: int) -> None:
        """It has ended."""
        if graph_task == self._graph_task:
            self._under_way = 0
            if self.box is not None:
                self.box.ended(graph_task, time.monotonic_ns())
            if self._begun_at is not None and (now := self._scheduling.so_far()) is not None:
                self._side(Scheduled(graph_task, *self._begun_at, *now))

    def computed(self, task: GraphTask, graph: Graph) -> None:
        """The graph of a call is known."""
        if self._is_at_work and task.parent < 0:
            self._guarded(self._look_at_units, task)
            self._guarded(self._identify, graph)

    def stepped(self, number: int, optimizer: Any) -> None:
        """An optimizer has stepped."""
        if self._is_at_work and is_due(number):
            self._guarded(self._digest, number, optimizer)

    def look(self, *, now: bool = False) -> None:
        """Read the flight recorder, if it is time, or ``now``."""
        if self._is_at_work:
            self._guarded(self._read, now)

    def stop(self) -> None:
        """Leave torch as it was found, and read what is left."""
        self._is_over = True
        if self._is_at_work:
            self._guarded(self._stop)

    def _guarded(self, act: Callable[..., None], *args: Any) -> None:
        try:
            act(*args)
        except Exception as error:
            if comes_from_outside(error):
                raise
            self._is_over, self._is_at_work = True, False
            log.warning("what this rank does with the others is no longer recorded (%r)", error)

    def _start(self) -> None:
        self._is_at_work = True
        self._note("rank", place.facts())
        if self.when_at_work is not None:
            self.when_at_work()
        way = capturing.way()
        if way is not None:
            files = self._provenance.files
            self._calls = CollectiveCalls(
                way.one, files, self._where, lambda: self.box, self._names.parameter
            )
            self._calls.start()
        self._flights = FlightRecorder()
        self._pauses = Pauses(self._progress, self._where, self._provenance.files, self._paused)
        self._pauses.start()

    def _stop(self) -> None:
        if self._pauses is not None:
            self._pauses.stop()
        self._read(now=True)
        if self._calls is not None:
            self._calls.stop()
        if self.box is not None:
            self.box.close()

    def _where(self) -> tuple[int, bool]:
        return self._graph_task, self._under_way > 0

    def _paused(self, pause: Pause) -> None:
        self._side(Paused(pause, self._next_pause(), self._start_ns))

    def _step(self, graph_task: int) -> None:
        if self._pauses is not None:
            self._pauses.caller = threading.get_ident()
        stage = stage_of(graph_task)
        self._begun_at = self._scheduling.so_far()
        if stage is not None:
            self._side(stage)

    def _look_at_units(self, task: GraphTask) -> None:
        self._passes += 1
        refs = [ref for ref in task.nodes if ref.is_accumulate_grad]
        leaves = [ref.base for ref in refs]
        if self._passes > _FIRST_PASSES and leaves == self._leaves and self._passes % 64:
            return
        by_leaf = {id(ref.node.variable): ref for ref in refs}
        roots = self._names.roots()
        if self._passes <= _FIRST_PASSES:  # to look for them takes tens of ms
            self._passed_over = [*map(weakref.ref, passed_over(roots, by_leaf))]
        self._leaves = leaves

        def is_hooked(parameter: Tensor) -> bool | None:
            ref = by_leaf.get(id(parameter))
            return None if ref is None else ref.has_native_hooks()

        def converted_at(parameter: Tensor) -> tuple[Frame, ...]:
            found = None if self.conversions is None else self.conversions.of(parameter)
            return () if found is None else self._provenance.resolve([found])[0]

        roots += [("", each) for known in self._passed_over if (each := known()) is not None]
        found = synchronised(task.id, roots, self._names.parameter, is_hooked, converted_at)
        if [one[1:] for one in found] != [one[1:] for one in self._synchronised]:
            self._synchronised = found
            self._side(Synchronisation(task.id, found))

    def _identify(self, graph: Graph) -> None:
        names = zlib.crc32("\n".join(graph.nodes[_NAMES]).encode())
        checksum = zlib.crc32(array("q", graph.edges).tobytes(), names)
        self._side(Fingerprint(graph.graph_task, checksum))
        if self.box is not None:
            self.box.graph(graph.graph_task, checksum)

    def _digest(self, number: int, optimizer: Any) -> None:
        found = digests(number, optimizer, self._names.parameter)
        if found:
            self._side(Digests(found))

    def _read(self, now: bool) -> None:
        if self._flights is None:
            return
        with self._reading:
            calls = (lambda *_: None) if self._calls is None else self._calls.at()

            def called(ident: int, time_ns: int) -> tuple[tuple[Frame, ...], tuple[str, ...]]:
                found = calls(ident, time_ns)
                if found is None:
                    return (), ()
                return self._provenance.resolve([found.captured])[0], found.names

            found = self._flights.read(called, now=now)
        if found:
            self._note_names(found)
            self._side(CollectivesRead(process_groups(), found, self._start_ns))

    def _note_names(self, found: Sequence[Collective]) -> None:
        """Have what tensors are called, that were handed to collectives, in the file."""
        new = {(one.group, one.seq): one.names for one in found if one.names and not one.is_p2p}
        if new.keys() - self._handed.keys():
            self._handed |= new
            handed = [[*key, list(names)] for key, names in self._handed.items()]
            self._note("handed_in", handed)
