"""A state that is detached at each step of a recurrence, so that only the last step is trained.

Note [What nothing else uses]
Each call but the last made a graph that nobody goes back through: all that uses what it gave is a
``detach`` whose result the next call of the same line takes. Where something else uses it as well,
as a loss of each step, the cut is one of truncated backpropagation. Who means to train the last
step alone leaves the others without a graph, so it is said and not judged.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from agviz.analysis.lineage import last_name
from agviz.analysis.program_calls import last_passes, ops_of_pass, users_of
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from agviz.traces.reader import Trace
    from agviz.traces.rows import ForwardOpRow, Frame

_LEAST: Final = 3
"""Steps."""


def cut_recurrence(trace: Trace) -> StepFinding | None:
    """The line that cuts the steps of the last pass's recurrence; None: none is seen.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    if not trace.meta.check_forward:
        return None
    for task in last_passes(trace, 1):
        ops = ops_of_pass(trace, task.id)
        users = users_of(ops)
        cuts: Counter[tuple[Frame | None, Frame | None]] = Counter()
        for before in ops:
            after = [user for row in before.outputs for user in users[row.tensor]]
            if after and all(last_name(user) == "detach" for user in after):
                given = [user for cut in after for row in cut.outputs for user in users[row.tensor]]
                if given and all(_is_next(before, user) for user in given):
                    cuts[after[0].frame, before.frame] += 1
        for (cut, call), count in cuts.most_common(1):
            if count >= _LEAST:
                return _finding(cut, call, count)
    return None


def _is_next(before: ForwardOpRow, after: ForwardOpRow) -> bool:
    return (before.name, before.module, before.line) == (after.name, after.module, after.line)


def _finding(cut: Frame | None, call: Frame | None, count: int) -> StepFinding:
    at = "" if call is None or call == cut else f" at {call}"
    return StepFinding(
        kind="cut recurrence",
        heading="only the last step of a recurrence is trained: its state is detached at each one",
        frame=cut,
        paragraph=(
            f"In the last backward pass, what {count:,} calls{at} gave went on to the next call by"
            " detach() alone, and to nothing else: no gradient goes back through them, and what an"
            " early step is to remember can't be learnt. Detach between sequences, not between"
            " steps. If only the last step is to be trained, run the others under torch.no_grad()."
        ),
    )
