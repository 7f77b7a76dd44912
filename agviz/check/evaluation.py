"""A custom Function called again: its outputs and gradients at points near those of the run."""

from __future__ import annotations

import contextlib
import io
import random
import warnings
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from agviz.check.kept_call import mapped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.check.kept_call import CustomFunction, KeptCall

GOES_ON: Final = "a loop that decides by values"
"""Stands for many decisions in one call, as of what iterates until it is near enough."""
_DECIDING: Final = frozenset({"_local_scalar_dense", "where"})
_MANY: Final = 5
TO_INTEGERS: Final = "a cast to integers"
"""Stands for a conversion that leaves no fractions."""
RANDOM: Final = "a draw of random numbers"
_LOW: Final = (torch.float16, torch.bfloat16, torch.float32, torch.complex32, torch.complex64)
Point = list[Tensor]
"""Values of the arguments that need a gradient, in the order of their places."""


class EvaluationError(Exception):
    """The Function can't be called again as it was; its text says why."""


class Evaluation:
    """A kept call of a Function, to be made at other points.

    Args:
        about: the Function.
        call: its arguments.
        in_double: whether floating-point arguments become float64.
    """

    def __init__(self, about: CustomFunction, call: KeptCall, *, in_double: bool) -> None:
        self.about = about
        self.call = call
        self._args = tuple(mapped(arg, _in_double) for arg in call.args) if in_double else call.args
        self.start: Point = [self._args[place] for place in call.needs_grad]
        self.ops: set[str] = set()
        """Names of the operators that forward calls, once :meth:`gradients` has run."""
        self.backward_ops: set[str] = set()

    def outputs(self, point: Point) -> list[Tensor]:
        """The differentiable outputs at ``point``.

        Raises:
            EvaluationError: forward raises.
        """
        _seed()
        with torch.no_grad():
            found = self._apply(point)
        return [each.detach() for each in found if _is_differentiable(each)]

    def gradients(
        self,
        point: Point,
        weights: Sequence[Tensor],
        *,
        create_graph: bool = False,
        then_at: Point | None = None,
        skipped: frozenset[str] = frozenset(),
    ) -> list[Tensor | None]:
        """What backward gives for the arguments at ``point``.

        Args:
            point: where.
            weights: incoming gradients of the outputs that :meth:`outputs` gives. They are copied.
            create_graph: whether the gradients are to be differentiable.
            then_at: another point, at which forward is called before backward runs.
            skipped: names of operators that backward calls and that are to change nothing.

        Raises:
            EvaluationError: forward or backward raises.
        """
        _seed()
        with torch.enable_grad():
            leaves = [
                each if create_graph else each.detach().clone().requires_grad_() for each in point
            ]
            with _Operators(self.ops):
                args, results = self._applied(leaves)
                outputs = [each for each in results if _is_differentiable(each)]
            before = [each.detach().clone() for each in args]
            if then_at is not None:
                self._apply([each.detach().clone().requires_grad_() for each in then_at])
            pairs = [
                (output, weight)
                for output, weight in zip(outputs, weights, strict=True)
                if output.requires_grad
            ]
            if not pairs:
                return [None] * len(leaves)
            given = [weight if create_graph else weight.clone() for _, weight in pairs]
            try:
                with _Operators(self.backward_ops, skipped):
                    found = torch.autograd.grad(
                        [output for output, _ in pairs],
                        leaves,
                        given,
                        allow_unused=True,
                        create_graph=create_graph,
                    )
            except Exception as error:
                raise EvaluationError(
                    f"its backward raises {type(error).__name__} when it is called again"
                ) from error
            if not create_graph and not all(
                torch.equal(now, before) for now, (_, before) in zip(given, pairs, strict=True)
            ):
                self.about.writes_to_incoming = True
            self.about.writes_to.update(
                place
                for place, now, then in zip(self.call.needs_grad, args, before, strict=True)
                if not torch.equal(now, then)
            )
        return list(found)

    def _apply(self, point: Point) -> list[Any]:
        return self._applied(point)[1]

    def _applied(self, point: Point) -> tuple[list[Tensor], list[Any]]:
        """The arguments that need a gradient, as they were given, and the results."""
        args = [mapped(arg, torch.clone) for arg in self._args]
        for place, value in zip(self.call.needs_grad, point, strict=True):
            args[place] = value.clone()
        try:
            result = self.about.function.apply(*args)
        except Exception as error:
            raise EvaluationError(
                f"its forward raises {type(error).__name__} when it is called again"
            ) from error
        given = [args[place] for place in self.call.needs_grad]
        return given, list(result) if isinstance(result, tuple | list) else [result]


class _Operators(TorchDispatchMode):
    """Notes which operators are called; of those that are skipped, the first argument is given."""

    def __init__(self, names: set[str], skipped: frozenset[str] = frozenset()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._names = names
        self._decided = 0
        self._skipped = skipped

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch's own answer, True, imports its compiler at the first operator: seconds."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = func.overloadpacket.__name__
        self._names.add(name)
        if name in self._skipped:
            return args[0] if name.endswith("_") else args[0].clone()
        result = func(*args, **(kwargs or {}))
        if name == "_to_copy" and args[0].is_floating_point() and not result.is_floating_point():
            self._names.add(TO_INTEGERS)
        if torch.Tag.nondeterministic_seeded in func.tags:
            self._names.add(RANDOM)
        self._decided += name in _DECIDING
        if self._decided == _MANY:
            self._names.add(GOES_ON)
        return result


@contextlib.contextmanager
def unnoticed() -> Iterator[None]:
    """Functions that are called say nothing, and leave the state of random numbers as it was."""
    before = random.getstate(), np.random.get_state()  # noqa: NPY002 # the program's own
    with (
        torch.random.fork_rng(),
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])  # noqa: NPY002 # the program's own


def _seed() -> None:
    """Random numbers are the same each time."""
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 # the program's own


def _in_double(tensor: Tensor) -> Tensor:
    if tensor.dtype not in _LOW:
        return tensor
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def _is_differentiable(value: Any) -> bool:
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())
