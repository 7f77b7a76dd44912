"""The tree shows the architecture: imports point downwards, and reading never needs torch.

The rules are checked on the syntax trees of all modules, so that an import inside a function or
under ``TYPE_CHECKING`` counts as well, and once more by a real interpreter.
"""

import ast
import functools
import graphlib
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE_ROOTS = {"agviz": ROOT, "agviz_engine": ROOT / "engine"}

FLOORS = {
    "agviz_engine": 0,
    "agviz.errors": 0,
    "agviz.words": 0,
    "agviz.measure": 1,
    "agviz.repro": 1,
    "agviz.traces": 2,
    "agviz.analysis": 3,
    "agviz.record": 3,
    "agviz.debugger": 4,
    "agviz.graph": 4,
    "agviz.ranks": 4,
    "agviz.dap": 5,
    "agviz.export": 5,
}
"""Units import from lower floors only; those of one floor do not import each other."""
TOP_FLOOR = 6  # tui, cli, demo, and the modules directly in agviz/, which may import each other

READER_NEEDS = (
    "agviz.errors",
    "agviz.measure.values",
    "agviz.traces",
    "agviz.words",
    "agviz_engine.emissions",
    "agviz_engine.events",
)
"""All of ours that ``agviz.traces`` imports, at whatever time."""

READING = (
    "agviz",
    "agviz_engine.events",
    "agviz.words",
    "agviz.measure.values",
    "agviz.traces.schema",
    "agviz.traces.reader",
    "agviz.traces.state",
    "agviz.graph",
    "agviz.export",
    "agviz.analysis",
    "agviz.dap",
    "agviz.ranks",
    "agviz.repro",
    "agviz.tui",
    "agviz.cli",
)
RUNNING_VERBS = {
    f"agviz.cli.{verb}" for verb in ("attach", "check", "demo", "doctor", "run", "verify")
}


HEAVY = {"graphviz", "numpy", "pyarrow", "pytest_html", "rich", "textual", "textual_serve", "torch"}
HEAVY |= {"rich.syntax"}
"""Packages and modules that an import inside a function keeps out until they are needed."""
KEPT_LATE = {"agviz.testing.session", "agviz.record.recorder"}
"""Modules of ours that pytest imports only where something is recorded."""
OPENED_LATE = {
    "agviz.analysis.beside",
    "agviz.analysis.flow",
    "agviz.analysis.verdict",
    "agviz.ranks.run",
    "agviz.tui.python_field",
    "agviz.tui.screens.answer",
    "agviz.tui.screens.compare",
    "agviz.tui.screens.flow",
    "agviz.tui.screens.process",
}
"""Modules of ours that the terminal UI imports behind its first screen."""
EXPLAINED_LATE = {
    "agviz.analysis.explanation",
    "agviz.analysis.hang",
    "agviz.analysis.raised",
    "agviz.analysis.verdict",
    "agviz.record.elements.walk",
    "agviz.recorded",
    "agviz.testing.checks",
    "agviz.testing.pages",
    "agviz.traces.reader",
}
"""Modules of ours that pytest imports only where a test failed, asks for its trace, or had
something that is not finite."""


class When(Enum):
    """When an import statement runs."""

    START = auto()
    """When the module is imported."""
    LATE = auto()
    """When a function is called."""
    NEVER = auto()
    """It is there for type checkers."""


@dataclass(frozen=True)
class Import:
    """One import statement's target: a module of ours, or the full name of a foreign one."""

    importer: str
    target: str
    line: int
    when: When

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.target}"


def read_sources() -> dict[str, str]:
    """Every module of the product: its dotted name and its text."""
    sources = {}
    for package, root in SOURCE_ROOTS.items():
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            sources[name] = path.read_text(encoding="utf-8")
    return sources


def find_imports(sources: Mapping[str, str]) -> list[Import]:
    """Every import of ``sources``, in the order of the text."""
    return [
        Import(importer, target, node.lineno, when)
        for importer, text in sources.items()
        for node, when in statements_of(text)
        for target in targets(node, sources)
    ]


@functools.cache
def statements_of(text: str) -> list[tuple[ast.Import | ast.ImportFrom, When]]:
    """The import statements of a module; every rule asks for those of all modules."""
    return list(import_statements(ast.parse(text)))


