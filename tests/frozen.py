"""What agviz answers about many recorded programs, written down to be compared.

python -m tests.frozen FOLDER          writes the answers; goes on where it was interrupted.
python -m tests.frozen --compare A B   says where two folders differ.

Each program runs in a forked process of its own, with a fixed seed, one thread and a clock that
moves with the program's forward only, so that two runs of one tree give the same answers byte for
byte. ``FOLDER/<name>.json`` holds, as lists of lines, all that the trace says (events, nodes,
edges, executions, health, states at some positions, …) and what each verb of ``agviz`` writes. Only
the public ways of reading are used, so that a change of the file format changes nothing here.

Left out or replaced: numbers of the process and of its threads, the temporary folder, and frames
that are hidden or of this file. Sequence numbers of events are written as positions in the
recording, except in what the verbs write. Where nodes run on several threads, the events of each
graph task are sorted, without what depends on who came first. Programs that hang run by the real
clock until they are killed: of them only what ``explain`` and ``why`` say is kept, without times.
"""

from __future__ import annotations

import argparse
import bisect
import dataclasses
import difflib
import io
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agviz import Trace
    from tests.frozen_programs import Case

ROOT: Final = Path(__file__).parents[1]
PROCESSES: Final = 2
PATIENCE_S: Final = 240
POSITIONS: Final = 20
"""States of a graph task that are looked at, spread evenly."""
MOST_STATES: Final = 100
"""Of one recording."""
_ENVIRONMENT: Final = {
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "COLUMNS": "100",
    "TERM": "dumb",
    "NO_COLOR": "1",
    "KINETO_LOG_LEVEL": "99",
    "MKL_NUM_THREADS": "1",
    # What torch.empty finds in memory is measured too: glibc fills it with one byte.
    "MALLOC_PERTURB_": "195",
    "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0",
}
_FRAME: Final = re.compile(r"\S*tests/frozen\.py[:(]\d+\)?(: | in )\S+")
_OURS: Final = re.compile(r"(engine/)?agviz(_engine)?/\S+\.py:\d+ in .*")
_ORDER: Final = re.compile(r'"(order|seq|thread)": \d+|number \d+ to run, thread \d+|event \d+')
_CLASS: Final = re.compile(r"\b[A-Z]\w*\((?=\w+=)")
_ADDRESS: Final = re.compile(r"0x[0-9a-f]{6,}")
_TIME: Final = re.compile(r"\b\d[\d.,]* ?(ns|µs|ms|s|min)\b|\b\d+ %|\b\d+%")
_MISSING: Final = "no such method"
_PER_TASK: Final = (
    "graph_task", "nodes", "edges", "all_saved", "saved_health", "root_saved", "parameters",
    "executions", "arrivals", "captures", "leaves", "family", "version_errors", "call_site",
    "roots", "raised", "hook_calls", "sequence_nrs", "first_failure", "first_nonfinite_flow",
    "nonfinite_flows", "is_checked",
)  # fmt: skip
_PER_TRACE: Final = (
    "health", "values", "nonfinite", "nonfinite_results", "nonfinite_graph_tasks",
    "nonfinite_roots", "optimizer_steps", "native_calls", "forward_ops", "forward_nonfinite",
    "first_nodes", "stored_values",
)  # fmt: skip
_OF_SEVERAL_THREADS: Final = (
    "graph_task", "edges", "all_saved", "parameters", "captures", "leaves", "family",
    "version_errors", "call_site", "roots", "sequence_nrs", "is_checked",
)  # fmt: skip
"""What does not depend on which thread came first."""
_DEPENDS_ON_ORDER: Final = {"thread", "size", "remaining", "added", "nbytes", "queue"}
"""Fields of events that do."""
_RACES: Final = {"gallery/hang/rank_that_skips", "gallery/nonfinite/three_device_threads"}
"""Programs of which the answer depends on which thread came first: only exit codes are kept."""


# --- what a trace says --------------------------------------------------------------------------


