"""The control channel against whoever is at its other end; breakpoints as texts and in files."""

from __future__ import annotations

import json
import math
import os
import socket
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agviz.debugger import at_a_stop, control, listening
from agviz.debugger.breakpoint_file import PLACE, BreakpointFile
from agviz.debugger.breakpoints import Breakpoint, BreakpointError, parse
from agviz.debugger.client import Client, GoneError
from agviz.debugger.control import Control
from agviz.debugger.debugger import Debugger
from agviz.debugger.expressions import NAMES, Condition, ExpressionError, Facts
from agviz.debugger.messages import (
    REQUESTS,
    AddBreakpoint,
    AskTensor,
    AskValues,
    Detach,
    EditBreakpoint,
    ExpressionValue,
    GoUntil,
    Hello,
    Request,
    RunPython,
    Said,
    Sampled,
    SetStops,
    ShellAnswer,
    Shown,
    Stopped,
    Stops,
    StopTensor,
    TakeStep,
    UndoneChange,
    WentBack,
)
from agviz.debugger.protocol import (
    MOST_REPLY_BYTES,
    MOST_REQUEST_BYTES,
    Lines,
    ProtocolError,
    decode,
    encode,
    read,
    write,
)
from agviz.errors import AgvizError
from agviz.measure.values import Health
from agviz.traces.nodes import NodeIdentity

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HELLO = {
    "pid": 7,
    "trace": "trace.agviz",
    "script": "train.py",
    "program": "/p/train.py",
    "lines": True,
}


@contextmanager
def served() -> Iterator[tuple[socket.socket, Debugger]]:
    """A control of a program that does not run, and the viewer's end of its channel."""
    theirs, ours = socket.socketpair()
    debugger: Any = Debugger(subject=None)  # type: ignore[arg-type]
    controlled = Control(theirs, debugger, read(Hello, HELLO))
    thread = threading.Thread(target=controlled.serve)
    thread.start()
    ours.settimeout(30)
    try:
        with ours:
            yield ours, debugger
    finally:
        thread.join(30)
        assert not thread.is_alive()
        assert not debugger.is_attached


def lines_of(connection: socket.socket) -> Iterator[dict[str, Any]]:
    for line in Lines(connection, MOST_REPLY_BYTES):
        yield json.loads(line)


GARBAGE = [
    b"",
    b"nonsense",
    b"\x1b[2J\xff\xfe",
    b"[1, 2]",
    b"7",
    b"null",
    b'{"id": 1, "do": "where"}',
    b'{"v": 99, "id": 1, "do": "where"}',
    b'{"v": 1, "do": "where"}',
    b'{"v": 1, "id": "1", "do": "where"}',
    b'{"v": 1, "id": 1}',
    b'{"v": 1, "id": 1, "do": 5}',
    b'{"v": 1, "id": true, "do": "where"}',
    b"[" * 50_000,
]
REFUSED: list[dict[str, Any]] = [
    {"do": "nonsense"},
    {"do": "__class__"},
    {"do": "step", "how": "far"},
    {"do": "step", "how": ["node"]},
    {"do": "step"},
    {"do": "step", "thread": "0"},
    {"do": "until", "graph_task": 0},
    {"do": "until", "graph_task": 0, "node": 1.5},
    {"do": "set_stops", "first": "yes"},
    {"do": "set_stops", "nonfinite": "never"},
    {"do": "add_breakpoint"},
    {"do": "add_breakpoint", "breakpoint": {}},
    {"do": "add_breakpoint", "breakpoint": {"name": 5}},
    {"do": "add_breakpoint", "breakpoint": {"name": "("}},
    {"do": "add_breakpoint", "breakpoint": {"name": "a", "_pattern": "b"}},
    {"do": "add_breakpoint", "breakpoint": {"name": "a", "condition": "open('/etc/passwd')"}},
    {"do": "add_breakpoint", "breakpoint": {"node": 10**30}},
    {"do": "edit_breakpoint", "number": 1, "changes": {"enabled": False}},
    {"do": "edit_breakpoint", "number": 1, "changes": 7},
    {"do": "remove_breakpoint"},
    {"do": "tensor", "what": "input", "name": "0"},
    {"do": "shell", "line": "import os"},
]


