"""Gradients bit for bit, and the order of nodes, as in the native engine."""

from __future__ import annotations

import pytest
import torch

from tests.engine.oracle import assert_same, native_outcome, our_outcome
from tests.engine.programs import PROGRAMS

MAKES_NODES_IN_BACKWARD = {"double_backward", "triple_backward"}


@pytest.mark.filterwarnings("ignore:.*Sparse invariant checks:UserWarning")
@pytest.mark.parametrize("name", PROGRAMS)
def test_same_gradients_and_order(name: str) -> None:
    assert_same(PROGRAMS[name])


@pytest.mark.filterwarnings("ignore:.*Sparse invariant checks:UserWarning")
@pytest.mark.parametrize("name", PROGRAMS)
def test_same_gradients_and_order_on_a_device_thread(name: str) -> None:
    # Nodes made by a device thread get that thread's sequence numbers, so their order is its own.
    assert_same(
        PROGRAMS[name], device_policy=lambda _: 0, order=name not in MAKES_NODES_IN_BACKWARD
    )


@pytest.mark.filterwarnings("ignore:.*Sparse invariant checks:UserWarning")
@pytest.mark.parametrize("name", PROGRAMS)
def test_close_gradients_on_three_interleaved_devices(name: str) -> None:
    """Where gradients from several threads meet, their order, and so the rounding, is open."""
    native = native_outcome(PROGRAMS[name])
    ours = our_outcome(PROGRAMS[name], device_policy=lambda node: node._sequence_nr() % 3)
    assert ours.error is native.error is None
    torch.testing.assert_close(
        _coalesced(ours.tensors), _coalesced(native.tensors), rtol=1e-4, atol=1e-5
    )


def _coalesced(tensors: list[torch.Tensor | None]) -> list[torch.Tensor | None]:
    return [t.coalesce() if t is not None and t.is_sparse else t for t in tensors]
