"""The activations of a pass, by the line and module that called them."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.gradient_flow import GradientFlow
from agviz.analysis.median import median
from agviz.analysis.saturation.openness import (
    CLAMP,
    FUNCTIONS,
    RIM,
    openness,
    openness_of_rows,
    slope,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agviz.traces.reader import Trace
    from agviz.traces.rows import Frame, NodeRow


_WIDE: Final = 0.5
"""A softmax that is so far open by its gradients is not looked up in the forward."""


_BOTTOM: Final = 0.25
"""Of the range of what a clamp put out: most is at its lower bound where the mean is below that."""
_FEW: Final = 8
"""Of fewer numbers, that most are beyond a bound says nothing."""
_LAYERS: Final = ("Addmm", "Bmm", "Convolution", "Linear", "Mm")


class SiteKey(NamedTuple):
    """What is alike in several passes."""

    function: str
    module: str
    line: str


class Site(NamedTuple):
    """A line of one module that calls an activation, once or again and again."""

    key: SiteKey
    frame: Frame | None
    nodes: tuple[NodeRow, ...]
    """In the order of the forward."""
    open: tuple[float, ...]
    """How far they are open, in the same order."""
    slopes: tuple[float, ...]
    """The norm of what each lets through over that of what comes."""

    @property
    def median(self) -> float:
        """How far it is open, in the middle."""
        return median(self.open)

    @property
    def slope(self) -> float:
        """What it lets through, in the middle."""
        return median(self.slopes)


class PassSites:
    """The activations of a pass of which it is known how far they are open.

    Args:
        trace: the trace.
        graph_task: the pass.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """

    def __init__(self, trace: Trace, graph_task: int) -> None:
        self.graph_task = graph_task
        self.sites: Mapping[SiteKey, Site] = {}
        count = trace.graph_task(graph_task).nodes
        labels = trace.node_labels(graph_task, 0, count)
        found = [label.node for label in labels if label.name in FUNCTIONS]
        if found:
            self._flow = GradientFlow(trace, graph_task)
            self._flow.read_all()
            self.sites = _by_site(self._flow, found)

    def siblings(self, key: SiteKey) -> list[Site]:
        """The other sites that call the same function."""
        return [
            site
            for each, site in self.sites.items()
            if each.function == key.function and each != key
        ]

    def reached(self, key: SiteKey) -> tuple[set[int], int]:
        """The leaves that gradients reach through a site, and how many the pass has."""
        after: defaultdict[int, list[int]] = defaultdict(list)
        for edge in self._flow.trace.edges(self.graph_task):
            after[edge.producer].append(edge.consumer)
        waiting = [node.index for node in self.sites[key].nodes]
        seen = set(waiting)
        while waiting:
            for node in after[waiting.pop()]:
                if node not in seen:
                    seen.add(node)
                    waiting.append(node)
        leaves = {node.index for node in self._flow.nodes if node.is_leaf}
        return seen & leaves, len(leaves)

    def is_recurrent(self, key: SiteKey) -> bool:
        """Whether its calls share a parameter, as the steps of a recurrence do."""
        leaves, _ = self.reached(key)
        calls = len(self.sites[key].nodes)
        return any(2 * self._flow.nodes[leaf].dependencies >= calls for leaf in leaves)

    def feeds_layers(self, key: SiteKey) -> bool:
        """Whether all that it puts out goes into linear layers and convolutions."""
        return all(
            self._flow.nodes[edge.producer].short_name.startswith(_LAYERS)
            for node in self.sites[key].nodes
            for edge in self._flow.edges_into(node.index)
        )

    def is_passed_by(self, key: SiteKey) -> bool:
        """Whether what enters a softmax or a clamp gets more of its gradient by another way.

        So do the logits of a policy, whose entropy is a term beside: to be sure is what they learn.
        So does the ratio of PPO, of which the smaller of two products counts.
        """
        flow, own = self._flow, self.sites[key].nodes[-1].index
        norms: defaultdict[int, float] = defaultdict(float)
        for below in flow.trace.edges_from(self.graph_task, own):
            for edge in flow.edges_into(below.consumer):
                _, health = flow.output(edge.producer, edge.output)
                norms[edge.producer] += (health and health.norm) or 0.0
        own_norm = norms.pop(own, 0.0)
        return key.function in {"softmax", CLAMP} and own_norm < max(norms.values(), default=0.0)

    def is_at_the_bottom(self, key: SiteKey) -> bool:
        """Whether most of what a clamp put out may be at its lower bound, as the forward shows.

        A loss has nothing to learn there. It may be so where the forward was not recorded.
        """
        op = self._flow.trace.forward_op(self.graph_task, self.sites[key].nodes[-1].index)
        gave = None if op is None or not op.outputs else op.outputs[0].health
        if gave is None or gave.numbers < _FEW or None in {gave.min, gave.max, gave.mean}:
            return True
        least, most, mean = gave.min or 0.0, gave.max or 0.0, gave.mean or 0.0
        return mean - least <= _BOTTOM * (most - least)

    def scale_before(self, key: SiteKey) -> tuple[str, float]:
        """The weight of the layer right before it, and a least size of what that takes.

        The latter is a root mean square: the gradient of a weight is the product of what the layer
        took and of the gradient that came, and its norm at most the product of theirs.
        """
        flow, node = self._flow, self.sites[key].nodes[0].index
        _, came = flow.output(node, 0)
        for layer in flow.trace.edges_from(self.graph_task, node):
            for leaf, uses in flow.weights(layer.consumer):
                _, health = flow.gradient(leaf.index)
                outputs, inputs = leaf.shape or (1, 1)
                if came and came.norm and health and health.norm and uses == 1 and leaf.parameter:
                    numel = came.numbers / outputs * inputs
                    return leaf.parameter, health.norm / came.norm / math.sqrt(numel)
        return "", 0.0

    def names(self, leaves: set[int]) -> list[str]:
        """Names of those leaves that have one."""
        return [name for leaf in sorted(leaves) if (name := self._flow.nodes[leaf].parameter)]


def _by_site(flow: GradientFlow, found: Sequence[int]) -> dict[SiteKey, Site]:
    nodes: defaultdict[SiteKey, list[NodeRow]] = defaultdict(list)
    for index in found:
        node = flow.nodes[index]
        key = SiteKey(FUNCTIONS[node.short_name], node.module or "", node.line or "")
        nodes[key].append(node)
    sites = {}
    for key, its in nodes.items():
        its.sort(key=lambda node: node.sequence_nr or 0)
        known = [
            (node, far, met)
            for node in its
            if (far := _open(flow, node)) is not None
            and (met := slope(flow, node)) is not None
            and not (far <= RIM and flow.hooks(node.index))  # it may be the hook that took it
        ]
        if known:
            kept, far_open, slopes = zip(*known, strict=True)
            sites[key] = Site(key, kept[0].frame, kept, far_open, slopes)
    return sites


def _open(flow: GradientFlow, node: NodeRow) -> float | None:
    far = openness(flow, node)
    if far is None or far > _WIDE or FUNCTIONS[node.short_name] != "softmax":
        return far
    op = flow.trace.forward_op(flow.graph_task, node.index)
    outputs = None if op is None or not op.outputs else op.outputs[0].health
    by_rows = None if outputs is None else openness_of_rows(outputs)
    return far if by_rows is None else by_rows
