"""Graphs that outlive their backward pass: how many there are, and what keeps them.

Each pass puts a token into the ``metadata`` of some of its nodes. torch keeps it as long as one of
these, so the tokens that are left are those of graphs that something still holds. To find
what does, all tensors that Python's garbage collector knows are followed back, once or twice in a
recording; it takes some 300 ms in a program of 200,000 objects.
"""

from __future__ import annotations

import logging
import re
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable, Sized
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from operator import is_
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from agviz.record.files import Files
from agviz.record.kinds import is_a
from agviz.record.owners import others_use_torch
from agviz.record.referrers import Named, Referrers, in_variables
from agviz.traces.live_graphs import (
    CLOSURE,
    CYCLE,
    EXCEPTIONS,
    GRADIENT,
    KEYS,
    LEAST_ALIVE,
    LONGER,
    NUMBERED,
    STATE,
    STORED,
    STORED_GRAPHS,
    TENSOR,
    UNKNOWN,
    Holder,
    LiveGraphsLook,
    is_doubled,
    is_rising,
)
from agviz_engine import alive
from agviz_engine.errors import comes_from_outside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from agviz.traces.rows import Frame
    from agviz_engine.graph_task import GraphTask
    from agviz_engine.node import NodeRef

log = logging.getLogger("agviz")

_KEY: Final = "agviz_pass"
_MOST_MARKED: Final = 32
"""Nodes of a pass, evenly spread, that hold its token, and as many of those beside leaves: whatever
part of a graph is alive leads to a leaf."""
_EACH_UNTIL: Final = 8
"""Looks are taken at each pass up to this one, then at 12, 16, 24, 32 and so on."""
_NUMBER: Final = re.compile(r"\d+")
_MOST_SEARCHES: Final = 2
_TIMES_LATER: Final = 4
"""Than the first is the second: what kept graphs at first may have been something else."""
_MOST_TENSORS: Final = 20_000
_MOST_NODES: Final = 200_000
_MOST_DESCRIBED: Final = 64
_MOST_COUNTED: Final = 100_000
"""Nodes behind all tensors, up to which they are counted."""
_SHARE: Final = 1 / 30
"""Of the time of the process, what they may take besides."""
_LEAST_MORE: Final = 2
"""Tensors since the count before, for which it is looked where they are: that takes time."""
_MOST_NAMED: Final = 12
"""Of the tensors that came since the count before."""
_SHARE_STORED: Final = 0.1
"""Of what became more, that has to be in one container; the rest are what its graphs saved."""
_AS_BEFORE: Final = 0.5
"""What is more with each pass must at least be this share of what was more before."""
_NOT_SOON_FULL: Final = 4
"""Times what it holds is what a container can hold that grows on."""


_LEAST_TOKENS: Final = 1_000


class _Token:
    """Lives as long as the node whose metadata holds it."""

    __slots__ = ("__weakref__", "steps")

    def __init__(self, steps: int) -> None:
        self.steps = steps
        """Optimizer steps before the pass."""


class _Census(NamedTuple):
    """Everything that is alive when a pass begins."""

    passes: int
    tensors: frozenset[int]
    """Identities of those with more than one number, or a graph, that are no parameters."""
    nodes: int
    """Behind all tensors."""
    number: int
    """The next sequence number."""


_Held: TypeAlias = "tuple[set[_Token], Tensor, Named]"
"""Graphs, a tensor that leads to them, and how that is held."""
_NOTHING_COUNTED: Final = Holder(UNKNOWN, "", "", 0, ())


class _Budget:
    """What something has taken in this process, which may make many recordings, as tests do."""

    def __init__(self, at_once_ns: int, expected_ns: int) -> None:
        self._at_once_ns = at_once_ns
        self._since_ns = time.monotonic_ns()
        self._spent_ns = 0
        self._next_ns = expected_ns

    def is_enough(self) -> bool:
        """Whether there is time for another."""
        lasted_ns = time.monotonic_ns() - self._since_ns
        return self._spent_ns + self._next_ns <= self._at_once_ns + _SHARE * lasted_ns

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Of the thread's time, which other processes that are busy make no longer."""
        began_ns = time.thread_time_ns()
        yield
        self._next_ns = time.thread_time_ns() - began_ns
        self._spent_ns += self._next_ns


