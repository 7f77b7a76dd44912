"""``python -m gallery``: run the programs under a tool, and say how many causes it names."""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gallery.index import KINDS, SETS, load
from gallery.judge import MOST_WORDS, OUTCOMES, judge, tally
from gallery.running import alone, shows
from gallery.tools import TOOLS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gallery.index import Program

Row = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m gallery", description=__doc__)
    parser.add_argument("--tool", choices=TOOLS, default="agviz", help="default: agviz")
    parser.add_argument("--set", choices=SETS, help="only these programs")
    parser.add_argument("--kind", choices=KINDS, help="only these programs")
    parser.add_argument("--name", help="only this program")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="programs at a time")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write each answer to FILE")
    parser.add_argument(
        "--check", action="store_true", help="run no tool: does each show the symptom it states?"
    )
    asked = parser.parse_args(arguments)
    chosen = [
        program
        for program in load()
        if asked.set in {None, program.set}
        and asked.kind in {None, program.kind}
        and asked.name in {None, program.name}
    ]
    if not chosen:
        parser.error("no program is of this set, kind and name")
    with ThreadPoolExecutor(asked.jobs) as pool:
        if asked.check:
            return _report_check(chosen, list(pool.map(_checked, chosen)))
        rows = list(pool.map(lambda program: _row(program, asked.tool), chosen))
    print(f"{table(rows)}\n\n{lengths(rows)}")
    if asked.json is not None:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


def _checked(program: Program) -> str:
    ended = alone(program)
    if shows(program, ended):
        return ""
    return f"{program.name}: exit code {ended.code}\n{ended.out[-800:]}{ended.err[-1500:]}"


def _report_check(chosen: list[Program], wrong: list[str]) -> int:
    found = [text for text in wrong if text]
    print("\n".join([*found, f"{len(chosen) - len(found)} of {len(chosen)} show their symptom"]))
    return 1 if found else 0


def _row(program: Program, tool: str) -> Row:
    began = time.monotonic()
    answer = TOOLS[tool](program)
    outcome = judge(program, answer)
    print(f"{outcome:12} {program.kind}/{program.name}", file=sys.stderr, flush=True)
    return {
        "name": program.name,
        "kind": program.kind,
        "set": program.set,
        "tool": tool,
        "outcome": outcome,
        "lines": program.lines(),
        "claimed": answer.claimed,
        "words": answer.words,
        "seconds": round(time.monotonic() - began, 1),
        "answer": answer.text or answer.cant,
    }


def table(rows: Sequence[Row]) -> str:
    """How often each outcome came, by kind, as a Markdown table."""
    lines = [
        f"| kind | programs | {' | '.join(OUTCOMES)} |",
        f"|---|{'---:|' * (len(OUTCOMES) + 1)}",
    ]
    faulty = [row for row in rows if row["kind"] != "healthy"]
    groups = [(kind, [row for row in rows if row["kind"] == kind]) for kind in KINDS]
    for title, group in (*groups[:-1], ("all ten", faulty), groups[-1]):
        if group:
            counts = tally([row["outcome"] for row in group]).values()
            cells = " | ".join(str(count or "") for count in counts)
            lines.append(f"| {title} | {len(group)} | {cells} |")
    return "\n".join(lines)


def lengths(rows: Sequence[Row]) -> str:
    """How many words the longest answer has, and which have too many, in a sentence."""
    by_length = sorted(rows, key=lambda row: row["words"], reverse=True)
    longest = by_length[0]
    said = f"The longest answer has {longest['words']} words ({longest['name']})"
    long = [f"{row['name']} ({row['words']})" for row in by_length if row["words"] > MOST_WORDS]
    return f"{said}; above {MOST_WORDS}: {', '.join(long) or 'none'}."


if __name__ == "__main__":
    sys.exit(main())
