"""Say in tables what a recorded trace holds.

Graph tasks, threads and their utilisation, the slowest nodes, hooks, the depth of the ReadyQueues
and the memory of gradients over time, NaN and infinities, errors. Of a folder of ranks: what each
spends its time on, what it waits for others, and how it ended.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agviz.analysis.contradiction import contradiction
from agviz.analysis.counters import counter_series
from agviz.analysis.coverage import coverage
from agviz.analysis.origins import OriginKind, spread
from agviz.analysis.outcome import Outcome
from agviz.analysis.pass_marks import PassMark, marks
from agviz.analysis.verdict import verdicts
from agviz.analysis.version_errors import version_error
from agviz.cli import of_ranks
from agviz.cli.chart import sparkline
from agviz.cli.console import columns_table, stdout_console, styled, write
from agviz.traces.inferred import LEGEND, MARK, UNSEEN, withdrawals
from agviz.traces.reader import Trace
from agviz.traces.rows import GraphTaskRow, GraphTaskStatus, NodeRow, NodeStatus
from agviz.words.documents import head
from agviz.words.health import nonfinite
from agviz.words.units import backward_passes, duration, plural, size
from agviz_engine.engines import NATIVE

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from rich.console import Console
    from rich.table import Table

    from agviz.analysis.origins import Origin

CHART_COLUMNS = 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``agviz summary``."""
    parser.add_argument(
        "file", metavar="FILE", type=Path, help="a recorded trace, or a folder of ranks"
    )
    parser.add_argument("--json", action="store_true", help="for other programs; times in ns")
    parser.add_argument(
        "--top", metavar="N", type=int, default=10, help="rows of each table (default: 10)"
    )
    parser.add_argument(
        "--graph-task", metavar="N", type=int, help="only this backward pass (default: all)"
    )


def execute(arguments: argparse.Namespace) -> int:
    """Print the summary; return 0."""
    if arguments.file.is_dir():
        return of_ranks.summary(arguments.file, as_json=arguments.json)
    with Trace.open(arguments.file) as trace:
        facts = gather(trace, arguments.graph_task, max(1, arguments.top))
    if arguments.json:
        print(json.dumps(facts, indent=2))
    else:
        show(facts, stdout_console())
    return 0


def gather(trace: Trace, graph_task: int | None, top: int) -> dict[str, Any]:
    """Everything the summary says, as JSON can hold it: times in ns.

    Args:
        trace: the trace.
        graph_task: only this one; None: all.
        top: at most this many graph tasks, nodes, types of nodes, hooks and findings.

    Raises:
        agviz.errors.TraceError: there is no such graph task, or the file is damaged.
    """
    meta = trace.meta
    tasks = list(trace.graph_tasks) if graph_task is None else [trace.graph_task(graph_task)]
    outermost = [task for task in tasks if task.parent < 0 or graph_task is not None]
    wall = _covered((t.begin_ns, t.end_ns) for t in outermost if t.end_ns is not None)
    shown_tasks = sorted(tasks, key=lambda task: (-(_duration(task) or 0), task.id))[:top]
    if len(shown_tasks) == len(tasks):
        shown_tasks = tasks
    slowest = trace.slowest(top, graph_task)
    unusual = marks(trace)
    thread_rows = {thread.id: thread for thread in trace.threads}
    return {
        **head("summary"),
        "file": trace.path,
        "script": meta.script,
        "argv": list(meta.argv),
        "python": meta.python,
        "torch": meta.torch,
        "agviz": meta.agviz,
        "engine": meta.engine,
        "withdrawn": withdrawals(tasks),
        "complete": meta.end_ns is not None and not meta.stopped,
        "stopped": meta.stopped,
        "choice": meta.choice,
        "coverage": _coverage(trace),
        "values": _values(trace),
        "events": trace.event_count(graph_task),
        "graph_tasks": {
            "count": len(tasks),
            "reentrant": sum(task.parent >= 0 for task in tasks),
            "failed": sum(task.status is GraphTaskStatus.FAILED for task in tasks),
            "total_ns": wall,
            "shown": [_graph_task(task, unusual.get(task.id)) for task in shown_tasks],
        },
        "threads": [
            {
                "thread": time.thread,
                "name": thread_rows[time.thread].name if time.thread in thread_rows else "",
                "queue": thread_rows[time.thread].queue if time.thread in thread_rows else None,
                "executed": time.executed,
                "busy_ns": time.busy_ns,
                "utilisation": time.busy_ns / wall if wall else None,
            }
            for time in trace.thread_times(graph_task)
        ],
        "slowest_types": [type_._asdict() for type_ in slowest.types],
        "slowest_nodes": [
            {
                "graph_task": execution.graph_task,
                "order": execution.order,
                **_names(trace.node(execution.graph_task, execution.node)),
                "thread": execution.thread,
                "duration_ns": (execution.end_ns or execution.start_ns) - execution.start_ns,
            }
            for execution in slowest.executions
        ],
        "hooks": [hook._asdict() for hook in trace.hook_times(graph_task)[:top]],
        "over_time": _over_time(trace, outermost),
        "non_finite": _nonfinite(trace, tasks, top),
        "non_finite_passes": _nonfinite_passes(trace, tasks),
        "verdicts": [each.as_json() for each in verdicts(trace, graph_task)],
        "errors": [
            {
                "graph_task": task.id,
                "error": task.error,
                "message": task.message,
                "nodes": [
                    _names(node)
                    for node in trace.nodes(task.id)
                    if node.status is NodeStatus.FAILED
                ],
                "why": _why(trace, task.id),
            }
            for task in [task for task in tasks if task.status is GraphTaskStatus.FAILED][:top]
        ],
    }


