"""The JSON that agviz writes is as its schemas say: no field is missing, none is undocumented.

A validator that is not ours holds real documents against the strict form of the schemas, which
refuses every field that they don't name.
"""

from __future__ import annotations

import contextlib
import copy
import json
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from jsonschema import Draft202012Validator

import agviz
from agviz.cli.main import main
from agviz.export.schemas.catalogue import STRICT, schema
from agviz.words.documents import DOCUMENTS
from tests import frozen_programs, python_process
from tests.gallery_frame import Program, programs
from tests.json_documents import hold, validators
from tests.slow_cases import slow_but

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.frozen_programs import Case

ROOT = Path(__file__).parents[1]
FORMATS = ROOT / "docs" / "formats.md"

OF_A_TRACE = {
    "explain": ["explain", "--json", "FILE"],
    "summary": ["summary", "--json", "FILE"],
    "why": ["why", "--json", "FILE"],
    "diff": ["diff", "--json", "FILE", "FILE"],
    "whatif": ["whatif", "--json", "FILE"],
    "trace": ["export", "--format", "json", "-o", "-", "FILE"],
    "chrome-trace": ["export", "--format", "chrome-trace", "-o", "-", "FILE"],
}
OF_RANKS = {
    "explain-ranks": ["explain", "--json", "FILE"],
    "summary-ranks": ["summary", "--json", "FILE"],
    "why-ranks": ["why", "--json", "FILE", "module.first.weight"],
    "diff-ranks": ["diff", "--json", "FILE"],
    "whatif-ranks": ["whatif", "--json", "FILE", "--first", "module.last.weight"],
    "diff-folders": ["diff", "--json", "FILE", "FILE"],
    "chrome-trace": ["export", "--format", "chrome-trace", "-o", "-", "FILE"],
}
LONGEST = 300_000
"""Characters of a whole trace; longer ones take the validator long, and hold more of the same."""


