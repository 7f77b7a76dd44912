"""Parts of the Trace Event Format that all who write it have in common."""

from __future__ import annotations

import json


def metadata(what: str, pid: int, tid: int, **args: str | int) -> str:
    """A record that names something."""
    return f'{{"ph":"M","name":"{what}","pid":{pid},"tid":{tid},"args":{json.dumps(args)}}}'


def micros(ns: int) -> str:
    """``ns``, not negative, in µs with three decimals."""
    return f"{ns // 1000}.{ns % 1000:03d}"
