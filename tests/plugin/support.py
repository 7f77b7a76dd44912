"""Running pytest within a test, and reading what it says."""

import os
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import python_process


def run(pytester: pytest.Pytester, *arguments: str, fresh: bool = False) -> pytest.RunResult:
    """As ``pytester.runpytest_subprocess``, with torch imported already unless it is ``fresh``."""
    command = [sys.executable, "-m", "pytest", f"--basetemp={pytester.path / 'base'}"]
    done = python_process.run(
        [*command, "--tb=short", *arguments],
        cwd=pytester.path,
        env=dict(os.environ),
        timeout=600,
        fresh=fresh,
    )
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    return pytest.RunResult(done.returncode, done.stdout.splitlines(), done.stderr.splitlines(), 0)


def folders(where: Path) -> set[str]:
    return {path.name for path in where.iterdir() if path.is_dir()} if where.is_dir() else set()


def files(where: Path) -> set[str]:
    return {path.name for path in where.iterdir()}


def section(output: str, test: str) -> str:
    """What agviz says below the traceback of a test."""
    end = r"(?:[_=]{3}|-+ generated)"
    found = re.search(
        rf"_ (?:ERROR at (?:setup|teardown) of )?{test} _.*?\n-+ agviz -+\n(.*?)\n{end}",
        output,
        re.DOTALL,
    )
    assert found is not None, f"no section for {test} in\n{output}"
    return found[1]


VOID = {"meta", "link", "br", "img"}
"""Elements of HTML that have no end tag."""


class Element(NamedTuple):
    """What a page holds."""

    name: str
    attributes: dict[str, str]
    inside: list["Element | str"]

    @property
    def text(self) -> str:
        return "".join(each if isinstance(each, str) else each.text for each in self.inside)

    def find(self, name: str) -> list["Element"]:
        """Every element of this name below it, in the order of the page."""
        found = []
        for each in self.inside:
            if isinstance(each, Element):
                found += [each] * (each.name == name) + each.find(name)
        return found


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open = [Element("", {}, [])]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs}, [])
        self.open[-1].inside.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].inside.append(
            Element(tag, dict.fromkeys((name for name, _ in attrs), ""), [])
        )

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop().name == tag, f"</{tag}> ends another element"

    def handle_data(self, data: str) -> None:
        self.open[-1].inside.append(data)


def read_page(path: Path) -> Element:
    """A page as a browser reads it; every element has to be closed."""
    reader = _Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    reader.close()
    assert len(reader.open) == 1, f"{reader.open[-1].name} is not closed"
    return reader.open[0]


class Cause(NamedTuple):
    """A heading of the index, and what is below it."""

    title: str
    place: str
    tests: list[str]
    links: list[str]


def causes(index: Path) -> list[Cause]:
    """What an index says; every page it names has to be there."""
    found = []
    for part in read_page(index).find("section"):
        links = [each.attributes["href"] for each in part.find("a")]
        for link in links:
            assert (index.parent / link).is_file()
        items = part.find("li")
        before = [each.text for each in part.find("code")]
        tests = [each.find("code")[0].text for each in items]
        place = before[0] if before and before[0] not in tests else ""
        (heading,) = part.find("h2")
        found.append(Cause(heading.text, place, tests, links))
    return found
