"""Schedules of a recorded backward pass under other queue orders.

Two oracles: the order and the memory that torch's own order is recorded to have, and the plainest
possible account of what any order means, written here once more.
"""

from __future__ import annotations

import itertools
import json
import re
from random import Random
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import agviz
from agviz.analysis.schedule import ORDERS, Handing, Plan, plan, simulate
from agviz.cli.main import main
from agviz.record.recorder import Recorder
from agviz.traces.reader import Trace
from agviz.traces.rows import GraphTaskStatus
from agviz_engine.instruments import Registry
from tests.engine.programs import PROGRAMS
from tests.event_simulator import Simulator, random_graph

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@st.composite
def plans(draw: st.DrawFn, queues: int = 1, *, steady: bool = False) -> Plan:
    """Small graphs. ``steady``: a slot stays as large as its first gradient made it.

    No two sums of durations are equal, so that nothing happens at the same time.
    """
    size = draw(st.integers(1, 7))
    handings: list[list[Handing]] = [[] for _ in range(size)]
    held: dict[tuple[int, int], list[int]] = {}
    for consumer in range(1, size):
        for producer in draw(st.sets(st.integers(0, consumer - 1), min_size=1, max_size=3)):
            slot, has_gradient = draw(st.integers(0, 1)), draw(st.integers(0, 5)) > 0
            handings[producer].append(Handing(consumer, slot, has_gradient))
            if has_gradient:
                sizes = held.setdefault((consumer, slot), [])
                sizes.append(sizes[0] if steady and sizes else draw(st.integers(0, 9)))
    held[0, 0] = [draw(st.integers(0, 9))]
    made = st.one_of(st.none(), st.integers(0, 3))
    return Plan(
        queues=draw(st.lists(st.integers(0, queues - 1), min_size=size, max_size=size)),
        sequence_nrs=draw(st.lists(made, min_size=size, max_size=size)),
        runs=[True] * size,
        times_ns=[3**node for node in range(size)],
        handings=handings,
        held=held,
        given=[(0, 0)],
    )


def producers(plan: Plan) -> list[set[int]]:
    found: list[set[int]] = [set() for _ in plan.runs]
    for producer, handings in enumerate(plan.handings):
        for handing in handings:
            found[handing.consumer].add(producer)
    return found


def is_possible(plan: Plan, nodes: Sequence[int]) -> bool:
    """Whether every node comes after all that give it a gradient."""
    place = {node: number for number, node in enumerate(nodes)}
    return len(place) == len(nodes) == len(plan.runs) and all(
        place[producer] < place[node]
        for node, before in enumerate(producers(plan))
        for producer in before
    )


def amounts(plan: Plan, finished: Sequence[int]) -> list[int]:
    """Bytes in all InputBuffers at every moment while nodes finish in this order.

    Counted anew at each moment: of every slot of a node that has not finished, how many gradients
    have arrived.
    """
    found = []
    for count in range(len(finished) + 1):
        gone = set(finished[:count])
        arrived = [*plan.given]
        for node in finished[: max(0, count - 1)]:
            arrived += [(h.consumer, h.slot) for h in plan.handings[node] if h.has_gradient]
        last = plan.handings[finished[count - 1]] if count else []
        for handed in range(len(last) + 1):
            now = arrived + [(h.consumer, h.slot) for h in last[:handed] if h.has_gradient]
            found.append(
                sum(
                    plan.held[place][now.count(place) - 1]
                    for place in set(now)
                    if place[0] not in gone
                )
            )
    return found


@pytest.mark.slow_but_one_in(2)
@pytest.mark.parametrize("order", ORDERS)
@given(plan=plans())
def test_one_thread(order: str, plan: Plan) -> None:
    schedule = simulate(plan, order)
    assert is_possible(plan, schedule.nodes)
    expected = amounts(plan, schedule.nodes)
    assert schedule.peak_bytes == max(expected)
    assert [
        now for now, then in itertools.pairwise([v for _, v in schedule.course]) if now != then
    ] == [now for now, then in itertools.pairwise(expected) if now != then]
    assert schedule.makespan_ns == sum(plan.times_ns)
    (thread,) = schedule.threads
    assert (thread.busy_ns, thread.end_ns) == (schedule.makespan_ns,) * 2


