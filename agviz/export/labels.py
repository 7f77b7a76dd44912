"""What a box says: HTML-like labels for Graphviz, one line of a table for each node."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agviz.export import facts, text
from agviz.graph.items import ItemKind
from agviz.graph.view import By
from agviz.words.shapes import write_shape
from agviz.words.units import duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agviz.export.look import Look
    from agviz.export.palette import LaneLook
    from agviz.graph.items import Item
    from agviz.graph.model import Leaf
    from agviz.graph.picture import GraphLayout
    from agviz.graph.stacks import Box
    from agviz.traces.rows import Frame, NodeRow

MOST_LEAVES = 6
"""Parameters, and saved tensors, written out below one node; one node may feed thousands."""
LONGEST_ASIDE = 28
LONGEST_LINE = 64
INDENT = "&#160;&#160;&#160;"
COLUMNS = 5


def html_like(markup: str) -> str:
    """Markup as the value of a label, so that Graphviz reads it as such."""
    return f"<{markup}>"


def table(rows: Iterable[str], attributes: str) -> str:
    """A table."""
    return (
        f'<TABLE CELLBORDER="0" CELLSPACING="0" CELLPADDING="3" {attributes}>{"".join(rows)}'
        "</TABLE>"
    )


def row(*cells: str) -> str:
    """A line of a table."""
    return f"<TR>{''.join(cells)}</TR>"


def cell(content: str, attributes: str = "", align: str = "LEFT") -> str:
    """A cell; ``content`` is markup already."""
    return f'<TD ALIGN="{align}" {attributes}>{content}</TD>'


def coloured(colour: str, markup: str) -> str:
    """Markup in a colour; empty markup stays empty, as Graphviz refuses an empty FONT."""
    return f'<FONT COLOR="{colour}">{markup}</FONT>' if markup else ""


def relative(module: str | None, around: str | None) -> str:
    """The path of ``module`` as it is called within ``around``."""
    if not module:
        return ""
    return module[len(around) + 1 :] if around and module.startswith(f"{around}.") else module


class Labels:
    """The labels of the boxes of one picture."""

    def __init__(self, picture: GraphLayout, look: Look) -> None:
        self._picture = picture
        self._graph = picture.graph
        self._look = look
        self._theme = look.theme

    def box(self, box: Box, around: str | None) -> str:
        """The label of a box that is drawn inside the module ``around``."""
        picture = self._picture
        rows = [] if box.module == around else [self._title(relative(box.module, around))]
        received = ""
        for line in box.lines:
            item = picture.items[line.item]
            above, received = received, facts.received(self._graph, item)
            module = self._module(item, box)
            said = "" if received == above else received
            rows.append(self._item(item, line.indent, module, said))
            if item.kind is ItemKind.NODE:
                rows.extend(self._leaves(item, line.indent))
                rows.extend(self._saved(item, line.indent))
                attributes = self._graph.marks.attributes.get(item.index, ())
                rows.extend(self._aside(each, line.indent) for each in attributes)
        first = self._lane([node.row for node in picture.items[box.lines[0].item].nodes])
        frame = self._theme.frame
        return html_like(table(rows, f'BORDER="1" COLOR="{frame}" BGCOLOR="{first.pale}"'))

    def _module(self, item: Item, box: Box) -> str:
        """What is said of an item's module in its line."""
        if self._picture.by is By.MODULE:
            return "" if item.module == box.module else relative(item.module, box.module)
        return (item.nodes[0].row.module or "") if item.kind is ItemKind.NODE else ""

    def _title(self, title: str) -> str:
        shown = coloured(self._theme.ink, f"<B>{text.in_label(text.shorten(title))}</B>")
        return row(cell(shown, f'COLSPAN="{COLUMNS}" BGCOLOR="{self._theme.shade}"'))

    def _item(self, item: Item, indent: int, module: str, received: str) -> str:
        rows = [node.row for node in item.nodes]
        name = text.in_label(text.shorten(item.title or rows[0].short_name))
        if item.kind is not ItemKind.NODE:
            times = f"{text.TIMES}{item.repeats:,} " if item.repeats > 1 else ""
            name = f"{times}<B>{name}</B> · {len(rows):,} nodes"
        ran = facts.is_executed(self._graph, item)
        shown = coloured(
            self._theme.ink if ran else self._theme.faint,
            (INDENT * (indent - 1) + "└ ") * bool(indent) + name,
        )
        return self._line(
            rows,
            shown + self._findings(facts.findings(self._graph, item)),
            (module, received),
            f"node-{item.index}",
            facts.about_item(self._graph, item),
            rows[0].frame if item.kind is ItemKind.NODE else None,
        )

    def _findings(self, findings: Iterable[facts.Remark]) -> str:
        shown = ""
        for words, alarming in findings:
            colour = self._theme.alarm if alarming else self._theme.ink
            shown += coloured(colour, f"&#160; <B>{text.in_label(words)}</B>")
        return shown

    def _leaves(self, item: Item, indent: int) -> list[str]:
        leaves = item.nodes[0].leaves
        lines = [self._leaf(leaf, item, indent) for leaf in leaves[:MOST_LEAVES]]
        return lines + self._more(facts.PARAMETER, len(leaves), "parameters")

    def _more(self, mark: str, number: int, what: str) -> list[str]:
        if number <= MOST_LEAVES:
            return []
        more = coloured(self._theme.faint, f"{mark} and {number - MOST_LEAVES:,} more {what}")
        return [row(cell(""), cell(more, f'COLSPAN="{COLUMNS - 1}"'))]

    def _leaf(self, leaf: Leaf, item: Item, indent: int) -> str:
        name = leaf.row.parameter or "leaf tensor"
        sizes = write_shape(leaf.row.shape)
        use = f" (use {leaf.use} of {leaf.uses})" if leaf.uses > 1 else ""
        around = item.nodes[0].row.module
        said = f"{facts.PARAMETER} {text.shorten(relative(name, around))}  {sizes}{use}"
        shown = coloured(self._theme.faint, INDENT * (indent + 1) + text.in_label(said))
        return self._line(
            [leaf.row],
            shown + self._findings(facts.leaf_findings(self._graph, leaf)),
            ("", ""),
            f"node-{leaf.row.index}-use-{leaf.use}",
            facts.about_leaf(self._graph, leaf),
            leaf.row.frame,
        )

    def _saved(self, item: Item, indent: int) -> list[str]:
        saved = self._graph.marks.saved.get(item.index, ())
        lines = [self._aside(facts.about_saved(each), indent) for each in saved[:MOST_LEAVES]]
        return lines + self._more(facts.SAVED, len(saved), "saved tensors")

    def _aside(self, words: str, indent: int) -> str:
        """A line that only says something about the node above."""
        said = INDENT * (indent + 1) + text.in_label(text.shorten(words, LONGEST_LINE))
        shown = coloured(self._theme.faint, said)
        return row(cell(""), cell(shown, f'COLSPAN="{COLUMNS - 1}"'))

    def _line(
        self,
        rows: Sequence[NodeRow],
        shown: str,
        asides: tuple[str, str],
        name: str,
        about: list[str],
        frame: Frame | None,
    ) -> str:
        look = self._lane(rows)
        faint = self._theme.faint
        tooltip = "&#10;".join(map(text.in_label, about))
        number = text.in_label(f"{look.mark} {facts.numbers(self._graph, rows)}".rstrip())
        paper = f'BGCOLOR="{look.pale}"'
        address = self._look.link(frame)
        link = f' HREF="{text.in_label(address)}" TARGET="_blank"' if address else ""
        ink = self._theme.paper if look.strong == self._theme.alarm else self._theme.ink
        return row(
            cell(coloured(ink, number), f'BGCOLOR="{look.strong}"'),
            cell(shown, f'{paper} ID="{name}" TITLE="{tooltip}"{link}'),
            *(
                cell(coloured(faint, text.in_label(text.shorten(aside, LONGEST_ASIDE))), paper)
                for aside in asides
            ),
            cell(self._time(rows), paper, "RIGHT"),
        )

    def _time(self, rows: Sequence[NodeRow]) -> str:
        time = facts.total_ns(rows)
        said = duration(time) if time else ""
        critical = self._graph.marks.critical.members
        if said and any(each.index in critical for each in rows):
            return coloured(self._theme.ink, f"{facts.CRITICAL} {said}")
        return coloured(self._theme.faint, said)

    def _lane(self, rows: Sequence[NodeRow]) -> LaneLook:
        threads = {row.thread for row in rows} - {None}
        lanes = [self._graph.lanes[thread].position for thread in threads if thread is not None]
        look = (
            self._theme.mixed() if len(lanes) > 1 else self._theme.lane(lanes[0] if lanes else None)
        )
        if not self._graph.ran:
            look = replace(look, mark="")
        if any(facts.is_alarming(self._graph, row) for row in rows):
            return replace(look, strong=self._theme.alarm)
        return look
