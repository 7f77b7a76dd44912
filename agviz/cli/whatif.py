"""Say what a recorded backward pass would hold in memory under another queue order.

The recorded durations and sizes of gradients are replayed with ReadyQueues that give their tasks
in another order: `torch` (as recorded: later-made nodes first), `fifo` (first in, first out),
`lifo` (last in, first out), `memory` (always the node after which the least is held).

Of a folder of ranks: how long a step would take if the rank that others wait for were like the
others, if DDP's buckets had another size, if the gradient of a parameter came first; estimates,
each with what it assumes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agviz.analysis.counters import in_steps
from agviz.analysis.schedule import ORDERS, plan, simulate
from agviz.cli import of_ranks
from agviz.cli.chart import sparkline
from agviz.cli.console import columns_table, stdout_console, styled
from agviz.errors import AgvizError
from agviz.traces.reader import Trace
from agviz.traces.rows import GraphTaskStatus
from agviz.words.documents import head
from agviz.words.units import duration, plural, size
from agviz_engine.events import CPU_QUEUE

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from rich.console import Console
    from rich.table import Table

    from agviz.analysis.schedule import Schedule
    from agviz.traces.rows import GraphTaskRow

_CHART_COLUMNS: Final = 40
_ALL: Final = "all"
_WORTH_SAYING: Final = 0.01
"""Smallest gain, as a share, that is no chance."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``agviz whatif``."""
    parser.add_argument(
        "file", metavar="FILE", type=Path, help="a recorded trace, or a folder of ranks"
    )
    parser.add_argument(
        "--order", choices=[*ORDERS, _ALL], default=_ALL, help="the queue order (default: all)"
    )
    parser.add_argument(
        "--graph-task",
        metavar="N",
        type=int,
        help="this backward pass (default: the one that took longest)",
    )
    parser.add_argument(
        "--bucket-mb",
        metavar="N",
        type=float,
        action="append",
        help="of a folder of ranks: with DDP's buckets of N MB (may be given several times)",
    )
    parser.add_argument(
        "--first",
        metavar="PARAM",
        help="of a folder of ranks: if the gradient of this parameter came first",
    )
    parser.add_argument("--json", action="store_true", help="for other programs; times in ns")


def execute(arguments: argparse.Namespace) -> int:
    """Print what each order comes to; return 0."""
    if arguments.file.is_dir():
        return of_ranks.whatif(
            arguments.file, arguments.bucket_mb, arguments.first, as_json=arguments.json
        )
    if arguments.bucket_mb or arguments.first:
        raise AgvizError("--bucket-mb and --first are of a folder of ranks")
    orders = list(ORDERS) if arguments.order == _ALL else [arguments.order]
    with Trace.open(arguments.file) as trace:
        facts = gather(trace, arguments.graph_task, orders)
    if arguments.json:
        print(json.dumps(facts, indent=2))
    else:
        show(facts, stdout_console())
    return 0


def gather(trace: Trace, graph_task: int | None, orders: Sequence[str]) -> dict[str, Any]:
    """What each order comes to, as JSON can hold it: times in ns, sizes in bytes.

    Args:
        trace: the trace.
        graph_task: whose nodes are put in other orders; None: the one that took longest.
        orders: some of :data:`agviz.analysis.schedule.ORDERS`.

    Raises:
        agviz.errors.AgvizError: no graph task finished, or not all of it was recorded.
    """
    task = _longest(trace) if graph_task is None else trace.graph_task(graph_task)
    planned = plan(trace, task.id)
    schedules = [simulate(planned, order) for order in orders]
    end_ns = max(schedule.makespan_ns for schedule in schedules)
    inside = sum(other.parent == task.id for other in trace.graph_tasks)
    return {
        **head("whatif"),
        "file": trace.path,
        "graph_task": task.id,
        "nodes": task.nodes,
        "executed": task.executed,
        "recorded": _recorded(trace, task),
        "orders": [_facts(schedule, end_ns) for schedule in schedules],
        "threads": {
            str(thread.queue): thread.name for thread in trace.threads if thread.queue != CPU_QUEUE
        }
        | {str(CPU_QUEUE): _thread_name(trace, task.thread)},
        "unknown": list(_unknown(inside, len({*planned.queues}))),
    }


def _longest(trace: Trace) -> GraphTaskRow:
    finished = [task for task in trace.graph_tasks if task.status is GraphTaskStatus.FINISHED]
    if not finished:
        raise AgvizError(f"{trace.path} holds no backward pass that finished")
    return max(finished, key=lambda task: ((task.end_ns or 0) - task.begin_ns, -task.id))


