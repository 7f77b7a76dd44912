"""Modes of torch as they really are, whatever the program is shown of them.

Provenance shows the program an anomaly mode of its own (:mod:`agviz.record.provenance`), so what
has to meet torch's own functions imports this module before that begins.
"""

from __future__ import annotations

import operator
from typing import Any, cast

import torch

_C = cast("Any", torch._C)
is_anomaly_enabled = _C.is_anomaly_enabled
is_anomaly_check_nan_enabled = _C.is_anomaly_check_nan_enabled
set_anomaly_enabled = _C.set_anomaly_enabled
_INTO_AND_OUT = _C._vmapmode_increment_nesting, _C._vmapmode_decrement_nesting
"""Called in one go, in which no handler of a signal can strike: the level would stay."""


def legacy_vmap_level() -> int:
    """How many levels of ``torch._vmap_internals.vmap`` this thread is in."""
    level, _ = map(operator.call, _INTO_AND_OUT)
    return int(level) - 1


def leave_legacy_vmap() -> int:
    """Leave all of its levels; how many they were."""
    levels = legacy_vmap_level()
    for _ in range(levels):
        _C._vmapmode_decrement_nesting()
    return levels


def enter_legacy_vmap(levels: int) -> None:
    """Enter so many levels again."""
    for _ in range(levels):
        _C._vmapmode_increment_nesting()
