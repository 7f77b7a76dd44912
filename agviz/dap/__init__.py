"""Serves a recording, or a program that runs, to an editor by the Debug Adapter Protocol.

The protocol's messages are plain dictionaries: what comes in is checked in ``arguments.py``, and
what goes out is held against the protocol's own JSON schema in the tests. ``server.py`` answers
requests on one thread, which alone reads the trace.
"""
