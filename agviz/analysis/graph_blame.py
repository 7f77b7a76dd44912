"""Which function of the forward gave NaN or infinities first, by what nodes had saved.

Note [Back through what was saved]
Where the forward was not recorded, what nodes had saved is (``root_saved``), of the first backward
pass with a loss that is not finite, or from the first node on that had saved such a thing. The way
back goes from a node that had saved something non-finite to those that made what it was given, past
what nodes do not save (of sums, of views, of a factor that needs no gradient). It ends at a node
that had saved its finite argument, or its result as the first; whether that function can make such
a number of what it was given, the rules say that judge recorded functions. Where none of them, or
several, can have been it, nobody is named. What had no node at all came with the data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.blame import NO_OP, SOFTMAX, WRITING, Argument, Blame, Source, blame
from agviz.analysis.evidence import base_name
from agviz.analysis.measures import bad
from agviz.analysis.patterns.forward import UNKNOWN, WRITTEN, function_of, of_blame
from agviz.traces.rows import ForwardOpRow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.measure.values import Health
    from agviz.traces.reader import Trace
    from agviz.traces.rows import EdgeRow, NodeRow, SavedHealthRow

_RESULTS: Final = ("result", "output", "out")
"""How the names begin by which nodes save what they gave."""
_OUTPUTS: Final = {
    **dict.fromkeys(("self", "input", "vec1"), 0),
    **dict.fromkeys(("mat1", "batch1", "other", "target", "weight", "exponent", "vec2"), 1),
    "mat2": 1,
    "batch2": 2,
}
"""Of a node, by what it saved: the output that is the gradient of that."""
_NO_ANSWER: Final = {UNKNOWN, WRITTEN}
_LEAF: Final = "AccumulateGrad"
_SAVING_NOTHING: Final = frozenset({"Alias", "Clone", "Neg", "T", "ToCopy"})
"""Any other node that is not in the recording was not looked at."""
_MOST_STEPS: Final = 4_096


def began(trace: Trace, graph_task: int, node: int) -> Blame | None:
    """The function of the forward that made what a node works with non-finite; None: not known.

    By the recorded forward where there is one, else by what nodes had saved.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    if trace.meta.check_forward:
        return blame(trace, graph_task, node)
    way = _Way(trace, graph_task)
    return way.back(node) if way.saved else None


class _Wrong(NamedTuple):
    """Something that a node had saved and that is not finite."""

    name: str
    parameter: str
    health: Health


