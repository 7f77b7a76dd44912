"""``:back`` and ``:undo`` in the live session, on a program that runs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
import torch

from agviz.tui.live_app import LiveApp
from tests.debugger_support import PRODUCT, debug, result
from tests.live_support import command, press, program, stands, until

if TYPE_CHECKING:
    from pathlib import Path

    from agviz.tui.screen import TraceScreen

WIDE = (160, 60)


def stands_before(session: TraceScreen, name: str) -> bool:
    stop = program(session).stop
    return stop is not None and stop.name.endswith(name) and stands(session)


@pytest.mark.slow
async def test_back_changed_undone_and_on(tmp_path: Path) -> None:
    with debug(tmp_path, PRODUCT, "--back") as debuggee:
        app = LiveApp(debuggee.client, debuggee, tmp_path)
        async with app.run_test(size=WIDE) as pilot:
            session = await until(pilot, lambda session: stands_before(session, "SumBackward0"))
            for name in ("MulBackward0", "AccumulateGrad"):
                await press(pilot, "n")
                session = await until(pilot, partial(stands_before, name=name))
            await command(pilot, "back Mul")
            session = await until(pilot, lambda session: stands_before(session, "MulBackward0"))
            stop = program(session).stop
            assert stop is not None
            assert stop.graph_task == 1
            said = program(session).output.last_lines[-1]
            assert said == "back before MulBackward0: 2 nodes to run again"
            for line in ("change 0 fill 7", "change 0 fill 3", "undo"):
                await command(pilot, line)
            session = await until(
                pilot,
                lambda session: (
                    program(session).output.last_lines[-1].startswith("input 0 is again [3]")
                ),
            )
            await press(pilot, "c")
            await until(pilot, lambda session: program(session).is_over)
        assert debuggee.exit_code() == 0
    (gradient,) = result(tmp_path)
    assert torch.equal(gradient, torch.tensor([28.0, 35.0, 42.0]))