@pytest.fixture
def said(capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[[list[str], Path], str]:
    """What a call of ``agviz`` writes to stdout; empty where it is refused."""

    def say(call: list[str], path: Path) -> str:
        capfdbinary.readouterr()
        code = main([str(path) if word == "FILE" else word for word in call])
        out, err = capfdbinary.readouterr()
        assert out or (code == 2 and err.startswith(b"agviz: ")), err
        return out.decode()

    return say


def hold_all(path: Path, say: Callable[[list[str], Path], str]) -> set[str]:
    """Every document of a trace; gives their names."""
    held = set()
    for name, call in OF_A_TRACE.items():
        text = say(call, path)
        if text and (len(text) < LONGEST or "trace" not in name):
            hold(text, name)
            held.add(name)
    return held


# --- the schemas themselves ---------------------------------------------------------------------


def test_each_document_has_a_schema_which_is_one() -> None:
    assert STRICT.keys() == DOCUMENTS.keys()
    for name in DOCUMENTS:
        strict, open_ = validators(name)
        for each in (strict.schema, open_.schema):
            assert each["$id"] == f"urn:agviz:{name}:{DOCUMENTS[name]}"
        assert "additionalProperties" in json.dumps(strict.schema)
        assert '"additionalProperties": false' not in json.dumps(open_.schema)


def test_the_verb_prints_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    listed = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    assert listed == [[name, str(version)] for name, version in DOCUMENTS.items()]
    for name in DOCUMENTS:
        assert main(["schema", name]) == 0
        assert json.loads(capsys.readouterr().out) == schema(name)
    assert main(["schema", "explian"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("agviz: agviz writes no JSON of the name explian: trace, ")


def test_the_documents_are_documented() -> None:
    text = FORMATS.read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| (\d+) \|", text, re.MULTILINE))
    assert rows == {name: str(version) for name, version in DOCUMENTS.items()}


def test_readers_are_told_to_expect_more_and_the_tests_refuse_it(
    tmp_path: Path, said: Callable[[list[str], Path], str]
) -> None:
    path = tmp_path / "t.agviz"
    x = torch.zeros(2, requires_grad=True)
    with agviz.trace(path=path), contextlib.suppress(RuntimeError):
        y = x.exp()
        z = y.sum()
        z.backward()
        z.backward()
    document = hold(said(OF_A_TRACE["explain"], path), "explain")
    assert document["failure"]["kind"] == "second_time"
    strict, open_ = validators("explain")
    changes: list[tuple[Callable[[dict[str, Any]], object], bool, bool]] = [
        (lambda it: it.update(news=1), False, True),
        (lambda it: it["verdicts"][0].update(news=1), False, True),
        (lambda it: it["failure"].update(kind="news"), False, True),
        (lambda it: it["failure"].pop("called_at"), False, False),
        (lambda it: it.pop("file"), False, False),
        (lambda it: it["verdicts"][0].update(outcome="news"), False, False),
        (lambda it: it["verdicts"][0].update(heading=7), False, False),
        (lambda it: it.update(version=2), False, False),
    ]
    for change, strict_allows, open_allows in changes:
        changed = copy.deepcopy(document)
        change(changed)
        assert (strict.is_valid(changed), open_.is_valid(changed)) == (strict_allows, open_allows)


# --- what is written of real programs -----------------------------------------------------------

CASES = [
    case
    for case in frozen_programs.cases()
    if not case.name.startswith("gallery/") or case.reads_shortly
]


def record(case: Case, path: Path) -> bool:
    """Whether it left a trace; what the program raises is part of it."""
    with contextlib.suppress(Exception):
        case.record(path)
    return path.exists()


def by_name(case: Case) -> str:
    return case.name


QUICK = CASES[:: max(1, len(CASES) // 9)]
FEW = slow_but(
    set(map(by_name, QUICK)),
    [
        *QUICK,
        *(case for case in CASES if "hook" in case.name or "callback" in case.name),
    ],
    by_name,
)


@pytest.mark.slow_but_one_in(12)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", FEW)
def test_some_recordings(
    case: Case, tmp_path: Path, said: Callable[[list[str], Path], str]
) -> None:
    path = tmp_path / "t.agviz"
    if record(case, path):
        assert {"explain", "summary"} <= hold_all(path, said)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES, ids=by_name)
def test_many_recordings(
    case: Case, tmp_path: Path, said: Callable[[list[str], Path], str]
) -> None:
    test_some_recordings(case, tmp_path, said)


STEPS = [*programs("step"), *programs("version"), *programs("nonfinite")]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow_but_one_in(36)
@pytest.mark.parametrize("program", STEPS[::9], ids=lambda it: f"{it.kind}/{it.name}")
def test_what_explain_rests_on(
    program: Program, tmp_path: Path, said: Callable[[list[str], Path], str]
) -> None:
    path = tmp_path / "t.agviz"
    with contextlib.suppress(RuntimeError):
        kept = program.record(path)
        del kept
    hold(said(OF_A_TRACE["explain"], path), "explain")
    hold(said(OF_A_TRACE["summary"], path), "summary")


def test_what_saturation_rests_on(tmp_path: Path, said: Callable[[list[str], Path], str]) -> None:
    first, head = torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)
    torch.nn.init.constant_(first.bias, -40)
    path = tmp_path / "t.agviz"
    with agviz.trace(path=path):
        head(first(torch.randn(16, 8)).relu()).sum().backward()
    failure = hold(said(OF_A_TRACE["explain"], path), "explain")["failure"]
    assert failure["kind"] == "saturation: start"


def test_every_kind_of_event_and_failure_is_met_or_known() -> None:
    """All that can be is named: kinds come from the code."""
    from agviz_engine.events import EVENT_TYPES

    events = STRICT["trace"]()["properties"]["events"]["items"]["oneOf"]
    assert [each["properties"]["kind"]["const"] for each in events] == [
        kind.__name__ for kind in EVENT_TYPES
    ]
    source = "\n".join(
        path.read_text(encoding="utf-8") for path in sorted((ROOT / "agviz/analysis").glob("*.py"))
    )
    written = set(re.findall(r'"kind": "([a-z_]+)"', source))
    failure = STRICT["explain"]()["properties"]["failure"]["anyOf"][1]["oneOf"]
    assert {each["properties"]["kind"]["const"] for each in failure} == written


def test_a_hook_is_told_from_the_kind_of_its_event(
    tmp_path: Path, said: Callable[[list[str], Path], str]
) -> None:
    x = torch.ones(2, requires_grad=True)
    with agviz.trace(path=tmp_path / "t.agviz"):
        y = x.exp()
        y.register_hook(lambda grad: grad * 2)
        y.sum().backward()
    events = hold(said(OF_A_TRACE["trace"], tmp_path / "t.agviz"), "trace")["events"]
    (hook,) = [event for event in events if event["kind"] == "HookCalled"]
    assert hook["which"] == "tensor_pre"


# --- the others ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_RANKS)
def test_a_folder_of_ranks(
    name: str, two_ranks: Path, said: Callable[[list[str], Path], str]
) -> None:
    hold(said(OF_RANKS[name], two_ranks), name)


def test_two_folders(tmp_path: Path, said: Callable[[list[str], Path], str]) -> None:
    for name, size in (("a", 2), ("b", 3)):
        with agviz.trace(path=tmp_path / f"{name}.agviz"):
            torch.ones(size, requires_grad=True).exp().sum().backward()
    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
        for name in ("a", "b"):
            shutil.copy(tmp_path / f"{name}.agviz", tmp_path / folder)
    call = ["diff", "--json", str(tmp_path / "one"), str(tmp_path / "other")]
    found = hold(said(call, tmp_path), "diff-folders")
    assert [each["same"] for each in found["pairs"]] == [True, True]


def test_where_two_traces_part(tmp_path: Path, said: Callable[[list[str], Path], str]) -> None:
    for name, factor in (("a", 1.0), ("b", float("inf"))):
        with agviz.trace(path=tmp_path / f"{name}.agviz"):
            x = torch.ones(3, requires_grad=True)
            y = (x * factor).exp() if name == "b" else x * factor
            y.sum().backward()
    call = ["diff", "--json", str(tmp_path / "a.agviz"), str(tmp_path / "b.agviz")]
    found = hold(said(call, tmp_path), "diff")
    assert found["first"] is not None
    assert found["graph_tasks"][0]["divergences"]


def test_a_largest_element_and_one_node_alone(
    tmp_path: Path, said: Callable[[list[str], Path], str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\n"
        "w = torch.ones(4, requires_grad=True)\n"
        "x = torch.arange(20.0).reshape(5, 4)\n"
        "(x * w).sum(1).sqrt().sum().backward()\n"
        "w.grad = None\n"
        "(x * 0 * w).sum(1).sqrt().sum().backward()\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "agviz", "run", "-o", "t.agviz", "--elements", ".*"]
    python_process.run([*command, "--repro", "nonfinite", "train.py"], cwd=tmp_path, check=True)
    path = tmp_path / "t.agviz"
    call = ["explain", "--element", "SqrtBackward0", "--graph-task", "0", "--json", "FILE"]
    hold(said(call, path), "explain-element")
    found = hold(said(["repro", "--json", "-o", str(tmp_path / "out"), "FILE"], path), "repro")
    assert found["same_bits"] is None
    for format_, name in (("svg", "t.svg"), ("json", "t.json")):
        call = ["export", "--format", format_, "--json", "-o", str(tmp_path / name), "FILE"]
        assert hold(said(call, path), "export")["format"] == format_


@pytest.mark.slow_but_one_in(36)
@pytest.mark.parametrize("name", ["check", "verify", "doctor"])
def test_reports_about_programs(name: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\n"
        "class Wrong(torch.autograd.Function):\n"
        "    @staticmethod\n"
        "    def forward(ctx, x):\n"
        "        return x * 2\n"
        "    @staticmethod\n"
        "    def backward(ctx, g):\n"
        "        return g * 3\n"
        "x = torch.rand(3, dtype=torch.float64, requires_grad=True)\n"
        "Wrong.apply(x).sum().backward()\n",
        encoding="utf-8",
    )
    program = [] if name == "doctor" else [str(script)]
    command = [sys.executable, "-m", "agviz", name, "--json"]
    ended = python_process.run([*command, *program], cwd=tmp_path)
    found = hold(ended.stdout, name)
    if name == "check":
        assert found["outcome"] == "found"
        (tmp_path / "none.py").write_text("print('no torch')\n", encoding="utf-8")
        ended = python_process.run([*command, "none.py"], cwd=tmp_path, fresh=True)
        assert hold(ended.stdout, "check")["outcome"] == "can't tell"


def test_a_validator_of_theirs_reads_what_the_verb_prints(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["schema", "doctor"]) == 0
    printed: dict[str, Any] = json.loads(capsys.readouterr().out)
    good = {"document": "doctor", "version": 1, "agviz": "1", "findings": []}
    assert Draft202012Validator(printed).is_valid(good)
    assert not Draft202012Validator(printed).is_valid({**good, "findings": [{"ok": 1}]})
