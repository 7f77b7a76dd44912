"""Calling a node's hooks: tensor pre-hooks, retain_grad hooks, pre-hooks, post-hooks.

Order and rules are those of ``call_tensor_pre_hooks``, ``call_pre_hooks`` and ``call_post_hooks``
(``engine.cpp``) and of ``_call_hooks`` (``python_hook.cpp``). Each Python hook is
called from here, one by one, out of the live dict that torch keeps. Hooks made in C++
(``retain_grad``, those of extensions) are run by torch itself, on this one node.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any, cast

from torch import Tensor

from agviz_engine import native_run, torch_layout
from agviz_engine.python_hook import check_result, check_single_result, hook_name
from agviz_engine.thread_state import current, program_ran

if TYPE_CHECKING:
    from agviz_engine.node import NodeRef
    from agviz_engine.torch_layout import PythonHooks

Gradients = tuple[Tensor | None, ...]
HookReport = Callable[[str, str, int, Gradients, Gradients], None]
"""Called after each hook: kind, name, the moment it began in ns, what it was given, and what it
gave in place of that. Where it changed nothing both are one and the same."""


def call_tensor_pre_hooks(
    ref: NodeRef,
    inputs: Gradients,
    *,
    create_graph: bool,
    clock: Callable[[], int],
    report: HookReport | None,
) -> Gradients:
    """Run tensor hooks and retain_grad hooks on the incoming gradients.

    Raises:
        TypeError, RuntimeError: a hook returned something unfit, with torch's message.
    """
    hooks, only_native_can = _tensor_pre_hooks(ref)
    if only_native_can and any(gradient is not None for gradient in inputs):
        began, doing = clock(), current().enter("tensor_pre")
        outputs = native_run.capture(ref, inputs, create_graph=create_graph)
        current().doing = doing
        program_ran()
        if report is not None:
            changed = any(a is not b for a, b in zip(inputs, outputs, strict=True))
            gave = outputs if changed else inputs
            report("tensor_pre", "tensor hooks and retain_grad", began, inputs, gave)
        return outputs
    values = list(inputs)
    for found in hooks:
        if found is None:
            continue
        for hook in list(found.hooks.values()):
            began, doing = clock(), current().enter("tensor_pre", hook)
            value = values[found.value_idx]
            result = hook(value)
            current().doing = doing
            program_ran()
            changed = result is not None and result is not value
            if changed:
                check_single_result(value, result, hook)
                values[found.value_idx] = result
            if report is not None:
                given = (value,)
                gave = (result,) if changed else given
                report("tensor_pre", hook_name(hook), began, given, gave)
    if all(a is b for a, b in zip(inputs, values, strict=True)):
        return inputs  # the very same: who asks whether a gradient has other holders counts tuples
    return tuple(values)


def _tensor_pre_hooks(ref: NodeRef) -> tuple[list[PythonHooks | None], bool]:
    """The tensor hooks of a node, and whether some of them can only be called by torch.

    An AccumulateGrad has those of its variable (``AccumulateGrad::tensor_pre_hooks``).
    """
    if ref.is_accumulate_grad:
        leaf = torch_layout.leaf_hook_list(ref.node.variable)
        known = [torch_layout.python_hooks(hook) for hook in leaf]
        return known, None in known
    found = [torch_layout.python_hooks(hook) for hook in torch_layout.tensor_pre_hooks(ref.base)]
    return found, torch_layout.retains_grad(ref.base) or None in found


def call_hooks(
    ref: NodeRef,
    kind: str,
    values: Gradients,
    *more: Gradients,
    clock: Callable[[], int],
    report: HookReport | None,
) -> Gradients:
    """Run the pre-hooks (``kind`` "pre") or post-hooks ("post") of a node on ``values``.

    Post-hooks get the incoming gradients as a second argument. All get tuples of their own, as from
    torch: one that keeps its tuple is one more holder of the gradients in it.

    Raises:
        TypeError, RuntimeError: a hook returned something unfit, with torch's message.
    """
    hooks_of = torch_layout.pre_hooks if kind == "pre" else torch_layout.post_hooks
    for address in hooks_of(ref.base):
        found = torch_layout.python_hooks(address)
        if found is None:
            continue
        for hook in list(found.hooks.values()):
            began, doing = clock(), current().enter(kind, hook)
            given = (*values,)
            result = hook(given, *((*one,) for one in more))
            current().doing = doing
            program_ran()
            if result is None or result is given:
                result = values
            del given
            if result is not values:
                check_result(values, result, hook)
            if report is not None:
                report(kind, hook_name(hook), began, values, result)
            values = cast("Gradients", result)
    return values


def leaf_has_hooks(ref: NodeRef, variable: Any) -> bool:
    """Whether an AccumulateGrad or its variable has hooks of any kind. May say yes for none."""
    pre, _, _, post = torch_layout.had_hooks(ref.base << 3)
    if pre or post or variable._post_accumulate_grad_hooks:
        return True
    return torch_layout.leaf_has_tensor_hooks(variable)


def has_tensor_pre_hooks(ref: NodeRef) -> bool:
    """Whether anything may look at, and replace, the gradients that come in."""
    found, only_native_can = _tensor_pre_hooks(ref)
    return bool(found) or only_native_can


class ObservedHook:
    """Takes the place of a hook that torch calls, and reports the call."""

    def __init__(
        self,
        hook: Callable[..., Any],
        kind: str,
        report: HookReport,
        is_ours: Callable[[], bool],
        clock: Callable[[], int],
    ) -> None:
        self.hook = hook
        self.__name__ = hook_name(hook)
        self.kind = kind
        self._report = report
        self._is_ours = is_ours
        self._clock = clock

    def __call__(self, *values: Any) -> Any:
        """Call the hook."""
        if not self._is_ours():  # the node runs in another graph task at the same time
            return self.hook(*values)
        began, doing = self._clock(), current().enter(self.kind, self.hook)
        result = self.hook(*values)
        current().doing = doing
        given = _several(values[0] if values else ())
        changed = result is not None and result is not values[0]
        self._report(self.kind, self.__name__, began, given, _several(result) if changed else given)
        return result


def _several(values: Any) -> Gradients:
    """What a hook took or gave, one or several; torch has not looked at it yet."""
    return cast("Gradients", values) if isinstance(values, tuple) else (values,)


@contextlib.contextmanager
def observed(
    ref: NodeRef,
    *,
    report: HookReport,
    is_ours: Callable[[], bool],
    clock: Callable[[], int],
) -> Iterator[None]:
    """Report the Python hooks of a node that torch runs with its hooks, one by one.

    Args:
        ref: a custom Function's node or an AccumulateGrad.
        report: called after each hook.
        is_ours: whether the calling thread works on the graph task that the report is for.
        clock: gives the present moment in ns.
    """
    replaced: list[tuple[dict[Any, Any], Any, ObservedHook]] = []
    for kind, hooks in _python_hooks(ref):
        for key, hook in hooks.items():
            hooks[key] = replacement = ObservedHook(hook, kind, report, is_ours, clock)
            replaced.append((hooks, key, replacement))
    try:
        yield
    finally:
        for hooks, key, replacement in replaced:
            if hooks.get(key) is replacement:
                hooks[key] = replacement.hook


def _python_hooks(ref: NodeRef) -> list[tuple[str, dict[Any, Any]]]:
    """The dicts of a node's Python hooks, each once, with their kind."""
    after: dict[Any, Any] | None = None
    if ref.is_accumulate_grad:
        variable = ref.node.variable
        before = torch_layout.leaf_hook_list(variable)
        after = variable._post_accumulate_grad_hooks
    else:
        before = torch_layout.tensor_pre_hooks(ref.base)
    addresses = [("tensor_pre", address) for address in before]
    addresses += [("pre", address) for address in torch_layout.pre_hooks(ref.base)]
    addresses += [("post", address) for address in torch_layout.post_hooks(ref.base)]
    found: dict[int, tuple[str, dict[Any, Any]]] = {}
    for kind, address in addresses:
        known = torch_layout.python_hooks(address)
        if known is not None:
            found[id(known.hooks)] = kind, cast("dict[Any, Any]", known.hooks)
    dicts = list(found.values())
    return [*dicts, ("post_accumulate_grad", after)] if after else dicts


