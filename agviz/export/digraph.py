"""A ``graphviz.Digraph`` that is drawn as everything else is: also where there is no ``dot``."""

from __future__ import annotations

import html
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import graphviz

from agviz.errors import DrawingError
from agviz.export import renderers
from agviz.words.safe import clean

if TYPE_CHECKING:
    from collections.abc import Iterable
    from os import PathLike


class Picture(graphviz.Digraph):
    """What ``graphviz.Digraph`` is, drawn by agviz: in a child process with a time limit.

    In a notebook it shows itself, or says why it can't.
    """

    notes: tuple[str, ...] = ()
    """What was left out or folded, in sentences."""
    heading: str = ""
    """What it is a picture of, and how large that is."""

    def __repr__(self) -> str:
        return "\n".join([f"<{self.heading or self.name or 'picture'}>", *self.notes])

    def svg(self) -> str:
        """The picture as SVG.

        Raises:
            agviz.errors.DrawingError: Graphviz is absent, failed, or took too long.
        """
        return self._drawn("svg").decode()

    @overload
    def pipe(
        self,
        format: str | None = ...,
        renderer: str | None = ...,
        formatter: str | None = ...,
        neato_no_op: bool | int | None = ...,
        quiet: bool = ...,
        *,
        engine: str | None = ...,
        encoding: None = ...,
    ) -> bytes: ...

    @overload
    def pipe(
        self,
        format: str | None = ...,
        renderer: str | None = ...,
        formatter: str | None = ...,
        neato_no_op: bool | int | None = ...,
        quiet: bool = ...,
        *,
        engine: str | None = ...,
        encoding: str,
    ) -> str: ...

    @overload
    def pipe(
        self,
        format: str | None = ...,
        renderer: str | None = ...,
        formatter: str | None = ...,
        neato_no_op: bool | int | None = ...,
        quiet: bool = ...,
        *,
        engine: str | None = ...,
        encoding: str | None,
    ) -> bytes | str: ...

    def pipe(
        self,
        format: str | None = None,  # noqa: A002
        renderer: str | None = None,
        formatter: str | None = None,
        neato_no_op: bool | int | None = None,
        quiet: bool = False,  # noqa: ARG002 - nothing is written to stderr anyway
        *,
        engine: str | None = None,
        encoding: str | None = None,
    ) -> bytes | str:
        """The picture in any format that Graphviz knows: the same call as of ``graphviz``.

        Args:
            format: ``svg``, ``png``, ``pdf``, ...; None: :attr:`format`, which is ``pdf``.
            renderer: None, as ``formatter`` and ``neato_no_op``: these are of the program.
            formatter: see there.
            neato_no_op: see there.
            quiet: changes nothing.
            engine: ``dot``, or None.
            encoding: None to get bytes.

        Raises:
            agviz.errors.DrawingError: Graphviz is absent, failed, took too long, or does not know
                the format.
        """
        self._check(renderer, formatter, neato_no_op, engine)
        drawn = self._drawn(format or self.format)
        return drawn if encoding is None else drawn.decode(encoding)

    def render(
        self,
        filename: str | PathLike[str] | None = None,
        directory: str | PathLike[str] | None = None,
        view: bool = False,
        cleanup: bool = False,
        format: str | None = None,  # noqa: A002
        renderer: str | None = None,
        formatter: str | None = None,
        neato_no_op: bool | int | None = None,
        quiet: bool = False,  # noqa: ARG002
        quiet_view: bool = False,
        *,
        outfile: str | PathLike[str] | None = None,
        engine: str | None = None,
        raise_if_result_exists: bool = False,
        overwrite_source: bool = False,
    ) -> str:
        """Write the DOT and the picture beside it: the same call as of ``graphviz``.

        Args:
            filename: the file for the DOT; the picture's name is this and the format's ending.
            directory: the folder of both.
            view: open the picture.
            cleanup: remove the DOT again.
            format: as of :meth:`pipe`; what ``outfile`` ends in comes before :attr:`format`.
            renderer: as of :meth:`pipe`.
            formatter: as of :meth:`pipe`.
            neato_no_op: as of :meth:`pipe`.
            quiet: changes nothing.
            quiet_view: open the picture, and let the program that shows it be quiet.
            outfile: the file for the picture; the DOT's name ends in ``.gv`` then.
            engine: as of :meth:`pipe`.
            raise_if_result_exists: do not write over a picture.
            overwrite_source: let the picture take the place of the DOT.

        Returns:
            The picture's file.

        Raises:
            agviz.errors.DrawingError: as :meth:`pipe`. The DOT is there then.
            graphviz.FileExistsError: there is such a file already.
            graphviz.RequiredArgumentError: ``outfile`` does not name the format.
            ValueError: the picture would take the place of the DOT.
        """
        self._check(renderer, formatter, neato_no_op, engine)
        if outfile is not None:
            filename = filename or Path(outfile).with_suffix(".gv")
            outfile = Path(outfile) if directory else Path(os.fsdecode(self.directory), outfile)
            format = format or _format_of(outfile)  # noqa: A001
        format = format or self.format  # noqa: A001
        source = Path(self.save(filename, directory=directory))
        written = outfile or Path(f"{source}.{format}")
        if raise_if_result_exists and written.exists():
            raise graphviz.FileExistsError(f"output file exists: {os.fspath(written)!r}")
        if written.exists() and source.samefile(written) and not overwrite_source:
            raise ValueError(f"the picture would take the place of the DOT: {written}")
        written.write_bytes(self._drawn(format))
        if cleanup:
            source.unlink()
        if view or quiet_view:
            graphviz.view(written, quiet=quiet_view)
        return os.fspath(written)

    def _drawn(self, format: str) -> bytes:  # noqa: A002
        return renderers.run(renderers.choose(), self.source, format, renderers.TIMEOUT_S)

    def _check(
        self,
        renderer: str | None,
        formatter: str | None,
        neato_no_op: bool | int | None,
        engine: str | None,
    ) -> None:
        """Raise DrawingError where something is asked of the program that draws it."""
        given = {"renderer": renderer, "formatter": formatter, "neato_no_op": neato_no_op}
        asked = [f"{name}={value!r}" for name, value in given.items() if value is not None]
        engine = engine or self.engine
        if engine != "dot":
            asked.append(f"engine={engine!r}")
        if asked:
            raise DrawingError(
                f"agviz lays graphs out with dot, whichever program there is: {clean(asked[0])} is"
                " not for it, but for graphviz.Source(picture.source)."
            )

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
            return {"text/html": f"<p>{html.escape(str(error))}</p>", "text/plain": repr(self)}
        return {"image/svg+xml": drawn, "text/plain": repr(self)}


def _format_of(path: Path) -> str:
    """The format that the ending of a file's name means."""
    ending = path.suffix[1:].lower()
    if ending not in graphviz.FORMATS:
        raise graphviz.RequiredArgumentError(f"{path.name} names no format: give one")
    return ending
