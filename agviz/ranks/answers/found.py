"""What is found across ranks: a verdict, the kind of cause, and the ranks that it is about."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agviz.analysis.outcome import Outcome
from agviz.analysis.place import place
from agviz.analysis.source import source_line
from agviz.analysis.verdict import Verdict
from agviz.traces.rows import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agviz.ranks.run import Run
    from agviz.traces.reader import Trace
    from agviz.traces.rows import Frame, NodeRow


@dataclass(frozen=True, slots=True, kw_only=True)
class RankVerdict:
    """One thing that is to be said of a run."""

    kind: str
    """``nonfinite``, ``straggler``, ``graphs``, ``collectives``, ``unused``, ``gradients``,
    ``data``, ``scales``, ``summed``, ``rates``, ``raised``, ``died``, ``left``, ``hang``; empty:
    nothing was found."""
    ranks: tuple[int, ...]
    """Those in which the cause is."""
    node: str = ""
    """The node, in words; empty where it is in none."""
    verdict: Verdict

    def as_json(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        facts = {"kind": self.kind or None, "ranks": list(self.ranks), "node": self.node or None}
        return {**facts, **self.verdict.as_json(), "details": list(self.verdict.details)}


def found_at(
    run: Run,
    kind: str,
    ranks: Iterable[int],
    frame: Frame | None,
    heading: str,
    paragraph: str,
    *,
    outcome: Outcome = Outcome.FOUND,
    node: NodeRow | None = None,
    details: Iterable[str] = (),
    graph_task: int | None = None,
    verb: str = "explain",
) -> RankVerdict:
    """What is found at a line, shown with its text."""
    return RankVerdict(
        kind=kind,
        ranks=tuple(ranks),
        node="" if node is None else place(node),
        verdict=Verdict(
            outcome=outcome,
            heading=heading,
            graph_task=graph_task,
            frame=frame,
            source="" if frame is None else source_line(frame, run.folder.ranks[0].path),
            paragraph=paragraph,
            details=tuple(details),
            verb=verb,
        ),
    )


def numbers(ranks: Iterable[int]) -> str:
    """``rank 1``, ``ranks 0, 2 and 3``, ``ranks 0 to 6``."""
    found = sorted(ranks)
    if len(found) == 1:
        return f"rank {found[0]}"
    if len(found) > 2 and found == list(range(found[0], found[-1] + 1)):
        return f"ranks {found[0]} to {found[-1]}"
    return f"ranks {', '.join(map(str, found[:-1]))} and {found[-1]}"


def was(ranks: Sequence[int]) -> str:
    """``was`` or ``were``."""
    return "was" if len(ranks) == 1 else "were"


def common_line(stacks: Iterable[tuple[Frame, ...]]) -> Frame | None:
    """The line of the program that is innermost in most of some stacks; None: in none."""
    lines = Counter(frame for stack in stacks if (frame := visible(stack)) is not None)
    return lines.most_common(1)[0][0] if lines else None


def line_of(trace: Trace, node: NodeRow) -> Frame | None:
    """The line to look at for a node: of an AccumulateGrad the one that uses the parameter.

    DDP makes the AccumulateGrads of all parameters in its constructor.
    """
    if node.sequence_nr is not None:
        return node.frame
    for edge in trace.edges(node.graph_task):
        if edge.consumer == node.index:
            return trace.node(node.graph_task, edge.producer).frame
    return node.frame
