"""What holds for all tests of the plugin."""

import os

import pytest

_SHORTENING = {"CI", "BUILD_NUMBER", "COLUMNS"}
"""By these pytest decides how much of a long line it shows."""


@pytest.fixture(autouse=True)
def alone(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the one who runs this reaches the runs within."""
    for name in [name for name in os.environ if "AGVIZ" in name or name in _SHORTENING]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:cacheprovider")
