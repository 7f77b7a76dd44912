"""Tensors that get longer with each pass, as each pass adds to what the pass before left."""

from __future__ import annotations

import ast
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agviz.analysis.code_search import container_name, nodes_of, takes_from, targets_of, tree_of
from agviz.analysis.lineage import last_name
from agviz.analysis.program_calls import last_passes, ops_of_pass
from agviz.words.shapes import write_shape

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from agviz.traces.reader import Trace
    from agviz.traces.rows import ForwardOpRow, ForwardTensorRow, Frame, GraphTaskRow

_LEAST_PASSES: Final = 5
"""Passes in a row in each of which it is longer."""
_MOST_PASSES: Final = 8
_JOINING: Final = frozenset(
    {"cat", "concat", "concatenate", "stack", "hstack", "vstack", "column_stack", "row_stack"}
)
_CARRYING: Final = frozenset(
    {"detach", "detach_", "clone", "contiguous", "to", "cpu", "cuda", "float", "half", "__get__"}
)
"""Functions that leave a tensor as long as it is."""
_TAKING: Final = frozenset({"pop", "popleft", "clear", "remove"})
_MOST_CARRIED: Final = 8
_SIZED: Final = frozenset(
    {"empty", "full", "new_empty", "new_full", "new_ones", "new_zeros", "ones", "pad", "zeros"}
)
"""Functions that make a tensor of a size that they are given."""
_LARGEST: Final = frozenset({"max", "np.maximum", "numpy.maximum"})
_LEAST_RISES: Final = 3
"""In the last passes, of a size that follows the largest so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LongerTensors:
    """A line that joins more with each pass."""

    frame: Frame | None
    name: str
    """Of the torch function."""
    shapes: tuple[tuple[int, tuple[int, ...]], ...]
    """Graph task, and shape of what it made for it."""
    is_list: bool
    """Whether a list gets longer; else the tensor of the pass before is joined with another."""
    largest: str = ""
    """What keeps the largest size so far, where sizes follow that."""
    graph_task: None = None

    @property
    def heading(self) -> str:
        """How long it was first and last."""
        (first, small), (last, large) = self.shapes[0], self.shapes[-1]
        what = "ever longer tensors" if self.largest else "a longer tensor in each pass"
        return (
            f"{self.name} gives {what}: {write_shape(small)} before backward"
            f" pass {first}, {write_shape(large)} before pass {last}"
        )

    @property
    def paragraph(self) -> str:
        """Why, and what to do."""
        slower = "So each step takes more time and memory than the one before."
        if self.largest:
            return (
                f"Its size follows {self.largest}, which only ever grows: it keeps the largest that"
                " has been met, so that one long sample makes all batches after it as long, and"
                f" most of them padding. Take the largest of the batch at hand, and cut or"
                " sort samples by length where they differ much."
            )
        if self.is_list:
            return (
                "It joins a list that gets longer in each step, and nothing is taken out of it."
                f" {slower} Keep the last entries only (collections.deque(maxlen=…)), or a running"
                " value such as a mean in place of all entries."
            )
        return (
            "It adds to the tensor that the same line made in the pass before, and nothing is cut"
            f" off. {slower} Where only the latest part is needed, cut it ([-length:]) where it is"
            " kept; where it is meant to be added once, do so before the loop."
        )

    def details(self) -> Iterator[str]:
        """What the answer rests on, line by line."""
        for number, shape in self.shapes:
            yield f"before backward pass {number}: {write_shape(shape)}"

    def as_json(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {
            "kind": "longer_tensors",
            "name": self.name,
            "shapes": [[number, list(shape)] for number, shape in self.shapes],
            "is_list": self.is_list,
            "largest": self.largest or None,
        }


def longer_tensors(trace: Trace) -> LongerTensors | None:
    """A line whose result grew in each of the last passes by what it had made before.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    if not trace.meta.check_forward:
        return None
    tasks = last_passes(trace, _MOST_PASSES)
    if len(tasks) < _LEAST_PASSES:
        return None
    calls = [ops_of_pass(trace, task.id) for task in tasks]
    givers: dict[int, ForwardOpRow] = {}
    """By tensor: the function that gave it."""
    by_pass: list[dict[object, ForwardOpRow]] = []
    sized: list[dict[object, ForwardOpRow]] = []
    for ops in calls:
        joined: dict[object, ForwardOpRow] = {}
        for op in ops:
            if op.recomputed_in < 0 and not op.error:
                given = {tensor.tensor for tensor in op.inputs}
                givers |= {each.tensor: op for each in op.outputs if each.tensor not in given}
                if last_name(op) in _JOINING and len(op.outputs) == 1:
                    joined.setdefault((op.name, op.module, op.frame), op)
        by_pass.append(joined)
        sized.append(
            {(op.name, op.frame): op for op in ops if last_name(op) in _SIZED and op.outputs}
        )
    for key in by_pass[-1]:
        row = [
            (task.id, joined[key])
            for task, joined in zip(tasks, by_pass, strict=True)
            if key in joined
        ][-_LEAST_PASSES:]
        are_last = [number for number, _ in row] == [task.id for task in tasks[-len(row) :]]
        if len(row) < _LEAST_PASSES or not are_last or not _grows([op for _, op in row]):
            continue
        ops = [op for _, op in row]
        is_list = _joins_a_list(trace, ops)
        if is_list or _is_carried(ops, givers):
            return LongerTensors(
                frame=ops[-1].frame,
                name=ops[-1].name,
                shapes=tuple((number, op.outputs[0].shape or ()) for number, op in row),
                is_list=is_list,
            )
    return _as_long_as_ever(trace, tasks, sized)


