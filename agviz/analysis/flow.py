"""Flow: the gradient on its way from what backward was called on to a parameter, node by node.

Note [Where a gradient vanishes]
Where several gradients lead into a node, the way goes on along the largest, as that decides how
large the sum is. What is unusual is measured by the run itself, behind the loss function, whose
derivative is as small as what is left to be learnt:

- a gradient shrank or grew by more than half of the digits of its own type (3,000-fold in float32:
  what is added to it, or it to, at the other end of the way loses half of its digits),
- and by more than twice of what the steps of this very way come to that go in both directions by
  chance: their median (in powers of ten) times the square root of how many they are. A way of many
  large steps that cancel is none.

What is not finite, and what is zero, is unusual as such.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from array import array
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.faint import LOSS_NODES, behind_loss
from agviz.analysis.outcome import Outcome
from agviz.analysis.ways import Ways
from agviz.traces.leaf_reading import LeafReading
from agviz.traces.rows import LEAF
from agviz.words.labels import numbered
from agviz.words.units import factor, plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agviz.analysis.ways import WayIn
    from agviz.traces.graph_tasks import GraphTasks
    from agviz.traces.health import HealthRow
    from agviz.traces.reader import Trace
    from agviz.traces.rows import Frame, LeafNorm

_EPSILON: Final = {"float64": 2.0**-52, "complex128": 2.0**-52}
_LEAST_EPSILON: Final = 2.0**-23
"""Of float32; gradients of fewer digits go with parameters that have these."""
_TIMES: Final = "\N{MULTIPLICATION SIGN}"
_FEW_STEPS: Final = 5
"""Of fewer, the median says nothing."""
_STEEP: Final = 4.0
"""Times the median step: steps that are marked on a way that is unusual."""
_MOST: Final = 0.5
"""The share of the whole, in powers of ten, that a place has to have to be named."""

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


class FlowStep(NamedTuple):
    """A node on the way."""

    graph_task: int
    node: int
    name: str
    order: int | None
    module: str
    """Or the parameter."""
    frame: Frame | None
    """The line of the forward that made it."""
    came: float | None
    """Norm of what came in, all inputs together; NaN: not finite; None: not known."""
    norm: float | None
    """Of what it put out towards the next; of the last node, of what came in."""
    ways: int
    """How many gradients led into it."""
    chosen: int
    """Which of these the way comes along, by size, from 0."""

    @property
    def label(self) -> str:
        """``#12 AddmmBackward0``."""
        return numbered(self.order, self.name) if self.order else self.name

    @property
    def line(self) -> str:
        """``model.py:31``; empty: not known."""
        return "" if self.frame is None else f"{self.frame.file}:{self.frame.line}"


class FlowFinding(NamedTuple):
    """What is to be said of a flow."""

    outcome: Outcome
    sentence: str
    place: int | None = None
    """The step at which to look; None: none in particular."""
    steep: tuple[int, ...] = ()
    """Steps that fall or rise much more than the others."""


class FollowedGradient(NamedTuple):
    """A way from the root of a pass to a node."""

    target: FlowTarget
    steps: tuple[FlowStep, ...]
    finding: FlowFinding
    meetings: int
    """Nodes into which several gradients led."""
    base: float | None
    """Norm of what the loss function put out, with which others are compared; None: not known."""


