"""The pytest plugin in real runs of pytest. Several cases share a run, as each imports torch."""

import os
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from agviz.testing.slug import slug
from agviz.traces.reader import Trace

pytest_plugins = ["pytester"]

SUITE = """
import unittest
import pytest, torch
from torch import nn


class Distance(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(4, 3)

    def forward(self, x):
        squares = (self.embed(x) - self.embed(x)) ** 2
        return squares.mean(-1).sqrt()


def wrong():
    model = Distance()
    model(torch.ones(2, 4)).sum().backward()
    return model


def good():
    model = nn.Linear(4, 1)
    model(torch.ones(2, 4)).sum().backward()
    return model


class Boom(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        raise ValueError("boom")


def test_nan():
    assert wrong().embed.weight.grad.isfinite().all()


def test_passes():
    good()


def test_expects_an_error():
    with pytest.raises(ValueError, match="boom"):
        Boom.apply(torch.ones(2, requires_grad=True)).sum().backward()


def test_none():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model(torch.ones(1, 2))
    model[1](model[0](torch.ones(1, 2)).detach()).sum().backward()
    torch.testing.assert_close(model[0].weight.grad, torch.ones(2, 2))


def test_raises():
    Boom.apply(torch.ones(2, requires_grad=True) * 2).sum().backward()


class TestCase(unittest.TestCase):
    def test_unittest(self):
        self.assertTrue(wrong().embed.weight.grad.isfinite().all())


@pytest.fixture(scope="module")
def broken():
    model = wrong()
    assert model.embed.weight.grad.isfinite().all()


def test_with_fixture(broken):
    raise AssertionError("is not reached")


@pytest.mark.agviz(fail_on=["nan"])
def test_marked():
    wrong()


@pytest.mark.agviz(fail_on=["inf"], max_norm=0.5)
def test_too_large():
    good()


@pytest.mark.agviz(fail_on=["nan", "inf"], max_norm=1e6)
def test_marked_and_good():
    good()


@pytest.mark.xfail(strict=True)
def test_expected_to_fail():
    assert wrong().embed.weight.grad.isfinite().all()


def test_handle(agviz, tmp_path):
    from agviz.errors import AgvizError

    with pytest.raises(AgvizError, match="has run no backward pass"):
        agviz.assert_finite()
    model = good()
    agviz.assert_finite()
    agviz.assert_reaches(model)
    agviz.assert_order(["SumBackward0", ..., "bias", ...])
    ran = [node.short_name for node in sorted(agviz.trace.nodes, key=lambda node: node.order)]
    agviz.assert_order(ran)
    agviz.assert_order([ran[0], set(ran[1:3]), *ran[3:]])
    with pytest.raises(AssertionError, match="ran in another order: SumBackward0"):
        agviz.assert_order(ran[1:])
    with pytest.raises(AssertionError, match="ran in another order"):
        agviz.assert_order([ran[0], {ran[1], "NoSuchNode"}, ...])
    agviz.assert_same_as(agviz.trace)
    wrong()
    with pytest.raises(AssertionError, match="SqrtBackward0 of Distance, at test_suite.py:"):
        agviz.assert_finite()
    unused = nn.Linear(1, 1)
    with pytest.raises(AssertionError, match="did not reach 2 parameters:\\nweight"):
        agviz.assert_reaches(nn.ModuleDict({"unused": unused})["unused"])


def test_says_nothing_of_gradients():
    assert 1 == 2
"""

FAILED = {
    "test_suite.py--test_nan",
    "test_suite.py--test_none",
    "test_suite.py--test_raises",
    "test_suite.py--TestCase--test_unittest",
    "test_suite.py--test_with_fixture",
    "test_suite.py--test_marked",
    "test_suite.py--test_too_large",
}
DIES = """
import os, time, torch


class Dies(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, seconds):
        ctx.seconds = seconds
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        time.sleep(ctx.seconds)
        os._exit(3)


def test_dies():
    Dies.apply(torch.ones(2, requires_grad=True) * 2, 1.5).sum().backward()


def test_dies_early():
    Dies.apply(torch.ones(2, requires_grad=True) * 2, 0).sum().backward()
"""


