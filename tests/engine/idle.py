"""What an engine at rest looks like, to be asked after everything that can go wrong."""

from __future__ import annotations

import threading
import time

import torch

from agviz_engine import native_run, torch_modes
from agviz_engine.api import engine
from agviz_engine.thread_state import NO_DEVICE, current

_SETTLED = 5.0
"""Seconds that device threads have to take their last wake-ups out of their queues."""


def leftovers() -> list[str]:
    """What a backward pass that is over has left behind in this thread, in queues and locks."""
    thread, ours = current(), engine()
    found = {
        "a worker device": thread.worker_device != NO_DEVICE,
        "hosts": thread.hosts != 0,
        "depth": thread.total_depth != 0,
        "a graph task": thread.current_graph_task is not None,
        "a node": thread.current_node is not None,
        "an invalid checkpoint": not thread.checkpoint_valid,
        "an interrupt": bool(thread.interrupts) or thread.holds_back,
        "live objects": thread.live is not None,
        "a task in the caller's queue": not thread.local_ready_queue.empty(),
        "a pass that counts as running": ours.activity.passes != 0,
        "a one-node run": bool(native_run._thread.runs),
        "the body of a host": bool(native_run._thread.bodies),
        "a pause of anomaly mode": torch_modes.anomaly_pause._calls != 0,
        "a pause of warnings": native_run._warn_always_pause._calls != 0,
        "multithreading turned off": not torch._C._is_multithreading_enabled(),
        "gradient mode turned off": not torch.is_grad_enabled(),
        "levels of vmap": torch._C._vmapmode_increment_nesting() != 1,
        "a native graph task": torch._C._current_graph_task_id() != -1,
    }
    torch._C._vmapmode_decrement_nesting()
    until = time.monotonic() + _SETTLED
    for index, queue in list(ours.device_threads._queues.items()):
        while not queue.empty() and time.monotonic() < until:
            time.sleep(0.001)
        found[f"a task in the queue of device {index}"] = not queue.empty()
    return [what for what, is_there in found.items() if is_there]


def threads_beside(before: set[threading.Thread]) -> set[threading.Thread]:
    """Threads that were not there ``before`` and do not end."""
    until = time.monotonic() + _SETTLED
    while (more := set(threading.enumerate()) - before) and time.monotonic() < until:
        time.sleep(0.001)
    return more


def engine_threads() -> set[str]:
    """Names of the engine's threads that are alive."""
    return {t.name for t in threading.enumerate() if t.name.startswith("pt_autograd_")}
