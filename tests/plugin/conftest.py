"""What holds for all tests of the plugin."""

import os

import pytest

_SHORTENING = {"CI", "BUILD_NUMBER", "COLUMNS"}
"""By these pytest decides how much of a long line it shows."""


@pytest.fixture(autouse=True)
def alone(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the one who runs this reaches the runs within."""
    ours = ("AGVIZ", "GITHUB_")
    for name in [n for n in os.environ if any(each in n for each in ours) or n in _SHORTENING]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:cacheprovider")