_for_counts: Final = _Budget(250_000_000, 40_000_000)
"""Six of them, or so, however soon: one goes through the 200,000 objects that come with torch."""
_for_searches: Final = _Budget(900_000_000, 300_000_000)
"""Three: what became more between the first passes may not be what becomes more later."""


class LiveGraphs:
    """Counts the graphs of past passes that are alive.

    Args:
        stack_of_node: stack of Python that created a node, outermost frame first.
        name_of: name of a parameter; None: not known.
        counts_from: passes from which on everything alive is counted. Tests make few: with counts
            from the first on, 500 passes of linear_operator's took a fifth of what agviz took.
    """

    def __init__(
        self,
        stack_of_node: Callable[[Any], tuple[Frame, ...]],
        name_of: Callable[[Tensor], str | None],
        counts_from: int = 1,
    ) -> None:
        self._counts_from = counts_from
        self._stack_of_node = stack_of_node
        self._name_of = name_of
        self._tokens: list[weakref.ref[_Token]] = []
        """No WeakSet: what a signal's handler raises in its callbacks would be lost."""
        self._most_tokens = _LEAST_TOKENS
        """From where on those that died are left out."""
        self._passes = self._created = 0
        self._number = -1
        """The next sequence number when the last pass began."""
        self._looks: list[LiveGraphsLook] = []
        self._searches = 0
        self._searched_at = 0
        self._lock = threading.RLock()
        self._threads: set[int] = set()
        """Identities of those that called backward."""
        self._is_off = False
        self._has_counted_more = False
        """Whether the last count found what became more."""
        self._censuses: list[_Census] = []
        """The last two."""
        self.steps = 0
        """Optimizer steps so far."""

    @cached_property
    def _files(self) -> Files:
        return Files()

    def begin(self, task: GraphTask) -> LiveGraphsLook | None:
        """An outermost call of backward begins; what is alive of earlier ones, at times."""
        if self._is_off:
            return None
        try:
            with self._lock:
                return self._begin(task)
        except Exception as error:
            if comes_from_outside(error):
                raise
            self._is_off = True
            log.warning("graphs that stay alive are no longer recorded (%r)", error)
            return None

    def _begin(self, task: GraphTask) -> LiveGraphsLook | None:
        self._threads.add(threading.get_ident())
        found = self._look(task.id) if is_time_to_look(self._passes) else None
        self._mark(task)
        return found

    def _mark(self, task: GraphTask) -> None:
        """Put a token on nodes that were made since the pass before, and have none."""
        import torch

        made_before = self._number
        self._number = torch._C._autograd._get_sequence_nr()
        roots = (ref for ref, _ in task.root_edges if not ref.is_accumulate_grad)
        if max((ref.sequence_nr for ref in roots), default=-1) < made_before:
            return  # of several losses that were computed first, and then differentiated
        token = _Token(self.steps)
        nodes, is_marked = task.nodes, False
        for ref in (*_spread(nodes), *_spread(_beside_leaves(nodes))):
            if ref.is_accumulate_grad:
                continue
            metadata = getattr(ref.node, "metadata", None)
            if metadata is not None and _KEY not in metadata:
                metadata[_KEY] = token
                is_marked = True
        if is_marked:
            self._tokens.append(weakref.ref(token))
            if len(self._tokens) > self._most_tokens:
                self._most_tokens = max(_LEAST_TOKENS, 2 * len(self._alive()))
            self._passes += 1
            self._created += task.create_graph

    def _alive(self) -> set[_Token]:
        """The tokens of graphs that are alive."""
        found = {token for each in self._tokens if (token := each()) is not None}
        self._tokens = [weakref.ref(token) for token in found]
        return found

    def _look(self, graph_task: int) -> LiveGraphsLook:
        alive = self._alive()
        steps = len({token.steps for token in alive})
        passes = self._passes, self._created, self.steps
        look = LiveGraphsLook(len(self._looks), graph_task, *passes, len(alive), steps)
        self._looks.append(look)
        # To read what another thread writes at this moment may end the process.
        if len(self._threads) > 1 or others_use_torch():
            return look
        is_counted = is_doubled(self._passes) and self._passes >= self._counts_from
        if not look.is_growing and (is_counted or not is_rising(self._looks)):
            return look._replace(holders=self._counted()) if is_counted else look
        if self._searches >= _MOST_SEARCHES or self._passes < _TIMES_LATER * self._searched_at:
            return look
        self._searches += 1
        self._searched_at = self._passes
        return look._replace(holders=self._search(alive))

    def _counted(self) -> tuple[Holder, ...]:
        if not _for_counts.is_enough():
            return (_NOTHING_COUNTED,) if self._has_counted_more else ()
        found = self._count()
        self._has_counted_more = bool(found)
        return found

    def _count(self) -> tuple[Holder, ...]:
        """Count what is alive; what holds most of what became more in the same way twice."""
        import torch

        with torch._C.DisableTorchFunction():
            with _for_counts.spending():
                everything = _plain_tensors()
                tensors = _counting(everything)
                made = [each.grad_fn for each in tensors if each.grad_fn is not None]
                nodes = _behind(made)
            number = torch._C._autograd._get_sequence_nr()
            own = _Census(self._passes, frozenset(map(id, tensors)), nodes, number)
            before, self._censuses = self._censuses, [*self._censuses[-1:], own]
            if len(before) < 2:
                return ()
            is_longer = own.nodes < _MOST_COUNTED and _is_steady(
                [(each.passes, each.nodes) for each in (*before, own)]
            )
            more = len(own.tensors) - len(before[-1].tensors)
            counts = [(each.passes, len(each.tensors)) for each in (*before, own)]
            is_steady = _is_steady(counts)
            if not is_longer and not (is_steady and more >= _LEAST_MORE):
                return ()
            if not _for_searches.is_enough():
                return (_NOTHING_COUNTED,) if self._has_counted_more else ()
            with _for_searches.spending():
                found = None
                if more >= _LEAST_MORE:
                    new = [each for each in tensors if id(each) not in before[-1].tensors]
                    found = (_left_in_state(new) if is_steady else None) or self._where_stored(
                        new, [everything, tensors, new], is_steady=is_steady, is_longer=is_longer
                    )
                if found is None and is_longer:
                    since = before[0].number, before[1].number
                    grown = own.nodes - before[-1].nodes
                    found = self._longest([everything, tensors], since, grown)
        return () if found is None else (found,)

    def _where_stored(
        self, new: list[Tensor], own: Sequence[list[Tensor]], *, is_steady: bool, is_longer: bool
    ) -> Holder | None:
        """The container of most of some tensors, of those with graphs at first.

        Where nodes became more, too, graphs count by themselves, beside no data, and may be stored
        once in many passes.
        """
        views = _views(own[0])
        known = _referred_ones(new, views, own)
        with_graph = [
            each
            for each in known  # but for those of the pass that begins
            if each.grad_fn is not None and each.grad_fn._sequence_nr() < self._number
        ]
        grown = len(self._censuses[1].tensors) - len(self._censuses[0].tensors)
        often = -(-(self._passes - self._censuses[0].passes) // 2)  # in every second pass
        ways: list[tuple[list[Tensor], int, int | None]] = []
        if is_longer:
            ways += [(with_graph, len(with_graph), None)]
        if is_steady:
            ways += [(with_graph, grown, often), (known, grown, often)]
        for some, of, least in ways:
            found = self._container_of(some, [*own, views, known, with_graph], of, least)
            if found is not None:
                return found
        return None

    def _container_of(
        self, known: list[Tensor], own: Sequence[object], grown: int, often: int | None
    ) -> Holder | None:
        """What holds most of some tensors; None: it has no name, or it is soon full.

        Args:
            known: the tensors.
            own: what agviz holds itself.
            grown: as how much more they count.
            often: how many they have to be; None: one is enough, where the container holds
                several graphs.
        """
        least = 1 if often is None else often
        if len(known) < least:
            return None
        some = known[:: len(known) // _MOST_NAMED + 1]
        referrers = Referrers(self._files, some, own)
        names = [referrers.named(each) for each in some]
        groups: dict[tuple[str, str], list[tuple[Named, Tensor]]] = {}
        for tensor, named in zip(some, names, strict=True):
            if named is not None and (named.kind != TENSOR or "." in named.name):
                groups.setdefault((named.name, named.what), []).append((named, tensor))
        members = max(groups.values(), key=len, default=[])
        count = len(known) * len(members) // len(some)
        if len(members) < min(len(some), least, 2) or count < _SHARE_STORED * grown:
            return None
        found, last = members[-1]
        is_rare = found.what.endswith(EXCEPTIONS)  # what fails, fails now and then
        least_held = LEAST_ALIVE if often is None else self._passes // 2
        if not (is_rare or _may_grow_on(found.holds, least_held)):
            return None
        if often is None and _graphs_in(found.holds) < LEAST_ALIVE:
            return None
        if found.kind in {CYCLE, CLOSURE}:
            kind = found.kind
        else:
            kind = STORED_GRAPHS if last.requires_grad else STORED
        what = f"dict of tensor {KEYS}" if _is_never_found(found.holds, referrers) else found.what
        return Holder(kind, found.name, what, count, self._stack(last))

    def _longest(
        self, own: Sequence[list[Tensor]], since: tuple[int, int], grown: int
    ) -> Holder | None:
        """The tensor with most nodes behind it, of before the last two counts and after both."""
        sized = sorted(
            (each for each in own[-1] if each.grad_fn is not None and not each._is_view()),
            key=lambda each: -_behind([each.grad_fn]),
        )
        some = [each for each in sized[:_MOST_NAMED] if _spans(each.grad_fn, since)]
        referrers = Referrers(self._files, some, [*own, sized])
        for tensor in some:
            named = referrers.named(tensor)
            if named is not None and named.kind != CLOSURE:
                return Holder(LONGER, named.name, named.what, grown, self._stack(tensor))
        return None

    def _search(self, tokens: set[_Token]) -> tuple[Holder, ...]:
        import torch

        budget = _MOST_NODES
        reaching: list[tuple[Tensor, bool, set[_Token]]] = []
        with torch._C.DisableTorchFunction():
            everything = alive.instances(torch.Tensor)
            for tensor in _with_graphs(everything):
                of_grad = tensor.grad_fn is None
                made = (
                    tensor.grad.grad_fn if of_grad and tensor.grad is not None else tensor.grad_fn
                )
                if made is None:
                    continue
                found, visited = _reached(made, tokens, budget)
                budget -= visited
                if found:
                    reaching.append((tensor, of_grad, found))
                if budget <= 0:
                    break
            tensors = [tensor for tensor, *_ in reaching]
            referred = in_variables() | alive.referred(
                tensors, {id(everything), *map(id, reaching)}
            )
            # Tensors that only nodes hold come last; of others, what was made first is carried on.
            reaching.sort(
                key=lambda each: (
                    -len(each[2]),
                    id(each[0]) not in referred,
                    0 if each[0].grad_fn is None else each[0].grad_fn._sequence_nr(),
                )
            )
            return tuple(self._holders(reaching[:_MOST_DESCRIBED], [everything, reaching, tensors]))

    def _holders(
        self, reaching: list[tuple[Tensor, bool, set[_Token]]], own: Sequence[list[Any]]
    ) -> Iterator[Holder]:
        """Those that keep the most; tensors that are held in the same way are taken together."""
        groups: dict[tuple[str, str, str], _Held] = {}
        views = _views(own[0])
        things = [each for tensor, *_ in reaching for each in (tensor, views.get(id(tensor)))]
        referrers = Referrers(self._files, things, [*own, reaching, groups, views])
        for tensor, of_grad, found in reaching:
            named = (
                Named(GRADIENT, self._name_of(tensor) or "", "", None)
                if of_grad
                else referrers.named(tensor)
            )
            if named is None and id(tensor) in views:
                named = referrers.named(views[id(tensor)])
            if named is None:
                continue
            key = named.kind, "" if of_grad else named.name, named.what
            known = groups.setdefault(key, (set(), tensor, named))
            known[0].update(found)
        best = max(_by_numbers(groups.values()), key=lambda each: len(each[0]), default=None)
        if best is not None:
            tokens, tensor, named = best
            stack = (named.frame,) if named.frame is not None else self._stack(tensor)
            yield Holder(named.kind, named.name, named.what, len(tokens), stack)

    def _stack(self, tensor: Tensor) -> tuple[Frame, ...]:
        return () if tensor.grad_fn is None else self._stack_of_node(tensor.grad_fn)


def _by_numbers(groups: Iterable[_Held]) -> list[_Held]:
    """Tensors whose names differ by their numbers only, as ``seen_1`` and ``seen_2``, together."""
    found: dict[tuple[str, str], list[_Held]] = {}
    for each in groups:
        named = each[2]
        found.setdefault((named.kind, _NUMBER.sub(NUMBERED, named.name)), []).append(each)
    return [
        alike[0]
        if len(alike) == 1 or kind != TENSOR
        else (
            set().union(*(tokens for tokens, *_ in alike)),
            alike[0][1],
            alike[0][2]._replace(name=name),
        )
        for (kind, name), alike in found.items()
    ]


def _left_in_state(new: Sequence[Tensor]) -> Holder | None:
    """The optimizer whose state is of parameters that it holds no more, where they are the new."""
    import torch

    came = set(map(id, new))
    for optimizer in alive.instances(torch.optim.Optimizer):
        own = vars(optimizer)
        state, groups = own.get("state", {}), own.get("param_groups", ())
        held = {id(each) for group in groups for each in group["params"]}
        left = [each for each in list(state) if id(each) not in held]
        own_states = (state[each] for each in left if isinstance(state[each], dict))
        kept = [*left, *(value for each in own_states for value in each.values())]
        if sum(id(each) in came for each in kept) > max(2, _SHARE_STORED * len(new)):
            return Holder(STATE, f"{type(optimizer).__name__}.state", "", len(left), ())
    return None


def is_time_to_look(passes: int) -> bool:
    """Whether so many passes are behind that the next look is due; looks get rarer."""
    if passes <= _EACH_UNTIL:
        return passes > 0
    odd = passes
    while not odd % 2:
        odd //= 2
    return odd in {1, 3}


def _may_grow_on(stored: object, least: int) -> bool:
    """Whether a container may have got so much, and is not soon full."""
    most = stored.maxlen if isinstance(stored, deque) else None
    if isinstance(stored, deque) and most is not None and most < _NOT_SOON_FULL * len(stored):
        return False
    if isinstance(stored, dict):
        is_nested = any(isinstance(each, list | deque | dict) for each in stored.values())
        return is_nested or len(stored) >= least
    return not isinstance(stored, list | deque | set) or len(stored) >= least


def _graphs_in(stored: object) -> int:
    """How many of the last entries of a container, or one in it, are or hold a graph's tensor."""
    entries = stored.values() if isinstance(stored, dict) else stored
    if _has_graph(stored) or not isinstance(entries, Sized) or not isinstance(entries, Iterable):
        return 0
    last = list(islice(entries, max(0, len(entries) - _MOST_NAMED), None))
    inner = (each for each in last if isinstance(stored, dict) and type(each) in {list, deque})
    with_graph = sum(
        any(map(_has_graph, each if type(each) in {tuple, list} else (each,))) for each in last
    )
    return max(with_graph, *(_graphs_in(each) for each in inner), 0)


def _has_graph(part: object) -> bool:
    import torch

    return is_a(part, torch.Tensor) and part.grad_fn is not None


def _is_never_found(stored: object, referrers: Referrers) -> bool:
    """Whether it is a dictionary whose keys nobody else has: tensors are found by identity."""
    import torch

    keys = list(stored)[:2] if type(stored) is dict else []
    return {type(key) for key in keys} == {torch.Tensor} and referrers.are_only_in(keys, stored)


def _is_steady(counts: Sequence[tuple[int, int]]) -> bool:
    """Whether something is more with each pass, and by as much, between three counts of it."""
    (first, few), (second, more), (third, most) = counts
    if not first < second < third:  # a finalizer called backward in the midst of a count
        return False
    early, late = (more - few) / (second - first), (most - more) / (third - second)
    return late >= _AS_BEFORE and early * _AS_BEFORE <= late <= early / _AS_BEFORE


def _plain_tensors() -> list[Tensor]:
    import torch

    return alive.instances(torch.Tensor, is_)


def _counting(everything: Sequence[Tensor]) -> list[Tensor]:
    """Those of more than one number, or with a graph, but no views of such; not all of many."""
    found = (
        each
        for each in everything
        if not (each.requires_grad and each._is_view())
        and (each.numel() > 1 or each.grad_fn is not None)
    )
    return list(islice(found, _MOST_TENSORS))


def _views(everything: Sequence[Tensor]) -> dict[int, Tensor]:
    """A view with a graph of each tensor that has one, by the identity of the tensor."""
    import torch

    return {
        id(each._base): each
        for each in everything
        if type(each) is torch.Tensor and each.requires_grad and each._is_view()
    }


def _referred_ones(
    tensors: list[Tensor], views: dict[int, Tensor], own: Sequence[object]
) -> list[Tensor]:
    """Those that something of Python refers to, or a view of each: nodes keep the others alive."""
    pairs = [(each, views.get(id(each), each)) for each in tensors]
    every = [each for pair in pairs for each in pair]
    ours = {id(views), id(tensors), *map(id, pairs), *map(id, own)}
    found = in_variables() | alive.referred(every, ours)
    return [
        next(each for each in pair if id(each) in found)
        for pair in pairs
        if any(id(each) in found for each in pair)
    ]


def _behind(made: Sequence[Any]) -> int:
    """How many nodes graphs have together, up to a bound."""
    seen = set(made)
    waiting = list(seen)
    while waiting and len(seen) < _MOST_COUNTED:
        for following, _ in waiting.pop().next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
    return len(seen)


def _spans(made: Any, since: tuple[int, int]) -> bool:
    """Whether a graph has nodes that were made before, between and after two numbers."""
    found, waiting = {made}, [made]
    while waiting and len(found) < _MOST_COUNTED:
        for following, _ in waiting.pop().next_functions:
            if following is not None and following not in found:
                found.add(following)
                waiting.append(following)
    numbers = [node._sequence_nr() for node in found if node.next_functions]
    first, last = since
    return (
        min(numbers) < first
        and max(numbers) >= last
        and any(first <= number < last for number in numbers)
    )


def _spread(nodes: Sequence[NodeRef]) -> Sequence[NodeRef]:
    return nodes[:: len(nodes) // _MOST_MARKED + 1]


def _beside_leaves(nodes: Sequence[NodeRef]) -> list[NodeRef]:
    """For each leaf the first node that leads to it."""
    found: dict[int, NodeRef] = {}
    for ref in nodes:
        for edge in ref.next_edges:
            if edge is not None and edge[0].is_accumulate_grad:
                found.setdefault(edge[0].index, ref)
    return list(found.values())


def _with_graphs(everything: Sequence[Tensor]) -> Iterator[Tensor]:
    """Those that hold a graph, or whose gradient may; not all of many."""
    import torch

    found = (
        each
        for each in everything
        if type(each) in {torch.Tensor, torch.nn.Parameter}
        and each.requires_grad
        and not (each.grad_fn is not None and each._is_view())
    )
    return islice(found, _MOST_TENSORS)


def _reached(made: Any, tokens: set[_Token], most: int) -> tuple[set[_Token], int]:
    """The tokens on nodes that a graph leads to, and the number of nodes that were visited."""
    found: set[_Token] = set()
    seen = {made}
    waiting = [made]
    while waiting and len(seen) < most:
        node = waiting.pop()
        token = getattr(node, "metadata", {}).get(_KEY)
        if token in tokens:
            found.add(token)
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
    return found, len(seen)