def import_statements(
    node: ast.AST, when: When = When.START
) -> Iterator[tuple[ast.Import | ast.ImportFrom, When]]:
    """The import statements under ``node``, and when each runs."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield node, when
        return
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        when = When.LATE
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                never_runs = field == "body" and is_type_checking(node)
                yield from import_statements(child, When.NEVER if never_runs else when)


def is_type_checking(node: ast.AST) -> bool:
    """Whether ``node`` is ``if TYPE_CHECKING:``."""
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def targets(node: ast.Import | ast.ImportFrom, known: Iterable[str]) -> Iterator[str]:
    """What a statement imports; ``from package import module`` names the module."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    assert node.module is not None, f"line {node.lineno}: a relative import"
    for alias in node.names:
        full_name = f"{node.module}.{alias.name}"
        if full_name in known:
            yield full_name
        elif node.module == "agviz" and alias.name != "__version__":
            yield "agviz.api"  # the root package lends its names from there
        else:
            yield node.module


def unit(module: str) -> str | None:
    """The part of the product that ``module`` belongs to; None for a foreign one."""
    match module.split("."):
        case ["agviz_engine", *_]:
            return "agviz_engine"
        case ["agviz"]:
            return "agviz"
        case ["agviz", part, *_]:
            return f"agviz.{part}"
    return None


def is_within(module: str, package: str) -> bool:
    """Whether ``module`` is ``package`` or lies below it."""
    return module == package or module.startswith(f"{package}.")


def floor(module: str) -> int:
    """The floor that ``module`` is on."""
    return FLOORS.get(str(unit(module)), TOP_FLOOR)


def upward_imports(sources: Mapping[str, str]) -> list[str]:
    """Imports of a floor that is no lower. All may import the root package: for its version."""
    return [
        str(found)
        for found in find_imports(sources)
        if unit(found.target) not in {None, "agviz", unit(found.importer)}
        and floor(found.importer) < TOP_FLOOR
        and floor(found.target) >= floor(found.importer)
    ]


def circular_imports(sources: Mapping[str, str]) -> list[str]:
    """A ring of units that import each other, which a shared floor alone would allow."""
    sorter: graphlib.TopologicalSorter[str] = graphlib.TopologicalSorter()
    for found in find_imports(sources):
        importer, target = unit(found.importer), unit(found.target)
        if importer and target not in {None, "agviz", importer}:
            sorter.add(importer, str(target))
    try:
        sorter.prepare()
    except graphlib.CycleError as error:
        return [" <- ".join(error.args[1])]
    return []


def imports_of_no_reader(sources: Mapping[str, str]) -> list[str]:
    """Imports of ``agviz.traces`` that reading a file does not need."""
    return [
        str(found)
        for found in find_imports(sources)
        if unit(found.importer) == "agviz.traces"
        and unit(found.target) not in {None, "agviz"}
        and not any(is_within(found.target, module) for module in READER_NEEDS)
    ]


def foreign_engine_imports(sources: Mapping[str, str]) -> list[str]:
    """Imports of the engine other than torch, the standard library and itself."""
    allowed = {"agviz_engine", "torch", *sys.stdlib_module_names}
    return [
        str(found)
        for found in find_imports(sources)
        if unit(found.importer) == "agviz_engine" and found.target.split(".")[0] not in allowed
    ]


def reading_modules(sources: Mapping[str, str]) -> list[str]:
    """The modules that must work where torch is absent."""
    return [
        module
        for module in sources
        if module not in RUNNING_VERBS
        and any(
            module == package if package == "agviz" else is_within(module, package)
            for package in READING
        )
    ]


