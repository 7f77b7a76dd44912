"""Which parameters are synchronised between ranks: buckets of DDP, units of FSDP2; stages."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from agviz.traces.distributed import NOT_WRAPPED, UNKNOWN, Stage, Synchronised
from agviz_engine.alive import instances

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from torch import Tensor
    from torch.nn import Module

    from agviz.traces.rows import Frame

_MOST_FRAMES: Final = 24
_BACKWARD_OF_STAGE: Final = frozenset({"backward_one_chunk", "backward_weight_one_chunk"})


def synchronised(
    graph_task: int,
    roots: list[tuple[str, Module]],
    name_of: Callable[[Tensor], str | None],
    is_hooked: Callable[[Tensor], bool | None],
    converted_at: Callable[[Tensor], tuple[Frame, ...]],
) -> tuple[Synchronised, ...]:
    """The parameters that are synchronised now.

    Args:
        graph_task: that begins.
        roots: the outermost modules and their names.
        name_of: names a parameter.
        is_hooked: whether the AccumulateGrad of a parameter has a hook made in C++; None: unknown.
        converted_at: where a module with a parameter was converted last; empty: nowhere.
    """
    ddp = _ddp()
    fsdp: Any = getattr(sys.modules.get("torch.distributed.fsdp"), "FSDPModule", ())
    found: dict[str, Synchronised] = {}
    for label, root in roots:
        units = 0
        for path, module in root.named_modules():
            unit = ".".join(filter(None, [label, path]))
            if isinstance(module, ddp):
                for parameter, bucket in _ddp_buckets(module):
                    name = name_of(parameter) or ""
                    nbytes = parameter.numel() * parameter.element_size()
                    has_hook = is_hooked(parameter)
                    facts = name, unit, "ddp", bucket, nbytes, has_hook
                    is_lost = has_hook is False or bucket == NOT_WRAPPED
                    where = converted_at(parameter) if is_lost else ()
                    found.setdefault(name, Synchronised(graph_task, *facts, where))
            elif isinstance(module, fsdp):
                for parameter in _fsdp_parameters(module):
                    name = name_of(parameter) or ""
                    nbytes = parameter.numel() * parameter.element_size()
                    one = Synchronised(graph_task, name, unit, "fsdp", units, nbytes, None, ())
                    found.setdefault(name, one)
                units += 1
    return tuple(one for name, one in found.items() if name)


def passed_over(roots: list[tuple[str, Module]], leaves: Collection[int]) -> list[Module]:
    """DDP's modules that nobody has called yet, though what they wrap is trained.

    Args:
        roots: the outermost modules that are known, and their names.
        leaves: ids of the tensors that a graph leads to.
    """
    ddp = _ddp()
    if not ddp or any(isinstance(each, ddp) for _, root in roots for each in root.modules()):
        return []
    alive: list[Any] = instances(ddp)
    return [one for one in alive if any(id(each) in leaves for each in one._module_parameters)]


def _ddp() -> Any:
    loaded = sys.modules.get("torch.nn.parallel.distributed")
    return getattr(loaded, "DistributedDataParallel", ())


def _ddp_buckets(module: Any) -> Iterator[tuple[Tensor, int]]:
    parameters = [p for p in module._module_parameters if p.requires_grad]
    said = module._get_ddp_logging_data().get("rebuilt_per_bucket_param_indices", "")
    buckets = {
        int(index): bucket
        for bucket, indices in enumerate(said.split(","))
        for index in indices.split()
    }
    for index, parameter in enumerate(parameters):
        yield parameter, buckets.get(index, UNKNOWN)
    known = {id(parameter) for parameter in module._module_parameters}
    ignored = set(getattr(module, "parameters_to_ignore", ()))
    for name, parameter in module.module.named_parameters():
        if id(parameter) not in known and parameter.requires_grad and name not in ignored:
            yield parameter, NOT_WRAPPED


def _fsdp_parameters(module: Any) -> Iterator[Tensor]:
    group = module._get_fsdp_state()._fsdp_param_group
    for parameter in () if group is None else group.fsdp_params:
        yield parameter.sharded_param


def stage_of(graph_task: int) -> Stage | None:
    """Which microbatch of a pipeline stage calls backward on this thread; None: none does."""
    if "torch.distributed.pipelining.stage" not in sys.modules:
        return None
    frame = sys._getframe(1)
    for _ in range(_MOST_FRAMES):
        if frame.f_code.co_name in _BACKWARD_OF_STAGE:
            stage: Any = frame.f_locals.get("self")
            chunk = frame.f_locals.get("bwd_chunk_id")
            if isinstance(chunk, int) and hasattr(stage, "stage_index"):
                return Stage(graph_task, int(stage.stage_index), int(stage.num_stages), chunk)
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return None
