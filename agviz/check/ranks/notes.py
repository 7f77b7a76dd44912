"""What a rank notes of some optimizer steps, and the file that it leaves it in.

Note [Some of the elements]
To average gradients is to average each element. So of a large tensor every k-th element is kept, as
float64, and what is kept of a step stays below 64 MiB however large the model is.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from agviz.errors import AgvizError
from agviz.repro.safetensors import StoredTensor, decode, encode
from agviz.traces.rows import Frame

if TYPE_CHECKING:
    from collections.abc import Mapping

_NOTES: Final = "notes"
_CODE: Final = "F64"
_TENSORS: Final = (
    *("own", "reduced", "given"),
    *("before_hook", "after_hook", "before_write", "after_write"),
)

DDP: Final = "ddp"
"""A parameter that a reducer of DDP gets the gradient of."""
IGNORED: Final = "ignored"
"""In a module under DDP, which was told to leave it out."""
NEW: Final = "new"
"""In a module under DDP, which does not know it."""
OUTSIDE: Final = "outside"
"""In no module under DDP."""
SOME: Final = "some"
"""Under a DDP of some of the ranks."""

MEAN: Final = "mean"
SUM: Final = "sum"


@dataclass(slots=True)
class CallNote:
    """A call of a module under DDP."""

    is_past_ddp: bool
    """Whether the module itself was called, and not DDP."""
    syncs: bool
    """Whether it was outside of ``no_sync``."""
    frame: Frame | None
    inputs: tuple[str, ...]
    """Checksums of the tensors that it was given."""
    batch: int | None
    """Size of the first dimension of the first of them."""


@dataclass(slots=True)
class LossNote:
    """How the loss of a backward pass weighs what it is made of."""

    kind: str
    """:data:`MEAN` or :data:`SUM` over all of it; empty: it can't be told."""
    count: int
    """Of the numbers that are averaged or summed."""
    scale: float
    """The gradient that comes to it: by what it is multiplied."""
    frame: Frame | None


@dataclass(slots=True)
class PassNote:
    """A call of backward between two optimizer steps."""

    frame: Frame | None
    calls: list[CallNote] = field(default_factory=list)
    """Since the pass before."""
    loss: LossNote | None = None


@dataclass(slots=True)
class ParameterNote:
    """A parameter when an optimizer's step begins. Tensors: Note [Some of the elements]."""

    place: str
    """:data:`DDP`, :data:`IGNORED`, :data:`NEW`, :data:`OUTSIDE`, :data:`SOME`."""
    value: int
    """Checksum of its elements."""
    passes: tuple[int, ...]
    """Numbers of the passes in which a gradient came to it."""
    tolerance: float
    """By so much of their norm gradients may be off in its dtype."""
    is_compressed: bool
    """Whether a communication hook changes what is reduced."""
    placed: Frame | None
    """Where its module was put into another, or converted."""
    hook: Frame | None
    """The program's hook that is called with its gradient."""
    written_before: Frame | None
    """The line that wrote to the gradient between two passes, before DDP had reduced it."""
    written_after: Frame | None
    """The line that wrote to it after the last pass."""
    own: Tensor | None = None
    """What this rank gives to be reduced: its own gradient, of all passes."""
    reduced: Tensor | None = None
    """What was left in ``.grad`` when the last pass had ended."""
    given: Tensor | None = None
    """What the optimizer gets."""
    before_hook: Tensor | None = None
    """What backward gave in the first pass in which a hook has changed it; None: none has."""
    after_hook: Tensor | None = None
    before_write: Tensor | None = None
    """What a pass had left that was then written to, before it was reduced; None: none was."""
    after_write: Tensor | None = None


@dataclass(slots=True)
class StepNote:
    """A step of an optimizer."""

    optimizer: int
    """In the order of their first steps."""
    step: int
    """From 0."""
    passes: list[PassNote]
    parameters: dict[str, ParameterNote]
    collective: Frame | None
    """The last collective that the program called after backward."""
    joins: bool
    """Whether ``join`` goes on with fewer ranks."""
    has_own_statistics: bool
    """Whether batch norm uses each rank's own batch."""


@dataclass(slots=True)
class RankNotes:
    """Everything that a rank leaves for the comparison."""

    rank: int
    world: int
    steps: list[StepNote]
    why_not: str
    """Why there are no more; empty: nothing is missing."""
    failed: bool = False
    """Whether the program failed in this rank."""
    report: dict[str, Any] = field(default_factory=dict)
    """What was found in this process alone, as JSON."""
    lines: list[Frame | None] = field(default_factory=list)
    """Of the report's verdicts."""


def encoded(notes: RankNotes) -> bytes:
    """A file in the format safetensors."""
    tensors: dict[str, StoredTensor] = {}
    for number, step in enumerate(notes.steps):
        for name, parameter in step.parameters.items():
            for what in _TENSORS:
                tensor = getattr(parameter, what)
                if tensor is not None:
                    data = tensor.contiguous().numpy().tobytes()
                    stored = StoredTensor(_CODE, tuple(tensor.shape), data)
                    tensors[f"{number}/{what}/{name}"] = stored
    none: dict[str, Any] = dict.fromkeys(_TENSORS)
    bare = dataclasses.replace(
        notes,
        steps=[
            dataclasses.replace(
                step,
                parameters={
                    name: dataclasses.replace(each, **none)
                    for name, each in step.parameters.items()
                },
            )
            for step in notes.steps
        ],
    )
    return encode(tensors, {_NOTES: json.dumps(dataclasses.asdict(bare))})


def decoded(data: bytes) -> RankNotes:
    """What a file holds.

    Raises:
        AgvizError: it is damaged.
    """
    stored, metadata = decode(data)
    tensors = {name: _tensor(each) for name, each in stored.items()}
    try:
        facts = json.loads(metadata[_NOTES])
        steps = [_step(each, number, tensors) for number, each in enumerate(facts["steps"])]
        lines = [_frame(each) for each in facts["lines"]]
        return RankNotes(**{**facts, "steps": steps, "lines": lines})
    except (ValueError, KeyError, TypeError) as error:
        raise AgvizError("what a rank has left is damaged; run the check again") from error


def _tensor(stored: StoredTensor) -> Tensor:
    if not len(stored.data):
        return torch.empty(0, dtype=torch.float64)
    return torch.frombuffer(bytearray(stored.data), dtype=torch.float64)


def _step(facts: dict[str, Any], number: int, tensors: Mapping[str, Tensor]) -> StepNote:
    passes = [
        PassNote(
            _frame(each["frame"]),
            [
                CallNote(
                    **{**one, "frame": _frame(one["frame"]), "inputs": tuple(one["inputs"])},
                )
                for one in each["calls"]
            ],
            _loss(each["loss"]),
        )
        for each in facts["passes"]
    ]
    frames = "placed", "hook", "written_before", "written_after"
    parameters = {
        name: ParameterNote(
            **{
                **each,
                "passes": tuple(each["passes"]),
                **{one: _frame(each[one]) for one in frames},
                **{what: tensors.get(f"{number}/{what}/{name}") for what in _TENSORS},
            }
        )
        for name, each in facts["parameters"].items()
    }
    line = _frame(facts["collective"])
    changed = {"passes": passes, "parameters": parameters, "collective": line}
    return StepNote(**{**facts, **changed})


def _loss(facts: dict[str, Any] | None) -> LossNote | None:
    return None if facts is None else LossNote(**{**facts, "frame": _frame(facts["frame"])})


def _frame(facts: list[Any] | None) -> Frame | None:
    return None if facts is None else Frame(*facts)
