"""One node alone: what ``agviz run --repro`` keeps, ``agviz repro`` and ``agviz issue`` write.

The oracle is a fresh process that has torch only, and torch's own engine.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file

from agviz.cli.kept import find_kept, kept_rows, write_kept
from agviz.cli.main import build_parser, main
from agviz.cli.run import read_options
from agviz.errors import AgvizError
from agviz.repro.isolated_node import IsolatedNode, decode, encode
from agviz.traces.reader import Trace
from tests import python_process
from tests.repro_models import MODELS

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence

ROOT = Path(__file__).parent.parent
AGVIZ = [sys.executable, "-m", "agviz"]
FAST = ("checkpointed", "custom_function")
"""Taken apart in one recording."""
DISTANCE = """
import sys, torch

torch.manual_seed(0)
embed = torch.nn.Linear(6, 4, bias=False)
x = torch.randn(9, 6)
x[7] = 0
root = embed(x).square().mean(-1).sqrt()
given = []
if "native" in sys.argv:
    root.grad_fn.register_hook(lambda outputs, inputs: given.extend([*outputs, *inputs]))
root.mean().backward()
if given:
    torch.save(given, sys.argv[2])
"""
RUN_ALL = """
import contextlib, io, runpy, sys
for path in sys.argv[1:]:
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            runpy.run_path(path, run_name="__main__")
    except SystemExit as ended:
        if ended.code:
            print(path, ended.code, said.getvalue())
    except Exception as error:
        print(path, repr(error))
assert not any(name.partition(".")[0] in {"agviz", "agviz_engine"} for name in sys.modules)
"""


def run(
    *command: str | Path, cwd: Path, check: bool = True, **variables: str
) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"COLUMNS": "200", **variables}
    return python_process.run(command, cwd=cwd, check=check, env=environment, timeout=600)


def fresh(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A process that can't import agviz, nor anything that lies in the folder."""
    return run(sys.executable, "-I", *arguments, cwd=cwd, check=False)


