"""Collectives in which the ranks differ: another one, in another order, or one that is missing."""

from __future__ import annotations

import ast
import itertools
from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.code_search import called_name, tree_of
from agviz.analysis.outcome import Outcome
from agviz.ranks.answers.found import RankVerdict, found_at, numbers
from agviz.ranks.run import waits_for_all
from agviz.traces.distributed import GRADIENT
from agviz.traces.rows import visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agviz.ranks.facts import Joined, Key
    from agviz.ranks.run import Run
    from agviz.traces.rows import Frame


class CollectiveMismatch(NamedTuple):
    """The first collective of a process group in which ranks differ."""

    group: str
    seq: int
    kinds: dict[str, tuple[int, ...]]
    """Operation with shapes and dtypes, and the ranks that called it; most of them first."""
    missing: tuple[int, ...]
    """Ranks of the group that joined none of this number."""
    ordinal: int
    """Of the pass in or after which it was joined."""
    passes: dict[int, tuple[int, bool]]
    """By rank: how many passes it had begun by then, and whether the last was under way."""

    @property
    def is_other(self) -> bool:
        """Whether ranks called different ones, not just some none."""
        return len(self.kinds) > 1


def mismatch(run: Run) -> CollectiveMismatch | None:
    """The earliest one; None: all ranks joined the same collectives.

    Raises:
        agviz.errors.TraceError: a file is damaged.
    """
    members: dict[str, set[int]] = {}
    for _, trace in run.folder.traces():
        for group in trace.process_groups():
            members.setdefault(group.name, set()).update(group.ranks)
    joined: defaultdict[tuple[str, int], dict[int, Joined]] = defaultdict(dict)
    for number, rank in run.ranks.items():
        for one in rank.joined:
            group_name, is_p2p, seq = one.key
            if not is_p2p:
                joined[group_name, seq][number] = one
    found = []
    for (group_name, seq), by_rank in joined.items():
        known = members.get(group_name, set()) & set(run.ranks)
        apart = _apart(run, group_name, seq, by_rank, known)
        if apart is not None:
            time_ns = min(run.on_one_clock(n, each.time_ns) for n, each in by_rank.items())
            found.append((time_ns, apart))
    return min(found)[1] if found else None


def _apart(
    run: Run, group: str, seq: int, by_rank: dict[int, Joined], members: set[int]
) -> CollectiveMismatch | None:
    missing = tuple(sorted(members - set(by_rank)))
    if not _is_behind(run, missing, group, seq):
        missing = ()  # the flight recorder keeps only the last ones
    kinds: defaultdict[str, list[int]] = defaultdict(list)
    for number, one in by_rank.items():
        kinds[one.kind].append(number)
    if len(kinds) < 2 and not missing:
        return None
    most = sorted(kinds.items(), key=lambda item: (-len(item[1]), item[1]))
    what = {kind: tuple(sorted(ranks)) for kind, ranks in most}
    ordinal = min(one.ordinal for one in by_rank.values())
    passes = {number: (one.ordinal + 1, one.is_inside) for number, one in by_rank.items()}
    return CollectiveMismatch(group, seq, what, missing, ordinal, passes)


def _is_behind(run: Run, ranks: tuple[int, ...], group: str, seq: int) -> bool:
    """Whether none of the ranks joined any later collective of the group."""
    return all(
        one.key[0] != group or one.key[1] or one.key[2] < seq
        for rank in ranks
        for one in run.ranks[rank].joined
    )


