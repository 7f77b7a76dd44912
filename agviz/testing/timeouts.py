"""pytest-timeout: it does not count what recording costs, and says what hangs before it ends all.

What backward passes took that have ended does not count, nor does as much again, for their
forwards, which take longer, too. A pass that hangs does not end.
"""

from __future__ import annotations

import signal
import threading
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    import pytest

_SHARE: Final = 2.0
"""Seconds that are given for each in a backward pass that has ended."""
_MOST_SECONDS: Final = 30.0
"""To say what hangs."""


def set_timer(
    item: pytest.Item, settings: Any, describe: Callable[[], str], recorded: Callable[[], float]
) -> None:
    """Do what pytest-timeout would for a test, but later, and say something before.

    Args:
        item: the test.
        settings: pytest-timeout's.
        describe: gives the text of a section, on another thread than that which hangs, where the
            process will be ended; empty: none.
        recorded: gives the seconds that ended backward passes of the test have taken.
    """
    began, before = time.monotonic(), recorded()

    def left() -> float:
        given = settings.timeout + _SHARE * (recorded() - before)
        return float(began + given - time.monotonic())

    if settings.method == "signal" and threading.current_thread() is threading.main_thread():
        cancel = _on_alarm(item, settings, left)
    else:
        cancel = _on_thread(item, left, lambda: _time_is_up(item, settings, describe))
    item.cancel_timeout = cancel  # type: ignore[attr-defined]


def _on_alarm(item: pytest.Item, settings: Any, left: Callable[[], float]) -> Callable[[], None]:
    plugin: Any = item.config.pluginmanager.getplugin("timeout")

    def handler(_signal: int, _frame: FrameType | None) -> None:
        __tracebackhide__ = True
        more = left()
        if more > 0:
            signal.setitimer(signal.ITIMER_REAL, more)
        else:
            plugin.timeout_sigalrm(item, settings)

    def cancel() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)

    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, settings.timeout)
    return cancel


def _on_thread(
    item: pytest.Item, left: Callable[[], float], time_is_up: Callable[[], None]
) -> Callable[[], None]:
    is_over = threading.Event()

    def wait() -> None:
        while (more := left()) > 0:
            if is_over.wait(more):
                return
        time_is_up()

    thread = threading.Thread(target=wait, name=f"agviz-timeout {item.nodeid}", daemon=True)
    thread.start()

    def cancel() -> None:
        is_over.set()
        thread.join()

    return cancel


def _time_is_up(item: pytest.Item, settings: Any, describe: Callable[[], str]) -> None:
    plugin: Any = item.config.pluginmanager.getplugin("timeout")
    if not settings.disable_debugger_detection and plugin.is_debugging():
        return
    try:
        text = _text_in_time(describe)
        capture: Any = item.config.pluginmanager.getplugin("capturemanager")
        if text and capture is not None:
            capture.suspend_global_capture(item)
        if text:
            terminal = item.config.get_terminal_writer()
            terminal.line()
            terminal.sep("-", title="agviz")
            terminal.line(text)
    finally:
        plugin.timeout_timer(item, settings)


def _text_in_time(describe: Callable[[], str]) -> str:
    """What ``describe`` gives; the process has to end even where that hangs, too."""
    texts: list[str] = []
    thread = threading.Thread(
        target=lambda: texts.append(describe()), name="agviz-describe", daemon=True
    )
    thread.start()
    thread.join(_MOST_SECONDS)
    return "".join(texts)
