"""The one thread that reads traces: it takes requests and posts what it found as messages.

Everything it posts is plain data of the receiver's own. Requests are served in order, but moves
of the playhead that came in together end in one moment, and of several requests for a node's
story only the last is served: a key that is held down never queues up work.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.message import Message

from agviz.errors import AgvizError
from agviz.traces.reader import Trace
from agviz.traces.rows import NodeStatus
from agviz.tui.model import PAGE, Key, Moment, Playhead, Recording, Story
from agviz_engine.events import Event, NodeFailed

if TYPE_CHECKING:
    from pathlib import Path

    from agviz.traces.rows import GraphTaskRow

Move = Callable[[Playhead], None]


@dataclass
class Listed(Message):
    """The files were opened; these are their graph tasks, file by file."""

    tasks: list[list[GraphTaskRow]]


@dataclass
class Loaded(Message):
    """A graph task was read; the playhead stands at its beginning."""

    recording: Recording
    moment: Moment


@dataclass
class Arrived(Message):
    """The playhead was asked to move and stands here now."""

    key: Key
    moment: Moment
    moved: bool
    """False where it was there before."""
    story: Story | None
    """Of the moment's node."""


@dataclass
class PageRead(Message):
    """Events ``page * PAGE`` and following."""

    key: Key
    page: int
    events: list[Event]


@dataclass
class StoryRead(Message):
    """A node was read."""

    key: Key
    story: Story


@dataclass
class Located(Message):
    """The event with ``seq`` stands at ``offset``."""

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


class ReaderThread(threading.Thread):
    """Owns the open traces.

    Args:
        paths: the files.
        post: where messages go; called on this thread.
    """

    def __init__(self, paths: Sequence[Path], post: Callable[[Message], object]) -> None:
        super().__init__(name="agviz-reader", daemon=True)
        self._paths = paths
        self._post = post
        self._requests: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._requests.put(self._open)
        self._moves: queue.SimpleQueue[Move] = queue.SimpleQueue()
        self._story: int | None = None
        self._traces: list[Trace] = []
        self._recording: Recording
        self._playhead: Playhead

    def load(self, key: Key) -> None:
        """Read a graph task: posts :class:`Loaded`."""
        self._requests.put(lambda: self._load(key))

    def move(self, move: Move) -> None:
        """Move the playhead of the loaded graph task: posts :class:`Arrived`."""
        self._moves.put(move)
        self._requests.put(self._move)

    def page(self, page: int) -> None:
        """Read a page of events: posts :class:`PageRead`."""
        self._requests.put(lambda: self._read_page(page))

    def story(self, node: int) -> None:
        """Read what happened to a node and what it saved: posts :class:`StoryRead`."""
        self._story = node
        self._requests.put(self._read_story)

    def locate(self, seq: int) -> None:
        """Find where an event stands: posts :class:`Located`."""
        self._requests.put(lambda: self._locate(seq))

    def stop(self) -> None:
        """Close the files when everything asked for was done."""
        self._requests.put(None)

    def wait(self) -> bool:
        """Block until every request was served; True where there was nothing to wait for."""
        if self._requests.unfinished_tasks == 0:
            return True
        self._requests.join()
        return False

    def run(self) -> None:
        """Serve requests until :meth:`stop`."""
        try:
            while (request := self._requests.get()) is not None:
                self._serve(request)
                self._requests.task_done()
        except Exception as error:  # noqa: BLE001 - the application raises it
            self._post(ReaderCrashed(error))
        finally:
            for trace in self._traces:
                trace.close()

    def _serve(self, request: Callable[[], None]) -> None:
        try:
            request()
        except AgvizError as error:
            self._post(ReadFailed(str(error)))

    def _open(self) -> None:
        for path in self._paths:
            self._traces.append(Trace.open(path))
        self._post(Listed([trace.graph_tasks for trace in self._traces]))

    def _load(self, key: Key) -> None:
        trace = self._traces[key.file]
        number = key.graph_task
        nodes = trace.nodes(number)
        event_count = trace.event_count(number)
        failures = [
            event.seq
            for node in nodes
            if node.status is NodeStatus.FAILED
            for event in trace.story(number, node.index)
            if isinstance(event, NodeFailed) and event.node == node.index
        ]
        findings = [found.seq for found in trace.nonfinite(number, limit=max(event_count, 1))]
        self._recording = Recording(
            key=key,
            path=trace.path,
            meta=trace.meta,
            task=trace.graph_task(number),
            threads={thread.id: thread for thread in trace.threads},
            nodes=nodes,
            edges=trace.edges(number),
            executions=trace.executions(number),
            event_count=event_count,
            stops=sorted({*failures, *findings}),
            first_nonfinite=trace.first_nonfinite(number),
            siblings=len(trace.graph_tasks),
        )
        self._recording.prepare()
        self._playhead = Playhead(
            event_count,
            self._recording.executions,
            self._recording.stops,
            locate=lambda seq: trace.position(seq, number),
            seq_at=lambda offset: trace.events(number, offset, 1)[0].seq,
        )
        self._post(Loaded(self._recording, self._moment()))

    def _moment(self) -> Moment:
        key, position = self._recording.key, self._playhead.position
        trace = self._traces[key.file]
        last = trace.events(key.graph_task, position - 1, 1) if position else []
        return Moment(
            graph_task=key.graph_task,
            position=position,
            event=last[0] if last else None,
            state=trace.state_at(key.graph_task, position),
        )

    def _move(self) -> None:
        before = self._playhead.position
        moves = self._moves.qsize()
        for _ in range(moves):
            self._moves.get()(self._playhead)
        if moves:
            key, moment = self._recording.key, self._moment()
            story = None
            if moment.node is not None:
                story = self._story_of(moment.node)
            moved = self._playhead.position != before
            self._post(Arrived(key, moment, moved, story))

    def _read_page(self, page: int) -> None:
        key = self._recording.key
        events = self._traces[key.file].events(key.graph_task, page * PAGE, PAGE)
        self._post(PageRead(key, page, events))

    def _read_story(self) -> None:
        node, self._story = self._story, None
        if node is not None:
            key = self._recording.key
            self._post(StoryRead(key, self._story_of(node)))

    def _story_of(self, node: int) -> Story:
        key = self._recording.key
        trace = self._traces[key.file]
        events, saved = trace.story(key.graph_task, node), trace.saved(key.graph_task, node)
        return Story(node, tuple(events), tuple(saved))

    def _locate(self, seq: int) -> None:
        key = self._recording.key
        offset = self._traces[key.file].position(seq, key.graph_task)
        self._post(Located(key, seq, offset))