def _thread_name(trace: Trace, thread: int) -> str:
    return next((row.name for row in trace.threads if row.id == thread), f"thread {thread}")


def _recorded(trace: Trace, task: GraphTaskRow) -> dict[str, Any]:
    """The same figures as they were recorded, other passes at that time included."""
    executions = trace.executions(task.id)
    begin_ns = min((row.start_ns for row in executions), default=task.begin_ns)
    end_ns = max((row.end_ns or row.start_ns for row in executions), default=task.begin_ns)
    live = list(trace.live_bytes(task.id, task.end_ns or end_ns, _CHART_COLUMNS))
    return {
        "peak_bytes": max((each.largest for each in live), default=0),
        "makespan_ns": end_ns - begin_ns,
    }


def _facts(schedule: Schedule, end_ns: int) -> dict[str, Any]:
    return {
        "order": schedule.order,
        "peak_bytes": schedule.peak_bytes,
        "makespan_ns": schedule.makespan_ns,
        "threads": [thread._asdict() for thread in schedule.threads],
        "bytes_over_time": in_steps(schedule.course, end_ns, _CHART_COLUMNS),
        "step_ns": end_ns / _CHART_COLUMNS,
        "nodes": schedule.nodes,
    }


def _unknown(inside: int, queues: int) -> list[str]:
    """What a simulation can't know of this graph task."""
    found = ["what the engine itself does between nodes is not counted"]
    if queues > 1:
        found.append("nodes are taken to last as long beside others as they did when recorded")
    if inside:
        found.append(
            f"reentrant backward passes ({inside:,}) count as part of the nodes they ran in,"
            " their gradients not at all"
        )
    return found


def show(facts: dict[str, Any], console: Console) -> None:
    """Print what :func:`gather` found."""
    recorded = facts["recorded"]
    console.print(
        f"backward pass {facts['graph_task']}: {plural(facts['executed'], 'node')} executed\n"
        f"recorded: peak {size(recorded['peak_bytes'])},"
        f" {duration(recorded['makespan_ns'])} from the first node to the last",
        markup=False,
    )
    answer = _answer(facts["orders"])
    if answer:
        console.print(answer)
    console.print()
    console.print(_order_table(facts, console))
    console.print()
    if len(facts["orders"][0]["threads"]) > 1:
        console.print(_thread_table(facts))
        console.print()
    for sentence in facts["unknown"]:
        console.print(f"! {sentence}", markup=False)


def _answer(orders: Sequence[dict[str, Any]]) -> str:
    """What the best orders gain over torch's, in words; empty where that is not among them."""
    torch = next((order for order in orders if order["order"] == "torch"), None)
    if torch is None or len(orders) == 1:
        return ""
    gains = []
    for fact, what in (("peak_bytes", "less memory"), ("makespan_ns", "less time")):
        best = min(orders, key=lambda order: int(order[fact]))
        share = 1 - best[fact] / max(1, torch[fact])
        if share >= _WORTH_SAYING:
            gains.append(f"{best['order']}: {share:.0%} {what} than torch")
    return "; ".join(gains) or "no other order takes less memory or time than torch's"


def _order_table(facts: dict[str, Any], console: Console) -> Table:
    table = columns_table(
        "",
        ("order", False),
        ("gradient bytes over time", False),
        ("peak", True),
        ("makespan", True),
    )
    top = max(max(order["bytes_over_time"]) for order in facts["orders"])
    for order in facts["orders"]:
        table.add_row(
            order["order"],
            sparkline(order["bytes_over_time"], console, top),
            size(order["peak_bytes"]),
            duration(order["makespan_ns"]),
        )
    return table


def _thread_table(facts: dict[str, Any]) -> Table:
    """When each thread is done, by order."""
    orders = facts["orders"]
    table = columns_table(
        "",
        ("thread", False), ("nodes", True), ("busy", True),
        *((order["order"], True) for order in orders),
    )  # fmt: skip
    table.title = "When each thread ends its last node"
    table.title_style = "bold"
    for place, thread in enumerate(orders[0]["threads"]):
        table.add_row(
            styled(facts["threads"].get(str(thread["queue"]), f"device {thread['queue']}")),
            f"{thread['nodes']:,}",
            duration(thread["busy_ns"]),
            *(duration(order["threads"][place]["end_ns"]) for order in orders),
        )
    return table