def imported_at_start(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """What each module imports when it is imported itself."""
    at_start: dict[str, list[str]] = {module: [] for module in sources}
    for found in find_imports(sources):
        if found.when is When.START:
            at_start[found.importer].append(found.target)
    return at_start


def reading_imports_torch(sources: Mapping[str, str]) -> list[str]:
    """Chains of imports that lead from a reading module to torch as soon as it is imported."""
    at_start = imported_at_start(sources)
    chains = []
    for module in reading_modules(sources):
        came_from: dict[str, str | None] = {module: None}
        to_visit = [module]
        while to_visit:
            current = to_visit.pop()
            if is_within(current, "torch"):
                chain: list[str] = []
                step: str | None = current
                while step is not None:
                    chain.insert(0, step)
                    step = came_from[step]
                chains.append(" -> ".join(chain))
                break
            parents = [current.rpartition(".")[0]] if "." in current else []
            for target in [*parents, *at_start.get(current, [])]:
                if target not in came_from:
                    came_from[target] = current
                    to_visit.append(target)
    return chains


def import_rings(sources: Mapping[str, str]) -> list[str]:
    """Files that import each other, type checkers' imports included; all may import the version."""
    targets_of: dict[str, set[str]] = {module: set() for module in sources}
    for found in find_imports(sources):
        if found.target in sources and found.target not in {"agviz", found.importer}:
            targets_of[found.importer].add(found.target)
    rings = []
    while targets_of:
        try:
            graphlib.TopologicalSorter(targets_of).prepare()
        except graphlib.CycleError as error:
            ring = error.args[1]
            rings.append(" <- ".join(ring))
            targets_of = {
                module: found - set(ring)
                for module, found in targets_of.items()
                if module not in ring
            }
        else:
            break
    return sorted(rings)


def needless_late_imports(sources: Mapping[str, str]) -> list[str]:
    """Imports inside functions that keep nothing :data:`HEAVY` out, nor the engine's look at torch.

    The engine's modules that need torch refuse one that lacks something as soon as they are
    imported; the importer may have to ask before.
    """
    at_start = imported_at_start(sources)

    def brings(module: str) -> set[str]:
        seen, to_visit, heavy = set(), [module], set()
        while to_visit:
            current = to_visit.pop()
            if current in seen:
                continue
            seen.add(current)
            package = current.partition(".")[0]
            heavy |= {current, package} & (HEAVY | KEPT_LATE | OPENED_LATE | EXPLAINED_LATE)
            below = at_start.get(current, [])
            if package == "agviz_engine" and any(is_within(each, "torch") for each in below):
                heavy.add("agviz_engine")
            if package not in HEAVY:
                to_visit += [current.rpartition(".")[0], *below]
        return heavy

    return [
        str(found)
        for found in find_imports(sources)
        if found.when is When.LATE and not brings(found.target) - brings(found.importer)
    ]


RULES = [
    upward_imports,
    circular_imports,
    imports_of_no_reader,
    foreign_engine_imports,
    reading_imports_torch,
    import_rings,
    needless_late_imports,
]


@pytest.mark.parametrize("rule", RULES)
def test_the_product_keeps_the_rule(rule: Callable[[Mapping[str, str]], list[str]]) -> None:
    assert rule(read_sources()) == []


@pytest.mark.parametrize(
    ("rule", "sources", "complaint"),
    [
        (
            import_rings,
            {
                "agviz.tui.app": "from agviz.tui import keys",
                "agviz.tui.keys": "if TYPE_CHECKING:\n    import agviz.tui.app",
            },
            "agviz.tui.app <- agviz.tui.keys <- agviz.tui.app",
        ),
        (
            needless_late_imports,
            {
                "agviz.cli.view": "def f():\n    import agviz.tui, json",
                "agviz.tui": "import textual",
            },
            "agviz.cli.view:2 imports json",
        ),
        (
            needless_late_imports,
            {
                "agviz.tui.app": "import textual.app\ndef f():\n    import agviz.tui.keys",
                "agviz.tui.keys": "import textual.binding",
            },
            "agviz.tui.app:3 imports agviz.tui.keys",
        ),
        (
            upward_imports,
            {"agviz.traces.reader": "def f():\n    from agviz.graph import model"},
            "agviz.traces.reader:2 imports agviz.graph",
        ),
        (
            upward_imports,
            {"agviz_engine.engine": "import agviz.errors"},
            "agviz_engine.engine:1 imports agviz.errors",
        ),
        (
            upward_imports,
            {
                "agviz.graph": "if TYPE_CHECKING:\n    from agviz import tui",
                "agviz.tui": "",
            },
            "agviz.graph:2 imports agviz.tui",
        ),
        (
            upward_imports,
            {"agviz.analysis": "from agviz import __version__, backward"},
            "agviz.analysis:1 imports agviz.api",
        ),
        (
            circular_imports,
            {"agviz.graph.a": "import agviz.export", "agviz.export": "import agviz.graph.b"},
            "agviz.graph <- agviz.export <- agviz.graph",
        ),
        (
            upward_imports,
            {"agviz.record.watchdog": "from agviz.analysis import hang"},
            "agviz.record.watchdog:1 imports agviz.analysis",
        ),
        (
            imports_of_no_reader,
            {"agviz.traces.roots": "def f():\n    from agviz.measure.health import measure"},
            "agviz.traces.roots:2 imports agviz.measure.health",
        ),
        (
            foreign_engine_imports,
            {"agviz_engine.node": "import heapq, numpy.linalg\nfrom torch import Tensor"},
            "agviz_engine.node:1 imports numpy.linalg",
        ),
        (
            reading_imports_torch,
            {"agviz.tui.app": "try:\n    from torch import Tensor\nexcept ImportError:\n    pass"},
            "agviz.tui.app -> torch",
        ),
        (
            reading_imports_torch,
            {
                "agviz.cli.view": "from agviz.record import recorder",
                "agviz.record": "",
                "agviz.record.recorder": "class C:\n    import torch.utils",
            },
            "agviz.cli.view -> agviz.record.recorder -> torch.utils",
        ),
        (
            reading_imports_torch,
            {"agviz.traces": "import torch", "agviz.traces.reader": ""},
            "agviz.traces.reader -> agviz.traces -> torch",
        ),
    ],
)
def test_a_rule_finds_what_breaks_it(
    rule: Callable[[Mapping[str, str]], list[str]], sources: Mapping[str, str], complaint: str
) -> None:
    assert rule(sources) == [complaint]


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_accepts_what_is_allowed(rule: Callable[[Mapping[str, str]], list[str]]) -> None:
    sources = {
        "agviz": "def __getattr__(name):\n    from agviz import api\n    return getattr(api, name)",
        "agviz.api": "import torch, agviz.record.recorder",
        "agviz.record": "from agviz import __version__",
        "agviz.traces.reader": "from agviz_engine.events import Event\nimport sqlite3",
        "agviz.record.recorder": "import torch",
        "agviz.export.dot": "import graphviz\nfrom agviz.graph import model",
        "agviz.graph.model": "if TYPE_CHECKING:\n    from torch import Tensor",
        "agviz.cli.run": "import torch\nfrom agviz.tui import app",
        "agviz.cli.view": "def main():\n    import torch",
        "agviz_engine.engine": "import torch, heapq\nfrom agviz_engine import events",
    }
    assert rule(sources) == []


def imports_of_torch(modules: Iterable[str], folder: Path) -> str:
    """Import ``modules`` in a fresh interpreter; say which of them brought torch, if any did."""
    program = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(name)\n"
        "    if 'torch' in sys.modules:\n"
        "        sys.exit(f'importing {name} imported torch')\n"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program, *modules],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, SOURCE_ROOTS.values()))},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return finished.stderr if finished.returncode else ""


