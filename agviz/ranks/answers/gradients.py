"""Parameters and gradients that are not equal on all ranks, though they are to be synchronised."""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import (
    called_name,
    line_at,
    nodes_of,
    user_files,
)
from agviz.analysis.steps.finding import listed
from agviz.analysis.steps.source_calls import calls
from agviz.ranks.answers.found import RankVerdict, found_at, line_of, numbers
from agviz.traces.distributed import GRADIENT, NOT_WRAPPED
from agviz.traces.rows import Frame, visible
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agviz.ranks.facts import RankFacts
    from agviz.ranks.run import Run
    from agviz.traces.distributed import Synchronised
    from agviz.traces.reader import Trace

_DDP: Final = "ddp"
_WRAPPERS: Final = frozenset({"DDP", "DistributedDataParallel"})
_MOST_NAMED: Final = 3
_SEEN: Final = "No AccumulateGrad was seen to lack DDP's hook."
_UNSEEN: Final = (
    "Which AccumulateGrads have DDP's hook is not seen while torch's own engine runs: record with"
    " --engine exact."
)


def unequal(run: Run) -> RankVerdict | None:
    """The first step after which they differ; None: in what was looked at they are equal.

    Raises:
        agviz.errors.TraceError: a file is damaged.
    """
    sums: defaultdict[tuple[int, str], dict[int, tuple[int, int | None]]] = defaultdict(dict)
    lost: defaultdict[str, dict[int, Synchronised]] = defaultdict(dict)
    for file, trace in run.folder.traces():
        known = [one for one in trace.synchronised() if one.kind == _DDP]
        names = {one.parameter for one in known}
        for one in _unhooked(known):
            lost[one.parameter][file.number] = one
        for digest in trace.digests():
            if digest.parameter in names:
                place = digest.step, digest.parameter
                sums[place][file.number] = digest.value, digest.gradient
    steps = sorted({step for step, _ in sums})
    for step in steps:
        differing = _differing(sums, step, gradients=True)
        is_gradient = bool(differing)
        if not differing and step == steps[0]:
            differing = _differing(sums, step, gradients=False)
        if is_gradient and not _is_reduced(run, step) and _averages_weights(run):
            return None
        if differing:
            return _verdict(run, step, differing, lost, is_gradient=is_gradient)
    return None


def _averages_weights(run: Run) -> bool:
    """Whether the program itself reduces what is shaped as all parameters of DDP are, one by one.

    Gradients are called so. Until then, ranks step apart, as in local SGD.
    """
    for file, trace in run.folder.traces():
        passes = run.ranks[file.number].passes
        names = {one.parameter for one in trace.synchronised() if one.kind == _DDP}
        rows = trace.parameters(passes[-1].graph_task) if passes else []
        shapes = {str(list(row.shape or ())) for row in rows if row.name in names}
        reduced = {
            one.kind.removeprefix("all_reduce ").rpartition(" ")[0]
            for one in run.ranks[file.number].joined
            if not one.is_inside and one.kind.startswith("all_reduce ")
            if one.names and not any(name.endswith(GRADIENT) for name in one.names)
        }
        if not shapes or not shapes <= reduced:
            return False
    return True


def _is_reduced(run: Run, step: int) -> bool:
    """Whether an all-reduce was joined in a backward pass before a step, or it is not known.

    Where no collective at all was recorded, it is not.
    """
    seen = [one for rank in run.ranks.values() for one in rank.joined]
    if not seen:
        return True
    until = {
        number: max((each.ordinal for each in rank.passes if each.step <= step), default=-1)
        for number, rank in run.ranks.items()
    }
    return any(
        one.is_inside and one.ordinal <= until[number] and one.kind.startswith("all_reduce")
        for number, rank in run.ranks.items()
        for one in rank.joined
    )


def _around_ddp(trace: Trace, beside: Frame | None) -> list[Frame]:
    """The lines of a file that call ``no_sync``, or a ``module`` that may be the one in DDP."""

    def fits(_call: ast.Call, name: str) -> bool:
        return name.rpartition(".")[2] in {"no_sync", "module"}

    return calls(trace, beside, fits)


