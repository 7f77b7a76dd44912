"""``agviz.draw``: the graph of a loss before anything of it runs, as torchviz draws it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

import torch
from torch import Tensor

import agviz_engine
from agviz.errors import AgvizError
from agviz.export.choices import make_look, make_view
from agviz.export.dot import compose_view, draw_picture
from agviz.graph.cut import around as cut_around
from agviz.graph.cut import leading_to
from agviz.graph.marks import Marks
from agviz.graph.model import build_graph
from agviz.record.provenance import Provenance
from agviz.traces.nodes import short_name, undisturbed
from agviz.traces.rows import (
    EdgeRow,
    GraphTaskRow,
    GraphTaskStatus,
    NodeRow,
    NodeStatus,
    SavedRow,
)
from agviz.words.safe import clean
from agviz.words.shapes import read_shape

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch.autograd.graph import Node
    from torch.nn import Module

    from agviz.export.digraph import Picture
    from agviz.graph.model import TaskGraph
    from agviz_engine.node import NodeRef


def draw(
    loss: object,
    params: Mapping[str, Tensor] | Iterable[tuple[str, Tensor]] | Module | None = None,
    show_attrs: bool = False,
    show_saved: bool = False,
    max_attr_chars: int = 50,
    *,
    fold: str = "auto",
    budget: int | None = None,
    around: str | None = None,
    depth: int = 2,
    to: str | None = None,
    theme: str = "light",
) -> Picture:
    """The graph that ``loss.backward()`` would walk; nothing is run.

    Nodes are torch's own, each with the shape of the gradient it receives; the parameters they
    feed are written below them.

    Args:
        loss: a tensor that requires grad, or what a model gave: tensors in mappings, tuples and
            lists at any depth.
        params: their names: ``dict(model.named_parameters())``, or the model.
        show_attrs: show what else than tensors nodes saved: sizes, dimensions, flags.
        show_saved: show which tensors nodes saved.
        max_attr_chars: of what else they saved, so many characters.
        fold: what is drawn as one beside what the budget demands: ``auto`` (nothing), ``repeats``,
            ``chains``.
        budget: number of nodes to draw (default 400); more than that are folded.
        around: a node and its neighbours: its name, or its parameter.
        depth: how many edges away these are.
        to: what leads to this parameter.
        theme: ``light`` or ``dark``.

    Returns:
        A ``graphviz.Digraph``, which shows itself in a notebook; ``.render("loss", format="svg")``
        writes it, and needs no ``dot`` program.

    Raises:
        agviz.errors.AgvizError: no tensor requires grad, or there is no such parameter or choice.
        agviz_engine.UnsupportedTorchError: this torch lacks something that is needed.
    """
    agviz_engine.probe()
    view = make_view(fold=fold, budget=budget, depth=depth)
    look = make_look(theme=theme)
    with undisturbed():
        refs, graph = _graph(_roots(loss), _names(params), saved=show_saved)
        if show_attrs:
            attributes = _attributes(refs, max_attr_chars)
            graph = replace(graph, marks=replace(graph.marks, attributes=attributes))
        if around is not None:
            graph = cut_around(graph, around, depth)
        if to is not None:
            graph = leading_to(graph, to)
        return draw_picture(compose_view(graph, view), look)


def _roots(loss: object) -> list[Node]:
    from agviz.live_graph import root_nodes

    roots = root_nodes(_tensors(loss))
    if not roots:
        raise AgvizError("There is no graph to draw: no tensor that was given requires grad.")
    return roots


def _tensors(given: object) -> Iterator[Tensor]:
    """All tensors in what a model gives."""
    if isinstance(given, Tensor):
        yield given
    elif isinstance(given, Mapping):
        yield from chain.from_iterable(map(_tensors, given.values()))
    elif isinstance(given, Iterable) and not isinstance(given, str | bytes):
        yield from chain.from_iterable(map(_tensors, given))


def _names(
    params: Mapping[str, Tensor] | Iterable[tuple[str, Tensor]] | Module | None,
) -> dict[int, str]:
    """Names of tensors by their ``id``; the first of a tensor that has several."""
    if params is None:
        return {}
    if isinstance(params, torch.nn.Module):
        named = chain(params.named_parameters(remove_duplicate=False), params.named_buffers())
        params = dict(named)
    pairs = params.items() if isinstance(params, Mapping) else params
    names: dict[int, str] = {}
    for name, tensor in pairs:
        if not isinstance(tensor, Tensor):
            raise AgvizError(f"params names {name!r}, which is no tensor but {type(tensor)}.")
        names.setdefault(id(tensor), name)
    return names


def _graph(
    roots: Sequence[Node], names: Mapping[int, str], *, saved: bool
) -> tuple[list[NodeRef], TaskGraph]:
    from agviz.live_graph import walk

    refs = walk(roots)
    dtypes: dict[tuple[int, int], str] = {}
    rows = [_row(ref, names) for ref in refs]
    edges = [
        EdgeRow(ref.index, output, edge[0].index, edge[1])
        for ref in refs
        for output, edge in enumerate(ref.next_edges)
        if edge is not None
    ]
    received = {ref.index: dtype for ref in refs if (dtype := _expected(ref, 0)[1])}
    for edge in edges:
        if edge.consumer in received and not edge.slot:
            dtypes[edge.producer, edge.output] = received[edge.consumer]
    marks = Marks(dtypes=dtypes, received=received, saved=_saved(refs) if saved else {})
    task = GraphTaskRow(
        id=0,
        parent=-1,
        parent_node=-1,
        reentrant_depth=0,
        keep_graph=False,
        create_graph=False,
        accumulate_grad=True,
        roots=1,
        inputs=0,
        thread=0,
        nodes=len(rows),
        edges=len(edges),
        begin_seq=0,
        begin_ns=0,
        end_seq=None,
        end_ns=None,
        status=GraphTaskStatus.RUNNING,
        error="",
        message="",
        executed=0,
    )
    title = f"graph of {rows[0].short_name}"
    return refs, build_graph(task, rows, edges, (), title=title, marks=marks, ran=False)


def _row(ref: NodeRef, names: Mapping[int, str]) -> NodeRow:
    variable = ref.node.variable if ref.is_accumulate_grad else None
    shapes = [_expected(ref, slot)[0] for slot in range(ref.num_inputs)]
    return NodeRow(
        graph_task=0,
        index=ref.index,
        name=ref.name,
        short_name=short_name(ref.name),
        sequence_nr=None if ref.is_accumulate_grad else ref.sequence_nr,
        topological_nr=ref.topological_nr,
        queue=ref.device,
        num_inputs=ref.num_inputs,
        dependencies=0,
        parameter=None if variable is None else names.get(id(variable)),
        shape=None if variable is None else tuple(variable.shape),
        module=None,
        stack=(),
        status=NodeStatus.WAITING,
        order=None,
        thread=None,
        start_ns=None,
        end_ns=None,
        input_shapes=None
        if None in shapes
        else tuple(shape for shape in shapes if shape is not None),
        output_shapes=(),
        nonfinite=None,
    )


def _expected(ref: NodeRef, slot: int) -> tuple[tuple[int, ...] | None, str]:
    """Shape and dtype of the gradient that an input of a node takes."""
    if not ref.base or slot >= ref.num_inputs:
        return None, ""
    from agviz_engine.torch_layout import expectation

    kind, shape = expectation(ref, slot)
    return shape, "" if kind.dtype is None else str(kind.dtype).removeprefix("torch.")


def _saved(refs: Iterable[NodeRef]) -> dict[int, list[SavedRow]]:
    provenance = Provenance()
    return {
        ref.index: [
            SavedRow(ref.index, each.name, read_shape(each.shape), each.dtype, each.nbytes)
            for each in provenance.saved(ref.node)
        ]
        for ref in refs
        if not ref.is_accumulate_grad
    }


def _attributes(refs: Iterable[NodeRef], longest: int) -> dict[int, list[str]]:
    """What nodes saved beside tensors, which no hook is asked for: ``dim: 1``."""
    known: dict[type, list[str]] = {}
    found: dict[int, list[str]] = {}
    for ref in refs:
        kind = type(ref.node)
        if kind not in known:
            names = dir(kind)
            known[kind] = [
                name for name in names if name.startswith("_saved_") and f"_raw{name}" not in names
            ]
        for name in known[kind]:
            value = getattr(ref.node, name)
            if type(value) is int and value >= 2**63:
                value -= 2**64  # torch shows a dimension of -1 as an unsigned number
            said = clean(str(value))
            shown = said if len(said) <= longest else f"{said[:longest]}…"
            found.setdefault(ref.index, []).append(f"{name.removeprefix('_saved_')}: {shown}")
    return found
