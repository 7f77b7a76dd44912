"""A folder of ranks as one Chrome trace, as a picture of time, and what is asked of it."""

from __future__ import annotations

import gzip
import itertools
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from agviz.cli.main import main
from agviz.export.chrome_ranks import chrome_trace_of_ranks
from agviz.export.text import DASH
from agviz.export.timeline import TimePicture
from agviz.ranks.alone import alone
from agviz.ranks.clocks import Clock
from agviz.ranks.folder import Folder, RankFile
from agviz.ranks.phases import Phase, Phases
from agviz.ranks.run import Run
from tests import svg_reader, trace_event_format
from tests.perfetto_reader import Perfetto
from tests.ranks_support import PASSES, SLEPT_NS
from tests.test_export_chrome_trace import program as program_of_one

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_LATE = SLEPT_NS * 0.8
"""What rank 0 waits at least; scheduling takes some of what rank 1 slept."""


@pytest.fixture(scope="module")
def run(two_ranks: Path) -> Run:
    return Run.read(Folder.open(two_ranks))


@pytest.fixture(scope="module")
def exported(two_ranks: Path) -> bytes:
    return "".join(chrome_trace_of_ranks(Folder.open(two_ranks))).encode("ascii")


def many(run: Run, size: int, late: Sequence[int]) -> Run:
    """The first rank again and again, the second one in the places of those who are late."""
    ranks, files = {}, []
    for number in range(size):
        source = run.ranks[int(number in late)]
        assert source.file.meta.rank is not None
        place = source.file.meta.rank._replace(number=number, world_size=size)
        file = RankFile(number, source.file.path, source.file.meta._replace(rank=place))
        files.append(file)
        ranks[number] = replace(source, file=file)
    folder = Folder(run.folder.path, files, older=[], others=[], unreadable={})
    return Run(folder, ranks, dict.fromkeys(ranks, Clock(0, 0, "monotonic")))


# -- what ranks did when ----------------------------------------------------------------------


def test_stretches_of_a_rank_do_not_overlap_and_cover_its_passes(run: Run) -> None:
    phases = Phases(run)
    for number, rank in run.ranks.items():
        found = phases.stretches(number)
        for one, following in itertools.pairwise(found):
            assert one.begin_ns < one.end_ns <= following.begin_ns
        for begin, end in ((each.begin_ns, each.end_ns) for each in rank.passes):
            assert end is not None
            inside = [s for s in found if begin <= s.begin_ns and s.end_ns <= end]
            assert sum(s.end_ns - s.begin_ns for s in inside) == end - begin


def test_the_first_rank_waits_for_the_second(run: Run) -> None:
    phases = Phases(run)
    for ordinal in range(PASSES):
        waits = [
            [
                s.end_ns - s.begin_ns
                for s in phases.stretches(number, ordinal, ordinal)
                if s.phase is Phase.WAITING and s.ordinal == ordinal
            ]
            for number in (0, 1)
        ]
        assert max(waits[0], default=0) > _LATE > max(waits[1], default=0)
        assert phases.work_ns(1, ordinal, ordinal) > _LATE


def test_a_collective_lets_go_of_all_ranks_together(run: Run) -> None:
    """One that is seen to go on much later than the first has worked meanwhile."""
    second = run.ranks[1]
    # The last one of a pass is awaited by both.
    meeting = [each for each in run.meetings() if each.ordinal == 1 and each.is_inside][-1]
    joined = tuple(
        one._replace(blocked_ns=one.blocked_ns + 10**10) if one.key == meeting.key else one
        for one in second.joined
    )
    phases = Phases(replace(run, ranks=run.ranks | {1: replace(second, joined=joined)}))
    changed = phases.meeting(meeting.key)
    assert changed is not None
    going_on = meeting.joined[0] + meeting.by_rank[0].blocked_ns
    assert changed.transfer_ns(1) == going_on - max(meeting.joined.values())


def test_of_many_ranks_the_odd_ones_are_shown(run: Run) -> None:
    choice = Phases(many(run, 40, [7, 23])).choose(8, 0, PASSES - 1)
    assert choice.shown == (7, 23)
    assert len(choice.folded) == 38
    assert [word for word, _ in choice.samples] == ["min", "median", "max"]
    few = Phases(many(run, 8, [3])).choose(8, 0, PASSES - 1)
    assert few.shown == tuple(range(8))
    assert not few.folded
    assert not few.samples


