"""What is said before pytest-timeout ends the process, as its method ``thread`` does."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

_MOST_SECONDS: Final = 30.0
"""To say what hangs."""


def set_timer(item: pytest.Item, settings: Any, tell: Callable[[], str]) -> bool:
    """Do what pytest-timeout would for a test, and say something before.

    Args:
        item: the test.
        settings: pytest-timeout's.
        tell: gives the text of a section, on another thread than that which hangs; empty: none.

    Returns:
        Whether the process will be ended where time is up; else pytest-timeout has to go on.
    """
    is_signal = settings.method == "signal"
    if is_signal and threading.current_thread() is threading.main_thread():
        return False
    timer = threading.Timer(settings.timeout, _time_is_up, (item, settings, tell))
    timer.name = f"agviz-timeout {item.nodeid}"
    timer.daemon = True

    def cancel() -> None:
        timer.cancel()
        timer.join()

    item.cancel_timeout = cancel  # type: ignore[attr-defined]
    timer.start()
    return True


def _time_is_up(item: pytest.Item, settings: Any, tell: Callable[[], str]) -> None:
    plugin: Any = item.config.pluginmanager.getplugin("timeout")
    if not settings.disable_debugger_detection and plugin.is_debugging():
        return
    try:
        text = _told_in_time(tell)
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


def _told_in_time(tell: Callable[[], str]) -> str:
    """What ``tell`` gives; the process has to end even where that hangs, too."""
    told: list[str] = []
    thread = threading.Thread(target=lambda: told.append(tell()), name="agviz-tell", daemon=True)
    thread.start()
    thread.join(_MOST_SECONDS)
    return "".join(told)
