"""Write a script that runs one backward node alone and gives the same bits.

The script is plain torch: the calls of ATen that the node made, on the tensors of a safetensors
file beside it. It says of each output whether it has the same bits as in the recording, and exits
with 0 where all have. What is needed is kept by `agviz run --repro`:

  agviz run --repro nonfinite train.py          the first node that makes NaN or infinities
  agviz run --repro SqrtBackward0 train.py      nodes by name, parameter or module
  agviz repro agviz-train.4711.agviz
  agviz repro agviz-train.4711.agviz SqrtBackward0 --minimise --check

A node is named as by `agviz export --around`. --minimise leaves out as many elements as it can
while finite gradients still become NaN or infinities. --check and --minimise compute on what the
file holds; do that with a file that you trust, as you would run a script. Exit code 0: written (and
checked), 1: other bits, 2: not written.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agviz.cli.console import stdout_console, write
from agviz.cli.kept import find_kept, write_kept
from agviz.repro.files import run_script
from agviz.repro.minimising import SECONDS, minimise
from agviz.traces.reader import Trace
from agviz.words.documents import head
from agviz.words.safe import clean
from agviz.words.units import plural, size

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``agviz repro``."""
    parser.add_argument("file", metavar="FILE", type=Path, help="a recorded trace")
    parser.add_argument(
        "node",
        metavar="NODE",
        nargs="?",
        help="its number in the order in which nodes ran, or its name, module or parameter, of"
        " which the first is taken (default: the first that was kept)",
    )
    parser.add_argument(
        "--graph-task",
        metavar="N",
        type=int,
        help="in this backward pass (default: the first in which it was kept)",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        type=Path,
        default=Path(),
        help="folder for the two files (default: this one)",
    )
    parser.add_argument(
        "--minimise",
        action="store_true",
        help="keep the fewest elements with which finite gradients become NaN or infinities"
        f" (within {SECONDS:g} s)",
    )
    parser.add_argument(
        "--check", action="store_true", help="run the script in a fresh process, and compare"
    )
    parser.add_argument("--json", action="store_true", help="for other programs")


def execute(arguments: argparse.Namespace) -> int:
    """Write both files; return 0, or 1 where the script gives other bits."""
    with Trace.open(arguments.file) as trace:
        kept = find_kept(trace, arguments.node, arguments.graph_task)
        before = sum(len(each.data) for each in kept.tensors.values())
        if arguments.minimise and not kept.node.why_not:
            node, tensors = minimise(kept.node, kept.tensors)
            kept = kept._replace(node=node, tensors=tensors)
        written = write_kept(trace, kept, arguments.output)
    is_same, said = run_script(written.script) if arguments.check else (None, "")
    nbytes = sum(len(each.data) for each in kept.tensors.values())
    if arguments.json:
        facts: dict[str, Any] = {
            **head("repro"),
            "script": str(written.script),
            "tensors": str(written.tensors),
            "replaced": [str(path) for path in written.replaced],
            "node": kept.row.short_name,
            "graph_task": kept.row.graph_task,
            "order": kept.row.order,
            "calls": len(kept.node.calls),
            "nbytes": nbytes,
            "same_bits": is_same,
        }
        print(json.dumps(facts, indent=2))
        return int(is_same is False)
    console = stdout_console()
    calls = plural(len(kept.node.calls), "call")
    smaller = f", {size(before)} before --minimise" if arguments.minimise else ""
    console.print(kept.title, markup=False, soft_wrap=True)
    write(f"{calls} of ATen, {size(nbytes)} of tensors{smaller}", console)
    for path in (written.script, written.tensors):
        was_there = " (an earlier one was replaced)" if path in written.replaced else ""
        console.print(f"  {clean(str(path))}{was_there}", markup=False, soft_wrap=True)
    if is_same is not None:
        glyph, what = ("✓", "the same bits") if is_same else ("✗", "not the same bits")
        write(f"{glyph} {what} in a fresh process:", console, indent=0)
        for line in said.splitlines():
            console.print(f"  {line}", markup=False, soft_wrap=True)
    return int(is_same is False)
