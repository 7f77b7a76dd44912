"""What a check has found, as verdicts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from agviz.analysis.outcome import Outcome
from agviz.analysis.source import source_line
from agviz.analysis.verdict import Verdict
from agviz.check.functions import judge
from agviz.words.shapes import write_shape
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import Tensor

    from agviz.check.kept_call import CustomFunction
    from agviz.check.recomputation import DifferentRun
    from agviz.check.saved import ChangedTensor
    from agviz.check.watch import GradientWatch
    from agviz.traces.rows import Frame

_MOST_NAMED: Final = 4


@dataclass
class CheckReport:
    """The verdicts, worst first, and what they rest on."""

    verdicts: list[Verdict] = field(default_factory=list)
    passes: int = 0
    """Calls of backward and grad."""
    saved_tensors: int = 0
    """That were looked at again when backward began."""
    functions: int = 0
    """Custom Functions that were held against numerical derivatives."""
    not_judged: dict[str, str] = field(default_factory=dict)
    """Custom Functions of which nothing is said, and why."""
    checkpoints: int = 0
    """Recomputations that were held against their forward."""

    @property
    def outcome(self) -> Outcome:
        """The worst one."""
        outcomes = {verdict.outcome for verdict in self.verdicts}
        for each in (Outcome.FOUND, Outcome.CANT_TELL):
            if each in outcomes:
                return each
        return Outcome.NOTHING_UNUSUAL if outcomes else Outcome.CANT_TELL

    def as_json(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {
            "outcome": str(self.outcome),
            "verdicts": [verdict.as_json() for verdict in self.verdicts],
            "passes": self.passes,
            "saved_tensors": self.saved_tensors,
            "functions": self.functions,
            "not_judged": self.not_judged,
            "checkpoints": self.checkpoints,
        }


def report_of(watch: GradientWatch) -> CheckReport:
    """Judge what was seen; calls custom Functions again: Note [After the program]."""
    report = CheckReport(
        passes=watch.passes,
        saved_tensors=watch.saved.checked,
        checkpoints=watch.recomputations.compared,
    )
    found = [
        *_losses(watch),
        *_changed(watch),
        *_recomputed(watch),
        *_hooks(watch),
        *_functions(watch, report),
    ]
    report.verdicts = _once_each(found) or [_nothing(watch, report)]
    return report


def _once_each(found: Iterable[Verdict]) -> list[Verdict]:
    return list({(verdict.heading, verdict.line): verdict for verdict in found}.values())


def _found(heading: str, frame: Frame | None, paragraph: str) -> Verdict:
    return Verdict(
        outcome=Outcome.FOUND,
        heading=heading,
        frame=frame,
        source="" if frame is None else source_line(frame),
        paragraph=paragraph,
    )


def _at(frame: Frame | None) -> str:
    return "" if frame is None else f" at {frame.file}:{frame.line}"


def _named(parameter: str, tensor: Tensor) -> str:
    if parameter:
        return f"parameter {parameter}"
    return f"a tensor of shape {write_shape(tensor.shape)}"


# -- losses -----------------------------------------------------------------------------------


def _losses(watch: GradientWatch) -> Iterator[Verdict]:
    for loss in watch.losses:
        shapes = "a column of shape (N, 1) and a flat tensor of shape (N,)"
        if loss.one:
            shapes = f"shapes {write_shape(loss.one)} and {write_shape(loss.other)}"
        yield _found(
            "the shapes of a loss broadcast",
            watch.frame(loss.captured),
            f"The loss compares {shapes}: each is expanded along the other, so that every output is"
            " held against every target, and the gradient pulls all outputs towards the mean of the"
            " targets. Give both the same shape: squeeze(1) of the one, or unsqueeze(1) of the"
            " other.",
        )


# -- saved tensors ----------------------------------------------------------------------------


def _changed(watch: GradientWatch) -> Iterator[Verdict]:
    """One verdict for each line that wrote, or, where that is not known, that saved."""
    by_line: dict[tuple[str, str], list[ChangedTensor]] = {}
    for each in watch.changed:
        writer = None if each.write is None else watch.frame(each.write.captured)
        saver = watch.frame(each.then.captured)
        key = ("", str(saver)) if writer is None else (str(writer), "")
        by_line.setdefault(key, []).append(each)
    for several in by_line.values():
        yield _changed_verdict(watch, several)


def _changed_verdict(watch: GradientWatch, several: list[ChangedTensor]) -> Verdict:
    first = several[0]
    saver = watch.frame(first.then.captured)
    name = watch.parameter(first.tensor)
    on_ctx = first.saved.startswith("ctx.")
    what = _named(name, first.tensor)
    others = len({(each.node, each.then.moment, each.saved) for each in several}) - 1
    more = f", and {plural(others, 'other')}" if others else ""
    if on_ctx:
        unseen = f"It is kept as {first.saved}, not by ctx.save_for_backward, so torch does not see"
    else:
        unseen = "The write goes past the version counter (.data, numpy), so torch does not see"
    why = (
        f"{first.then.called}{_at(saver)} saved {what} for its backward ({first.node}){more}."
        f" When backward began, its values were others. {unseen} it: the gradient is of a mixture"
        " of old and new values."
    )
    advice = " Write after backward, or to a clone."
    if first.write is None:
        heading = f"{what} was changed between forward and backward"
        advice = f" No torch function was seen to write to it since.{advice}"
        return _found(heading, saver, why + advice)
    called = first.write.name.rpartition(".")[2]
    heading = f"{called} changes {what} that was saved for backward"
    if called in {"numpy", "__array__", "__dlpack__"}:
        heading = f"{what} was changed through {called} between forward and backward"
    return _found(heading, watch.frame(first.write.captured), why + advice)


# -- hooks ------------------------------------------------------------------------------------


def _hooks(watch: GradientWatch) -> Iterator[Verdict]:
    for name, hook in sorted(watch.hooks.items()):
        codes = [function.__code__ for function in hook.functions]
        frames = [watch.file(code.co_filename, code.co_firstlineno, code.co_name) for code in codes]
        what = _named(name, hook.tensor)
        lines = ", ".join(sorted({f"{frame.file}:{frame.line}" for frame in frames}))
        yield _found(
            f"{len(frames)} hooks of {what} do the same",
            frames[-1],
            f"They are registered at {lines}, and all of them run: what one does to the gradient"
            f" is done {len(frames)} times. Register it once, or remove the earlier handle.",
        )


# -- checkpoints ------------------------------------------------------------------------------


def _recomputed(watch: GradientWatch) -> Iterator[Verdict]:
    for each in watch.recomputations.different:
        yield _different(watch, each)


def _different(watch: GradientWatch, run: DifferentRun) -> Verdict:
    frame = watch.frame(run.before.captured)
    called = run.before.name.rpartition(".")[2]
    heading = "a checkpoint computes something else in backward than in the forward"
    ending = " Gradients are those of the second computation, which made no part of the loss."
    if run.before.name != run.after.name:
        return _found(
            heading,
            frame,
            f"The forward called {called}; the recomputation called"
            f" {run.after.name.rpartition('.')[2]} in its place, so another branch was taken:"
            f" something that decides it has changed in between.{ending}",
        )
    if run.before.words != run.after.words:
        mode = watch.frame(watch.modes.first_after(run.moment))
        said = f"{called}{_at(frame)} got ({run.before.words}) in the forward and"
        said += f" ({run.after.words}) in the recomputation."
        if mode is not None:
            said += (
                " train() or eval() was called in between: the mode of modules like dropout has"
                " to stay until backward has ended."
            )
        return _found(heading, mode or frame, said + ending)
    if run.before.random_state != run.after.random_state:
        return _found(
            heading,
            frame,
            f"{called} draws other random numbers when it is recomputed: the checkpoint does not"
            f" restore the random state (preserve_rng_state=False).{ending} Leave"
            " preserve_rng_state at True.",
        )
    return _found(
        heading,
        frame,
        f"{called} is the first function that gives another result when it is recomputed. What it"
        " uses has changed in between: a random number that is not torch's, a global, or a tensor"
        f" that was written to.{ending}",
    )


# -- custom Functions -------------------------------------------------------------------------


def _functions(watch: GradientWatch, report: CheckReport) -> Iterator[Verdict]:
    watch.calls.functions, functions = {}, watch.calls.functions
    for about in sorted(functions.values(), key=_first_call):
        answer = judge(about)
        report.functions += bool(answer.looked_at)
        if answer.by_design:
            report.not_judged[about.name] = answer.by_design
        for finding in answer.findings:
            frame = None if finding.place is None else watch.file(*finding.place)
            call = None if finding.call is None else watch.frame(finding.call.captured)
            called = "" if call is None else f"Called{_at(call)}. "
            yield _found(finding.heading, frame or call, called + finding.paragraph)


def _first_call(about: CustomFunction) -> str:
    return f"{about.function.__module__}.{about.function.__qualname__}"


# -- nothing ----------------------------------------------------------------------------------


def _nothing(watch: GradientWatch, report: CheckReport) -> Verdict:
    if watch.gave_up:
        return Verdict(
            outcome=Outcome.CANT_TELL,
            heading="the check ended before the program did",
            paragraph=f"An error of agviz's own ended it ({watch.gave_up}).",
        )
    if not report.passes:
        return Verdict(
            outcome=Outcome.CANT_TELL,
            heading="no backward pass ran",
            paragraph="There was no gradient to check.",
        )
    looked = [f"{plural(report.saved_tensors, 'saved tensor')} unchanged until backward"]
    if report.functions:
        looked.append(
            f"{plural(report.functions, 'custom Function')} against numerical derivatives"
        )
    if report.checkpoints:
        looked.append(f"{plural(report.checkpoints, 'recomputation')} of checkpoints")
    looked.append("the shapes of losses")
    passes = plural(report.passes, "backward pass", "backward passes")
    said = [f"Looked at, in {passes}: {', '.join(looked)}."]
    reasons = list(report.not_judged.items())
    said += [f"Not judged: {name} ({why})." for name, why in reasons[:_MOST_NAMED]]
    if len(reasons) > _MOST_NAMED:
        said.append(f"Nor {plural(len(reasons) - _MOST_NAMED, 'other Function')}.")
    said.append("Not looked at: derivatives of torch's own, compiled code, other processes.")
    return Verdict(
        outcome=Outcome.NOTHING_UNUSUAL,
        heading="nothing unusual in what was looked at of the gradients",
        paragraph=" ".join(said),
    )
