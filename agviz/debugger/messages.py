"""What goes through the channel: every request, every reply and every notice, declared once.

Both ends write and read them by these declarations (:mod:`agviz.debugger.protocol`): a message with
a field that is missing or is something else is refused where it arrives. A request names its reply:
``class AskTensor(AtAStop[Shown], do="tensor")``. Needs no torch.
"""

# ruff: noqa: TC003 - the types of fields are looked up when a message comes
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, Literal, TypeVar, get_args

from agviz.debugger.breakpoints import Breakpoint
from agviz.debugger.protocol import Clean, Paragraph, ProtocolError, read_part, write
from agviz.measure.values import Health

How = Literal["node", "event", "hook"]
"""How far one step goes: to the next node, the next event, or past the node's next hook."""
Hold = Literal["all", "one"]
HOLDS: Final[tuple[Hold, ...]] = get_args(Hold)
"""Whom a stop holds: all threads, or only the one that stops."""
Nonfinite = Literal["first", "every", "off"]
NONFINITE: Final[tuple[Nonfinite, ...]] = get_args(Nonfinite)
"""At which non-finite gradients of a graph task to stop."""
TensorKind = Literal["gradient", "output", "input", "grad", "parameter", "saved"]
"""What a tensor can be at a stop: the gradient that the event is about, what the node puts out, was
given, what is in ``.grad`` of its parameter, the parameter, what it had saved."""

R_co = TypeVar("R_co", covariant=True)

# -- notices -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Hello:
    """What a program says of itself first."""

    pid: int
    trace: Path
    """The file that it records into."""
    script: str
    program: str
    """Absolute path of the script, or ``-m MODULE``: whose breakpoints are whose."""
    lines: bool
    """Whether it knows which lines of the forward made its nodes."""


@dataclass(frozen=True, kw_only=True)
class Stopped:
    """A thread is stopped behind an event."""

    thread: int
    graph_task: int
    seq: int
    """Of the event; all up to it can be read from the trace."""
    event: str
    """Kind of the event. ``NodeStarted``: before the node runs."""
    reasons: tuple[str, ...]
    """``breakpoint``, ``step``, ``until``, ``pause``, ``first backward``, ``exception``,
    ``non-finite``, ``set_trace()``."""
    breakpoints: tuple[int, ...]
    """Numbers of those that were hit."""
    details: Mapping[str, int | Paragraph | bool]
    """The other fields of the event."""
    passed: tuple[str, ...] = ()
    """What passed the bounds of data breakpoints: which bound, from which value to which."""
    node: int | None = None
    """None: the event is about no node; so are the next, then empty or None."""
    name: str = ""
    sequence_nr: int | None = None
    device: int | None = None
    module: str = ""
    parameter: str = ""
    line: str = ""
    """Where the forward made the node, as ``file.py:12``; empty: not known."""
    function: str = ""

    @property
    def is_before_a_node(self) -> bool:
        """Whether gradients can be changed and hooks left out."""
        return self.event == "NodeStarted"


@dataclass(frozen=True, kw_only=True)
class Said:
    """Something else that the program said."""

    what: str
    """``resumed``: a stopped thread runs on by itself; ``ended``: the program ends and its trace is
    complete; ``refused``: another viewer is attached; ``gone``: the connection has ended."""
    why: str = ""
    thread: int | None = None


@dataclass(frozen=True, kw_only=True)
class Logged:
    """A log point was hit; the program runs on."""

    breakpoint: int
    """Its number."""
    text: str
    graph_task: int
    node: int | None = None
    """None: the event is about no node."""
    name: str = ""
    left_out: int = 0
    """How many before this one were not sent, because there were too many a second."""


Notice = Stopped | Said | Logged


def as_said(notice: Hello | Notice) -> dict[str, Any]:
    """A notice as it goes through the channel."""
    found: dict[str, Any] = write(notice)
    if isinstance(notice, Said):
        return {"say": found.pop("what"), **found}
    return {"say": type(notice).__name__.lower(), **found}