def _coverage(trace: Trace) -> dict[str, Any]:
    """Which backward passes of those that were recorded are in the file."""
    found = coverage(trace)
    return {
        **found._asdict(),
        "left_out": [each._asdict() for each in trace.left_out],
        "in_words": str(found),
    }


def _why(trace: Trace, graph_task: int) -> str | None:
    """Why a graph task failed, where more than its message can be said."""
    found = version_error(trace, graph_task)
    return None if found is None else found.paragraph


def _values(trace: Trace) -> dict[str, Any]:
    """What was recorded of gradients."""
    meta = trace.meta
    if meta.values != "full":
        return {"level": meta.values}
    return {"level": meta.values, "ended": meta.values_stopped, **trace.stored_values()._asdict()}


def _duration(task: GraphTaskRow) -> int | None:
    return None if task.end_ns is None else task.end_ns - task.begin_ns


def _over_time(trace: Trace, tasks: list[GraphTaskRow]) -> dict[str, Any] | None:
    """Queues and gradient memory during the slowest of ``tasks``; None where there is none."""
    if not tasks:
        return None
    task = max(tasks, key=lambda task: (_duration(task) or 0, -task.id))
    return {
        "graph_task": task.id,
        "duration_ns": _duration(task),
        "gauges": [course._asdict() for course in counter_series(trace, task.id, CHART_COLUMNS)],
        "contradiction": contradiction(trace, task.id),
    }


def _graph_task(task: GraphTaskRow, mark: PassMark | None) -> dict[str, Any]:
    return {
        "graph_task": task.id,
        "parent": task.parent if task.parent >= 0 else None,
        "call": "backward" if task.accumulate_grad else "grad",
        "traced": task.traced,
        "nodes": task.nodes,
        "edges": task.edges,
        "executed": task.executed,
        "duration_ns": _duration(task),
        "status": str(task.status),
        "withdrawn": task.withdrawn_seq is not None,
        "mark": None if mark is None else str(mark),
    }


def _names(node: NodeRow) -> dict[str, Any]:
    return {
        "node": node.index,
        "name": node.short_name,
        "module": node.module,
        "parameter": node.parameter,
        "line": node.line,
    }


def _nonfinite_passes(trace: Trace, tasks: Iterable[GraphTaskRow]) -> list[int]:
    wanted = {task.id for task in tasks}
    return sorted(number for number in trace.nonfinite_graph_tasks() if number in wanted)


