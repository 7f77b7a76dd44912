"""The live session's keys, on a program that is acted out: what they do and show."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
import torch
from textual.widgets import OptionList

from agviz.debugger.breakpoint_file import PLACE, BreakpointFile
from agviz.debugger.breakpoints import parse
from agviz.tui.live_app import LiveApp
from agviz.tui.model import Key, Playhead
from agviz.tui.other_tasks import TurnsRead
from agviz.tui.panels.graph import GraphPanel
from agviz.tui.panels.inspector import Inspector
from agviz.tui.panels.threads import Threads
from agviz.tui.prompt import Prompt
from agviz.tui.screens.breakpoints import WITHOUT_LINES
from tests.debugger_support import FOUR_DEVICES, debug, natively, result
from tests.live_support import (
    Stage,
    begin,
    command,
    driver,
    press,
    program,
    session_of,
    settle,
    stands,
    until,
)
from tests.tui_support import lines

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from textual.pilot import Pilot

    from agviz.tui.panels.panel import Panel
    from agviz.tui.screen import TraceScreen

WIDE = (160, 60)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path, passes=3)
    yield stage
    stage.close()


def panel(session: TraceScreen, kind: type[Panel]) -> list[str]:
    """What a panel shows."""
    return lines(session.query_one(kind))


def at(session: TraceScreen) -> tuple[int, int | None]:
    """Graph task and node that are shown at the playhead."""
    assert session.view is not None
    return session.view.recording.key.graph_task, session.view.moment.node


def is_all_shown(session: TraceScreen, stage: Stage) -> bool:
    """Whether the program is inside the node where it is held, and the playhead is there."""
    event = None if session.view is None else session.view.moment.event
    return stage.props.holds.is_set() and event is not None and event.seq == stage.props.seq


def stand(pilot: Pilot[None]) -> str:
    """The line that says how the program stands."""
    return str(session_of(pilot).query_one("#live").render())


def said(pilot: Pilot[None]) -> list[str]:
    """The messages that are shown."""
    return [each.message for each in pilot.app._notifications]


async def test_the_tensors_of_the_stopped_node_are_shown(stage: Stage) -> None:
    async with stage.app.run_test(size=WIDE) as pilot:
        await begin(pilot, stage)
        session = await until(pilot, lambda session: program(session).stop_tensors is not None)
        shown = panel(session, Inspector)
        title = shown.index(" Tensors at this stop")
        gradient = stage.props.gradient(0)
        assert shown[title + 1].split() == ["input", "0", "[8,", "16]", "512", "B"]
        assert shown[title + 2].split() == ["float32", "cpu", "✓", "finite"]
        assert f"norm {gradient.norm():.4g}  mean {gradient.mean():.4g}" in shown[title + 3]
        low, *bars, high = shown[title + 4].split()
        assert (low, high) == (f"{gradient.min():.4g}", f"{gradient.max():.4g}")
        assert set("".join(bars)) <= set("▁▂▃▄▅▆▇█")
        first = [f"{value:.4g}" for value in gradient.flatten().tolist()]
        assert shown[title + 5].split()[1:] == first[: len(shown[title + 5].split()) - 1]

        await press(pilot, "4", *"jjjj", "enter")
        assert session.query_one(Prompt).field.value == "print input 0 ["
        await pilot.press("0", "comma", "1", "enter")
        await until(pilot, lambda session: program(session).output.line_count > 0)
        assert program(session).output.last_lines[0] == f"{gradient[0, 1]:.6g}"

        await press(pilot, "N")  # nothing was before: it stays
        session = await press(pilot, "S")
        assert "Tensors at this stop" not in "".join(panel(session, Inspector))
        session = await press(pilot, "c")
        assert "Tensors at this stop" in "".join(panel(session, Inspector))


async def test_a_changed_gradient_is_shown_as_it_is_now(stage: Stage) -> None:
    async with stage.app.run_test(size=WIDE) as pilot:
        await begin(pilot, stage)
        await command(pilot, "change 0 fill 3")
        session = await until(
            pilot,
            lambda session: any("norm 33.94  mean 3" in line for line in panel(session, Inspector)),
        )
        assert any("[ 3 3 3" in line for line in panel(session, Inspector))
        assert (
            program(session)
            .output.last_lines[-1]
            .startswith("input 0 is now [8, 16] float32, 3 … 3")
        )


@pytest.mark.slow
async def test_breakpoints_are_marked_in_the_graph(stage: Stage, tmp_path: Path) -> None:
    async with stage.app.run_test(size=WIDE) as pilot:
        await begin(pilot, stage)
        for line in ("break Relu if norm > 1e9", "tbreak Addmm", "break module=layers.0"):
            await command(pilot, line)
        session = await command(pilot, "disable 3")
        await until(pilot, lambda session: len(program(session).marks) == 11)

        def marked(glyph: str) -> set[str]:
            shown = [line for line in panel(session, GraphPanel) if glyph in line]
            names = {node.name.rpartition(":")[2] for node in stage.nodes}
            return {name for name in names if any(f" {name} " in line for line in shown)}

        assert marked("◆") == {"ReluBackward0"}
        assert marked("◈") == {"AddmmBackward0"}
        assert marked("◇") == {"TBackward0", "AccumulateGrad"}
        await command(pilot, "delete 1")
        session = await until(pilot, lambda session: len(program(session).marks) == 8)
        assert marked("◆") == set()
        kept = BreakpointFile(tmp_path, str(tmp_path / "train.py"))
        assert [each.describe() for each in kept.load()] == ["module=layers.0"]
        await press(pilot, "c")
        session = await until(pilot, stands)
        stop = program(session).stop
        assert stop is not None
        assert stop.breakpoints == (2,)
        await until(pilot, lambda session: not marked("◈"))


async def test_breakpoints_of_another_program_are_not_active(tmp_path: Path) -> None:
    other = BreakpointFile(tmp_path, str(tmp_path / "other.py"))
    other.save([parse("Relu")])
    own = BreakpointFile(tmp_path, str(tmp_path / "train.py"))
    own.save([parse("Addmm"), parse("train.py:33").changed(enabled=False)])
    stage = Stage(tmp_path)
    try:
        async with stage.app.run_test(size=WIDE) as pilot:
            await begin(pilot, stage)
            assert said(pilot)[0] == (
                "2 breakpoints loaded from .agviz/breakpoints.json: name=Addmm,"
                " line=train.py:33 (off)."
            )
            found = [each.describe() for each in stage.debugger.breakpoints]
            assert found == ["name=Addmm", "line=train.py:33"]
            await command(pilot, "delete 1")
            session = await until(
                pilot, lambda session: len(driver(session).breakpoints.known) == 1
            )
            assert [each.describe() for each in driver(session).breakpoints.known] == [
                "line=train.py:33"
            ]
            assert [each.describe() for each in other.load()] == ["name=Relu"]
    finally:
        stage.close()


@pytest.mark.slow
async def test_breakpoints_of_no_known_program_are_off_and_that_is_said(tmp_path: Path) -> None:
    path = tmp_path / PLACE
    path.parent.mkdir()
    path.write_text('{"version": 1, "breakpoints": [{"name": "Relu"}]}')
    stage = Stage(tmp_path)
    try:
        async with stage.app.run_test(size=(80, 24)) as pilot:
            await begin(pilot, stage)
            assert said(pilot)[0] == (
                "1 breakpoint in .agviz/breakpoints.json may be of another program and is off until"
                " you switch it on (B): name=Relu (off)."
            )
            await command(pilot, "enable 1")
            await until(pilot, lambda session: driver(session).breakpoints.known[0].enabled)
            assert [each.enabled for each in stage.debugger.breakpoints] == [True]
            kept = BreakpointFile(tmp_path, str(tmp_path / "train.py"))
            assert [each.enabled for each in kept.load()] == [True]
            assert BreakpointFile(tmp_path, str(tmp_path / "other.py")).load() == []
    finally:
        stage.close()


@pytest.mark.slow
async def test_a_program_that_knows_no_lines_says_so_and_marks_sequence_numbers(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path, lines=False)
    try:
        async with stage.app.run_test(size=WIDE) as pilot:
            await begin(pilot, stage)
            await command(pilot, "break seq=99")
            session = await until(pilot, lambda session: bool(program(session).marks))
            marked = [node.index for node in stage.nodes if node.sequence_nr == 99]
            assert list(program(session).marks) == marked == [1]
            (line,) = (line for line in panel(session, GraphPanel) if "◆" in line)
            assert " ReluBackward0 " in line

            await command(pilot, "break train.py:13")
            await until(pilot, lambda _: any("never stop" in each for each in said(pilot)))
            await press(pilot, "B")
            box = pilot.app.screen.query_one(OptionList)
            shown = [str(box.get_option_at_index(place).prompt) for place in range(2)]
            assert shown[0].split("  ")[-1] == "seq=99"
            assert shown[1].endswith(f"line=train.py:13   never stops: {WITHOUT_LINES}")
            await press(pilot, "escape", "c")
            await until(pilot, lambda session: stands(session, 1))
    finally:
        stage.close()


@pytest.mark.slow
async def test_one_goes_back_through_all_backward_passes_and_returns(stage: Stage) -> None:
    async with stage.app.run_test(size=WIDE) as pilot:
        await begin(pilot, stage)
        await command(pilot, "break MseLoss")
        await press(pilot, "c")
        session = await until(pilot, lambda session: stands(session) and at(session)[0] == 1)
        now = program(session).stop
        assert at(session) == (1, 0)
        assert "· now" in stand(pilot)

        session = await press(pilot, "N")
        assert at(session)[0] == 0
        assert session.view is not None
        assert session.view.moment.executed > 15
        assert "you look at the past" in stand(pilot)
        before = at(session)
        await press(pilot, "N", "N")
        session = await press(pilot, "n", "n")
        assert at(session) == before
        session = await press(pilot, "n")
        assert at(session) == (1, 0)
        assert "· now" in stand(pilot)
        await press(pilot, *"SSSSSSSSSSSS")
        assert at(session)[0] == 0
        session = await press(pilot, "c")
        assert at(session) == (1, 0)
        assert program(session).stop is now  # nothing has run meanwhile
        await press(pilot, "n")
        session = await until(pilot, lambda session: stands(session, 1))
        assert at(session) == (1, 1)


async def test_a_stop_is_reached_whatever_waits_to_be_read(tmp_path: Path) -> None:
    stage = Stage(tmp_path, passes=2)
    may_read = threading.Event()
    try:
        async with stage.app.run_test(size=WIDE) as pilot:
            session = await begin(pilot, stage)
            await command(pilot, "break MseLoss")
            await press(pilot, "c")
            session = await until(pilot, lambda session: stands(session) and at(session)[0] == 1)
            session.driver.go(0, 5)
            session = await settle(pilot)
            assert at(session)[0] == 0
            # What the session does where a list of passes and a stop are heard at the same moment.
            session.reader.ask(lambda *_: may_read.wait(60), lambda _: None)
            session.reader.load(Key(0, 1))
            session.reader.move(Playhead.to_end)
            driver(session).go_to_now()
            may_read.set()
            session = await settle(pilot)
            assert stands(session)
    finally:
        may_read.set()
        stage.close()


@pytest.mark.slow
async def test_steps_of_a_chosen_thread_pass_over_the_others(stage: Stage) -> None:
    async with stage.app.run_test(size=WIDE) as pilot:
        await begin(pilot, stage)
        await press(pilot, *"nnnnnnnnnnnn")
        session = await until(pilot, stands)
        await command(pilot, "thread 1")
        for _ in range(14):
            await press(pilot, "n")
            session = await until(pilot, stands)
            stop = program(session).stop
            assert stop is not None
            assert stop.thread == 1
        stop = program(session).stop
        assert stop is not None
        assert stop.graph_task > 0  # it went on into the next backward pass
        assert session.view is not None
        assert session.view.thread == 1
        assert any(line.startswith("▶■T1") for line in panel(session, Threads))
        await press(pilot, "m")
        seen = set()
        for _ in range(8):
            await press(pilot, "n")
            session = await until(pilot, stands)
            stop = program(session).stop
            assert stop is not None
            seen.add(stop.thread)
        assert len(seen) > 1


async def test_a_count_runs_so_many_nodes(stage: Stage) -> None:
    async with stage.app.run_test(size=WIDE) as pilot:
        await begin(pilot, stage)
        session = await command(pilot, "next 10")
        session = await until(
            pilot, lambda session: stands(session) and not driver(session).is_stepping
        )
        assert session.view is not None
        assert len(session.view.recording.columns.started) == 11


async def test_keys_have_an_effect_that_is_seen_while_the_program_runs(stage: Stage) -> None:
    async with stage.app.run_test(size=WIDE) as pilot:
        await begin(pilot, stage)
        stage.props.hold_at = 11
        await press(pilot, "c")
        await until(pilot, lambda session: is_all_shown(session, stage))
        assert "● The program runs" in stand(pilot)
        for key in ("n", "s", "c", "o", "exclamation_mark"):
            pilot.app.clear_notifications()
            await press(pilot, key)
            assert any("runs" in each for each in said(pilot)), key
        await press(pilot, "ctrl+c")
        stage.props.may_go.set()
        session = await until(pilot, stands)
        stop = program(session).stop
        assert stop is not None
        assert stop.reasons == ("pause",)


@pytest.mark.slow
async def test_the_file_is_opened_anew_where_one_looked_at_it(stage: Stage) -> None:
    async with stage.app.run_test(size=WIDE) as pilot:
        await begin(pilot, stage)
        await press(pilot, "n", "n")
        await until(pilot, lambda session: stands(session, 2))
        session = await press(pilot, "N")
        past = at(session)
        assert past == (0, 1)
        session = await press(pilot, "R")
        assert at(session) == past
        assert "you look at the past" in stand(pilot)
        session = await press(pilot, "c", "R")
        assert stands(session, 2)
        await press(pilot, "n")
        await until(pilot, lambda session: stands(session, 3))

        stage.props.hold_at = 11
        await press(pilot, "c")
        await until(pilot, lambda session: is_all_shown(session, stage))
        there = at(await press(pilot, "N"))
        assert at(await press(pilot, "R")) == there
        stage.props.may_go.set()
        assert at(await press(pilot, "N"))[1] != there[1]


async def test_a_dead_program_leaves_what_it_did(stage: Stage) -> None:
    async with stage.app.run_test(size=WIDE) as pilot:
        await begin(pilot, stage)
        await press(pilot, *"nnn")
        await until(pilot, stands)
        stage.end(-11)
        session = await until(pilot, lambda session: program(session).is_over)
        assert "✗ The program was ended by SIGSEGV" in stand(pilot)
        assert "Tensors at this stop" not in "".join(panel(session, Inspector))
        assert session.view is not None
        there = session.view.moment.position
        session = await press(pilot, "N")
        assert session.view is not None
        assert session.view.moment.position < there
        await press(pilot, "q")
        await settle(pilot)
        assert not pilot.app.is_running or pilot.app._exit


TWO_THREADS = """
import threading
import torch
meeting = threading.Barrier(2)
results = {}
def meet(gradient):
    meeting.wait()
