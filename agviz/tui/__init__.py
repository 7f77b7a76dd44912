"""The terminal UI: recorded traces, and programs that run, to step through in both directions.

Textual paints at most so many times a second, and lets one or two such turns go by before what came
right behind a paint is painted, too: what the reader thread answers. Its number of turns is read
once, from the environment, which is left as it was: programs that are debugged inherit it.
"""

import os

_TURNS = "TEXTUAL_FPS"

if _TURNS not in os.environ:
    os.environ[_TURNS] = "120"
    try:
        import textual.constants as _read_now  # noqa: F401 - what counts is that it is read
    finally:
        del os.environ[_TURNS]