def test_what_is_no_message_is_refused_and_the_next_is_answered() -> None:
    with served() as (connection, debugger):
        answers = lines_of(connection)
        assert next(answers) == {"v": 1, "say": "hello", **HELLO}
        for garbage in GARBAGE:
            connection.sendall(garbage + b"\n")
            answer = next(answers)
            assert answer["re"] is None
            assert answer["error"].count("\n") == 0
        for number, request in enumerate(REFUSED):
            connection.sendall(encode({"id": number} | request))
            answer = next(answers)
            assert answer["re"] == number
            assert answer["error"]
        connection.sendall(encode({"id": 5, "do": "where"}))
        assert next(answers) == {"v": 1, "re": 5, "ok": {"stops": []}}
        assert debugger.is_attached


def test_a_line_without_end_is_the_end() -> None:
    with served() as (connection, _):
        answers = lines_of(connection)
        next(answers)
        connection.sendall(b"x" * (MOST_REQUEST_BYTES + 70_000))
        assert "longer than" in next(answers)["error"]
        assert list(answers) == []


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"garbage\n",
        b"\xff" * 100 + b"\n",
        b'{"v": 1, "say": "hello"}\n',
        b'{"v": 1, "say": "hello", "pid": "x", "trace": "t", "script": "s"}\n',
        b'{"v": 2, "say": "hello", "pid": 1, "trace": "t", "script": "s"}\n',
        b'{"v": 1, "say": "refused", "why": "no"}\n',
    ],
)
def test_the_viewer_believes_no_stranger(said: bytes) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(said)
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(AgvizError):
            Client(ours)


STOPPED: dict[str, Any] = {
    **dict.fromkeys(("thread", "graph_task", "seq"), 0),
    **dict.fromkeys(("reasons", "breakpoints"), ()),
    "say": "stopped",
    "event": "NodeStarted",
    "details": {},
}


@pytest.mark.parametrize(
    "said",
    [
        b"garbage\n",
        encode({"say": "stopped"}),
        encode(STOPPED | {"reasons": [[]]}),
        encode(STOPPED | {"breakpoints": ["x"]}),
        encode(STOPPED | {"details": {"a": {}}}),
        encode(STOPPED | {"seq": "0"}),
        b"x" * (5 << 20),
    ],
    ids=range(7),
)
def test_a_program_that_says_nonsense_counts_as_gone(said: bytes) -> None:
    ours, theirs = socket.socketpair()
    theirs.sendall(encode({"say": "hello", **HELLO}))
    with theirs, Client(ours) as client:
        sending = threading.Thread(target=lambda: _send(theirs, said))
        sending.start()
        notice = client.next_notice()
        assert isinstance(notice, Said)
        assert notice.what == "gone"
        assert notice.why
        with pytest.raises(GoneError):
            client.where()
        theirs.close()
        sending.join(30)


def _send(connection: socket.socket, said: bytes) -> None:
    with suppress(OSError):  # nobody reads on
        connection.sendall(said)


def test_what_a_program_says_can_not_speak_to_the_terminal() -> None:
    ours, theirs = socket.socketpair()
    stop = STOPPED | {
        "node": 3,
        "reasons": ["exc\x1b[2Jeption"],
        "name": "Mul\x1b]0;x\x07",
        "details": {"message": "a\nb\x1b[31m"},
    }
    theirs.sendall(encode({"say": "hello", **HELLO}) + encode(stop))
    with theirs, Client(ours) as client:
        notice = client.next_stop()
    assert "\x1b" not in repr(notice).replace("\\x1b", "\x1b")
    assert notice.details["message"] == "a\nb\ufffd[31m"


