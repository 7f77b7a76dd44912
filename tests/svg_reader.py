"""What an XML parser finds in an SVG."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

TITLE = "{http://www.w3.org/1999/xlink}title"


def parse(svg: bytes) -> ET.Element:
    """The root element; raises ParseError where ``svg`` is no XML."""
    return ET.fromstring(svg)  # noqa: S314 - drawn by the test itself


def texts(svg: bytes) -> list[str]:
    """Every text that is drawn."""
    return [element.text or "" for element in parse(svg).iter() if element.tag.endswith("}text")]


def tooltips(svg: bytes) -> list[str]:
    """Every tooltip."""
    return [element.get(TITLE, "") for element in parse(svg).iter()]


def ids(svg: bytes, kind: str | None = None) -> list[str]:
    """The ids of all elements, or of those of a class: ``node``, ``edge``, ``cluster``."""
    return [
        name
        for element in parse(svg).iter()
        if (name := element.get("id")) and kind in {None, element.get("class")}
    ]


def places(svg: bytes) -> dict[str, float]:
    """Of every node its id, and how far to the left it begins, in points."""
    return {
        element.get("id", ""): min(
            float(number)
            for shape in element.iter()
            if shape.tag.endswith("}polygon")
            for number in re.findall(r"(-?[\d.]+),", shape.get("points", ""))
        )
        for element in parse(svg).iter()
        if element.get("class") == "node"
        and any(e.tag.endswith("}polygon") for e in element.iter())
    }
