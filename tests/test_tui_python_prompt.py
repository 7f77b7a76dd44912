"""Python typed at a stop: compound statements, completion, history, and no key that does else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from textual import events
from textual.keys import _character_to_key

from agviz.tui.live_app import LiveApp
from agviz.tui.prompt import Prompt
from agviz.tui.python_field import PythonField
from tests.debugger_support import PRODUCT, TRAIN, debug
from tests.live_support import command, press, program, settle, stands, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from textual.pilot import Pilot

    from agviz.debugger.launch import Debuggee
    from agviz.tui.screen import TraceScreen

_KEYS = {"\n": "enter", "\t": "tab"}

pytestmark = pytest.mark.slow


@pytest.fixture
def debuggee(tmp_path: Path) -> Iterator[Debuggee]:
    with debug(tmp_path, TRAIN) as started:
        yield started


def app_of(debuggee: Debuggee, folder: Path) -> LiveApp:
    return LiveApp(debuggee.client, debuggee, folder)


def printed(session: TraceScreen) -> list[str]:
    """The lines of the output panel."""
    output = program(session).output
    return [output._at(n)[1] for n in range(output.line_count)]


def typed(session: TraceScreen) -> str:
    return session.query_one(PythonField).text


def is_open(session: TraceScreen) -> bool:
    return session.query_one(Prompt).has_class("-open")


def send(pilot: Pilot[None], text: str) -> None:
    """Type without waiting for anything."""
    for character in text:
        key = _KEYS.get(character) or _character_to_key(character)
        pilot.app.post_message(events.Key(key, character))


async def soon(pilot: Pilot[None], true: Callable[[], bool]) -> None:
    """Wait while Python runs, which :func:`settle` would wait for."""
    for _ in range(500):
        if true():
            return
        await pilot.pause(0.02)
    raise AssertionError("this never came")


async def write(pilot: Pilot[None], text: str) -> None:
    send(pilot, text)
    await settle(pilot)


async def type_lines(pilot: Pilot[None], *lines: str) -> TraceScreen:
    """Type lines as a user does, each with enter at its end; indents come by themselves."""
    session = None
    for line in lines:
        await write(pilot, line)
        session = await press(pilot, "enter")
    assert session is not None
    return await until(pilot, lambda session: not program(session).runs_python)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_compound_statements_are_typed_and_run(
    debuggee: Debuggee, tmp_path: Path, size: tuple[int, int]
) -> None:
    async with app_of(debuggee, tmp_path).run_test(size=size) as pilot:
        session = await until(pilot, stands, 60.0)
        before = program(session).stop
        await press(pilot, "exclamation_mark")
        session = await type_lines(pilot, "for i in range(3): print(i)")
        assert typed(session) == "for i in range(3): print(i)\n", "it waits for a blank line"
        assert session.query_one(Prompt).size.height == 2
        session = await type_lines(pilot, "")
        assert printed(session)[-4:] == ["for i in range(3): print(i)", "0", "1", "2"]
        assert typed(session) == ""
        assert session.query_one(Prompt).size.height == 1
        # Letters that are keys of the session, each of which would do something.
        session = await type_lines(pilot, "def n(q):", "c = q + 1", "return c", "", "n(41) != 7")
        assert printed(session)[-1] == "True"
        assert program(session).stop is before, "nothing has run"
        assert is_open(session)
        session = await press(pilot, "escape")
        assert not is_open(session)
        await press(pilot, "n")
        await until(pilot, lambda session: stands(session) and program(session).stop is not before)


async def test_lines_are_pasted(debuggee: Debuggee, tmp_path: Path) -> None:
    async with app_of(debuggee, tmp_path).run_test(size=(80, 24)) as pilot:
        await until(pilot, stands, 60.0)
        session = await press(pilot, "exclamation_mark")
        text = "def f(x):\r\n\ty = x\r\n\r\n\treturn y + 1\r\n\r\nf(1)\r\nf(2)\r\n"
        session.query_one(PythonField).post_message(events.Paste(text))
        await press(pilot, "enter")
        session = await until(pilot, lambda session: not program(session).runs_python)
        assert printed(session)[-2:] == ["2", "3"]


async def test_names_are_completed(debuggee: Debuggee, tmp_path: Path) -> None:
    async with app_of(debuggee, tmp_path).run_test(size=(120, 40)) as pilot:
        await until(pilot, stands, 60.0)
        await press(pilot, "exclamation_mark")
        send(pilot, "gra\t")  # fast: tab comes behind what was typed
        session = await settle(pilot)
        assert typed(session) == "grads"
        await write(pilot, "[0].requires_g")
        session = await press(pilot, "tab")
        assert typed(session) == "grads[0].requires_grad"
        session = await press(pilot, "tab", "tab")
        assert {"grads[0].requires_grad", "grads[0].requires_grad_"} <= set(
            printed(session)[-1].split()
        )
        await press(pilot, "ctrl+c")
        session = await press(pilot, "tab")
        assert typed(session) == "    "
        session = await press(pilot, "backspace")
        assert typed(session) == ""
        await write(pilot, "no_such_name")
        session = await press(pilot, "tab")
        assert typed(session) == "no_such_name"


async def test_what_was_typed_comes_back(debuggee: Debuggee, tmp_path: Path) -> None:
    async with app_of(debuggee, tmp_path).run_test(size=(80, 24)) as pilot:
        await until(pilot, stands, 60.0)
        await press(pilot, "exclamation_mark")
        await type_lines(pilot, "a = 1", "for i in range(2):", "print(i)", "", "b = 2")
        await write(pilot, "draft")
        session = await press(pilot, "up")
        assert typed(session) == "b = 2"
        session = await press(pilot, "up")
        assert typed(session) == "for i in range(2):\n    print(i)"
        session = await press(pilot, "up", "up")
        assert typed(session) == "a = 1"
        session = await press(pilot, "down", "down", "down")
        assert typed(session) == "draft"
        session = await press(pilot, "ctrl+c")
        assert typed(session) == ""
        assert program(session).is_stopped()
        await press(pilot, "escape", "exclamation_mark")
        session = await press(pilot, "up", "up")
        assert typed(session) == "for i in range(2):\n    print(i)"
        await type_lines(pilot, "", "")
        assert printed(session)[-2:] == ["0", "1"]


async def test_one_line_of_python_is_a_command(debuggee: Debuggee, tmp_path: Path) -> None:
    async with app_of(debuggee, tmp_path).run_test(size=(120, 40)) as pilot:
        await until(pilot, stands, 60.0)
        await command(pilot, "python for i in range(2): print(i + 40)")
        session = await until(pilot, lambda session: not program(session).runs_python)
        assert printed(session)[-2:] == ["40", "41"]
        await command(pilot, "python (1 +")
        session = await until(pilot, lambda session: not program(session).runs_python)
        said = [each.message for each in pilot.app._notifications]
        assert any("press !" in each for each in said)


async def test_python_that_runs_on_does_not_take_keys_for_hotkeys(tmp_path: Path) -> None:
    with debug(tmp_path, PRODUCT) as debuggee:
        async with app_of(debuggee, tmp_path).run_test(size=(80, 24)) as pilot:
            session = await until(pilot, stands, 60.0)
            before = program(session).stop
            await press(pilot, "exclamation_mark")
            send(pilot, "import time\nfor i in range(1000): time.sleep(0.01)\n\n")
            await soon(pilot, lambda: program(session).runs_python)
            send(pilot, "nncq")
            await soon(pilot, lambda: typed(session) == "nncq")
            await pilot.pause(0.3)
            assert program(session).runs_python
            await pilot.press("ctrl+c")
            session = await until(pilot, lambda session: not program(session).runs_python)
            assert program(session).stop is before
            assert typed(session) == "nncq"
            assert any("KeyboardInterrupt" in line for line in printed(session))
