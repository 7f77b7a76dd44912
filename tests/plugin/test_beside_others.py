"""The pytest plugin beside other plugins, and where processes end."""

import base64
import re

import pytest

from agviz.traces.reader import Trace
from tests.plugin.suite import FAILED, OUTCOMES, RECORDED, SUITE
from tests.plugin.support import files, folders, run, section

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.slow

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
        return g, None


def test_dies():
    Dies.apply(torch.ones(2, requires_grad=True) * 2, 4).sum().backward()


def test_dies_early():
    Dies.apply(torch.ones(2, requires_grad=True) * 2, 0).sum().backward()
"""
HANGS = """
import time, torch


class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        time.sleep(10_000)


def test_hangs():
    Slow.apply(torch.ones(2, requires_grad=True) * 2).sum().backward()
"""


def test_workers_leave_the_same_and_one_that_dies_spoils_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_suite=SUITE, test_dies=DIES)
    result = run(pytester, "--agviz=retain-on-failure", "-n", "2")
    result.assert_outcomes(**OUTCOMES | {"failed": OUTCOMES["failed"] + 2})
    results = pytester.path / "agviz-results"
    assert folders(results) == FAILED | {"test_dies.py--test_dies"}
    for name in folders(results):
        assert files(results / name) >= {"trace.agviz", "graph.svg", "summary.txt", "report.html"}
        with Trace.open(results / name / "trace.agviz") as trace:
            assert trace.graph_tasks
    output = result.stdout.str()
    assert "SqrtBackward0 of Distance" in section(output, "test_nan")
    assert "✗ test_dies.py::test_dies: backward pass" in output
    assert "with --agviz=on it is at once" in output
    result.stdout.fnmatch_lines(
        [f"{RECORDED + 1} tests ran backward; {len(FAILED) + 1} traces in agviz-results"]
    )


def test_a_timeout_names_the_node_and_each_rerun_keeps_its_files(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_hangs=HANGS,
        test_flaky="""
        import pytest, torch

        @pytest.mark.flaky(reruns=1)
        def test_flaky(request):
            x = torch.zeros(2, requires_grad=True)
            (x * (2 if request.node.execution_count > 1 else torch.nan)).sum().backward()
            assert x.grad.isfinite().all()

        @pytest.mark.flaky(reruns=2)
        def test_broken():
            x = torch.zeros(2, requires_grad=True)
            (x * torch.nan).sum().backward()
            assert x.grad.isfinite().all()
        """,
    )
    result = run(pytester, "--agviz=retain-on-failure", "--timeout=3", "--timeout-method=signal")
    result.assert_outcomes(passed=1, failed=2)
    said = section(result.stdout.str(), "test_hangs")
    assert re.match(r"backward pass \d failed in SlowBackward: Failed\n  test_hangs\.py:11 ", said)
    assert "  Timeout (>3.0s)" in said
    assert folders(pytester.path / "agviz-results") == {
        "test_hangs.py--test_hangs",
        "test_flaky.py--test_flaky",
        "test_flaky.py--test_broken",
        "test_flaky.py--test_broken-rerun1",
        "test_flaky.py--test_broken-rerun2",
    }
    result.stdout.fnmatch_lines(
        [
            "3 tests ran backward; 5 traces in agviz-results",
            "✗ test_flaky.py::test_broken (rerun 2): *",
        ]
    )


def test_a_timeout_that_ends_the_process_is_explained_before(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_hangs=HANGS)
    options = "--agviz=retain-on-failure", "--timeout=2", "--timeout-method=thread"
    alone = run(pytester, *options)
    alone.stdout.fnmatch_lines(
        [
            "*- agviz -*",
            "backward pass 0 stood still when the recording ended",
            "  test_hangs.py:* in backward",
            "      time.sleep(10_000)",
            "*SlowBackward*",
            "*+ Timeout +*",
        ]
    )
    with Trace.open(pytester.path / "agviz-results/test_hangs.py--test_hangs/trace.agviz") as trace:
        assert trace.meta.end_ns is not None
    worker = run(pytester, *options, "-n", "1")
    worker.assert_outcomes(failed=1)
    said = section(worker.stdout.str(), "test_hangs.py")
    assert said.startswith("backward pass 0 stood still when the recording ended")


def test_the_trace_of_a_crash_stays_where_the_test_passes_in_another_worker(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        test_dies=DIES.replace("os._exit(3)", "once() or os._exit(3)").replace(
            "def test_dies_early",
            """def once():
    if os.path.exists("died"):
        return True
    open("died", "w").close()


def not_a_test""",
        )
    )
    result = run(pytester, "--agviz=retain-on-failure", "-n", "1", "--reruns=1")
    result.stdout.fnmatch_lines(
        [
            "1 test ran backward; 1 trace in agviz-results",
            "✗ test_dies.py::test_dies: backward pass 0 *",
            "*1 passed, 1 rerun*",
        ]
    )


def test_an_interrupted_test_is_in_the_summary(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_hangs=HANGS.replace("time.sleep(10_000)", "raise KeyboardInterrupt"))
    result = run(pytester, "--agviz=retain-on-failure")
    result.stdout.fnmatch_lines(
        [
            "1 test ran backward; 1 trace in agviz-results",
            "✗ test_hangs.py::test_hangs: backward pass 0 failed in SlowBackward: Keyboard*",
            "*KeyboardInterrupt*",
        ]
    )


def test_pytest_html_shows_the_graph(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_suite=SUITE)
    for options in (), ("-n", "1"):
        tests = "test_suite.py::test_nan", "test_suite.py::test_passes"
        run(
            pytester,
            "--agviz=retain-on-failure",
            "--html=report.html",
            "--self-contained-html",
            *options,
            *tests,
        )
        report = (pytester.path / "report.html").read_text(encoding="utf-8")
        pictures = re.findall(r"data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)", report)
        graph = pytester.path / "agviz-results/test_suite.py--test_nan/graph.svg"
        assert {base64.b64decode(picture) for picture in pictures} == {graph.read_bytes()}


def test_processes_that_a_test_starts_run_as_before(
    pytester: pytest.Pytester, enabled_python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENABLED_PYTHON", enabled_python)
    pytester.makepyfile(
        test_processes="""
        import multiprocessing, os, subprocess, sys
        import pytest, torch

        BACKWARD = "import torch; torch.ones(2, requires_grad=True).sum().backward()"

        def good():
            torch.ones(2, requires_grad=True).sum().backward()

        def test_subprocess():
            good()
            done = subprocess.run([sys.executable, "-c", BACKWARD], capture_output=True)
            assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")

        def test_recorded_subprocess(tmp_path):
            environment = os.environ | {"AGVIZ": "1", "AGVIZ_OUTPUT": str(tmp_path / "t.agviz")}
            enabled = os.environ["ENABLED_PYTHON"]
            subprocess.run([enabled, "-c", BACKWARD], env=environment, check=True)
            assert (tmp_path / "t.agviz").exists()

        @pytest.mark.parametrize("way", ["fork", "spawn"])
        def test_multiprocessing(way):
            good()
            process = multiprocessing.get_context(way).Process(target=good)
            process.start()
            process.join()
            assert process.exitcode == 0
        """
    )
    run(pytester, "--agviz=retain-on-failure").assert_outcomes(passed=4)
    assert folders(pytester.path / "agviz-results") == set()