def test_a_rank_that_never_comes_is_waited_for_to_the_end(run: Run) -> None:
    """As in a hang: rank 0 is in its last collective, which rank 1 never joins."""
    first = run.ranks[0]
    last = [one for one in first.joined if one.is_inside][-1]._replace(
        blocked_ns=0, is_retired=False
    )
    joined = (*(one for one in first.joined if one.time_ns < last.time_ns), last)
    passes = (*first.passes[:-1], first.passes[-1]._replace(end_ns=None))
    stuck = replace(first, joined=joined, passes=passes, last_ns=last.time_ns)
    found = Phases(replace(run, ranks=run.ranks | {0: stuck})).stretches(0)
    assert found[-1].phase is Phase.WAITING
    assert found[-1].end_ns == run.on_one_clock(1, run.ranks[1].last_ns)


# -- one file of the Trace Event Format -------------------------------------------------------


def test_there_is_a_process_for_each_rank(exported: bytes, run: Run) -> None:
    read = trace_event_format.read_processes(exported)
    assert list(read) == [0, 1]
    for number, timeline in read.items():
        rank = run.ranks[number].file.rank
        assert timeline.names["process_name"] == f"rank {number} ({rank.host})"
        assert timeline.names["process_sort_index"] == number
        assert {"phases", "collectives", "MainThread"} <= set(timeline.threads.values())
        assert len(timeline.named("graph_task")) == PASSES
        assert timeline.facts["otherData"]["world size"] == 2
        assert "clocks" not in timeline.facts["otherData"]


def test_all_ranks_are_on_one_clock(exported: bytes, run: Run) -> None:
    read = trace_event_format.read_processes(exported)
    zero_ns = min(rank.file.meta.start_ns for rank in run.ranks.values())
    for number, timeline in read.items():
        begins = [slice_.begin for slice_ in timeline.named("graph_task")]
        assert begins == [one.begin_ns - zero_ns for one in run.ranks[number].passes]
    first = run.ranks[0].file.meta
    base = read[0].facts["baseTimeNanoseconds"]
    assert base == first.started_unix_ns + zero_ns - first.start_ns


def test_collectives_say_what_they_are_and_who_was_awaited(exported: bytes, run: Run) -> None:
    read = trace_event_format.read_processes(exported)
    for number, timeline in read.items():
        collectives = timeline.named("collective")
        assert len(collectives) == len(run.ranks[number].joined)
        reduced = [each for each in collectives if each.name == "all_reduce"]
        assert all(re.fullmatch(r"\[\d+\]", each.args["shapes"]) for each in reduced)
        assert {each.args["ranks"] == [0, 1] for each in reduced} == {True}
        assert len({(each.args["group"], each.args["seq"]) for each in collectives}) == len(
            collectives
        )
    long = [
        each
        for each in read[0].named("waiting")
        if each.end - each.begin > _LATE and each.parent and each.parent.name == "all_reduce"
    ]
    assert len(long) == PASSES
    assert all(each.parent and each.parent.args["last rank"] == 1 for each in long)


def test_perfetto_reads_the_ranks_and_the_arrows_between_them(exported: bytes) -> None:
    read, perfetto = trace_event_format.read_processes(exported), Perfetto(exported)
    assert perfetto.complaints() == []
    for number, timeline in read.items():
        assert sorted(
            perfetto.query(
                "SELECT s.name, s.category, s.ts, s.dur, t.name AS thread FROM slice s"  # noqa: S608
                " JOIN thread_track k ON s.track_id = k.id JOIN thread t USING (utid)"
                f" JOIN process p USING (upid) WHERE p.pid = {number} AND p.name NOT NULL"
            )
        ) == sorted(
            (s.name, s.category, s.begin, s.end - s.begin, timeline.threads[s.tid])
            for s in timeline.slices
        )
    ends = " ".join(
        f"JOIN slice {s} ON {s}.id = slice_{way} JOIN thread_track k{s} ON {s}.track_id = k{s}.id"
        f" JOIN thread t{s} ON t{s}.utid = k{s}.utid JOIN process p{s} ON p{s}.upid = t{s}.upid"
        for s, way in (("a", "out"), ("b", "in"))
    )
    arrows = perfetto.query(
        f"SELECT pa.pid AS source, pb.pid AS target, b.name AS name, b.ts - a.ts AS later"  # noqa: S608
        f" FROM flow {ends} WHERE source <> target"
    )
    assert len(arrows) == sum(len(timeline.between) for timeline in read.values()) / 2
    assert {name for _, _, name, _ in arrows} == {"transfer"}
    assert {later for *_, later in arrows} == {0}
    assert sum((source, target) == (1, 0) for source, target, *_ in arrows) >= PASSES


