"""The one thread that reads traces: it takes requests and posts what it found as messages.

Everything it posts is plain data of the receiver's own. Requests are served in order, but moves
of the playhead that came in together end in one moment, and of several requests for a node's
story only the last is served: a key that is held down never queues up work. The outline of a graph
task is read piece by piece; behind each piece comes whatever was asked for meanwhile. A file that
grows is looked at now and then, the less often the longer that takes.
"""

from __future__ import annotations

import queue
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from textual.message import Message

from agviz.errors import AgvizError
from agviz.traces.reader import Trace
from agviz.traces.rows import GraphTaskStatus
from agviz.tui.columns import OutlineColumns
from agviz.tui.crossing import onward, to_stop
from agviz.tui.model import PAGE, Key, LoadedPass, Moment, NodeDetails, Playhead
from agviz.tui.node_details import read_node_details
from agviz.tui.passes import CUT_BEHIND, Findings, Order, cut_behind, marked_place
from agviz.tui.relatives import next_nonfinite
from agviz.tui.seeking import Search, Sought
from agviz.tui.track import TraceTrack
from agviz.tui.watching import FileWatch
from agviz.tui.worker import Replied, Worker

if TYPE_CHECKING:
    from pathlib import Path

    from agviz.analysis.verdict import Verdict
    from agviz.traces.graph_tasks import GraphTasks
    from agviz.traces.outline import Piece
    from agviz.tui.crossing import Landing
    from agviz.tui.model import Beyond
    from agviz.tui.seeking import Match
    from agviz_engine.events import Event

_FIRST_PIECE: Final = 300
_PIECE: Final = 2_000
_STORIES_KEPT: Final = 32
_AROUND: Final = -50, 50
"""Events before and after the playhead that a screen has room for."""
_BETWEEN_NEWS_S: Final = 0.15
"""Between two words on how a search goes."""

T = TypeVar("T")
Move = Callable[[Playhead], None]


@dataclass
class Listed(Message):
    """The files were opened, or hold more; these are their graph tasks, file by file."""

    tasks: list[GraphTasks]
    is_anew: bool
    """Whether the files were opened; False: they hold more, or the playhead is where it was."""
    is_growing: bool
    """Whether a program writes to one of them."""
    wrong: list[int]
    """With how many outermost passes something is not as it should be, file by file; of a file that
    grows, when it was last asked for."""
    start: Start | None
    """Where to begin; None: at the beginning."""
    found: tuple[Verdict, ...]
    """What is to be said where there is no graph task, and nothing more to come."""


@dataclass
class FileGrown(Message):
    """More was written to a file."""

    file: int


class Start(NamedTuple):
    """A place in one of the files."""

    key: Key
    seq: int
    """Of the event behind which it is; -1: the beginning."""
    why: str
    """Why one begins there."""


class Filter(NamedTuple):
    """Which events are listed."""

    text: str
    """As the user wrote it."""
    kinds: frozenset[type[Event]]
    """Empty: all, unless ``nonfinite``."""
    thread: int | None
    node: int | None
    nonfinite: bool = False
    """Whether checks are listed that found NaN or infinities, beside the kinds."""


@dataclass
class Filtered(Message):
    """The events that a filter lets through."""

    key: Key
    filter: Filter
    seqs: array[int]


@dataclass
class Loaded(Message):
    """A graph task was opened."""

    recording: LoadedPass
    moment: Moment
    """Of its beginning; of a graph task that was opened before, where the playhead was."""
    follows: bool
    """Whether the playhead stays at the end."""
    why: str = ""
    """Why the playhead is there; empty: the user has put it there."""
    match: Match | None = None
    """The node that was sought here."""
    story: NodeDetails | None = None
    """Of that node, of the moment's, or of the first one: it comes in the same picture."""


@dataclass
class Grown(Message):
    """More of a graph task was read, or it has gone on."""

    recording: LoadedPass
    """It shares its columns with the one that was loaded."""
    pieces: list[Piece]
    """To be added to its columns."""


