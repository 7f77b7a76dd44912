"""A folder's name for what is recorded of a test."""

from __future__ import annotations

import functools
import hashlib
import re
from typing import Final, NamedTuple

_LONGEST: Final = 255
"""Bytes that file systems allow a name."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./:]*")


TEARDOWN: Final = "teardown"
"""What a test's fixtures do after it is a part of its own."""


class TestPart(NamedTuple):
    """What is recorded at a time: a test once, up to the end of its call, or its teardown."""

    test: str
    """pytest's name of it."""
    rerun: int = 0
    """How often it has been run before."""
    part: str = ""
    """:data:`TEARDOWN`, or nothing."""

    @property
    def folder(self) -> str:
        """Name of the folder that is for it."""
        return slug(*self)


def slug(node_id: str, rerun: int = 0, part: str = "") -> str:
    """``tests-test_model.py--test_step``: what a test leaves is in a folder of this name.

    Where letters had to be replaced, or there are too many, a hash keeps names apart.

    Args:
        node_id: pytest's name of the test.
        rerun: how often it has been run before.
        part: of the test.
    """
    plain, digest = _words(node_id)
    suffix = "".join([f"-rerun{rerun}" if rerun else "", f"-{part}" if part else ""])
    if not _PLAIN.fullmatch(node_id) or len(plain) + len(suffix) > _LONGEST:
        suffix = f"{digest}{suffix}"
    return plain[: _LONGEST - len(suffix)].rstrip("-") + suffix


@functools.lru_cache(maxsize=16)
def _words(node_id: str) -> tuple[str, str]:
    """What can be in a folder's name, and what keeps it apart; each test asks for several names."""
    name = node_id.replace("::", "--").replace("/", "-")
    plain = re.sub(r"[^A-Za-z0-9_.]+", lambda found: "-" * min(len(found[0]), 2), name).strip(".-")
    return plain, f"-{hashlib.sha256(node_id.encode(errors='replace')).hexdigest()[:8]}"