class _Walked(NamedTuple):
    """A node on the way, of which nothing was read yet."""

    place: Place
    norm: float | None
    ways: tuple[WayIn, ...]
    chosen: int


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
        self._steps: list[FlowStep] = []
        """From the end."""
        self._numels: list[int] = []
        """What came into these nodes: how many elements; 0: not known."""
        self._dtype = ""
        self._puts_out_nonfinite = False
        """The node at the end itself, towards what is behind it."""
        self._walked: list[_Walked] | None = None
        """None: the loss was not reached."""
        self._end = self._find_end(trace)
        self._begin_walk()

    @property
    def is_read(self) -> bool:
        """Whether all is known."""
        return self._walked is not None and len(self._steps) == len(self._walked)

    @property
    def share(self) -> float:
        """How much of it was read, about."""
        if self._walked is not None:
            return 0.9 + 0.1 * len(self._steps) / max(1, len(self._walked))
        return 0.9 * min((ways.share for ways in self._ways.values()), default=0.0)

    def read_on(self, trace: Trace, seconds: float = math.inf) -> bool:
        """Read for about so long; return whether all is known.

        Raises:
            agviz.errors.TraceError: the file is damaged.
        """
        until = time.perf_counter() + seconds
        if self._walked is None and self._walk(trace, until):
            self._walked = self._found
        while self._walked is not None and len(self._steps) < len(self._walked):
            self._describe(trace, self._walked)
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
        if not self._walked:
            return False
        walked = self._walked[len(self._walked) - 1 - step]
        if len(walked.ways) < 2:
            return False
        self._choices[walked.place] = (walked.chosen + 1) % len(walked.ways)
        self._walked, self._steps, self._numels = None, [], []
        self._begin_walk()
        return True

    def flow(self) -> FollowedGradient:
        """What was found, once it was read."""
        steps = tuple(reversed(self._steps))
        meetings = sum(step.ways > 1 for step in steps)
        base = steps[self._begin(steps)].norm if steps else None
        return FollowedGradient(self.target, steps, self._judge(steps), meetings, base)

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
        self._found: list[_Walked] = []
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
            self._found.append(_Walked(place, self._norm, tuple(into), chosen))
            task = trace.graph_task(number)
            if into:
                self._next, self._norm = (number, into[chosen].producer), into[chosen].norm
            elif task.parent >= 0:
                self._norm = _norm_of(trace.health(number, node), "root")
                is_known = self._norm is not None
                self._next = (task.parent, task.parent_node) if is_known else None
            else:
                self._next = None
            if len(self._found) % _MANY == 0 and time.perf_counter() >= until:
                break
            if len(self._found) > sum(map(len, self._ways.values())) + len(self._ways):
                raise trace.damaged("a node leads to itself")
        return self._next is None

    def _describe(self, trace: Trace, walked: Sequence[_Walked]) -> None:
        """Read what is shown of the next nodes, or of the next one of a short way."""
        begin = len(self._steps)
        number, node = walked[begin].place
        if len(walked) <= _LONG:
            row = trace.node(number, node, most_outputs=1)
            owner = row.parameter or row.module or ""
            self._add(trace, walked, row.short_name, row.order, owner, row.frame)
            return
        end = begin
        while end < min(len(walked), begin + _MANY) and walked[end].place[0] == number:
            end += 1
        nodes = [each.place[1] for each in walked[begin:end]]
        labels, lines = trace.labels(number, nodes), trace.forward_lines(number, nodes)
        for each in nodes:
            if each not in labels:
                raise trace.damaged("a node is missing")
            self._add(trace, walked, labels[each][0], None, labels[each][1], lines.get(each))

    def _add(
        self,
        trace: Trace,
        walked: Sequence[_Walked],
        name: str,
        order: int | None,
        owner: str,
        frame: Frame | None,
    ) -> None:
        at = len(self._steps)
        (number, node), norm, ways, chosen = walked[at]
        came = self._came(trace, (number, node), ways)
        if at == 0:
            norm = came
            put_out = (row for row in trace.health(number, node) if row.role == "output")
            self._puts_out_nonfinite = any(row.nan + row.posinf + row.neginf for row in put_out)
            rows = [each for way in ways[:1] for each in trace.health(number, way.producer)]
            self._dtype = rows[0].dtype if rows else ""
        is_near = at >= len(walked) - LOSS_NODES
        self._numels.append(self._numel(trace, walked, at) if is_near else 0)
        shown = frame if name != LEAF else None
        self._steps.append(
            FlowStep(number, node, name, order, owner, shown, came, norm, len(ways), chosen)
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

    @staticmethod
    def _numel(trace: Trace, walked: Sequence[_Walked], at: int) -> int:
        """How many elements came into a node along the way."""
        (number, node), _, ways, chosen = walked[at]
        if ways:
            way = ways[chosen]
            rows = trace.health(number, way.producer, way.output)
            found = [row for row in rows if row.role == "output"]
        else:
            found = [row for row in trace.health(number, node) if row.role == "root"]
        return max((row.numel for row in found), default=0)

    # What is to be said.

    def _judge(self, steps: Sequence[FlowStep]) -> FlowFinding:
        said = self._not_known(steps)
        if said is not None:
            return said
        begin = self._begin(steps)
        return (
            _not_finite(steps)
            or _zero(steps)
            or self._begins_here(steps)
            or _gone_far(steps[begin:], self._limit, begin, self._whose)
            or FlowFinding(Outcome.NOTHING_UNUSUAL, _calm(steps[begin:], self._whose))
        )

    def _begins_here(self, steps: Sequence[FlowStep]) -> FlowFinding | None:
        """That the node at the end makes of finite gradients what is not finite."""
        if not self._puts_out_nonfinite:
            return None
        last = len(steps) - 1
        said = f"What comes to {_where(steps[last])} is finite; what it puts out is not."
        return FlowFinding(Outcome.FOUND, said, last, (last,))

    def _not_known(self, steps: Sequence[FlowStep]) -> FlowFinding | None:
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
        unknown = next((place for place, step in enumerate(steps) if step.norm is None), None)
        if unknown is not None:
            said = f"What {steps[unknown].label} put out was not measured: from there on nothing"
            return FlowFinding(Outcome.CANT_TELL, f"{said} can be compared.", unknown)
        return None

    def _begin(self, steps: Sequence[FlowStep]) -> int:
        """The last step of the loss function: what it put out is compared."""
        numels = self._numels[::-1]
        spread = next((at for at, numel in enumerate(numels) if numel != 1), len(steps) - 1)
        return max(0, behind_loss([step.name for step in steps], spread) - 1)

    @property
    def _whose(self) -> str:
        return self.target.parameter or "this node"

    @property
    def _limit(self) -> float:
        """Powers of ten."""
        return -math.log10(_EPSILON.get(self._dtype, _LEAST_EPSILON)) / 2


def _norm_of(rows: Iterable[HealthRow], role: str) -> float | None:
    """The norm in a role, of several slots together; NaN: not finite."""
    norms = [
        math.nan if row.nan + row.posinf + row.neginf else row.norm
        for row in rows
        if row.role == role
    ]
    known = [norm for norm in norms if norm is not None]
    return math.sqrt(sum(norm * norm for norm in known)) if len(known) == len(norms) > 0 else None


def _not_finite(steps: Sequence[FlowStep]) -> FlowFinding | None:
    for place, step in enumerate(steps):
        if step.came is not None and not math.isfinite(step.came) and place == 0:
            said = "What backward was called with is not finite: so is all that comes of it."
            return FlowFinding(Outcome.FOUND, said, 0)
        if step.norm is not None and not math.isfinite(step.norm):
            before = f", after a norm of {step.came:.3g}" if _is_finite(step.came) else ""
            where = _where(step)
            said = f"Not finite from {where} on{before}."
            if step.came is not None and not math.isfinite(step.came) and step.ways > 1:
                said = f"Not finite from {where} on, where {step.ways} gradients meet."
            return FlowFinding(Outcome.FOUND, said, place, (place,))
    return None


def _is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _zero(steps: Sequence[FlowStep]) -> FlowFinding | None:
    for place, step in enumerate(steps):
        if step.norm == 0:
            before = f", after a norm of {step.came:.3g}" if step.came else ""
            said = f"Zero from {_where(step)} on{before}."
            return FlowFinding(Outcome.FOUND, said, place, (place,))
    return None


def changes(norms: Sequence[float | None]) -> list[float]:
    """From each norm to the next, in powers of ten; 0 where one is not known."""
    found = []
    for one, other in itertools.pairwise(norms):
        is_known = one is not None and other is not None and 0 < one < math.inf
        is_known = is_known and other is not None and 0 < other < math.inf
        found.append(math.log10((other or 1) / (one or 1)) if is_known else 0.0)
    return found


def _gone_far(
    steps: Sequence[FlowStep], limit: float, offset: int, whose: str
) -> FlowFinding | None:
    """That the norm fell or rose too far, and where; None: it did not."""
    norms = [step.norm or 0.0 for step in steps]
    last = norms[-1]
    most = max(range(len(norms)), key=norms.__getitem__)
    least = min(range(len(norms)), key=norms.__getitem__)
    falls = math.log10(norms[most] / last) >= math.log10(last / norms[least])
    first = most if falls else least
    far = abs(math.log10(norms[first] / last))
    by = changes(norms[first:])
    moved = [abs(each) for each in by if abs(each) > 1e-9]
    usual = statistics.median(moved) if len(moved) >= _FEW_STEPS else 0.0
    if far <= max(limit, 2 * usual * math.sqrt(len(moved))):
        return None
    sign = -1 if falls else 1
    sizes = {first + 1 + at: sign * each for at, each in enumerate(by) if sign * each > 0}
    steep = tuple(offset + at for at, size in sizes.items() if size > _STEEP * usual)
    verb = "falls" if falls else "grows"
    behind = "the loss" if first == 0 else _where(steps[first])
    times = factor(10**far) if far < 300 else f"1e{far:.0f}"
    said, place = _most_of_it(steps, sizes)
    sentence = f"The gradient {verb} {times}{_TIMES} from {behind} to {whose}, {said}."
    return FlowFinding(Outcome.FOUND, sentence, offset + place, steep)


def _most_of_it(steps: Sequence[FlowStep], sizes: Mapping[int, float]) -> tuple[str, int]:
    """Where most of a fall or rise is, in words, and the first step there."""
    whole = sum(sizes.values())
    steepest = max(sizes, key=sizes.__getitem__)
    if sizes[steepest] >= _MOST * whole:
        return f"most of it in {_where(steps[steepest])}", steepest
    groups: dict[tuple[str, str], list[int]] = {}
    kinds: dict[tuple[str, str], list[int]] = {}
    for at in sizes:
        groups.setdefault((steps[at].name, steps[at].line), []).append(at)
        kinds.setdefault((steps[at].name, ""), []).append(at)

    def share(its: Sequence[int]) -> float:
        return sum(sizes[at] for at in its) / whole

    for named in (groups, kinds):
        (name, line), its = max(named.items(), key=lambda pair: share(pair[1]))
        if share(its) >= _MOST:
            where = f" at {line}" if line else ""
            return f"most of it in {plural(len(its), name, name)}{where}", its[0]
    where = f" at {line}" if line else ""
    part = f"{share(its):.0%} of it in {plural(len(its), name, name)}{where}"
    return f"in {plural(len(sizes), 'step')}, {part}", its[0]


def _calm(steps: Sequence[FlowStep], whose: str) -> str:
    """That nothing is unusual, and how far the norm went."""
    if len(steps) == 1:
        return f"Nothing unusual: what comes to {whose} is finite, straight from the loss function."
    first, last = steps[0].norm or 0.0, steps[-1].norm or 0.0
    nodes = plural(len(steps) - 1, "node")
    is_larger = last >= first
    times = factor(last / first if is_larger else first / last)
    how = f"grows {times}{_TIMES}" if is_larger else f"falls {times}{_TIMES}"
    return f"Nothing unusual: behind the loss the gradient {how} over {nodes}."


def _where(step: FlowStep) -> str:
    return f"{step.label} at {step.line}" if step.line else step.label


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