HEALTH = Health(
    *("float32", (8, 16), "cpu", "strided", 128, 512, 128, 1, 0, 2, 0),
    *(-math.inf, 3.5, 0.0, None, ""),
)
STOP = Stopped(
    thread=1,
    graph_task=2,
    seq=3,
    event="NodeStarted",
    node=4,
    device=0,
    reasons=("step",),
    breakpoints=(1, 2),
    details={"node": 4, "error": "a\nb", "is_leaf": True},
)
REPLIES: dict[str, Any] = {
    "set_stops": Stops(first=True, exceptions=False, nonfinite="every", hold="one"),
    "where": (STOP, STOP),
    "breakpoints": (parse("Mul if norm > 3"), parse("train.py:3")),
    **dict.fromkeys(("add_breakpoint", "edit_breakpoint", "remove_breakpoint"), parse("Mul")),
    "tensors": (StopTensor("input", "0", HEALTH, Sampled(("1", "2"), (0, 2))),),
    "tensor": Shown("[1,\n 2]", HEALTH),
    "values": (ExpressionValue("0.5"), ExpressionValue("it is None", is_known=False)),
    "change": HEALTH,
    "undo": UndoneChange(1, HEALTH),
    "back": WentBack(4, "MulBackward0", 2, ("f in AddBackward0",), ()),
    "ready_nodes": (3, 1),
    "shell": ShellAnswer("2\n", False),
    "complete": ("node", "node.name"),
}
ASKED: list[Request[Any]] = [
    TakeStep(how="hook", thread=3),
    GoUntil(graph_task=1, node=2),
    SetStops(exceptions=False, nonfinite="off"),
    AddBreakpoint(breakpoint=parse("Mul module=encoder")),
    EditBreakpoint(number=1, changes={"enabled": False, "node": None}),
    AskTensor(what="input", name="0", index="[0:3]"),
    AskValues(expressions=("norm", "0.weight.grad is None")),
    AddBreakpoint(breakpoint=parse("when 0.weight.grad.norm() changes 10x log {norm}")),
    RunPython(line="print('\x1b[2J')\n", thread=0),
]


def through(data: object) -> Any:
    """What is received where something is sent."""
    return json.loads(encode({"sent": data}))["sent"]


def test_every_request_has_one_who_carries_it_out() -> None:
    assert {*control._NOW, *at_a_stop._AT_A_STOP, Detach} == set(REQUESTS.values())


@pytest.mark.parametrize("request_", ASKED, ids=lambda each: str(each.DO))
def test_a_request_is_received_as_it_was_sent(request_: Request[Any]) -> None:
    assert read(type(request_), through(write(request_))) == request_


@pytest.mark.parametrize("do", sorted(REQUESTS))
def test_a_reply_is_received_as_it_was_sent_and_checked(do: str) -> None:
    kind, reply = REQUESTS[do], REPLIES.get(do)
    made = kind.__new__(kind)
    sent = through(made.write_reply(reply))
    assert made.read_reply(sent, line=str, lines=str) == reply
    for name in sent:
        for wrong in (sent | {name: {"x": object.__name__}}, {**sent, name: 1.5}):
            with pytest.raises(AgvizError) as caught:
                made.read_reply(wrong, line=str, lines=str)
            assert "\n" not in str(caught.value)
        with pytest.raises(AgvizError):
            made.read_reply({key: sent[key] for key in sent if key != name}, line=str, lines=str)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(line: bytes) -> None:
    with suppress(ProtocolError):
        assert isinstance(decode(line), dict)


