"""Ctrl-C during a backward pass: KeyboardInterrupt arrives, and the engine is as good as new."""

from __future__ import annotations

import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
import torch

from agviz_engine import Instrument, events, installed, interrupt
from agviz_engine.thread_state import current
from tests.engine.builders import apply, custom, leaf
from tests.engine.idle import engine_threads, leftovers
from tests.engine.oracle import same_value
from tests.engine.test_reentrant import _Nested
from tests.slow_cases import slow_but

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from agviz_engine.device_policy import DevicePolicy
    from agviz_engine.instruments import Live

POLICIES: dict[str, DevicePolicy | None] = {
    "caller": None,
    "two devices": lambda node: node._sequence_nr() % 2,
    "two devices and the caller": lambda node: node._sequence_nr() % 3 - 1,
}


def _program() -> Any:
    """Hooks of several kinds, a custom Function, a reentrant backward, grad() and backward()."""
    x = torch.linspace(0.1, 1.0, 3).requires_grad_()
    y = (x.exp() * x).tanh()
    y.register_hook(lambda g: g * 2)
    assert y.grad_fn is not None
    y.grad_fn.register_prehook(lambda _: None)
    z = apply(_Nested, y, 1, 1)
    (slope,) = torch.autograd.grad(z.sum(), y, retain_graph=True)
    z.sum().backward()
    return [slope, x.grad]


# Python gives a handler the frame that runs when the signal is handled. This one is the engine's.
_strike_engine: Callable[[], None] = eval(  # noqa: S307 - a function of another package
    "lambda: strike(number)",
    {"__package__": "agviz_engine", "strike": signal.raise_signal, "number": signal.SIGINT},
)


class _AtLine:
    """A trace function that lets SIGINT strike at one of the lines that the engine runs."""

    def __init__(self, line: int) -> None:
        self.lines_left = line

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if frame.f_globals.get("__package__") != "agviz_engine":
            return None
        if event in ("line", "return"):
            self.lines_left -= 1
            if self.lines_left == 0:
                _strike_engine()
        return self


def _interrupt_every(step: int, policy: DevicePolicy | None) -> int:
    """Run the program again and again, each time with an interrupt some lines later.

    Returns:
        How often it was interrupted.
    """
    expected = _program()
    line, times = 1, 0
    with installed(device_policy=policy):
        while True:
            tracer = _AtLine(line)
            sys.settrace(tracer)
            try:
                _program()
            except KeyboardInterrupt:
                times += 1
            finally:
                sys.settrace(None)
            assert leftovers() == [], f"interrupted at line {line}"
            if tracer.lines_left > 0:
                return times
            assert times == (line - 1) // step + 1, f"no KeyboardInterrupt at line {line}"
            assert same_value(_program(), expected), f"interrupted at line {line}"
            line += step


@pytest.mark.parametrize("name", slow_but({"two devices and the caller"}, POLICIES))
def test_at_any_line_of_the_engine(name: str) -> None:
    assert _interrupt_every(29, POLICIES[name]) > 20
    assert engine_threads() == set()


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
def test_at_every_line_of_the_engine(name: str) -> None:
    assert _interrupt_every(3, POLICIES[name]) > 200


@pytest.mark.parametrize("name", POLICIES)
def test_an_instrument_is_struck_at_once(name: str) -> None:
    """It may wait for long, and is called where the engine is not in a node."""

    class Struck(Instrument):
        def __init__(self, kind: str) -> None:
            self.kind = kind
            self.seen = False

        def any_event(self, event: events.Event, _live: Live) -> None:
            on_main = threading.current_thread() is threading.main_thread()
            if on_main and type(event).__name__ == self.kind and not self.seen:
                self.seen = True
                signal.raise_signal(signal.SIGINT)

    expected = _program()
    for kind in events.EVENT_TYPES:
        struck = Struck(kind.__name__)
        with installed(struck, device_policy=POLICIES[name]):
            interrupted = False
            try:
                _program()
            except KeyboardInterrupt:
                interrupted = True
            assert interrupted == struck.seen
            assert leftovers() == [], kind
            assert same_value(_program(), expected), kind


def test_a_hook_that_waits_is_struck_at_once() -> None:
    """Python's own code, which runs innermost there, counts as its caller's."""

    def hook(_: Any) -> None:
        ready.set()
        assert not threading.Event().wait(60), "nobody sets it"

    def strike() -> None:
        ready.wait()
        time.sleep(0.5)  # a signal that comes before the lock is waited for does not end the wait
        signal.pthread_kill(main, signal.SIGINT)

    ready, main = threading.Event(), threading.get_ident()
    killer = threading.Thread(target=strike)
    killer.start()
    y = leaf(3).exp()
    y.register_hook(hook)
    began = time.monotonic()
    with installed(), pytest.raises(KeyboardInterrupt):
        y.sum().backward()
    assert time.monotonic() - began < 30
    assert leftovers() == []
    killer.join()


def _strike_before_the_last_node(y: torch.Tensor) -> None:
    """Let SIGINT strike the engine (not the hook) where only one node is left to run."""
    assert y.grad_fn is not None
    hook = eval(  # noqa: S307 - a hook that counts as the engine's code
        "lambda *_: strike()", {"__package__": "agviz_engine", "strike": _strike_engine}
    )
    y.grad_fn.register_hook(hook)


