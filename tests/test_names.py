"""One name, one thing: a public class name is used once in the product."""

import ast
from collections import defaultdict
from collections.abc import Mapping

from tests.test_layers import read_sources


def public_classes(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """The modules that define a public class, by its name; classes inside of others count, too."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for module, text in sources.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(module)
    return found


def defined_twice(sources: Mapping[str, str]) -> list[str]:
    """Names of public classes that several definitions share, and where these are."""
    return [
        f"{name}: {', '.join(modules)}"
        for name, modules in sorted(public_classes(sources).items())
        if len(modules) > 1
    ]


def test_a_public_class_name_is_used_once() -> None:
    assert defined_twice(read_sources()) == []


def test_a_name_that_is_used_twice_is_found() -> None:
    sources = {
        "agviz.one": "class Graph: ...\nclass _Own: ...\nclass Alone: ...",
        "agviz.two": "class Panel:\n    class Graph: ...\nclass _Own: ...",
    }
    assert defined_twice(sources) == ["Graph: agviz.one, agviz.two"]