def hook_names(ref: NodeRef) -> list[str]:
    """Names of the Python hooks of a node."""
    found = _python_hooks(ref) if ref.base else []
    return [hook_name(hook) for _, hooks in found for hook in hooks.values()]


def has_python_hooks(ref: NodeRef) -> bool:
    """Whether a node has hooks that are Python's."""
    return any(hooks for _, hooks in _python_hooks(ref))


class HiddenHooks:
    """Python hooks of a node, taken away: they were called already, or are not to be called.

    ``restore`` gives them back. It has to be called before anything else can reach the node: a
    backward inside the node finds them in place.

    Args:
        ref: the node.
        kinds: which of them.
    """

    def __init__(
        self,
        ref: NodeRef,
        kinds: Collection[str] = ("tensor_pre", "pre", "post", "post_accumulate_grad"),
    ) -> None:
        found = _python_hooks(ref) if ref.base else []
        self._hidden = [(hooks, dict(hooks)) for kind, hooks in found if kind in kinds]
        for hooks, _ in self._hidden:
            hooks.clear()

    def restore(self) -> None:
        """Put them back in front of those that came since; a second call has no effect."""
        while self._hidden:
            hooks, before = self._hidden.pop()
            added = dict(hooks)
            hooks.clear()
            hooks.update(before)
            hooks.update(added)


def call_post_accumulate_grad_hooks(
    ref: NodeRef, *, clock: Callable[[], int], report: HookReport | None
) -> None:
    """Call a leaf's hooks after its gradient arrived (``PyFunctionTensorPostAccGradHooks``).

    Raises:
        TypeError, RuntimeError: a hook returned something else, with torch's message.
    """
    variable = ref.node.variable
    for hook in list((variable._post_accumulate_grad_hooks or {}).values()):
        began, doing = clock(), current().enter("post_accumulate_grad", hook)
        result = hook(variable)
        current().doing = doing
        program_ran()
        if result is not None and result is not variable:
            check_single_result(variable, result, hook)
            raise RuntimeError("Tensor post accumulate grad hooks should return None.")
        if report is not None:
            report("post_accumulate_grad", hook_name(hook), began, (), ())
