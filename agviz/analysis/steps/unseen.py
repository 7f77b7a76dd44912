"""Gradients that were not finite in a pass of which nothing else is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agviz.analysis.steps.finding import StepFinding
from agviz_engine.events import LEFT_OUT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.traces.reader import Trace


def unseen(trace: Trace) -> Iterator[StepFinding]:
    """The first step that followed gradients that were not finite, of a pass that was left out.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    for call in trace.native_calls():
        _, is_left_out, what = call.reason.partition(f"{LEFT_OUT}, with ")
        if is_left_out and not call.error:
            yield StepFinding(
                kind="left out",
                heading=f"{what}, in backward pass {call.graph_task}",
                frame=None,
                paragraph=(
                    "That pass was not recorded: so many came before it that only some were. A look"
                    " at the gradients showed it when an optimizer had stepped; where they began is"
                    " not known. --agviz=on records all passes, and names the node and the line."
                ),
                first_pass=call.graph_task,
            )
            return