@pytest.fixture(scope="module")
def distance(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of a program whose square root is taken at zero."""
    folder = tmp_path_factory.mktemp("distance")
    (folder / "train.py").write_text(DISTANCE)
    path = folder / "t.agviz"
    ended = run(*AGVIZ, "run", "--repro", "nonfinite", "-o", path, "train.py", "a b", cwd=folder)
    assert ended.stderr.endswith(f"; to run a node alone: agviz repro {path}\n")
    return path


def taken_apart(path: Path, folder: Path) -> tuple[list[Path], Counter[tuple[str, str]], int]:
    """Scripts of all nodes that can be run alone, why others can't, and how many ran."""
    scripts, cant = [], Counter[tuple[str, str]]()
    with Trace.open(path) as trace:
        for row in kept_rows(trace):
            kept = find_kept(trace, str(row.order), row.graph_task)
            if kept.node.why_not:
                cant[row.short_name, kept.node.why_not] += 1
            else:
                scripts.append(write_kept(trace, kept, folder).script)
        rows = [row for task in trace.graph_tasks for row in trace.nodes(task.id)]
        ran = sum(row.order is not None and not row.is_leaf for row in rows)
    return scripts, cant, ran


def check_models(names: Sequence[str], folder: Path) -> tuple[int, int, dict[tuple[str, str], int]]:
    """Each node gives the same bits in a process without agviz; the passes are what they were."""
    path, program = folder / "t.agviz", ROOT / "tests" / "repro_models.py"
    ended = run(*AGVIZ, "run", "--repro", ".", "-o", path, program, *names, cwd=folder)
    assert ended.stdout == run(sys.executable, program, *names, cwd=folder).stdout
    scripts, cant, ran = taken_apart(path, folder / "nodes")
    assert len({*scripts}) + cant.total() == ran
    alone = fresh("-c", RUN_ALL, *scripts, cwd=folder)
    assert (alone.returncode, alone.stdout, alone.stderr) == (0, "", "")
    return len(scripts), ran, dict(cant)


@pytest.mark.slow
def test_each_node_gives_the_same_bits_in_a_fresh_process(tmp_path: Path) -> None:
    alone, ran, cant = check_models(FAST, tmp_path)
    assert alone >= ran - 3
    whys = dict(cant.keys())
    assert "a backward pass of its own" in whys.pop("CheckpointFunctionBackward")
    assert whys == {"CopySlices": "it is none of torch's formulas, and may not run twice"}


@pytest.mark.slow
def test_the_share_of_ten_models(tmp_path: Path) -> None:
    shares = []
    for name in MODELS:
        folder = tmp_path / name
        folder.mkdir()
        alone, ran, cant = check_models([name], folder)
        print(f"| {name} | {ran} | {alone} | {dict(cant) or ''} |")
        shares.append((alone, ran))
    alone, ran = (sum(column) for column in zip(*shares, strict=True))
    print(f"{alone} of {ran}")
    assert alone >= 0.98 * ran


@pytest.mark.slow
def test_the_script_gives_what_torch_gave(distance: Path, tmp_path: Path) -> None:
    assert main(["repro", str(distance), "-o", str(tmp_path)]) == 0
    script, data = tmp_path / NAME, (tmp_path / NAME).with_suffix(".safetensors")
    (tmp_path / "torch.py").write_text("raise ImportError")  # -I keeps it out of the way
    ended = fresh(script, cwd=tmp_path)
    said = "output 0 [9]: the same bits as recorded, 1 of 9 elements not finite\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, said, "")
    run(sys.executable, "train.py", "native", tmp_path / "native.pt", cwd=distance.parent)
    native = torch.load(tmp_path / "native.pt")
    stored = load_file(data)
    assert torch.equal(stored["output_0"], native[0])
    assert torch.equal(stored["grad_0"], native[1].contiguous())
    broken = bytearray(data.read_bytes())
    broken[-1] ^= 1
    data.write_bytes(broken)
    ended = fresh(script, cwd=tmp_path)
    assert ended.returncode == 1
    assert "OTHER BITS" in ended.stdout


NAME = "repro-SqrtBackward0-pass0-number2.py"


def test_the_command_checks_in_a_fresh_process(
    distance: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verb = ["repro", str(distance), "SqrtBackward0", "-o", str(tmp_path / "out")]
    assert main([*verb, "--check"]) == 0
    assert "✓ the same bits in a fresh process" in capsys.readouterr().out
    first = (tmp_path / "out" / NAME).read_bytes()
    assert main([*verb, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["same_bits"], facts["order"], facts["calls"]) == (None, 2, 3)
    assert len(facts["replaced"]) == 2
    assert (tmp_path / "out" / NAME).read_bytes() == first


def test_few_elements_still_fail(
    distance: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["repro", str(distance), "2", "--minimise", "-o", str(tmp_path)]) == 0
    assert "12 B of tensors, 108 B before --minimise" in capsys.readouterr().out
    stored = load_file((tmp_path / NAME).with_suffix(".safetensors"))
    assert {name: tuple(tensor.shape) for name, tensor in stored.items()} == dict.fromkeys(
        ("saved_result", "grad_0", "output_0"), (1,)
    )
    assert not stored["output_0"].isfinite()


def test_the_report_has_answer_command_and_script(
    distance: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["issue", str(distance), "-o", str(tmp_path)]) == 0
    assert "replaced" not in capsys.readouterr().out
    report = (tmp_path / "t-issue.md").read_text()
    for text in (
        "norm at zero",
        "train.py 'a b'",
        f"- torch {torch.__version__}",
        (tmp_path / NAME).read_text().strip(),
    ):
        assert text in report
    assert main(["issue", str(distance), "-o", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("replaced") == 3


HOOKED = """
import torch
calls = []
def unpack(packed):
    calls.append(packed)
    return packed
class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return 2 * x
    @staticmethod
    def backward(ctx, grad):
        print("backward", len(ctx.saved_tensors))
        return 2 * grad
x = torch.randn(3, requires_grad=True)
with torch.autograd.graph.saved_tensors_hooks(lambda x: x, unpack):
    y = Twice.apply(x.sin()).exp().sum()
y.backward()
print(len(calls))
"""


def test_what_is_the_programs_runs_once(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(HOOKED)
    ended = run(*AGVIZ, "run", "--repro", ".", "-o", "t.agviz", "train.py", cwd=tmp_path)
    assert ended.stdout == "backward 1\n3\n"  # as without agviz: one call for each saved tensor
    scripts, cant, ran = taken_apart(tmp_path / "t.agviz", tmp_path)
    assert (len(scripts), cant.total(), ran) == (4, 0, 4)


def refused(*arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("agviz: ")
    assert said.err.count("\n") == 1
    return said.err


def test_what_was_not_kept_is_said_with_the_command(
    distance: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(distance)
    said = refused("repro", path, "MeanBackward0", "-o", str(tmp_path), capsys=capsys)
    again = "agviz run --repro '^MeanBackward0$' --steps 0:1 train.py 'a b'"
    assert f"was not kept; record the program again: {again}\n" in said
    assert "kept: 2 SqrtBackward0" in refused("repro", path, "Nothing", capsys=capsys)
    assert "kept: 2 SqrtBackward0" in refused("repro", path, "4000", capsys=capsys)
    assert refused("repro", path, "--graph-task", "7", capsys=capsys)
    (tmp_path / "file").touch()
    assert "can't be written" in refused("repro", path, "-o", str(tmp_path / "file"), capsys=capsys)


def changed(good: Path, path: Path, sql: str, *values: Any) -> str:
    shutil.copy(good, path)
    database = sqlite3.connect(path, isolation_level=None)
    database.execute(sql, values)
    database.close()
    return str(path)


def test_a_damaged_node_is_refused(
    distance: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "bad.agviz"
    for sql in (
        "UPDATE isolated SET part = 1",
        "UPDATE isolated SET bytes = substr(bytes, 1, length(bytes) - 1)",
        "UPDATE isolated SET bytes = 'text'",
        "UPDATE isolated SET bytes = zeroblob(100)",
    ):
        assert "damaged" in refused("repro", changed(distance, copy, sql), capsys=capsys)
    assert "record the program again" in refused(
        "repro", changed(distance, copy, "DELETE FROM isolated"), capsys=capsys
    )
    none = encode(IsolatedNode("SqrtBackward0", why_not="it\x1b[0m is shy"), {})
    changed(distance, copy, "UPDATE isolated SET bytes = ?", none)
    said = refused("repro", str(copy), capsys=capsys)
    assert said == (
        "agviz: SqrtBackward0, number 2 to run in backward pass 0, can't be run alone:"
        " it\N{REPLACEMENT CHARACTER}[0m is shy\n"
    )
    assert main(["issue", str(copy), "-o", str(tmp_path)]) == 0
    assert "is shy" in (tmp_path / "bad-issue.md").read_text()
    assert not list(tmp_path.glob("repro-*"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("aten.mul.Scalar", "aten.from_file.default"),
        ("aten.mul.Scalar", "os.system.default"),
        ("aten.mul.Scalar", "aten.mul.Scalar(1); x.y"),
        ("aten.mul.Scalar", "aten.import.default"),
        ("saved_result", "saved_result = exit(); x"),
        ("saved_result", "json"),
        ('"cpu"', '"cpu\\"); exit(\\""'),
        ('"float32"', '"__class__"'),
        ('"float32"', '"float64"'),
        ('{"tensor":"t1"}', '{"tensor":"t9"}'),
        ('{"tensor":"t1"}', '{"code":"exit()"}'),
        ('{"tensor":"t1"}', '{"float":"exit()"}'),
        ('{"tensor":"t1"}', '{"complex":"exit()"}'),
        ('"result":"t2"', '"result":"t1"'),
        ('"outputs":["t3"]', '"outputs":["t77"]'),
        ('"threads":', '"threads":-'),
        ('"size":[9]', '"size":[10]'),
        ('"settings":{}', '"settings":[["torch.x = exit()", true]]'),
    ],
)
def test_a_script_holds_nothing_but_calls(distance: Path, old: str, new: str) -> None:
    with Trace.open(distance) as trace:
        data = trace.isolated_node(*trace.isolated()[0])
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    text = header["__metadata__"]["agviz_node"]
    assert old in text
    header["__metadata__"]["agviz_node"] = text.replace(old, new)
    changed_header = json.dumps(header).encode()
    lie = len(changed_header).to_bytes(8, "little") + changed_header + data[begin:]
    with pytest.raises(AgvizError, match="damaged"):
        decode(lie)


def test_it_needs_the_exact_engine(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    call = ["run", "--repro", "nonfinite", "--engine", "native", str(tmp_path / "train.py")]
    assert "needs agviz's own engine" in refused(*call, capsys=capsys)


def test_nothing_is_kept_unless_asked_for() -> None:
    parser = build_parser()
    assert not read_options(parser.parse_args(["run", "train.py"])).repro
    for wrong in ("", "("):
        with pytest.raises(SystemExit):
            parser.parse_args(["run", "--repro", wrong, "train.py"])