def test_one_pass_of_each_rank(two_ranks: Path, run: Run) -> None:
    data = "".join(chrome_trace_of_ranks(Folder.open(two_ranks), 1)).encode("ascii")
    assert Perfetto(data).complaints() == []
    read = trace_event_format.read_processes(data)
    zero_ns = min(rank.file.meta.start_ns for rank in run.ranks.values())
    for number, timeline in read.items():
        (task,) = timeline.named("graph_task")
        assert task.begin == run.ranks[number].passes[1].begin_ns - zero_ns
        assert {each.args["pass"] for each in timeline.named("collective")} == {1}


def test_a_clock_that_is_not_sure_is_said(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    apart = replace(run, clocks=run.clocks | {1: Clock(5_000, 700, "collectives")})
    monkeypatch.setattr(Run, "read", lambda folder: apart)
    data = "".join(chrome_trace_of_ranks(run.folder)).encode("ascii")
    read = trace_event_format.read_processes(data)
    clock = {"error_ns": 700, "from": "collectives", "offset_ns": 5_000}
    assert read[0].facts["otherData"]["clocks"] == {"1": clock}
    zero_ns = min(run.ranks[0].file.meta.start_ns, run.ranks[1].file.meta.start_ns + 5_000)
    begins = [slice_.begin for slice_ in read[1].named("graph_task")]
    assert begins == [one.begin_ns + 5_000 - zero_ns for one in run.ranks[1].passes]


def test_only_one_rank_is_open_at_a_time(two_ranks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from agviz.traces.reader import Trace

    now, most = 0, 0
    enter, leave = Trace.__enter__, Trace.__exit__

    def entered(trace: Trace) -> Trace:
        nonlocal now, most
        now += 1
        most = max(most, now)
        return enter(trace)

    def left(trace: Trace, *error: object) -> None:
        nonlocal now
        now -= 1
        leave(trace, *error)

    monkeypatch.setattr(Trace, "__enter__", entered)
    monkeypatch.setattr(Trace, "__exit__", left)
    for _ in chrome_trace_of_ranks(Folder.open(two_ranks)):
        assert now <= 1
    "".join(TimePicture(Run.read(Folder.open(two_ranks))).pieces())
    assert (now, most) == (0, 1)


# -- the picture ------------------------------------------------------------------------------


def test_the_picture_shows_who_waited_for_whom(run: Run) -> None:
    svg = "".join(TimePicture(run).pieces()).encode("ascii")
    texts = svg_reader.texts(svg)
    assert texts[0].startswith(f"train.py: 2 ranks, passes 0 to {PASSES - 1} of {PASSES}, ")
    assert {"rank 0", "rank 1", *map(str, Phase)} <= set(texts)
    waits = [text for text in texts if text.startswith("waiting for rank 1, ")]
    assert len(waits) == PASSES
    slow = [text for text in texts if text.startswith("SlowBackward ")]
    assert len(slow) == PASSES
    root = svg_reader.parse(svg)
    lines = [e for e in root.iter() if e.get("class") == "alignment"]
    assert len(lines) > PASSES  # one is in the legend


def test_blocks_of_a_lane_are_where_their_times_are(run: Run) -> None:
    svg = "".join(TimePicture(run, 1).pieces()).encode("ascii")
    begin, end = Phases(run).span(1, 1)
    (longest,) = (
        s
        for s in Phases(run).stretches(0, 1, 1)
        if s.phase is Phase.WAITING and s.end_ns - s.begin_ns > _LATE
    )
    widths = [
        (float(e.get("x", "")), float(e.get("width", "")))
        for e in svg_reader.parse(svg).iter()
        if e.get("class") == "waiting"
    ]
    x, width = max(widths, key=lambda each: each[1])
    scale = (1600 - 170 - 24) / (end - begin)
    assert x == pytest.approx(170 + (longest.begin_ns - begin) * scale, abs=0.1)
    assert width == pytest.approx((longest.end_ns - longest.begin_ns) * scale, abs=0.1)


def test_the_same_traces_give_the_same_picture(run: Run, two_ranks: Path) -> None:
    again = Run.read(Folder.open(two_ranks))
    assert "".join(TimePicture(run).pieces()) == "".join(TimePicture(again).pieces())


def test_many_ranks_are_folded(run: Run) -> None:
    picture = TimePicture(many(run, 300, [250]))
    svg = "".join(picture.pieces()).encode("ascii")
    texts = svg_reader.texts(svg)
    assert next(text for text in texts if re.fullmatch(r"rank \d+", text)) == "rank 250"
    assert any(text.startswith(f"the other 299 ranks (0{DASH}249, 251{DASH}299)") for text in texts)
    assert {"min", "median", "max"} <= set(texts)
    assert picture.notes == ("299 of 300 ranks are alike; three represent them",)
    assert len(svg) < 200_000


def test_nothing_in_the_picture_is_cut_off(run: Run) -> None:
    svg = "".join(TimePicture(many(run, 5, [2])).pieces()).encode("ascii")
    root = svg_reader.parse(svg)
    width, height = float(root.get("width", "")), float(root.get("height", ""))
    for element in root.iter():
        if element.tag.endswith("}text"):
            length = len(element.text or "") * 6.3
            x, anchor = float(element.get("x", "")), element.get("text-anchor")
            left = x - {"middle": length / 2, "end": length, None: 0.0}[anchor]
            assert left >= 0
            assert left + length <= width + 10, element.text
            assert 0 < float(element.get("y", "")) < height


def test_names_from_the_trace_can_not_break_the_picture(run: Run) -> None:
    file = run.ranks[0].file
    meta = file.meta._replace(script='<script>"&\x1b\u202e</script>')
    odd = replace(run.ranks[0], file=file._replace(meta=meta))
    folder = Folder(
        run.folder.path,
        [odd.file, run.ranks[1].file],
        older=[],
        others=[],
        unreadable={},
    )
    svg = "".join(TimePicture(replace(run, folder=folder)).pieces()).encode("ascii")
    assert svg_reader.texts(svg)[0].startswith('<script>"&��</script>: 2 ranks')


# -- the command ------------------------------------------------------------------------------


def test_a_folder_is_exported(two_ranks: Path, tmp_path: Path, exported: bytes) -> None:
    out = tmp_path / "all.json.gz"
    assert main(["export", str(two_ranks), "--format", "chrome-trace", "-o", str(out)]) == 0
    assert gzip.decompress(out.read_bytes()) == exported
    svg = tmp_path / "all.svg"
    assert main(["export", str(two_ranks), "--format", "timeline", "-o", str(svg)]) == 0
    assert svg_reader.texts(svg.read_bytes())[0].startswith("train.py: 2 ranks")


def test_a_timeline_of_one_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import agviz

    path = tmp_path / "t.agviz"
    with agviz.trace(path=path):
        program_of_one()
    assert main(["export", str(path), "--format", "timeline"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"wrote {tmp_path / 't.timeline.svg'}\n")
    assert re.search(r"^pass \d+, one of 5; --graph-task N draws another$", said, re.MULTILINE)
    svg = (tmp_path / "t.timeline.svg").read_bytes()
    assert "● caller" in svg_reader.texts(svg)
    assert Phases(alone(path)).passes == 5
    whole = TimePicture(alone(path))
    assert "process" in svg_reader.texts("".join(whole.pieces()).encode("ascii"))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--format", "svg"], "is a folder: of all ranks there are chrome-trace"),
        (["--format", "timeline", "--graph-task", "3"], "there is no backward pass 3, but 3 from"),
        (["--format", "chrome-trace", "--graph-task", "3"], "no rank made a backward pass 3"),
        (["--format", "timeline", "--depth", "3"], "--depth is for graphs"),
    ],
)
def test_what_can_not_be_is_said(
    two_ranks: Path,
    tmp_path: Path,
    arguments: list[str],
    complaint: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["export", str(two_ranks), *arguments, "-o", str(tmp_path / "out")]) == 2
    assert complaint in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_no_trace_is_written_over(two_ranks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rank = str(Folder.open(two_ranks).ranks[1].path)
    assert main(["export", str(two_ranks), "--format", "timeline", "-o", rank]) == 2
    assert "is the trace itself" in capsys.readouterr().err