def work(scale):
    x = torch.ones(3, requires_grad=True)
    product = x * scale
    product.register_hook(meet)
    product.exp().sin().sum().backward()
    results[scale] = x.grad
threads = [threading.Thread(target=work, args=(float(scale),)) for scale in (2, 3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
torch.save([results[scale] for scale in sorted(results)], "result.pt")
"""


async def begun(pilot: Pilot[None]) -> TraceScreen:
    """Wait until a program in a process of its own stands."""
    return await until(pilot, stands)


async def test_an_answer_about_another_graph_task_than_the_shown_changes_nothing(
    stage: Stage,
) -> None:
    async with stage.app.run_test(size=WIDE) as pilot:
        session = await begin(pilot, stage)
        assert session.view is not None
        key, before = session.view.recording.key, program(session).other_tasks
        other = key._replace(graph_task=key.graph_task + 1)
        late = TurnsRead(other, -1, [], session.view.moment.position)
        session.reader.ask(lambda *_: late, driver(session)._take_turns)
        session = await settle(pilot)
        assert before is not None
        assert program(session).other_tasks == before


@pytest.mark.slow
async def test_what_threads_do_in_other_backward_passes_is_shown(tmp_path: Path) -> None:
    with debug(tmp_path, TWO_THREADS) as debuggee:
        app = LiveApp(debuggee.client, debuggee, tmp_path)
        async with app.run_test(size=WIDE) as pilot:
            session = await begun(pilot)
            seen = {at(session)[0]}
            while seen != {0, 1} or not getattr(program(session).other_tasks, "threads", ()):
                await press(pilot, "n")
                session = await until(pilot, stands)
                seen.add(at(session)[0])
                assert len(seen) <= 2
            assert seen == {0, 1}
            here = at(session)[0]
            shown = panel(session, Threads)
            line = next(number for number, text in enumerate(shown) if "▒" in text)
            await pilot.click(Threads, offset=(shown[line].index("▒") + 1, line + 1))
            session = await settle(pilot)
            assert at(session)[0] == 1 - here
            assert "you look at the past" in stand(pilot)
            session = await press(pilot, "c")
            assert at(session)[0] == here
            assert "· now" in stand(pilot)
            await press(pilot, "c")
            await until(pilot, lambda session: program(session).is_over)
        assert debuggee.exit_code() == 0
    assert all(map(torch.equal, result(tmp_path), natively(TWO_THREADS)))


@pytest.mark.slow
async def test_several_threads_stand_where_a_stop_holds_only_its_own(tmp_path: Path) -> None:
    with debug(tmp_path, FOUR_DEVICES) as debuggee:
        app = LiveApp(debuggee.client, debuggee, tmp_path)
        async with app.run_test(size=WIDE) as pilot:
            await begun(pilot)
            await command(pilot, "hold one")
            await command(pilot, "break Neg")
            await press(pilot, "c")
            session = await until(pilot, lambda session: len(program(session).stops) >= 2)
            first, other = (
                program(session).stop,
                next(iter(set(program(session).stops) - {program(session).looked_at})),
            )
            assert first is not None
            assert f"{len(program(session).stops)} threads stopped" in stand(pilot)
            await command(pilot, f"thread {other}")
            session = await until(pilot, stands)
            assert program(session).stop is program(session).stops[other]
            for _ in range(3):
                await press(pilot, "n")
                session = await until(
                    pilot, lambda session: other in program(session).stops and stands(session)
                )
                stop = program(session).stop
                assert stop is not None
                assert stop.thread == other
            assert program(session).stops[first.thread] is first  # it has not moved
            await command(pilot, f"thread {first.thread}")
            session = await until(pilot, stands)
            assert program(session).stop is first
            await command(pilot, "delete 1")
            await command(pilot, "hold all")
            await press(pilot, "c")
            session = await until(pilot, lambda session: program(session).is_over)
        assert debuggee.exit_code() == 0
    assert all(map(torch.equal, result(tmp_path), natively(FOUR_DEVICES)))
