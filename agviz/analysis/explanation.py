"""Why gradients are NaN or infinite: the answer, in words and as JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from agviz.analysis.evidence import gather, with_norms
from agviz.analysis.graph_blame import began
from agviz.analysis.loss_scale import skipped
from agviz.analysis.measures import bad, counts, dtype_and_shape, extent, magnitude, number
from agviz.analysis.origins import OriginKind, spread
from agviz.analysis.patterns import find
from agviz.analysis.patterns.flow import OLD_GRAD
from agviz.analysis.patterns.overflow import OVERFLOWS
from agviz.analysis.patterns.singular import BEHIND, REMEDIES
from agviz.analysis.place import backward_pass, place
from agviz.analysis.places import place_of, together
from agviz.analysis.source import source_line
from agviz.errors import AgvizError
from agviz.traces.rows import GraphTaskStatus, visible
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.blame import Argument, Blame
    from agviz.analysis.evidence import Evidence
    from agviz.analysis.loss_scale import Skipped
    from agviz.analysis.origins import Origin, Spread
    from agviz.analysis.patterns import Finding
    from agviz.analysis.places import ElementPlace
    from agviz.measure.values import Health
    from agviz.traces.reader import Trace
    from agviz.traces.rows import Frame, NodeRow

_UNNAMED: Final = "node "
"""And its number: what stands for the name of a leaf that has none."""
_MOST_NAMES: Final = 4
_MOST_WORDS: Final = 120
"""Of an answer: where there are more, indices, names and other places are left out."""
_MOST_KIN: Final = 16
"""Other origins of which the function of the forward is looked for."""


class ForwardState(StrEnum):
    """What is known of the forward that led to the first non-finite gradient."""

    FINITE = "finite"
    """Recorded (``check_forward``), and finite where this node was made."""
    NON_FINITE = "non-finite"
    """Recorded, or seen in what the node had saved."""
    SAVED_FINITE = "saved tensors finite"
    """Not recorded; what the node had saved was finite."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Explanation:
    """Why the gradients of a call of backward or grad are not finite; ``str()`` is the answer."""

    graph_task: int
    """The call; its origin may be in a reentrant one inside it."""
    backward_pass: str
    """The same in words: ``backward pass 30 (the 31st of 40, after 30 optimizer steps)``."""
    origin: Origin
    node: NodeRow
    """The node that made the first non-finite gradient, or received it."""
    evidence: Evidence
    finding: Finding | None
    """The pattern that fits; None where no known one does."""
    spread: Spread
    elements: ElementPlace | None
    """Which sample and position it is, where that was recorded."""
    kin: frozenset[Origin]
    """Of the other origins, those that the same function of the forward made non-finite."""
    forward: ForwardState
    reached: tuple[str, ...]
    """Names of the parameters that it reached, ``node 12`` where one has no name."""
    leaves: int
    """Number of AccumulateGrad nodes that it could have reached."""
    later: int
    """Number of later calls of backward or grad with a gradient that is not finite."""
    frame: Frame | None
    """The line to look at: where the first function of the forward that gave something non-finite
    was called, else where the node was created; where the caller's own gradient was non-finite, the
    call of backward. None where that was not recorded."""
    source: str
    """The text of that line, where the file is there; else empty."""

    has_ended: bool
    """Whether the call has come to its end, or else goes on and may reach more."""
    is_masked: bool
    """Whether it reached neither a parameter nor a result of ``grad``: what masks an output masks
    its gradient, too."""
    skipped: Skipped | None
    """How the step after it was left out because the loss scale was too large; None: it was not, or
    that is not known."""

    @property
    def is_harmless(self) -> bool:
        """Whether no parameter was changed by it: it was masked away, or the step was skipped."""
        return self.is_masked or self.skipped is not None

    @property
    def reassurance(self) -> str:
        """What harmless ones did not reach."""
        reached = "a parameter" if self.is_masked else "an optimizer step"
        return f"no non-finite gradient reached {reached}"

    @property
    def pattern(self) -> str | None:
        """Name of the pattern; None where no known one fits."""
        return None if self.finding is None else self.finding.pattern

    @property
    def is_at_a_point(self) -> bool:
        """Whether a known derivative is infinite at the point where the forward came to."""
        found = self.pattern or ""
        return found in REMEDIES or BEHIND in found

    @property
    def line(self) -> str | None:
        """``model.py:42 in forward``; None where it was not recorded."""
        return None if self.frame is None else str(self.frame)

    @property
    def heading(self) -> str:
        """The pattern, the place and the pass."""
        what = self.pattern or _kind(self.evidence.wrong)
        return f"{what}, {self._place()}, in {self.backward_pass}"

    @property
    def aside(self) -> str:
        """The same of non-finite gradients that are harmless."""
        if self.skipped is not None:
            return self._skipped(self.skipped)
        counted = "" if self.evidence.wrong is None else f" ({counts(self.evidence.wrong)})"
        at = f" at {self.line}" if self.line else ""
        return (
            f"In {self.backward_pass} {self.node.short_name}{at} put out"
            f" {_kind(self.evidence.wrong)}{counted}, which was masked away on its way"
            f" ({self.pattern or 'no known pattern'})."
        )

    def _skipped(self, skipped: Skipped) -> str:
        at = f" at {self.line}" if self.line else ""
        said = (
            f"In {self.backward_pass} the loss scale of {number(skipped.scale)} was too"
            f" large: {self.node.short_name}{at} put out {_out(self.evidence.wrong)}. No optimizer"
            f" stepped before the scale was {number(skipped.lowered)}, and in backward pass"
            f" {skipped.finite} all gradients were finite: so a GradScaler finds its scale."
        )
        return " ".join([said, *self._later()])

    @property
    def paragraph(self) -> str:
        """What happened, what to do, and what it reached."""
        return self.beside("")

    def beside(self, more: str) -> str:
        """The same, of no more words than leave room for what else is said with it."""
        which = "" if self.elements is None else self.elements.sentence
        least = "" if self.elements is not None and not self.elements.sample else which
        rest = " ".join([self.heading, self.line or "", self.source, more]).split()
        said = ""
        for about, is_brief in ((which, False), (least, False), (least, True), ("", True)):
            told = [*self._what(about), *self._remedy(), *self._onwards(is_brief=is_brief)]
            said = " ".join(told)
            if len(rest) + len(said.split()) <= _MOST_WORDS:
                break
        return said

    def details(self) -> Iterator[str]:
        """What the answer rests on, line by line."""
        node = self.node
        yield (
            f"node {node.index} ({node.name}) of backward pass {self.origin.graph_task}, number"
            f" {node.order} to run, thread {node.thread}"
        )
        yield from self._flow_details()
        yield from self._forward_details()
        if self.evidence.zeroed_by:
            yield f"zeros in the gradient come from {self.evidence.zeroed_by}"
        if self.evidence.scale is not None:
            yield f"the gradient of the loss is {number(self.evidence.scale)}: it is scaled"
        yield from (f"created at {frame}" for frame in node.stack if not frame.hidden)
        apart = "independent of it" if self._is_apart else "beside it"
        for origin in self.spread.origins[1:]:
            related = "from the same function" if origin in self.kin else apart
            yield (
                f"{related}: {origin.kind} at node {origin.node} of backward pass"
                f" {origin.graph_task}"
            )
        yield f"reached {', '.join(self.reached) or 'no parameter'}"

    def _flow_details(self) -> Iterator[str]:
        evidence = self.evidence
        for given in evidence.received:
            whence = " + ".join(given.producers) or "the caller"
            yield f"received {given.slot} from {whence}: {_measured(given.health)}"
        for hook in evidence.hooks:
            yield f"{hook.kind} hook {hook.name} changed it: {_measured(hook.gave)}"
        for output, health in sorted(evidence.outputs.items()):
            to = next(iter(evidence.consumers.get(output, ())), "")
            yield f"output {output}{f' to {to}' if to else ''}: {_measured(health)}"
        if evidence.kind is not OriginKind.NODE:
            yield f"{evidence.kind}: {_measured(evidence.wrong)}"
        for row in evidence.saved.values():
            what = row.value if row.health is None else _measured(row.health)
            yield f"saved {row.name}{f' ({row.parameter})' if row.parameter else ''}: {what}"

    def as_json(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        evidence, node, found = self.evidence, self.node, self.finding
        return {
            "graph_task": self.graph_task,
            "backward_pass": self.backward_pass,
            "pattern": self.pattern,
            "reason": None if found is None else found.reason,
            "remedy": None if found is None else found.remedy,
            "line": self.line,
            "file": None if self.frame is None else self.frame.file,
            "line_number": None if self.frame is None else self.frame.line,
            "source": self.source or None,
            "answer": str(self),
            "origin": {
                "kind": str(evidence.kind),
                "graph_task": self.origin.graph_task,
                "node": node.index,
                "name": node.short_name,
                "module": node.module,
                "parameter": node.parameter,
                "order": node.order,
                "thread": node.thread,
                "seq": self.origin.seq,
                "slot": self.origin.slot,
                "line": node.line,
                "stack": [
                    {"file": f.file, "line": f.line, "function": f.function}
                    for f in node.stack
                    if not f.hidden
                ],
            },
            "first": _json(evidence.wrong),
            "received": [
                {"slot": g.slot, "producers": list(g.producers), "health": _json(g.health)}
                for g in evidence.received
            ],
            "outputs": [
                {
                    "output": output,
                    "towards": list(evidence.consumers.get(output, ())),
                    "health": _json(health),
                }
                for output, health in sorted(evidence.outputs.items())
            ],
            "saved": [
                {
                    "name": row.name,
                    "parameter": row.parameter or None,
                    "value": row.value,
                    "health": _json(row.health),
                }
                for row in evidence.saved.values()
            ],
            "hooks": [
                {"kind": hook.kind, "name": hook.name, "gave": _json(hook.gave)}
                for hook in evidence.hooks
            ],
            "elements": None if self.elements is None else self.elements.as_json(),
            "loss_scale": evidence.scale,
            "partial": evidence.is_partial,
            "zeroed_by": evidence.zeroed_by or None,
            "norms": [
                {"name": name, "norm": norm if math.isfinite(norm) else None}
                for name, norm in evidence.norms
            ],
            "forward": {"state": str(self.forward), "first": _blamed(evidence.blame)},
            "nodes": self.spread.nodes,
            "reached": list(self.reached),
            "leaves": self.leaves,
            "captured": self.spread.captured,
            "others": [
                {"kind": str(o.kind), "graph_task": o.graph_task, "node": o.node, "seq": o.seq}
                for o in self.spread.origins[1:]
            ],
            "later_graph_tasks": self.later,
            "harmless": self.is_harmless,
            "skipped": None if self.skipped is None else self.skipped._asdict(),
        }

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        if self.is_harmless:
            return f"{self.reassurance}: {self.aside}"
        where = [self.line] if self.line else []
        where += [f"    {self.source}"] if self.source else []
        return "\n".join([self.heading, *where, self.paragraph])

    def _place(self) -> str:
        node, blamed = self.node, self.evidence.blame
        if blamed is not None and not self.evidence.is_blamed:
            module = blamed.op.module
            return f"in {blamed.op.name}{f' of {module}' if module else ''}"
        at = {OriginKind.NODE: "in", OriginKind.SUM: "where gradients meet before"}
        return f"{at.get(self.evidence.kind, 'at')} {place(node)}"

    def _what(self, which: str) -> Iterator[str]:
        """What happened, with a sentence, or nothing, about which elements it was."""
        evidence, found = self.evidence, self.finding
        reason = "" if found is None else f": {found.reason}"
        if self.forward is ForwardState.NON_FINITE and found is not None:
            met = f"The backward pass met it first in {self.node.short_name}, which put out"
            met = f"{met} {_out(evidence.wrong)}."
            is_met = self.elements is not None and self.elements.is_met
            yield f"The forward was non-finite already{reason}."
            yield from filter(None, (met, which) if is_met else (which, met))
            return
        if evidence.kind is OriginKind.NODE:
            yield f"It was given {_given(evidence)} and put out {_out(evidence.wrong)}{reason}."
        elif evidence.kind is OriginKind.SUM:
            yield f"There the first {_kind(evidence.wrong)} came to be{reason}."
        else:
            yield f"No node made the first {_kind(evidence.wrong)}{reason}."
        yield from filter(None, [which])
        if found is None:
            yield "No known pattern fits."
        if self.forward is ForwardState.NON_FINITE:
            yield "The forward was non-finite already."
        if evidence.is_partial:
            yield "Not all that it was given was recorded: it may have begun before."
        elif self.forward is ForwardState.UNKNOWN and found is None:
            yield "To learn whether the forward was finite, record with --check-forward."

    def _remedy(self) -> Iterator[str]:
        if self.finding is not None:
            yield self.finding.remedy

    def _onwards(self, *, is_brief: bool) -> Iterator[str]:
        named = [name for name in self.reached if not name.startswith(_UNNAMED)]
        shown = ", ".join(named[:_MOST_NAMES])
        more = len(self.reached) - len(named[:_MOST_NAMES])
        names = f": {shown}{f' and {more:,} more' if more > 0 else ''}" if shown else ""
        names = "" if is_brief else names
        if self.leaves and not (self.spread.captured and not self.reached):
            reached = "It reached" if self.has_ended else "So far it has reached"
            yield f"{reached} {len(self.reached):,} of {plural(self.leaves, 'parameter')}{names}."
        if self.spread.captured:
            results = plural(self.spread.captured, "result")
            yield f"It reached {results} of torch.autograd.grad."
        if not is_brief:
            yield from self._elsewhere()
            yield from self._later()

    def _elsewhere(self) -> Iterator[str]:
        """What else made non-finite gradients of finite ones."""
        kin = len(self.kin)
        others = len(self.spread.origins) - 1 - kin
        if kin:
            yield f"It came into this backward pass in {plural(kin, 'other place')}, too."
        if not others:
            return
        where = f"In {plural(others, 'other place')} of this backward pass gradients became"
        if self._is_apart:
            yield f"{where} non-finite independently of it."
        else:
            yield f"{where} non-finite, and the forward may be the cause there, too."

    @property
    def _is_apart(self) -> bool:
        """Whether other origins are known to have nothing to do with the first, but for kin."""
        if self.forward is not ForwardState.NON_FINITE:
            return True
        return self.evidence.blame is not None and len(self.spread.origins) <= _MOST_KIN + 1

    def _later(self) -> Iterator[str]:
        if self.later:
            passes = "backward pass" if self.later == 1 else "backward passes"
            yield f"{self.later:,} later {passes} had such gradients, too."

    def _forward_details(self) -> Iterator[str]:
        yield f"the forward: {self.forward}"
        for argument in self.evidence.arguments:
            yield f"  was given {_given_by(argument)}: {_measured(argument.health)}"
        found = self.evidence.blame
        if found is None:
            if self.forward in {ForwardState.UNKNOWN, ForwardState.SAVED_FINITE}:
                yield "record with --check-forward to see what every function of the forward gave"
            return
        arguments = f"({found.op.arguments})" if found.op.arguments else ""
        yield f"first in {found.op.name}{arguments} at {found.op.line}: {_measured(found.wrong)}"
        for argument in found.arguments:
            yield f"  was given {_given_by(argument)}: {_measured(argument.health)}"


def explain(trace: Trace, graph_task: int | None = None) -> Explanation | None:
    """Why gradients are not finite; None where all that were measured are.

    A call whose non-finite gradients reached a parameter goes before those where they are harmless.

    Args:
        trace: the trace.
        graph_task: the call of backward or grad that is asked about; None: the first in which a
            gradient is not finite.

    Raises:
        agviz.errors.TraceError: there is no such graph task, or the file is damaged.
        agviz.errors.AgvizError: no gradient was looked at when it was recorded.
    """
    if trace.meta.values == "none" and not trace.has_checks():
        raise AgvizError(
            f"{trace.path} says nothing of the values of gradients; record without --values none"
        )
    if graph_task is None:
        tasks = trace.nonfinite_graph_tasks()
        affected = list(dict.fromkeys(map(trace.graph_tasks.root, tasks)))
    else:
        affected = [graph_task]
    explained = None
    for later, task in zip(range(len(affected))[::-1], affected, strict=True):
        found = spread(trace, task)
        if found is None or (explained is not None and _is_masked(trace, task, found)):
            continue
        found_here = _explain(trace, task, found, later=later)
        if explained is None or not found_here.is_harmless:
            explained = found_here
        if not found_here.is_harmless:
            break
    return explained


def _explain(trace: Trace, graph_task: int, found: Spread, *, later: int) -> Explanation:
    origin = found.first
    node = trace.node(origin.graph_task, origin.node)
    evidence = gather(trace, origin, began(trace, origin.graph_task, origin.node))
    finding = find(evidence)
    if finding is not None and finding.pattern.startswith("overflow in"):
        evidence = with_norms(trace, origin, evidence)
        finding = find(evidence)
    leaves = {
        (number, leaf): name or f"{_UNNAMED}{leaf}"
        for number in trace.family(graph_task)
        for leaf, name in trace.leaves(number).items()
    }
    frame = _frame(trace, node, evidence, finding)
    elements = _elements(trace, origin, evidence, finding)
    return Explanation(
        graph_task=graph_task,
        backward_pass=backward_pass(trace, graph_task),
        origin=origin,
        node=node,
        evidence=evidence,
        finding=finding,
        spread=found,
        elements=None if elements is None else elements.after(trace.forward_ops(graph_task)),
        kin=_kin(trace, found, evidence),
        forward=_forward(evidence),
        reached=tuple(dict.fromkeys(leaves[leaf] for leaf in found.leaves)),
        leaves=len(set(leaves.values())),
        later=later,
        has_ended=trace.graph_task(graph_task).status is not GraphTaskStatus.RUNNING,
        is_masked=_is_masked(trace, graph_task, found),
        skipped=_skipped(trace, graph_task, evidence, finding),
        frame=frame,
        source="" if frame is None else source_line(frame, trace.path),
    )


def _elements(
    trace: Trace, origin: Origin, evidence: Evidence, finding: Finding | None
) -> ElementPlace | None:
    found = [each for each in trace.located(origin.graph_task, origin.node) if each.value is None]
    of_node = place_of(found[0]) if found else None
    is_behind = finding is not None and BEHIND in finding.pattern
    if is_behind:
        return of_node
    if evidence.blame is None or evidence.blame.is_of_graph:
        was_finite = not any(_may_be_bad(row.health) for row in evidence.saved.values())
        return of_node if was_finite or of_node is None else of_node.met()
    by_function = trace.located_by(evidence.blame.op.id)
    return together(None if by_function is None else place_of(by_function), of_node)


def _may_be_bad(health: Health | None) -> bool:
    return health is not None and (bad(health) > 0 or bool(health.unknown))


def _kin(trace: Trace, found: Spread, evidence: Evidence) -> frozenset[Origin]:
    """The other origins that are of the same function of the forward."""
    if evidence.blame is None:
        return frozenset()
    first = evidence.blame.op
    of_node = first.sequence_nr if evidence.blame.is_of_graph else None
    kin = set()
    for origin in found.origins[1 : _MOST_KIN + 1]:
        by = began(trace, origin.graph_task, origin.node)
        is_same = by is not None and (by.op.id, by.op.sequence_nr) == (first.id, first.sequence_nr)
        node = trace.node(origin.graph_task, origin.node)
        if is_same or (of_node is not None and node.sequence_nr == of_node):
            kin.add(origin)
    return frozenset(kin)


def _is_masked(trace: Trace, graph_task: int, found: Spread) -> bool:
    return _has_finished(trace, graph_task) and not found.leaves and not found.captured


def _has_finished(trace: Trace, graph_task: int) -> bool:
    return trace.graph_task(graph_task).status is GraphTaskStatus.FINISHED


def _skipped(
    trace: Trace, graph_task: int, evidence: Evidence, finding: Finding | None
) -> Skipped | None:
    """How its step was left out, where the loss scale alone made a gradient overflow."""
    if finding is None or finding.pattern not in OVERFLOWS or not _has_finished(trace, graph_task):
        return None
    if _forward(evidence) is ForwardState.NON_FINITE:
        return None
    nonfinite = set(map(trace.graph_tasks.root, trace.nonfinite_graph_tasks()))
    return skipped(trace, graph_task, nonfinite)


def _forward(evidence: Evidence) -> ForwardState:
    saved = [row.health for row in evidence.saved.values() if row.health is not None]
    if evidence.blame is not None or any(map(bad, saved)):
        return ForwardState.NON_FINITE
    if evidence.arguments or evidence.result is not None:
        return ForwardState.FINITE
    if saved and not any(health.unknown for health in saved):
        return ForwardState.SAVED_FINITE
    return ForwardState.UNKNOWN


def _frame(
    trace: Trace, node: NodeRow, evidence: Evidence, finding: Finding | None
) -> Frame | None:
    blamed = evidence.blame
    if finding is not None and BEHIND in finding.pattern:
        return node.frame  # an infinity that is masked is meant; what lets it through is not
    if evidence.kind is OriginKind.ROOT and blamed is None:
        called = trace.call_site(node.graph_task)
        return visible(called) or node.frame
    if evidence.written is not None and finding is not None and finding.pattern == OLD_GRAD:
        return evidence.written.frame
    if blamed is not None and blamed.spoiler is not None:
        return blamed.spoiler.frame
    if blamed is not None and not evidence.is_blamed and blamed.op.frame is not None:
        return blamed.op.frame
    return node.frame


def _kind(health: Health | None) -> str:
    return "NaN" if health is None or health.nan else "infinity"


def _given_by(argument: Argument) -> str:
    return f"{argument.place} by {argument.parameter or argument.made_by or 'the program'}"


def _given(evidence: Evidence) -> str:
    known = [given.health for given in evidence.received if given.health is not None]
    if not known:
        return "gradients that were not measured"
    largest = max(map(magnitude, known))
    if not largest:
        return "a gradient of zeros"
    what = "a finite gradient" if len(known) == 1 else "finite gradients"
    return f"{what} up to {number(largest)}"


def _out(health: Health | None) -> str:
    return (
        "NaN or infinities" if health is None else f"{counts(health)} ({dtype_and_shape(health)})"
    )


def _measured(health: Health | None) -> str:
    if health is None:
        return "not measured"
    if health.unknown:
        return f"{dtype_and_shape(health)}, not looked at: {health.unknown}"
    said = f"{dtype_and_shape(health)}, {extent(health)}"
    if health.norm is not None:
        said += f", norm {number(health.norm)}"
    if health.zero:
        said += f", {plural(health.zero, 'zero')}"
    return said + (f", {counts(health)}" if bad(health) else "")


def _json(health: Health | None) -> dict[str, Any] | None:
    if health is None:
        return None
    facts = health._asdict()
    facts["shape"] = None if health.shape is None else list(health.shape)
    facts["norm"] = None if health.norm is None or not math.isfinite(health.norm) else health.norm
    return facts


def _blamed(found: Blame | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "function": found.op.name,
        "arguments": found.op.arguments,
        "module": found.op.module,
        "line": found.op.line,
        "source": str(found.source),
        "parameter": found.parameter or None,
        "health": _json(found.wrong),
        "given": [
            {
                "place": argument.place,
                "parameter": argument.parameter or None,
                "made_by": argument.made_by or None,
                "health": _json(argument.health),
            }
            for argument in found.arguments
        ],
    }