def _nonfinite(trace: Trace, tasks: Iterable[GraphTaskRow], top: int) -> list[dict[str, Any]]:
    findings = []
    for number in _nonfinite_passes(trace, tasks)[:top]:
        found = spread(trace, number)
        if found is None or not found.origins:
            continue
        leaves = {
            (task, leaf): name or f"node {leaf}"
            for task in trace.family(number)
            for leaf, name in trace.leaves(task).items()
        }
        findings.append(
            {
                "graph_task": number,
                "first": _first(trace, found.first),
                "nodes": found.nodes,
                "leaves": len(set(leaves.values())),
                "reached": list(dict.fromkeys(leaves[leaf] for leaf in found.leaves)),
            }
        )
    return findings


def _first(trace: Trace, origin: Origin) -> dict[str, Any]:
    node = trace.node(origin.graph_task, origin.node)
    health = trace.health_at(origin.seq)
    counts = health or trace.nonfinite(origin.graph_task, limit=1)[0]
    return {
        "graph_task": origin.graph_task,
        **_names(node),
        "order": node.order,
        "kind": str(origin.kind),
        "output": origin.slot if origin.kind is OriginKind.NODE else None,
        "nan": counts.nan,
        "posinf": counts.posinf,
        "neginf": counts.neginf,
    }


def _covered(intervals: Iterable[tuple[int, int | None]]) -> int:
    """Length of the union of ``intervals``, in ns."""
    covered, reached = 0, 0
    for begin, end in sorted((b, e) for b, e in intervals if e is not None):
        covered += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return covered


def show(facts: dict[str, Any], console: Console) -> None:
    """Print what :func:`gather` found."""
    _show_heading(facts, console)
    for table in (
        _graph_task_table(facts),
        _thread_table(facts),
        _type_table(facts),
        _node_table(facts),
        _hook_table(facts),
        _course_table(facts, console),
    ):
        if table.row_count:
            console.print(table)
            console.print()
    show_nonfinite(facts, console)
    _show_errors(facts, console)
    _show_verdicts(facts, console)


def _show_heading(facts: dict[str, Any], console: Console) -> None:
    call = " ".join([facts["script"], *facts["argv"]]).strip()
    with_torch = f", torch {facts['torch']}" if facts["torch"] else ""
    console.print(f"{call or facts['file']}  (Python {facts['python']}{with_torch})", markup=False)
    if facts["engine"] == NATIVE:
        console.print(styled(LEGEND))
        console.print(styled(UNSEEN))
    if facts["withdrawn"]:
        console.print(styled(f"! {facts['withdrawn']}"))
    tasks = facts["graph_tasks"]
    passes = backward_passes(tasks["count"], tasks["reentrant"])
    console.print(f"{passes}, {plural(facts['events'], 'event')}, {duration(tasks['total_ns'])}")
    if facts["stopped"]:
        console.print(f"! recording stopped early: {facts['stopped']}", markup=False)
    elif not facts["complete"]:
        console.print("! the recording was cut off, or is still growing")
    if facts["coverage"]["left_out"]:
        console.print(f"! {facts['coverage']['in_words']}", markup=False)
    if facts["choice"]:
        console.print(f"recorded: {facts['choice']}", markup=False)
    if "stored" in facts["values"]:
        _show_values(facts["values"], console)
    console.print()


def _show_values(values: dict[str, Any], console: Console) -> None:
    left_out = ", ".join(f"{count:,} {why}" for why, count in values["left_out"].items())
    console.print(
        f"values: {plural(values['stored'], 'gradient')}, {size(values['nbytes'])}"
        + (f"; left out: {left_out}" if left_out else ""),
        markup=False,
    )
    if values["ended"]:
        console.print(
            f"! of later gradients only the health is recorded: {values['ended']}", markup=False
        )


