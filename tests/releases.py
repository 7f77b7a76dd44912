"""Run the tests of the engine and of the command line on other releases of torch.

    python -m tests.releases 2.15.0 2.12.1 [--python python3.12] [--write]

Each release gets an environment below ``.releases/``, which is kept. ``--write`` puts all that was
run there so far into ``docs/releases.md``.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from agviz_engine.support import WINDOW, is_tested
from tests.release_environment import ROOT, make_environment

if TYPE_CHECKING:
    from collections.abc import Sequence

PLACE = ROOT / ".releases"
PAGE = ROOT / "docs" / "releases.md"
TESTS = (
    "tests/engine",
    "tests/test_cli_run.py",
    "tests/test_cli_reading.py",
    "tests/test_cli_verify.py",
    "tests/test_unsupported_torch.py",
)
REFUSAL = (
    (
        "tests/test_unsupported_torch.py::"
        "test_the_torch_that_is_there_fits_or_is_refused_in_one_sentence"
    ),
)
"""All that a release outside of the window has to do."""
_OUTCOMES = ("passed", "failed", "error", "skipped")
_SKIPPED = re.compile(r"SKIPPED \[(\d+)\] \S+: (.*)")
_HEAD = f"""# Which torch

The engine is tested with torch {WINDOW}, each release against its own native engine, among it 500
random programs (`tests/engine/test_fuzz.py`). A table of what was counted, written by
`python -m tests.releases --write`; `make test-torch TORCH=2.15.0` runs one of them. Releases
outside of the window have one test: `agviz run` either records or refuses in one sentence and lets
the program run. What differs from release to release is in [fidelity.md](fidelity.md).

| torch | Python | passed | failed | skipped |
|---|---|---|---|---|
"""


def main(given: Sequence[str] | None = None) -> int:
    """Run what is asked for; 1 where a test failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.releases", description=__doc__)
    parser.add_argument("torch", nargs="*", help="releases, like 2.15.0")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--processes", default="2", help="that run tests, as pytest -n")
    parser.add_argument("--write", action="store_true", help="write docs/releases.md")
    asked = parser.parse_args(given)
    results = [_tested(torch, asked.python, asked.processes) for torch in asked.torch]
    if asked.write:
        PAGE.write_text(_page())
    return int(any(each["failed"] + each["error"] or not each["passed"] for each in results))


def _tested(torch: str, python: str, processes: str) -> dict[str, Any]:
    which = "import platform; print(platform.python_version())"
    number = subprocess.run([python, "-c", which], capture_output=True, text=True, check=True)
    folder = PLACE / f"torch-{torch}-python-{number.stdout.strip()}"
    interpreter = folder / "bin" / "python"
    if not (folder / "made").exists():
        interpreter = make_environment(folder, torch, python)
        (folder / "made").touch()
    print(f"torch {torch}, Python {number.stdout.strip()}", flush=True)
    ended = subprocess.run(
        [
            *(
                str(interpreter),
                "-X",
                "faulthandler",
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
            ),
            *("-n", processes, *(TESTS if is_tested(torch) else REFUSAL)),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    print(ended.stdout, flush=True)
    result = {"torch": torch, "python": number.stdout.strip(), **_counted(ended.stdout)}
    (folder / "result.json").write_text(json.dumps(result))
    return result


def _counted(output: str) -> dict[str, Any]:
    """How many tests came out how, and why some were skipped."""
    last = output.strip().rpartition("\n")[2]
    counts = {
        outcome: sum(map(int, re.findall(rf"(\d+) {outcome}", last))) for outcome in _OUTCOMES
    }
    reasons: dict[str, int] = {}
    for number, reason in _SKIPPED.findall(output):
        reasons[reason] = reasons.get(reason, 0) + int(number)
    return {**counts, "reasons": reasons}


def _page() -> str:
    results = [json.loads(path.read_text()) for path in PLACE.glob("*/result.json")]
    results.sort(
        key=lambda each: (is_tested(each["torch"]), _numbers(each["torch"]), each["python"]),
        reverse=True,
    )
    rows, skipped = [], []
    for each in results:
        failed = each["failed"] + each["error"]
        rows.append(
            f"| {each['torch']} | {each['python']} | {each['passed']:,} | {failed}"
            f" | {each['skipped']} |\n"
        )
        said = "; ".join(f"{count} {reason}" for reason, count in sorted(each["reasons"].items()))
        if said:
            skipped.append(f"- {each['torch']} on {each['python']}: {said}\n")
    return _HEAD + "".join(rows) + "\n## What was skipped\n\n" + "".join(skipped)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


if __name__ == "__main__":
    sys.exit(main())
