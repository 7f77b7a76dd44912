"""Every program of the gallery whose parameters get no gradient, or zeros, is told why.

What they get is asked of torch's own engine first: the answers have to agree with it.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from fnmatch import fnmatch
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest
import torch

import agviz
from agviz.analysis.causes import REMEDIES, Cause
from agviz.cli.main import main
from tests import python_process
from tests.gallery_frame import Program, programs
from tests.spoken import check_length

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator, Mapping

    from torch import Tensor, nn

    from agviz.analysis.gradients import GradientRow, Gradients

PROGRAMS: Final = programs("no_gradient")
FAILING: Final = "loss_without_graph"
RUNNING: Final = [program for program in PROGRAMS if program.name != FAILING]
LIVE: Final = [program for program in RUNNING if hasattr(program.load(), "loss")]
ONLY_IN_BACKWARD: Final = {
    Cause.CANCELLED, Cause.HOOK, Cause.NOT_IN_LOSS, Cause.OVERWRITTEN, Cause.RETURNED_NONE,
    Cause.UNDERFLOW, Cause.VANISHED,
}  # fmt: skip
"""Causes of zeros, and of a custom Function's None, that nobody can know before backward runs."""

TOLD_LIVE: Final = [program for program in LIVE if program.one("cause") not in ONLY_IN_BACKWARD]


def by_name(program: Program) -> str:
    return program.name


class Stated(NamedTuple):
    """What a program says of one of its parameters."""

    gradient: str
    cause: str | None
    line: int | None
    node: str | None


def named(result: nn.Module | Mapping[str, nn.Module]) -> dict[str, Tensor]:
    """The parameters of the model, or models, that a program gives back."""
    if isinstance(result, torch.nn.Module):
        return dict(result.named_parameters())
    return {
        f"{label}.{name}": parameter
        for label, model in result.items()
        for name, parameter in model.named_parameters()
    }


def natively(parameters: Mapping[str, Tensor]) -> dict[str, str]:
    """What torch's engine left in ``.grad``."""
    return {
        name: "none"
        if parameter.grad is None
        else "some"
        if parameter.grad.count_nonzero()
        else "zero"
        for name, parameter in parameters.items()
    }


@functools.cache
def left_by(program: Program) -> Mapping[str, str]:
    """What torch's engine leaves in ``.grad`` of the program's parameters."""
    return MappingProxyType(natively(named(program.run())))


def as_torch_has_it(row: GradientRow) -> str:
    """In these words: what is practically zero is there all the same."""
    return "some" if row.gradient == "faint" else row.gradient


def stated(program: Program, names: Mapping[str, Any]) -> dict[str, Stated]:
    """What the program says of each of its parameters."""
    found = dict.fromkeys(names, Stated("some", None, None, None))
    for pattern, gradient, cause in (each.split() for each in program.all("other")):
        for name in names:
            if fnmatch(name, pattern):
                found[name] = Stated(gradient, cause, None, None)
    for pattern in program.all("parameter"):
        matching = [name for name in names if fnmatch(name, pattern)]
        assert matching, f"{program.path} has no parameter {pattern}"
        for name in matching:
            found[name] = Stated(
                program.one("gradient") or "",
                program.one("cause"),
                program.cause,
                program.one("node"),
            )
    return found


def line_of(row: GradientRow, program: Program) -> int | None:
    """Number of the line that was named, which is in the program's own file."""
    if row.line is None:
        return None
    place, _, _ = row.line.partition(" in ")
    file, _, number = place.rpartition(":")
    assert file.endswith(program.path.name)
    return int(number)


