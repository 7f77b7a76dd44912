"""Flow: the gradient on its way from what backward was called on to a parameter, node by node."""

from __future__ import annotations

import math
import time
from array import array
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from agviz.analysis.faint import LOSS_NODES, behind_loss
from agviz.analysis.flow_finding import FlowFinding, judge
from agviz.analysis.flow_steps import FlowStep, FlowSteps
from agviz.analysis.outcome import Outcome
from agviz.analysis.ways import Ways
from agviz.traces.doubles import Doubles
from agviz.traces.leaf_reading import LeafReading
from agviz.traces.rows import LEAF

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from agviz.analysis.ways import WayIn
    from agviz.traces.graph_tasks import GraphTasks
    from agviz.traces.health import HealthRow
    from agviz.traces.reader import Trace
    from agviz.traces.rows import Frame, LeafNorm

_MANY: Final = 200
"""Nodes that are described at once."""
_LONG: Final = 1_000
"""Of a way of more nodes, the numbers in which they ran are not read: that takes too long."""

Place = tuple[int, int]
"""A graph task and one of its nodes."""


class FlowTarget(NamedTuple):
    """Where a gradient is to be followed to."""

    graph_task: int
    """The pass; reentrant ones in it are looked through for the parameter."""
    parameter: str = ""
    """Empty: the node is meant."""
    node: int | None = None


class FollowedGradient(NamedTuple):
    """A way from the root of a pass to a node."""

    target: FlowTarget
    steps: FlowSteps
    finding: FlowFinding
    meetings: int
    """Nodes into which several gradients led."""
    base: float | None
    """Norm of what the loss function put out, with which others are compared; None: not known."""


