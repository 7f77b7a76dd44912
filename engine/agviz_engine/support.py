"""Whether the engine fits the torch that is there, and how that is said.

No version is refused for its number. The engine is held against one release; whether another keeps
things where they were is found out by experiments when the engine is first needed.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Final

from agviz_engine.errors import UnsupportedTorchError

if TYPE_CHECKING:
    from collections.abc import Iterator

MADE_FOR: Final = "2.13"
"""The release of torch that the engine re-implements, and is tested with."""


def refusal(why: str) -> UnsupportedTorchError:
    """The error that says which torch is there, what is in the way, and what to do.

    Args:
        why: in the middle of a sentence.
    """
    import torch

    return UnsupportedTorchError(
        f"torch {torch.__version__} does not fit agviz's engine, which is made for torch {MADE_FOR}"
        f" ({why}); install torch {MADE_FOR} or update agviz"
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


def remark(version: str) -> str:
    """What to know of a torch that fits but is not the one that agviz is tested with, else "".

    Args:
        version: as ``torch.__version__`` says it; empty: not known.
    """
    if not version or version.startswith(f"{MADE_FOR}."):
        return ""
    return (
        f"torch {version} is not the {MADE_FOR} that agviz is tested with; all that was tried out"
        " fits, and `agviz verify` compares gradients with torch's own engine"
    )
