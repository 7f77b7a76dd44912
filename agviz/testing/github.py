"""What a run says to GitHub Actions: annotations at lines, and the summary of the step."""

from __future__ import annotations

import html
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agviz.errors import AgvizError
from agviz.testing.grouping import groups, named
from agviz.testing.paths import shown
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from agviz.testing.grouping import FailureGroup
    from agviz.testing.report_data import ReportData

_MOST_ANNOTATIONS: Final = 10
"""Of one kind that GitHub shows for a step."""
_MOST_NAMED: Final = 20
_MOST_BYTES: Final = 500_000
"""Of the summary; GitHub takes 1 MiB a step, of which others may need some."""
_IN_DATA: Final = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_IN_PROPERTY: Final = _IN_DATA | {":": "%3A", ",": "%2C"}


def commands(data: Sequence[ReportData]) -> list[str]:
    """A workflow command for each cause, where GitHub Actions runs the tests.

    Those of tests that were run again and passed are left out.
    """
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return []
    found = groups(each for each in data if not each["is_rerun"])
    return [_annotation(group) for group in found[:_MOST_ANNOTATIONS]]


def _annotation(group: FailureGroup) -> str:
    first = group.first
    file, line = _place(first["file"]), first["line"]
    if not file:
        file, line = _place(first["test_file"]), first["test_line"]
    others = len(group.failures) - 1
    tests = named(first) + (f" and {plural(others, 'other test')}" if others else "")
    said = "\n".join(filter(None, [f"Failed: {tests}.", first["paragraph"] or first["error"]]))
    properties = {
        "file": file,
        "line": str(line) if file and line > 0 else "",
        "title": group.title,
    }
    written = ",".join(
        f"{name}={_escaped(value, _IN_PROPERTY)}" for name, value in properties.items() if value
    )
    return f"::error {written}::{_escaped(said, _IN_DATA)}"


def _escaped(text: str, replaced: Mapping[str, str]) -> str:
    return "".join(replaced.get(each, each) for each in text)


def _place(file: str) -> str:
    """A file as the repository names it; empty where it is not in it."""
    if not file:
        return ""
    root = Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd()).resolve()
    path = Path(file).resolve()
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else ""


def summarize(data: Sequence[ReportData], index: str) -> None:
    """Add the failures to the summary of the step, where there is one.

    Args:
        data: what is known of all tests.
        index: the page about the run; empty: there is none.

    Raises:
        agviz.errors.AgvizError: it can't be written.
    """
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    found = groups(data)
    if not path or not found:
        return
    text = "\n".join(_in_bounds(found, index))
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(f"{text}\n\n")
    except OSError as error:
        raise AgvizError(f"the step summary {path} can't be written: {error.strerror}") from error


def _in_bounds(found: Sequence[FailureGroup], index: str) -> Iterator[str]:
    failed = len({each["test"] for group in found for each in group.failures})
    yield f"### agviz: {plural(failed, 'failing test')}, {plural(len(found), 'cause')}\n"
    left = _MOST_BYTES
    for number, group in enumerate(found):
        block = "\n".join(_block(group))
        left -= len(block.encode())
        if left < 0:
            yield f"\nand {plural(len(found) - number, 'more cause')}\n"
            break
        yield block
    if index:
        yield f"\nAll of it: `{shown(index)}` in the artefact of this job.\n"


def _block(group: FailureGroup) -> Iterator[str]:
    """A cause in HTML, in which nothing of a test's text is taken for Markdown."""
    first = group.first
    title = " ".join(filter(None, [first["glyph"], _plain(group.title)]))
    heading = f"<b>{title}</b>"
    if first["place"] and not group.is_plain:
        heading += f" at <code>{_plain(first['place'])}</code>"
    count = plural(len(group.failures), "test")
    yield f"<details><summary>{heading}: {count}</summary>"
    if first["paragraph"] and not group.is_plain:
        yield f"<p>{_plain(first['paragraph'])}</p>"
    shown_here = group.failures[:_MOST_NAMED]
    items = [f"<li><code>{_plain(named(each))}</code></li>" for each in shown_here]
    if len(group.failures) > _MOST_NAMED:
        items.append(f"<li>and {len(group.failures) - _MOST_NAMED:,} more</li>")
    yield f"<ul>{''.join(items)}</ul></details>"


def _plain(text: str) -> str:
    return html.escape(" ".join(text.split()))