@pytest.mark.slow_but_one_in(2)
@pytest.mark.parametrize("order", ORDERS)
@given(plan=plans(queues=3))
def test_several_threads(order: str, plan: Plan) -> None:
    schedule = simulate(plan, order)
    assert is_possible(plan, schedule.nodes)
    ends: dict[int, int] = {}
    begins: dict[int, int] = {}
    free = dict.fromkeys(plan.queues, 0)
    for node in schedule.nodes:
        before = producers(plan)[node]
        begins[node] = max([free[plan.queues[node]], *(ends[other] for other in before)])
        free[plan.queues[node]] = ends[node] = begins[node] + plan.times_ns[node]
    assert [begins[node] for node in schedule.nodes] == sorted(begins.values())
    assert {thread.queue: thread.end_ns for thread in schedule.threads} == free
    assert schedule.makespan_ns == max(free.values())
    assert sum(thread.nodes for thread in schedule.threads) == len(plan.runs)
    finished = sorted(ends, key=ends.__getitem__)
    assert schedule.peak_bytes == max(amounts(plan, finished))


@given(plan=plans())
def test_no_order_beats_the_best_of_all(plan: Plan) -> None:
    every = itertools.permutations(range(len(plan.runs)))
    best = min(max(amounts(plan, nodes)) for nodes in every if is_possible(plan, nodes))
    assert all(simulate(plan, order).peak_bytes >= best for order in ORDERS)


@given(plan=plans(steady=True))
def test_the_memory_order_takes_the_node_after_which_the_least_is_held(plan: Plan) -> None:
    nodes = simulate(plan, "memory").nodes
    before = producers(plan)
    for count, chosen in enumerate(nodes):
        done = nodes[:count]
        ready = [node for node in nodes[count:] if before[node] <= set(done)]
        after = {node: amounts(plan, [*done, node])[-1] for node in ready}
        assert after[chosen] == min(after.values())


def test_the_memory_order_sees_that_others_made_room() -> None:
    """Once 1 has filled the slot that 2 gives to as well, 2 takes no more and goes before 3."""
    plan = Plan(
        queues=[0] * 6,
        sequence_nrs=[9, 8, 7, 6, 5, 4],
        runs=[True] * 6,
        times_ns=[1] * 6,
        handings=[
            [Handing(1, 0, True), Handing(2, 0, True)],
            [Handing(4, 0, True), Handing(3, 0, True)],
            [Handing(4, 0, True)],
            [Handing(5, 0, True)],
            [],
            [],
        ],
        held={
            (0, 0): [0], (1, 0): [1], (2, 0): [0], (3, 0): [1], (4, 0): [4, 4], (5, 0): [2],
        },
        given=[(0, 0)],
    )  # fmt: skip
    assert simulate(plan, "memory").nodes[:4] == [0, 1, 2, 4]


@given(plan=plans())
def test_fifo_and_lifo_are_what_they_are_called(plan: Plan) -> None:
    for order, end in (("fifo", 0), ("lifo", -1)):
        waiting, told, missing = [0], [], [0] * len(plan.runs)
        for handings in plan.handings:
            for handing in handings:
                missing[handing.consumer] += 1
        while waiting:
            node = waiting.pop(end)
            told.append(node)
            for handing in plan.handings[node]:
                missing[handing.consumer] -= 1
                if not missing[handing.consumer]:
                    waiting.append(handing.consumer)
        assert simulate(plan, order).nodes == told


def assert_torch_order_is_recorded(trace: Trace) -> int:
    """Hold the simulation of torch's order against the record; give the number of passes.

    What the state says of memory includes passes inside; so it is asked of the others.
    """
    parents = {task.parent for task in trace.graph_tasks}
    tasks = [task for task in trace.graph_tasks if task.status is GraphTaskStatus.FINISHED]
    for task in tasks:
        schedule = simulate(plan(trace, task.id), "torch")
        rows = trace.executions(task.id)
        assert schedule.nodes == [row.node for row in rows]
        assert schedule.makespan_ns == sum((row.end_ns or 0) - row.start_ns for row in rows)
        if task.parent >= 0 or task.id in parents:
            continue
        last = trace.events(task.id, limit=1_000_000)[-1].seq
        peak = max(each.total for each in trace.live_changes(task.begin_seq, last))
        assert schedule.peak_bytes == peak > 0
    return len(tasks)