def _after_wrapping(trace: Trace, *, is_replaced: bool) -> Frame | None:
    """The one line behind ``DistributedDataParallel(net)`` that changes what that wraps.

    None: there is none, or there are several.

    Args:
        trace: holds the files of the program.
        is_replaced: whether it assigns to a part of ``net``; else it calls what writes to values of
            it, as ``reset_parameters`` and what ends in ``_`` do.
    """
    found: set[Frame] = set()
    for file in user_files(trace):
        nodes = nodes_of(trace, file)
        wraps = [
            (function, node)
            for function, node in nodes
            if isinstance(node, ast.Call) and called_name(node) in _WRAPPERS and node.args
        ]
        for inside, wrap in wraps:
            net = ast.unparse(wrap.args[0])
            for function, node in nodes:
                if function != inside or getattr(node, "lineno", 0) <= (wrap.end_lineno or 0):
                    continue
                changed: list[ast.expr] = []
                if is_replaced and isinstance(node, ast.Assign):
                    changed = node.targets
                elif not is_replaced and isinstance(node, ast.Call) and _writes(called_name(node)):
                    changed = [node.func, *node.args]
                for one in changed:
                    if ast.unparse(one).startswith((f"{net}.", f"{net}[")):
                        found.add(line_at(trace, file, one.lineno, function))
    return found.pop() if len(found) == 1 else None


def _writes(name: str) -> bool:
    return name in {"load_state_dict", "reset_parameters"} or (
        name.endswith("_") and not name.endswith("requires_grad_")
    )


def _changed(writing: Frame) -> str:
    return (
        f"DDP made them equal in backward, and line {writing.line} writes to .grad: a gradient that"
        " is changed after backward on some ranks only, or by what differs between them, takes the"
        " model apart. Do it on all ranks alike, or before they are reduced."
    )


def _not_known(rank: RankFacts) -> str:
    return (
        f"{_SEEN if rank.file.meta.engine == 'exact' else _UNSEEN} Look for backward passes without"
        " synchronisation (no_sync, a call of the module that DDP wraps instead of DDP), or a"
        " gradient that is changed after backward on some ranks only."
    )


def _writing_gradients(trace: Trace) -> Frame | None:
    """The one line of the program that writes numbers into ``.grad``; None: not one."""
    found = {
        line_at(trace, file, node.lineno, function)
        for file in user_files(trace)
        for function, node in nodes_of(trace, file)
        if isinstance(node, ast.Assign | ast.AugAssign | ast.Call) and _writes_gradient(node)
    }
    return found.pop() if len(found) == 1 else None


def _writes_gradient(node: ast.Assign | ast.AugAssign | ast.Call) -> bool:
    """Whether a node writes to ``.grad`` by a method or an assignment, and does not clear it."""
    match node:
        case ast.Call(func=ast.Attribute(value=written, attr=method)):
            is_writing = method.endswith("_") and method not in {"detach_", "zero_"}
        case ast.Assign(targets=[written], value=value):
            is_writing = ast.unparse(value) != "None"
        case ast.AugAssign(target=written):
            is_writing = True
        case _:
            return False
    written = written.value if isinstance(written, ast.Subscript) else written
    return is_writing and ast.unparse(written).removesuffix(".data").endswith(".grad")


def _unhooked(known: Sequence[Synchronised]) -> list[Synchronised]:
    """Parameters whose AccumulateGrad has no hook of the reducer."""
    last = {one.parameter: one for one in known}
    return [one for one in last.values() if one.is_hooked is False or one.bucket == NOT_WRAPPED]


def _differing(
    sums: dict[tuple[int, str], dict[int, tuple[int, int | None]]], step: int, *, gradients: bool
) -> list[str]:
    return sorted(
        parameter
        for (number, parameter), by_rank in sums.items()
        if number == step
        and len({gradient if gradients else value for value, gradient in by_rank.values()}) > 1
    )