class Teller:
    """Turns rows into lines, those of one trace."""

    def __init__(self, trace: Trace, folder: str) -> None:
        self._folder = folder
        self.events = trace.events(limit=10**9)
        self.seqs = [event.seq for event in self.events]

    def lines(self, found: Any) -> list[str]:
        """One line for each row."""
        is_many = isinstance(found, Sequence) and not isinstance(found, tuple | str)
        return [self.text(row) for row in found] if is_many else [self.text(found)]

    def text(self, value: Any, name: str = "") -> str:
        """A value without what differs between runs."""
        if name in {"native_id", "pid"} or name.endswith("_ns"):
            return "-"
        if name in {"seq", "begin_seq", "end_seq", "last_seq"} and isinstance(value, int):
            place = bisect.bisect_left(self.seqs, value)
            return f"@{place}" if self.seqs[place : place + 1] == [value] else "@none"
        if hasattr(value, "_asdict") or dataclasses.is_dataclass(value):
            return self._row(value)
        match value:
            case Enum():
                found = str(value.value)
            case str():
                found = repr(mask(value, self._folder))
            case dict():
                pairs = (f"{self.text(key)}: {self.text(item)}" for key, item in value.items())
                found = f"{{{', '.join(pairs)}}}"
            case set() | frozenset():
                found = f"{{{', '.join(map(str, sorted(value)))}}}"
            case range() | bytes():
                found = repr(value)
            case Sequence():
                shown = (self.text(item) for item in value if not _is_ours(item))
                found = f"[{', '.join(shown)}]"
            case _:
                found = repr(value)
        return found

    def _row(self, row: Any) -> str:
        fields = (
            row._fields
            if hasattr(row, "_fields")
            else [field.name for field in dataclasses.fields(row)]
        )
        parts = (f"{name}={self.text(getattr(row, name), name)}" for name in fields)
        return f"{type(row).__name__}({', '.join(parts)})"


def _is_ours(value: Any) -> bool:
    """Whether it is a frame that is of no interest."""
    return type(value).__name__ == "Frame" and (value.hidden or "tests/frozen.py" in value.file)


def mask(text: str, folder: str) -> str:
    """A text without what differs between runs."""
    text = text.replace(folder, "<folder>")
    for found in (folder.replace("/", "_"), str(ROOT)):
        text = text.replace(found, "<root>" if found == str(ROOT) else "<folder>")
    return _ADDRESS.sub("<address>", _FRAME.sub("<frozen>", text))


