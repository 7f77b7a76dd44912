"""A ``graphviz.Digraph`` that also draws where there is no ``dot`` program."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

import graphviz

from agviz.errors import DrawingError

if TYPE_CHECKING:
    from collections.abc import Iterable


class Picture(graphviz.Digraph):
    """What ``graphviz.Digraph`` is, with SVG drawn by agviz: in a child process with a time limit.

    In a notebook it shows itself, or says why it can't.
    """

    notes: tuple[str, ...] = ()
    """What was left out or folded, in sentences."""

    def svg(self) -> str:
        """The picture as SVG.

        Raises:
            agviz.errors.DrawingError: Graphviz is absent, failed, or took too long.
        """
        from agviz.export.draw import render

        return render(self.source, "svg").decode()

    def _repr_svg_(self) -> str | None:
        try:
            return self.svg()
        except DrawingError:
            return None

    def _repr_mimebundle_(
        self,
        include: Iterable[str] | None = None,  # noqa: ARG002 - the notebook chooses itself
        exclude: Iterable[str] | None = None,  # noqa: ARG002
        **_: Any,
    ) -> dict[str, bytes | str]:
        try:
            drawn = self.svg()
        except DrawingError as error:
            return {"text/html": f"<p>{html.escape(str(error))}</p>", "text/plain": self.source}
        return {"image/svg+xml": drawn, "text/plain": self.source}
