"""Drawing DOT: Graphviz as a child process that can be stopped, and what to do when it takes long.

The system's ``dot`` draws where there is one, otherwise the Graphviz inside the pygraphviz wheel.
"""

from __future__ import annotations

import shutil
import subprocess
import sys

from agviz.errors import DrawingError

BUNDLED = (
    "import sys, pygraphviz\n"
    "graph = pygraphviz.AGraph(string=sys.stdin.buffer.read().decode())\n"
    "graph.draw(sys.stdout.buffer, format=sys.argv[1], prog='dot')\n"
)
"""What the child process runs where there is no ``dot`` program."""

DEFAULT_TIMEOUT_S = 20.0


def render(dot_text: str, format: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> bytes:  # noqa: A002
    """Draw ``dot_text``.

    Args:
        dot_text: a graph in DOT.
        format: ``svg``, ``png`` or ``pdf``, or another format of Graphviz.
        timeout_s: seconds after which Graphviz is killed.

    Raises:
        agviz.errors.DrawingError: it took too long, failed, or can't be started.
    """
    dot = shutil.which("dot")
    command = [dot, f"-T{format}"] if dot else [sys.executable, "-c", BUNDLED, format]
    try:
        finished = subprocess.run(
            command, input=dot_text.encode(), capture_output=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise DrawingError(
            f"Graphviz did not finish within {timeout_s:g} s: draw fewer nodes or allow more time."
        ) from None
    except OSError as error:
        raise DrawingError(f"Graphviz can't be started ({error}).") from error
    if finished.returncode or not finished.stdout:
        said = finished.stderr.decode(errors="replace").strip().splitlines()
        reason = said[-1] if said else f"it ended with {finished.returncode}"
        raise DrawingError(f"Graphviz could not draw the graph as {format}: {reason}.")
    return finished.stdout