def _graph_task_table(facts: dict[str, Any]) -> Table:
    tasks = facts["graph_tasks"]
    shown, count = len(tasks["shown"]), tasks["count"]
    table = columns_table(
        "Graph tasks" if shown == count else f"Graph tasks, the slowest {shown} of {count:,}",
        ("#", True), ("call", False), ("nodes", True), ("edges", True), ("executed", True),
        ("time", True), ("status", False),
    )  # fmt: skip
    for task in tasks["shown"]:
        status = task["mark"] or task["status"]
        if task["mark"] and PassMark(task["mark"]).is_wrong:
            status = f"[red]✗ {status}[/]"
        if task["withdrawn"]:
            status += ", inference withdrawn"
        inside = "" if task["parent"] is None else f" in #{task['parent']}"
        table.add_row(
            str(task["graph_task"]),
            task["call"] + inside + ", traced" * task["traced"],
            f"{task['nodes']:,}",
            f"{task['edges']:,}",
            f"{task['executed']:,}",
            duration(task["duration_ns"]),
            status,
        )
    return table


def _thread_table(facts: dict[str, Any]) -> Table:
    table = columns_table(
        "Threads", ("#", True), ("name", False), ("queue", False), ("nodes", True), ("busy", True),
        ("utilisation", True),
    )  # fmt: skip
    for thread in facts["threads"]:
        queue = thread["queue"]
        table.add_row(
            str(thread["thread"]),
            styled(thread["name"]),
            "" if queue is None else "CPU (caller)" if queue < 0 else f"device {queue}",
            f"{thread['executed']:,}",
            duration(thread["busy_ns"]),
            "" if thread["utilisation"] is None else f"{thread['utilisation']:.0%}",
        )
    return table


def _type_table(facts: dict[str, Any]) -> Table:
    table = columns_table(
        "Slowest types of nodes", ("type", False), ("calls", True), ("self", True),
        ("share", True), ("total", True), ("mean", True), ("max", True),
    )  # fmt: skip
    busy = sum(thread["busy_ns"] for thread in facts["threads"])
    for row in facts["slowest_types"]:
        table.add_row(
            styled(row["name"]),
            f"{row['calls']:,}",
            duration(row["self_ns"]),
            f"{row['self_ns'] / busy:.0%}" if busy else "",
            duration(row["total_ns"]),
            duration(row["total_ns"] / row["calls"]),
            duration(row["max_ns"]),
        )
    return table


def _node_table(facts: dict[str, Any]) -> Table:
    many = facts["graph_tasks"]["count"] > 1
    table = columns_table(
        "Slowest nodes", *([("task", True)] if many else []), ("order", True), ("node", False),
        ("module or parameter", False), ("thread", True), ("time", True), ("created by", False),
    )  # fmt: skip
    for row in facts["slowest_nodes"]:
        table.add_row(
            *([str(row["graph_task"])] if many else []),
            str(row["order"]),
            styled(row["name"]),
            styled(row["parameter"] or row["module"] or ""),
            str(row["thread"]),
            duration(row["duration_ns"]),
            styled(row["line"] or ""),
        )
    return table


def _hook_table(facts: dict[str, Any]) -> Table:
    is_native = facts["engine"] == NATIVE  # how long one took is not seen then
    title = f"{MARK * is_native}Hooks"
    table = columns_table(
        title, ("kind", False), ("hook", False), ("calls", True), ("changed", True),
        ("total", True),
    )  # fmt: skip
    for row in facts["hooks"]:
        table.add_row(
            row["kind"],
            styled(row["name"]),
            f"{row['calls']:,}",
            f"{row['changed']:,}",
            "" if is_native else duration(row["total_ns"]),
        )
    return table


def _course_table(facts: dict[str, Any], console: Console) -> Table:
    over_time = facts["over_time"] or {"gauges": []}
    gauges = over_time["gauges"]
    title = "Over time"
    if gauges and facts["graph_tasks"]["count"] > 1:
        title = f"Over time, in backward pass {over_time['graph_task']}"
    table = columns_table(title, ("", False), ("from its begin to its end", True), ("peak", True))
    table.columns[1].justify = "left"
    if gauges and over_time["contradiction"]:
        table.caption = styled(f"These numbers are false: {over_time['contradiction']}.")
    is_native = facts["engine"] == NATIVE
    for gauge in gauges:
        peak = gauge["peak"]
        table.add_row(
            styled(f"{MARK * is_native}{gauge['gauge']}"),
            sparkline(gauge["values"], console),
            size(peak) if gauge["unit"] == "bytes" else plural(peak, "task"),
        )
    return table


