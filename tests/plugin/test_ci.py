"""What failing tests leave for those who were not there: pages, annotations, summaries."""

import re
import xml.etree.ElementTree as ET

import pytest

from agviz.traces.reader import Trace
from tests.browser import needs_browser, opened
from tests.plugin.failing_repository import REPOSITORY, line_of
from tests.plugin.support import causes, files, folders, read_page, run, section

pytest_plugins = ["pytester"]

EXPECTED = {
    "test_nan": ("✗ log of zero", line_of("p.log()"), 17),
    "test_none": ("✗ encoder.* have no gradient (None)", line_of(".detach()"), 17),
    "test_version": ("✗ modified by an inplace operation", line_of("y += 1"), 17),
    "test_twice": ("✗ backward through the graph a second time", line_of("    loss.back"), 17),
    "test_zero": ("✗ inner.* have a gradient of zeros", line_of("torch.relu"), 16),
    "test_plain": ("no anomaly found in the backward passes", "", 16),
}
"""Of each file of tests: how the heading begins, the line, and how many fail for it."""


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_a_hundred_failures_of_six_causes_have_six_headings(
    pytester: pytest.Pytester, options: tuple[str, ...]
) -> None:
    pytester.makepyfile(**REPOSITORY)
    result = run(pytester, "--agviz=retain-on-failure", "--agviz-check-forward", *options)
    result.assert_outcomes(failed=100)
    results = pytester.path / "agviz-results"
    found = causes(results / "index.html")
    assert len(found) == len(EXPECTED)
    for file, (heading, place, count) in EXPECTED.items():
        (cause,) = [each for each in found if each.tests[0].startswith(f"{file}.py::")]
        assert cause.title.startswith(heading)
        assert cause.title.endswith(f" · {count} tests")
        assert cause.place.partition(" ")[0] == place
        assert len(cause.tests) == len(set(cause.tests)) == len(cause.links) == count
        assert {each.partition("::")[0] for each in cause.tests} == {f"{file}.py"}
    assert found[-1].title.startswith("no anomaly")
    assert result.stdout.str().count("the same cause as in ") == 84 - 5
    reports = sorted(results.glob("*/report.html"))
    assert len(reports) == 100
    assert max(path.stat().st_size for path in reports) < 300_000
    result.stdout.fnmatch_lines(["index: agviz-results/index.html"])


FEW = """
import pytest, torch
from torch import nn
from library import entropy, stretched


@pytest.fixture(scope="module")
def trained():
    x = torch.zeros(3, requires_grad=True)
    entropy(x).backward()
    return x


@pytest.fixture(scope="module")
def other():
    torch.ones(1, requires_grad=True).sum().backward()


def test_sets_up(trained, other):
    assert trained.shape == (3,)


def test_uses(trained, other):
    assert trained.grad.isfinite().all()


def test_uses_and_runs(trained, capsys):
    y = torch.ones(2, requires_grad=True)
    (y * 2).sum().backward()
    assert trained.grad.sum() < y.grad.sum()


def test_does_not_use():
    y = torch.ones(2, requires_grad=True)
    (y * 2).sum().backward()
    assert y.grad.sum() == 5


@pytest.mark.parametrize("n", [1, 2], ids=["50%,a:b", "<b>&"])
def test_stretched(n):
    stretched(torch.ones(n, requires_grad=True)).sum().backward()


def test_without_backward():
    assert not "tensors"


@pytest.mark.xfail(strict=True)
def test_expected():
    stretched(torch.ones(2, requires_grad=True)).sum().backward()
"""