def facts(trace: Trace, folder: str, *, has_threads: bool) -> dict[str, list[str]]:
    """All that a trace says, by subject."""
    teller = Teller(trace, folder)
    tasks = [task.id for task in trace.graph_tasks]
    found: dict[str, list[str]] = {}
    if has_threads:
        found["events, sorted"] = sorted(_without_order(event) for event in teller.events)
    else:
        found["events"] = [_event(event, teller) for event in teller.events]
        found["threads"] = teller.lines(trace.threads)
        for name in _PER_TRACE:
            found[name] = teller.lines(_asked(trace, name))
    for task in tasks:
        for name in _OF_SEVERAL_THREADS if has_threads else _PER_TASK:
            said = teller.lines(_rows(trace, name, task))
            found[f"{name} {task}"] = _without_seqs(said) if has_threads else said
        if has_threads:
            found[f"statuses at the end {task}"] = _statuses(trace, task)
        else:
            found[f"story of each node {task}"] = _stories(trace, task, teller)
            found[f"states {task}"] = _states(trace, task, teller, MOST_STATES // len(tasks))
    return found


def _rows(trace: Trace, name: str, task: int) -> Any:
    found = _asked(trace, name, task)
    return list(found) if name in {"nodes", "executions"} and found != _MISSING else found


def _asked(whom: Any, name: str, *arguments: Any) -> Any:
    """What a method gives; a tree that lacks it says so, and the comparison shows it."""
    method = getattr(whom, name, None)
    return _MISSING if method is None else method(*arguments)


def _event(event: Any, teller: Teller) -> str:
    shown = (
        f"{name}={teller.text(getattr(event, name), name)}"
        for name in event._fields
        if name not in {"seq", "time_ns"}
    )
    return f"{type(event).__name__} {' '.join(shown)}"


def _without_order(event: Any) -> str:
    left_out = {"seq", "time_ns", "duration_ns", "native_id"} | _DEPENDS_ON_ORDER
    shown = (f"{name}={getattr(event, name)}" for name in event._fields if name not in left_out)
    return f"{type(event).__name__} {' '.join(shown)}"


def _without_seqs(lines: Iterable[str]) -> list[str]:
    return [re.sub(r"@\d+|thread=\d+", "-", line) for line in lines]


def _stories(trace: Trace, task: int, teller: Teller) -> list[str]:
    size = trace.graph_task(task).nodes
    some = range(0, size, max(1, size // POSITIONS))
    return [
        f"{node}: {' '.join(teller.text(e.seq, 'seq') for e in trace.story(task, node))}"
        for node in some
    ]


def _statuses(trace: Trace, task: int) -> list[str]:
    state = trace.state_at(task, trace.event_count(task))
    return [str(each) for each in state.statuses(task)]


def _states(trace: Trace, task: int, teller: Teller, most: int) -> list[str]:
    """What is known at some positions: statuses, queues, buffers, live bytes."""
    count = trace.event_count(task)
    steps = max(1, min(POSITIONS, most) - 1)
    lines = []
    for position in sorted({count * step // steps for step in range(steps + 1)}):
        state = trace.state_at(task, position)
        knows_all = getattr(state, "knows_all", _MISSING)
        lines += [
            f"{position}: live bytes {state.live_bytes}, knows all {knows_all}",
            f"{position}: running {teller.text(state.running())}",
            *(f"{position}: {_queue(queue, teller)}" for queue in state.queues()),
        ]
        for number in state.graph_tasks:
            nodes = range(len(state.statuses(number)))
            lines += [
                f"{position}: task {number} {what} {teller.text(said)}"
                for what, said in {
                    "depth": _asked(state, "depth", number),
                    "executed": _asked(state, "executed", number),
                    "non-finite": sorted(_asked(state, "nonfinite", number)),
                    "statuses": "".join(str(each)[0] for each in state.statuses(number)),
                    "buffers": dict(sorted(state.buffers(number).items())),
                    "remaining": [_asked(state, "remaining", number, node) for node in nodes],
                }.items()
            ]
    return lines


def _queue(queue: Any, teller: Teller) -> str:
    tasks = [tuple(task) for task in queue.tasks]
    return f"queue {queue.queue} of thread {queue.thread}: {teller.text(tasks)}"


# --- what the command line says -----------------------------------------------------------------


def verbs(case: Case, trace: Trace, path: Path) -> dict[str, list[str]]:
    """The arguments of each call of ``agviz``, by name; ``FILE`` is put in for the trace."""
    file = str(path)
    short = [
        ["explain", file], ["explain", "--verbose", file], ["explain", "--json", file],
        ["why", file], ["why", "--verbose", file], ["why", "--json", file],
    ]  # fmt: skip
    if case.has_threads:
        return {_named(call, file): call for call in short}
    long = [
        ["summary", file], ["summary", "--json", file], ["diff", file, file],
        ["diff", "--json", "--verbose", file, file], ["whatif", file], ["whatif", "--json", file],
        ["export", "--format", "json", "-o", "-", file],
    ]  # fmt: skip
    if case.reads_shortly:
        return {_named(call, file): call for call in [*short, *long[:1], *long[-1:]]}
    export = ["export", "--format", "dot", "-o", "-"]
    long += [
        ["export", "--format", "chrome-trace", "-o", "-", file],
        [*export, file],
        [*export, "--by", "execution", "--saved", file],
        [*export, "--fold", "repeats", "--budget", "12", file],
        [*export, "--around", "2", file],
        [*export, "--diff", file, file],
        ["summary", "--top", "3", "--graph-task", "0", file],
        ["explain", "--graph-task", "0", "--json", file],
        ["why", "--graph-task", "0", file],
    ]
    for part in (3, 2):
        events = trace.event_count(0) if trace.graph_tasks else 0
        if events:
            at = trace.events(0, offset=events * (part - 1) // part, limit=1)[0].seq
            long.append([*export, "--at", str(at), file])
    return {_named(call, file): call for call in [*short, *long]}


def _named(call: Sequence[str], file: str) -> str:
    return " ".join("FILE" if word == file else word for word in call)


def said(call: Sequence[str], folder: str, change: Callable[[str], str] = str) -> dict[str, Any]:
    """What one call of ``agviz`` writes, and its exit code."""
    from agviz.cli.main import main

    before = sys.stdout, sys.stderr
    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in before]
    sys.stdout, sys.stderr = streams
    try:
        code: int | str = main(call)
    except SystemExit as ended:
        code = f"SystemExit({ended.code})"
    except Exception:  # noqa: BLE001 - an answer like any other
        code = traceback.format_exc(limit=0)
    finally:
        sys.stdout, sys.stderr = before
    for stream in streams:
        stream.seek(0)
    texts = [stream.read() for stream in streams]
    return {
        "exit code": code,
        "stdout": change(mask(_plain(texts[0]), folder)).split("\n"),
        "stderr": change(mask(texts[1], folder)).split("\n"),
    }


def _plain(text: str) -> str:
    """JSON without frames that are hidden or of this file; other text as it is."""
    if not text.startswith(("{", "[")):
        return text
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return json.dumps(_visible(found), indent=0, ensure_ascii=False)


def _visible(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _visible(item) for key, item in value.items() if key not in _OF_A_RUN}
    if isinstance(value, list):
        return [_visible(item) for item in value if not _is_hidden(item)]
    return value


_OF_A_RUN: Final = {"pid", "native_id", "tid", "started_unix_ns", "baseTimeNanoseconds"}


def _is_hidden(value: Any) -> bool:
    """Whether it is a frame that is of no interest."""
    if isinstance(value, str):
        return _OURS.fullmatch(value) is not None or "tests/frozen.py" in value
    if not isinstance(value, dict) or not {"file", "line", "function"} <= value.keys():
        return False
    return bool(value.get("hidden")) or "tests/frozen.py" in value["file"]


# --- running ------------------------------------------------------------------------------------


def answers(case: Case, folder: str) -> dict[str, Any]:
    """Everything about one program; called in a process of its own."""
    from agviz import Trace

    path = Path(folder, "t.agviz")
    _count_from(1000)
    ended = "returned"
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123 - a device
        before, sys.stdout = sys.stdout, nowhere
        try:
            case.record(path)
        except Exception as error:  # noqa: BLE001 - an answer like any other
            ended = mask(f"{type(error).__name__}: {error}", folder)
        finally:
            sys.stdout = before
    found: dict[str, Any] = {"ended": ended}
    if not path.exists():
        return found | {"ended": f"{ended}; no file"}
    with Trace.open(path) as trace:
        found["facts"] = facts(trace, folder, has_threads=case.has_threads)
        calls = verbs(case, trace, path)
    change = _without_places if case.has_threads else str
    found["calls"] = {name: said(call, folder, change) for name, call in calls.items()}
    return _without_races(case.name.rpartition(".")[0], found)


class Clock:
    """Moves on by a millisecond for each node that the main thread's forward makes."""

    def __init__(self) -> None:
        self.is_real = False
        self._real = time.monotonic_ns
        self._last = 0
        self._main = threading.main_thread()

    def __call__(self) -> int:
        import torch

        if self.is_real:
            return self._real()
        if threading.current_thread() is self._main:
            self._last = max(self._last, torch._C._autograd._get_sequence_nr())
        return 10**12 + 10**6 * self._last


CLOCK: Final = Clock()


def _count_from(first: int) -> None:
    """Give the forward's nodes numbers from ``first`` on, however many agviz made to begin with."""
    import torch

    import agviz_engine

    with agviz_engine.installed():
        x = torch.ones((), requires_grad=True)
    while torch._C._autograd._get_sequence_nr() < first:
        x * 1


def hung(name: str, folder: str) -> dict[str, Any]:
    """What is said of a program that hung and was killed."""
    from tests.gallery_frame import programs
    from tests.hanging import hang

    CLOCK.is_real = True
    (program,) = (program for program in programs("hang") if program.name == name)
    hang(program, Path(folder))
    file = str(Path(folder, f"{name}.agviz"))
    calls = (["explain", file], ["explain", "--verbose", file], ["why", file])
    found = {_named(call, file): said(call, folder, _without_times) for call in calls}
    return _without_races(f"gallery/hang/{name}", {"calls": found})


def _without_races(name: str, found: dict[str, Any]) -> dict[str, Any]:
    if name in _RACES:
        for answer in found["calls"].values():
            del answer["stdout"]
    return found


def _without_places(text: str) -> str:
    """The text without what depends on which thread came first."""
    return _ORDER.sub("<place>", text)


def _without_times(text: str) -> str:
    """Sentences, one in a line, without times and the wrapping that depends on them."""
    return re.sub(r"(?<=[.:]) ", "\n", _TIME.sub("<t>", " ".join(text.split())))


def write(target: Path, only: str | None) -> int:
    """Answers of all programs that are not there yet; gives the exit code."""
    import torch  # noqa: F401 - before the clock is changed

    # Before agviz is imported, which takes the functions out of their module.
    time.monotonic_ns = time.time_ns = time.perf_counter_ns = CLOCK
    import agviz
    from tests import frozen_programs

    _import_all(agviz)
    target.mkdir(parents=True, exist_ok=True)
    work: list[tuple[str, Callable[[str], dict[str, Any]]]] = [
        (case.name, lambda folder, case=case: answers(case, folder))  # type: ignore[misc]
        for case in frozen_programs.cases()
    ]
    work += [
        (f"gallery/hang/{name}", lambda folder, name=name: hung(name, folder))  # type: ignore[misc]
        for name in frozen_programs.hanging()
    ]
    missing = [
        (name, make)
        for name, make in work
        if not _file(target, name).exists() and (only is None or re.search(only, name))
    ]
    print(
        f"{len(work)} programs, {len(work) - len(missing)} of them not now; agviz: {agviz.__file__}"
    )
    began, running, failed = time.monotonic(), dict[int, str](), list[str]()
    while missing or running:
        while missing and len(running) < PROCESSES:
            name, make = missing.pop(0)
            running[_start(_file(target, name), make)] = name
        child, status = os.wait()
        name = running.pop(child, "")
        if status:
            failed.append(name)
            print(f"{name}: process ended with {status}", file=sys.stderr)
    print(f"{time.monotonic() - began:.0f} s; failed: {', '.join(failed) or 'none'}")
    return bool(failed)


def _file(target: Path, name: str) -> Path:
    return target / f"{name}.json"


def _import_all(package: Any) -> None:
    """Import what each process would, except the terminal UI."""
    import importlib
    import pkgutil

    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not re.search(r"\.(_\w+|tui|testing|pytest_plugin|view)(\.|$)", found.name):
            importlib.import_module(found.name)


def _start(file: Path, make: Callable[[str], dict[str, Any]]) -> int:
    """Make the answers in a child process; gives its number."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    code = 1
    signal.alarm(PATIENCE_S)
    folder = tempfile.mkdtemp(prefix="agviz-")
    try:
        warnings.simplefilter("ignore")
        import torch

        torch.set_num_threads(1)
        sys.argv = ["frozen"]
        found = make(folder)
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(".partial")
        partial.write_text(json.dumps(found, indent=0, ensure_ascii=False), encoding="utf-8")
        partial.replace(file)
        code = 0
    except BaseException:  # noqa: BLE001 - the parent goes on
        traceback.print_exc()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        sys.stderr.flush()
        os._exit(code)


# --- comparing ----------------------------------------------------------------------------------


def compare(one: Path, other: Path, most: int = 6, only: str | None = None) -> int:
    """Print what differs, names of classes of rows aside; gives the exit code."""
    names = [
        {
            name
            for path in folder.rglob("*.json")
            if re.search(only or "", name := str(path.relative_to(folder).with_suffix("")))
        }
        for folder in (one, other)
    ]
    for folder, found in ((one, names[0] - names[1]), (other, names[1] - names[0])):
        if found:
            shown = [*sorted(found)[:3], *["…"] * (len(found) > 3)]
            print(f"only in {folder}: {len(found)}: {', '.join(shown)}")
    different = 0
    for name in sorted(names[0] & names[1]):
        texts = [
            _CLASS.sub("(", _file(folder, name).read_text(encoding="utf-8"))
            for folder in (one, other)
        ]
        if texts[0] != texts[1]:
            different += 1
            print(f"=== {name}")
            _differences("", json.loads(texts[0]), json.loads(texts[1]), most)
    print(f"{len(names[0] & names[1])} programs in both, {different} differ")
    return bool(different or names[0] != names[1])


def _differences(where: str, a: Any, b: Any, most: int) -> None:
    if a == b:
        return
    if isinstance(a, dict) and isinstance(b, dict):
        for key in dict.fromkeys([*a, *b]):
            _differences(f"{where} / {key}" if where else key, a.get(key), b.get(key), most)
        return
    if isinstance(a, list) and isinstance(b, list):
        found = _places(a, b)
        print(f"  {where}: {len(found)} places differ")
        for before, after in found[:most]:
            _show(before, after)
        return
    print(f"  {where}: {a!r} -> {b!r}")


def _places(a: list[str], b: list[str]) -> list[tuple[list[str], list[str]]]:
    """The places where two lists of lines differ."""
    if len(a) == len(b):
        return [([one], [other]) for one, other in zip(a, b, strict=True) if one != other]
    pieces = difflib.SequenceMatcher(None, a, b).get_opcodes()
    return [(a[i:j], b[k:m]) for kind, i, j, k, m in pieces if kind != "equal"]


def _show(before: Sequence[str], after: Sequence[str]) -> None:
    """Print the first lines of one place, from shortly before where they differ."""
    pairs = zip("".join(before[:1]), "".join(after[:1]), strict=False)
    same = next((place for place, (one, other) in enumerate(pairs) if one != other), 0)
    begin = max(0, same - 60)
    for sign, lines in (("-", before), ("+", after)):
        for line in lines[:3]:
            print(f"    {sign}{'…' if begin else ''}{line[begin : begin + 160]}")


def main() -> int:
    """Write or compare."""
    parser = argparse.ArgumentParser(prog="python -m tests.frozen", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="where to write the answers")
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("A", "B"))
    parser.add_argument("--tree", type=Path, help="folder of the agviz to ask (default: this one)")
    parser.add_argument("--only", metavar="REGEX", help="only programs of such a name")
    parser.add_argument("--most", type=int, default=6, help="lines shown of each difference")
    arguments = parser.parse_args()
    if arguments.compare:
        one, other = arguments.compare
        return compare(one, other, arguments.most, arguments.only)
    if arguments.folder is None:
        parser.error("name a folder to write to")
    target: Path = arguments.folder.absolute()
    if any(os.environ.get(key) != value for key, value in _ENVIRONMENT.items()):
        call = [sys.executable, "-m", "tests.frozen", *sys.argv[1:]]
        os.execve(sys.executable, call, os.environ | _ENVIRONMENT)  # noqa: S606 - no shell
    tree: Path = (arguments.tree or ROOT).absolute()
    sys.path[:0] = [str(tree), str(tree / "engine")]
    os.chdir(ROOT)
    return write(target, arguments.only)


if __name__ == "__main__":
    sys.exit(main())