_PLACES = {
    "node": "its output {}",
    "sum": "the sum of gradients that it receives",
    "root": "the gradient given to backward",
    "hook": "what a hook gave",
    "replaced": "what an instrument gave it",
    "accumulated": ".grad",
    "captured": "a result of grad",
}
"""Of what kind the first non-finite gradient is, in words."""


def show_nonfinite(facts: dict[str, Any], console: Console) -> None:
    """Print where NaN and infinities began, and what they reached; of the same node once."""
    same: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for found in facts["non_finite"]:
        first = found["first"]
        key = first["name"], first["line"], first["node"], first["kind"], first["output"]
        same.setdefault(key, []).append(found)
    for found, *later in same.values():
        first = found["first"]
        counts = nonfinite(first["nan"], first["posinf"], first["neginf"])
        where = first["parameter"] or first["module"]
        line = styled("✗ non-finite gradients begin at ", style="red")
        line.append(first["name"], style="bold")
        line.append(f" of {where}" if where else "")
        line.append(
            f" (node {first['node']}, number {first['order']} to run in backward pass"
            f" {first['graph_task']}): {counts} in {_PLACES[first['kind']].format(first['output'])}"
        )
        console.print(line)
        if first["line"]:
            console.print(styled(f"  the node was created by {first['line']}"))
        reached = found["reached"]
        shown = ", ".join(reached[:6]) + (
            f" and {len(reached) - 6} more" if len(reached) > 6 else ""
        )
        console.print(
            styled(
                f"  they spread through {plural(found['nodes'], 'node')} and reached"
                f" {len(reached)} of {plural(found['leaves'], 'parameter')}"
                + (f": {shown}" if shown else "")
            )
        )
        if later:
            passes = "backward pass" if len(later) == 1 else "backward passes"
            numbers = _numbers([again["graph_task"] for again in later])
            console.print(styled(f"  so do those of {len(later):,} later {passes}: {numbers}"))
    rest = facts["non_finite_passes"][len(facts["non_finite"]) :]
    if rest:
        more = plural(len(rest), "more backward pass", "more backward passes")
        have = "has" if len(rest) == 1 else "have"
        console.print(
            styled(f"✗ {more} {have} non-finite gradients, the last {rest[-1]}", style="red")
        )


def _numbers(numbers: list[int]) -> str:
    """``3 to 11`` where none is left out, else ``3, 5, 6, … 11``."""
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]} to {numbers[-1]}"
    shown = ", ".join(map(str, numbers[:3]))
    return shown + (f", … {numbers[-1]}" if len(numbers) > 3 else "")


def _show_verdicts(facts: dict[str, Any], console: Console) -> None:
    """Print what is to be said that the tables do not say, and where more is."""
    shown = {row["graph_task"] for row in (*facts["non_finite"], *facts["errors"])}
    is_found = False
    for verdict in facts["verdicts"]:
        outcome = Outcome(verdict["outcome"])
        is_found = is_found or outcome is Outcome.FOUND
        if outcome is Outcome.FOUND and verdict["graph_task"] in shown:
            continue
        glyph = styled(f"{outcome.glyph} ", style=outcome.style)
        console.print(glyph.append(verdict["heading"], style="default"))
        if outcome is not Outcome.FOUND:
            write(verdict["paragraph"], console)
    if is_found:
        console.print(styled(f"  why: agviz explain {shlex.quote(facts['file'])}"))


def _show_errors(facts: dict[str, Any], console: Console) -> None:
    for error in facts["errors"]:
        line = styled(f"✗ backward pass {error['graph_task']} failed", style="red")
        for node in error["nodes"]:
            where = node["parameter"] or node["module"]
            line.append(f" in {node['name']}", style="bold")
            line.append(f" of {where}" if where else "")
            line.append(f" (node {node['node']})")
        line.append(f": {error['error']}: {error['message']}")
        console.print(line)
        if error["why"] is not None:
            console.print(styled(f"  {error['why']}"))
