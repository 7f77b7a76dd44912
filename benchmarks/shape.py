"""Size and shape of source trees, side by side: ``python -m benchmarks.shape [TREE ...]``.

Counted is the product's Python, in ``agviz`` and ``engine/agviz_engine``. Without a tree, this one.
"""

from __future__ import annotations

import argparse
import ast
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

ROOT: Final = Path(__file__).parents[1]
_PLACES: Final = {"agviz": ".", "agviz_engine": "engine"}
_WIDTH: Final = 150
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


class Lines(NamedTuple):
    """Lines of Python, each counted once."""

    total: int
    code: int
    """With the strings under constants and fields."""
    docstring: int
    comment: int
    blank: int

    def plus(self, other: Lines) -> Lines:
        """Both together."""
        return Lines(*(a + b for a, b in zip(self, other, strict=True)))


class Import(NamedTuple):
    """One of our modules imports another."""

    importer: str
    target: str
    is_late: bool
    """Within a function."""


class Shape(NamedTuple):
    """One tree."""

    packages: dict[str, Lines]
    files: dict[str, int]
    classes: dict[str, list[str]]
    """Public classes of one name in several modules."""
    functions: dict[str, list[str]]
    """The same of functions that are no methods; those that command line verbs share left out."""
    late: list[Import]
    late_foreign: int
    """Imports of others' modules within functions."""
    rings: list[list[str]]
    """Files that import each other around; what is only for the type checker counts as well."""
    deepest: list[str]
    """The longest line of base classes, all of them ours."""
    most: list[str]
    """The class with the most classes of ours above it, and those."""


def shape(tree: Path) -> Shape:
    """Read a tree."""
    sources = dict(_sources(tree))
    trees = {name: ast.parse(text) for name, text in sources.items()}
    packages: dict[str, Lines] = {}
    files: Counter[str] = Counter()
    for name, text in sources.items():
        package = _package(name, sources)
        files[package] += 1
        counted = _lines(text, trees[name])
        packages[package] = packages.get(package, Lines(0, 0, 0, 0, 0)).plus(counted)
    imports = [each for name, module in trees.items() for each in _imports(name, module, trees)]
    own = [each for each in imports if each.target in trees]
    return Shape(
        packages=dict(sorted(packages.items())),
        files=dict(files),
        classes=_several(trees, (ast.ClassDef,)),
        functions=_several(trees, (ast.FunctionDef, ast.AsyncFunctionDef)),
        late=[each for each in own if each.is_late],
        late_foreign=sum(each.is_late for each in imports) - sum(each.is_late for each in own),
        rings=_rings(
            {(each.importer, each.target) for each in own if each.target != "agviz"}  # the version
        ),
        deepest=_deepest(bases := _bases(trees)),
        most=max((_above(name, bases) for name in sorted(bases)), key=len, default=[]),
    )


def _sources(tree: Path) -> Iterator[tuple[str, str]]:
    for package, place in _PLACES.items():
        root = tree / place
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            yield name, path.read_text(encoding="utf-8")


def _package(module: str, modules: Iterable[str]) -> str:
    """The package that is counted: below ``agviz`` those right in it, and what is in none."""
    parts = module.split(".")[: 2 if module.startswith("agviz.") else 1]
    found = ".".join(parts)
    is_package = any(each.startswith(f"{found}.") for each in modules)
    return found if is_package and found != "agviz" else "agviz, top level"


def _lines(text: str, module: ast.Module) -> Lines:
    """Each line of a file by what is in it; a blank one in a docstring is blank."""
    lines = text.splitlines()
    blank = {number for number, line in enumerate(lines, 1) if not line.strip()}
    comments = {number for number, line in enumerate(lines, 1) if line.lstrip().startswith("#")}
    docstrings = set[int]()
    for node in ast.walk(module):
        if isinstance(node, ast.Module | ast.ClassDef | Function) and ast.get_docstring(node):
            first = node.body[0]
            docstrings |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    docstrings -= blank
    comments -= docstrings
    counted = len(docstrings), len(comments), len(blank)
    return Lines(len(lines), len(lines) - sum(counted), *counted)


