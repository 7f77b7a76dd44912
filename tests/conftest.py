"""What every test shares: how Hypothesis searches, and that torch is left as it was found."""

from __future__ import annotations

import itertools
import signal
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Iterator

# `make test` draws the same examples every time and has no clock; `make fuzz` looks for new ones.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("fuzz", max_examples=2_000, deadline=None, print_blob=True)
settings.load_profile("repeatable")


_numbers = itertools.count()


@pytest.fixture(autouse=True, scope="session")
def interruptible() -> Iterator[None]:
    """SIGINT interrupts, here and in child processes, also where a shell had it ignored."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def no_history(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What a test types at a prompt is neither the user's nor that of another test."""
    place = tmp_path_factory.getbasetemp() / f"state-{next(_numbers)}"
    monkeypatch.setenv("XDG_STATE_HOME", str(place))


@pytest.fixture(autouse=True)
def no_mode_left_behind() -> Iterator[None]:
    """Whoever leaves a mode of torch on the stack changes what the tests after it see."""
    yield
    torch = sys.modules.get("torch")
    if torch is not None:
        assert not torch._C._len_torch_function_stack()
        assert not torch._C._len_torch_dispatch_stack()