@dataclass
class PlayheadMoved(Message):
    """The playhead was asked to move and is here now."""

    key: Key
    moment: Moment
    moved: bool
    """False where it was there before."""
    story: NodeDetails | None
    """Of the moment's node."""
    said: str = ""
    """Why it is no further; empty: it is where it was asked to be."""


@dataclass
class PageRead(Message):
    """Events ``page * PAGE`` and following; of those that a filter lets through, if any."""

    key: Key
    page: int
    filter: Filter | None
    positions: list[int]
    """Number of events of the graph task before each."""
    events: list[Event]


@dataclass
class StoryRead(Message):
    """A node was read."""

    key: Key
    story: NodeDetails


@dataclass
class Located(Message):
    """The event with ``seq`` is at ``offset``."""

    key: Key
    seq: int
    offset: int


@dataclass
class ReadFailed(Message):
    """A file could not be read; the sentence says which and why."""

    sentence: str


@dataclass
class ReaderCrashed(Message):
    """The thread ended with an error that is ours."""

    error: Exception


_LEFT_OUT: Final = (
    "this backward pass is no longer in the file, which keeps the first, the last and the failed"
    " ones; choose another, or record with a larger --max-bytes"
)


def _said_of(trace: Trace) -> tuple[Verdict, ...]:
    from agviz.analysis.verdict import verdicts

    return verdicts(trace)


def _extent(tasks: GraphTasks) -> tuple[int, int]:
    return len(tasks), tasks.ids[-1] if tasks else -1


