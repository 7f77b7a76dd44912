"""What is known of a pass that was not recorded: its gradients, or that it has not ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agviz.analysis.coverage import ALL_PASSES
from agviz.analysis.steps.finding import StepFinding
from agviz_engine.events import LEFT_OUT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.traces.reader import Trace


def unseen(trace: Trace) -> Iterator[StepFinding]:
    """The first pass that was left out and gave gradients that are not finite, or did not end.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    for call in trace.native_calls():
        _, is_left_out, what = call.reason.partition(f"{LEFT_OUT}: ")
        if not is_left_out or call.error:
            continue
        heading = f"{what}, in backward pass {call.graph_task}"
        seen = (
            "A look at the gradients showed it when an optimizer had stepped; where they began is"
            " not known."
        )
        if what == "under way":
            heading = f"backward pass {call.graph_task} had not ended"
            seen = "Which node it was in is not known."
        yield StepFinding(
            kind="left out",
            heading=heading,
            frame=None,
            paragraph=(
                "That pass was left out: so many came before it that only some were recorded."
                f" {seen} {ALL_PASSES} records all passes, and names the node and the line."
            ),
            first_pass=call.graph_task,
        )
        return