class FlowReading:
    """Finds a flow, piece by piece.

    Args:
        trace: which holds it.
        target: where it leads.
        before: another reading, of whose file it is: what that has read of the same pass is used.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """

    def __init__(self, trace: Trace, target: FlowTarget, before: FlowReading | None = None) -> None:
        self.target = target
        self._task = trace.graph_task(target.graph_task)
        self._can_be_measured = trace.meta.values != "none"
        known = before is not None and before.target.graph_task == target.graph_task
        self._ways: dict[int, Ways] = before._ways if before is not None and known else {}
        self._choices: dict[Place, int] = {}
        self._dtype = ""
        self._puts_out_nonfinite = False
        """The node at the end itself, towards what is behind it."""
        self._end = self._find_end(trace)
        self._is_walked = False
        """Whether the loss was reached."""
        self._steps = FlowSteps()
        self._judging: Iterator[FollowedGradient | None] | None = None
        self._flow: FollowedGradient | None = None
        self._begin_walk()

    @property
    def is_read(self) -> bool:
        """Whether all is known."""
        return self._flow is not None

    @property
    def share(self) -> float:
        """How much of it was read, about."""
        if self._is_walked:
            return 0.9 + 0.1 * len(self._steps) / max(1, len(self._walked))
        return 0.9 * min((ways.share for ways in self._ways.values()), default=0.0)

    def read_on(self, trace: Trace, seconds: float = math.inf) -> bool:
        """Read for about so long; return whether all is known.

        Raises:
            agviz.errors.TraceError: the file is damaged.
        """
        until = time.perf_counter() + seconds
        while self._flow is None:
            if not self._is_walked:
                self._is_walked = self._walk(trace, until)
            elif len(self._steps) < len(self._walked):
                self._describe(trace)
            else:
                if self._judging is None:
                    self._steps.turn()
                    self._judging = self._judge()
                self._flow = next(self._judging)
            if time.perf_counter() >= until:
                break
        return self.is_read

    def choose(self, step: int) -> bool:
        """Have the way come along the next smaller gradient into a node, behind the last the first.

        Args:
            step: place of the node among the steps.

        Returns:
            Whether there is another one; the flow is to be read anew then.
        """
        if not self._steps:
            return False
        chosen = self._steps[step]
        if chosen.ways < 2:
            return False
        self._choices[chosen.graph_task, chosen.node] = (chosen.chosen + 1) % chosen.ways
        self._begin_walk()
        return True

    def flow(self) -> FollowedGradient:
        """What was found, once it was read."""
        if self._flow is None:
            raise RuntimeError("not all of the way was read")
        return self._flow

    def _find_end(self, trace: Trace) -> Place | None:
        """The node to which the way leads; None: the pass has none for the parameter."""
        if not self.target.parameter:
            node = self.target.node
            return None if node is None else (self.target.graph_task, node)
        for number in trace.family(self.target.graph_task):
            for row in trace.parameters(number):
                if row.name == self.target.parameter and row.node is not None:
                    return number, row.node
        return None

    def _begin_walk(self) -> None:
        self._walked = _Walked()
        self._is_walked = False
        self._steps = FlowSteps()
        self._judging = self._flow = None
        self._numels: list[int] = []
        """Of the nodes at the beginning, the last first: how many elements came in; 0: unknown."""
        self._next = None if not self._can_be_measured else self._end
        """The node before those that were found; None: there is none."""
        self._norm: float | None = None
        """Of what it put out."""

    def _walk(self, trace: Trace, until: float) -> bool:
        """Go on from the end towards the loss; whether it is reached."""
        while self._next is not None:
            number, node = place = self._next
            if number not in self._ways:
                self._ways[number] = Ways(trace, number)
            ways = self._ways[number]
            if not ways.read_on(trace, until - time.perf_counter()):
                return False
            into = ways.into(node)
            chosen = min(self._choices.get(place, 0), max(0, len(into) - 1))
            came = self._came(trace, place, into)
            self._walked.add(place, self._norm, came, len(into), chosen)
            task = trace.graph_task(number)
            if into:
                self._next, self._norm = (number, into[chosen].producer), into[chosen].norm
            elif task.parent >= 0:
                self._norm = _norm_of(trace.health(number, node), "root")
                is_known = self._norm is not None
                self._next = (task.parent, task.parent_node) if is_known else None
            else:
                self._next = None
            if len(self._walked) > sum(map(len, self._ways.values())) + len(self._ways):
                raise trace.damaged("a node leads to itself")
            if time.perf_counter() >= until:
                break
        return self._next is None

    def _describe(self, trace: Trace) -> None:
        """Read what is shown of the next nodes, or of the next one of a short way."""
        begin, walked = len(self._steps), self._walked
        number, node = walked.place(begin)
        if len(walked) <= _LONG:
            row = trace.node(number, node, most_outputs=1)
            owner = row.parameter or row.module or ""
            self._add(trace, row.short_name, row.order, owner, row.frame)
            return
        end = begin
        while end < min(len(walked), begin + _MANY) and walked.graph_tasks[end] == number:
            end += 1
        nodes = walked.nodes[begin:end]
        labels, lines = trace.labels(number, nodes), trace.forward_lines(number, nodes)
        for each in nodes:
            if each not in labels:
                raise trace.damaged("a node is missing")
            self._add(trace, labels[each][0], None, labels[each][1], lines.get(each))

    def _add(
        self, trace: Trace, name: str, order: int | None, owner: str, frame: Frame | None
    ) -> None:
        at = len(self._steps)
        (number, node), walked = self._walked.place(at), self._walked
        came, norm = walked.came[at], walked.norms[at]
        if at == 0:
            norm = came
            rows = trace.health(number, node)
            put_out = (row for row in rows if row.role == "output")
            self._puts_out_nonfinite = any(row.nan + row.posinf + row.neginf for row in put_out)
            ways = self._ways[number].into(node)
            rows = [each for way in ways[:1] for each in trace.health(number, way.producer)]
            self._dtype = rows[0].dtype if rows else ""
        if at >= len(walked) - LOSS_NODES:
            self._numels.append(self._numel(trace, at))
        shown = frame if name != LEAF else None
        ways_in, chosen = walked.ways[at], walked.chosen[at]
        self._steps.add(
            FlowStep(number, node, name, order, owner, shown, came, norm, ways_in, chosen)
        )

    @staticmethod
    def _came(trace: Trace, place: Place, ways: Sequence[WayIn]) -> float | None:
        """Norm of all that came into a node."""
        if not ways:
            return _norm_of(trace.health(*place), "root")
        slots: dict[int, list[float | None]] = {}
        for way in ways:
            slots.setdefault(way.slot, []).append(way.norm)
        square = 0.0
        for slot, norms in slots.items():
            norm = norms[0]
            if len(norms) > 1:
                norm = _norm_of(trace.health(*place, slot), "sum")
            if norm is None:
                return None
            square += norm * norm
        return math.sqrt(square)

    def _numel(self, trace: Trace, at: int) -> int:
        """How many elements came into a node along the way."""
        number, node = self._walked.place(at)
        ways = self._ways[number].into(node)
        if ways:
            way = ways[self._walked.chosen[at]]
            rows = trace.health(number, way.producer, way.output)
            found = [row for row in rows if row.role == "output"]
        else:
            found = [row for row in trace.health(number, node) if row.role == "root"]
        return max((row.numel for row in found), default=0)

    # What is to be said.

    def _judge(self) -> Iterator[FollowedGradient | None]:
        """What was found, at last; None: others may have their turn."""
        steps = self._steps
        found = self._not_known(steps)
        yield None
        begin = self._begin(steps) if steps else 0
        if found is None:
            judging = judge(
                *(steps, begin, self._dtype, self._whose),
                puts_out_nonfinite=self._puts_out_nonfinite,
            )
            while found is None:
                try:
                    next(judging)
                except StopIteration as over:
                    found = cast("FlowFinding", over.value)
                else:
                    yield None
        base = steps.norms[begin] if steps else None
        yield FollowedGradient(self.target, steps, found, steps.meetings, base)

    def _not_known(self, steps: FlowSteps) -> FlowFinding | None:
        """Why nothing can be said, or that there is nothing."""
        whose = self._whose
        if not self._can_be_measured:
            said = "Gradients were not measured: the program was recorded with --values none."
            return FlowFinding(Outcome.CANT_TELL, said)
        is_over = self._task.end_seq is not None
        if not steps:
            said = f"{whose} is not in the graph of this pass: no gradient came to it."
            if not is_over:
                said = f"No node of this pass is known that accumulates into {whose}."
            return FlowFinding(Outcome.FOUND if is_over else Outcome.CANT_TELL, said)
        if steps[-1].ways == 0 and steps[-1].came is None:
            if not is_over:
                said = f"No gradient has come to {whose}: the pass has not come to its end."
                return FlowFinding(Outcome.CANT_TELL, said)
            said = f"No gradient came to {whose} in this pass, not even zeros."
            return FlowFinding(Outcome.FOUND, said)
        unknown = steps.norms.unknown()
        if unknown:
            said = f"What {steps[unknown[0]].label} put out was not measured: from there on nothing"
            return FlowFinding(Outcome.CANT_TELL, f"{said} can be compared.", unknown[0])
        return None

    def _begin(self, steps: FlowSteps) -> int:
        """The last step of the loss function: what it put out is compared."""
        numels = self._numels[::-1]
        near = enumerate(numels) if len(steps) <= LOSS_NODES else enumerate([*numels, 0])
        spread = next((at for at, numel in near if numel != 1), len(steps) - 1)
        names = [steps.names[at] for at in range(min(len(steps), spread + LOSS_NODES))]
        return max(0, behind_loss(names, spread) - 1)

    @property
    def _whose(self) -> str:
        return self.target.parameter or "this node"