def test_the_node_that_runs_is_the_last() -> None:
    x = leaf(3)
    y = x.exp()
    _strike_before_the_last_node(y)
    with installed(), pytest.raises(KeyboardInterrupt):
        y.backward(torch.ones(3))
    assert x.grad is None
    assert leftovers() == []


def test_behind_the_last_node_it_comes_when_the_pass_is_over() -> None:
    x = leaf(3)
    x.register_post_accumulate_grad_hook(lambda _: _strike_engine())
    with installed(), pytest.raises(KeyboardInterrupt):
        x.exp().backward(torch.ones(3))
    assert x.grad is not None
    assert leftovers() == []


def test_with_an_error_it_comes_behind_the_error() -> None:
    def fail(_context: Any, _gradient: Any) -> Any:
        _strike_engine()
        raise ValueError("stop")

    with installed(), pytest.raises(KeyboardInterrupt) as caught:
        custom(fail)(leaf(3)).sum().backward()
    assert repr(caught.value.__context__) == "ValueError('stop')"
    assert leftovers() == []


@pytest.fixture
def handler() -> Iterator[Callable[[Any], None]]:
    """Sets SIGINT's handler until the test is over."""
    before = signal.getsignal(signal.SIGINT)

    def change(new: Any) -> None:
        signal.signal(signal.SIGINT, new)

    yield change
    signal.signal(signal.SIGINT, before)


def test_the_programs_own_handler_is_called_once(handler: Callable[[Any], None]) -> None:
    calls: list[tuple[int, FrameType | None]] = []
    own = lambda number, frame: calls.append((number, frame))  # noqa: E731
    handler(own)
    x = leaf(3)
    y = x.exp()
    _strike_before_the_last_node(y)
    with installed():
        y.backward(torch.ones(3))
    assert x.grad is not None
    assert [number for number, _ in calls] == [signal.SIGINT]
    assert calls[0][1] is not None
    assert signal.getsignal(signal.SIGINT) is own


def test_a_handler_that_a_hook_sets_stays(handler: Callable[[Any], None]) -> None:
    calls: list[int] = []
    own = lambda number, _: calls.append(number)  # noqa: E731
    y = leaf(3).exp()
    y.register_hook(lambda _: handler(own))
    with installed():
        y.sum().backward()
        assert signal.getsignal(signal.SIGINT) is own
        leaf(3).exp().sum().backward()
    assert signal.getsignal(signal.SIGINT) is own


class _LateError(Exception):
    """What a handler of SIGALRM raises here."""


def test_every_signal_is_held_back() -> None:
    """Timeouts come by SIGALRM, and the handler raises."""

    def late(number: int, _frame: FrameType | None) -> None:
        calls.append(number)
        raise _LateError

    calls: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGALRM, signal.SIGCHLD)}
    strikes = eval(  # noqa: S307 - as _strike_engine
        "lambda *_: [strike(number) for number in numbers]",
        {"__package__": "agviz_engine", "strike": signal.raise_signal, "numbers": list(before)},
    )
    expected = _program()
    for number in before:
        signal.signal(number, late)
    try:
        x = leaf(3)
        y = x.exp()
        assert y.grad_fn is not None
        y.grad_fn.register_hook(strikes)
        with installed():
            with pytest.raises(_LateError) as caught:
                y.backward(torch.ones(3))
            assert isinstance(caught.value.__context__, _LateError), "both handlers are called"
            assert x.grad is None
            assert calls == list(before)
            assert [signal.getsignal(number) for number in before] == [late, late]
            assert leftovers() == []
            assert same_value(_program(), expected)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_an_ignored_signal_stays_ignored(handler: Callable[[Any], None]) -> None:
    handler(signal.SIG_IGN)
    y = leaf(3).exp()
    _strike_before_the_last_node(y)
    with installed():
        y.backward(torch.ones(3))
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_other_threads_are_left_alone() -> None:
    """Python lets only the main thread set handlers."""
    errors: list[BaseException] = []

    def work() -> None:
        try:
            leaf(3).exp().sum().backward()
        except BaseException as error:  # noqa: BLE001 - looked at below
            errors.append(error)

    with installed():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert not errors


def test_a_handler_that_trains_may_call_what_was_held_back() -> None:
    """It strikes between the look at what was held back and its call."""
    called: list[int] = []
    thread = current()
    thread.interrupts.append((signal.SIGUSR1, lambda number, _: called.append(number)))
    with installed():
        leaf(3).exp().sum().backward()
    interrupt.strike(thread)
    assert called == [signal.SIGUSR1]


def test_a_wake_up_that_comes_too_late_is_not_left_behind() -> None:
    """The device's thread is through before the calling thread begins to wait for it."""

    class Late(Instrument):
        def queue_push(self, event: events.QueuePush, _live: Live) -> None:
            if threading.current_thread() is threading.main_thread() and event.node == 0:
                until = time.monotonic() + 60
                while current().local_ready_queue.empty() and time.monotonic() < until:
                    time.sleep(0.001)
                waiting.append(current().local_ready_queue.size())

    waiting: list[int] = []
    with installed(Late(), device_policy=lambda _: 0):
        leaf(3).exp().sum().backward()
        assert waiting == [1]
        assert leftovers() == []
