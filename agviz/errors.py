"""The errors agviz reports to its user: each message is one sentence that says what to do."""

from __future__ import annotations


class AgvizError(Exception):
    """Base of all errors of agviz; the command line prints the message and exits with 2."""


class TraceError(AgvizError):
    """A file can't be read as a trace: not there, not a trace, damaged, or from a newer agviz."""


class DrawingError(AgvizError):
    """Graphviz is absent, failed, or ran out of its time."""
