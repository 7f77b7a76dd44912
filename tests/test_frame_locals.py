"""The locals of functions that run are read, and nothing stays behind."""

from __future__ import annotations

import subprocess
import sys
import weakref

from agviz.record.frame_locals import locals_of
from agviz.record.referrers import _variable, in_variables


class Thing:
    """What a variable refers to."""


def test_a_search_among_variables_keeps_nothing_alive() -> None:
    value = Thing()
    known = weakref.ref(value)
    identity = id(value)
    name = _variable([sys._getframe()], value)
    is_there = identity in in_variables()
    del value
    assert name == "value"
    assert is_there
    assert known() is None


def test_what_the_program_got_of_its_locals_stays() -> None:
    value = Thing()
    own = locals()
    with locals_of(sys._getframe()) as values:
        names = set(values)
    assert {"value", "own"} <= names
    assert own["value"] is value


def test_the_frames_of_threads_are_found_while_garbage_waits_for_the_interpreter() -> None:
    """``sys._current_frames()`` itself stands still there for ever before Python 3.12."""
    program = """
import gc, threading
from agviz.record.frame_locals import frames_of_threads

class Waits:
    def __init__(self):
        self.local = threading.local()  # to let go of it takes the lock
        self.itself = self

for more in range(1, 9):
    is_over = threading.Event()
    threads = [threading.Thread(target=is_over.wait) for _ in range(6)]
    for thread in threads:
        thread.start()
    gc.collect()
    gc.disable()
    Waits()
    gc.set_threshold(gc.get_count()[0] + more)
    gc.enable()
    found = frames_of_threads()
    gc.set_threshold(700)
    assert {thread.ident for thread in threads} <= set(found)
    assert gc.isenabled()
    is_over.set()
    for thread in threads:
        thread.join()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
