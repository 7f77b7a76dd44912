"""A pass under ``torch.compile``, held against the same pass without it.

Note [Compiled as one function]
What the program calls in a forward is written down as one function of its parameters and data, with
constants in place of what it read from tensors. That is run twice, once compiled by torch's default
backend. Both are to give the same but for rounding: Note [Expected error] in ``comparing.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import torch
from torch import Tensor

from agviz.check.precision.comparing import CompiledAnswer, FirstOff, off_by
from agviz.check.precision.tape import Slot, TapeError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agviz.check.precision.comparing import PrecisionAnswer
    from agviz.check.precision.tape import ForwardTape

_INDENT: Final = "    "


def compare_compiled(tape: ForwardTape, answer: PrecisionAnswer) -> CompiledAnswer:
    """Run a pass compiled and as it is, and compare.

    Args:
        tape: the pass.
        answer: what came of comparing float32 and float64: what each result may be off by.
    """
    try:
        return _compared(tape, answer)
    except TapeError as error:
        return CompiledAnswer(why_not=str(error))
    except Exception as error:  # noqa: BLE001 - compilers raise anything
        return CompiledAnswer(why_not=f"it can't be compiled ({type(error).__name__})")


def _compared(tape: ForwardTape, answer: PrecisionAnswer) -> CompiledAnswer:
    if answer.why_not:
        raise TapeError(answer.why_not)
    places = list(answer.forward)
    function = _Written(tape, places).function()
    eager, eager_gradients = _run(tape, function)
    # On this thread: when the program has ended, there are no new ones.
    compiled_function = torch.compile(function, options={"compile_threads": 1})
    found, gradients = _run(tape, compiled_function)
    off: dict[str, float] = {}
    for number, expected in answer.gradients.items():
        deviation = off_by(gradients[number], eager_gradients[number], expected)
        if deviation.is_notable:
            off[tape.given[number].called] = deviation.share
    compiled = CompiledAnswer(dict(sorted(off.items(), key=lambda pair: -pair[1])))
    if off:
        for place, one, other in zip(places, found, eager, strict=True):
            deviation = off_by(one, other, answer.forward[place])
            if deviation.is_off:
                compiled.first = FirstOff(tape.calls[place], deviation, False, "", False)
                break
    return compiled


def _run(
    tape: ForwardTape, function: Callable[..., Sequence[Tensor]]
) -> tuple[Sequence[Tensor], dict[int, Tensor]]:
    """The results of calls, and the gradients of leaves."""
    leaves = {
        number: leaf.copy.clone().requires_grad_(leaf.requires_grad)
        for number, leaf in tape.given.items()
    }
    factors = [call.factors for call in tape.calls if call.factors is not None]
    results = function(*leaves.values(), *factors)
    roots, others = results[: len(tape.roots)], results[len(tape.roots) :]
    torch.autograd.backward(roots, cast("Any", [weight for _, weight in tape.roots]))
    gradients = {
        number: leaf.grad for number, leaf in leaves.items() if isinstance(leaf.grad, Tensor)
    }
    return [each.detach() for each in others], gradients


class _Written:
    """A tape as the text of a function.

    Args:
        tape: the calls.
        places: of calls whose first result is given back behind the roots.
    """

    def __init__(self, tape: ForwardTape, places: Sequence[int]) -> None:
        self._known: dict[str, Any] = {"torch": torch, "flat": _flat}
        kept = {place: number for number, place in enumerate(places)}
        rows = []
        for place, call in enumerate(tape.calls):
            names = ", ".join(f"t{number}" for number in call.results)
            args = [self._text(each) for each in call.args]
            args += [f"{key}={self._text(each)}" for key, each in call.kwargs.items()]
            self._known[f"f{place}"] = call.function
            said = f"f{place}({', '.join(args)})"
            if call.factors is not None:
                said = f"{args[0]} * k{place}"
            row = f"{names}, = flat({said})" if names else said
            if not call.grad_enabled:
                rows.append("with torch.no_grad():")
                row = _INDENT + row
            rows.append(row)
            if place in kept:
                rows.append(f"r{kept[place]} = t{call.results[0]}")
        arguments = [f"t{number}" for number in tape.given]
        arguments += [f"k{n}" for n, call in enumerate(tape.calls) if call.factors is not None]
        given = [f"t{number}" for number, _ in tape.roots] + [f"r{n}" for n in range(len(places))]
        rows.append(f"return [{', '.join(given)}]")
        body = "\n".join(_INDENT + row for row in rows)
        self.text = f"def forward({', '.join(arguments)}):\n{body}\n"

    def function(self) -> Callable[..., Sequence[Tensor]]:
        """The function itself; its text holds names and numbers of ours only."""
        exec(compile(self.text, "<a forward>", "exec"), self._known)  # noqa: S102
        return cast("Callable[..., Sequence[Tensor]]", self._known["forward"])

    def _text(self, value: Any) -> str:
        if isinstance(value, Slot):
            return f"t{value.number}"
        if type(value) in {list, tuple}:
            parts = ", ".join(map(self._text, value))
            return f"[{parts}]" if type(value) is list else f"({parts}{',' * bool(parts)})"
        name = f"c{len(self._known)}"
        self._known[name] = value
        return name


def _flat(result: Any) -> Sequence[Tensor]:
    return (result,) if isinstance(result, Tensor) else tuple(result)