class ReaderThread(Worker):
    """Owns the open traces.

    Args:
        paths: the files.
        post: where messages go; called on this thread.
    """

    def __init__(self, paths: Sequence[Path], post: Callable[[Message], object]) -> None:
        super().__init__("agviz-reader", post)
        self._paths = [*paths]
        self._requests.put(self._open)
        self._moves: queue.SimpleQueue[Move] = queue.SimpleQueue()
        self._story: int | None = None
        self._traces: list[Trace] = []
        self._watches: list[FileWatch] = []
        self._tasks: list[tuple[int, int]] = []
        """Of each file, when they were last listed: how many graph tasks, and the last of them."""
        self._said_left_out: Key | None = None
        self._recording: LoadedPass | None = None
        self._track: TraceTrack
        self._playhead: Playhead
        self._follows = False
        self._stories: dict[tuple[Key, int, int], NodeDetails] = {}
        """Those posted last, by graph task, its number of events and node."""
        self._near: set[int] = set()
        """Pages around the playhead, or what was last located, that were posted."""
        self._filter_now: Filter | None = None
        self._filtered = array("q")
        self._orders: list[Order] = []
        """Of the graph tasks of each file."""
        self._findings: dict[int, Findings] = {}
        """By file, as of when they were last asked for."""
        self._search: Search | None = None
        self._search_said_at = 0.0

    def load(self, key: Key) -> None:
        """Open a graph task: posts :class:`Loaded`, and :class:`Grown` as it is read on."""
        self._requests.put(lambda: self._load_and_stay(key))

    def begin(self, start: Start) -> None:
        """Open a graph task with the playhead at a place of it: posts the same."""
        self._requests.put(lambda: self._load(start.key, self._behind(start), why=start.why))

    def move(self, move: Move) -> None:
        """Move the playhead of the loaded graph task: posts :class:`PlayheadMoved`."""
        self._moves.put(move)
        self._requests.put(self._move)

    def travel(self, count: int, *, thread: int | None, nodes: bool) -> None:
        """Move the playhead by events of the whole process, into whichever graph task.

        Args:
            count: number of events; negative: backwards.
            thread: count only what this thread did; None: any.
            nodes: count only where a node was taken up.
        """
        self._requests.put(lambda: self._travel(count, thread, nodes=nodes))

    def go(self, graph_task: int, seq: int) -> None:
        """Move the playhead behind an event, which may be of another graph task."""
        self._requests.put(lambda: self._go(graph_task, seq))

    def to_nonfinite(self) -> None:
        """Find the next first non-finite gradient: posts :class:`NonfiniteFound`."""
        self._requests.put(self._find_nonfinite)

    def search(self, wanted: str, by: int) -> None:
        """Seek a name in the other graph tasks: posts :class:`Sought`, and opens the one found."""
        self._requests.put(lambda: self._seek(wanted, by))

    def stop_search(self) -> None:
        """Leave it at that: posts :class:`Sought`."""
        self._requests.put(self._drop_search)

    def follow(self, *, on: bool) -> None:
        """Keep the playhead at the end of a graph task that goes on, or let it be."""
        self._requests.put(lambda: self._follow(on=on))

    def page(self, page: int, which: Filter | None = None) -> None:
        """Read a page of events: posts :class:`PageRead`."""
        self._requests.put(lambda: self._read_page(page, which))

    def filter(self, which: Filter) -> None:
        """Find the events that a filter lets through: posts :class:`Filtered`."""
        self._requests.put(lambda: self._filter(which))

    def story(self, node: int) -> None:
        """Read what happened to a node and what it saved: posts :class:`StoryRead`."""
        self._story = node
        self._requests.put(self._read_story)

    def locate(self, seq: int) -> None:
        """Find where an event is: posts :class:`Located`."""
        self._requests.put(lambda: self._locate(seq))

    def ask(
        self, question: Callable[[Trace, LoadedPass], T | None], then: Callable[[T], None]
    ) -> None:
        """Have a question answered about the loaded graph task: posts :class:`Replied`.

        Args:
            question: called on this thread; None: there is nothing to say.
            then: called with the answer by whoever gets the message.
        """
        self._requests.put(lambda: self._answer(question, then))

    def ask_files(
        self, question: Callable[[Sequence[Trace]], T], then: Callable[[T], None]
    ) -> None:
        """Have a question answered about all files: posts :class:`Replied`."""
        self._requests.put(lambda: self._answer_of_files(question, then))

    def ask_file(
        self, file: int, question: Callable[[Trace], T], then: Callable[[T], None]
    ) -> None:
        """Have a question answered about one of the files: posts :class:`Replied`."""
        self.ask_files(lambda traces: question(traces[file]), then)

    def add(self, path: Path, then: Callable[[int], None]) -> None:
        """Open another file beside the others: posts :class:`Replied` with its number."""
        self._requests.put(lambda: self._add(path, then))

    def poll(self) -> None:
        """Look at once whether the file has grown."""
        self._requests.put(self._poll)

    def reopen(self) -> None:
        """Open the files anew: posts :class:`Listed`; the playhead stays where it was."""
        self._requests.put(self._open)

    def run(self) -> None:
        """Serve requests until :meth:`stop`, then close the files."""
        try:
            super().run()
        except Exception as error:  # noqa: BLE001 - the application raises it
            self._post(ReaderCrashed(error))
        finally:
            for trace in self._traces:
                trace.close()

    @property
    def patience(self) -> float | None:
        """Seconds until the files are looked at again; None: there is nothing to expect."""
        return min((watch.interval for watch in self._watches), default=None)

    def idle(self) -> None:
        """Look whether the files have grown."""
        self.serve(self._poll)

    def serve(self, request: Callable[[], None]) -> None:
        """Do what is asked for; where the file does not allow it, say so."""
        try:
            request()
        except (AgvizError, LookupError, ValueError) as error:
            if self._is_left_out():
                self._post(ReadFailed(_LEFT_OUT))
            elif isinstance(error, AgvizError):
                self._post(ReadFailed(str(error)))
            else:
                raise

    def _is_left_out(self) -> bool:
        """Whether the file no longer holds what is loaded, to keep within its size."""
        key = None if self._recording is None else self._recording.key
        if key is None or key.file >= len(self._traces):
            return False
        try:
            return not self._traces[key.file].graph_tasks.has(key.graph_task)
        except AgvizError:
            return False

    def _open(self) -> None:
        before = self._recording
        for trace in self._traces:
            trace.close()
        self._traces, self._recording = [], None
        self._watches = []
        self._stories.clear()
        self._findings.clear()
        for path in self._paths:
            self._traces.append(Trace.open(path))
            self._watches.append(FileWatch(path, self._traces[-1]))
        is_there = before is not None and self._holds(before)
        self._list(is_anew=not is_there)
        if before is not None and is_there:
            self._load(before.key, self._playhead.position)

    def _answer_of_files(
        self, question: Callable[[Sequence[Trace]], T], then: Callable[[T], None]
    ) -> None:
        self._post(Replied(then, question(self._traces)))

    def _add(self, path: Path, then: Callable[[int], None]) -> None:
        known = [each.absolute() for each in self._paths]
        if path.absolute() not in known:
            trace = Trace.open(path)
            self._paths.append(path)
            self._traces.append(trace)
            self._watches.append(FileWatch(path, trace))
            known.append(path.absolute())
            self._list()
        self._post(Replied(then, known.index(path.absolute())))

    def _holds(self, recording: LoadedPass) -> bool:
        """Whether what was loaded is in the file that has its name now."""
        trace = self._traces[recording.key.file]
        is_there = trace.graph_tasks.has(recording.key.graph_task)
        return is_there and recording.is_of(trace.meta)

    def _list(self, *, is_anew: bool = False) -> None:
        tasks = [trace.graph_tasks for trace in self._traces]
        self._tasks = list(map(_extent, tasks))
        self._orders = [Order(rows) for rows in tasks]
        is_growing = any(trace.is_growing for trace in self._traces)
        files = range(len(self._traces))
        for file in files:
            if is_anew or len(files) > 1 or file not in self._findings:
                self._judge(file)
        wrong = [len(self._findings[file].wrong) for file in files]
        start = self._start() if is_anew else None
        is_empty = is_anew and not is_growing and not any(tasks)
        found = _said_of(self._traces[0]) if is_empty else ()
        self._post(Listed(tasks, is_anew, is_growing, wrong, start, found))

    def _judge(self, file: int) -> Findings:
        """What is unusual in a file as it is now."""
        found, trace = self._findings.get(file), self._traces[file]
        if found is None or found.version != trace.version:
            found = self._findings[file] = Findings(trace)
        return found

    def _start(self) -> Start | None:
        """The first failure or non-finite gradient of any file; else the end of a file cut off."""
        for file, trace in enumerate(self._traces):
            findings = self._findings[file]
            if findings.first is not None:
                mark = findings.marks[findings.first]
                number, seq = marked_place(trace, findings.first, mark)
                return Start(Key(file, number), seq, findings.why(findings.first))
        for file, trace in enumerate(self._traces):
            if (place := cut_behind(trace)) is not None:
                return Start(Key(file, place.graph_task), place.seq, CUT_BEHIND)
        return None

    def _behind(self, start: Start) -> int:
        """The position of a place."""
        if start.seq < 0:
            return 0
        return self._traces[start.key.file].position(start.seq, start.key.graph_task) + 1

    def _load_and_stay(self, key: Key) -> None:
        self._follows = False
        self._drop_search()
        self._load(key)

    def _load(
        self, key: Key, position: int = 0, *, why: str = "", match: Match | None = None
    ) -> None:
        trace = self._traces[key.file]
        number = key.graph_task
        if _extent(trace.graph_tasks) != self._tasks[key.file]:
            self._list()
        event_count = trace.event_count(number)
        outline = trace.outline(number)
        columns = OutlineColumns(outline.nodes)
        columns.add(outline.more(_FIRST_PIECE))
        self._recording = LoadedPass(
            key=key,
            path=trace.path,
            meta=trace.meta,
            task=trace.graph_task(number),
            threads={thread.id: thread for thread in trace.threads},
            columns=columns,
            event_count=event_count,
            is_checked=trace.is_checked(number),
            siblings=self._tasks[key.file][0],
            number=self._orders[key.file].name(number),
        )
        self._near = set()
        self._track = TraceTrack(trace, number, outline)
        self._track.add_stops(columns.stops, columns.until, is_last=columns.is_complete)
        self._playhead = Playhead(self._track)
        if position:
            self._playhead.to_position(min(position, event_count))
        moment = self._moment()
        story = self._story_at(moment, match)
        self._post(Loaded(self._recording, moment, self._follows, why, match, story))
        if not columns.is_complete:
            self._requests.put(lambda: self._read_on(outline))

    def _story_at(self, moment: Moment, match: Match | None) -> NodeDetails | None:
        """Of the node that is looked at first; None: there is none, or it can't be read."""
        node = moment.node if match is None else match.node
        if node is None and len(self._loaded.columns):
            node = self._loaded.columns.node_at(0)
        try:
            return None if node is None else self._story_of(node)
        except AgvizError:  # it is said when the screen asks for it
            return None

    def _read_on(self, outline: object) -> None:
        """Read the next piece of the outline, if it is still the one that is wanted."""
        if self._recording is None or self._track.outline is not outline:
            return
        if not self._track.is_known:
            self._track.read(_PIECE)
        self._post_growth()
        if not self._track.is_known:
            self._requests.put(lambda: self._read_on(outline))
        elif self._loaded.nodes > _PIECE and self._loaded.meta.end_ns is not None:
            self._requests.put(self._warm)

    def _warm(self) -> None:
        """Have what the first state in the midst of a large graph needs, before it is asked for."""
        key, count = self._loaded.key, self._loaded.event_count
        self._traces[key.file].state_at(key.graph_task, count // 2)

    def _post_growth(self) -> None:
        pieces = self._track.take()
        if pieces and self._recording is not None:
            self._post(Grown(self._recording, pieces))

    def _moment(self) -> Moment:
        recording = self._loaded
        key, position = recording.key, self._playhead.position
        trace = self._traces[key.file]
        last = trace.events(key.graph_task, position - 1, 1) if position else []
        return Moment(
            graph_task=key.graph_task,
            position=position,
            event=last[0] if last else None,
            state=trace.state_at(key.graph_task, position),
        )

    @property
    def _loaded(self) -> LoadedPass:
        if self._recording is None:
            raise RuntimeError("no graph task is loaded")
        return self._recording

    def _move(self) -> None:
        if self._recording is None:
            return
        key, before, said = self._recording.key, self._playhead.position, ""
        moves = self._moves.qsize()
        if moves:
            self._drop_search()
        for _ in range(moves):
            self._moves.get()(self._playhead)
            while (beyond := self._playhead.beyond) is not None:
                landing = self._crossing(beyond)
                if landing is None:
                    break
                said = landing.said
                self._enter(landing)
        self._post_growth()
        if moves:
            self._follows = False
            self._arrive(before if self._loaded.key == key else -1, said)

    def _crossing(self, beyond: Beyond) -> Landing | None:
        """Where a move ends that leads beyond the graph task; None: where it is now."""
        file, number = self._loaded.key
        trace, order = self._traces[file], self._orders[file]
        if beyond.kind != "stop":
            return onward(trace, order, number, beyond)
        return to_stop(trace, order, self._judge(file), number, beyond)

    def _enter(self, landing: Landing) -> None:
        key = Key(self._loaded.key.file, landing.graph_task)
        if key != self._loaded.key:
            self._load(key, landing.position)
        else:
            self._playhead.to_position(landing.position)
        if landing.move is not None:
            landing.move(self._playhead)

    def _find_nonfinite(self) -> None:
        if self._recording is not None:
            file = self._loaded.key.file
            findings, order = self._judge(file), self._orders[file]
            number, seq = self._loaded.key.graph_task, self._playhead.seq
            self._post(next_nonfinite(self._traces[file], findings, order, number, seq))

    def _seek(self, wanted: str, by: int) -> None:
        if self._recording is None:
            return
        file, here = self._recording.key
        search = self._search = Search(self._traces[file].graph_tasks, here, wanted, by)
        self._search_said_at = time.monotonic()
        self._requests.put(lambda: self._seek_on(search))

    def _seek_on(self, search: Search) -> None:
        """Look at some more graph tasks, if what is sought is still wanted."""
        if self._search is not search:
            return
        file = self._loaded.key.file
        match = None if search.is_over else search.more(self._traces[file])
        if match is not None:
            self._follows, self._search = False, None
            start = Start(Key(file, match.graph_task), match.seq, "")
            self._load(start.key, self._behind(start), match=match)
            self._post(Sought(""))
        elif search.is_over:
            self._search = None
            self._post(Sought("", is_vain=True, by=search.by))
        else:
            now = time.monotonic()
            if now - self._search_said_at > _BETWEEN_NEWS_S:
                self._search_said_at = now
                name = self._orders[file].name(search.at)
                self._post(Sought(f"searching pass {name} …"))
            self._requests.put(lambda: self._seek_on(search))

    def _drop_search(self) -> None:
        if self._search is not None:
            self._search = None
            self._post(Sought(""))

    def _travel(self, count: int, thread: int | None, *, nodes: bool) -> None:
        if self._recording is None:
            return
        trace, playhead = self._traces[self._loaded.key.file], self._playhead
        seq = playhead.seq if playhead.position else self._loaded.task.begin_seq
        place = trace.near(seq, count, thread=thread, nodes=nodes)
        if place is None:
            self._arrive(playhead.position)
        else:
            self._go(place.graph_task, place.seq)

    def _go(self, graph_task: int, seq: int) -> None:
        if self._recording is None:
            return
        self._follows = False
        self._drop_search()
        file = self._loaded.key.file
        before = self._playhead.position
        if graph_task != self._loaded.key.graph_task:
            before = -1
            self._load(Key(file, graph_task), self._traces[file].position(seq, graph_task) + 1)
        self._playhead.to_seq(seq)
        self._post_growth()
        self._arrive(before)

    def _arrive(self, before: int, said: str = "") -> None:
        trace, number = self._traces[self._loaded.key.file], self._loaded.key.graph_task
        if trace.event_count(number) != self._loaded.event_count:
            self._grow(trace, number)  # or the playhead would be behind more events than there are
        self._read_around(self._playhead.position)
        moment = self._moment()
        story = None if moment.node is None else self._story_of(moment.node)
        moved = self._playhead.position != before
        self._post(PlayheadMoved(self._loaded.key, moment, moved, story, said))

    def _follow(self, *, on: bool) -> None:
        self._follows = on
        if on and self._recording is not None:
            before = self._playhead.position
            self._playhead.to_end()
            if self._playhead.position != before:
                self._arrive(before)

    def _poll(self) -> None:
        began = time.monotonic()
        for file, (trace, watch) in enumerate(zip(self._traces, self._watches, strict=True)):
            news = watch.look()
            if news.has_grown:
                self._post(FileGrown(file))
            recording = self._recording
            if recording is None or recording.key.file != file:
                if news.has_grown and _extent(trace.graph_tasks) != self._tasks[file]:
                    self._list()
                continue
            if news.trouble != recording.trouble:
                self._recording = replace(recording, trouble=news.trouble)
                self._post(Grown(self._recording, []))
            if news.has_grown:
                self._go_on(trace, recording.key.graph_task)
        took = time.monotonic() - began
        for watch in self._watches:
            watch.took(took)

    def _go_on(self, trace: Trace, number: int) -> None:
        """Post what has happened since the file was last looked at."""
        if _extent(trace.graph_tasks) != self._tasks[self._loaded.key.file]:
            self._list()
        if self._is_left_out():
            if self._follows:
                self._load(Key(self._loaded.key.file, trace.graph_tasks.ids[-1]))
            elif self._said_left_out != self._loaded.key:
                self._said_left_out = self._loaded.key
                self._post(ReadFailed(_LEFT_OUT))
            return
        self._grow(trace, number)
        if self._follows:
            newest, task = trace.graph_tasks[-1], trace.graph_task(number)
            if newest.id != number and newest.nodes and task.status is not GraphTaskStatus.RUNNING:
                self._load(Key(self._loaded.key.file, newest.id))
            self._follow(on=True)

    def _grow(self, trace: Trace, number: int) -> None:
        """Post what was written to the loaded graph task."""
        task = trace.graph_task(number)
        if task.nodes != self._loaded.nodes:
            self._load(self._loaded.key, self._playhead.position)
        elif task != self._loaded.task or trace.event_count(number) != self._loaded.event_count:
            self._recording = replace(
                self._loaded,
                meta=trace.meta,
                task=task,
                threads={thread.id: thread for thread in trace.threads},
                event_count=trace.event_count(number),
                is_checked=trace.is_checked(number),
                siblings=self._tasks[self._loaded.key.file][0],
                number=self._orders[self._loaded.key.file].name(number),
            )
            self._track.read(_PIECE)
            self._post(Grown(self._recording, self._track.take()))
            if not self._track.is_known:
                outline = self._track.outline
                self._requests.put(lambda: self._read_on(outline))

    def _read_around(self, position: int) -> None:
        """Have the events around a place on the screen as soon as the cursor is there."""
        places = [max(0, min(position + by, self._loaded.event_count - 1)) for by in _AROUND]
        near = {place // PAGE for place in places}
        for page in sorted(near - self._near):
            self._read_page(page, None)
        self._near = near

    def _read_page(self, page: int, which: Filter | None) -> None:
        if self._recording is None:
            return
        key = self._recording.key
        trace, begin = self._traces[key.file], page * PAGE
        if which is None:
            events = trace.events(key.graph_task, begin, PAGE)
            positions = list(range(begin, begin + len(events)))
        elif which != self._filter_now:
            return  # its answer is on the way
        else:
            seqs = self._filtered[begin : begin + PAGE]
            events = trace.events_of(seqs)
            positions = [trace.position(seq, key.graph_task) for seq in seqs]
        self._post(PageRead(key, page, which, positions, events))

    def _filter(self, which: Filter) -> None:
        if self._recording is not None:
            key = self._recording.key
            found = self._traces[key.file].seqs_where(
                key.graph_task, which.kinds, which.thread, which.node, nonfinite=which.nonfinite
            )
            self._filter_now, self._filtered = which, array("q", found)
            self._post(Filtered(key, which, self._filtered))

    def _read_story(self) -> None:
        node, self._story = self._story, None
        if node is not None and self._recording is not None:
            self._post(StoryRead(self._recording.key, self._story_of(node)))

    def _story_of(self, node: int) -> NodeDetails:
        key, count = self._loaded.key, self._loaded.event_count
        known = self._stories.pop((key, count, node), None)
        if known is None:
            known = read_node_details(
                self._traces[key.file], self._track.outline, key.graph_task, node
            )
        self._stories[key, count, node] = known
        if len(self._stories) > _STORIES_KEPT:
            del self._stories[next(iter(self._stories))]
        return known

    def _locate(self, seq: int) -> None:
        if self._recording is not None:
            key = self._recording.key
            offset = self._traces[key.file].position(seq, key.graph_task)
            self._read_around(offset)
            self._post(Located(key, seq, offset))

    def _answer(
        self, question: Callable[[Trace, LoadedPass], T | None], then: Callable[[T], None]
    ) -> None:
        if self._recording is not None:
            answer = question(self._traces[self._recording.key.file], self._recording)
            if answer is not None:
                self._post(Replied(then, answer))
