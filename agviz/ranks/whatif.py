"""How long a step would take if something about the ranks were otherwise: estimates.

Each moves recorded times about and leaves all else as it was, which its assumption says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agviz.analysis.median import median
from agviz.errors import AgvizError
from agviz.traces.rows import GraphTaskStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agviz.ranks.run import Meeting, Run

_WARM: Final = 1
"""Passes that are left out: in the first, each rank warms up by itself."""
_MB: Final = 1_000_000


class Estimate(NamedTuple):
    """What would be if."""

    what: str
    now_ns: int
    """Median time of a step as it was recorded, or of a backward pass."""
    then_ns: int
    of: str
    """What takes so long: ``step`` or ``backward``."""
    assumption: str

    @property
    def gain(self) -> float:
        """Part of the time that it would save; negative: that it would cost."""
        return 1 - self.then_ns / self.now_ns if self.now_ns else 0.0

    def as_json(self) -> dict[str, Any]:
        """Everything, as JSON can hold it; times in ns."""
        return {**self._asdict(), "gain": self.gain}


class _Gradient(NamedTuple):
    """A gradient that is reduced."""

    parameter: str
    nbytes: int
    ready_ns: int
    """On the rank on which it is ready last, after its backward began."""
    bucket: int


def without_straggler(run: Run) -> list[Estimate]:
    """Of the rank that others waited for most: as if it joined when the median of them does.

    Empty where no rank waited.
    """
    lateness: dict[int, list[int]] = {}
    for meeting in _deciding(run.meetings()):
        last = meeting.last
        others = sorted(time for rank, time in meeting.joined.items() if rank != last)
        if others:
            lateness.setdefault(last, []).append(meeting.joined[last] - others[-1])
    if not lateness:
        return []
    rank = max(lateness, key=lambda number: sum(lateness[number]))
    begins = [one.begin_ns for one in run.ranks[rank].passes][_WARM:]
    if len(begins) < 2:
        return []
    now_ns = (begins[-1] - begins[0]) // (len(begins) - 1)
    saved_ns = sum(lateness[rank]) // len(begins)
    return [
        Estimate(
            f"rank {rank} were like the median of the others",
            now_ns,
            max(0, now_ns - saved_ns),
            "step",
            "the next rank to be waited for is as late as it was",
        )
    ]


def _deciding(meetings: Iterable[Meeting]) -> list[Meeting]:
    """Of each pass the collective for which ranks waited longest."""
    found: dict[int, tuple[int, Meeting]] = {}
    for meeting in meetings:
        waited = max(map(meeting.waiting_ns, meeting.joined))
        if meeting.ordinal >= _WARM and waited >= found.get(meeting.ordinal, (0, meeting))[0]:
            found[meeting.ordinal] = waited, meeting
    return [meeting for _, meeting in found.values()]


class Reduction:
    """DDP's reduction of one pass, to be played again with other buckets.

    Args:
        run: all ranks.

    Raises:
        agviz.errors.AgvizError: it is not known how gradients were reduced.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        common = [
            passes
            for passes in run.common_passes()
            if all(one.status is GraphTaskStatus.FINISHED for one in passes.values())
        ]
        if len(common) <= _WARM:
            raise AgvizError(f"{run.folder.path} holds no backward pass that all ranks finished")
        self._passes = common[-1]
        self._gradients = self._read()
        if not self._gradients:
            raise AgvizError(
                f"{run.folder.path} does not say in which buckets gradients were reduced; DDP says"
                " it from the second backward pass on"
            )
        self._ns_per_byte = self._rate()
        self._compute_ns = max(one.ready_ns for one in self._gradients)
        own = [
            (one.end_ns or one.begin_ns) - one.begin_ns
            for passes in common[_WARM:]
            for one in passes.values()
        ]
        self.now_ns = int(median(own))

    @property
    def bucket_bytes(self) -> int:
        """Size of the largest bucket that was used."""
        sizes: dict[int, int] = {}
        for one in self._gradients:
            sizes[one.bucket] = sizes.get(one.bucket, 0) + one.nbytes
        return max(sizes.values())

    def with_buckets(self, megabytes: float) -> Estimate:
        """With buckets of at most so many MB, in the order in which gradients are ready."""
        return self._estimate(
            f"buckets had {megabytes:.3g} MB", self._filled(self._gradients, megabytes * _MB)
        )

    def first(self, parameter: str) -> Estimate:
        """As if a gradient were ready at once.

        Raises:
            agviz.errors.AgvizError: there is no such parameter.
        """
        found = [one for one in self._gradients if one.parameter == parameter]
        if not found:
            raise AgvizError(f"no parameter {parameter} is synchronised by DDP")
        others = [one for one in self._gradients if one.parameter != parameter]
        earlier = [found[0]._replace(ready_ns=0), *others]
        return self._estimate(
            f"the gradient of {parameter} came first", self._filled(earlier, self.bucket_bytes)
        )

    def _read(self) -> list[_Gradient]:
        ready: dict[str, int] = {}
        buckets: dict[str, tuple[int, int]] = {}
        for file, trace in self._run.folder.traces():
            of = self._passes[file.number]
            known = [one for one in trace.synchronised() if one.kind == "ddp" and one.bucket >= 0]
            buckets |= {one.parameter: (one.bucket, one.nbytes) for one in known}
            for node in trace.nodes(of.graph_task):
                if node.parameter is not None and node.start_ns is not None:
                    after = node.start_ns - of.begin_ns
                    ready[node.parameter] = max(ready.get(node.parameter, 0), after)
        return [
            _Gradient(name, nbytes, ready[name], bucket)
            for name, (bucket, nbytes) in buckets.items()
            if name in ready
        ]

    def _rate(self) -> float:
        """Ns that the network takes for a byte, by the last bucket: only that one is waited for."""
        last = max(self._gradients, key=lambda one: one.bucket).bucket
        nbytes = sum(one.nbytes for one in self._gradients if one.bucket == last)
        taken = [
            min(map(meeting.transfer_ns, meeting.joined))
            for meeting in _deciding(self._run.meetings())
            if meeting.is_inside
        ]
        return median(taken) / nbytes if taken and nbytes else 0.0

    def _estimate(self, what: str, buckets: Sequence[Sequence[_Gradient]]) -> Estimate:
        current: dict[int, list[_Gradient]] = {}
        for one in self._gradients:
            current.setdefault(one.bucket, []).append(one)
        apart = self._play(buckets) - self._play([current[number] for number in sorted(current)])
        return Estimate(
            what,
            self.now_ns,
            max(0, self.now_ns + apart),
            "backward",
            "a byte takes as long as in the last bucket, one bucket goes after the other, and"
            " gradients are ready when they were",
        )

    def _play(self, buckets: Sequence[Sequence[_Gradient]]) -> int:
        """When the last bucket is through, after backward began."""
        free_ns = 0.0
        for bucket in buckets:
            ready_ns = max(one.ready_ns for one in bucket)
            free_ns = max(free_ns, ready_ns)
            free_ns += self._ns_per_byte * sum(one.nbytes for one in bucket)
        return int(max(free_ns, self._compute_ns))

    @staticmethod
    def _filled(gradients: Sequence[_Gradient], most: float) -> list[list[_Gradient]]:
        buckets: list[list[_Gradient]] = []
        size = most
        for one in sorted(gradients, key=lambda each: each.ready_ns):
            if size >= most:
                buckets.append([])
                size = 0
            buckets[-1].append(one)
            size += one.nbytes
        return buckets