# -- replies -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stops:
    """Where to stop without a breakpoint, and whom a stop holds."""

    first: bool
    exceptions: bool
    nonfinite: Nonfinite
    hold: Hold


@dataclass(frozen=True)
class Sampled:
    """Some of a tensor's elements, see :mod:`agviz.debugger.sampling`."""

    first: tuple[str, ...]
    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        if min(self.counts, default=0) < 0:
            raise ProtocolError("'counts' are no counts")


@dataclass(frozen=True)
class StopTensor:
    """A tensor that can be looked at."""

    what: TensorKind
    name: str
    """Number of the slot, or torch's name of what was saved."""
    health: Health
    sample: Sampled | None = None
    """None: none was asked for, or its elements can't be looked at."""


@dataclass(frozen=True)
class Shown:
    """A part of a tensor."""

    text: Paragraph
    health: Health


@dataclass(frozen=True)
class ExpressionValue:
    """What an expression is worth at a stop."""

    text: str
    """Where it has no value: why."""
    is_known: bool = True


@dataclass(frozen=True)
class UndoneChange:
    """The gradient that a node is given again."""

    slot: int
    health: Health | None
    """None: it is given none."""


@dataclass(frozen=True)
class WentBack:
    """To where a pass goes back, and what is not undone by that."""

    node: int
    """Index of the node that runs again first."""
    name: str
    nodes: int
    """How many run again."""
    python: tuple[str, ...]
    """Nodes that ran Python of the program: what that did outside is as it was."""
    against: tuple[str, ...]
    """Why the second run may differ; empty where it was not forced."""


@dataclass(frozen=True)
class ShellAnswer:
    """What Python printed."""

    output: Paragraph
    more: bool
    """Whether it needs another line to be whole."""


# -- requests ----------------------------------------------------------------------------------


class Request(Generic[R_co]):
    """Base of the requests; ``R_co`` is the reply, None: it says only that it is done.

    A reply that has no names itself goes through the channel under the one that is given.
    """

    DO: ClassVar[str]
    REPLY: ClassVar[Any]
    UNDER: ClassVar[str]

    def __init_subclass__(cls, do: str = "", under: str = "") -> None:
        super().__init_subclass__()
        if do:
            (base,) = cls.__dict__["__orig_bases__"]
            cls.DO, cls.UNDER, (cls.REPLY,) = do, under, get_args(base)
            REQUESTS[do] = cls

    def write_reply(self, reply: object) -> dict[str, Any]:
        """A reply as it goes through the channel."""
        written = {} if reply is None else write(reply)
        return {self.UNDER: written} if self.UNDER else written

    def read_reply(self, message: object, *, line: Clean, lines: Clean) -> R_co:
        """A reply that came, checked; see :func:`agviz.debugger.protocol.read`."""
        reply: R_co = read_part(self.REPLY, message, self.UNDER, line=line, lines=lines)
        return reply


REQUESTS: Final[dict[str, type[Request[Any]]]] = {}
"""By the word that says what is to be done."""


@dataclass(frozen=True, kw_only=True)
class AtAStop(Request[R_co], Generic[R_co]):
    """Base of the requests that a stopped thread carries out itself."""

    thread: int | None = None
    """None: the one that stopped last."""


@dataclass(frozen=True, kw_only=True)
class Detach(Request[None], do="detach"):
    """Let the program run on without a viewer."""


@dataclass(frozen=True, kw_only=True)
class TakeStep(Request[None], do="step"):
    """Run on to the next node, event or hook, of one thread or of any."""

    how: How = "node"
    thread: int | None = None


@dataclass(frozen=True, kw_only=True)
class GoOn(Request[None], do="continue"):
    """Run on, in one thread or in all."""

    thread: int | None = None


@dataclass(frozen=True, kw_only=True)
class GoUntil(Request[None], do="until"):
    """Have a stopped thread run on to a node, or the end of its graph task."""

    graph_task: int
    node: int
    thread: int | None = None


@dataclass(frozen=True, kw_only=True)
class PauseProgram(Request[None], do="pause"):
    """Stop at the next event of a thread, or of any."""

    thread: int | None = None


