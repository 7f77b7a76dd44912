"""Running pytest within a test, and reading what it says."""

import os
import re
import sys
from pathlib import Path

import pytest

from tests import python_process


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """As ``pytester.runpytest_subprocess``, with torch imported already."""
    command = [sys.executable, "-m", "pytest", f"--basetemp={pytester.path / 'base'}"]
    done = python_process.run(
        [*command, "--tb=short", *arguments], cwd=pytester.path, env=dict(os.environ), timeout=600
    )
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    return pytest.RunResult(done.returncode, done.stdout.splitlines(), done.stderr.splitlines(), 0)


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
