"""Why a run did not come to its end: which rank failed first, or who waits for whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agviz.analysis.failure import failing
from agviz.analysis.hang import STILL_NS, Hang
from agviz.analysis.outcome import Outcome
from agviz.analysis.outside import Outside, outside
from agviz.analysis.place import described, place
from agviz.analysis.raised import RaisedException
from agviz.analysis.source import source_line
from agviz.analysis.verdict import Verdict, of_failure, verdicts
from agviz.ranks.answers import collectives
from agviz.ranks.answers.ends import End, in_words, of
from agviz.ranks.answers.found import (
    RankVerdict,
    common_line,
    found_at,
    line_of,
    numbers,
    was,
)
from agviz.ranks.answers.renamed import of_rank
from agviz.traces.dumps import EXIT
from agviz.traces.rows import Frame, NodeStatus, visible
from agviz.words.units import duration, plural
from agviz_engine.events import NO_GRAPH_TASK

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from agviz.ranks.answers.collectives import CollectiveMismatch
    from agviz.ranks.answers.ends import RankEnd
    from agviz.ranks.answers.graphs import Parting
    from agviz.ranks.run import Run
    from agviz.traces.distributed import Collective
    from agviz.traces.last_moment import LastMoment
    from agviz.traces.reader import Trace
    from agviz.traces.rows import NodeRow

_MOST_NAMED: Final = 4
_MOST_LINES: Final = 8
_LONGEST: Final = 300


def unfinished(  # noqa: PLR0911 - one for each cause
    run: Run, ended: Mapping[int, RankEnd], apart: Parting | None, differ: CollectiveMismatch | None
) -> RankVerdict | None:
    """Why ranks did not come to their end; None: all did, or go on.

    Args:
        run: all ranks.
        ended: how each ended.
        apart: where their graphs part.
        differ: the first collective in which they differ.

    Raises:
        agviz.errors.TraceError: a file is damaged.
    """
    every = list(ended.values())
    others = of(every, End.OTHERS)
    waited = any("ime" in one.error and "out" in one.error for one in others)
    if raised := of(every, End.RAISED):
        return _raised(run, raised, ended)
    if unused := of(every, End.UNUSED):
        return _unused(run, unused, apart)
    cut = of(every, End.CUT)
    if not others and not cut and not _is_stuck(run, ended, differ):
        return None
    last = min(len(rank.passes) for rank in run.ranks.values()) - 1
    if apart is not None and apart.ordinal >= last:
        return _parted(run, apart, ended)
    if differ is not None and differ.is_other:
        return _differing(run, differ, ended)
    if (exited := _exited(run, cut, ended)) is not None:
        return exited
    if cut and not waited and (not others or cut[0].time_ns <= others[0].time_ns):
        return _crashed(run, cut[0], ended) or _died(run, cut[0], ended)
    if differ is not None:
        return _missing(run, differ, ended)
    return _waiting(run, ended)


def _is_stuck(run: Run, ended: Mapping[int, RankEnd], differ: CollectiveMismatch | None) -> bool:
    """Whether a rank hangs in backward, or beside it in a collective that others did not join."""
    is_alone = differ is not None and bool(differ.missing)
    joined = {rank for ranks in differ.kinds.values() for rank in ranks} if differ else set()
    for one in of(ended.values(), End.GROWING):
        with run.folder.trace(one.rank) as trace:
            found = verdicts(trace)[0].basis
        if isinstance(found, Hang) and found.is_over_due:
            return True
        is_still = isinstance(found, Outside) and found.still_ns >= STILL_NS
        if is_still and is_alone and one.rank in joined:
            return True
    return False


def _raised(run: Run, raised: list[RankEnd], ended: Mapping[int, RankEnd]) -> RankVerdict:
    first = raised[0]
    with run.folder.trace(first.rank) as trace:
        found = verdicts(trace)[0]
        if not found.is_found:
            found = _outside(trace, first)
        node = _node_of(trace, found)
        if node is None and isinstance(found.basis, Hang):
            raising = failing(trace, found.basis)
            node = raising.node if isinstance(raising, RaisedException) else None
    alike = [one.rank for one in raised if one.error == first.error]
    followed = sorted(set(ended) - set(alike))
    said = ""
    if len(alike) > 1:
        said = f"{numbers(alike)} raised the same.".capitalize()
    gone = [rank for rank in followed if ended[rank].end in {End.OTHERS, End.CUT}]
    if gone:
        said += f" {numbers(gone).capitalize()} ended because of that: {_how(gone, ended)}."
    return RankVerdict(
        kind="raised",
        ranks=tuple(alike),
        node="" if node is None else place(node),
        verdict=of_rank(first.rank, found, beside=said.strip()),
    )


def _outside(trace: Trace, one: RankEnd) -> Verdict:
    """An exception that was raised in no backward pass."""
    dump = trace.raised(NO_GRAPH_TASK)
    frame = visible(dump.threads[0].stack) if dump is not None and dump.threads else None
    return Verdict(
        outcome=Outcome.FOUND,
        heading=f"the program raised {one.error.partition(':')[0]} outside of backward",
        frame=frame,
        source="" if frame is None else source_line(frame, trace.path),
        paragraph=_short(one.error),
    )


def _short(text: str) -> str:
    line = " ".join(text.split())
    shown = line[:_LONGEST] + "…" if len(line) > _LONGEST else line
    return shown if shown.endswith((".", "!", "?", "…")) else f"{shown}."


def _how(ranks: list[int], ended: Mapping[int, RankEnd]) -> str:
    by_end: dict[End, list[int]] = {}
    for rank in ranks:
        by_end.setdefault(ended[rank].end, []).append(rank)
    return "; ".join(
        ("" if len(by_end) == 1 else f"{numbers(found)} ") + in_words(end, len(found))
        for end, found in by_end.items()
    )


def _node_of(trace: Trace, verdict: Verdict) -> NodeRow | None:
    """The node in which it is."""
    basis = verdict.basis
    if isinstance(basis, RaisedException):
        return basis.node
    if isinstance(basis, Hang):
        return _running(trace, basis.graph_task)
    return None


def _running(trace: Trace, graph_task: int) -> NodeRow | None:
    """The node that was under way last."""
    running = [node for node in trace.nodes(graph_task) if node.status is NodeStatus.RUNNING]
    return max(running, key=lambda node: node.start_ns or 0, default=None)


def _unused(run: Run, unused: list[RankEnd], apart: Parting | None) -> RankVerdict:
    first = unused[0]
    with run.folder.trace(first.rank) as trace:
        last = _last_outermost(trace)
        dump = trace.raised(NO_GRAPH_TASK)
        call = None if last is None else visible(trace.call_site(last))
        at = visible(dump.threads[0].stack) if dump is not None and dump.threads else None
        frame = at or call
    ranks = [one.rank for one in unused]
    missing = {rank: _without_gradient(run, rank) for rank in sorted(ranks)}
    alike: dict[tuple[str, ...], list[int]] = {}
    for rank, names in missing.items():
        alike.setdefault(names, []).append(rank)
    parts = [f"{numbers(some)}: {_few(names)}" for names, some in alike.items()]
    heading = f"{'; '.join(parts[:_MOST_NAMED])} got no gradient, for which DDP waits"
    them = "it" if list(map(len, alike)) == [1] else "them"
    freeze = " freeze them (requires_grad_(False))," if len(alike) == 1 else ""
    used = _used_elsewhere(run, alike) if apart is None else ""
    said = (
        f"No node of the loss of backward pass {last}, called at {call}, leads to"
        f" {them}, so the reducer could not finish, and the next"
        f" forward raised (Expected to have finished reduction).{used} Use them in the loss"
        f" on every rank,{freeze} or wrap with find_unused_parameters=True."
    )
    if apart is not None:
        said = f"{apart.sentence} {said}"
        frame = apart.frame or frame
    return found_at(
        run,
        "unused" if apart is None else "graphs",
        ranks if apart is None else apart.few,
        frame,
        heading,
        said,
        details=tuple(
            f"rank {rank}: {name} got no gradient"
            for rank, names in missing.items()
            for name in names
        ),
        graph_task=last,
        verb="why",
    )


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMED]) or "some parameters"
    more = len(names) - _MOST_NAMED
    return f"{shown} and {more:,} more" if more > 0 else shown


def _last_outermost(trace: Trace) -> int | None:
    outermost = [task for task in trace.graph_tasks if task.parent < 0]
    return outermost[-1].id if outermost else None


def _used_elsewhere(run: Run, alike: Mapping[tuple[str, ...], Sequence[int]]) -> str:
    """Where a rank used what another one did not, in a sentence; empty: none did."""
    for names, ranks in alike.items():
        for others in alike.values():
            if others is ranks:
                continue
            with run.folder.trace(others[0]) as trace:
                last = _last_outermost(trace)
                rows = [] if last is None else trace.parameters(last)
                for row in rows:
                    if row.name in names and row.node is not None and last is not None:
                        frame = line_of(trace, trace.node(last, row.node))
                        at = "" if frame is None else f" at {frame}"
                        return (
                            f" {numbers(others).capitalize()} used {row.name}{at}: the ranks do not"
                            " use the same parameters."
                        )
    return ""


def _without_gradient(run: Run, rank: int) -> tuple[str, ...]:
    """Parameters that DDP synchronises and no node of the last pass of a rank leads to."""
    with run.folder.trace(rank) as trace:
        last = _last_outermost(trace)
        synchronised = {one.parameter for one in trace.synchronised()}
        return tuple(
            row.name
            for row in ([] if last is None else trace.parameters(last))
            if row.node is None
            and row.requires_grad
            and (row.name in synchronised or not synchronised)
        )


def _exited(run: Run, cut: list[RankEnd], ended: Mapping[int, RankEnd]) -> RankVerdict | None:
    """A rank that ended itself, in a pass or between two: launchers then end the others."""
    for one in cut:
        with run.folder.trace(one.rank) as trace:
            found = verdicts(trace)[0]
            has_left = any(dump.reason == EXIT for dump in trace.dumps())
            is_inside = found.is_found and isinstance(found.basis, Hang)
            if not is_inside and (between := outside(trace)) is not None and between.is_exit:
                found = of_failure(between, trace)
            if not has_left or not isinstance(found.basis, Hang | Outside):
                continue
            node = _node_of(trace, found)
        gone = [rank for rank in sorted(ended) if rank != one.rank]
        gone = [rank for rank in gone if ended[rank].end in {End.OTHERS, End.CUT}]
        said = f"{numbers(gone).capitalize()} ended because of that." if gone else ""
        return RankVerdict(
            kind="exited",
            ranks=(one.rank,),
            node="" if node is None else place(node),
            verdict=of_rank(one.rank, found, beside=said),
        )
    return None


def _died(run: Run, one: RankEnd, ended: Mapping[int, RankEnd]) -> RankVerdict:
    with run.folder.trace(one.rank) as trace:
        last = trace.last_moment()
        node, number = _last_node(run, one, trace)
        frame = (None if node is None else line_of(trace, node)) or verdicts(trace)[0].frame
    others = sorted(set(ended) - {one.rank})
    where = "" if number is None else f" after backward pass {number}"
    if node is not None:
        where = f" in backward pass {number}, in {place(node)}"
    said = (
        "Its recording ends without an exception or an exit: a signal killed it (SIGTERM, SIGKILL"
        " as for want of memory), or it crashed in C++."
    )
    if node is not None:
        said += f" {described(node)} was the last node that started."
        if run.ranks[one.rank].file.meta.engine == "native":
            said += " A hook before the next one may have been called: those are not seen."
    if last is None:
        said += " What happened in its last moments, up to a second, is in no file."
    gone = [rank for rank in others if ended[rank].end in {End.OTHERS, End.CUT}]
    if gone:
        said += f" {numbers(gone).capitalize()} ended after it: {_how(gone, ended)}."
    return found_at(
        run,
        "died",
        (one.rank,),
        frame,
        f"rank {one.rank} was killed{where}",
        said,
        node=node,
        details=_each(run, ended),
    )


def _crashed(run: Run, one: RankEnd, ended: Mapping[int, RankEnd]) -> RankVerdict | None:
    """A rank that died while others were in another collective; None: that is not known."""
    with run.folder.trace(one.rank) as trace:
        last = trace.last_moment()
    if last is None or not last.operation:
        return None
    mine = f"{last.operation} of {last.shapes}" if last.shapes else last.operation
    for rank, other in ended.items():
        if rank != one.rank and other.end is End.CUT:
            with run.folder.trace(rank) as trace:
                beside = trace.last_moment()
            if beside is not None and _is_another(last, beside):
                return _at_once(run, one.rank, last, rank, beside, ended)
            if beside is not None and _has_left(last, beside):
                return _left_in(run, one.rank, last, rank, beside, ended)
        if other.end is not End.OTHERS:
            continue
        theirs = _called_after(run, rank, last.call_after)
        if theirs and _is_alike(theirs[-1], last):
            continue
        line = visible(theirs[-1].stack) if theirs else None
        what = "none there"
        if theirs:
            what = f"{collectives.said(theirs[-1].kind)} at {line}"
        return found_at(
            run,
            "collectives",
            sorted((one.rank, rank)),
            line,
            f"{numbers((one.rank, rank))} called different collectives at once",
            f"After backward pass {last.call_after}, rank {one.rank}, which then died,"
            f" called {mine} at {last.line}, and rank {rank} called {what}. What is joined"
            " in another order, or left out, on some ranks only, mixes up data or waits for"
            f" ever. {_ends(ended)}",
            details=_each(run, ended),
        )
    return None


def _is_another(one: LastMoment, other: LastMoment) -> bool:
    """Whether two calls of the same number, of a collective of all ranks, do not fit."""
    return (
        bool(one.number)
        and one.number == other.number
        and {one.operation, other.operation} <= _ALIKE_ON_ALL
        and (one.operation, one.shapes, one.dtypes) != (other.operation, other.shapes, other.dtypes)
    )


def _has_left(one: LastMoment, other: LastMoment) -> bool:
    """Whether the second of two ranks came out of the collective that the first called last."""
    group, number = one.call_place
    theirs, next_one = other.call_place
    return one.operation in _ALIKE_ON_ALL and group == theirs and 0 < number < next_one


def _left_in(
    run: Run,
    rank: int,
    mine: LastMoment,
    other: int,
    theirs: LastMoment,
    ended: Mapping[int, RankEnd],
) -> RankVerdict:
    """A rank that died in a collective that another one came out of."""
    return found_at(
        run,
        "collectives",
        (rank,),
        _frame_at(mine.line),
        f"rank {rank} died in a collective that rank {other} came out of",
        f"As call {mine.number}, rank {rank} called {_of(mine)} at {mine.line}, and died in it;"
        f" rank {other} went on to {_of(theirs)} at {theirs.line}. So it ends, in C++, where shapes"
        " or dtypes differ between ranks, and so does a signal that kills it there."
        f" {_ends(ended)}",
        details=_each(run, ended),
    )


_ALIKE_ON_ALL: Final = {"all_reduce", "barrier", "broadcast", "reduce_scatter", "all_to_all"}
"""Collectives to which all ranks give tensors of the same sizes."""


def _of(last: LastMoment) -> str:
    tensors = f"{last.dtypes} {last.shapes}".strip()
    return f"{last.operation} of {tensors}" if tensors else last.operation


def _at_once(
    run: Run,
    rank: int,
    mine: LastMoment,
    other: int,
    theirs: LastMoment,
    ended: Mapping[int, RankEnd],
) -> RankVerdict:
    """Two ranks that called what does not fit, and of which the first died."""
    calls = {
        each: f"rank {each} called {_of(last)} at {last.line}"
        for each, last in sorted({rank: mine, other: theirs}.items())
    }
    frame = _frame_at(mine.line)
    what = "sizes" if mine.shapes != theirs.shapes else "dtypes"
    return found_at(
        run,
        "collectives",
        calls,
        frame,
        f"{numbers(calls)} gave tensors of different {what} to one collective"
        if mine.operation == theirs.operation
        else f"{numbers(calls)} called different collectives at once",
        f"As call {mine.number}, {', '.join(calls.values())}."
        f" Rank {rank} died in it. Shape and dtype have to be the same on all ranks."
        f" {_ends(ended)}",
        details=_each(run, ended),
    )


def _frame_at(line: str) -> Frame | None:
    """The frame that was written as ``train.py:42 in main``; None: it was not."""
    where, _, function = line.rpartition(" in ")
    file, _, number = where.rpartition(":")
    return Frame(file, int(number), function, hidden=False) if number.isdecimal() else None


def _called_after(run: Run, rank: int, graph_task: int) -> list[Collective]:
    """The collectives that the program itself called between the beginnings of two passes."""
    passes = {one.ordinal: one.graph_task for one in run.ranks[rank].passes}
    keys = {one.key for one in run.ranks[rank].joined if passes.get(one.ordinal, -1) == graph_task}
    with run.folder.trace(rank) as trace:
        return [
            each
            for each in trace.collectives()
            if each.stack and (each.group, each.is_p2p, each.seq) in keys
        ]


def _is_alike(one: Collective, last: LastMoment) -> bool:
    """Whether it may be the very same that another rank called last."""
    return one.operation == last.operation and one.shapes in {last.shapes, ""}


def _last_node(run: Run, one: RankEnd, trace: Trace) -> tuple[NodeRow | None, int | None]:
    """The node in which a rank was last, and its backward pass.

    The graph of a pass that came to no file is that of an earlier one with the same fingerprint.
    """
    last, passes = trace.last_moment(), run.ranks[one.rank].passes
    number = passes[-1].graph_task if passes else None
    if last is None:
        found = _node_of(trace, verdicts(trace)[0]) if one.is_inside else None
        return found, number
    if last.node < 0:
        return None, last.graph_task
    known = {each.graph_task: each for each in passes}
    same = known.get(last.graph_task) or next(
        (
            each
            for each in passes
            if last.known_graph_task == last.graph_task and each.fingerprint == last.fingerprint
        ),
        None,
    )
    if same is None or last.node >= same.nodes:
        return None, last.graph_task
    return trace.node(same.graph_task, last.node), last.graph_task


def _parted(run: Run, apart: Parting, ended: Mapping[int, RankEnd]) -> RankVerdict:
    node = apart.node or apart.other
    return found_at(
        run,
        "graphs",
        apart.few,
        apart.frame,
        f"{numbers(apart.few)} took another branch of the forward than the others",
        f"{apart.sentence} So {'it waits' if len(apart.few) == 1 else 'they wait'} for"
        f" gradients, or collectives, that the others never join. {_ends(ended)}",
        node=node,
        details=_each(run, ended),
    )


def _differing(run: Run, differ: CollectiveMismatch, ended: Mapping[int, RankEnd]) -> RankVerdict:
    few = collectives.fewest(differ)
    lines = collectives.lines_of(run, differ)
    sites = collectives.sites_of(run, differ)
    waits_inside = next((site for site in sites.values() if site is not None), None)
    frame = collectives.place_of(differ, lines, sites)
    uneven = collectives.uneven(differ)
    remedy = "What is joined in another order, or left out, on some ranks only, waits for ever."
    if uneven and waits_inside is not None:
        remedy = (
            "Either all ranks have to call the same there, or they have to get as many batches"
            " (torch.distributed.algorithms.join.Join bears with fewer)."
        )
    said = " ".join(filter(None, [collectives.sentence(differ, lines, sites), uneven, remedy]))
    return found_at(
        run,
        "collectives",
        few,
        frame,
        collectives.heading(differ),
        f"{said} {_ends(ended)}",
        details=_each(run, ended),
    )


def _missing(run: Run, differ: CollectiveMismatch, ended: Mapping[int, RankEnd]) -> RankVerdict:
    """Ranks that never came to a collective in which the others wait."""
    left = [rank for rank in differ.missing if ended[rank].end is End.REGULAR]
    gone = left or list(differ.missing)
    kind, ranks = next(iter(differ.kinds.items()))
    with run.folder.trace(gone[0]) as trace:
        frame = _last_seen(trace)
        own = verdicts(trace)[0]
        node = None if left else _node_of(trace, own)
    passes = {rank: len(run.ranks[rank].passes) for rank in (*gone, *ranks)}
    if left:
        heading = f"{numbers(left)} left early: {was(left)} at the end while the others go on"
    else:
        heading = f"{numbers(gone)} never joined {collectives.said(kind)}, for which others wait"
    waiting = numbers(ranks).capitalize()
    most = max(passes[rank] for rank in ranks)
    lines = collectives.lines_of(run, differ)
    call = next((line for line in lines.values() if line is not None), None)
    with run.folder.trace(ranks[0]) as trace:
        site = trace.call_site(run.ranks[ranks[0]].passes[-1].graph_task) if most else ()
        waits_at = call or visible(site)
    said = (
        f"{waiting} joined collective {differ.seq} of the process group"
        f" ({collectives.said(kind)}{'' if waits_at is None else f' at {waits_at}'}) and waited."
        f" {numbers(gone).capitalize()} made"
        f" {plural(passes[gone[0]], 'backward pass', 'backward passes')}, the others {most:,}."
    )
    if not left and isinstance(own.basis, Hang):
        said += f" Rank {gone[0]}: {own.paragraph}"
    if left:
        said += (
            " If it had fewer batches, give all ranks as many, or use"
            " torch.distributed.algorithms.join.Join; else look for what ended its loop there: a"
            " break, a return, sys.exit, or an exception that was caught."
        )
    if frame is None or left:
        frame = waits_at
    return found_at(
        run,
        "left" if left else "hang",
        gone,
        frame,
        heading,
        f"{said} {_ends(ended)}",
        node=node,
        details=_each(run, ended),
    )


def _last_seen(trace: Trace) -> Frame | None:
    """Where the program was seen last."""
    pauses, dumps = trace.pauses(), trace.dumps()
    stacks = [pause.stack for pause in pauses[-1:]]
    if dumps and (not pauses or dumps[-1].time_ns > pauses[-1].time_ns):
        stacks = [thread.stack for thread in dumps[-1].threads if thread.name == "MainThread"]
    return common_line(stacks)


def _waiting(run: Run, ended: Mapping[int, RankEnd]) -> RankVerdict:
    """Nothing in which ranks differ is known: say where each waits."""
    held = [one.rank for one in ended.values() if one.end is not End.REGULAR]
    waits = {rank: found for rank in held if (found := _wait_of(run, rank)) is not None}
    receive = len(waits) == len(ended) > 1 and {what for what, _ in waits.values()} == {_RECEIVE}
    said = [f"Rank {rank} waits in {what} at {at}." for rank, (what, at) in waits.items()]
    frame = next((at for _, at in waits.values()), None) if receive else None
    if receive:
        heading = f"{numbers(held)} all wait to receive, and none has sent"
        why = (
            "On one rank of each pair send has to come before recv, or both go through"
            " torch.distributed.batch_isend_irecv."
        )
    else:
        heading = f"{numbers(held)} did not come to their end"
        why = (
            f"{_ends(ended)} All joined the same collectives as far as is recorded, so the"
            " reason is not known; --verbose says where each was."
        )
    return found_at(
        run,
        "hang",
        held,
        frame,
        heading,
        " ".join([*said[:_MOST_NAMED], why]),
        outcome=Outcome.FOUND if receive else Outcome.CANT_TELL,
        details=_each(run, ended),
    )


_RECEIVE: Final = "torch.distributed.recv"


def _wait_of(run: Run, rank: int) -> tuple[str, Frame] | None:
    """In which function of torch.distributed a rank that is stuck waits, and where."""
    with run.folder.trace(rank) as trace:
        found = verdicts(trace)[0].basis
        if not isinstance(found, Hang) or not found.is_still:
            return None
        for status in found.threads:
            wait, frame = status.wait, status.frame
            if status.is_held and wait is not None and frame is not None:
                return (wait.what, frame) if wait.what.startswith("torch.distributed.") else None
    return None


def _ends(ended: Mapping[int, RankEnd]) -> str:
    """How the ranks ended, in a sentence."""
    by_end: dict[End, list[int]] = {}
    for rank, one in ended.items():
        by_end.setdefault(one.end, []).append(rank)
    parts = [f"{numbers(ranks)} {in_words(end, len(ranks))}" for end, ranks in by_end.items()]
    said = "; ".join(parts)
    return f"{said[0].upper()}{said[1:]}."


def _each(run: Run, ended: Mapping[int, RankEnd]) -> Iterator[str]:
    """Where each rank was, line by line."""
    for rank, one in list(ended.items())[:_MOST_LINES]:
        with run.folder.trace(rank) as trace:
            seen = _last_seen(trace)
        at = "" if seen is None else f", last seen at {seen}"
        error = f": {_short(one.error)}" if one.error else ""
        lasted = duration(run.ranks[rank].last_ns - run.ranks[rank].file.meta.start_ns)
        yield f"rank {rank} {in_words(one.end, 1)} after {lasted}{at}{error}"
    if len(ended) > _MOST_LINES:
        yield f"{len(ended) - _MOST_LINES:,} more ranks"