def check(program: Program, answer: Gradients, *, knows_line: bool = True) -> None:
    """Hold an answer against what the program says."""
    expected = stated(program, {row.parameter: row for row in answer})
    for row in answer:
        says = expected[row.parameter]
        if row.gradient == "faint":
            continue  # tests/gallery/faint tells of these
        assert (row.gradient, row.cause) == (says.gradient, says.cause), str(row)
        if says.line is not None and knows_line:
            assert line_of(row, program) == says.line, str(row)
        if says.node is not None:
            assert row.node_name == says.node, str(row)
        if row.cause is not None:
            assert row.parameter in row.sentence
            assert row.reason in row.sentence
            assert (row.advice or REMEDIES.get(row.cause, "")) in row.sentence
            assert "{" not in row.sentence


def test_there_are_enough() -> None:
    assert len(PROGRAMS) >= 40
    told_apart = {program.one("cause") for program in PROGRAMS}
    rare = {Cause.NOT_REACHED, Cause.UNKNOWN, Cause.FAILED, Cause.EMPTY, Cause.ROOT, Cause.UNSEEN}
    rare.add(Cause.IN_NODE)  # tests/test_tui_passes.py
    # tests/test_why_of_cause.py
    rare |= {Cause.SAMPLED, Cause.NOT_HELD, Cause.DIFFERENCE, Cause.NO_ELEMENTS, Cause.COLLECTIVE}
    rare |= {Cause.PUT_THERE}
    rare |= {Cause.LEARNT, Cause.DROPPED}  # tests/test_claims.py
    of_no_use = {Cause.NON_FINITE, *(program.one("cause") for program in programs("faint"))}
    assert told_apart == set(Cause) - rare - of_no_use
    without_line = {Cause.FROZEN, Cause.UNUSED}
    for program in PROGRAMS:
        has_none = program.one("cause") in without_line or "parameter_hook" in program.name
        assert (program.cause is None) == has_none, program.path


