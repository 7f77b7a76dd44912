"""The live debugger: it stops a running backward pass, and a viewer says how it goes on.

In the debugged process :class:`~agviz.debugger.debugger.Debugger` stops the engine's threads and
:mod:`~agviz.debugger.control` speaks with the viewer, which has a
:class:`~agviz.debugger.client.Client`. What the viewer shows it reads from the trace file, which is
still growing; only commands and replies go through the channel.
"""
