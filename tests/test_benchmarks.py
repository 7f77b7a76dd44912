"""The benchmarks measure what they say. What they measure is judged by no test."""

import ast
import json
import sys
from pathlib import Path

import pytest
import torch

import agviz_engine
from benchmarks import (
    __main__,
    against,
    drawing,
    explaining,
    measure,
    memory,
    phases,
    plugin,
    provenance,
    rank_steps,
    reading,
    report,
    shape,
    tiny,
    training_steps,
    verbs,
    viewing,
)
from benchmarks.contenders import NATIVE, OURS, PEERS, RECORDING
from benchmarks.graphs import GRAPHS, chain
from benchmarks.measure import Ratio, Sample, Times
from benchmarks.small_models import SMALL, Model

ENGINE = Path(agviz_engine.__file__).parent


def test_ratios_are_medians_with_an_interval_of_ranks() -> None:
    assert Ratio.of([3, 1, 2]) == (2, 1, 3)
    ratios = [float(i) for i in range(1, 41)]
    assert Ratio.of(ratios) == (20.5, 14, 27)  # ranks 14 and 27 of 40: 96 % (binomial table)
    assert Ratio.of([1.5]) == (1.5, 1.5, 1.5)


def test_a_step_is_forward_and_backward() -> None:
    native = Sample(Times(10, 20, 30), Times(1, 2, 3))
    other = Sample(Times(20, 40, 60), Times(3, 4, 9))
    found = measure.summarise([(native, other)])
    assert (found.thread.median, found.process.median, found.wall.median) == (2, 3, 3)
    assert found.step.median == 2
    assert (found.native_ns, found.extra_ns) == (2, 2)


@pytest.mark.slow
def test_every_contender_runs_and_pairs_are_taken_in_turns() -> None:
    graph = chain(20)
    contenders = [OURS, *RECORDING, *PEERS]
    taken = measure.pairs(graph, contenders, 2)
    assert list(taken) == [contender.title for contender in contenders]
    for pairs in taken.values():
        assert len(pairs) == 2
        assert all(times.wall > 0 for pair in pairs for sample in pair for times in sample)
    assert not agviz_engine.is_installed()
    assert not torch.is_anomaly_enabled()
    assert NATIVE.title not in taken


@pytest.mark.slow
@pytest.mark.parametrize("name", ["chain", "lstm"])
def test_a_graph_can_be_run_again_and_again(name: str) -> None:
    graph = GRAPHS[name]()
    gradients = []
    for _ in range(2):
        measure.sample(graph, NATIVE)
        gradients.append([leaf.grad for leaf in graph.leaves])
    assert all(map(torch.equal, *gradients))


@pytest.mark.parametrize("name", SMALL)
def test_a_small_model_can_be_trained_on(name: str) -> None:
    torch.manual_seed(0)
    model = SMALL[name]()
    assert 50 < training_steps.nodes(model) < 500
    found = training_steps.sample(model, NATIVE)
    assert all(time > 0 for part in found for time in part)
    assert any(leaf.grad is not None for leaf in model.leaves)


@pytest.mark.slow
def test_small_models_are_measured_beside_others() -> None:
    weights = [torch.randn(4, requires_grad=True) for _ in range(2)]

    def of_both() -> torch.Tensor:
        return (weights[0] * weights[1]).sum()

    def of_one() -> torch.Tensor:
        return weights[0].exp().sum()

    found = training_steps.measure(Model("tiny", [of_both, of_one], weights), 1)
    assert (found.nodes, found.rounds) == (6, 1)
    assert list(found.ratios) == [contender.title for contender in training_steps.CONTENDERS]
    steps = [*found.ratios.values(), found.attached]
    assert all(ratio.low == ratio.median > 0 for each in steps for ratio in each)
    assert set(training_steps.TARGETS) <= {*found.ratios, training_steps.ATTACHED.title}
    assert report.small_model("tiny", found).row_count == len(found.ratios) + 2
    assert not agviz_engine.is_installed()


def test_phases_are_named_after_functions_and_files_that_exist() -> None:
    functions = {
        node.name
        for path in ENGINE.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    }
    assert set(phases._BY_FUNCTION) <= functions
    assert set(phases._BY_FILE) <= {path.name for path in ENGINE.glob("*.py")}
    assert phases._NODE_ITSELF in (ENGINE / "engine.py").read_text()