def test_importing_what_reads_leaves_torch_out(tmp_path: Path) -> None:
    modules = [name for name in reading_modules(read_sources()) if not name.endswith("__main__")]
    assert imports_of_torch(modules, tmp_path) == ""


def imported_with(module: str) -> set[str]:
    """A module and all that its import brings."""
    at_start = imported_at_start(read_sources())
    seen, to_visit = set(), [module]
    while to_visit:
        current = to_visit.pop()
        if current not in seen:
            seen.add(current)
            to_visit += at_start.get(current, [])
    return seen


def test_the_first_screen_of_the_terminal_ui_is_not_behind_all_others() -> None:
    seen = imported_with("agviz.tui.app")
    assert "agviz.tui.screens.run" in seen
    assert seen.isdisjoint(OPENED_LATE)


def test_a_suite_that_passes_pays_for_no_explanation() -> None:
    seen = imported_with("agviz.testing.session")
    assert "agviz.record.recorder" in seen
    assert seen.isdisjoint(EXPLAINED_LATE)


def test_importing_the_events_leaves_torch_out(tmp_path: Path) -> None:
    assert imports_of_torch(["agviz_engine", "agviz_engine.events"], tmp_path) == ""


def test_the_check_above_would_see_torch(tmp_path: Path) -> None:
    complaint = imports_of_torch(["agviz_engine.events", "torch.version"], tmp_path)
    assert complaint == "importing torch.version imported torch\n"


def test_the_engine_lends_every_name_it_lists() -> None:
    engine = importlib.import_module("agviz_engine")
    assert engine.__all__
    for name in engine.__all__:
        assert getattr(engine, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = engine.no_such_name


def test_few_files_select_from_events_nodes_and_edges() -> None:
    """So that a change of these tables is a change of those files."""
    select = re.compile(r"\b(?:FROM|JOIN) (?:event|node|edge)\b")
    found = {
        path.stem
        for path in (ROOT / "agviz").rglob("*.py")
        if select.search(path.read_text(encoding="utf-8"))
    }
    writing = {"schema", "deleting"}
    assert found == {"events", "nodes", "timeline", "nonfinite"} | writing
