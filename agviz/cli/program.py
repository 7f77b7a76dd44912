"""A user's program, run in this process unnoticed: what ``python`` does, done again.

The program gets its own ``__main__``, ``sys.argv`` and ``sys.path[0]``. What it raises goes up to
Python itself, which prints it and chooses the exit code as for any program; only the frames of
agviz are taken out of the traceback first. (coverage's ``execfile.py`` and memray's
``commands/run.py`` go half of this way; runpy's public functions put the old ``__main__`` back
too early for the program's threads and exit handlers.)
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import io
import os
import runpy
import sys
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, cast

import agviz.record
import agviz_engine
from agviz.errors import AgvizError

if TYPE_CHECKING:
    from collections.abc import Sequence

_ENGINE = str(Path(agviz_engine.__file__).parent) + os.sep
_MODE = str(Path(agviz.record.__file__).with_name("check_forward.py"))
"""Through which the program's calls go with ``--check-forward``."""
_BUGS = (AssertionError, AttributeError, LookupError, NameError)


class Program:
    """A script or module with its arguments, checked and ready to run.

    Raises AgvizError where there is nothing to run.
    """

    def __init__(self, target: str, arguments: Sequence[str], *, as_module: bool) -> None:
        if as_module:
            _check_module(target)
        else:
            _check_script(target)
        self.target = target
        self.arguments = list(arguments)
        self.as_module = as_module

    @property
    def name(self) -> str:
        """The module's name, or the script's file name without its ending."""
        return self.target if self.as_module else Path(self.target).stem

    def run(self) -> int:
        """Run the program to the end of its main module; return 0.

        Whatever the program raises passes through, SystemExit and KeyboardInterrupt included.
        """
        main = ModuleType("__main__")
        main.__dict__.update(__annotations__={}, __builtins__=sys.modules["builtins"])
        sys.modules["__main__"] = main
        sys.argv = [self.target, *self.arguments]
        try:
            if self.as_module:
                self._run_module()
            else:
                self._run_script(main)
        except SystemExit:
            raise
        except BaseException as error:
            _report_without_our_frames(error)
            raise
        return 0

    def _run_script(self, main: ModuleType) -> None:
        if not sys.flags.safe_path:
            sys.path[0] = str(Path(self.target).resolve().parent)
        path = os.path.join(os.getcwd(), self.target)  # noqa: PTH109, PTH118 # as Python does it
        with io.open_code(path) as file:
            source = file.read()
        code = compile(source, path, "exec", dont_inherit=True)
        main.__dict__.update(
            __cached__=None,
            __file__=path,
            __loader__=importlib.machinery.SourceFileLoader("__main__", path),
        )
        exec(code, main.__dict__)  # noqa: S102 # running it is what the user asked for

    def _run_module(self) -> None:
        if not sys.flags.safe_path:
            sys.path[0] = str(Path.cwd())
        # What `python -m` itself calls: only so are tracebacks and messages the same.
        cast("Any", runpy)._run_module_as_main(self.target)


def _check_script(target: str) -> None:
    path = Path(target)
    if path.is_dir():
        raise AgvizError(f"{target} is a directory; name a script in it, or use -m with a module")
    try:
        with path.open("rb") as file:
            beginning = file.read(4)
    except FileNotFoundError:
        raise AgvizError(f"there is no script {target}; check the path") from None
    except OSError as error:
        raise AgvizError(f"the script {target} can't be read: {error.strerror}") from None
    if beginning[2:4] == b"\r\n" or beginning[:2] == b"PK":
        raise AgvizError(f"{target} is no Python source; name a .py file, or use -m with a module")


def _check_module(target: str) -> None:
    top = target.partition(".")[0]
    finder = importlib.machinery.PathFinder
    if not top or (
        top not in sys.builtin_module_names
        and finder.find_spec(top, [str(Path.cwd()), *sys.path]) is None
        and importlib.util.find_spec(top) is None
    ):
        raise AgvizError(
            f"there is no module named {target}; check the name and the working directory"
        )


def _report_without_our_frames(error: BaseException) -> None:
    """Let Python report ``error``, which is being raised, as if agviz had no part in it."""
    report = sys.excepthook
    raised_here = error.__traceback__
    while raised_here and raised_here.tb_frame.f_code.co_filename == __file__:
        raised_here = raised_here.tb_next

    def excepthook(
        kind: type[BaseException], raised: BaseException, traceback: TracebackType | None
    ) -> None:
        if raised is error:
            raised.__traceback__ = raised_here
            _hide_engine(raised)
            traceback = raised.__traceback__
        report(kind, raised, traceback)

    sys.excepthook = excepthook


def _hide_engine(error: BaseException) -> None:
    """Take our engine and our mode out of the tracebacks of ``error`` and of all that led to it.

    torch's own engine, in C++, has no frames either. A bug of ours keeps its frames: an exception
    that comes out of the engine and is of a kind that torch's does not raise.
    """
    seen: set[int] = set()
    to_visit: list[BaseException | None] = [error]
    while to_visit:
        one = to_visit.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        to_visit += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            to_visit += one.exceptions
        frames = []
        traceback = one.__traceback__
        while traceback:
            frames.append(traceback)
            traceback = traceback.tb_next
        if frames and _is_engine(frames[-1]) and isinstance(one, _BUGS):
            continue
        hidden = _ours(frames)
        for index, frame in reversed(list(enumerate(frames))):
            if index not in hidden:
                traceback = TracebackType(
                    traceback, frame.tb_frame, frame.tb_lasti, frame.tb_lineno
                )
        one.__traceback__ = traceback


def _ours(frames: Sequence[TracebackType]) -> set[int]:
    """Which frames are ours, or torch's way from one of its functions in Python to our mode."""
    found: set[int] = set()
    for index, frame in enumerate(frames):
        if _is_engine(frame):
            found.add(index)
        elif frame.tb_frame.f_code.co_filename == _MODE:
            found.add(index)
            if index > 1 and frames[index - 1].tb_frame.f_code.co_name == "handle_torch_function":
                found |= {index - 1, index - 2}
    return found


def _is_engine(traceback: TracebackType) -> bool:
    return traceback.tb_frame.f_code.co_filename.startswith(_ENGINE)