@pytest.mark.slow
def test_the_time_of_the_engine_is_found() -> None:
    torch.set_num_threads(1)
    found = phases.measure(chain(3_000), 3)
    assert found.samples > 0
    assert sum(phase.share for phase in found.phases) == pytest.approx(1)
    assert any(phase.name == "the node itself" and phase.share for phase in found.phases)
    assert 0 <= found.garbage < 1
    assert report.breakdown("chain", found)


@pytest.mark.slow
def test_tiny_passes_are_slower_here_than_there() -> None:
    for found in tiny.measure(1).values():
        assert 0 < found.native_ns < found.ours_ns
    assert not agviz_engine.is_installed()


@pytest.mark.slow
def test_origins_are_measured_beside_anomaly_mode() -> None:
    found = provenance.measure(chain(50), 3)
    assert found.nodes == 52
    assert 0 < found.captured.median < found.anomaly.median
    assert not torch.is_anomaly_enabled()
    assert report.provenance({"chain": found}).row_count == 1


@pytest.mark.slow
def test_runs_of_pytest_are_compared() -> None:
    found = plugin.measure(quick=True)
    assert len(found) == 4
    for cost in found.values():
        assert cost.native_s > 0
        assert cost.cpu.median == pytest.approx(1 + cost.extra_s / cost.native_s)
    assert report.plugin(found).row_count == 4


@pytest.mark.slow
def test_steps_of_ranks_are_compared() -> None:
    found = rank_steps.measure(quick=True)
    assert list(found) == ["native", "exact"]
    for cost in found.values():
        assert cost.native_ms > 0
        assert cost.thread.median > 0
    assert report.rank_steps(found).row_count == 2


@pytest.mark.slow
def test_verbs_are_measured_in_processes_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs, "MODELS", ("mlp", "lstm"))
    found = verbs.measure(quick=True)
    assert list(found) == ["mlp", "lstm"]
    for cost in found.values():
        assert cost.steps == 2
        assert cost.plain_s > 0
        assert cost.checked.median > 0
        assert cost.explain_s > 0
        assert cost.explain_wall_s > 0
    assert report.verbs(found).row_count == 2


@pytest.mark.slow
def test_explaining_is_measured_on_traces_that_need_it() -> None:
    found = explaining.measure(quick=True)
    assert [one.answer for one in found.values()] == [
        "finite",
        "sqrt at zero",
        "exploding gradients over depth",
    ]
    assert [one.nonfinite > 0 for one in found.values()] == [False, True, True]
    assert all(one.events > 90_000 and one.explain_ms > 0 for one in found.values())
    assert report.explaining(found).row_count == 3


@pytest.mark.slow
def test_viewing_is_measured_in_a_terminal() -> None:
    results = viewing.measure(quick=True)
    assert [found.passes for found in results.values()] == [1, 100, 1_000]
    for title, found in results.items():
        assert found.events > 40_000
        assert found.nodes > 4_000
        assert found.first_screen_cpu_s > 0
        assert 0 < found.first_screen_s <= found.all_read_s
        assert 20 < found.peak_mb < 200
        assert {"run: sort", "n", "search"} <= found.keys.keys()
        assert ("run: j" in found.keys) == (found.passes > 1)
        for latency in found.keys.values():
            assert 0 < latency.first <= latency.first_p95 <= latency.last_p95
            assert latency.first <= latency.last <= latency.last_p95
            assert latency.cpu > 0
        assert report.viewing(title, found).row_count == len(found.keys) + 3


@pytest.mark.slow
def test_reading_is_measured_on_recorded_traces() -> None:
    found = reading.measure(quick=True)
    long, short, wide = found.values()
    assert long.graph_tasks == wide.graph_tasks == 1
    assert short.graph_tasks == 20
    assert min(long.events, short.events) > 50_000
    for read in found.values():
        assert 20 < read.bytes_per_event < 60
        for times in (read.page, read.seek, read.step):
            assert 0 < times.median <= times.worst
    assert report.reading(found).row_count == 13


@pytest.mark.slow
def test_memory_is_measured_in_processes_of_their_own() -> None:
    found = memory.measure("lstm", 1)
    assert len(found) == 5
    gradients = 4 * (256 * 128 + 256 * 256 + 2 * 256) * 4
    for peak in found.values():
        assert gradients < peak.tensors < 10 * gradients
        assert gradients < peak.process < peak.peak


