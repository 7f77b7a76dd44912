"""Whether the engine fits the torch that is there, and how that is said.

No version is refused for its number. The engine is tested with a window of releases; within it,
too, experiments find out where this build keeps what when the engine is first needed.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from typing import TYPE_CHECKING, Final

from agviz_engine.errors import UnsupportedTorchError

if TYPE_CHECKING:
    from collections.abc import Iterator

OLDEST: Final = 2, 10
NEWEST: Final = 2, 15
WINDOW: Final = "2.10 to 2.15"
"""The releases of torch that the engine is tested with, each against its own native engine."""
REQUIREMENT: Final = "torch>=2.10,<2.16"
"""The same as pip reads it."""


def is_tested(version: str) -> bool:
    """Whether agviz is tested with a torch, by its version: ``2.13.0+cpu``."""
    release = re.match(r"(\d+)\.(\d+)(?!\d)", version)
    return release is not None and OLDEST <= (int(release[1]), int(release[2])) <= NEWEST


def refusal(why: str) -> UnsupportedTorchError:
    """The error that says which torch is there, what is in the way, and what to do.

    Args:
        why: in the middle of a sentence.
    """
    import torch

    return UnsupportedTorchError(
        f"torch {torch.__version__} does not fit agviz's engine, which is made for torch {WINDOW}"
        f" ({why}); install one of these or update agviz"
    )


@contextlib.contextmanager
def fitting() -> Iterator[None]:
    """Around what only a torch can do that the engine fits: whatever it raises says it does not.

    Raises:
        UnsupportedTorchError: something was raised inside.
    """
    if os.name != "posix":
        raise refusal("nor this system")
    try:
        yield
    except UnsupportedTorchError:
        raise
    except (ImportError, AttributeError) as error:
        raise refusal(str(error).partition(" (/")[0]) from error  # without the file's path
    except Exception as error:
        raise refusal(f"{type(error).__name__}: {error}") from error


@functools.cache
def remark(version: str) -> str:
    """What to know of a torch that fits but is not one that agviz is tested with, else "".

    Args:
        version: as ``torch.__version__`` says it; empty: not known.
    """
    if not version or is_tested(version):
        return ""
    return (
        f"torch {version} is not one of {WINDOW}, which agviz is tested with; all that was tried"
        " out fits, and `agviz verify` compares gradients with torch's own engine"
    )
