"""What a box says: HTML-like labels for Graphviz, one line of a table for each node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agviz.export import facts, text
from agviz.export.palette import ALARM, FAINT, FRAME, INK, SHADE, LaneLook, lane_look, mixed_look
from agviz.graph.items import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agviz.graph.items import Item
    from agviz.graph.model import Graph, Leaf
    from agviz.graph.picture import Picture
    from agviz.graph.stacks import Box
    from agviz.traces.rows import NodeRow

MOST_LEAVES = 6
"""Parameters written out below one node; one node may feed thousands."""
LONGEST_ASIDE = 28
INDENT = "&#160;&#160;&#160;"
COLUMNS = 5


def box_label(picture: Picture, box: Box, around: str | None) -> str:
    """The label of a box that is drawn inside the module ``around``."""
    graph = picture.graph
    rows = [] if box.module == around else [_title(relative(box.module, around))]
    received = ""
    for line in box.lines:
        item = picture.items[line.item]
        above, received = received, facts.received(graph, item)
        module = "" if item.module == box.module else relative(item.module, box.module)
        said = "" if received == above else received
        rows.append(_item(graph, item, line.indent, module, said))
        if item.kind is Kind.NODE:
            rows.extend(_leaves(graph, item, line.indent))
    first = _look(graph, [node.row for node in picture.items[box.lines[0].item].nodes])
    return html_like(table(rows, f'BORDER="1" COLOR="{FRAME}" BGCOLOR="{first.pale}"'))


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


def _title(title: str) -> str:
    shown = coloured(INK, f"<B>{text.in_label(text.shorten(title))}</B>")
    return row(cell(shown, f'COLSPAN="{COLUMNS}" BGCOLOR="{SHADE}"'))


def _item(graph: Graph, item: Item, indent: int, module: str, received: str) -> str:
    rows = [node.row for node in item.nodes]
    name = text.in_label(text.shorten(item.title or rows[0].short_name))
    if item.kind is not Kind.NODE:
        times = f"{item.repeats:,} {text.TIMES} " if item.repeats > 1 else ""
        name = f"{times}<B>{name}</B> · {len(rows):,} nodes"
    shown = coloured(
        INK if facts.is_executed(item) else FAINT,
        (INDENT * (indent - 1) + "└ ") * bool(indent) + name,
    )
    for finding in facts.findings(graph, item):
        shown += coloured(ALARM, f"&#160; <B>{text.in_label(finding)}</B>")
    return _line(
        rows,
        _look(graph, rows),
        shown,
        (module, received),
        f"node-{item.index}",
        facts.about_item(graph, item),
    )


def _leaves(graph: Graph, item: Item, indent: int) -> list[str]:
    leaves = item.nodes[0].leaves
    lines = [_leaf(graph, leaf, item, indent) for leaf in leaves[:MOST_LEAVES]]
    if len(leaves) > MOST_LEAVES:
        more = f"{facts.PARAMETER} and {len(leaves) - MOST_LEAVES:,} more parameters"
        lines.append(row(cell(""), cell(coloured(FAINT, more), f'COLSPAN="{COLUMNS - 1}"')))
    return lines


def _leaf(graph: Graph, leaf: Leaf, item: Item, indent: int) -> str:
    name = leaf.row.parameter or "leaf tensor"
    sizes = text.shape(leaf.row.shape)
    use = f" (use {leaf.use} of {leaf.uses})" if leaf.uses > 1 else ""
    said = f"{facts.PARAMETER} {text.shorten(relative(name, item.module))}  {sizes}{use}"
    shown = INDENT * (indent + 1) + text.in_label(said)
    return _line(
        [leaf.row],
        _look(graph, [leaf.row]),
        coloured(FAINT, shown),
        ("", ""),
        f"node-{leaf.row.index}-use-{leaf.use}",
        facts.about_leaf(graph, leaf),
    )


def _line(
    rows: Sequence[NodeRow],
    look: LaneLook,
    shown: str,
    asides: tuple[str, str],
    name: str,
    about: list[str],
) -> str:
    tooltip = "&#10;".join(map(text.in_label, about))
    number = text.in_label(f"{look.mark} {facts.numbers(rows)}".rstrip())
    time = facts.total_ns(rows)
    paper = f'BGCOLOR="{look.pale}"'
    return row(
        cell(number, f'BGCOLOR="{look.strong}"'),
        cell(shown, f'{paper} ID="{name}" TITLE="{tooltip}"'),
        *(
            cell(coloured(FAINT, text.in_label(text.shorten(aside, LONGEST_ASIDE))), paper)
            for aside in asides
        ),
        cell(coloured(FAINT, text.duration(time) if time else ""), paper, "RIGHT"),
    )


def _look(graph: Graph, rows: Sequence[NodeRow]) -> LaneLook:
    threads = {row.thread for row in rows} - {None}
    lanes = [graph.lanes[thread].position for thread in threads if thread is not None]
    look = mixed_look() if len(lanes) > 1 else lane_look(lanes[0] if lanes else None)
    if any(facts.is_alarming(graph, row) for row in rows):
        return LaneLook(look.mark, ALARM, look.pale)
    return look
