"""Observe mode: the native engine runs, and is observed from hooks on the nodes of its graph.

:mod:`~agviz_engine.observe.observing_engine` is what torch's Python code calls,
:mod:`~agviz_engine.observe.observed_pass` one call of backward or grad. Nothing here reads torch's
memory: what is used is public, or a private name that torch 2.6 to 2.15 have in common.

Note [Observed and inferred]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~
A hook before and one after each node show when it ran, on which thread, on which gradients and
what it put out. What the engine does between two nodes is out of sight. Of that, pushes, pops and
dependency counts are *inferred*: the graph, what each node put out and torch's order of a
ReadyQueue leave one possibility only, and each node that starts confirms it. Where one starts that
is not the next, the inference is withdrawn: InferenceWithdrawn is emitted, and nothing of queues
from then on. :data:`~agviz_engine.events.INFERRED` lists what is inferred in general; what is never
seen (hooks, Python or C++, and additions in the InputBuffer) is not emitted.
"""
