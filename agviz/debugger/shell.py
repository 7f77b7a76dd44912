"""A Python shell at a stopped node: the user's own code, run in his own program."""

from __future__ import annotations

import ast
import builtins
import code
import contextlib
import ctypes
import io
import keyword
import re
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

import torch

from agviz.debugger.python_input import is_whole
from agviz.measure.health import unseen
from agviz_engine.thread_state import program_ran

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor
    from torch.nn import Module

    from agviz_engine.instruments import Live

MOST_OUTPUT: Final = 100_000
"""Characters that one line of input may print."""


MOST_COMPLETIONS: Final = 1_000
_NAME: Final = re.compile(
    r"""(?<![\w.)\]}])[^\W\d]\w*(?:\[(?:-?\d+|'[^'\\]*'|"[^"\\]*")\]|\.[^\W\d]\w*)*\.?$"""
)
"""A name, its attributes, and items of them by number or text."""
_LOOPS: Final = 1_000
"""Python looks for an interrupt at the end of a loop's body."""


class _Thread(io.TextIOBase):
    """Takes what one thread prints; what others print goes where it went before."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._thread = threading.get_ident()
        self.taken: list[str] = []
        self._left = MOST_OUTPUT

    def write(self, text: str) -> int:
        """Take it, as far as there is room."""
        if threading.get_ident() != self._thread:
            return int(self._stream.write(text))
        if self._left:
            self.taken.append(text[: self._left])
            self._left -= len(self.taken[-1])
            if not self._left:
                self.taken.append("\n… and more\n")
        return len(text)

    def flush(self) -> None:
        """There is nothing to wait for."""
        if threading.get_ident() != self._thread:
            self._stream.flush()


class _Console(code.InteractiveConsole):
    """Python's own, that also takes several statements at once."""

    def runsource(self, source: str, filename: str = "<console>", _symbol: str = "single") -> bool:
        """Run what is whole, each expression shown; True: it needs another line."""
        if not is_whole(source):
            return True
        try:
            statements = ast.parse(source, filename).body
            program = compile(ast.Interactive(statements), filename, "single")
        except (SyntaxError, ValueError, OverflowError):
            self.showsyntaxerror(filename)
        except (RecursionError, MemoryError):
            self.showtraceback()
        else:
            self.runcode(program)
        return False


class Shell:
    """Runs lines, with ``node``, ``grads`` and ``module`` in scope.

    ``grads`` is a list; what is put into it, before the node runs, is what the node is given. So is
    a gradient that was changed in place.

    Args:
        live: the live view at the stop.
        module: whose forward made the node; None where that is not known.
        can_replace: whether the node has yet to run.
    """

    def __init__(self, live: Live, module: Module | None, *, can_replace: bool) -> None:
        self._live = live
        self._can_replace = can_replace
        self._lock = threading.Lock()
        self._thread: int | None = None
        """Which runs a line now."""
        self._grads: list[Tensor | None] = list(live.inputs)
        self._console = _Console(
            {
                "__name__": "__console__",
                "__doc__": None,
                "node": None if live.node is None else live.node.node,
                "grads": self._grads,
                "module": module,
                "torch": torch,
            }
        )

    def complete(self, text: str) -> list[str]:
        """What the name or attribute at the end of ``text`` could become, whole names each.

        Only the attributes and items are read that were typed. Python's rlcompleter reads all that
        could follow, which may do anything, and brings readline into the program.
        """
        match = _NAME.search(text)
        if match is None:
            return []
        owner, dot, begun = match[0].rpartition(".")
        if not dot:
            known: Iterable[str] = (*self._console.locals, *dir(builtins), *keyword.kwlist)
        else:
            try:
                with unseen():
                    known = dir(eval(owner, dict(self._console.locals)))  # noqa: S307 - names, attributes and indices
            except Exception:  # noqa: BLE001 - there is no such thing
                return []
        found = sorted({name for name in known if name.startswith(begun)})
        if not begun.startswith("_"):
            found = [name for name in found if not name.startswith("_")]
        return [f"{owner}{dot}{name}" for name in found[:MOST_COMPLETIONS]]

    def push(self, line: str) -> tuple[str, bool]:
        """Run input: a line, or several at once.

        Returns:
            What it printed, and whether it needs another line to be whole.
        """
        if self._can_replace:
            self._grads[:] = self._live.inputs
        before = [(g, None if g is None else g._version) for g in self._grads]
        streams = sys.stdout, sys.stderr
        taking = _Thread(sys.stdout)
        sys.stdout = sys.stderr = taking
        more = False
        try:
            self._thread = threading.get_ident()
            # Nodes of a backward that is called here run on this thread: the others are stopped.
            with torch.autograd.set_multithreading_enabled(False):
                more = self._console.push(line)
            self._end()
        except SystemExit:
            taking.write("exit() leaves nothing here; the program is stopped, go on or quit it\n")
            self._console.resetbuffer()
        except KeyboardInterrupt:
            taking.write("KeyboardInterrupt\n")
            self._console.resetbuffer()
        finally:
            self._end()
            if sys.stdout is taking:
                sys.stdout = streams[0]
            if sys.stderr is taking:
                sys.stderr = streams[1]
            program_ran()
        for line_ in self._replaced(before):
            taking.write(line_)
        return "".join(taking.taken), more

    def interrupt(self) -> None:
        """End the line that runs with KeyboardInterrupt; called on another thread.

        It strikes between two lines of Python: what waits in C is not disturbed.
        """
        with self._lock:
            if self._thread is not None:
                raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
                raise_in(ctypes.c_ulong(self._thread), ctypes.py_object(KeyboardInterrupt))

    def _end(self) -> None:
        """The line has ended: an interrupt that came too late strikes here, or never."""
        with contextlib.suppress(KeyboardInterrupt):
            with self._lock:
                self._thread = None
            for _ in range(_LOOPS):
                pass

    def _replaced(self, before: list[tuple[Tensor | None, int | None]]) -> list[str]:
        said = []
        if len(self._grads) != len(before):
            said.append(f"grads has {len(before)} gradients; what was added or taken is ignored\n")
        for slot, (was, version) in enumerate(before[: len(self._grads)]):
            now = self._grads[slot]
            if now is was and (now is None or now._version == version):
                continue
            if not self._can_replace:
                said.append(f"grads[{slot}] changes nothing any more: the node has run\n")
            elif now is None:
                said.append(f"grads[{slot}] can't be None; fill it with zeros instead\n")
                self._grads[slot] = was
            else:
                try:
                    self._live.replace_input(slot, now)
                except (TypeError, RuntimeError) as error:
                    said.append(f"grads[{slot}] stays as it was: {error}\n")
                    self._grads[slot] = was
        return said