@pytest.mark.slow_but_one_in(6)
@pytest.mark.parametrize("program", RUNNING, ids=by_name)
def test_the_cause_and_its_line_are_named(
    program: Program, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left = left_by(program)
    path = tmp_path / "t.agviz"
    program.record(path, check_forward=True)
    answer = agviz.load(path).why()
    assert {row.parameter: as_torch_has_it(row) for row in answer} == left
    check(program, answer)
    assert not answer.is_fine or program.one("cause") == Cause.FROZEN
    assert answer.hint == ""
    for row in answer:
        alone = agviz.load(path).why(row.parameter)
        assert list(alone) == [row]
        assert answer[row.parameter] is row
    check_length(path, capsys, "explain", "why")


@pytest.mark.parametrize(
    ("name", "parameter", "zeros"),
    [
        ("dead_relu", "second.weight", "what relu() gave, at"),
        ("low_rank_start", "down.weight", "the parameter up.weight"),
        ("zero_residual_scale", "branch.2.bias", "the parameter scale"),
    ],
)
def test_the_zeros_that_stopped_a_gradient_are_named(
    name: str, parameter: str, zeros: str, tmp_path: Path
) -> None:
    (program,) = (each for each in PROGRAMS if each.name == name)
    program.record(tmp_path / "t.agviz", check_forward=True)
    assert f"zeros: {zeros}" in agviz.load(tmp_path / "t.agviz").why(parameter)[0].reason


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("program", RUNNING, ids=by_name)
def test_what_the_backward_alone_tells_is_true(program: Program, tmp_path: Path) -> None:
    left = left_by(program)
    path = tmp_path / "t.agviz"
    program.record(path)
    answer = agviz.load(path).why()
    assert {row.parameter: as_torch_has_it(row) for row in answer} == left
    expected = stated(program, left)
    for row in answer:
        says = expected[row.parameter]
        if row.gradient == "faint":
            continue  # tests/gallery/faint tells of these
        if row.cause is Cause.NOT_REACHED:
            assert says.gradient == "none"
            assert "--check-forward" in answer.hint
        else:
            assert row.cause == says.cause
            assert says.line is None or line_of(row, program) == says.line


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("program", RUNNING, ids=by_name)
def test_without_values_nothing_false_is_said(program: Program, tmp_path: Path) -> None:
    left = left_by(program)
    path = tmp_path / "t.agviz"
    program.record(path, values="none")
    told = {"none": {"none"}, "zero": {"unknown"}, "some": {"unknown"}}
    for row in agviz.load(path).why():
        assert row.gradient in told[left[row.parameter]], str(row)


def asked_live(program: Program, *, computes: bool) -> tuple[Gradients, dict[str, str]]:
    """What is said of the loss before its backward, and what torch's engine left afterwards."""
    module: Any = program.load()
    loss_of, answers = module.loss, []

    def loss(model: nn.Module) -> Tensor:
        state = torch.get_rng_state()
        if computes:
            answers.append(agviz.why(model, lambda: loss_of(model)))
            torch.set_rng_state(state)
        value: Tensor = loss_of(model)
        if not computes:
            answers.append(agviz.why(model, value))
        return value

    module.loss = loss
    torch.manual_seed(0)
    left = natively(named(module.program()))
    return answers[-1], left


@pytest.mark.parametrize("computes", [True, False], ids=["function", "tensor"])
@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("program", LIVE, ids=by_name)
def test_before_backward_it_is_told_as_well(program: Program, *, computes: bool) -> None:
    answer, left = asked_live(program, computes=computes)
    expected = stated(program, left)
    assert [row.parameter for row in answer] == list(left)
    for row in answer:
        says = expected[row.parameter]
        if row.gradient == "unknown":
            assert left[row.parameter] == "some" or says.cause in ONLY_IN_BACKWARD, str(row)
            continue
        assert row.gradient == left[row.parameter]
        if computes:
            assert row.cause == says.cause, str(row)
            assert says.line is None or line_of(row, program) == says.line
        else:
            assert row.cause in {says.cause, Cause.NOT_REACHED}
            assert row.line is None
    assert ("agviz.why(model, lambda" in answer.hint) == (
        not computes and any(row.cause is Cause.NOT_REACHED for row in answer)
    )


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize("program", TOLD_LIVE, ids=by_name)
def test_within_a_trace_the_lines_are_known(program: Program) -> None:
    with agviz.trace(check_forward=True):
        answer, _ = asked_live(program, computes=False)
    expected = stated(program, {row.parameter: row for row in answer})
    missing = [row for row in answer if row.gradient != "unknown"]
    assert missing
    for row in missing:
        says = expected[row.parameter]
        assert row.cause == says.cause
        assert says.line is None or line_of(row, program) == says.line


def test_a_loss_without_a_graph_is_told_where_it_lost_it(tmp_path: Path) -> None:
    (program,) = (each for each in PROGRAMS if each.name == FAILING)
    path = tmp_path / "t.agviz"
    with pytest.raises(RuntimeError, match=program.one("raises")):
        program.record(path, check_forward=True)
    check(program, agviz.load(path).why())
    module = program.load()
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    answer = agviz.why(model, lambda: module.loss(model))
    check(program, answer)
    assert "The loss itself requires no gradient" in str(answer)
    program_without = tmp_path / "u.agviz"
    with pytest.raises(RuntimeError, match=program.one("raises")):
        program.record(program_without)
    with pytest.raises(agviz.AgvizError, match="no backward pass was recorded"):
        agviz.load(program_without).why()


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize("program", RUNNING, ids=by_name)
def test_anomaly_mode_has_nothing_to_say(program: Program) -> None:
    with torch.autograd.set_detect_anomaly(mode=True):  # a warning would be an error here
        program.run()


def test_the_documentation_tells_of_every_cause_and_program() -> None:
    text = (Path(__file__).parent.parent / "docs" / "answers.md").read_text(encoding="utf-8")
    section = text.partition("## Why is this gradient None")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:-1] for line in section.splitlines() if line.startswith("| `")]
    told = {row[0].strip(" `"): row[2].split(", ") for row in rows}
    expected: dict[str, list[str]] = {cause.value: [""] for cause in Cause}
    both = [*PROGRAMS, *programs("faint")]
    for cause in {program.one("cause") or "" for program in both}:
        expected[cause] = sorted(each.name for each in both if each.one("cause") == cause)
    assert {name: sorted(map(str.strip, names)) for name, names in told.items()} == expected
    assert f"{len(PROGRAMS)} programs" in section