@pytest.mark.parametrize("name", PROGRAMS)
def test_torch_order_is_the_recorded_one(name: str, tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    with agviz.trace(path=path, values="none", provenance=False):
        PROGRAMS[name]()
    with Trace.open(path) as trace:
        assert assert_torch_order_is_recorded(trace) > 0


@pytest.mark.parametrize("seed", range(8))
def test_torch_order_of_made_up_graphs_is_the_recorded_one(seed: int, tmp_path: Path) -> None:
    rng, registry = Random(seed), Registry()
    recorder = Recorder(tmp_path / "t.agviz")
    registry.add(recorder)
    simulator = Simulator(registry, rng)
    for _ in range(5):
        simulator.backward(random_graph(rng, rng.randint(2, 60)))
    recorder.close()
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert assert_torch_order_is_recorded(trace) == 5


def wide() -> torch.Tensor:
    """Several branches: where all are begun before one is ended, each holds its gradient."""
    x = torch.ones(64, requires_grad=True)
    branches = [x * number for number in range(1, 9)]
    return torch.stack([branch.sin().sum() for branch in branches]).sum()


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    path = tmp_path / "t.agviz"
    with agviz.trace(path=path):
        wide().backward()
    return path


def facts(capsys: pytest.CaptureFixture[str], *call: str) -> dict[str, object]:
    assert main(["whatif", *call, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_breadth_costs_memory(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    orders = facts(capsys, str(recorded))["orders"]
    assert isinstance(orders, list)
    peak = {order["order"]: order["peak_bytes"] for order in orders}
    assert list(peak) == ["torch", "fifo", "lifo", "memory"]
    assert peak["memory"] <= min(peak.values())
    assert peak["fifo"] > peak["memory"]
    assert {max(order["bytes_over_time"]) == order["peak_bytes"] for order in orders} == {True}


def test_the_table_fits_a_terminal(
    recorded: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["whatif", str(recorded)]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert re.search(r"\n(lifo|memory): \d+% less memory than torch", text)
    first = [line.partition(" ")[0] for line in text.splitlines()]
    assert [word for word in first if word in ORDERS] == [*ORDERS]
    assert main(["whatif", str(recorded), "--order", "lifo"]) == 0
    assert "fifo" not in capsys.readouterr().out


def test_each_thread_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.agviz"
    with agviz.trace(path=path, device_policy=lambda node: node._sequence_nr() % 2):
        wide().backward()
    assert main(["whatif", str(path)]) == 0
    text = capsys.readouterr().out
    assert "pt_autograd_0" in text
    assert "pt_autograd_1" in text
    assert "as long beside others" in text


def test_what_runs_inside_a_node_is_part_of_it(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    with agviz.trace(path=path):
        PROGRAMS["reentrant_checkpoint"]()
    with Trace.open(path) as trace:
        outer = next(task for task in trace.graph_tasks if task.parent < 0)
        inner = [task for task in trace.graph_tasks if task.parent == outer.id]
        assert inner
        took = sum((task.end_ns or 0) - task.begin_ns for task in inner)
        assert simulate(plan(trace, outer.id), "torch").makespan_ns > took


def test_what_can_not_be_simulated_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: torch.Tensor) -> None:
        raise ValueError("of ours")

    failed, chosen, empty = (str(tmp_path / name) for name in ("f.agviz", "c.agviz", "e.agviz"))
    x = torch.ones(3, requires_grad=True)
    y = x.sin()
    y.register_hook(fail)
    with agviz.trace(path=failed), pytest.raises(ValueError, match="of ours"):
        y.sum().backward()
    with agviz.trace(path=chosen, nodes="Sin"):
        x.sin().sum().backward()
    with agviz.trace(path=empty):
        pass
    number = str(agviz.load(failed).graph_tasks[0].id)
    for call, sentence in (
        ([failed], "holds no backward pass that finished"),
        ([failed, "--graph-task", number], "did not finish (failed)"),
        ([chosen], "--nodes"),
        ([empty], "holds no backward pass"),
        ([chosen, "--graph-task", "999999"], "no graph task 999999"),
    ):
        assert main(["whatif", *call]) == 2
        assert sentence in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(["whatif", chosen, "--order", "best"])
    assert ended.value.code == 2


def test_a_plan_of_a_pass_with_inputs_runs_what_ran(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    x, w = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    with agviz.trace(path=path):
        torch.autograd.grad((x.sin() * w.cos()).sum(), [x])
    with Trace.open(path) as trace:
        planned = plan(trace, trace.graph_tasks[0].id)
        assert 0 < sum(planned.runs) < len(planned.runs)
        for order in ORDERS:
            assert len(simulate(planned, order).nodes) == sum(planned.runs)
