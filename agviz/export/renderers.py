"""Which Graphviz draws: the one inside the pygraphviz wheel, else the system's ``dot``.

The wheel's is the one that pictures are tested with. What a Graphviz can do is tried out, once in a
process: its version says little, as distributions patch it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agviz.errors import DrawingError
from agviz.words.safe import clean

if TYPE_CHECKING:
    from collections.abc import Iterator

INSTALL = "pip install 'pygraphviz>=2.0.4'"
TIMEOUT_S = 20.0
"""After which Graphviz is killed, unless something else is asked for."""
BUNDLED = (
    "import sys, pygraphviz\n"
    "graph = pygraphviz.AGraph(string=sys.stdin.buffer.read().decode())\n"
    "try:\n"
    "    drawn = graph.draw(format=sys.argv[1], prog='dot')\n"
    # pygraphviz trips over the number that Graphviz returns; Graphviz has said what is wrong.
    "except TypeError:\n"
    "    sys.exit(1)\n"
    "sys.stdout.buffer.write(drawn)\n"
)
"""What the child process runs for the Graphviz inside pygraphviz."""
PROBE = """digraph { graph [pack=1, packmode=array_ti2]
first [shape=plain, label=<<TABLE><TR><TD ID="line" TITLE="about">first</TD></TR></TABLE>>]
second [width=9]
}
"""
"""A line of a table that is known by its id and has a tooltip, and two parts beside each other."""
LACKS_IDS = "it gives the lines of a box neither ids nor tooltips"
LACKS_ORDER = "it does not keep columns in their order"


class NoGraphvizError(DrawingError):
    """There is no Graphviz, or none that can draw these pictures."""


@dataclass(frozen=True, slots=True)
class Renderer:
    """A Graphviz."""

    name: str
    """``pygraphviz 2.0.4``, or the path of the program."""
    command: tuple[str, ...]
    """Reads DOT from stdin, writes to stdout; the format is still to be added."""

    def arguments(self, format: str) -> list[str]:  # noqa: A002
        """The whole command for a format."""
        *command, last = self.command
        return [*command, f"{last}{format}"]


@dataclass(frozen=True, slots=True)
class Tried:
    """What became of the probe."""

    version: str
    """Of Graphviz; empty where it drew nothing."""
    lacks: str
    """What it can't do, or why it drew nothing; empty where it can do everything."""


def choose() -> Renderer:
    """The first that can draw these pictures.

    Raises:
        NoGraphvizError: there is none.
    """
    refused = []
    for renderer in candidates():
        tried = try_out(renderer)
        if not tried.lacks:
            return renderer
        refused.append(f"{said(renderer, tried)} is not used, as {tried.lacks}")
    if refused:
        raise NoGraphvizError(f"{'; '.join(refused)}: {INSTALL}.")
    raise NoGraphvizError(
        "There is no Graphviz: install pygraphviz, which brings one, or the `dot` program (package"
        " graphviz)."
    )


def candidates() -> Iterator[Renderer]:
    """What is installed, in the order in which it is preferred."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        name = f"pygraphviz {importlib.metadata.version('pygraphviz')}"
        # -P: a pygraphviz.py in the user's folder is not the one that is meant.
        yield Renderer(name, (sys.executable, "-P", "-c", BUNDLED, ""))
    dot = shutil.which("dot")
    if dot is not None:
        yield Renderer(clean(dot), (dot, "-T"))


def try_out(renderer: Renderer) -> Tried:
    """Let it draw the probe; what it did is remembered unless it failed, as that may pass."""
    try:
        return _answer(renderer)
    except DrawingError as error:
        return Tried("", str(error).rstrip("."))


def said(renderer: Renderer, tried: Tried) -> str:
    """A renderer and its version, in words."""
    version = f" (Graphviz {tried.version})" if tried.version else ""
    return f"{renderer.name}{version}"


def run(renderer: Renderer, dot: str, format: str, timeout_s: float) -> bytes:  # noqa: A002
    """Let it draw ``dot``, in a child process that is killed when its time is over.

    Raises:
        DrawingError: it failed, or took too long.
    """
    try:
        finished = subprocess.run(
            renderer.arguments(format),
            input=dot.encode(),
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise DrawingError(
            f"Graphviz did not finish within {timeout_s:g} s: draw fewer nodes, or allow more time."
        ) from None
    except OSError as error:
        raise DrawingError(f"Graphviz can't be started: {error.strerror}.") from error
    if finished.returncode or not finished.stdout:
        lines = finished.stderr.decode(errors="replace").strip().splitlines()
        complaints = [line for line in lines if not line.startswith("Fontconfig ")]
        reason = clean(complaints[-1]) if complaints else f"it ended with {finished.returncode}"
        raise DrawingError(f"Graphviz could not draw the graph as {clean(format)}: {reason}.")
    return finished.stdout


@functools.cache
def _answer(renderer: Renderer) -> Tried:
    drawn = run(renderer, PROBE, "svg", TIMEOUT_S).decode(errors="replace")
    found = re.search(r"graphviz version (\S+)", drawn)
    return Tried(clean(found[1]) if found else "", _lacks(drawn))


def _lacks(drawn: str) -> str:
    """What is not in the probe's SVG."""
    if not re.search(r'id="a_line".*?xlink:title="about"', drawn, re.DOTALL):
        return LACKS_IDS
    first = re.search(r'<text [^>]*\bx="([\d.]+)"[^>]*>first<', drawn)
    second = re.search(r'<ellipse [^>]*\bcx="([\d.]+)"', drawn)
    ordered = first and second and float(first[1]) < float(second[1])
    return "" if ordered else LACKS_ORDER