@pytest.mark.slow
def test_figures_are_printed_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "figures.json"
    monkeypatch.setattr(
        sys, "argv", ["benchmarks", "--quick", "--section", "tiny", "--json", str(path)]
    )
    __main__.main()
    figures = json.loads(path.read_text())
    assert figures["machine"]["torch"] == torch.__version__
    (first, second) = figures["tiny"].values()
    for found in (first, second):
        assert found["ratio"]["low"] <= found["ratio"]["median"] <= found["ratio"]["high"]
    printed = capsys.readouterr().out
    assert "backward() of 3 nodes" in printed
    assert f"{first['ratio']['median']:.3f}" in printed


@pytest.mark.slow
def test_drawing_is_measured_beside_torchviz() -> None:
    nodes, ours = drawing._in_a_process("RNN", drawing.DRAW)
    assert (nodes, ours.drawn, ours.failure) == (401, 401, "")
    recorded = drawing._in_a_process("RNN", drawing.EXPORT)[1]
    assert (recorded.drawn, recorded.failure) == (401, "")
    assert min(ours.seconds, ours.cpu_seconds, ours.bytes, recorded.bytes) > 0
    result = drawing.Result(nodes, {drawing.DRAW: ours, drawing.EXPORT: recorded})
    assert report.drawing({"RNN": result}).row_count == 2


def test_a_contender_is_stopped_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "LIMIT_S", 0.2)

    def hang() -> tuple[bytes, int]:
        while True:
            pass

    assert drawing._timed(hang).failure == "not within 0.2 s"

    def overflow() -> tuple[bytes, int]:
        raise RecursionError

    assert drawing._timed(overflow).failure == "RecursionError"


def test_a_ratio_of_medians_has_an_interval_drawn_from_pairs() -> None:
    assert against.Interval.of([2, 2, 2], [1, 1, 1]) == (2, 2, 2)
    ours, theirs = [float(n) for n in range(10, 30)], [10.0] * 20
    found = against.Interval.of(ours, theirs)
    assert found == against.Interval.of(ours, theirs)
    assert found.low < found.ratio == 1.95 < found.high
    assert str(against.Interval(1, 0.5, 2)) == "1.000 [0.500, 2.000]"


@pytest.mark.slow
def test_two_trees_are_measured_in_turns() -> None:
    ours, theirs = against.Worker(against.ROOT), against.Worker(against.ROOT)
    try:
        found = dict(against.speed(ours, theirs, "small gan", 1))
        read = against.reading(ours, theirs, 1, 1)
    finally:
        ours.end()
        theirs.end()
    assert list(found) == list(against.HOW)
    assert all(len(columns) == len(against.PARTS) for columns in found.values())
    assert all(column.ratio > 0 for columns in found.values() for column in columns)
    assert read["events"][0] == read["events"][1] > 5_000
    assert 20 < read["bytes per event"][0] < 100


def test_the_shape_of_a_tree(tmp_path: Path) -> None:
    package, engine = tmp_path / "agviz" / "graph", tmp_path / "engine" / "agviz_engine"
    for folder in (package, engine):
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
    (package.parent / "__init__.py").write_text('"""The package.\n\nMore."""\n')
    (package / "one.py").write_text(
        "from agviz.graph import two\n"
        "\n"
        "# why\n"
        "class Part(two.Part):\n"
        "    x = 1  # no line of its own\n"
        '    """What it is."""\n'
    )
    (package / "two.py").write_text(
        "class Part: pass\n"
        "class _Part: pass\n"
        "def main():\n"
        "    from agviz.graph.one import Part, unit\n"
        "    import torch\n"
    )
    (engine / "node.py").write_text("import torch\n")
    found = shape.shape(tmp_path)
    assert found.packages["agviz, top level"] == (3, 0, 2, 0, 1)
    assert found.packages["agviz.graph"] == (11, 9, 0, 1, 1)
    assert (found.files["agviz.graph"], found.files["agviz_engine"]) == (3, 2)
    assert found.classes == {"Part": ["agviz.graph.one", "agviz.graph.two"]}
    assert found.functions == {}
    assert found.late == [("agviz.graph.two", "agviz.graph.one", True)]
    assert found.late_foreign == 1
    assert found.rings == [["agviz.graph.one", "agviz.graph.two"]]
    assert found.deepest == ["agviz.graph.one.Part", "agviz.graph.two.Part"]
    assert found.most == found.deepest
    assert shape.table({"here": found}).row_count > 15
