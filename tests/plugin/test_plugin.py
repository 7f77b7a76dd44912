"""The pytest plugin in real runs of pytest. Several cases share a run, as each imports torch."""

import re
import xml.etree.ElementTree as ET

import pytest

from agviz.testing.slug import slug
from agviz.traces.reader import Trace
from tests.plugin.suite import FAILED, OUTCOMES, RECORDED, SUITE
from tests.plugin.support import files, folders, run, section

pytest_plugins = ["pytester"]


def test_a_failing_backward_explains_itself(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_suite=SUITE)
    result = run(pytester, "--agviz=retain-on-failure", "--junitxml=junit.xml", "--show-capture=no")
    result.assert_outcomes(**OUTCOMES)
    output = result.stdout.str()
    results = pytester.path / "agviz-results"
    assert folders(results) == FAILED
    assert files(results) == FAILED | {"index.html"}
    for name in FAILED:
        assert files(results / name) == {"trace.agviz", "graph.svg", "summary.txt", "report.html"}
        with Trace.open(results / name / "trace.agviz") as trace:
            assert trace.meta.end_ns is not None

    lines = section(output, "test_nan").splitlines()
    assert "in SqrtBackward0 of Distance, in backward pass" in lines[0]
    assert lines[1].startswith("  test_suite.py:")
    assert lines[2] == "      return squares.mean(-1).sqrt()"
    assert "last nodes on MainThread: " in section(output, "test_nan")
    assert "look: agviz view agviz-results/test_suite.py--test_nan/trace.agviz" in lines
    assert "more: agviz explain agviz-results/test_suite.py--test_nan/trace.agviz" in lines
    assert len(lines) <= 12
    assert "have no gradient (None)" in section(output, "test_none")
    assert "run the test with --agviz-check-forward" in section(output, "test_none")
    raised = section(output, "test_raises")
    assert re.match(r"backward pass \d failed in BoomBackward: ValueError\n", raised)
    assert "  ValueError: boom. It was raised in BoomBackward" in raised
    assert '\n      raise ValueError("boom")\n' in raised
    assert "agviz_engine" not in output
    assert "SqrtBackward0 of Distance" in section(output, "TestCase.test_unittest")
    assert "SqrtBackward0 of Distance" in section(output, "test_with_fixture")
    assert "SqrtBackward0 of Distance" in section(output, "test_marked")
    assert "SqrtBackward0 of Distance" in section(output, "test_ends")
    leaf = section(output, "test_leaf")
    assert leaf.startswith("the leaf of shape [3] (node ")
    assert "has no gradient (None): UntouchedBackward returned None" in " ".join(leaf.split())
    assert "Untouched.apply(x, scale)" in leaf
    wrong = section(output, "test_gradcheck")
    assert wrong.startswith("gradcheck: the gradient of output 0 for input 0 (x) is wrong\n")
    assert "by hand: Triple (test_suite.py:" in " ".join(wrong.split())
    assert "_ test_off _" not in output
    result.stdout.fnmatch_lines(
        [
            "a gradient is not finite: *SqrtBackward0 of Distance, in backward pass *, at test_s*",
            "a gradient at * has norm *, more than max_norm=0.5",
            f"{RECORDED} tests ran backward; {len(FAILED)} traces in agviz-results",
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
        "agviz_report",
    }
    assert (
        properties["test_nan"]["agviz_trace"] == "agviz-results/test_suite.py--test_nan/trace.agviz"
    )
    assert properties["test_passes"] == {}


@pytest.mark.slow
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


VERIFIED = """
import unittest
import pytest, torch
from agviz_engine import Instrument, installed


def good():
    (torch.ones(3, requires_grad=True) * 2).sum().backward()


class Wrong(Instrument):
    def node_started(self, event, live):
        if live.inputs[0] is not None:
            live.replace_input(0, live.inputs[0] + 1)


def differs():
    with installed(Wrong()):
        good()


def test_equal():
    good()


def test_twice():
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    first.sum().backward()


class Boom(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        raise ValueError("boom")


def test_expects_an_error():
    with pytest.raises(ValueError, match="boom"):
        Boom.apply(torch.ones(2, requires_grad=True)).sum().backward()


class TestCase(unittest.TestCase):
    def test_unittest(self):
        good()


def test_differs():
    differs()


@pytest.fixture
def before():
    differs()


def test_differs_before(before):
    pass


@pytest.fixture
def after():
    yield
    differs()


def test_differs_after(after):
    pass


def test_asks_to_be_recorded(agviz):
    good()
    agviz.assert_finite()


def test_no_backward():
    pass
"""


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), pytest.param(("-n", "2"), marks=pytest.mark.slow)])
def test_engines_are_compared(pytester: pytest.Pytester, options: tuple[str, ...]) -> None:
    pytester.makepyfile(test_suite=VERIFIED)
    result = run(pytester, "--agviz-verify", *options)
    result.assert_outcomes(passed=7, failed=2, errors=1)
    output = result.stdout.str()
    assert output.count("agviz's engine differs from torch's in pass 0, backward() at") == 3
    for line in (
        "_ test_differs _",
        "_ test_differs_before _",
        "_ ERROR at teardown of test_differs",
    ):
        assert line in output
    result.stdout.fnmatch_lines(
        [
            "8 backward passes ran on both engines, 3 tests differed; 0 backward passes could not*",
            "1 test asked to be recorded instead",
        ]
    )
    assert folders(pytester.path / "agviz-results") == set()


