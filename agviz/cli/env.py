"""Say what the environment asks of agviz, and enable AGVIZ=1 in it.

AGVIZ=1 records any Python process that calls backward. It needs `agviz env --enable` once in each
Python environment: that writes agviz.pth into its site-packages, which every interpreter started
there reads; --disable removes it. Where AGVIZ is not set, nothing of agviz is imported by it.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agviz import startup
from agviz.errors import AgvizError
from agviz.words.safe import clean

if TYPE_CHECKING:
    import argparse

VARIABLES: Final = ("AGVIZ", "AGVIZ_OUTPUT", "AGVIZ_ENGINE", "AGVIZ_CHECK_FORWARD")
_SHIPPED: Final = Path(startup.__file__).with_name("agviz.pth")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``agviz env``."""
    change = parser.add_mutually_exclusive_group()
    change.add_argument("--enable", action="store_true", help="have AGVIZ=1 record from now on")
    change.add_argument("--disable", action="store_true", help="remove what --enable wrote")


def execute(arguments: argparse.Namespace) -> int:
    """Change what is asked for and say it, or print the state; return 0."""
    path = _place() / _SHIPPED.name
    if arguments.enable:
        print(_enable(path))
    elif arguments.disable:
        print(_disable(path))
    else:
        _print_state(path)
    return 0


def _place() -> Path:
    """The folder of this environment whose ``.pth`` files its interpreters read."""
    user = site.getusersitepackages()
    installed_for_user = _SHIPPED.is_relative_to(user)
    if installed_for_user and site.ENABLE_USER_SITE and sys.prefix == sys.base_prefix:
        return Path(user)
    return Path(sysconfig.get_path("purelib"))


def _enable(path: Path) -> str:
    wanted = _SHIPPED.read_bytes()
    if _content(path) == wanted:
        return f"AGVIZ=1 is enabled already, by {clean(str(path))}"
    half = path.with_name(f"{path.name}.{os.getpid()}")  # no interpreter reads half of it
    try:
        half.write_bytes(wanted)
        half.replace(path)
    except OSError as error:
        half.unlink(missing_ok=True)
        raise AgvizError(f"{path} can't be written: {error.strerror}") from None
    return f"AGVIZ=1 is enabled: wrote {clean(str(path))}"


def _disable(path: Path) -> str:
    try:
        path.unlink()
    except FileNotFoundError:
        return f"AGVIZ=1 is not enabled: there is no {clean(str(path))}"
    except OSError as error:
        raise AgvizError(f"{path} can't be removed: {error.strerror}") from None
    return f"AGVIZ=1 is disabled: removed {clean(str(path))}"


def _print_state(path: Path) -> None:
    content = _content(path)
    if content is None:
        state = "not enabled; `agviz env --enable` writes"
    elif content == _SHIPPED.read_bytes():
        state = "enabled by"
    else:
        state = "enabled by another version of agviz; `agviz env --enable` writes again"
    print(f"AGVIZ=1 is {state} {clean(str(path))}")
    width = max(map(len, VARIABLES))
    for name in VARIABLES:
        value = os.environ.get(name)
        print(f"{name:{width}}  {'(not set)' if value is None else clean(value)}")


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise AgvizError(f"{path} can't be read: {error.strerror}") from None
