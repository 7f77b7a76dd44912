"""Have ``python -m MODULE`` or ``-c CODE`` wait with torch imported, and fork for each call.

The interpreter imports this before it runs MODULE. The process itself never comes to that: it
forks, and a child goes on to what ``python -m MODULE ARGUMENTS`` is, two seconds of CPU time sooner
and without a frame of this file. The first optimizer that is made imports ``torch._dynamo``, which
takes two more seconds: it is imported here too, but for a CODE, which runs few times and may do
without an optimizer. Verbs of agviz import half a second's worth of modules, which is done here too
where calls are to find this agviz. :mod:`tests.python_process` starts it and calls.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import os
import pkgutil
import socket
import sys
from pathlib import Path
from typing import Any

import torch

if sys.argv[0] == "-m":
    import torch._dynamo


def import_agviz() -> None:
    """Import the verbs, and what they import when they run."""
    from agviz.cli.main import build_parser

    build_parser()
    for name in ("agviz.analysis", "agviz.record", "agviz.traces", "agviz_engine"):
        package = importlib.import_module(name)
        for each in pkgutil.walk_packages(package.__path__, f"{name}."):
            if not each.name.endswith("._capture"):  # no module, but a library
                importlib.import_module(each.name)


def next_call(connection: socket.socket) -> dict[str, Any]:
    """In a child: what it is to become. The server itself ends here when no one calls any more.

    For each call a process of its own waits, so that several can run at the same time.
    """
    while True:
        sent, descriptors, _, _ = socket.recv_fds(connection, 1 << 20, 4)
        with contextlib.suppress(ChildProcessError):  # there is none
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        if not sent:
            os._exit(0)
        if not os.fork():
            break
        for each in descriptors:
            os.close(each)
    connection.close()
    *streams, answer = descriptors
    if child := os.fork():
        for each in streams:
            os.close(each)
        with socket.socket(fileno=answer) as caller:
            caller.send(str(child).encode())
            _, status = os.waitpid(child, 0)
            caller.send(str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    os.close(answer)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    return json.loads(sent)  # type: ignore[no-any-return]


def become(call: dict[str, Any]) -> None:
    """Take on folder, environment and arguments, as an interpreter that starts with them."""
    os.chdir(call["cwd"])
    os.environ.clear()
    os.environ.update(call["env"])
    encoding = os.environ.get("PYTHONIOENCODING")
    through = "PYTHONUNBUFFERED" in os.environ
    for stream in sys.stdin, sys.stdout, sys.stderr:
        assert isinstance(stream, io.TextIOWrapper)
        stream.reconfigure(encoding=encoding, write_through=through)
    sys.dont_write_bytecode = "PYTHONDONTWRITEBYTECODE" in os.environ
    if "OMP_NUM_THREADS" in os.environ:
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    given = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    sys.path.remove(str(Path(__file__).parent))
    sys.path[:0] = [str(Path(each).absolute()) for each in given]
    sys.argv[1:] = call["arguments"]
    sys.orig_argv[3:] = call["arguments"]


if "WITH_AGVIZ" in os.environ:
    import_agviz()
gc.collect()
gc.freeze()  # no collection in a child writes to, and so copies, what it shares with the server
become(next_call(socket.socket(fileno=int(sys.argv[1]))))