def _verdict(
    run: Run,
    step: int,
    differing: list[str],
    lost: dict[str, dict[int, Synchronised]],
    *,
    is_gradient: bool,
) -> RankVerdict:
    unhooked = [name for name in differing if name in lost]
    shown = unhooked or differing
    ranks = sorted({rank for name in unhooked for rank in lost[name]}) or sorted(run.ranks)
    named = ", ".join(shown[:_MOST_NAMED])
    if len(shown) > _MOST_NAMED:
        named += f" and {len(shown) - _MOST_NAMED:,} more"
    what = "gradient" if is_gradient else "value"
    converted = lost[shown[0]][ranks[0]].converted if unhooked else ()
    with run.folder.trace(ranks[0]) as trace:
        nodes = trace.nodes(run.ranks[ranks[0]].passes[-1].graph_task)
        leaf = next((node for node in nodes if node.parameter == shown[0]), None)
        frame = visible(converted)
        # The line of the forward is no cause where ranks began with other weights, or where DDP
        # wrapped the model before: only where that very forward may have gone around DDP.
        is_new = bool(unhooked) and lost[shown[0]][ranks[0]].bucket == NOT_WRAPPED
        if frame is None and leaf is not None and (unhooked or is_gradient) and not is_new:
            frame = line_of(trace, leaf)
        around = [] if unhooked or not is_gradient else _around_ddp(trace, frame)
        is_reduced = not is_gradient or _is_reduced(run, step)
        if is_new and frame is None:
            frame = _after_wrapping(trace, is_replaced=True)
        changed = None if is_gradient else _after_wrapping(trace, is_replaced=False)
        frame = changed or frame
        if not is_reduced and len(around) == 1:
            frame = around[0]
        writing = _writing_gradients(trace) if is_gradient and is_reduced and not unhooked else None
        frame = writing or frame
    if is_new:
        said = (
            f"DDP does not know {'it' if len(shown) == 1 else 'them'}: what was put into the module"
            f" after DDP had wrapped it{'' if frame is None else f' (at {frame})'} is trained by"
            " each rank alone. Change the model before DDP wraps it."
        )
    elif unhooked:
        said = (
            f"DDP's reducer does not get {'its' if len(shown) == 1 else 'their'} gradient on"
            f" {numbers(ranks)}: the AccumulateGrad has no hook of it any more. Something replaced"
            " the leaf after the model was wrapped (a change of dtype or device, .data, a new"
            f" Parameter){'' if not converted else f'; the model was converted at {frame}'}."
            " Convert the model before DDP wraps it."
        )
    elif not is_reduced:
        places = [f"{each.file}:{each.line}" for each in around]
        said = (
            "No rank joined an all-reduce in a backward pass before that step: DDP did not"
            " synchronise them. Two things keep it from that: no_sync, where the last backward pass"
            " before a step has to be outside of it, and a call of the module that DDP wraps"
            f" instead of DDP.{f' Look at {listed(places)}.' if len(places) > 1 else ''}"
        )
    elif is_gradient:
        said = _changed(writing) if writing is not None else _not_known(run.ranks[ranks[0]])
    else:
        said = (
            "Gradients are equal, so the ranks began with other weights, or something but the"
            " optimizer writes to them."
        )
    if changed is not None:
        said += (
            f" DDP sends the values of rank 0 to all when it is made; line {changed.line} writes to"
            " them after that. Initialise the model before DDP wraps it."
        )
    checked = "some elements of each parameter are compared, in the first steps and each tenth"
    heading = (
        f"the {what}{' of' if len(shown) == 1 else 's of'} {named}"
        f" {'is' if len(shown) == 1 else 'are'} not equal on all ranks after optimizer step {step}"
    )
    others = f"{plural(len(differing), 'parameter')} with another {what}: {', '.join(differing)}"
    found = found_at(run, "gradients", ranks, frame, heading, said, details=(others, checked))
    return replace(found, node=f"AccumulateGrad of {shown[0]}")
