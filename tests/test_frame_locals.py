"""The locals of functions that run are read, and nothing stays behind."""

from __future__ import annotations

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
