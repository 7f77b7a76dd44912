"""Benchmarks of the engine and the recorder, see ``python -m benchmarks --help``."""

import os

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler talks on stderr
