"""How much of gradients is recorded.

At level ``health`` every gradient that flows is measured; the numbers are kept under the ``seq`` of
the event that they belong to: NonFiniteChecked for what a node puts out, GradientAccumulated for
the gradient of a single root and for what several gradients that met came to, LeafAccumulated and
GradientCaptured for what came to a leaf or to a result of ``grad`` and may differ from what one
node put out. At level ``full`` the same gradients are copied as well (:mod:`agviz.record.copies`).
"""

from __future__ import annotations

from typing import Final, Literal, get_args

CaptureLevel = Literal["none", "health", "full"]
"""How much of gradients is recorded besides shapes and bytes."""

LEVELS: Final[tuple[CaptureLevel, ...]] = get_args(CaptureLevel)