def _as_long_as_ever(
    trace: Trace, tasks: Sequence[GraphTaskRow], sized: Sequence[Mapping[object, ForwardOpRow]]
) -> LongerTensors | None:
    """A line that makes tensors of the largest size that has been met so far."""
    for key, last in sized[-1].items():
        if last.frame is None or not all(key in each for each in sized):
            continue
        shapes = [each[key].outputs[0].shape or () for each in sized]
        rises = [one != other for one, other in itertools.pairwise(shapes)]
        is_falling = any(
            len(one) != len(other) or any(a > b for a, b in zip(one, other, strict=True))
            for one, other in itertools.pairwise(shapes)
        )
        if is_falling or sum(rises) < _LEAST_RISES:
            continue
        if largest := _keeps_largest(trace, last.frame):
            return LongerTensors(
                frame=last.frame,
                name=last.name,
                shapes=tuple((task.id, shape) for task, shape in zip(tasks, shapes, strict=True)),
                is_list=False,
                largest=largest,
            )
    return None


def _keeps_largest(trace: Trace, frame: Frame) -> str:
    """What a line uses that is only ever set to the largest of itself and others; empty: nothing.

    It is an attribute, a global or what is set in a loop of the function: ``n = max(n, len(x))``.
    """
    used: set[str] = set()
    kept: set[str] = set()
    nodes = nodes_of(trace, frame.file)
    for function, node in nodes:
        if isinstance(node, ast.Name | ast.Attribute) and node.lineno == frame.line:
            used.add(ast.unparse(node))
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        if function != frame.function or ast.unparse(node.value.func) not in _LARGEST:
            continue
        (target, *others) = map(ast.unparse, node.targets)
        inside = {ast.unparse(each) for each in ast.walk(node.value) if each is not node.value}
        if not others and target in inside:
            kept.add(target)
    return min(kept & used, default="")


def _grows(ops: Sequence[ForwardOpRow]) -> bool:
    shapes = [op.outputs[0].shape for op in ops]
    return all(
        one is not None
        and other is not None
        and len(one) == len(other)
        and sum(a != b for a, b in zip(one, other, strict=True)) == 1
        and one < other
        for one, other in itertools.pairwise(shapes)
    )


def _is_carried(ops: Sequence[ForwardOpRow], givers: Mapping[int, ForwardOpRow]) -> bool:
    """Whether each takes what the one before gave, as long as it was."""
    return all(
        any(_leads_to(tensor, before, givers) for tensor in op.inputs)
        for before, op in itertools.pairwise(ops)
    )


def _leads_to(
    tensor: ForwardTensorRow, wanted: ForwardOpRow, givers: Mapping[int, ForwardOpRow]
) -> bool:
    whole = wanted.outputs[0]
    for _ in range(_MOST_CARRIED):
        if tensor.tensor == whole.tensor:
            return True
        giver = givers.get(tensor.tensor)
        if giver is None:  # as behind .data or torch.utils, which are not seen
            return tensor.memory == whole.memory and tensor.shape == whole.shape
        if last_name(giver) not in _CARRYING or not giver.inputs:
            return False
        tensor = giver.inputs[0]
    return False


def _joins_a_list(trace: Trace, ops: Sequence[ForwardOpRow]) -> bool:
    """Whether it is one list without bounds, to which each step appends."""
    if any(
        not {each.tensor for each in before.inputs} < {each.tensor for each in op.inputs}
        for before, op in itertools.pairwise(ops)
    ):
        return False
    frame = ops[-1].frame
    if frame is None:
        return False
    tree = tree_of(trace, frame.file)
    names = {
        container_name(node.args[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and node.args
        and node.lineno <= frame.line <= (node.end_lineno or node.lineno)
        and isinstance(node.args[0], ast.Name | ast.Attribute)
        and container_name(node.func) in _JOINING
    }
    return len(names) == 1 and not any(_is_bounded(node, *names) for node in ast.walk(tree))


def _is_bounded(node: ast.AST, name: str) -> bool:
    """Whether a statement makes a container with a bound, or anew in a loop, or takes from it."""
    if takes_from(node, name, _TAKING):
        return True
    if isinstance(node, ast.For | ast.While):
        return any(
            isinstance(each, ast.Assign)
            and name in {container_name(target) for target in targets_of(each)}
            and name not in ast.unparse(each.value)
            for each in ast.walk(node)
        )
    if isinstance(node, ast.Assign | ast.AnnAssign):
        if all(container_name(each) != name for each in targets_of(node)):
            return False
        value = node.value
        is_deque = isinstance(value, ast.Call) and any(
            word.arg == "maxlen" for word in value.keywords
        )
        return is_deque or isinstance(value, ast.Subscript)
    return False