def _imports(name: str, module: ast.Module, known: Mapping[str, Any]) -> Iterator[Import]:
    """One for each module that an import statement names."""

    def walk(node: ast.AST, *, is_late: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            yield from (Import(name, alias.name, is_late) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            targets = (_source(node, alias.name, known)[0] for alias in node.names)
            yield from (Import(name, target, is_late) for target in dict.fromkeys(targets))
        is_late = is_late or isinstance(node, Function | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from walk(child, is_late=is_late)

    yield from walk(module, is_late=False)


def _source(node: ast.ImportFrom, name: str, known: Mapping[str, Any]) -> tuple[str, str]:
    """The module that a name is imported from, and the name in it; a module has none."""
    full = f"{node.module}.{name}"
    return (full, "") if full in known else (node.module or "", name)


def _several(trees: Mapping[str, ast.Module], kinds: tuple[type, ...]) -> dict[str, list[str]]:
    """Public names that several modules define, with those modules."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name, module in trees.items():
        for node in module.body:
            if isinstance(node, kinds) and not node.name.startswith("_"):  # type: ignore[attr-defined]
                found[node.name].append(name)  # type: ignore[attr-defined]
    shared = {"add_arguments", "execute", "main"}
    return {
        name: modules
        for name, modules in sorted(found.items())
        if len(modules) > 1 and name not in shared
    }


def _rings(edges: set[tuple[str, str]]) -> list[list[str]]:
    """Strongly connected modules (Tarjan's algorithm)."""
    following: defaultdict[str, list[str]] = defaultdict(list)
    for importer, target in sorted(edges):
        following[importer].append(target)
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        numbers[module] = lowest[module] = len(numbers)
        stack.append(module)
        for target in following[module]:
            if target not in numbers:
                visit(target)
                lowest[module] = min(lowest[module], lowest[target])
            elif target in stack:
                lowest[module] = min(lowest[module], numbers[target])
        if lowest[module] == numbers[module]:
            place = stack.index(module)
            if len(stack) - place > 1:
                found.append(sorted(stack[place:]))
            del stack[place:]

    for module in list(following):
        if module not in numbers:
            visit(module)
    return sorted(found)


def _bases(trees: Mapping[str, ast.Module]) -> dict[str, list[str]]:
    """By class, with its module in front: the classes that it names as its own bases."""
    found: dict[str, list[str]] = {}
    for name, module in trees.items():
        homes: dict[str, str] = {}
        for node in ast.walk(module):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    source = ".".join(filter(None, _source(node, alias.name, trees)))
                    homes[alias.asname or alias.name] = source
            elif isinstance(node, ast.ClassDef):
                homes[node.name] = f"{name}.{node.name}"
        for node in ast.walk(module):
            if isinstance(node, ast.ClassDef):
                written = [ast.unparse(_without_arguments(base)) for base in node.bases]
                parts = [each.partition(".") for each in written]
                above = [homes.get(head, head) + dot + rest for head, dot, rest in parts]
                found[f"{name}.{node.name}"] = above
    return found


def _without_arguments(base: ast.expr) -> ast.expr:
    return base.value if isinstance(base, ast.Subscript) else base


def _above(name: str, bases: Mapping[str, list[str]]) -> list[str]:
    """A class, and all of ours that it inherits from."""
    found = [name]
    for each in found:
        found += [base for base in bases[each] if base in bases and base not in found]
    return found


def _deepest(bases: Mapping[str, list[str]]) -> list[str]:
    def line(name: str, below: frozenset[str]) -> list[str]:
        ours = [base for base in bases[name] if base in bases and base not in below]
        above = [line(base, below | {name}) for base in ours]
        return [name, *max(above, key=len, default=[])]

    return max((line(name, frozenset({name})) for name in bases), key=len, default=[])


def table(shapes: Mapping[str, Shape]) -> Table:
    """One column per tree."""
    made = Table(box=None, pad_edge=False)
    made.add_column("lines of Python: code + docstrings (files)", no_wrap=True)
    for name in shapes:
        made.add_column(name, justify="right")
    for package in sorted({package for each in shapes.values() for package in each.packages}):
        made.add_row(package, *(_of_package(each, package) for each in shapes.values()))
    totals = [
        Lines(*map(sum, zip(*each.packages.values(), strict=True))) for each in shapes.values()
    ]
    made.add_section()
    for place, what in enumerate(Lines._fields):
        made.add_row(f"all, {what}", *(f"{total[place]:,}" for total in totals))
    rows = {
        "files": [sum(each.files.values()) for each in shapes.values()],
        "public class names defined twice": [len(each.classes) for each in shapes.values()],
        "public function names defined twice": [len(each.functions) for each in shapes.values()],
        "late imports of ours": [len(each.late) for each in shapes.values()],
        "late imports of others'": [each.late_foreign for each in shapes.values()],
        "import rings among files": [len(each.rings) for each in shapes.values()],
        "files in them": [sum(map(len, each.rings)) for each in shapes.values()],
        "deepest inheritance": [len(each.deepest) for each in shapes.values()],
        "most classes one inherits from": [len(each.most) - 1 for each in shapes.values()],
    }
    for what, figures in rows.items():
        made.add_row(what, *(f"{figure:,}" for figure in figures))
    return made


def _of_package(found: Shape, package: str) -> str:
    lines = found.packages.get(package)
    if lines is None:
        return "-"
    parts = f"{lines.code:,} + {lines.docstring:,}"
    return f"{lines.total:,}: {parts} ({found.files[package]})"


def main() -> None:
    """Print the table, and with ``--names`` what is counted in its last rows."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shape", description=__doc__)
    parser.add_argument("tree", type=Path, nargs="*", default=[ROOT])
    parser.add_argument("--names", action="store_true", help="also name what is counted")
    arguments = parser.parse_args()
    shapes = {str(tree): shape(tree.resolve()) for tree in arguments.tree}
    console = Console() if Console().is_terminal else Console(width=_WIDTH)
    console.print(table(shapes))
    for name, found in shapes.items() if arguments.names else ():
        print(f"\n{name}")
        for what, modules in {**found.classes, **found.functions}.items():
            print(f"  {what}: {', '.join(modules)}")
        for late in found.late:
            print(f"  {late.importer} imports {late.target} late")
        for ring in found.rings:
            print(f"  ring: {', '.join(ring)}")
        print(f"  deepest: {' < '.join(found.deepest)}")
        print(f"  {found.most[0]} inherits from {', '.join(found.most[1:])}")


if __name__ == "__main__":
    main()