def test_a_run_leaves_pages_annotations_and_a_summary(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(library=REPOSITORY["library"], test_few=FEW)
    summary = pytester.path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    result = run(pytester, "--agviz=retain-on-failure")
    outcomes = {"passed": 1, "failed": 6, "xfailed": 1}
    result.assert_outcomes(**outcomes)
    output = result.stdout.str()
    results = pytester.path / "agviz-results"

    nan, version, plain, without = causes(results / "index.html")
    assert nan.title == "✗ log of zero, in log · 2 tests"
    assert nan.place == f"{line_of('p.log()')} in entropy"
    assert nan.tests == ["test_few.py::test_uses", "test_few.py::test_uses_and_runs"]
    assert set(nan.links) == {"test_few.py--test_sets_up/report.html"}
    assert version.place == f"{line_of('x.exp()')} in stretched"
    assert version.tests == [
        "test_few.py::test_stretched[50%,a:b]",
        "test_few.py::test_stretched[<b>&]",
    ]
    assert plain.tests == ["test_few.py::test_does_not_use"]
    assert without.title == "no backward pass ran: nothing was recorded · 1 test"
    assert without.tests == ["test_few.py::test_without_backward"]

    assert section(output, "test_uses").startswith(
        "fixtures trained, other ran backward when test_few.py::test_sets_up was set up; this test"
        " ran no backward pass itself\n"
        "log of zero, in log, in backward pass 0 (the 1st of 2)\n"
    )
    second = section(output, "test_uses_and_runs").splitlines()
    assert second[0].startswith("log of zero, in log")
    assert second[2] == "the same cause as in test_few.py::test_uses, where the whole answer is"
    assert "fixture" not in section(output, "test_does_not_use")

    errors = [line for line in output.splitlines() if line.startswith("::error ")]
    assert len(errors) == 4
    place, line = line_of("p.log()").split(":")
    assert errors[0].startswith(
        f"::error file={place},line={line},title=log of zero%2C in log::Failed:"
        " test_few.py::test_uses and 1 other test.%0A"
    )
    assert "::Failed: test_few.py::test_stretched[50%25,a:b] and 1 other test.%0A" in errors[1]
    number = FEW.split("\n").index("def test_without_backward():")
    assert errors[3].startswith(
        f"::error file=test_few.py,line={number},title=no backward pass ran%3A"
    )
    written = summary.read_text()
    assert written.startswith("before\n### agviz: 6 failing tests, 4 causes\n")
    assert "<code>test_few.py::test_stretched[&lt;b&gt;&amp;]</code>" in written
    assert "`agviz-results/index.html`" in written
    assert (
        "::error" not in run(pytester, "--agviz=retain-on-failure", "--hide-agviz-summary").outlines
    )

    report = results / "test_few.py--test_sets_up" / "report.html"
    page = read_page(report)
    assert [each.text for each in page.find("h1")] == [
        "✗ log of zero, in log, in backward pass 0 (the 1st of 2)"
    ]
    (marked,) = page.find("pre")[0].find("b")
    assert marked.text.split(maxsplit=2) == [">", line, "return -(p * p.log()).sum()"]
    assert len(page.find("svg")) == 2
    for drawn in re.findall(r"<svg.*?</svg>", report.read_text(), re.DOTALL):
        ET.fromstring(drawn)  # noqa: S314 - our own
    assert not re.search(
        r"""(?:src|href)=["']?(?:https?:)?//|url\((?!["']?#)""", report.read_text()
    )
    printed = (
        read_page(results / folder_of("test_does_not_use") / "report.html").find("pre")[-1].text
    )
    assert "assert y.grad.sum() == 5" in printed
    for name in folders(results):
        assert files(results / name) == {"trace.agviz", "graph.svg", "summary.txt", "report.html"}


def folder_of(test: str) -> str:
    return f"test_few.py--{test}"


@pytest.mark.slow
def test_what_cannot_be_written_is_one_line(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(library=REPOSITORY["library"], test_few=FEW)
    results = pytester.path / "agviz-results"
    (results / folder_of("test_does_not_use") / "report.html").mkdir(parents=True)
    (results / "index.html").write_text("<title>mine</title>")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(results))
    result = run(pytester, "--agviz=retain-on-failure")
    result.assert_outcomes(passed=1, failed=6, xfailed=1)
    assert (results / "index.html").read_text() == "<title>mine</title>"
    lines = [line for line in result.outlines if line.startswith("! ")]
    assert len(lines) == 3
    result.stdout.fnmatch_lines(
        [
            "! *report.html can't be written: Is a directory (1 test)",
            "! *index.html is somebody else's: the index is not written",
            "! the step summary *agviz-results can't be written: Is a directory",
        ]
    )
    said = section(result.stdout.str(), "test_does_not_use")
    assert said.startswith("no anomaly found in 1 backward pass")


REPLACED = """
import pytest, torch


@pytest.mark.flaky(reruns=1)
def test_once():
    x = torch.zeros(2, requires_grad=True)
    x.sqrt().sum().backward()
    assert x.grad.isfinite().all()


@pytest.fixture
def ends_badly():
    yield
    test_once()


def test_ends(ends_badly):
    pass


def test_stays():
    test_once()
"""


@pytest.mark.slow
def test_what_a_test_left_is_replaced_and_nothing_else(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_few=REPLACED)
    run(pytester, "--agviz=retain-on-failure").assert_outcomes(passed=1, failed=2, errors=1)
    results = pytester.path / "agviz-results"
    stays = {folder_of("test_stays")}
    again = {folder_of("test_once"), folder_of("test_once-rerun1"), folder_of("test_ends-teardown")}
    assert folders(results) == stays | again
    (first,) = causes(results / "index.html")
    assert first.tests == [
        "test_few.py::test_once (rerun 1)",
        "test_few.py::test_ends (teardown)",
        "test_few.py::test_stays",
    ]
    (results / folder_of("test_once") / "mine").touch()
    pytester.makepyfile(test_few=REPLACED.replace("zeros", "ones"))
    result = run(pytester, "--agviz=retain-on-failure", "-k", "once or ends")
    result.assert_outcomes(passed=2, deselected=1)
    assert folders(results) == stays | {folder_of("test_once")}
    assert files(results / folder_of("test_once")) == {"mine"}
    page = read_page(results / "index.html")
    assert [each.text for each in page.find("h1")] == ["agviz: no test failed"]
    assert "1 folder of earlier runs beside this file are not listed" in page.text


LONG = """
import torch

def test_long():
    for number in range(500):
        x = torch.ones(2, requires_grad=True)
        y = x * (torch.nan if number == 250 else 2)
        for _ in range(25):
            y = y * 2
        y.sum().backward()
    assert False
"""


@pytest.mark.slow
def test_a_long_test_keeps_its_first_and_last_passes_and_each_that_went_wrong(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(test_few=LONG)
    run(pytester, "--agviz=retain-on-failure", "--agviz-keep=lots").stderr.fnmatch_lines(
        ["*--agviz-keep: 'lots' is no size; write it like 200MB or 1.5GB"]
    )
    result = run(pytester, "--agviz=retain-on-failure", "--agviz-keep=1MB")
    result.assert_outcomes(failed=1)
    path = pytester.path / "agviz-results" / folder_of("test_long") / "trace.agviz"
    assert path.stat().st_size <= 1_000_000
    with Trace.open(path) as trace:
        kept = [task.id for task in trace.graph_tasks]
        assert kept[0] == 0
        assert kept[-1] == 499
        assert 250 in kept
        assert 10 < len(kept) < 450
    said = section(result.stdout.str(), "test_long")
    assert said.startswith("non-finite in the forward, in MulBackward0, in backward pass 250 (")


COMPARED = """
import os, pytest, torch

SCALE = float(os.environ["SCALE"])


def step(scale):
    x = torch.ones(3, requires_grad=True)
    ((x * scale) ** 2).sum().backward()


def test_scaled():
    step(SCALE)


def test_same():
    step(2)


def test_fails():
    step(SCALE)
    assert SCALE == 2


def test_gone():
    if SCALE == 2:
        step(2)


@pytest.mark.skipif(SCALE != 2, reason="is not run again")
def test_skipped():
    step(SCALE)


@pytest.mark.xfail(SCALE != 2, strict=True, reason="is not right any more")
def test_expected_to_fail():
    step(SCALE)
    assert SCALE == 2


def test_new():
    if SCALE != 2:
        step(2)
"""


@pytest.mark.slow
def test_baselines_are_updated_where_tests_pass(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(test_few=COMPARED)
    update = "--agviz-compare=base/line", "--agviz-update"
    monkeypatch.setenv("SCALE", "2")
    run(pytester, "--agviz-update").stderr.fnmatch_lines(["*--agviz-update: name the baselines*"])
    first = run(pytester, *update)
    first.assert_outcomes(passed=7)
    first.stdout.fnmatch_lines(["baselines in base/line: 6 added"])
    base = pytester.path / "base" / "line"
    names = {"scaled", "same", "fails", "gone", "skipped", "expected_to_fail"}
    assert folders(base) == {folder_of(f"test_{name}") for name in names}
    before = {path: path.read_bytes() for path in base.glob("*/*")}

    monkeypatch.setenv("SCALE", "3")
    others = {"skipped": 1, "xfailed": 1}
    run(pytester, "--agviz-compare=base/line").assert_outcomes(passed=2, failed=3, **others)
    second = run(pytester, *update)
    second.assert_outcomes(passed=4, failed=1, **others)
    second.stdout.fnmatch_lines(["baselines in base/line: 1 added, 1 removed, 1 updated"])
    names = names - {"gone"} | {"new"}
    assert folders(base) == {folder_of(f"test_{name}") for name in names}
    for name in names - {"scaled", "new"}:
        path = base / folder_of(f"test_{name}") / "trace.agviz"
        assert before[path] == path.read_bytes()
    run(pytester, "--agviz-compare=base/line").assert_outcomes(passed=4, failed=1, **others)


SUBTESTS = """
import torch
from library import entropy


def step(function):
    x = torch.zeros(2, requires_grad=True)
    function(x).backward()
    return x.grad


def test_each(subtests):
    with subtests.test("good"):
        assert step(torch.sum).isfinite().all()
    with subtests.test("bad"):
        assert step(entropy).isfinite().all()
    with subtests.test("other"):
        assert step(torch.sum).sum() == 5
    step(torch.sum)


def test_passes(subtests):
    with subtests.test("good"):
        assert step(torch.sum).isfinite().all()
"""


@pytest.mark.skipif(
    pytest.version_tuple < (9,), reason="subtests came with pytest 9, and this one is older"
)
def test_each_failing_subtest_is_explained_by_its_own_passes(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(library=REPOSITORY["library"], test_few=SUBTESTS)
    plain = run(pytester, "-p", "no:agviz").parseoutcomes()
    result = run(pytester, "--agviz=retain-on-failure")
    assert result.parseoutcomes() == plain
    output = result.stdout.str()
    assert section(output, r"test_each \[bad\]").startswith("log of zero, in MulBackward0")
    other = section(output, r"test_each \[other\]")
    assert other.startswith("no anomaly found in 1 backward pass")
    results = pytester.path / "agviz-results"
    assert folders(results) == {folder_of("test_each")}
    with Trace.open(results / folder_of("test_each") / "trace.agviz") as trace:
        assert len(trace.graph_tasks) == 4


@pytest.mark.slow
@needs_browser
def test_pages_open_in_a_browser(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(library=REPOSITORY["library"], test_few=FEW)
    run(pytester, "--agviz=retain-on-failure").assert_outcomes(passed=1, failed=6, xfailed=1)
    with opened(width=1440) as page:
        page.goto((pytester.path / "agviz-results" / "index.html").as_uri())
        assert page.locator("h2").count() == 4
        page.get_by_role("link", name="test_few.py::test_uses", exact=True).click()
        assert page.locator("h1").inner_text().startswith("✗ log of zero")
        for name in ("timeline", "graph"):
            box = page.locator(f"#{name} svg").bounding_box()
            assert box is not None
            assert box["width"] <= 1440
            assert box["height"] > 50
        assert page.evaluate("document.documentElement.scrollWidth") <= 1440
        page.get_by_role("link", name="all failures of the run").click()
        assert page.title() == "agviz: 6 failing tests, 4 causes"
