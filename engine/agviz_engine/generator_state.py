"""The state of the generators of random numbers that a program may draw from."""

from __future__ import annotations

import contextlib
import random
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch

if TYPE_CHECKING:
    from torch import Tensor

_cpu = torch.default_generator


class GeneratorState(NamedTuple):
    """Of torch, on the CPU and on accelerators, of Python's ``random`` and of numpy."""

    cpu: Tensor
    devices: tuple[Tensor, ...]
    """Of each accelerator that is in use."""
    python: Any
    numpy: Any
    """None: numpy is not imported."""


def take(known: GeneratorState | None, *, with_devices: bool, with_python: bool) -> GeneratorState:
    """The state as it is now; what is as in ``known`` is not kept twice.

    Args:
        known: as it was before.
        with_devices: whether there are accelerators.
        with_python: whether Python may have drawn since then, on which ``random`` and numpy depend.
    """
    cpu = _cpu.get_state()
    devices = tuple(_states_of_devices()) if with_devices else ()
    if known is not None and torch.equal(cpu, known.cpu):
        cpu = known.cpu
    if known is not None and not with_python:
        if cpu is known.cpu and not devices:
            return known
        return known._replace(cpu=cpu, devices=devices)
    python = random.getstate()
    numpy = _numpy_random()
    state = None if numpy is None else numpy.get_state()
    if known is not None:
        python = known.python if python == known.python else python
        state = known.numpy if _is_same(state, known.numpy) else state
    return GeneratorState(cpu, devices, python, state)


def restore(state: GeneratorState) -> None:
    """Have all of them give again what they gave from that moment on."""
    _cpu.set_state(state.cpu)
    if state.devices:
        module = _device_module()
        for index, each in enumerate(state.devices):
            module.set_rng_state(each, index)
    random.setstate(state.python)
    numpy = _numpy_random()
    if numpy is not None and state.numpy is not None:
        numpy.set_state(state.numpy)


def _device_module() -> Any:
    return torch.get_device_module(torch.accelerator.current_accelerator())


def _states_of_devices() -> list[Tensor]:
    module = _device_module()
    if not module.is_initialized():
        return []
    with contextlib.suppress(RuntimeError):  # while a graph of the device is captured
        return [module.get_rng_state(index) for index in range(torch.accelerator.device_count())]
    return []


def _numpy_random() -> Any:
    numpy = cast("Any", sys.modules.get("numpy"))
    return getattr(numpy, "random", None)


def _is_same(one: Any, other: Any) -> bool:
    """Whether two states of numpy's generator are equal."""
    if one is None or other is None:
        return one is other
    return one[2:] == other[2:] and bool((one[1] == other[1]).all())
