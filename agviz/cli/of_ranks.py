"""What the verbs print of a folder of ranks."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from agviz.analysis.gradients import WORDS
from agviz.analysis.median import median
from agviz.analysis.outcome import EXIT_CODES, Outcome
from agviz.analysis.pass_marks import marks
from agviz.analysis.why import why
from agviz.cli.console import columns_table, stdout_console, styled, write
from agviz.cli.said import show
from agviz.errors import AgvizError
from agviz.ranks.answers import collectives
from agviz.ranks.answers.across import rank_verdicts
from agviz.ranks.answers.ends import End, ends
from agviz.ranks.answers.found import numbers
from agviz.ranks.answers.gradients import unequal
from agviz.ranks.answers.graphs import parting
from agviz.ranks.folder import Folder
from agviz.ranks.run import Run
from agviz.ranks.whatif import Reduction, without_straggler
from agviz.ranks.work import PHASES, own_times_of_passes
from agviz.words.documents import head
from agviz.words.units import duration, plural

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console
    from rich.table import Table

    from agviz.analysis.gradients import GradientRow
    from agviz.ranks.whatif import Estimate
    from agviz.ranks.work import OwnTimes

WORST: Final = (Outcome.FOUND, Outcome.CANT_TELL, Outcome.NOTHING_UNUSUAL)
"""All outcomes, the worst first."""
_MOST_SHOWN: Final = 16
"""Ranks in a table; of more, the first and those in which something is unusual."""
_NOTABLE: Final = 0.05
"""Part of a step."""
_TIMES: Final = (*PHASES, "waiting", "transfer", "delayed")


def explain(path: Path, *, as_json: bool, verbose: bool) -> int:
    """Print what went wrong in a run; return 0, 1 or 2 by the worst outcome.

    Raises:
        agviz.errors.TraceError: the folder holds no ranks, or a file is damaged.
    """
    folder = Folder.open(path)
    found = rank_verdicts(Run.read(folder))
    if as_json:
        about = {"folder": str(folder.path), "ranks": len(folder.ranks), "missing": folder.missing}
        said = {**head("explain-ranks"), **about, "verdicts": [each.as_json() for each in found]}
        print(json.dumps(said, indent=2))
    else:
        console = stdout_console()
        show([each.verdict for each in found], console, verbose=verbose)
        _remarks(folder, console)
    worst = min(found, key=lambda each: WORST.index(each.verdict.outcome))
    return EXIT_CODES[worst.verdict.outcome]


def _remarks(folder: Folder, console: Console) -> None:
    for remark in folder.remarks():
        console.print()
        write(f"! {remark}", console, indent=0)


def summary(path: Path, *, as_json: bool) -> int:
    """Print what each rank did; return 0.

    Raises:
        agviz.errors.TraceError: the folder holds no ranks, or a file is damaged.
    """
    folder = Folder.open(path)
    run = Run.read(folder)
    facts = _gather(run)
    if as_json:
        print(json.dumps(facts, indent=2))
        return 0
    console = stdout_console()
    _heading(run, console)
    console.print(_rank_table(facts["ranks"]))
    _print_ends(facts["ranks"], console)
    console.print()
    show([each.verdict for each in rank_verdicts(run)], console)
    _remarks(folder, console)
    return 0


def _gather(run: Run) -> dict[str, Any]:
    """What the summary says, as JSON can hold it: times in ns, medians over passes."""
    own, ended = own_times_of_passes(run), ends(run)
    last: defaultdict[int, int] = defaultdict(int)
    meetings = run.meetings()
    for meeting in meetings:
        last[meeting.last] += 1
    unusual = {file.number: len(marks(trace)) for file, trace in run.folder.traces()}
    ranks = []
    for number, rank in run.ranks.items():
        times = own[number]
        begins = [one.begin_ns for one in rank.passes]
        steps = [b - a for a, b in itertools.pairwise(begins)]
        ranks.append(
            {
                "rank": number,
                "host": rank.file.rank.host,
                "pid": rank.file.meta.pid,
                "file": rank.file.path.name,
                "engine": rank.file.meta.engine,
                "end": str(ended[number].end),
                "error": ended[number].error or None,
                "passes": len(rank.passes),
                "unusual_passes": unusual[number],
                "collectives": len(rank.joined),
                "joined_last": last[number],
                "step_ns": _median(steps),
                **{f"{name}_ns": _median([one.of(name) for one in times]) for name in _TIMES},
                "clock": run.clocks[number]._asdict(),
            }
        )
    return {
        **head("summary-ranks"),
        "folder": str(run.folder.path),
        "world_size": run.folder.world_size,
        "missing": run.folder.missing,
        "common_collectives": len(meetings),
        "ranks": ranks,
    }


def _median(times: Sequence[int]) -> int | None:
    return int(median(times)) if times else None


def _heading(run: Run, console: Console) -> None:
    first = run.folder.ranks[0]
    call = " ".join([first.meta.script, *first.meta.argv]).strip()
    hosts = {rank.rank.host for rank in run.folder.ranks}
    console.print(
        f"{call}  ({plural(len(run.ranks), 'rank')} of {run.folder.world_size:,} on"
        f" {plural(len(hosts), 'host')}, {first.rank.backend or 'no process group'})",
        markup=False,
    )
    errors = [clock.error_ns for clock in run.clocks.values()]
    if None in errors:
        console.print("! hosts have no common collective: their times are those of wall clocks")
    elif any(errors):
        most = max(error or 0 for error in errors)
        console.print(f"times of other hosts may be off by {duration(most)}")
    if run.folder.missing:
        console.print(f"! {numbers(run.folder.missing)} left no trace here")
    passes = max((len(rank.passes) for rank in run.ranks.values()), default=0)
    console.print(
        f"{plural(passes, 'backward pass', 'backward passes')}; medians over them; last: how often"
        " a rank was the last to join"
    )
    console.print()


def _rank_table(ranks: Sequence[dict[str, Any]]) -> Table:
    lacks_cpu = any((rank["delayed_ns"] or 0) > _NOTABLE * (rank["step_ns"] or 0) for rank in ranks)
    is_uneven = len({rank["passes"] for rank in ranks}) > 1
    table = columns_table(
        "Ranks: ms of a step, waiting and transfer apart", ("#", True),
        *([("passes", True)] if is_uneven else []), ("step", True),
        *((name, True) for name in _TIMES[:-1]), *([("no CPU", True)] if lacks_cpu else []),
        ("last", True),
    )  # fmt: skip
    table.padding = (0, 1, 0, 0)  # all columns fit 80 cells
    shown = list(ranks)
    if len(shown) > _MOST_SHOWN:
        by_wait = sorted(ranks, key=lambda rank: (rank["end"] == End.REGULAR, -rank["joined_last"]))
        shown = sorted(by_wait[:_MOST_SHOWN], key=lambda rank: int(rank["rank"]))
    for rank in shown:
        table.add_row(
            str(rank["rank"]),
            *([f"{rank['passes']:,}"] if is_uneven else []),
            _ms(rank["step_ns"]),
            *(_ms(rank[f"{name}_ns"]) for name in _TIMES[: len(_TIMES) - (not lacks_cpu)]),
            f"{rank['joined_last']:,}",
        )
    if len(shown) < len(ranks):
        table.caption = f"{len(ranks) - len(shown):,} more ranks"
        table.caption_justify = "left"
    return table


def _print_ends(ranks: Sequence[dict[str, Any]], console: Console) -> None:
    """How ranks ended, and how many unusual passes they had: a line for each that differs."""
    alike = defaultdict(list)
    for rank in ranks:
        alike[rank["end"], rank["unusual_passes"]].append(int(rank["rank"]))
    for (end, unusual), of in alike.items():
        is_bad = end not in {End.REGULAR, End.GROWING}
        said = f"{'✗ ' if is_bad else ''}{numbers(of)}: {end}"
        said += f", {plural(unusual, 'unusual pass', 'unusual passes')}" if unusual else ""
        write(said, console, indent=0, style="red" if is_bad or unusual else "")


def _ms(ns: int | None) -> str:
    return "" if ns is None else f"{ns / 1e6:,.1f}"


def diff(path: Path, *, as_json: bool) -> int:
    """Print in what ranks differ that should be alike; return 0 where in nothing, else 1.

    Raises:
        agviz.errors.TraceError: the folder holds no ranks, or a file is damaged.
    """
    folder = Folder.open(path)
    run = Run.read(folder)
    own = own_times_of_passes(run)
    apart, differ, values = parting(run), collectives.mismatch(run), unequal(run)
    recalled = collectives.recalled(run) if differ is None else None
    facts: dict[str, Any] = {
        **head("diff-ranks"),
        "folder": str(path),
        "graphs": None if apart is None else apart.sentence,
        "collectives": None
        if differ is None
        else collectives.sentence(
            differ, collectives.lines_of(run, differ), collectives.sites_of(run, differ)
        ),
        "order_of_collectives": None if recalled is None else recalled.verdict.paragraph,
        "parameters": None if values is None else values.verdict.heading,
        "times": _apart(own),
    }
    said = [
        ("graphs of the same pass", facts["graphs"]),
        ("collectives", facts["collectives"] or facts["order_of_collectives"]),
        ("parameters and gradients after the same step", facts["parameters"]),
    ]
    if as_json:
        print(json.dumps(facts, indent=2))
    else:
        console = stdout_console()
        for what, sentence in said:
            outcome = Outcome.NOTHING_UNUSUAL if sentence is None else Outcome.FOUND
            line = f"{what}: {sentence or 'equal on all ranks, as far as they were compared'}"
            write(f"{outcome.glyph} {line}", console, indent=0, style=outcome.style)
        console.print()
        console.print(_times_table(facts["times"]))
        _remarks(folder, console)
    return 0 if all(sentence is None for _, sentence in said) else 1


def _apart(own: dict[int, list[OwnTimes]]) -> list[dict[str, Any]]:
    """By what ranks spend time on: the ranks that take least and most, medians in ns."""
    found = []
    for name in _TIMES:
        times = {rank: _median([one.of(name) for one in passes]) for rank, passes in own.items()}
        known = {rank: time for rank, time in times.items() if time is not None}
        if known:
            least, most = (pick(known, key=lambda rank: known[rank]) for pick in (min, max))
            found.append(
                {
                    "what": name,
                    "median_ns": int(median(known.values())),
                    "least": {"rank": least, "ns": known[least]},
                    "most": {"rank": most, "ns": known[most]},
                }
            )
    return found


def _times_table(rows: Sequence[dict[str, Any]]) -> Table:
    table = columns_table(
        "Times of a pass", ("", False), ("median", True), ("least", True), ("rank", True),
        ("most", True), ("rank", True),
    )  # fmt: skip
    for row in rows:
        least, most = row["least"], row["most"]
        table.add_row(
            "no CPU" if row["what"] == "delayed" else row["what"],
            duration(row["median_ns"]),
            duration(least["ns"]),
            str(least["rank"]),
            duration(most["ns"]),
            str(most["rank"]),
        )
    return table


def whatif(
    path: Path, megabytes: Sequence[float] | None, first: str | None, *, as_json: bool
) -> int:
    """Print what a step would take if; return 0.

    Raises:
        agviz.errors.AgvizError: sizes make no sense, or it is not known how gradients were reduced.
    """
    if any(not size > 0 for size in megabytes or ()):
        raise AgvizError("a bucket takes more than 0 MB")
    found, remark = _estimates(Run.read(Folder.open(path)), megabytes, first)
    if as_json:
        estimates = {"estimates": [each.as_json() for each in found], "remark": remark}
        print(json.dumps({**head("whatif-ranks"), **estimates}, indent=2))
        return 0
    console = stdout_console()
    table = columns_table(
        "Estimates", ("if", False), ("", False), ("now", True), ("then", True), ("gain", True)
    )
    for each in found:
        times = duration(each.now_ns), duration(each.then_ns)
        table.add_row(styled(each.what), each.of, *times, f"{each.gain:+.0%}")
    console.print(table)
    for assumption in dict.fromkeys(each.assumption for each in found):
        write(f"Assumed: {assumption}.", console, indent=0)
    if remark:
        write(f"! {remark}", console, indent=0)
    return 0


def _estimates(
    run: Run, megabytes: Sequence[float] | None, first: str | None
) -> tuple[list[Estimate], str]:
    """The estimates, and why there are no more."""
    found = without_straggler(run)
    try:
        reduction = Reduction(run)
    except AgvizError as error:
        if megabytes or first:
            raise
        return found, str(error)
    size = reduction.bucket_bytes / 1e6
    found += map(reduction.with_buckets, megabytes or (size / 4, size * 4))
    if first is not None:
        found.append(reduction.first(first))
    return found, ""


def why_not(path: Path, parameter: str, *, as_json: bool) -> int:
    """Print why a parameter has no gradient on some ranks, or another one; return 0, 1 or 2.

    Raises:
        agviz.errors.TraceError: the folder holds no ranks, or a file is damaged.
    """
    folder = Folder.open(path)
    rows: dict[int, list[GradientRow]] = {}
    facts: dict[int, list[Any]] = {}
    buckets: dict[int, str] = {}
    outcomes = []
    for file, trace in folder.traces():
        answer = why(trace, parameter, None)
        outcomes.append(answer.outcome)
        rows[file.number] = list(answer)
        facts[file.number] = [row.as_json() for row in answer]
        for one in trace.synchronised():
            if one.parameter == parameter:
                has_hook = {True: "", None: "", False: ", WITHOUT its hook"}[one.is_hooked]
                buckets[file.number] = f"{one.kind} bucket {one.bucket}{has_hook}"
    values = unequal(Run.read(folder))
    is_unequal = values is not None and any(
        line.startswith(parameter) or f" {parameter}" in line for line in values.verdict.details
    )
    if as_json:
        fields = {"parameter": parameter, "ranks": facts, "unequal": is_unequal}
        print(json.dumps({**head("why-ranks"), **fields}, indent=2))
    else:
        _show_why(rows, buckets, stdout_console())
        if is_unequal and values is not None:
            show([values.verdict], stdout_console())
    worst = min(outcomes, key=WORST.index)
    return EXIT_CODES[Outcome.FOUND if is_unequal else worst]


def _show_why(
    rows: dict[int, list[GradientRow]], buckets: dict[int, str], console: Console
) -> None:
    """Ranks of which the same is to be said together."""
    alike: defaultdict[tuple[tuple[str, str, str], ...], list[int]] = defaultdict(list)
    for rank, found in rows.items():
        alike[tuple((row.parameter, row.gradient, row.reason) for row in found)].append(rank)
    for ranks in alike.values():
        for row in rows[ranks[0]]:
            outcome = row.outcome
            bucket = f" ({buckets[ranks[0]]})" if ranks[0] in buckets else ""
            heading = f"{numbers(ranks)}: {row.parameter}: {WORDS[row.gradient]}{bucket}"
            write(f"{outcome.glyph} {heading}", console, indent=0, style=outcome.style)
            if row.frame is not None:
                write(str(row.line), console)
            write(row.reason, console)
            write(row.remedy, console)
