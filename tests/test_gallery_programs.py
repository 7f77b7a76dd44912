"""The public gallery: each program shows, without any tool, the symptom that the index states."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gallery.__main__ import lengths
from gallery.index import HERE, KINDS, Program, load
from gallery.judge import Answer, judge, own_words, word_count
from gallery.running import Ended, alone, shows
from gallery.tools import TOOLS

PROGRAMS = load()
SAMPLE = ("version", "non-finite")
"""One whose sign lies in its traceback, and one that prints it."""


def _ids(program: Program) -> str:
    return f"{program.kind}-{program.name}"


@functools.cache
def _ended(program: Program) -> Ended:
    return alone(program)


def _program(name: str) -> Program:
    return next(program for program in PROGRAMS if program.name == name)


@pytest.mark.slow_but_one_in(2)
@pytest.mark.parametrize(
    "program",
    [next(program for program in PROGRAMS if program.kind == kind) for kind in SAMPLE],
    ids=_ids,
)
def test_sample_shows_its_symptom(program: Program) -> None:
    ended = _ended(program)
    assert shows(program, ended), ended


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=_ids)
def test_program_shows_its_symptom(program: Program) -> None:
    ended = alone(program)
    assert shows(program, ended), ended


@pytest.mark.slow
def test_another_symptom_is_not_shown() -> None:
    program = _program("siamese_contrastive")
    ended = _ended(program)
    assert not shows(program._replace(sign=re.compile("grad is finite: True")), ended)
    assert not shows(program._replace(manner="raises"), ended)
    assert not shows(program._replace(manner="hangs"), ended)


def test_index_holds_every_file_and_enough_of_them() -> None:
    files = {path.relative_to(HERE / "programs") for path in HERE.rglob("programs/*/*.py")}
    assert files == {Path(program.kind, f"{program.name}.py") for program in PROGRAMS}
    assert sum(not program.is_healthy for program in PROGRAMS) >= 200
    assert sum(program.is_healthy for program in PROGRAMS) >= 60


def test_every_third_program_of_a_kind_is_held_out() -> None:
    for kind in KINDS:
        sets = [program.set for program in PROGRAMS if program.kind == kind]
        assert sets == ["held-out" if n % 3 == 2 else "open" for n in range(len(sets))]


def test_cause_is_marked_in_faulty_programs_only() -> None:
    for program in PROGRAMS:
        assert bool(program.lines()) != program.is_healthy, program.name
        assert "CAUSE" not in program.text(), program.name


def test_marked_statement_of_several_lines_counts_as_a_whole() -> None:
    program = _program("relu_inplace_after_tanh")
    rows = program.text().splitlines()
    assert "nn.ReLU(inplace=True)," in {rows[n - 1].strip() for n in program.lines()}
    assert "model = nn.Sequential(" in {rows[n - 1].strip() for n in program.lines()}


def test_programs_are_scripts_that_do_not_know_agviz() -> None:
    for program in PROGRAMS:
        for part in ast.walk(ast.parse(program.text())):
            if isinstance(part, ast.Import):
                assert not any("agviz" in name.name for name in part.names), program.name
            elif isinstance(part, ast.ImportFrom):
                assert "agviz" not in (part.module or ""), program.name


def _answer(program: Program, words: str, line: int) -> Answer:
    return Answer(f"✗ {words}\n  train.py:{line} in forward", (line,))


def test_judge() -> None:
    program = _program("siamese_contrastive")
    line = program.lines()[0]
    assert judge(program, _answer(program, "sqrt at zero", line)) == "named"
    assert judge(program, _answer(program, "something else", line)) == "partly"
    assert judge(program, Answer("sqrt at zero")) == "partly"
    assert judge(program, _answer(program, "sqrt at zero", line + 1)) == "misleading"
    assert judge(program, _answer(program, "sqrt or log of zero", line)) == "misleading"
    assert judge(program, Answer("nothing to see")) == "silent"
    assert judge(program, Answer("")) == "silent"
    assert judge(program, Answer("", cant="no way")) == "can't"


def test_judge_of_a_healthy_program() -> None:
    program = _program("masked_loss_with_where")
    assert judge(program, Answer("")) == "silent"
    assert judge(program, Answer("✗ log of zero")) == "false alarm"


def test_quoting_the_program_says_nothing() -> None:
    program = _program("siamese_contrastive")
    traceback = (
        "Traceback (most recent call last):\n"
        f'  File "/tmp/x/train.py", line {program.lines()[0]}, in contrastive\n'
        "    distance = (a - b).pow(2).sum(dim=1).sqrt()\n"
        "               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
        "RuntimeError: it is nan"
    )
    assert "sqrt" not in own_words(program, traceback)
    assert "it is nan" in own_words(program, traceback)
    assert judge(program, Answer(traceback)) == "partly"  # the line, no words


def test_words_are_those_that_are_read_aloud() -> None:
    assert word_count("✗ 2 of 4 parameters: h = x.relu() - 1\n────\n  train.py:3 in forward") == 10
    assert word_count("") == 0
    assert Answer("one two three", parts=("one", "two three")).words == 2
    assert Answer("one two three").words == 3


def test_answers_that_are_too_long_are_told() -> None:
    rows = [{"name": "short", "words": 3}, {"name": "long", "words": 121}]
    assert lengths(rows) == "The longest answer has 121 words (long); above 120: long (121)."
    assert lengths(rows[:1]).endswith("(short); above 120: none.")


@pytest.mark.slow
def test_tools_are_asked_alike() -> None:
    program = _program("siamese_contrastive")
    line = program.lines()[0]
    agviz = TOOLS["agviz"](program)
    assert agviz.claimed == (line,)
    assert agviz.text.startswith("✗")
    anomaly = TOOLS["anomaly"](program)
    assert "returned nan values" in anomaly.text
    assert len(anomaly.claimed) == 1
    assert TOOLS["torchlens"](_program("zero_grad_forgotten")).cant


def test_command_line_refuses_what_is_not_there() -> None:
    asked = [sys.executable, "-m", "gallery", "--name", "no_such_program"]
    ended = subprocess.run(asked, cwd=HERE.parent, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "no program is of this set, kind and name" in ended.stderr
