"""Collectives, as torch's flight recorder has them: those of DDP's reducer, too.

It is read without stacks: to resolve them torch imports its compiler, a second in which no other
thread runs. Lines come from :mod:`agviz.record.ranks.calls`.
"""

from __future__ import annotations

import pickle
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from agviz.traces.distributed import Collective, ProcessGroup

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz.traces.rows import Frame

_SHARE: Final = 400
"""Reading takes one part in so many of the time (25 ms for the 2,000 entries that torch keeps)."""
_LARGEST_SHARE: Final = 100
"""At most, where entries come so fast that torch would overwrite some before."""
_MOST_NEW: Final = 500
"""Entries that may come until it is read again, but for that."""
_LEAST_NS: Final = 300_000_000


class FlightRecorder:
    """Reads what is new, now and then."""

    def __init__(self) -> None:
        self._dump: Callable[[bool, bool, bool], bytes] | None = None
        c10d: Any = sys.modules.get("torch._C._distributed_c10d")
        if c10d is not None:
            self._dump = getattr(c10d, "_dump_fr_trace", None)
        self._next_ns = 0
        self._read_ns, self._last = 0, -1
        """When it was read, and the number of the last collective then."""
        self._first = 0
        """Number of the first collective that may change."""

    def read(
        self,
        called: Callable[[int, int], tuple[tuple[Frame, ...], tuple[str, ...]]],
        *,
        now: bool = False,
    ) -> list[Collective]:
        """What is new, or has changed.

        Args:
            called: gives the stack of the call that created a collective, and the names of what it
                was given, by the identity of the thread and the time (``time.monotonic_ns()``).
            now: read it however lately that was done.
        """
        began_ns = time.monotonic_ns()
        if self._dump is None or (began_ns < self._next_ns and not now):
            return []
        found = pickle.loads(self._dump(True, False, False))  # noqa: S301 - torch made it just now, here
        offset_ns = time.time_ns() - time.monotonic_ns()
        native_ids = {thread.ident: thread.native_id for thread in threading.enumerate()}
        collectives = []
        first: int | None = None
        entries = found.get("entries", ())
        for entry in entries:
            number = int(entry["record_id"])
            if number < self._first:
                continue
            is_whole = bool(entry["retired"])
            if not is_whole and first is None:
                first = number
            ident = int(entry.get("thread_id") or 0)
            created_ns = int(entry["time_created_ns"]) - offset_ns
            begun, done = entry["time_discovered_started_ns"], entry["time_discovered_completed_ns"]
            is_p2p = bool(entry["is_p2p"])
            stack, names = called(ident, created_ns)
            collectives.append(
                Collective(
                    number=number,
                    time_ns=created_ns,
                    thread=native_ids.get(ident) or 0,
                    group=str(entry["process_group"][0]),
                    seq=int(entry["p2p_seq_id" if is_p2p else "collective_seq_id"]),
                    is_p2p=is_p2p,
                    operation=str(entry["profiling_name"]).rpartition(":")[2],
                    shapes=";".join(map(str, entry["input_sizes"])),
                    dtypes=";".join(map(str, entry["input_dtypes"])),
                    is_retired=is_whole,
                    begin_ns=begun - offset_ns if begun and done else None,
                    end_ns=done - offset_ns if begun and done else None,
                    stack=stack,
                    names=names,
                )
            )
        if collectives:
            self._first = collectives[-1].number + 1 if first is None else first
        self._rest(began_ns, int(entries[-1]["record_id"]) if entries else self._last)
        return collectives

    def _rest(self, began_ns: int, last: int) -> None:
        """Choose when to read again, after a reading that began then and saw that ``last``."""
        ended_ns = time.monotonic_ns()
        took_ns = ended_ns - began_ns
        until_full_ns = _MOST_NEW * (began_ns - self._read_ns) // max(1, last - self._last)
        self._next_ns = ended_ns + max(
            _LEAST_NS, _LARGEST_SHARE * took_ns, min(_SHARE * took_ns, until_full_ns)
        )
        self._read_ns, self._last = began_ns, last


def process_groups() -> list[ProcessGroup]:
    """The process groups that this process is in."""
    c10d: Any = sys.modules["torch.distributed.distributed_c10d"]
    world = c10d._world
    return [
        ProcessGroup(
            str(world.pg_names.get(group, "")),
            str(getattr(group, "group_desc", "")),
            tuple(sorted(ranks)),
        )
        for group, ranks in world.pg_group_ranks.items()
    ]
