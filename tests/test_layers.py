"""The tree shows the architecture: imports point downwards, and reading never needs torch.

The rules are checked on the syntax trees of all modules, so that an import inside a function or
under ``TYPE_CHECKING`` counts as well, and once more by a real interpreter.
"""

import ast
import graphlib
import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE_ROOTS = {"agviz": ROOT, "agviz_engine": ROOT / "engine"}

FLOORS = {
    "agviz_engine": 0,
    "agviz.errors": 1,
    "agviz.words": 0,
    "agviz.measure": 1,
    "agviz.traces": 1,
    "agviz.debugger": 2,
    "agviz.graph": 2,
    "agviz.analysis": 2,
    "agviz.export": 2,
}
TOP_FLOOR = 3  # tui, cli, demo, and the modules that stand directly in agviz/

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
    "agviz.tui",
    "agviz.cli",
)
RUNNING_VERBS = {f"agviz.cli.{verb}" for verb in ("attach", "demo", "doctor", "run", "verify")}


@dataclass(frozen=True)
class Import:
    """One import statement's target: a module of ours, or the full name of a foreign one."""

    importer: str
    target: str
    line: int
    at_start: bool  # runs when the importer is imported

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
        Import(importer, target, node.lineno, at_start)
        for importer, text in sources.items()
        for node, at_start in import_statements(ast.parse(text), at_start=True)
        for target in targets(node, sources)
    ]


def import_statements(
    node: ast.AST, *, at_start: bool
) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """The import statements under ``node``, and whether each runs when its module is imported."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield node, at_start
        return
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        at_start = False
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                never_runs = field == "body" and is_type_checking(node)
                yield from import_statements(child, at_start=at_start and not never_runs)


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


def upward_imports(sources: Mapping[str, str]) -> list[str]:
    """Imports of a higher floor. The root package may be imported by all: for its version."""
    return [
        str(found)
        for found in find_imports(sources)
        if (below := unit(found.target)) not in {None, "agviz"}
        and FLOORS.get(str(below), TOP_FLOOR) > FLOORS.get(str(unit(found.importer)), TOP_FLOOR)
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


def reading_imports_torch(sources: Mapping[str, str]) -> list[str]:
    """Chains of imports that lead from a reading module to torch as soon as it is imported."""
    at_start: dict[str, list[str]] = {module: [] for module in sources}
    for found in find_imports(sources):
        if found.at_start:
            at_start[found.importer].append(found.target)
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


RULES = [upward_imports, circular_imports, foreign_engine_imports, reading_imports_torch]


@pytest.mark.parametrize("rule", RULES)
def test_the_product_keeps_the_rule(rule: Callable[[Mapping[str, str]], list[str]]) -> None:
    assert rule(read_sources()) == []


@pytest.mark.parametrize(
    ("rule", "sources", "complaint"),
    [
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
                "agviz.cli.view": "from agviz.traces import recorder",
                "agviz.traces": "",
                "agviz.traces.recorder": "class C:\n    import torch.utils",
            },
            "agviz.cli.view -> agviz.traces.recorder -> torch.utils",
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
        "agviz.api": "import torch, agviz.traces.recorder",
        "agviz.traces": "from agviz import __version__",
        "agviz.traces.reader": "from agviz_engine.events import Event\nimport sqlite3",
        "agviz.traces.recorder": "import torch",
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