def called_at(run: Run, rank: int, group: str, seq: int) -> Frame | None:
    """The line of the program at which a rank called a collective; None: not known.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    with run.folder.trace(rank) as trace:
        for one in trace.collectives():
            if (one.group, one.is_p2p, one.seq) == (group, False, seq):
                return visible(one.stack)
    return None


def said(kind: str) -> str:
    """``all_reduce of [3]``."""
    operation, _, rest = kind.partition(" ")
    shapes = rest.rpartition(" ")[0]
    return operation if not shapes or shapes == "of" else f"{operation} of {shapes}"


def fewest(found: CollectiveMismatch) -> tuple[int, ...]:
    """The ranks that called what the fewest did; all where there is no majority."""
    by_count = sorted(found.kinds.values(), key=len)
    if len(by_count) > 1 and len(by_count[0]) == len(by_count[-1]):
        return tuple(sorted(rank for ranks in by_count for rank in ranks))
    return by_count[0]


def heading(found: CollectiveMismatch) -> str:
    """Which ranks do something else."""
    few = fewest(found)
    if sum(map(len, found.kinds.values())) == len(few):
        return f"{numbers(few)} called different collectives at once"
    return f"{numbers(few)} called another collective than the others"


def sentence(
    found: CollectiveMismatch, lines: dict[int, Frame | None], sites: dict[int, Frame | None]
) -> str:
    """Which ranks called what, and where: at a line, or in which call of backward."""
    parts = []
    for kind, ranks in found.kinds.items():
        line = next((lines[rank] for rank in ranks if lines.get(rank) is not None), None)
        site = next((sites[rank] for rank in ranks if sites.get(rank) is not None), None)
        at = "" if site is None else f" in the backward called at {site}"
        at = at if line is None else f" at {line}"
        parts.append(f"{numbers(ranks)} called {said(kind)}{at}")
    if found.missing:
        parts.append(f"{numbers(found.missing)} called none")
    return f"As collective {found.seq} of the process group, {', '.join(parts)}."


def uneven(found: CollectiveMismatch) -> str:
    """That ranks had begun different numbers of passes, in a sentence; empty: they had not."""
    counts = {rank: count for rank, (count, _) in found.passes.items()}
    most, least = max(counts.values()), min(counts.values())
    if most == least:
        return ""
    ahead = [rank for rank, count in counts.items() if count == most]
    behind = [rank for rank, count in counts.items() if count == least]
    return (
        f"{numbers(ahead).capitalize()} had begun {most:,} backward passes by then,"
        f" {numbers(behind)} {least:,}."
    )


def sites_of(run: Run, differ: CollectiveMismatch) -> dict[int, Frame | None]:
    """By rank: the call of backward during which it called the collective; None: in none.

    Raises:
        agviz.errors.TraceError: a file is damaged.
    """
    found: dict[int, Frame | None] = {}
    for ranks in differ.kinds.values():
        for rank in ranks[:_MOST_READ]:
            begun, is_inside = differ.passes[rank]
            if not is_inside:
                found[rank] = None
                continue
            with run.folder.trace(rank) as trace:
                site = trace.call_site(run.ranks[rank].passes[begun - 1].graph_task)
            found[rank] = visible(site)
    return found


def lines_of(run: Run, differ: CollectiveMismatch) -> dict[int, Frame | None]:
    """By rank, the line at which it called the collective; of many ranks the first of each kind.

    Raises:
        agviz.errors.TraceError: a file is damaged.
    """
    return {
        rank: called_at(run, rank, differ.group, differ.seq)
        for ranks in differ.kinds.values()
        for rank in ranks[:_MOST_READ]
    }


def place_of(
    differ: CollectiveMismatch, lines: dict[int, Frame | None], sites: dict[int, Frame | None]
) -> Frame | None:
    """The line to look at: of what the fewest called; None: of one side it is not known at all.

    Of two sides, each of which may be the wrong one, the line of one says nothing of the other.
    """
    few = fewest(differ)
    sides = [[lines.get(rank) or sites.get(rank) for rank in one] for one in differ.kinds.values()]
    if len(few) == sum(map(len, differ.kinds.values())) and not all(map(any, sides)):
        return None
    known = [*(lines.get(rank) for rank in few), *lines.values()]
    return next((line for line in known if line is not None), None)


def reordered(run: Run, differ: CollectiveMismatch) -> RankVerdict:
    """Collectives that differ in a run that came to its end.

    Raises:
        agviz.errors.TraceError: a file is damaged.
    """
    lines, sites = lines_of(run, differ), sites_of(run, differ)
    few = fewest(differ)
    frame = place_of(differ, lines, sites)
    said = [sentence(differ, lines, sites), uneven(differ), _UNFIT]
    return found_at(run, "collectives", few, frame, heading(differ), " ".join(filter(None, said)))


_UNFIT: Final = (
    "They do not fit, and nothing raised: the results are mixed up, or ranks wait for ever."
)


def recalled(run: Run) -> RankVerdict | None:
    """Collectives that are alike, and called from other lines than on other ranks; None: none is.

    Raises:
        agviz.errors.TraceError: a file is damaged.
    """
    agreed = False
    for (group, seq), by_rank in sorted(_stacks(run).items()):
        ranks_at: defaultdict[tuple[Frame, ...], list[int]] = defaultdict(list)
        for rank, stack in by_rank.items():
            ranks_at[stack].append(rank)
        if len(ranks_at) < 2:
            agreed = agreed or len(by_rank) > 1
            continue
        if _are_sides(run, by_rank):
            continue  # each side of a branch calls the same one, as is meant
        by_count = sorted(ranks_at.values(), key=lambda ranks: (len(ranks), ranks[0]))
        few = by_count[0] if len(by_count[0]) < len(by_count[-1]) else sorted(by_rank)
        said = "; ".join(f"{numbers(ranks)} at {stack[-1]}" for stack, ranks in ranks_at.items())
        is_all = len(few) == len(by_rank)
        order = "different orders" if is_all else "another order than the others"
        what = f"collectives in {order}" if agreed else "a collective from different lines"
        before = " Before, all ranks had called them from the same lines." if agreed else ""
        return found_at(
            run,
            "collectives",
            few,
            by_rank[few[0]][-1],
            f"{numbers(few)} called {what}",
            f"Collective {seq} of process group {group} was called from different lines: {said}."
            f"{before} Operation and shapes fit, so nothing raised; if they are of different"
            " things, the results are mixed up on all ranks.",
            outcome=Outcome.FOUND if agreed else Outcome.CANT_TELL,
        )
    return None


def _are_sides(run: Run, by_rank: Mapping[int, tuple[Frame, ...]]) -> bool:
    """Whether the lines are the two sides of one ``if``, each with this collective only."""
    lines = {stack[-1] for stack in by_rank.values()}
    if len(lines) != 2 or len({line.file for line in lines}) != 1:
        return False
    one, other = sorted(lines, key=lambda line: line.line)
    with run.folder.trace(min(by_rank)) as trace:
        tree = tree_of(trace, one.file)
    return any(
        isinstance(node, ast.If)
        and _collectives(node.body) == [one.line]
        and _collectives(node.orelse) == [other.line]
        for node in ast.walk(tree)
    )


def _collectives(side: Sequence[ast.stmt]) -> list[int]:
    """The lines of a side of an ``if`` that call collectives, as far as names show."""
    return [
        node.lineno
        for statement in side
        for node in ast.walk(statement)
        if isinstance(node, ast.Call) and called_name(node).startswith(_COLLECTIVES)
    ]


_COLLECTIVES: Final = ("all_", "barrier", "broadcast", "gather", "reduce", "scatter")
"""Beginnings of their names."""


def skipped(run: Run) -> RankVerdict | None:
    """Gradients of unlike parameters that are reduced together, since one rank left one out.

    None: no rank handed in the gradient of a parameter that another rank has none of.
    """
    for group, named in _names(run).items():
        for seq, by_rank in sorted(named.items()):
            for (rank, names), (other, theirs) in itertools.permutations(by_rank.items(), 2):
                instead = next((name for name in theirs - names if name.endswith(GRADIENT)), "")
                left = _without(run, (group, False, seq), other, names - theirs) if instead else ""
                if not left:
                    continue
                given = instead.removesuffix(GRADIENT)
                return found_at(
                    run,
                    "collectives",
                    (other,),
                    called_at(run, other, group, seq),
                    f"rank {other} leaves out the gradient of {left}, which is None there",
                    f"Collective {seq} of the process group reduces gradients of different"
                    f" parameters together: that of {left} on rank {rank}, that of {given} on rank"
                    f" {other}. On rank {other} no node of the loss led to {left}, so that all that"
                    " comes after it is handed in too early there. Reduce the same parameters on"
                    " all ranks: zeros where .grad is None.",
                )
    return None


def _without(run: Run, key: Key, rank: int, names: frozenset[str]) -> str:
    """A parameter, of those whose gradients are so called, without one before a collective."""
    ordinal = next((one.ordinal for one in run.ranks[rank].joined if one.key == key), -1)
    if ordinal < 0:
        return ""
    with run.folder.trace(rank) as trace:
        rows = trace.parameters(run.ranks[rank].passes[ordinal].graph_task)
    without = (row.name for row in rows if row.node is None and not row.had_grad)
    return next((name for name in without if name + GRADIENT in names), "")


def exchanged(run: Run) -> RankVerdict | None:
    """Collectives into which ranks hand the same tensors in another order; None: none is known.

    Two of them, in which a rank hands in other tensors than the first one, and each what the other
    does in the second: by what the program calls them.
    """
    for group, named in _names(run).items():
        for seq, by_rank in named.items():
            first, *others = by_rank
            for other in others:
                crossed = _crossed(named, seq, first, other)
                if crossed is not None:
                    return _in_another_order(run, group, by_rank, crossed)
    return None


class _Crossed(NamedTuple):
    """Two collectives of a group in which two ranks hand in the same tensors crosswise."""

    ranks: tuple[int, int]
    seqs: tuple[int, int]
    names: tuple[str, str]
    """What each of the ranks hands in in the first of them."""


def _names(run: Run) -> dict[str, dict[int, dict[int, frozenset[str]]]]:
    """What tensors are called that are handed in, by process group, number and rank."""
    found: defaultdict[str, dict[int, dict[int, frozenset[str]]]] = defaultdict(dict)
    for number, rank in run.ranks.items():
        for one in rank.joined:
            if one.names and waits_for_all(one):
                group, _, seq = one.key
                found[group].setdefault(seq, {})[number] = frozenset(one.names)
    return found


def _crossed(
    named: Mapping[int, Mapping[int, frozenset[str]]], seq: int, one: int, other: int
) -> _Crossed | None:
    mine, theirs = _apart_by_name(named[seq][one], named[seq][other])
    if not mine or not theirs:
        return None
    for again, by_rank in named.items():
        nothing: frozenset[str] = frozenset()
        now, then = _apart_by_name(by_rank.get(one, nothing), by_rank.get(other, nothing))
        if now & theirs and then & mine:
            names = max(sorted(then & mine), key=len), max(sorted(now & theirs), key=len)
            return _Crossed((one, other), (seq, again), names)
    return None


def _apart_by_name(
    one: frozenset[str], other: frozenset[str]
) -> tuple[frozenset[str], frozenset[str]]:
    """Names without those that are of both, as the argument of a function that reduces."""
    return one - other, other - one


def _in_another_order(
    run: Run, group: str, by_rank: Mapping[int, frozenset[str]], crossed: _Crossed
) -> RankVerdict:
    first, again = crossed.seqs
    sides = [[r for r, names in by_rank.items() if name in names] for name in crossed.names]
    few = min(sides, key=len)
    is_even = len(sides[0]) == len(sides[1])
    who = tuple(sorted(by_rank)) if is_even else tuple(few)
    than = "in different orders" if is_even else "in another order than the others"
    hand = "hands" if len(who) == 1 else "hand"
    frame = called_at(run, few[0], group, first)
    said = ", ".join(
        f"{numbers(ranks)} {'hands' if len(ranks) == 1 else 'hand'} in {name}"
        for ranks, name in zip(sides, crossed.names, strict=True)
    )
    return found_at(
        run,
        "collectives",
        who,
        frame,
        f"{numbers(who)} {hand} tensors to collectives {than}",
        f"In collective {first} of the process group {said}; in collective {again} it is"
        " the other way around. Operation and shapes fit, so nothing raised, and different"
        " things are reduced together. Go through them in one order on all ranks: of a list"
        " or of sorted names, not of a set, or of what came first on each rank.",
    )


def _stacks(run: Run) -> dict[tuple[str, int], dict[int, tuple[Frame, ...]]]:
    """By process group and number, and rank: the lines of the program that called a collective."""
    called: defaultdict[tuple[str, int], dict[int, tuple[Frame, ...]]] = defaultdict(dict)
    for file, trace in run.folder.traces():
        alike = {one.key for one in run.ranks[file.number].joined if waits_for_all(one)}
        for each in trace.collectives():
            stack = tuple(frame for frame in each.stack if not frame.hidden)
            is_join = any(_JOIN in frame.file for frame in each.stack)
            if stack and not is_join and (each.group, each.is_p2p, each.seq) in alike:
                called[each.group, each.seq][file.number] = stack
    return called


_JOIN: Final = "distributed/algorithms/join"
"""A rank without data shadows the collectives of the others."""
_MOST_READ: Final = 4