@pytest.fixture(autouse=True)
def alone(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the one who runs this reaches the runs within."""
    for name in [name for name in os.environ if "AGVIZ" in name]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:cacheprovider")


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess("--tb=short", *arguments)


def folders(where: Path) -> set[str]:
    return {path.name for path in where.iterdir()} if where.is_dir() else set()


def section(output: str, test: str) -> str:
    """What agviz says below the traceback of a test."""
    found = re.search(
        rf"_ (?:ERROR at setup of )?{test} _.*?\n-+ agviz -+\n(.*?)\n[_=]{{3}}", output, re.DOTALL
    )
    assert found is not None, f"no section for {test} in\n{output}"
    return found[1]


def test_a_failing_backward_explains_itself(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_suite=SUITE)
    result = run(pytester, "--agviz=retain-on-failure", "--junitxml=junit.xml", "--show-capture=no")
    result.assert_outcomes(passed=4, failed=7, errors=1, xfailed=1)
    output = result.stdout.str()
    results = pytester.path / "agviz-results"
    assert folders(results) == FAILED
    for name in FAILED:
        assert folders(results / name) == {"trace.agviz", "graph.svg", "graph.dot", "summary.txt"}
        with Trace.open(results / name / "trace.agviz") as trace:
            assert trace.meta.end_ns is not None

    lines = section(output, "test_nan").splitlines()
    assert lines[0].endswith("in SqrtBackward0 of Distance")
    assert lines[1].startswith("  test_suite.py:")
    assert lines[2] == "      return squares.mean(-1).sqrt()"
    assert "last nodes on MainThread: " in section(output, "test_nan")
    assert "look: agviz view agviz-results/test_suite.py--test_nan/trace.agviz" in lines
    assert "more: agviz explain agviz-results/test_suite.py--test_nan/trace.agviz" in lines
    assert len(lines) <= 12
    assert "have no gradient (None)" in section(output, "test_none")
    assert "AGVIZ_CHECK_FORWARD=1" in section(output, "test_none")
    raised = section(output, "test_raises")
    assert raised.startswith("BoomBackward failed in backward")
    assert "ValueError: boom" in raised
    assert "Boom.apply(torch.ones(2, requires_grad=True) * 2)" in raised
    assert "agviz_engine" not in output
    assert "SqrtBackward0 of Distance" in section(output, "TestCase.test_unittest")
    assert "SqrtBackward0 of Distance" in section(output, "test_with_fixture")
    assert "SqrtBackward0 of Distance" in section(output, "test_marked")
    result.stdout.fnmatch_lines(
        [
            "a gradient is not finite: *SqrtBackward0 of Distance, at test_suite.py:*",
            "a gradient at * has norm *, more than max_norm=0.5",
            "12 tests ran backward; 7 traces in agviz-results",
        ]
    )
    summary = (results / "test_suite.py--test_nan" / "summary.txt").read_text()
    assert "SqrtBackward0 of Distance" in summary
    assert "Graph tasks" in summary

    cases = ET.parse(pytester.path / "junit.xml").iter("testcase")  # noqa: S314 - pytest's own
    properties = {
        str(case.get("name")): {
            each.get("name"): each.get("value") for each in case.iter("property")
        }
        for case in cases
    }
    assert set(properties["test_nan"]) == {
        "agviz_verdict",
        "agviz_trace",
        "agviz_graph",
        "agviz_summary",
    }
    assert (
        properties["test_nan"]["agviz_trace"] == "agviz-results/test_suite.py--test_nan/trace.agviz"
    )
    assert properties["test_passes"] == {}


@pytest.mark.slow
def test_workers_leave_the_same_and_one_that_dies_spoils_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_suite=SUITE, test_dies=DIES)
    result = run(pytester, "--agviz=retain-on-failure", "-n", "2")
    result.assert_outcomes(passed=4, failed=9, errors=1, xfailed=1)
    results = pytester.path / "agviz-results"
    assert folders(results) == FAILED | {"test_dies.py--test_dies"}
    for name in folders(results):
        assert folders(results / name) >= {"trace.agviz", "graph.svg", "summary.txt"}
        with Trace.open(results / name / "trace.agviz") as trace:
            assert trace.graph_tasks
    output = result.stdout.str()
    assert "SqrtBackward0 of Distance" in section(output, "test_nan")
    assert "✗ test_dies.py::test_dies: backward pass" in output
    assert "with --agviz=on it is at once" in output
    result.stdout.fnmatch_lines(["13 tests ran backward; 8 traces in agviz-results"])


@pytest.mark.slow
def test_a_timeout_names_the_node_and_each_rerun_keeps_its_files(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_suite="""
        import time, pytest, torch

        class Slow(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.clone()

            @staticmethod
            def backward(ctx, g):
                time.sleep(100)

        def test_hangs():
            Slow.apply(torch.ones(2, requires_grad=True) * 2).sum().backward()

        @pytest.mark.flaky(reruns=1)
        def test_flaky(request):
            x = torch.zeros(2, requires_grad=True)
            (x * (2 if request.node.execution_count > 1 else torch.nan)).sum().backward()
            assert x.grad.isfinite().all()
        """
    )
    result = run(pytester, "--agviz=retain-on-failure", "--timeout=3", "--timeout-method=signal")
    result.assert_outcomes(passed=1, failed=1)
    said = section(result.stdout.str(), "test_hangs")
    assert said.startswith("SlowBackward failed in backward\n  test_suite.py:")
    assert "Failed: Timeout" in said
    assert folders(pytester.path / "agviz-results") == {
        "test_suite.py--test_hangs",
        "test_suite.py--test_flaky",
    }


def test_gradients_are_compared_with_an_earlier_run(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_suite="""
        import os, pytest, torch

        def test_scaled():
            x = torch.ones(3, requires_grad=True)
            ((x * float(os.environ["SCALE"])) ** 2).sum().backward()

        def test_same():
            (torch.ones(3, requires_grad=True) * 2).sum().backward()

        @pytest.mark.skipif(os.environ["SCALE"] == "2", reason="is new")
        def test_new():
            (torch.ones(3, requires_grad=True) * 2).sum().backward()

        def test_gone():
            if os.environ["SCALE"] == "2":
                (torch.ones(3, requires_grad=True) * 2).sum().backward()
        """
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCALE", "2")
        run(pytester, "--agviz=on", "--agviz-output=base").assert_outcomes(passed=3, skipped=1)
        assert len(folders(pytester.path / "base")) == 3
        patch.setenv("SCALE", "3")
        result = run(pytester, "--agviz-compare=base")
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(
        [
            "gradients are not those of base/*--test_scaled/trace.agviz. *PowBackward0*",
            "no backward pass ran; base/test_suite.py--test_gone/trace.agviz has some",
            "2 compared with base; 1 not in it",
        ]
    )
    assert folders(pytester.path / "agviz-results") == {"test_suite.py--test_scaled"}
    run(pytester, "--agviz-compare=agviz-results").stderr.fnmatch_lines(
        ["*is where this run writes*"]
    )


def test_engines_are_compared(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_suite="""
        import torch
        from agviz_engine import Instrument, installed

        def test_equal():
            (torch.ones(3, requires_grad=True) * 2).sum().backward()

        class Wrong(Instrument):
            def node_started(self, event, live):
                if live.inputs[0] is not None:
                    live.replace_input(0, live.inputs[0] + 1)

        def test_differs():
            with installed(Wrong()):
                (torch.ones(3, requires_grad=True) * 2).sum().backward()
        """
    )
    result = run(pytester, "--agviz-verify")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "agviz's engine differs from torch's in pass 0, backward() at *test_suite.py:*",
            "2 backward passes ran on both engines, 1 test differed; 0 backward passes could not*",
        ]
    )
    assert folders(pytester.path / "agviz-results") == set()


def test_off_imports_neither_torch_nor_what_records(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_modules():
            loaded = [name for name in sys.modules if name.partition(".")[0] == "agviz"]
            assert "torch" not in sys.modules
            assert sorted(loaded) == [
                "agviz", "agviz.pytest_plugin", "agviz.testing", "agviz.testing.settings"
            ]
        """
    )
    result = run(pytester)
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*= agviz =*")


def test_a_run_that_recorded_nothing_says_so(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import sys\ndef test_nothing(): assert 'torch' not in sys.modules")
    said = "asked to record (--agviz=on), but none of 1 test ran a backward pass: nothing was*"
    run(pytester, "--agviz=on").stdout.fnmatch_lines([said])
    run(pytester, "--agviz=on", "--hide-agviz-summary").stdout.no_fnmatch_line(said)
    assert not (pytester.path / "agviz-results").exists()


def test_the_marker_goes_before_options_and_these_before_environment_and_ini(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(
        """
        import pytest
        from agviz.testing.settings import read_choice, read_settings

        @pytest.mark.agviz("on", fail_on="nan")
        def test_choice(request):
            settings = read_settings(request.config)
            choice = read_choice(request.node, settings)
            assert (choice.mode, choice.fail_on) == ("on", {"nan"})
            print("chosen:", settings.mode, settings.values, settings.output.name)
        """
    )
    pytester.makeini("[pytest]\nagviz = on\nagviz_output = from-ini\nagviz_values = full")
    run(pytester, "-s").stdout.fnmatch_lines(["*chosen: on full from-ini"])
    monkeypatch.setenv("PYTEST_AGVIZ", "retain-on-failure")
    monkeypatch.setenv("PYTEST_AGVIZ_VALUES", "health")
    run(pytester, "-s").stdout.fnmatch_lines(["*chosen: retain-on-failure health from-ini"])
    result = run(pytester, "-s", "--agviz=off", "--agviz-output=given")
    result.stdout.fnmatch_lines(["*chosen: off health given"])
    monkeypatch.setenv("PYTEST_AGVIZ", "sometimes")
    run(pytester).stderr.fnmatch_lines(["ERROR: agviz='sometimes' is none of off, on, retain-*"])


def test_a_marker_that_makes_no_sense_is_told(pytester: pytest.Pytester) -> None:
    complaints = {
        "fail_on=['nam']": "fail_on='nam' is none of nan, inf",
        "fail=1": "the marker agviz has no argument 'fail'",
        "max_norm='1'": "max_norm='1' is no number from 0 on",
        "fail_on='nan', values='none'": "fail_on and max_norm need the values of gradients",
        "'on', 'off'": "the marker agviz takes one argument without a name: mode",
    }
    tests = [
        f"@pytest.mark.agviz({marker})\ndef test_{number}(): ..."
        for number, marker in enumerate(complaints)
    ]
    pytester.makepyfile("\n".join(["import pytest", *tests]))
    result = run(pytester)
    result.assert_outcomes(errors=len(complaints))
    result.stdout.fnmatch_lines([f"*UsageError: {each}" for each in complaints.values()])


def test_names_of_folders_are_short_and_apart() -> None:
    assert slug("tests/test_a.py::TestB::test_c") == "tests-test_a.py--TestB--test_c"
    assert slug("test_a.py::test_c", 2) == "test_a.py--test_c-rerun2"
    ids = ["t.py::a[1]", "t.py::a[-1]", "t.py::a-1", "t.py::a[ä]", "t.py::a[../../b]", "t/p.py::a"]
    ids += [f"t.py::a[{'x' * 300}{end}]" for end in "yz"]
    names = [slug(each) for each in ids]
    assert len(set(names)) == len(ids)
    for name in names:
        assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name)
        assert len(name) <= 255
