"""Running pytest within a test, and reading what it says."""

import re
from pathlib import Path

import pytest


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess("--tb=short", *arguments)


def folders(where: Path) -> set[str]:
    return {path.name for path in where.iterdir()} if where.is_dir() else set()


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