def columns(text: str) -> Iterator[int]:
    return (len(line) for line in text.splitlines())


@pytest.mark.parametrize("name", ["detach", "dead_relu", "frozen_layers", "gan_detached"])
def test_the_command_says_it_at_80_columns(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    (program,) = (each for each in PROGRAMS if each.name == name)
    path = str(tmp_path / "t.agviz")
    program.record(Path(path), check_forward=True)
    answer = agviz.load(path).why()
    assert main(["why", path]) == int(name != "frozen_layers")
    shown = capsys.readouterr().out
    assert max(columns(shown)) <= 80
    assert answer.verdict in shown
    flat = " ".join(shown.split())
    faults = len({(row.reason, row.line) for row in answer if not row.is_fine})
    for group in answer.groups():
        assert all(word in flat for word in group.name.split())
        row = group.rows[0]
        heading = group.heading_among(len(answer.trained)) if faults == 1 else group.heading
        assert row.is_fine or heading in flat
        assert row.is_fine or (row.line or "") in flat
        assert row.is_fine or row.remedy in flat
    assert main(["why", path, "--verbose"]) == int(name != "frozen_layers")
    verbose = " ".join(capsys.readouterr().out.split())
    for row in answer:
        assert row.parameter in verbose
    assert main(["why", path, "--json"]) == int(name != "frozen_layers")
    facts = json.loads(capsys.readouterr().out)
    assert [each["parameter"] for each in facts["parameters"]] == [row.parameter for row in answer]
    assert facts["is_fine"] == answer.is_fine
    for row in answer:
        assert main(["why", path, row.parameter]) == int(row.gradient in {"none", "zero"})
        shown = capsys.readouterr().out
        assert max(columns(shown)) <= 80
        flat = " ".join(shown.split())
        assert row.heading(row.parameter) in flat
        assert row.remedy in flat
        if program.cause is not None and row.line is not None:
            assert f"{program.path.name}:{line_of(row, program)} in " in flat
            source = program.path.read_text(encoding="utf-8").splitlines()
            text = source[(line_of(row, program) or 0) - 1]
            assert " ".join(text.split()) in flat


def test_a_parameter_that_is_not_known_is_met_with_those_that_come_near(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (program,) = (each for each in PROGRAMS if each.name == "detach")
    path = str(tmp_path / "t.agviz")
    program.record(Path(path))
    for asked, near in {
        "encoder.0.weigth": "encoder.0.weight",
        "0.weight": "encoder.0.weight",
        "heads": "head.",
    }.items():
        assert main(["why", path, asked]) == 2
        said = capsys.readouterr().err
        assert repr(asked) in said
        assert near in said
    assert main(["why", path, "--graph-task", "999999"]) == 2
    assert main(["why", str(tmp_path / "none.agviz")]) == 2


@pytest.mark.slow
def test_it_is_told_in_a_process_of_its_own(tmp_path: Path) -> None:
    (program,) = (each for each in PROGRAMS if each.name == "detach")
    path = os.pathsep.join(
        str(Path(agviz.__file__).parent.parent / part) for part in (".", "engine")
    )
    environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": "200"}

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "agviz", *arguments]
        return python_process.run(command, cwd=tmp_path, env=environment)

    recorded = call("run", "--check-forward", "-o", "t.agviz", str(program.path))
    assert recorded.returncode == 0, recorded.stderr
    answer = call("why", "t.agviz", "encoder.0.weight")
    assert answer.returncode == 1
    assert "cut by detach()" in answer.stdout
    assert f"{program.path.name}:{program.cause} in forward" in answer.stdout
