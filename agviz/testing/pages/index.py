"""The page about all failures of a run, with a heading for each cause."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from agviz.errors import AgvizError
from agviz.testing.attempt import TRACE
from agviz.testing.grouping import FailureGroup, groups, named
from agviz.testing.pages import escaped, page, with_glyph
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.testing.report_data import ReportData

INDEX: Final = "index.html"
_OURS: Final = '<meta name="generator" content="agviz">'
_MOST_TESTS: Final = 1_000
"""That are named below one heading."""
_MOST_OPEN: Final = 10
"""The same, without being asked for."""


def write_index(output: Path, data: Sequence[ReportData]) -> str:
    """Write the page about a run; replace that of an earlier one.

    Args:
        output: the folder of the results.
        data: what is known of all tests.

    Returns:
        The file; empty where there is nothing to say: no test failed, and no earlier run had any.

    Raises:
        agviz.errors.AgvizError: it can't be written.
    """
    path = output / INDEX
    try:
        is_there = path.is_file()
        if is_there and _OURS not in path.read_text(encoding="utf-8", errors="replace"):
            raise AgvizError(f"{path} is somebody else's: the index is not written")
        has_failed = any(each["has_failed"] for each in data)
        has_recorded = any(each["has_recorded"] for each in data)
        if not is_there and not (has_failed and has_recorded):
            return ""
        output.mkdir(parents=True, exist_ok=True)
        path.write_text(index_page(output, data), encoding="utf-8")
    except OSError as error:
        raise AgvizError(f"{path} can't be written: {error.strerror}") from error
    return str(path)


def index_page(output: Path, data: Sequence[ReportData]) -> str:
    """The page.

    Args:
        output: the folder that it will be in.
        data: what is known of all tests.
    """
    found = groups(data)
    failed = len({each["test"] for group in found for each in group.failures})
    title = "agviz: no test failed"
    if failed:
        title = f"agviz: {plural(failed, 'failing test')}, {plural(len(found), 'cause')}"
    about = ". ".join(map(escaped, _about(output, data)))
    header = f'<h1>{escaped(title)}</h1>\n<p class="faint">{about}.</p>'
    return page(title, header, "\n".join(_section(group) for group in found))


def _about(output: Path, data: Sequence[ReportData]) -> Iterator[str]:
    now = datetime.now().astimezone()
    recorded = len({each["test"] for each in data if each["has_recorded"]})
    yield f"Run of {now:%Y-%m-%d %H:%M:%S %z}: {plural(recorded, 'test')} ran backward"
    own = {Path(each["trace"]).parent.name for each in data if each["trace"]}
    older = sum(each.parent.name not in own for each in output.glob(f"*/{TRACE}"))
    if older:
        yield f"{plural(older, 'folder')} of earlier runs beside this file are not listed"


def _section(group: FailureGroup) -> str:
    first = group.first
    heading = with_glyph(first["glyph"], group.title)
    count = plural(len(group.failures), "test")
    lines = [
        '<section class="cause">',
        f'<h2>{heading} <span class="count faint">· {count}</span></h2>',
    ]
    if not group.is_plain:
        if first["place"]:
            lines.append(f"<p><code>{escaped(first['place'])}</code></p>")
        if first["source"]:
            lines.append(f"<pre>{escaped(first['source'])}</pre>")
        if first["paragraph"]:
            lines.append(f"<p>{escaped(first['paragraph'])}{_whose(group)}</p>")
    lines += [*_tests(group), "</section>"]
    return "\n".join(lines)


def _whose(group: FailureGroup) -> str:
    """Of which test an answer is that holds for several."""
    if len(group.failures) == 1:
        return ""
    return f' <span class="faint">(so in {escaped(named(group.first))})</span>'


def _tests(group: FailureGroup) -> Iterator[str]:
    items = [f"<li>{_item(each)}</li>" for each in group.failures[:_MOST_TESTS]]
    if len(group.failures) > _MOST_TESTS:
        items.append(f"<li>and {len(group.failures) - _MOST_TESTS:,} more</li>")
    yield f"<ul>{''.join(items[:_MOST_OPEN])}</ul>"
    if items[_MOST_OPEN:]:
        more = plural(len(group.failures) - _MOST_OPEN, "more test", "more tests")
        inside = "".join(items[_MOST_OPEN:])
        yield f"<details><summary>{more}</summary><ul>{inside}</ul></details>"


def _item(each: ReportData) -> str:
    said = f"<code>{escaped(named(each))}</code>"
    if each["report"]:
        path = Path(each["report"])
        where = quote(f"{path.parent.name}/{path.name}")
        said = f'<a href="{where}">{said}</a>'
    error = f' <span class="faint">{escaped(each["error"])}</span>' if each["error"] else ""
    return said + error + (" (was run again)" if each["is_rerun"] else "")