class _Way:
    def __init__(self, trace: Trace, graph_task: int) -> None:
        self._trace = trace
        self._task = graph_task
        self.saved: dict[int, list[SavedHealthRow]] = {}
        for row in trace.root_saved(graph_task):
            self.saved.setdefault(row.node, []).append(row)
        self._is_whole = True
        """Whether all nodes that were met on the way had been looked at."""

    def back(self, node: int) -> Blame | None:
        """Where it began, of what a node had saved."""
        for _ in range(_MOST_STEPS):
            wrong = self._wrong(node)
            given = [row for row in wrong if not row.name.startswith(_RESULTS)]
            of_parameter = next((row for row in given if row.parameter), None)
            if of_parameter is not None:
                return self._blame(node, Source.PARAMETER, of_parameter)
            output = None
            if given:
                output = self._output(node, given[0].name)
                if output is None:
                    return None  # which way it came is not known
                if not any(edge.output == output for edge in self._edges(node)):
                    return self._blame(node, Source.DATA, given[0])
            makers = list(self._makers(node, output))
            earlier = [maker for maker in makers if self._wrong(maker)]
            if not given and self._is_masked(node, earlier):
                earlier = []
            if not self._is_whole or not (wrong or earlier):
                return None
            if not earlier:
                # What gave something finite, as its node had saved, made nothing else of it.
                may_be = [maker for maker in makers if not self._gave(maker)]
                may_be = may_be if given else [node, *may_be]
                row = (given or wrong)[0]
                every = [self._blame(each, Source.FUNCTION, row) for each in may_be]
                known = [one for one in every if of_blame(one).pattern not in _NO_ANSWER]
                return known[0] if len(known) == 1 else None
            nan = [each for each in earlier if any(row.health.nan for row in self._wrong(each))]
            node = min(nan or earlier, key=lambda each: self._row(each).sequence_nr or 0)
        return None

    def _output(self, node: int, name: str) -> int | None:
        """The output of a node that leads to what made what it had saved by a name."""
        if name == "mat2" and base_name(self._row(node).short_name) == "Addmm":
            return 2
        return _OUTPUTS.get(name)

    def _is_masked(self, node: int, makers: list[int]) -> bool:
        """Whether a softmax has made NaN of nothing but -inf: Note [Intended infinities]."""
        wrong = [row.health for maker in makers for row in self._wrong(maker)]
        is_softmax = self._named(node) in SOFTMAX
        return is_softmax and not any(health.nan or health.posinf for health in wrong)

    def _makers(self, node: int, output: int | None) -> Iterator[int]:
        """The nodes that saved something and made what a node was given, past those that did not.

        Args:
            node: whose.
            output: only what its gradient of this number leads to; None: all.
        """
        waiting = [e.consumer for e in self._edges(node) if output in {None, e.output}]
        met = set(waiting)
        while waiting and len(met) < _MOST_STEPS:
            below = waiting.pop(0)
            known = [row for row in self.saved.get(below, ()) if row.health is not None]
            if known:
                yield below
            if self._wrong(below) or self._gave(below):
                continue
            name = self._row(below).short_name
            was_looked_at = below in self.saved or base_name(name) in _SAVING_NOTHING
            self._is_whole &= was_looked_at or name == _LEAF
            finite = {_OUTPUTS.get(row.name) for row in known}
            after = {e.consumer for e in self._edges(below) if e.output not in finite} - met
            met |= after
            waiting += sorted(after)

    def _gave(self, node: int) -> bool:
        """Whether a node had saved what its function gave."""
        rows = self.saved.get(node, ())
        return any(row.health is not None and row.name.startswith(_RESULTS) for row in rows)

    def _wrong(self, node: int) -> list[_Wrong]:
        """What a node had saved that is not finite."""
        return [
            _Wrong(row.name, row.parameter, row.health)
            for row in self.saved.get(node, ())
            if row.health is not None and bad(row.health)
        ]

    def _row(self, node: int) -> NodeRow:
        return self._trace.node(self._task, node)

    def _edges(self, node: int) -> Sequence[EdgeRow]:
        return self._trace.edges_from(self._task, node)

    def _blame(self, node: int, source: Source, wrong: _Wrong) -> Blame:
        row = self._row(node)
        rows = self.saved.get(node, ())
        plain = [f"{each.name}={each.value}" for each in rows if each.value is not None]
        op = ForwardOpRow(
            id=NO_OP,
            time_ns=0,
            thread=0,
            name=self._named(node),
            arguments=", ".join(plain),
            module=row.module or None,
            stack=row.stack,
            grad_enabled=True,
            graph_task=self._task,
            recomputed_in=-1,
            sequence_nr=row.sequence_nr,
            sequence_nrs=range(0),
            error="",
            inputs=(),
            outputs=(),
        )
        steps = self._trace.optimizer_steps_before(self._trace.graph_tasks.root(self._task))
        given = tuple(self._arguments(node)) if source is Source.FUNCTION else ()
        steps = 0 if source is Source.DATA else steps
        return Blame(op, source, given, wrong.health, wrong.parameter, steps=steps)

    def _arguments(self, node: int) -> Iterator[Argument]:
        """What a node had saved of what its function was given; else only what made that."""
        makers = {edge.output: edge.consumer for edge in self._edges(node)}
        rows = [
            row
            for row in self.saved.get(node, ())
            if row.health is not None and not row.name.startswith(_RESULTS)
        ]
        for row in sorted(rows, key=lambda row: _OUTPUTS.get(row.name, len(_OUTPUTS))):
            maker = makers.get(_OUTPUTS.get(row.name, -1))
            yield Argument(row.name, row.parameter, self._named(maker), row.health)
        if not rows:
            first = makers.get(0)
            names = [self._named(first)]
            if first is not None:
                names += [self._named(edge.consumer) for edge in self._edges(first)[:1]]
            mask = next((name for name in names if name in WRITING), names[0])
            yield Argument("self", "", mask, None)

    def _named(self, node: int | None) -> str:
        return "" if node is None else function_of(base_name(self._row(node).short_name))