class _Walked:
    """The nodes on the way, from its end, of which nothing was read yet."""

    def __init__(self) -> None:
        self.graph_tasks = array("q")
        self.nodes = array("q")
        self.norms = Doubles(0)
        """Of what each put out towards the next."""
        self.came = Doubles(0)
        """Of all that came in."""
        self.ways = array("i")
        """How many gradients led into it."""
        self.chosen = array("i")

    def __len__(self) -> int:
        return len(self.nodes)

    def add(
        self, place: Place, norm: float | None, came: float | None, ways: int, chosen: int
    ) -> None:
        """Add the node before those that are known."""
        self.graph_tasks.append(place[0])
        self.nodes.append(place[1])
        self.norms.append(norm)
        self.came.append(came)
        self.ways.append(ways)
        self.chosen.append(chosen)

    def place(self, at: int) -> Place:
        """One of them."""
        return self.graph_tasks[at], self.nodes[at]


def _norm_of(rows: Iterable[HealthRow], role: str) -> float | None:
    """The norm in a role, of several slots together; NaN: not finite."""
    norms = [
        math.nan if row.nan + row.posinf + row.neginf else row.norm
        for row in rows
        if row.role == role
    ]
    known = [norm for norm in norms if norm is not None]
    return math.sqrt(sum(norm * norm for norm in known)) if len(known) == len(norms) > 0 else None


class ParameterHistory:
    """The norm of one parameter's gradient after each pass of a run, read piece by piece.

    Args:
        trace: stays open as long as this is used.
        parameter: its name.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """

    def __init__(self, trace: Trace, parameter: str) -> None:
        self.parameter = parameter
        self._leaves = LeafReading(trace)
        self._known = array("d")
        """By pass; -1: it got none, or nothing was measured; NaN: not finite."""
        self._fill()

    def read_on(self, seconds: float) -> bool:
        """Read for about so long; return whether all is known.

        Raises:
            agviz.errors.TraceError: the file is damaged.
        """
        until = time.perf_counter() + seconds
        while not self._leaves.is_read:
            for place, leaves in self._leaves.read_piece():
                self._take(place, leaves)
            if time.perf_counter() >= until:
                break
        return self._leaves.is_read

    def norms(self) -> list[float | None]:
        """By pass, in order of time; None: it got no gradient, or that was not read yet."""
        return [None if norm < 0 else norm for norm in self._known]

    @property
    def tasks(self) -> GraphTasks:
        """The passes."""
        return self._leaves.tasks

    def place(self, graph_task: int) -> int | None:
        """The place of a graph task, or of the pass it is inside of; None: there is none."""
        return self._leaves.place(graph_task)

    def _fill(self) -> None:
        self._known.extend([-1.0] * (len(self.tasks) - len(self._known)))

    def _take(self, place: int, leaves: Iterable[LeafNorm]) -> None:
        norms = [leaf.norm for leaf in leaves if leaf.parameter == self.parameter]
        if norms:
            self._known[place] = math.sqrt(sum(norm * norm for norm in norms))
