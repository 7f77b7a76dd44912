"""Debugger: the instrument that stops the engine's threads where somebody wants them to stop.

Note [Stopping]
A thread stops inside the debugger's method, where the engine holds no lock. While it is stopped,
other threads stop as well at the next event that they emit, before they look whether it is a place
to stop for themselves: with ``hold`` set to ``one`` they run on. A stopped thread works off its
inbox, so that whatever is looked at or changed is so on the thread that runs the node, with its
thread-locals. All decisions are made under one lock, which is not held while a thread is stopped.

Note [Without a viewer]
Nothing stops while no viewer is attached, and when it goes, however it goes, all threads run on.

Note [Only what may stop]
The debugger subscribes to the kinds of events at which it might stop, as ``bdb.set_continue`` does:
a program that runs on with nothing to stop for runs as if no viewer were attached.

Note [Data breakpoints]
What a data breakpoint waits for is looked at where it may have changed: after the AccumulateGrad of
a parameter that it names, and at the end of each pass. What changes by a factor is held against the
last pass in which its parameter got a gradient, hence is looked at after AccumulateGrad only.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

from agviz.debugger.bounds import Watched
from agviz.debugger.breakpoints import KINDS, Breakpoint, BreakpointError
from agviz.debugger.messages import Logged, Said, Stops
from agviz.debugger.node_facts import LiveNode
from agviz.debugger.stops import NotStoppedError, Step, Stop, Until
from agviz_engine import events
from agviz_engine.instruments import Instrument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch.nn import Module

    from agviz.debugger.messages import Hold, How, Nonfinite, Notice
    from agviz.debugger.node_facts import DebuggedRecording
    from agviz.record.names import Names
    from agviz_engine.events import Event
    from agviz_engine.instruments import Live
    from agviz_engine.node import NodeRef
    from agviz_engine.rewind import GoBack

MOST_BREAKPOINTS: Final = 1_000
_ENDS: Final = (events.GraphTaskFinished, events.GraphTaskFailed)
_FOR_BOUNDS: Final = (events.LeafAccumulated, *_ENDS)
MOST_LOGGED: Final = 500
"""Texts of log points that are sent in a second; the others are counted."""
_NOT_SHOWN: Final = ("KeyboardInterrupt", "SystemExit", "GoBack")


class Observers(Protocol):
    """Where instruments are put that are to observe the engine, as in its ``Registry``."""

    @property
    def instruments(self) -> tuple[Instrument, ...]:
        """All of them, in the order in which they are called."""

    def add(self, instrument: Instrument) -> None:
        """Add one."""

    def remove(self, instrument: Instrument) -> None:
        """Remove one."""

    def reindex(self) -> None:
        """Look anew which events an instrument wants."""


class Debugger(Instrument):
    """Stops threads while a viewer is attached.

    Args:
        subject: the recording of this process.
    """

    def __init__(self, subject: DebuggedRecording) -> None:
        self._subject = subject
        self._registry: Observers | None = None
        self._forget()

    def install(self, registry: Observers) -> None:
        """There is an engine from now on.

        Args:
            registry: of its instruments, or who speaks for it. This keeps itself the last of them,
                so that the recorder has observed an event before anybody stops at it.
        """
        with self._lock:
            self._registry = registry
            if self.is_attached:
                registry.add(self)

    def _forget(self) -> None:
        self._lock = threading.Condition()
        self._say: Callable[[Notice], None] | None = None
        """Sends to the viewer; None: there is none."""
        self._stops: dict[int, Stop] = {}
        """By thread."""
        self._steps: dict[int | None, Step] = {}
        """Under way, by the thread that is to take them."""
        self._untils: list[Until] = []
        self._pauses: set[int | None] = set()
        self._breakpoints: dict[int, Breakpoint] = {}
        self._leaves: frozenset[str] | None = None
        """Of these parameters alone is LeafAccumulated looked at; None: of all."""
        self._watched: dict[int, Watched] = {}
        """What data breakpoints saw last, by their numbers."""
        self._logged: list[Logged] = []
        """To be sent when the lock is free."""
        self._logged_in = (0, 0)
        """A second, and how many texts of log points were sent in it."""
        self._left_out = 0
        self._next_number = 1
        self._hold: Hold = "all"
        self._at_first = False
        self._at_exceptions = False
        self._at_nonfinite: Nonfinite = "off"
        self._at_next_node = ""
        """Why to stop before the next node that runs; empty: for no reason."""
        self._found_nonfinite: set[int] = set()
        """Graph tasks under way."""
        self._failed: set[int] = set()
        """Graph tasks that were stopped in because a node had failed."""
        self._subscribe()

    def _subscribe(self) -> None:
        """Note [Only what may stop]; called under the lock after every change of what is wanted."""
        kinds = self._wanted_kinds()
        self._leaves = None if kinds is None else self._bound_parameters()
        if kinds != self.kinds:
            self.kinds = kinds
            if self._registry is not None:
                self._registry.reindex()

    def _wanted_kinds(self) -> frozenset[type[Event]] | None:
        """Kinds of events at which a thread may have to stop; None: all."""
        if self._stops or self._steps or self._untils or self._pauses:
            return None
        kinds: set[type[Event]] = {*_ENDS}
        if self._at_first or self._at_next_node:
            kinds.add(events.NodeStarted)
        if self._at_exceptions:
            kinds.add(events.NodeFailed)
        if self._at_nonfinite != "off":
            kinds.add(events.NonFiniteChecked)
        enabled = [each for each in self._breakpoints.values() if each.enabled]
        for each in enabled:
            kinds.update(_FOR_BOUNDS if each.when else [KINDS[each.event or "NodeStarted"]])
        return frozenset(kinds)

    def _bound_parameters(self) -> frozenset[str] | None:
        """Whose LeafAccumulated data breakpoints want; None: others want it, too."""
        names: set[str] = set()
        for each in self._breakpoints.values():
            if each.enabled and each.event == events.LeafAccumulated.__name__:
                return None
            if each.enabled and each.bound is not None:
                names |= each.bound.parameters
        return frozenset(names)

    # -- the viewer -----------------------------------------------------------------------------

    def attach(self, say: Callable[[Notice], None]) -> None:
        """A viewer is there from now on.

        Args:
            say: sends it what happens; called on any thread. It must not raise.
        """
        with self._lock:
            self._say = say
            self._subscribe()
            if self._registry is not None:
                self._registry.add(self)

    def detach(self) -> None:
        """It has gone: everything runs on, and nothing is left of what it wanted."""
        self.interrupt()
        with self._lock:
            if self._registry is not None:
                self._registry.remove(self)
            self._forget_wishes()
            for stop in list(self._stops.values()):
                self._release(stop)
            self._lock.notify_all()

    def _forget_wishes(self) -> None:
        self._say = None
        self._steps.clear()
        self._untils.clear()
        self._pauses.clear()
        self._breakpoints.clear()
        self._watched.clear()
        self._at_first = self._at_exceptions = False
        self._at_nonfinite = "off"
        self._at_next_node = ""
        self._hold = "all"
        self._subscribe()

    @property
    def is_attached(self) -> bool:
        """Whether a viewer is there."""
        return self._say is not None

    def after_fork(self) -> None:
        """In a child: it is not debugged. Threads and their locks did not come with it."""
        if self._registry is not None:
            self._registry.remove(self)
        self._forget()

    # -- commands, on the thread that reads the channel -------------------------------------------

    def stops(self) -> list[Stop]:
        """The threads that are stopped."""
        with self._lock:
            return list(self._stops.values())

    def step(self, how: How, thread: int | None = None) -> None:
        """Run on to the next node, event or hook.

        Args:
            how: how far.
            thread: of this thread, which need not be stopped itself where a stop holds all; None:
                of any. A step past a hook is that of a stopped node.

        Raises:
            NotStoppedError: there is nothing to step from.
        """
        with self._lock:
            is_elsewhere = thread not in self._stops and self._hold == "all" and how != "hook"
            stop = self._stop_of(None if is_elsewhere else thread)
            node: int | None = getattr(stop.event, "node", None)
            whose = stop.event.thread if how == "hook" or self._hold == "one" else thread
            self._steps[whose] = Step(how, whose, stop.event.graph_task, node)
            self._run_on(stop)

    def until(self, graph_task: int, node: int, thread: int | None = None) -> None:
        """Run on to a node, or the end of its graph task.

        Args:
            graph_task: whose node it is.
            node: the node.
            thread: which runs on; None: the one that stopped last.

        Raises:
            NotStoppedError: it is not stopped.
        """
        with self._lock:
            stop = self._stop_of(thread)
            self._untils.append(Until(graph_task, node))
            self._run_on(stop)

    def go_on(self, thread: int | None = None) -> None:
        """Run on, in one thread or in all.

        Raises:
            NotStoppedError: nothing is stopped there.
        """
        with self._lock:
            stops = [self._stop_of(thread)] if thread is not None else list(self._stops.values())
            if not stops:
                raise NotStoppedError("nothing is stopped; the program runs")
            for stop in stops:
                self._run_on(stop)

    def go_back(self, stop: Stop, raising: GoBack) -> None:
        """Have a stopped pass go back, and its thread stop before the node from which it goes on.

        Args:
            stop: of the pass.
            raising: what its thread raises.
        """
        with self._lock:
            thread = stop.event.thread
            self._steps[thread] = Step("node", thread, stop.event.graph_task, None, "back")
            stop.going_back = raising
            self._run_on(stop)

    def pause(self, thread: int | None = None) -> None:
        """Stop at the next event of a thread, or of any."""
        with self._lock:
            if thread not in self._stops and (thread is not None or not self._stops):
                self._pauses.add(thread)
                self._subscribe()

    def stop_at_next_node(self, why: str) -> None:
        """The program itself asks to be stopped."""
        with self._lock:
            if self.is_attached:
                self._at_next_node = why
                self._subscribe()

    def set_stops(
        self,
        *,
        first: bool | None = None,
        exceptions: bool | None = None,
        nonfinite: Nonfinite | None = None,
        hold: Hold | None = None,
    ) -> Stops:
        """Choose where to stop without a breakpoint, and whom a stop holds; None: as it is.

        Returns:
            What is chosen now.
        """
        with self._lock:
            if first is not None:
                self._at_first = first
            if exceptions is not None:
                self._at_exceptions = exceptions
            if nonfinite is not None:
                self._at_nonfinite = nonfinite
            if hold is not None:
                self._hold = hold
                self._lock.notify_all()
            self._subscribe()
            return Stops(self._at_first, self._at_exceptions, self._at_nonfinite, self._hold)

    @property
    def breakpoints(self) -> list[Breakpoint]:
        """In the order of their numbers."""
        with self._lock:
            return list(self._breakpoints.values())

    def add_breakpoint(self, wanted: Breakpoint) -> Breakpoint:
        """Stop there from now on.

        Returns:
            It, with its number.
        """
        with self._lock:
            if len(self._breakpoints) >= MOST_BREAKPOINTS:
                raise BreakpointError(f"there are {MOST_BREAKPOINTS:,} breakpoints already")
            made = wanted.changed(number=self._next_number, hits=0)
            self._next_number += 1
            self._breakpoints[made.number] = made
            self._subscribe()
            return made

    def edit_breakpoint(self, number: int, changes: dict[str, Any]) -> Breakpoint:
        """Change some of what it says.

        Raises:
            agviz.errors.AgvizError: there is none, or a value makes no sense.
        """
        with self._lock:
            if "number" in changes:
                raise BreakpointError("the number of a breakpoint can't be changed")
            before = self._breakpoint(number)
            made = before.changed(**changes)
            self._breakpoints[number] = made
            if made.when != before.when:
                self._watched.pop(number, None)
            self._subscribe()
            return made

    def remove_breakpoint(self, number: int) -> Breakpoint:
        """Stop there no longer.

        Raises:
            BreakpointError: there is none.
        """
        with self._lock:
            found = self._breakpoint(number)
            del self._breakpoints[number]
            self._watched.pop(number, None)
            self._subscribe()
            return found

    def stop_of(self, thread: int | None) -> Stop:
        """The stop of a thread; None: the only one, or the one that stopped last.

        Raises:
            NotStoppedError: it runs.
        """
        with self._lock:
            return self._stop_of(thread)

    def module_of(self, stop: Stop) -> Module | None:
        """The module whose forward made the node of a stop."""
        facts = stop.facts
        return None if facts is None else self._subject.names.find_module(facts.module)

    @property
    def names(self) -> Names:
        """Of parameters and modules."""
        return self._subject.names

    def interrupt(self) -> None:
        """End the Python that a stopped thread runs for the viewer."""
        for stop in self.stops():
            if stop.shell is not None:
                stop.shell.interrupt()

    def have_done(self, stop: Stop, work: Callable[[], None]) -> bool:
        """Let a stopped thread do something; False where it runs on already."""
        with self._lock:
            if stop.resumed:
                return False
            stop.inbox.put(work)
            return True

    def _breakpoint(self, number: int) -> Breakpoint:
        found = self._breakpoints.get(number)
        if found is None:
            raise BreakpointError(f"there is no breakpoint {number}")
        return found

    def _stop_of(self, thread: int | None) -> Stop:
        if not self._stops:
            raise NotStoppedError("nothing is stopped; the program runs")
        if thread is None:
            return next(reversed(self._stops.values()))
        if thread not in self._stops:
            raise NotStoppedError(f"thread {thread} is not stopped")
        return self._stops[thread]

    def _run_on(self, stop: Stop) -> None:
        """Let it run, and those that would hold it."""
        self._release(stop)
        if self._hold == "all":
            for other in list(self._stops.values()):
                self._release(other)
        self._lock.notify_all()

    def _release(self, stop: Stop) -> None:
        stop.resumed = True
        self._stops.pop(stop.event.thread, None)
        self._subscribe()
        stop.inbox.put(None)

    # -- events, on the engine's threads ----------------------------------------------------------

    def any_event(self, event: Event, live: Live) -> None:
        """Stop here, if this is a place to stop."""
        if self._leaves is not None and self._is_another_leaf(self._leaves, event, live):
            return
        if self._say is None or not (
            event.graph_task < 0 or self._subject.records(event.graph_task)
        ):
            return
        with self._lock:
            if event.thread in self._stops:
                return  # of a backward that is run by hand while the thread is stopped
            registry = self._registry
            if registry is not None and registry.instruments[-1:] != (self,):
                registry.remove(self)
                registry.add(self)
            self._lock.wait_for(lambda: not self._is_held())
            if not self.is_attached:
                return  # the viewer has gone while this thread was held
            say = self._say
            stop = self._wanted(event, live)
            logged, self._logged = self._logged, []
            if stop is not None:
                self._stops[event.thread] = stop
                self._forget_done(event.thread)
            self._subscribe()
        for each in logged:
            say(each)
        if stop is None:
            return
        self._stay(stop, say)
        if stop.going_back is not None:
            raise stop.going_back

    def _is_another_leaf(self, wanted: frozenset[str], event: Event, live: Live) -> bool:
        """Whether a gradient has come to a parameter that no data breakpoint names."""
        if type(event) is not events.LeafAccumulated or live.node is None:
            return False
        return self.names.parameter(live.node.node.variable) not in wanted

    def _is_held(self) -> bool:
        """Whether a thread that is not stopped itself has to wait for one that does."""
        return self.is_attached and self._hold == "all" and bool(self._stops)

    def _forget_done(self, thread: int) -> None:
        """What was wanted is done, in this thread or in all."""
        self._untils.clear()
        self._at_next_node = ""
        if self._hold == "all":
            self._steps.clear()
            self._pauses.clear()
            return
        for wishes in (thread, None):
            self._steps.pop(wishes, None)
            self._pauses.discard(wishes)

    def _stay(self, stop: Stop, say: Callable[[Notice], None]) -> None:
        event = stop.event
        try:
            node = getattr(event, "node", -1)
            self._subject.hold(event.thread, event.graph_task, node, " and ".join(stop.reasons))
            self._subject.flush()
            say(stop.report())
            while True:
                work = stop.inbox.get()
                if work is None:
                    break
                work()
        finally:
            with self._lock:
                was_resumed = stop.resumed
                stop.resumed = True
                if not was_resumed:
                    self._stops.pop(event.thread, None)
                    self._subscribe()
                    self._lock.notify_all()
            self._subject.let_go(event.thread)
            while not stop.inbox.empty():
                if (work := stop.inbox.get()) is not None:
                    work()
            if not was_resumed:
                say(Said(what="resumed", thread=event.thread))

    def _wanted(self, event: Event, live: Live) -> Stop | None:
        """Where to stop, if anybody wants to stop here."""
        ref = None if live.graph_task is None else live.node
        has_node = ref is not None and getattr(event, "node", None) == ref.index
        facts = LiveNode(ref, self._subject) if ref is not None and has_node else None
        passed: list[str] = []
        hit = [] if not self._breakpoints else list(self._hit(event, live, facts, passed))
        reasons = ["breakpoint"] * bool(hit)
        reasons += self._reasons(event)
        if not reasons:
            return None
        if facts is None and getattr(event, "node", -1) >= 0:
            facts = self._facts(event, live)
        return Stop(
            event=event, live=live, facts=facts, reasons=reasons, breakpoints=hit, passed=passed
        )

    def _facts(self, event: Any, live: Live) -> LiveNode | None:
        """Details of an event, beside the node that the live view shows."""
        nodes: list[NodeRef] = [] if live.graph_task is None else live.graph_task.nodes
        if event.node < len(nodes):
            return LiveNode(nodes[event.node], self._subject)
        return None

    def _reasons(self, event: Event) -> list[str]:
        reasons = []
        starts = isinstance(event, events.NodeStarted)
        can_stop = (
            event.graph_task != events.NO_GRAPH_TASK
        )  # a thread that comes or goes is no place
        done = [step.why for step in self._steps.values() if can_stop and step.is_done_by(event)]
        reasons += done[:1]
        if any(until.is_done_by(event) for until in self._untils):
            reasons.append("until")
        can_stop = can_stop and not isinstance(event, events.GraphTaskBegun)  # there are no nodes
        if can_stop and self._pauses & {None, event.thread}:
            reasons.append("pause")
        if starts and self._at_next_node:
            reasons.append(self._at_next_node)
        if starts and self._at_first:
            self._at_first = False
            reasons.append("first backward")
        if self._at_exceptions and self._is_new_failure(event):
            reasons.append("exception")
        if self._is_new_nonfinite(event) and self._at_nonfinite != "off":
            reasons.append("non-finite")
        if isinstance(event, _ENDS):
            self._found_nonfinite.discard(event.graph_task)
            self._failed.discard(event.graph_task)
        return reasons

    def _is_new_failure(self, event: Event) -> bool:
        """Whether an exception is seen for the first time; the program gets it afterwards."""
        if isinstance(event, events.NodeFailed):
            self._failed.add(event.graph_task)
        elif not isinstance(event, events.GraphTaskFailed) or event.graph_task in self._failed:
            return False
        return event.error not in _NOT_SHOWN

    def _is_new_nonfinite(self, event: Event) -> bool:
        if not isinstance(event, events.NonFiniteChecked):
            return False
        if not (event.nan or event.posinf or event.neginf):
            return False
        is_first = event.graph_task not in self._found_nonfinite
        self._found_nonfinite.add(event.graph_task)
        return is_first or self._at_nonfinite == "every"

    def _hit(
        self, event: Event, live: Live, facts: LiveNode | None, passed: list[str]
    ) -> Iterator[int]:
        """Numbers of the breakpoints that stop the program here; counts all that are hit.

        Args:
            event: what has happened.
            live: the live view of it.
            facts: of its node.
            passed: takes what passed which bound.
        """
        kind = type(event).__name__
        for each in list(self._breakpoints.values()):
            if not each.enabled:
                continue
            if each.when:
                found = self._passed(each, event, live, facts)
                if not found:
                    continue
            elif kind != (each.event or "NodeStarted") or not self._is_asked_for(
                each, event, live, facts
            ):
                continue
            now = each.changed(hits=each.hits + 1)
            stops = now.stops_at(now.hits)
            if stops and each.temporary:
                del self._breakpoints[each.number]
            else:
                self._breakpoints[each.number] = now
            if stops and each.log:
                self._log(each, event, live, facts)
            elif stops:
                passed += [found] if each.when else []
                yield each.number

    def _is_asked_for(
        self, wanted: Breakpoint, event: Event, live: Live, facts: LiveNode | None
    ) -> bool:
        if wanted.is_of_a_node:
            facts = facts or (self._facts(event, live) if hasattr(event, "node") else None)
            if facts is None or not wanted.asks_for(facts):
                return False
        predicate = wanted.predicate
        if predicate is None:
            return True
        from agviz.debugger.live_scope import holds

        return holds(predicate, self.names, event, live)

    def _passed(self, wanted: Breakpoint, event: Event, live: Live, facts: LiveNode | None) -> str:
        """What passed the bound of a data breakpoint; empty: nothing. Note [Data breakpoints]."""
        bound = wanted.bound
        if bound is None or not isinstance(event, _FOR_BOUNDS):
            return ""
        name = ""
        if isinstance(event, events.LeafAccumulated):
            name = "" if facts is None else facts.parameter
            if name not in bound.parameters:
                return ""
        elif bound.factor:
            return ""
        from agviz.debugger.live_scope import passes

        watched = self._watched.setdefault(wanted.number, Watched())
        return passes(watched, bound, self.names, event, live, name)

    def _log(self, wanted: Breakpoint, event: Event, live: Live, facts: LiveNode | None) -> None:
        """Have the text of a log point sent, unless there are too many."""
        second = int(time.monotonic())
        sent = self._logged_in[1] if self._logged_in[0] == second else 0
        if sent >= MOST_LOGGED:
            self._left_out += 1
            return
        self._logged_in = second, sent + 1
        if wanted.log_text is None:
            return
        from agviz.debugger.live_scope import written

        facts = facts or (self._facts(event, live) if hasattr(event, "node") else None)
        logged = Logged(
            breakpoint=wanted.number,
            text=written(wanted.log_text, self.names, event, live),
            graph_task=event.graph_task,
            node=None if facts is None else facts.node,
            name="" if facts is None else facts.name,
            left_out=self._left_out,
        )
        self._left_out = 0
        self._logged.append(logged)
