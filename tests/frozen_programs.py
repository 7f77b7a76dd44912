"""The programs whose recorded answers are frozen, see :mod:`tests.frozen`."""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import agviz
from tests.engine.builders import Multiply, Swallow, apply, custom, engine, leaf, throw
from tests.engine.programs import PROGRAMS
from tests.gallery_frame import ROOT, programs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SCRIPTS: Final = ("conv_net", "gan", "maml", "rnn", "transformer", "wgan_gp")
LEVELS: Final = ("none", "health", "full")
KINDS: Final = ("faint", "healthy", "no_gradient", "nonfinite", "version")
"""Folders of the gallery whose programs end by themselves."""


class Case(NamedTuple):
    """One recording that is frozen."""

    name: str
    record: Callable[[Path], object]
    """Record it into a file; what the program raises passes through."""
    has_threads: bool = False
    """Whether nodes run on several threads, so that the order of events differs between runs."""
    reads_shortly: bool = False
    """Whether only the answers are frozen, not all exports."""


def cases() -> list[Case]:
    """All of them; names are unique."""
    made = {**PROGRAMS, **{name: _script(name) for name in SCRIPTS}, **_MORE}
    found = [
        Case(f"programs/{name}.{level}", _within(run, values=level))
        for name, run in made.items()
        for level in LEVELS[: 3 if name in {"mlp", "complex_numbers"} else 2]
    ]
    found += [
        Case(f"devices/{name}.{policy}", _within(PROGRAMS[name], device_policy=choose), True)
        for name in ("mlp", "reentrant_checkpoint", "several_roots", "node_hooks")
        for policy, choose in _POLICIES.items()
    ]
    found += [Case(f"choices/{name}", record) for name, record in _CHOICES.items()]
    for kind in KINDS:
        for program in programs(kind):
            name = f"gallery/{kind}/{program.name}"
            has_threads = "device_policy" in program.path.read_text(encoding="utf-8")
            found += [
                Case(
                    f"{name}.{'forward' if check_forward else 'plain'}",
                    _with_options(program.record, check_forward=check_forward),
                    has_threads,
                    check_forward,
                )
                for check_forward in (False, True)
            ]
    return found


def hanging() -> list[str]:
    """Names of the programs that hang, and are killed."""
    return [path.stem for path in sorted((ROOT / "hang").glob("*.py"))]


def _within(run: Callable[[], object], **options: Any) -> Callable[[Path], object]:
    def record(path: Path) -> object:
        torch.manual_seed(0)
        with agviz.trace(path=path, **options):
            return run()

    return record


def _with_options(record: Callable[..., object], **options: Any) -> Callable[[Path], object]:
    return lambda path: record(path, **options)


def _script(name: str) -> Callable[[], object]:
    def run() -> object:
        with patch.object(sys, "argv", [name]):
            return importlib.import_module(f"tests.scripts.{name}").main()

    return run


def _hook_that_raises() -> None:
    h = leaf(3).exp()
    h.register_hook(lambda _: throw(ValueError("a hook raised")))
    (h * 2 + leaf(3)).sum().backward()


def _post_hook_that_raises() -> None:
    h = leaf(3).exp()
    assert h.grad_fn is not None
    h.grad_fn.register_hook(lambda *_: throw(ValueError("a hook of the node raised")))
    (h * 2 + leaf(3)).sum().backward()


def _custom_backward_that_raises() -> None:
    y = custom(lambda _ctx, _g: throw(KeyError("in backward")))(leaf(3).exp())
    (y * 2).sum().backward()


def _failure_and_then_fine() -> None:
    with contextlib.suppress(ValueError):
        _hook_that_raises()
    PROGRAMS["mlp"]()


def _failure_in_a_reentrant_pass() -> None:
    def block(x: Tensor) -> Tensor:
        y = x.exp()
        if y.requires_grad:
            y.register_hook(lambda _: throw(ValueError("inside")))
        return y * 2

    h = checkpoint(block, leaf(4).sin(), use_reentrant=True)
    (h + leaf(4)).sum().backward()


def _final_callbacks() -> None:
    x = leaf(3)
    y = x.exp()
    y.register_hook(lambda _: engine().queue_callback(lambda: None))
    (y * x).sum().backward()


def _undefined_from_a_custom_function() -> None:
    x = leaf(3)
    (apply(Swallow, x.exp()) * x).sum().backward()


def _custom_function_with_two_inputs() -> None:
    x, y = leaf(3), leaf(3)
    product, total = apply(Multiply, x.exp(), y * 2)
    (product * total + x).sum().backward()


def _two_threads_in_turn() -> None:
    for _ in range(2):
        thread = threading.Thread(target=PROGRAMS["mlp"])
        thread.start()
        thread.join()


def _wide_fan_in() -> None:
    leaves = [leaf(2) for _ in range(60)]
    torch.stack([x * n for n, x in enumerate(leaves)]).sum().backward()


def _not_finite_in_two_branches() -> None:
    x = torch.zeros(4, requires_grad=True)
    with contextlib.suppress(RuntimeError):
        (x.sqrt() + (x / x).sum() + x.log().exp()).sum().backward()


def _sparse_and_dense() -> None:
    table = nn.Embedding(10, 3, sparse=True)
    (table(torch.tensor([1, 4, 1])).sum() + table.weight.sum()).backward()


def _many_passes() -> None:
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    for _ in range(40):
        model(torch.randn(2, 7, 16)).pow(2).mean().backward()


def _nested_reentrant() -> None:
    def inner(x: Tensor) -> Tensor:
        return x.sin() * x

    def outer(x: Tensor) -> Tensor:
        y: Tensor = checkpoint(inner, x.exp(), use_reentrant=True)
        return y.cos()

    checkpoint(outer, leaf(4) * 2, use_reentrant=True).sum().backward()


_MORE: Final[dict[str, Callable[[], object]]] = {
    "hook_that_raises": _hook_that_raises,
    "post_hook_that_raises": _post_hook_that_raises,
    "custom_backward_that_raises": _custom_backward_that_raises,
    "failure_and_then_fine": _failure_and_then_fine,
    "failure_in_a_reentrant_pass": _failure_in_a_reentrant_pass,
    "final_callbacks": _final_callbacks,
    "undefined_from_a_custom_function": _undefined_from_a_custom_function,
    "custom_function_with_two_inputs": _custom_function_with_two_inputs,
    "two_threads_in_turn": _two_threads_in_turn,
    "wide_fan_in": _wide_fan_in,
    "not_finite_in_two_branches": _not_finite_in_two_branches,
    "sparse_and_dense": _sparse_and_dense,
    "nested_reentrant": _nested_reentrant,
}
_POLICIES: Final[dict[str, Callable[[Any], int]]] = {
    "one": lambda _: 0,
    "two": lambda node: node._sequence_nr() % 3 - 1,
}
_CHOICES: Final[dict[str, Callable[[Path], object]]] = {
    "steps": _within(_script("gan"), steps=range(2, 5)),
    "nodes": _within(PROGRAMS["transformer_encoder"], nodes="linear1|Softmax"),
    "small_file": _within(_many_passes, max_bytes=1_000_000),
    "flight": _within(_failure_and_then_fine, on=("exception",), keep=2),
    "without_provenance": _within(PROGRAMS["mlp"], provenance=False),
}
