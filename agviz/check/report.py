"""What a check has found, as verdicts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from agviz.analysis import mixed_axes
from agviz.analysis.code_search import writes_to_what_is_made
from agviz.analysis.outcome import Outcome
from agviz.analysis.source import source_line, source_lines
from agviz.analysis.verdict import Verdict
from agviz.check.backward_code import kept_at
from agviz.check.evaluation import unnoticed
from agviz.check.functions import judge
from agviz.check.misread import MisreadInput
from agviz.check.precision.comparing import compare
from agviz.check.precision.compiled import compare_compiled
from agviz.check.saved import OPENING
from agviz.words.shapes import write_shape
from agviz.words.units import percent, plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from torch import Tensor

    from agviz.check.kept_call import CustomFunction
    from agviz.check.precision.comparing import CompiledAnswer, FirstOff, PrecisionAnswer
    from agviz.check.recomputation import DifferentRun
    from agviz.check.saved import ChangedTensor
    from agviz.check.watch import GradientWatch
    from agviz.traces.rows import Frame

_MOST_NAMED: Final = 4
_PASSES: Final = "backward passes"
_MANY_TIMES: Final = 10.0
_ON_CTX: Final = "ctx."
_ADVICE: Final = " Write after backward, or to a clone."


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
    in_double: int = 0
    """Backward passes that were computed again in float64."""
    not_in_double: str = ""
    """Why one was not."""
    compiled: int = 0
    """Backward passes that were compiled and run again."""
    not_compiled: str = ""
    """Why one was not, though it was asked for."""

    @property
    def outcome(self) -> Outcome:
        """The worst one."""
        return worst(self.verdicts)

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
            "in_double": self.in_double,
            "not_in_double": self.not_in_double or None,
            "compiled": self.compiled,
            "not_compiled": self.not_compiled or None,
        }


def of_a_failure(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """The same of a program that failed, of which none says that nothing was unusual."""
    return [
        replace(each, outcome=Outcome.CANT_TELL, heading=f"the program failed; {each.heading}")
        if each.outcome is Outcome.NOTHING_UNUSUAL
        else each
        for each in verdicts
    ]


def worst(verdicts: Sequence[Verdict]) -> Outcome:
    """The worst outcome of several; of none, that nothing can be told."""
    outcomes = {verdict.outcome for verdict in verdicts}
    for each in (Outcome.FOUND, Outcome.CANT_TELL):
        if each in outcomes:
            return each
    return Outcome.NOTHING_UNUSUAL if outcomes else Outcome.CANT_TELL


def report_of(watch: GradientWatch, *, compiles: bool) -> CheckReport:
    """Judge what was seen; calls custom Functions again: Note [After the program].

    Args:
        watch: what was seen.
        compiles: whether passes are held against the same under ``torch.compile``.
    """
    report = CheckReport(
        passes=watch.passes,
        saved_tensors=watch.saved.checked,
        checkpoints=watch.recomputations.compared,
    )
    changed, of_functions = _changed(watch)
    functions = list(_functions(watch, report, of_functions))
    found = [
        *_losses(watch),
        *_misread(watch),
        *_masks(watch),
        *_recurrent(watch),
        *_derivatives(watch),
        *_draws(watch),
        *_similarities(watch),
        *_unrecorded(watch),
        *changed,
        *of_functions.values(),
        *_recomputed(watch),
        *_hooks(watch),
        *functions,
        *_precision(watch, report, compiles=compiles),
    ]
    report.verdicts = _once_each(found) or [_cant_tell(watch) or _nothing(report)]
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
        shapes = f"shapes {write_shape(loss.one)} and {write_shape(loss.other)}"
        if loss.is_compared:
            said = (
                f"The loss compares {shapes}: each is expanded along the other, so that every"
                " output is held against every target, and the gradient pulls all outputs towards"
                " the mean of the targets."
            )
        else:
            said = (
                f"What the loss is made of puts together {shapes}: each is expanded along the"
                " other, so that every sample meets what belongs to every other one."
            )
        yield _found(
            "the shapes of a loss broadcast",
            watch.frame(loss.captured),
            f"{said} Give both the same shape: squeeze(1) of the one, or unsqueeze(1) of the"
            " other.",
        )


def _misread(watch: GradientWatch) -> Iterator[Verdict]:
    for each in watch.misread:
        frame = watch.frame(each.captured)
        if isinstance(each, MisreadInput):
            said = each.loss.paragraph(each.given_by)
            yield _found(each.loss.heading(each.given_by), frame, said)
            continue
        said = mixed_axes.paragraph(each.size)
        yield _found(mixed_axes.heading(each.before, each.after), frame, said)


def _masks(watch: GradientWatch) -> Iterator[Verdict]:
    for each in watch.masks.found:
        holds = "the same key" if each.token is None else f"token {each.token}"
        means = "is looked at" if each.is_of_what_stays else "is left out"
        yield _found(
            "attention looks at padding only: its mask is inverted",
            watch.frame(each.captured),
            f"Of each sample {each.fewest:,} to {each.most:,} entries at one end are left to look"
            f" at, and all of these hold {holds}, as no other does: padding. So what is learnt does"
            f" not depend on the data there. What is True in {each.name} {means}: invert the mask.",
        )


def _recurrent(watch: GradientWatch) -> Iterator[Verdict]:
    for each in reversed(watch.recurrent.found()):
        samples, steps = each.shape[each.axis], each.shape[1 - each.axis]
        reads = (
            f"With batch_first={each.axis == 0}, {each.layer} reads its input as {steps:,} steps of"
            f" {samples:,} samples."
        )
        used = next(use for use in each.uses if use is not None)
        at = _at(watch.frame(used.captured))
        if used.reduces:
            said = (
                f"{reads} All that is used is what {used.reduces}{at} makes of the {samples:,}"
                f" together, and the loss{_at(watch.frame(each.losses[0]))} takes the {steps:,} for"
                " samples: they see each other, and the steps of one don't. Make the layer with"
                " the other batch_first, or transpose its input."
            )
        else:
            said = (
                f"{reads} Of its output one sample is used{at}, and nothing of the others. If it"
                " was meant for the last step, or the first, each result and its gradient is of"
                " other samples: make the layer with the other batch_first, transpose its input, or"
                " take it along the other axis."
            )
        yield _found(
            f"{each.layer} takes samples for steps: batch_first does not fit",
            watch.frame(each.captured),
            said,
        )


def _derivatives(watch: GradientWatch) -> Iterator[Verdict]:
    for term in watch.derivatives.terms:
        taken, added = watch.frame(term.derivative.captured), watch.frame(term.captured)
        what, remedy = "autograd.grad gives it", "Give grad create_graph=True"
        if term.derivative.is_read:
            what = ".grad is"
            remedy = "Take it by torch.autograd.grad(..., create_graph=True)"
        yield _found(
            "a derivative in the loss has no graph: create_graph is missing",
            taken,
            f"{what} without a graph, and{_at(added)} what was made of it is added to the loss: a"
            " constant there. The loss becomes larger by it, and no gradient leads from it to the"
            f" parameters. {remedy}; if it is to be a constant, detach() says so.",
        )


def _draws(watch: GradientWatch) -> Iterator[Verdict]:
    for each in watch.draws.found:
        gives, remedy = "has no gradient: a constant", "Draw with rsample()"
        if each.draw.name == "torch.normal":
            gives, remedy = "gives gradients of 0", "Draw as mean + std * torch.randn_like(std)"
        yield _found(
            f"a sample does not train what it was drawn of: {each.draw.name}",
            watch.frame(each.draw.captured),
            f"What {each.draw.name} draws {gives}. It goes into what the loss is made of"
            f"{_at(watch.frame(each.captured))}, and the parameters of its distribution are trained"
            " by terms of their own only, such as a KL divergence: nothing of the data that the"
            f" sample is to carry reaches them. {remedy}; if it is to be a constant, detach() says"
            " so.",
        )


def _similarities(watch: GradientWatch) -> Iterator[Verdict]:
    for each in watch.similarities.found:
        rows, columns = each.normalised.shape
        yield _found(
            "rows are compared whose columns were normalised: the dimension is the other one",
            watch.frame(each.normalised.captured),
            f"Each of {columns:,} columns of shape {write_shape((rows, columns))} gets length 1."
            f" The product{_at(watch.frame(each.captured))} compares rows, which have any length,"
            f" and a softmax{_at(watch.frame(each.used))} takes that for similarities: no cosines,"
            " as each depends on the other rows, and is the less the more there are."
            " Normalise over the dimension that is summed, most often dim=-1.",
        )


def _unrecorded(watch: GradientWatch) -> Iterator[Verdict]:
    for each in watch.unrecorded.found:
        yield _found(
            f"{each.function} in place is not recorded, and its derivative is left out",
            watch.frame(each.captured),
            f"It changes the values of what {each.node} stands for, through .data, a detached alias"
            " or under no_grad: the loss is computed of the new values, and gradients pass as if"
            " nothing had been done. Do it out of place, with autograd.",
        )


# -- saved tensors ----------------------------------------------------------------------------


def _changed(watch: GradientWatch) -> tuple[list[Verdict], dict[object, Verdict]]:
    """One verdict for each line that wrote, or, where that is not known, that saved.

    Apart, by Function, those of what a custom Function keeps as attributes of ``ctx``.
    """
    by_line: dict[tuple[str, str], list[ChangedTensor]] = {}
    for each in watch.changed:
        writer = None if each.write is None else watch.frame(each.write.captured)
        saver = watch.frame(each.then.captured)
        key = ("", str(saver)) if writer is None else (str(writer), "")
        by_line.setdefault(key, []).append(each)
    found: list[Verdict] = []
    of_functions: dict[object, Verdict] = {}
    for several in by_line.values():
        verdict = _changed_verdict(watch, several)
        kept = {each.node for each in several if each.saved.startswith(_ON_CTX)}
        function = watch.function_of(several[0].node) if len(kept) == 1 else None
        if function is None or function in of_functions:
            found.append(verdict)
        else:
            of_functions[function] = verdict
    return found, of_functions


def _changed_verdict(watch: GradientWatch, several: list[ChangedTensor]) -> Verdict:
    first = several[0]
    saver = watch.frame(first.then.captured)
    name = watch.parameter(first.tensor)
    on_ctx = first.saved.startswith(_ON_CTX)
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
    advice = _ADVICE
    if first.write is None:
        heading = f"{what} was changed between forward and backward"
        advice = f" No torch function was seen to write to it since.{advice}"
        written, how = _through_array(watch, first)
        if written:
            return _found(heading, written[0], f"{why} {how}{_ADVICE}")
        place = None
        if on_ctx:
            function = watch.function_of(first.node)
            kept = None
            if function is not None:
                kept = kept_at(function, first.saved.removeprefix(_ON_CTX))
            place = None if kept is None else watch.file(*kept)
        return _found(heading, place or saver, why + advice)
    called = first.write.name.rpartition(".")[2]
    heading = f"{called} changes {what} that was saved for backward"
    if called in OPENING:
        heading = f"{what} was changed through {called} between forward and backward"
    return _found(heading, watch.frame(first.write.captured), why + advice)


def _through_array(watch: GradientWatch, changed: ChangedTensor) -> tuple[list[Frame], str]:
    """The lines that write to an array that shares the memory, where the program's text shows it.

    It has to name the array at the line that made it, and to write to it in place in the same
    function after the line that saved the tensor.
    """
    opened = None if changed.opened is None else watch.frame(changed.opened.captured)
    saver = watch.frame(changed.then.captured)
    if opened is None or saver is None:
        return [], ""
    after = saver.line if (saver.file, saver.function) == (opened.file, opened.function) else 0
    name, lines = writes_to_what_is_made(source_lines(opened), opened.line, after)
    frames = [opened._replace(line=line, source="") for line in lines]
    places = " and ".join(f"{frame.file}:{frame.line}" for frame in frames[:2])
    said = f"The array {name}, made{_at(opened)}, shares its memory; {places} write to it in place."
    return frames, said.replace("write", "writes") if len(lines) == 1 else said


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
    checkpointed = watch.frame(run.called)
    at = _at(checkpointed)
    if run.rebound:
        return _found(
            heading,
            checkpointed or frame,
            f"The function that is checkpointed looks {run.rebound} up when it runs, and the"
            " program has given that variable another value before backward: what is computed"
            f" anew is of the last one.{ending} Hand it over in the call, as"
            f" checkpoint(lambda x, {run.rebound}={run.rebound}: …), or checkpoint the module"
            " itself.",
        )
    drew = ""
    if run.draws_from:
        drew = (
            f" In the forward the function that is checkpointed{at} drew from {run.draws_from},"
            " whose state a checkpoint does not restore: the likely reason. Draw before it, and"
            " hand the number in."
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
        elif not drew:
            said += (
                f" What decides it{f' in the checkpoint{at}' if at else ''} has changed in between."
            )
        return _found(heading, mode or frame, said + ending + drew * (mode is None))
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
        f"{called} is the first function that gives another result when it is recomputed."
        + (
            " What it uses has changed in between: a global, or a tensor that was written to."
            if not drew
            else ""
        )
        + ending
        + drew,
    )


# -- custom Functions -------------------------------------------------------------------------


def _functions(
    watch: GradientWatch, report: CheckReport, changed: dict[object, Verdict]
) -> Iterator[Verdict]:
    """What is found of custom Functions.

    Args:
        watch: what was seen.
        report: takes what was looked at.
        changed: what was said of tensors that they keep, by Function; where a later call wrote to
            them, it is taken out: the line where they are kept is that of the one verdict.
    """
    watch.calls.functions, functions = {}, watch.calls.functions
    for about in sorted(functions.values(), key=_first_call):
        answer = judge(about)
        report.functions += bool(answer.looked_at)
        if answer.by_design:
            report.not_judged[about.name] = answer.by_design
        for finding in answer.findings:
            frame = None if finding.place is None else watch.file(*finding.place)
            kept = changed.pop(about.function, None) if finding.is_overwritten else None
            if kept is not None and kept.frame is not None:
                frame = kept.frame
            call = None if finding.call is None else watch.frame(finding.call.captured)
            called = "" if call is None else f"Called{_at(call)}. "
            yield _found(finding.heading, frame or call, called + finding.paragraph)


def _first_call(about: CustomFunction) -> str:
    return f"{about.function.__module__}.{about.function.__qualname__}"


# -- precision --------------------------------------------------------------------------------


def _precision(watch: GradientWatch, report: CheckReport, *, compiles: bool) -> Iterator[Verdict]:
    """The first pass in which float32 is not enough, or that is another when it is compiled."""
    tapes, watch.tapes.kept = watch.tapes.kept, []
    for tape in tapes:
        with unnoticed():
            answer = compare(tape)
            compiled = compare_compiled(tape, answer) if compiles else None
        report.in_double += not answer.why_not
        report.not_in_double = report.not_in_double or answer.why_not
        if compiled is not None:
            report.compiled += not compiled.why_not
            report.not_compiled = report.not_compiled or compiled.why_not
        if answer.first is not None:
            yield _imprecise(watch, answer, answer.first)
        if compiled is not None and compiled.leaves:
            yield _compiled_otherwise(watch, answer, compiled)
        if answer.first is not None or (compiled is not None and compiled.leaves):
            return


def _compiled_otherwise(
    watch: GradientWatch, answer: PrecisionAnswer, compiled: CompiledAnswer
) -> Verdict:
    names = list(compiled.leaves)
    more = f", those of {plural(len(names) - 1, 'other')} by less" if len(names) > 1 else ""
    where = "It begins in backward: the results of the forward are the same."
    first = compiled.first
    if first is not None:
        called = first.call.name.rpartition(".")[2].strip("_")
        where = (
            f"{called} is the first function whose result differs, by"
            f" {_of_norm(first.deviation.share)}."
        )
    return _found(
        "torch.compile computes another gradient",
        None if first is None else watch.frame(first.call.captured),
        f"The functions of backward pass {answer.passes}, compiled as one, give a gradient of"
        f" {names[0]} that differs by {_of_norm(compiled.leaves[names[0]])} from that without"
        f" torch.compile{more}: more than rounding explains. {where} Leave that part out by"
        " torch.compiler.disable, and report it to PyTorch.",
    )


def _imprecise(watch: GradientWatch, answer: PrecisionAnswer, first: FirstOff) -> Verdict:
    called = first.call.name.rpartition(".")[2].strip("_")
    size = first.deviation.size
    expected = percent(first.deviation.expected / size if size else 0.0)
    if first.dtype:
        heading = f"{called} rounds to {first.dtype} in a program that computes in float32"
        advice = (
            f"Leave {first.dtype} out there, or use torch.autocast, which keeps in float32 what"
            " needs it."
        )
    elif first.cancels:
        heading = f"float32 loses the digits of a difference in {called}"
        advice = (
            "What is subtracted is nearly equal: subtract before you square, exponentiate or sum"
            " (torch.var, expm1, log1p), or compute that part in float64."
        )
    else:
        place = "the backward of " if first.in_backward else ""
        heading = f"float32 is not precise enough in {place}{called}"
        advice = "Compute that part in float64, or in another order (one sum instead of many)."
    what = "The gradient that comes to it" if first.in_backward else "Its result"
    names = list(answer.leaves)
    more = f", those of {plural(len(names) - 1, 'other')} by less" if len(names) > 1 else ""
    worst = _of_norm(answer.leaves[names[0]])
    said = (
        f"{what} is off by {_of_norm(first.deviation.share)}, held against float64; to move all"
        f" data by a rounding error moves it by {expected}. It is the first function of backward"
        f" pass {answer.passes} that is off by more than rounding explains. The gradient of"
        f" {names[0]} is off by {worst} in the end{more}. {advice}"
    )
    return _found(heading, watch.frame(first.call.captured), said)


def _of_norm(share: float) -> str:
    return (
        f"{share:,.3g} times its norm" if share >= _MANY_TIMES else f"{percent(share)} of its norm"
    )


# -- nothing ----------------------------------------------------------------------------------


def _cant_tell(watch: GradientWatch) -> Verdict | None:
    if watch.gave_up:
        return Verdict(
            outcome=Outcome.CANT_TELL,
            heading="the check ended before the program did",
            paragraph=f"An error of agviz's own ended it ({watch.gave_up}).",
        )
    if not watch.passes:
        return Verdict(
            outcome=Outcome.CANT_TELL,
            heading="no backward pass ran",
            paragraph="There was no gradient to check.",
        )
    if watch.nonfinite:
        passes = plural(watch.passes, "backward pass", _PASSES)
        return Verdict(
            outcome=Outcome.CANT_TELL,
            heading=f"the loss was not finite in {watch.nonfinite:,} of {passes}",
            paragraph=(
                f"The first was backward pass {watch.first_nonfinite}. Nothing else unusual was"
                " seen, but where NaN and infinity begin is not looked at here: agviz run, then"
                " agviz explain, names the function and its line."
            ),
        )
    return None


def _nothing(report: CheckReport) -> Verdict:
    looked = [f"{plural(report.saved_tensors, 'saved tensor')} unchanged until backward"]
    if report.functions:
        looked.append(
            f"{plural(report.functions, 'custom Function')} against numerical derivatives"
        )
    if report.checkpoints:
        looked.append(f"{plural(report.checkpoints, 'recomputation')} of checkpoints")
    if report.in_double:
        passes = plural(report.in_double, "backward pass", _PASSES)
        looked.append(f"{passes} in float32 against float64")
    if report.compiled:
        looked.append("the same under torch.compile")
    looked.append("the shapes of losses, what they expect, and derivatives that they are made of")
    passes = plural(report.passes, "backward pass", _PASSES)
    said = [f"Looked at, in {passes}: {', '.join(looked)}."]
    reasons = list(report.not_judged.items())
    said += [f"Not judged: {name} ({why})." for name, why in reasons[:_MOST_NAMED]]
    if len(reasons) > _MOST_NAMED:
        said.append(f"Nor {plural(len(reasons) - _MOST_NAMED, 'other Function')}.")
    if report.not_in_double:
        said.append(f"Not held against float64: a pass ({report.not_in_double}).")
    if report.not_compiled:
        said.append(f"Not compiled: a pass ({report.not_compiled}).")
    said.append("Not looked at: derivatives of torch's own, compiled code, other processes.")
    return Verdict(
        outcome=Outcome.NOTHING_UNUSUAL,
        heading="nothing unusual in what was looked at of the gradients",
        paragraph=" ".join(said),
    )
