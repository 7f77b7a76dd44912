"""The ``agviz`` command: finds the verb, reports what is wrong in one sentence.

Each verb is a module of this package with a docstring, which is its help, and two functions:
``add_arguments(parser)`` and ``execute(arguments)``. ``execute`` returns the exit code, or the
user's program, which is then called where no error of agviz is expected any more.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import TYPE_CHECKING, cast

from agviz import __version__, startup
from agviz.errors import AgvizError
from agviz.words.safe import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Protocol

    class Verb(Protocol):
        """What each module of this package but the helpers offers."""

        __doc__: str | None

        def add_arguments(self, parser: argparse.ArgumentParser) -> None:
            """Declare the verb's options."""

        def execute(self, arguments: argparse.Namespace) -> int | Callable[[], int]:
            """Do it, or return the user's program."""


VERBS = (
    *("demo", "run", "attach", "view", "summary", "explain", "why", "diff", "whatif", "export"),
    *("repro", "issue", "check", "verify", "dap", "schema", "doctor", "env"),
)
"""In the order of the help."""

FINE = 0
FAILED = 1
WRONG_CALL = 2
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``agviz`` with the arguments ``argv`` (default: the process's own).

    Returns the exit code: 0 fine, 1 the user's program or a check failed, 2 the call was wrong,
    130 interrupted. What the user's program raises under ``agviz run`` passes through.
    """
    startup.cancel()
    words = list(sys.argv[1:] if argv is None else argv)
    # To import all verbs takes 0.15 s of CPU time more than to import the one.
    arguments = build_parser(set(words[:1]).intersection(VERBS) or VERBS).parse_args(words)
    arguments.given = words
    try:
        outcome = cast("Verb", arguments.verb).execute(arguments)
        if sys.stdout is not None:  # it was closed before we began
            sys.stdout.flush()
    except AgvizError as error:
        print(f"agviz: {clean(str(error))}", file=sys.stderr)
        return WRONG_CALL
    except KeyboardInterrupt:
        print("agviz: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output went away
        _write_no_more()
        return FAILED
    except OSError as error:  # no space is left, or the terminal is gone
        _write_no_more()
        print(f"agviz: {clean(str(error))}", file=sys.stderr)
        return WRONG_CALL
    return outcome if isinstance(outcome, int) else outcome()


def _write_no_more() -> None:
    """Let stdout lead nowhere: Python would complain again when it flushes it at exit."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def build_parser(names: Iterable[str] = VERBS) -> argparse.ArgumentParser:
    """The parser of the command line, with one sub-command for each of these verbs."""
    parser = argparse.ArgumentParser(
        prog="agviz",
        description="A debugger for PyTorch's backward pass.",
        epilog="`agviz VERB --help` says more about a verb.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"agviz {__version__}")
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    for name in names:
        verb = load_verb(name)
        help_text = (verb.__doc__ or "").strip()
        verb_parser = verbs.add_parser(
            name,
            help=help_text.partition("\n")[0],
            description=help_text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        verb.add_arguments(verb_parser)
        verb_parser.set_defaults(verb=verb)
    return parser


def load_verb(name: str) -> Verb:
    """The module of a verb."""
    return cast("Verb", importlib.import_module(f"agviz.cli.{name}"))
