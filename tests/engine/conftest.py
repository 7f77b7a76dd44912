"""What the engine's tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

if TYPE_CHECKING:
    from agviz_engine.device_policy import DevicePolicy


@pytest.fixture(params=[None, lambda _: 0], ids=["caller", "device"])
def device_policy(request: pytest.FixtureRequest) -> DevicePolicy | None:
    """Where nodes run: on the thread that called backward, or on one simulated device's thread."""
    return cast("DevicePolicy | None", request.param)
