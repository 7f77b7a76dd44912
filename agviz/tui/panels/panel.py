"""Panel: what all panels share. It is drawn line by line, from spans, in the theme's looks."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.containers import Container
from textual.filter import ANSIToTruecolor
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from agviz.tui.text import beginning

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Self

    from textual.filter import LineFilter

    from agviz.tui.model import View
    from agviz.tui.text import Line, Span

LOOKS = (
    *("waiting", "ready", "running", "done", "skipped", "failed", "unknown"),
    "nonfinite",
    *("muted", "name", "place", "number", "heading", "playhead", "match"),
    "breakpoint",
    *("lane", "keyword", "string", "comment"),
    *("cursor", "cursor-blurred", "lane-past", "lane-past-other", "lane-future", "lane-now"),
    *("lane-past-name", "lane-past-other-name"),
    *("phase-forward", "phase-backward", "phase-waiting", "phase-transfer", "phase-between"),
    *("phase-forward-name", "phase-backward-name", "phase-waiting-name", "phase-transfer-name"),
    "phase-between-name",
)
"""What a span may look like: each is a component class ``look--NAME``, styled in agviz.tcss."""

_QUIET = {"muted", "number", "place", "unknown", "waiting"}
"""Too faint to be read under the cursor."""


class Panels(Container):
    """Holds the panels, and the styles of all looks once for all of them."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"look--{look}" for look in LOOKS}


class Panel(ScrollView):
    """Base of the panels: shows a :class:`~agviz.tui.model.View` and reads nothing itself.

    What has changed is said by :meth:`redraw`. Only lines that then look different are painted: a
    key changes few of them, and painting a screen takes longer than all the rest.
    """

    ALLOW_SELECT = False

    HEADING: ClassVar[str]
    DRAWS: ClassVar[tuple[str, ...]]
    """The fields of a view that this panel draws, or makes of what it draws."""

    HELP: ClassVar[str]
    """What the panel shows, for its help: paragraphs of plain text."""

    class NodeSelected(Message):
        """The user looks at another node now."""

        def __init__(self, node: int) -> None:
            super().__init__()
            self.node = node

    class ElsewherePicked(Message):
        """The user wants to see a moment of another graph task."""

        def __init__(self, seq: int, graph_task: int) -> None:
            super().__init__()
            self.seq = seq
            self.graph_task = graph_task

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self.view: View | None = None
        self._looks: dict[tuple[str, str], Style] = {}
        self._is_stale = False
        self._rows: list[tuple[Line, str]] = []
        """The lines as they were when they were last compared."""
        self._made_for: Size | None = None
        """The size of the panel with which they are as they are now; None: they may not be. To make
        them anew is a tenth of what a key takes."""
        self._subtitle = ""
        self._borders_only = False
        self.border_title = self.HEADING

    def show(self, view: View) -> None:
        """Draw ``view``, where it differs in what this panel draws from the one before."""
        before, self.view = self.view, view
        if before is None or any(
            getattr(before, field) is not getattr(view, field) for field in self.DRAWS
        ):
            self.take_over(view, before)
            self.redraw()

    def take_over(self, view: View, before: View | None) -> None:
        """Make what the lines are drawn from.

        Args:
            view: what is shown now.
            before: another one, which differed in what this panel draws; None: there was none.
        """

    def row(self, y: int, width: int) -> tuple[Line, str]:
        """What is on line ``y`` of the screen, and the look that is its background."""
        raise NotImplementedError

    def render_line(self, y: int) -> Strip:
        """Draw line ``y`` of the screen."""
        size = self.scrollable_content_region.size
        is_made = self._made_for == size and y < len(self._rows)
        line, background = self._rows[y] if is_made else self.row(y, size.width)
        return self.strip(line, size.width, background)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """All but that for colours of terminals: every look is made of the theme's."""
        filters = super().get_line_filters()
        return [each for each in filters if not isinstance(each, ANSIToTruecolor)]

    def redraw(self) -> None:
        """Paint the lines that look different now, once everything that is to come has come."""
        self._is_stale = True
        self._made_for = None
        self.check_idle()

    def on_idle(self) -> None:
        """Find these lines."""
        if self._is_stale:
            self._is_stale = False
            before = self._rows
            width, height = size = self.scrollable_content_region.size
            self._rows = [self.row(y, width) for y in range(height)]
            if len(before) != height:
                self.refresh()
            else:
                pairs = enumerate(zip(before, self._rows, strict=True))
                changed = [Region(0, y, width, 1) for y, (old, new) in pairs if old != new]
                if changed:
                    self.refresh(*changed)
            self._made_for = size

    def _size_updated(
        self, size: Size, virtual_size: Size, container_size: Size, layout: bool = True
    ) -> bool:
        """Textual takes the size for the virtual one, and would paint scrollbars at each layout."""
        del virtual_size
        return super()._size_updated(size, self.virtual_size, container_size, layout)

    def refresh(
        self,
        *regions: Region,
        repaint: bool = True,
        layout: bool = False,
        recompose: bool = False,
    ) -> Self:
        """Paint the whole panel, or parts of it."""
        self._made_for = None
        if self._borders_only:
            width, height = self.content_size
            regions = (Region(-1, height, width + 2, 1),)
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)

    @property
    def shown(self) -> View:
        """The view that is drawn. Raises RuntimeError before there is one."""
        if self.view is None:
            raise RuntimeError(f"the panel {self.HEADING} has nothing to show yet")
        return self.view

    def look_at_node(self, node: int) -> None:
        """Have another node looked at.

        The screen is notified before it paints what has changed here, so that both are one
        picture.
        """
        self.screen.post_message(self.NodeSelected(node))

    def copy_text(self) -> str:
        """What ``y`` copies: the selected thing in words; empty where nothing is selected."""
        return ""

    def subtitle(self, text: str) -> None:
        """Put ``text``, which may come from a trace, at the right of the lower border."""
        if text != self._subtitle:
            self._subtitle = text
            self._borders_only = True
            self.border_subtitle = Text(text)
            self._borders_only = False

    def notify_style_update(self) -> None:
        """Forget the styles of the theme that was."""
        super().notify_style_update()
        self._looks.clear()

    def look(self, name: str, background: str = "") -> Style:
        """The style of a look in the current theme, over the background of another one."""
        found = self._looks.get((name, background))
        if found is None:
            base = self.look(background) if background else self.rich_style
            found = base
            if name and not (background == "cursor" and name in _QUIET):
                component = f"look--{name}"
                styles = self.screen.query_one(Panels)
                full = styles.get_component_rich_style(component)
                own = styles.get_component_styles(component).has_rule("background")
                found = base + Style(
                    color=full.color,
                    bgcolor=full.bgcolor if own else None,
                    bold=full.bold,
                    italic=full.italic,
                    underline=full.underline,
                    dim=full.dim,
                )
            self._looks[name, background] = found
        return found

    def strip(self, line: Iterable[Span], width: int, background: str = "") -> Strip:
        """``line`` in exactly ``width`` cells, with ``…`` at its end where it is too long."""
        segments = [Segment(span.text, self.look(span.look, background)) for span in line]
        filler = self.look("", background)
        used = sum(cell_len(segment.text) for segment in segments)
        if used > width > 0:
            strip = Strip(segments)
            kept = cell_len(beginning(strip.text, width - 1))
            segments, used = [*strip.crop(0, kept), Segment("…", filler)], kept + 1
        if used < width:
            segments.append(Segment(" " * (width - used), filler))
        return Strip(segments, max(used, width))

    @property
    def inner_width(self) -> int:
        """Cells a line may take."""
        return self.scrollable_content_region.width
