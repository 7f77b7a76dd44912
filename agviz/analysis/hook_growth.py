"""Hooks that are registered again and again, and never removed."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agviz.analysis.code_search import line_of_call
from agviz.traces.rows import visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.traces.hook_counts import HookCount
    from agviz.traces.reader import Trace
    from agviz.traces.rows import Frame

_LEAST_RISES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class HookGrowth:
    """Hooks that become more from pass to pass."""

    counts: tuple[HookCount, ...]
    """In order of time."""
    frame: Frame | None
    """Where they are registered, as far as that is known; else where the hook is defined."""
    graph_task: None = None

    @property
    def heading(self) -> str:
        """How many there were first and last."""
        first, last = self.counts[0], self.counts[-1]
        return (
            f"hooks pile up: {first.hooks:,} before pass {first.graph_task},"
            f" {last.hooks:,} before pass {last.graph_task}"
        )

    @property
    def paragraph(self) -> str:
        """Which, and what to do."""
        last = self.counts[-1]
        of = f" on {last.owner}" if last.owner else ""
        named = f", the last of them {last.hook}" if last.hook else ""
        return (
            f"{last.most:,} are{of}{named}. Each is called in every pass, so each step is slower"
            " than the one before, and what the hooks refer to stays in memory. Register the hook"
            " once, before the loop, or call remove() of the handle that registering gives before"
            " the next one is registered. Whether they are removed after the last pass is not seen."
        )

    def details(self) -> Iterator[str]:
        """What the answer rests on, line by line."""
        for count in self.counts:
            yield f"{count.hooks:,} hooks before pass {count.graph_task}"

    def as_json(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {
            "kind": "hook_growth",
            "owner": self.counts[-1].owner,
            "hook": self.counts[-1].hook,
            "counts": [[count.graph_task, count.hooks] for count in self.counts],
        }


def hook_growth(trace: Trace) -> HookGrowth | None:
    """Hooks that became more during the whole recording; None: they did not.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    counts = trace.hook_counts()
    steps = [after.hooks - before.hooks for before, after in itertools.pairwise(counts)]
    if sum(step > 0 for step in steps) < _LEAST_RISES or min(steps) < 0 or not any(steps[-2:]):
        return None
    if counts[-1].most - counts[0].most < _LEAST_RISES:  # a model that grows has more of them
        return None
    return HookGrowth(counts=tuple(counts), frame=_frame(trace, counts[-1]))


def _frame(trace: Trace, last: HookCount) -> Frame | None:
    call = trace.call_site(last.graph_task)
    registered = line_of_call(
        trace,
        (*last.definition, *call),
        lambda name: name.startswith("register_") and name.endswith("hook"),
    )
    return registered or visible(last.definition) or visible(call)
