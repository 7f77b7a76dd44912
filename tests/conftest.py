"""What tests share: how Hypothesis searches, torch left as it was found, AGVIZ=1 enabled."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import subprocess
import sys
import venv
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.ranks_support import PROGRAM, record_ranks

if TYPE_CHECKING:
    from collections.abc import Iterator

# `make test` draws the same examples every time and has no clock; `make fuzz` looks for new ones.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("fuzz", max_examples=2_000, deadline=None, print_blob=True)
settings.load_profile("repeatable")


_numbers = itertools.count()


def pytest_collection_finish() -> None:
    """No collection of garbage looks again at the half a million objects of torch and of all tests.

    Each took 0.3 s for that, and tests ask for hundreds.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test with ``slow_but_one_in(few)`` the cases are slow that are not the first of so many.

    Those that are slow anyway do not count.
    """
    counts: dict[tuple[Path, str], int] = {}
    for item in items:
        found = item.get_closest_marker("slow_but_one_in")
        if found is None or item.get_closest_marker("slow"):
            continue
        assert isinstance(item, pytest.Function)
        test = item.path, item.originalname
        counts[test] = counts.get(test, -1) + 1
        if counts[test] % found.args[0]:
            item.add_marker(pytest.mark.slow)


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


@pytest.fixture(autouse=True, scope="session")
def has_toured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No tour comes between a test and the terminal UI, as on the first start of a user."""
    settings = tmp_path_factory.mktemp("config")
    (settings / "agviz").mkdir()
    (settings / "agviz" / "toured").write_text("run pass program\n")
    before = os.environ.get("XDG_CONFIG_HOME")
    os.environ["XDG_CONFIG_HOME"] = str(settings)
    yield
    if before is None:
        del os.environ["XDG_CONFIG_HOME"]
    else:
        os.environ["XDG_CONFIG_HOME"] = before


@pytest.fixture(autouse=True)
def seeded() -> None:
    """What a test draws is the same in every run: torch seeds each process anew."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(0)


@pytest.fixture(autouse=True)
def no_mode_left_behind() -> Iterator[None]:
    """Whoever leaves a mode of torch on the stack changes what the tests after it see."""
    yield
    torch = sys.modules.get("torch")
    if torch is not None:
        assert not torch._C._len_torch_function_stack()
        assert not torch._C._len_torch_dispatch_stack()


@pytest.fixture(scope="session")
def enabled_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter of another environment, in which AGVIZ=1 is enabled."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    # As in a wheel, the packages have to be found before the interpreter has read all such files.
    root = Path(__file__).parent.parent
    paths = [str(root), str(root / "engine"), *filter(lambda p: "site-packages" in p, sys.path)]
    (packages / "_paths.pth").write_text("\n".join(paths))
    python = str(folder / "bin" / "python")
    subprocess.run([python, "-m", "agviz", "env", "--enable"], capture_output=True, check=True)
    return python


@pytest.fixture(scope="session")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the traces of both ranks of :data:`tests.ranks_support.PROGRAM`."""
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "train.py").write_text(PROGRAM, encoding="utf-8")
    return record_ranks(folder / "train.py", folder, str(folder / "meeting"), size=2)