def test_a_folder_that_others_can_reach_is_refused(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
        (tmp_path / "agviz").mkdir()
        (tmp_path / "agviz").chmod(0o777)
        with pytest.raises(AgvizError, match="could be reached by others"):
            listening.folder()
        (tmp_path / "agviz").rmdir()
        (tmp_path / "agviz").symlink_to(tmp_path.parent)
        with pytest.raises(AgvizError, match="could be reached by others"):
            listening.folder()
        (tmp_path / "agviz").unlink()
        assert listening.folder().stat().st_mode & 0o777 == 0o700
        for target in ("1", str(tmp_path / "none")):
            with pytest.raises(AgvizError, match=r"does not listen|there is no socket"):
                listening.connect(target)
        (tmp_path / "file").write_text("")
        with pytest.raises(AgvizError, match="nobody listens"):
            listening.connect(str(tmp_path / "file"))


FACTS = {
    **dict.fromkeys(NAMES, 0),
    "nan": 2,
    "norm": 1e4,
    "shape": (7, 3),
    "ndim": 2,
    "dtype": "float32",
    "min": None,
}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("norm > 1e3", True),
        ("nan > 0 and inf == 0", True),
        ("shape[0] == 7", True),
        ("shape == (7, 3) or nan", True),
        ("shape[5] == 7", False),
        ("min < 0", False),
        ("not min < 0", False),
        ("dtype in ('float16', 'bfloat16')", False),
        ("1 < norm / 10 <= 1e3", True),
        ("abs(-norm) - 1e4 == 0", True),
        ("norm / zero > 1", False),
        ("'a' * 1000000000", False),
        ("nan % 2", False),
    ],
)
def test_conditions_hold_or_do_not(text: str, holds: bool) -> None:
    assert Condition(text).holds(Facts(FACTS)) is holds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "norm >",
        "norm = 3",
        "grad > 3",
        "fc.weight.grad",
        "fc.weight.grad > 3",
        "fc.weight + 1 > 3",
        "fc.weight.grad.data.norm() > 3",
        "fc.weight.__class__ is None",
        "fc.weight.numpy().any()",
        "fc.weight.norm(p=1) > 3",
        "fc.weight.norm(1) > 3",
        "fc.weight.norm > 3",
        "norm.norm.norm",
        "().__class__.__base__",
        "input > 3",
        "input[0:1].norm() > 3",
        "input[norm].norm() > 3",
        "fc[0].norm() > 3",
        "parameter(norm)",
        "getattr(norm, 'real')",
        "norm is 3",
        "norm is not shape",
        "9 ** 9 ** 9 ** 9",
        "1 << 99999999",
        "'a' @ 3",
        "ʘ0.weight.norm() > 3",
        "norm ** 2",
        "norm.real",
        "norm()",
        "__import__('os').system('true')",
        "[n for n in shape]",
        "(lambda: 1)()",
        "shape[0:1]",
        "dtype[0]",
        "f'{norm}'",
        "norm if nan else 1",
        "x := 3",
        "abs(norm, 1)",
        "abs(*shape)",
        "norm\x00",
        "9" * 400,
        "1" * 501,
        "~" * 400 + "1",
        "-" * 100 + "1",
        "(" * 300,
        "b'a' == 1",
        "...",
        "1j",
    ],
)
def test_a_bad_condition_gives_one_sentence(text: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        Condition(text)
    assert 10 < len(str(caught.value)) < 1_500
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@given(st.text(max_size=60))
def test_any_text_is_a_condition_or_gives_one_sentence(text: str) -> None:
    with suppress(ExpressionError):
        assert Condition(text).holds(Facts(FACTS)) in {True, False}


ROUND_TRIPS = [
    "hit=3 when 0.weight.grad.norm() changes 10x",
    "when fc.weight.grad.norm() > 1e3",
    "name=Mul if norm > 3 log norm is {norm} of {fc.weight.norm()}",
    "name=Mul",
    "name=M module=e.0 parameter=w seq=0 node=0 line=t.py:3 device=-1 hit=3 ignore=2 if norm > 1e3",
    "name=M event=QueuePop",
    "line=a/b.py:7 if shape[0] == 7",
]


@pytest.mark.parametrize("text", ROUND_TRIPS)
def test_a_breakpoint_survives_its_text_and_its_json(text: str) -> None:
    made = parse(text)
    assert made.describe() == text
    assert parse(made.describe()) == made
    assert Breakpoint.from_json(json.loads(json.dumps(made.to_json()))) == made


@pytest.mark.parametrize(
    "text",
    [
        *("", "if", "name=", "if (", "(", "seq=x", "seq=1 seq=2", "colour=red", "event=Nothing"),
        *("line=train.py", "line=train.py:0", "hit=0 name=a", "ignore=-1 name=a", "hit=3"),
        *("name=a node=99999999999999999999", "x" * 400, " ".join(["a"] * 50), "a b"),
    ],
)
def test_what_is_no_breakpoint_gives_one_sentence(text: str) -> None:
    with pytest.raises(AgvizError) as caught:
        parse(text)
    assert str(caught.value).count("\n") == 0


PROGRAM = "/elsewhere/train.py"


def test_breakpoints_are_kept_for_a_project(tmp_path: Path) -> None:
    kept = BreakpointFile(tmp_path, PROGRAM)
    assert kept.load() == []
    kept.save([])
    assert not (tmp_path / PLACE).exists()
    wanted = [parse(text).changed(enabled=False, number=3, hits=9) for text in ROUND_TRIPS]
    kept.save([*wanted, parse("Mul", temporary=True)])
    loaded = BreakpointFile(tmp_path, PROGRAM).load()
    assert loaded == [each.changed(number=0, hits=0) for each in wanted]
    assert [path.name for path in (tmp_path / PLACE).parent.iterdir()] == ["breakpoints.json"]


def test_breakpoints_belong_to_a_program(tmp_path: Path) -> None:
    train, other, module = (
        BreakpointFile(tmp_path, program)
        for program in (str(tmp_path / "train.py"), "/far/train.py", "-m package.train")
    )
    train.save([parse("train.py:33")])
    other.save([parse("Mul")])
    module.save([parse("Add"), parse("Exp")])
    assert [each.describe() for each in train.load()] == ["line=train.py:33"]
    assert [each.describe() for each in other.load()] == ["name=Mul"]
    assert [each.describe() for each in module.load()] == ["name=Add", "name=Exp"]
    other.save([])
    document = json.loads((tmp_path / PLACE).read_text())
    assert list(document["programs"]) == ["-m package.train", "train.py"]
    moved = tmp_path.with_name(f"{tmp_path.name} moved")
    tmp_path.rename(moved)
    try:
        found = BreakpointFile(moved, str(moved / "train.py")).load()
    finally:
        moved.rename(tmp_path)
    assert [each.describe() for each in found] == ["line=train.py:33"]


def test_breakpoints_of_an_older_agviz_are_off_until_somebody_wants_them(tmp_path: Path) -> None:
    path = tmp_path / PLACE
    path.parent.mkdir()
    old = [parse("train.py:33"), parse("Mul if norm > 3"), parse("Exp")]
    path.write_text(json.dumps({"version": 1, "breakpoints": [each.to_json() for each in old]}))
    train = BreakpointFile(tmp_path, str(tmp_path / "train.py"))
    found = train.load()
    assert found == train.unclaimed == [each.changed(enabled=False) for each in old]
    train.save([found[0].changed(enabled=True, number=1), found[1].changed(number=2)])
    again = BreakpointFile(tmp_path, str(tmp_path / "train.py"))
    assert [(each.describe(), each.enabled) for each in again.load()] == [
        ("line=train.py:33", True),
        ("name=Mul if norm > 3", False),
    ]
    other = BreakpointFile(tmp_path, str(tmp_path / "other.py"))
    assert other.load() == other.unclaimed == [found[1]]


HOSTILE: dict[str, bytes] = {
    "no JSON": b"{",
    "no text": b"\xff\xfe",
    "too deep": b"[" * 100_000,
    "too large": b" " * 1_000_001,
    "another thing": b"[]",
    "no list": b'{"version": 1, "breakpoints": 7}',
    "another version": b'{"version": 3, "breakpoints": []}',
    "no programs": b'{"version": 2, "breakpoints": []}',
    "no list for a program": b'{"version": 2, "programs": {"a.py": 7}}',
    "no object for a program": b'{"version": 2, "programs": {"a.py": [7]}}',
    "too many programs": json.dumps(
        {"version": 2, "programs": {f"{i}.py": [{"name": "a"}] for i in range(1_001)}}
    ).encode(),
    "expressions that are no list": b'{"version": 2, "programs": {}, "watches": {"a.py": 7}}',
    "an expression that is none": b'{"version": 2, "programs": {}, "watches": {"a.py": ["a"]}}',
    "a wrong expression": (
        b'{"version": 2, "programs": {}, "watches": {"a.py": [{"watch": "exec(1)"}]}}'
    ),
    "a wrong bound": b'{"version": 2, "programs": {"a.py": [{"when": "norm > 3"}]}}',
    "a wrong log point": b'{"version": 2, "programs": {"a.py": [{"name": "a", "log": "{"}]}}',
    "no object": b'{"version": 1, "breakpoints": [7]}',
    "an unknown field": b'{"version": 1, "breakpoints": [{"name": "a", "exec": "b"}]}',
    "a wrong type": b'{"version": 1, "breakpoints": [{"name": ["a"]}]}',
    "a wrong condition": b'{"version": 1, "breakpoints": [{"condition": "exec(1)"}]}',
    "too many": b'{"version": 1, "breakpoints": [' + b'{"name":"a"},' * 1_001 + b'{"name":"a"}]}',
}


@pytest.mark.parametrize("sort", HOSTILE)
def test_a_file_that_is_not_ours_is_left_untouched(sort: str, tmp_path: Path) -> None:
    path = tmp_path / PLACE
    path.parent.mkdir()
    path.write_bytes(HOSTILE[sort])
    kept = BreakpointFile(tmp_path, PROGRAM)
    with pytest.raises(AgvizError) as caught:
        kept.load()
    assert str(caught.value).count("\n") == 0
    with pytest.raises(AgvizError, match="left as it is"):
        kept.save([parse("Mul")])
    assert path.read_bytes() == HOSTILE[sort]


def test_a_pipe_or_a_folder_in_the_files_place_holds_nobody_up(tmp_path: Path) -> None:
    path = tmp_path / PLACE
    path.parent.mkdir()
    os.mkfifo(path)
    with pytest.raises(AgvizError, match="it is no file"):
        BreakpointFile(tmp_path, PROGRAM).load()
    path.unlink()
    path.mkdir()
    with pytest.raises(AgvizError):
        BreakpointFile(tmp_path, PROGRAM).load()


def test_numbers_of_breakpoints_are_not_given_twice() -> None:
    debugger = Debugger(subject=None)  # type: ignore[arg-type]
    first = debugger.add_breakpoint(parse("a"))
    debugger.remove_breakpoint(first.number)
    assert debugger.add_breakpoint(parse("a")).number == 2
    with pytest.raises(BreakpointError, match="can't be changed"):
        debugger.edit_breakpoint(2, {"number": 1})


def test_capitals_count_where_a_name_has_some() -> None:
    def finds(pattern: str, name: str) -> bool:
        facts = NodeIdentity(0, name, 7, -1, "", "", ())
        return parse(pattern).asks_for(facts)

    leaf = "torch::autograd::AccumulateGrad"
    assert finds("Mul", "MulBackward0")
    assert not finds("Mul", leaf)
    assert finds("mul", "MulBackward0")
    assert finds("mul", leaf)
    assert finds(r"\Sul", leaf)  # a class of characters is no capital