def test_whatever_ends_a_test_is_recorded(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import unittest

        import pytest
        import torch

        def run():
            (torch.ones(2, requires_grad=True).sum() * float("inf")).backward()

        @pytest.fixture(scope="module")
        def shared():
            yield
            run()

        def test_uses(shared): pass

        def test_adds_a_finalizer(request):
            request.addfinalizer(run)

        @pytest.fixture
        def inner():
            yield 1
            run()

        @pytest.fixture
        def outer(inner): return inner

        def test_uses_what_uses(outer): pass

        @pytest.fixture
        def plain(): return 1

        @pytest.mark.parametrize("number", range(2))
        def test_has_nothing(plain, number): pass

        class TestMethod:
            def teardown_method(self): run()
            def test_inside(self): pass

        class TestClass(unittest.TestCase):
            @classmethod
            def tearDownClass(cls): run()
            def test_first(self): pass
            def test_second(self): pass

        def test_is_last_of_module(): pass
        """
    )
    run(pytester, "--agviz=on").assert_outcomes(passed=9)
    name = "test_whatever_ends_a_test_is_recorded.py--"
    recorded = ["test_adds_a_finalizer", "TestMethod--test_inside", "TestClass--test_second"]
    recorded += ["test_uses_what_uses", "test_is_last_of_module"]
    assert folders(pytester.path / "agviz-results") == {
        f"{name}{test}-teardown" for test in recorded
    }


def test_a_run_without_the_plugin_has_nothing_of_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_modules():
            assert not [name for name in sys.modules if name.startswith("agviz")]
        """
    )
    run(pytester, "-p", "no:agviz").assert_outcomes(passed=1)
    run(pytester, "-p", "no:agviz", "--agviz=on").stderr.fnmatch_lines(
        ["*error: unrecognized arguments: --agviz=on"]
    )


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
    result = run(pytester, fresh=True)
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*= agviz =*")


@pytest.mark.slow
def test_a_run_that_recorded_nothing_says_so(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import sys\ndef test_nothing(): assert 'torch' not in sys.modules")
    said = "asked to record (--agviz=on), but none of 1 test ran a backward pass: nothing was*"
    run(pytester, "--agviz=on", fresh=True).stdout.fnmatch_lines([said])
    run(pytester, "--agviz=on", "--hide-agviz-summary").stdout.no_fnmatch_line(said)
    assert not (pytester.path / "agviz-results").exists()


def test_an_output_folder_that_cannot_be_made_is_told(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_suite=SUITE)
    (pytester.path / "agviz-results").touch()
    result = run(pytester, "--agviz=retain-on-failure", "test_suite.py::test_nan")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["1 test ran backward; 0 traces in agviz-results", "! *can't be made: *(1 test)"]
    )


@pytest.mark.slow
def test_the_marker_goes_before_options_and_these_before_environment_and_ini(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(
        """
        import pytest
        from agviz.testing.settings import read_choice, read_settings

        @pytest.mark.agviz("on", fail_on="nan", check_forward=False)
        def test_choice(request):
            settings = read_settings(request.config)
            choice = read_choice(request.node, settings)
            assert (choice.mode, choice.fail_on) == ("on", {"nan"})
            assert not choice.check_forward
            print("chosen:", settings.mode, settings.values, settings.output.name)
            print("forward:", settings.check_forward)
        """
    )
    pytester.makeini(
        "[pytest]\nagviz = on\nagviz_output = from-ini\nagviz_values = full"
        "\nagviz_check_forward = true"
    )
    run(pytester, "-s").stdout.fnmatch_lines(["*chosen: on full from-ini", "forward: True"])
    monkeypatch.setenv("PYTEST_AGVIZ", "retain-on-failure")
    monkeypatch.setenv("PYTEST_AGVIZ_VALUES", "health")
    monkeypatch.setenv("AGVIZ_CHECK_FORWARD", "1")
    monkeypatch.setenv("PYTEST_AGVIZ_CHECK_FORWARD", "off")
    run(pytester, "-s").stdout.fnmatch_lines(
        ["*chosen: retain-on-failure health from-ini", "forward: False"]
    )
    result = run(pytester, "-s", "--agviz=off", "--agviz-output=given", "--agviz-check-forward")
    result.stdout.fnmatch_lines(["*chosen: off health given", "forward: True"])
    monkeypatch.setenv("PYTEST_AGVIZ", "sometimes")
    run(pytester).stderr.fnmatch_lines(["ERROR: agviz='sometimes' is none of off, on, retain-*"])


def test_a_marker_that_makes_no_sense_is_told(pytester: pytest.Pytester) -> None:
    complaints = {
        "fail_on=['nam']": "fail_on='nam' is none of nan, inf",
        "fail=1": "the marker agviz has no argument 'fail'",
        "check_forward='no'": "check_forward='no' is neither True nor False",
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