@dataclass(frozen=True, kw_only=True)
class Interrupt(Request[None], do="interrupt"):
    """End the Python that a stopped thread runs, with KeyboardInterrupt."""


@dataclass(frozen=True, kw_only=True)
class SetStops(Request[Stops], do="set_stops"):
    """Choose where to stop without a breakpoint, and whom a stop holds; None: as it is."""

    first: bool | None = None
    exceptions: bool | None = None
    nonfinite: Nonfinite | None = None
    hold: Hold | None = None


@dataclass(frozen=True, kw_only=True)
class AskWhere(Request[tuple[Stopped, ...]], do="where", under="stops"):
    """Which threads are stopped."""


@dataclass(frozen=True, kw_only=True)
class AskBreakpoints(Request[tuple[Breakpoint, ...]], do="breakpoints", under="breakpoints"):
    """Which breakpoints there are."""


@dataclass(frozen=True, kw_only=True)
class AddBreakpoint(Request[Breakpoint], do="add_breakpoint", under="breakpoint"):
    """Stop there from now on."""

    breakpoint: Breakpoint


@dataclass(frozen=True, kw_only=True)
class EditBreakpoint(Request[Breakpoint], do="edit_breakpoint", under="breakpoint"):
    """Change some of what it says."""

    number: int
    changes: Mapping[str, object]
    """By the names of its fields; it checks them itself."""


@dataclass(frozen=True, kw_only=True)
class RemoveBreakpoint(Request[Breakpoint], do="remove_breakpoint", under="breakpoint"):
    """Stop there no longer."""

    number: int


@dataclass(frozen=True, kw_only=True)
class AskTensors(AtAStop[tuple[StopTensor, ...]], do="tensors", under="tensors"):
    """Which tensors can be looked at."""

    samples: bool = False
    """Whether some of their elements are sent, too."""


@dataclass(frozen=True, kw_only=True)
class AskTensor(AtAStop[Shown], do="tensor"):
    """A part of one of them."""

    what: str
    """What it is."""
    name: str
    index: str = ""
    """As between brackets: ``0, 2:5``; empty: all."""


@dataclass(frozen=True, kw_only=True)
class AskValues(AtAStop[tuple[ExpressionValue, ...]], do="values", under="values"):
    """What expressions are worth; see :mod:`agviz.debugger.expressions`."""

    expressions: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ChangeGradient(AtAStop[Health], do="change", under="health"):
    """Give the node another gradient than the one that came to a slot."""

    slot: int
    how: str
    """``multiply``, ``fill`` or ``set``."""
    value: str
    """The number."""
    index: str = ""
    """For ``set``: which elements."""


@dataclass(frozen=True, kw_only=True)
class UndoChange(AtAStop[UndoneChange], do="undo"):
    """Take back the last change of a gradient at a stop."""


@dataclass(frozen=True, kw_only=True)
class GoBackTo(AtAStop[WentBack], do="back"):
    """Have the pass stop before a node that ran already."""

    node: int | None = None
    """None: the one that ran last."""
    force: bool = False
    """Also where what ran since then can't be undone."""


@dataclass(frozen=True, kw_only=True)
class SkipHooks(AtAStop[None], do="skip_hooks"):
    """Have none of the node's Python hooks called."""


@dataclass(frozen=True, kw_only=True)
class AskReadyNodes(AtAStop[tuple[int, ...]], do="ready_nodes", under="nodes"):
    """Which nodes wait in the queue of the stopped node."""


@dataclass(frozen=True, kw_only=True)
class RunNext(AtAStop[None], do="run_next"):
    """Have a ready node run right after the stopped one."""

    node: int


@dataclass(frozen=True, kw_only=True)
class RunPython(AtAStop[ShellAnswer], do="shell"):
    """Run a line of Python, or several at once."""

    line: str


@dataclass(frozen=True, kw_only=True)
class CompletePython(AtAStop[tuple[str, ...]], do="complete", under="names"):
    """What the name or attribute at the end of some Python could become."""

    text: str
