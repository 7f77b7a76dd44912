"""The script that runs a node alone: plain torch, and the standard library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from agviz.repro.isolated_node import SETTINGS, TAGS
from agviz.repro.safetensors import CODES
from agviz.words.safe import clean
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agviz.repro.isolated_node import AtenCall, GivenTensor, IsolatedNode

_TORCH_OF: Final = {code: name for name, code in CODES.items()}
_LOAD: Final = '''

def load(path):
    """The tensors of a safetensors file, each in memory of its own."""
    data = bytearray(path.read_bytes())
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    header.pop("__metadata__", None)
    tensors = {}
    for name, facts in header.items():
        tensors[name] = torch.empty(facts["shape"], dtype=DTYPES[facts["dtype"]])
        first, end = facts["data_offsets"]
        if end > first:
            stored = torch.frombuffer(data[begin + first : begin + end], dtype=torch.uint8)
            tensors[name].view(-1).view(torch.uint8).copy_(stored)
    return tensors


def bits(tensor):
    """All bits of the elements of a tensor, in order of their indices."""
    plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    return plain.reshape(-1).view(torch.uint8)


def broken(tensor):
    """How many elements are not finite."""
    wide = tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)
    return int((~torch.isfinite(wide)).sum())

'''
_COMPARE: Final = """
is_same = True
for number, (output, before) in enumerate(zip(outputs, recorded, strict=True)):
    if output is None:
        continue
    same = (output.dtype, output.shape) == (before.dtype, before.shape)
    same = same and torch.equal(bits(output), bits(before))
    is_same &= same
    print(
        f"output {number} {list(output.shape)}: {'the same bits' if same else 'OTHER BITS'}"
        f" as recorded, {broken(output)} of {output.numel()} elements not finite"
    )
sys.exit(not is_same)
"""


def write_script(node: IsolatedNode, data_file: str, about: Sequence[str]) -> str:
    """The text of the script, ASCII.

    Args:
        node: which can be run alone.
        data_file: name of the safetensors file, which lies beside the script.
        about: sentences for its head.
    """
    tensors = [*node.given, *(each for each in node.recorded if each is not None)]
    codes = sorted({CODES.get(each.dtype, "U8") for each in tensors})
    dtypes = ", ".join(f'"{code}": torch.{_TORCH_OF[code]}' for code in codes)
    head = [
        f"{_plain(node.name)} alone: {plural(len(node.calls), 'call')} of ATen.",
        "",
        *map(_plain, about),
    ]
    lines = [
        '"""' + "\n".join(head).replace("\\", "/").replace('"', "'") + '\n"""',
        "",
        *("import json", "import sys", "from pathlib import Path", "", "import torch", ""),
        f"DTYPES = {{{dtypes}}}",
        "aten, prims = torch.ops.aten, torch.ops.prims",
        _LOAD,
        *_settings(node),
        f"tensors = load(Path(__file__).with_name({data_file!a}))",
        *(f"{each.name} = {_rebuilt(each)}" for each in node.given),
        "",
        "with torch.no_grad():",
        *(f"    {_statement(call)}" for call in node.calls),
        f"    outputs = [{', '.join(str(name) for name in node.outputs)}]",
        "",
        f"recorded = [{', '.join('None' if x is None else _rebuilt(x) for x in node.recorded)}]",
    ]
    return "\n".join(lines) + _COMPARE


def _settings(node: IsolatedNode) -> list[str]:
    lines = []
    for kind in sorted({device.partition(":")[0] for device in node.devices}):
        said = f"recorded on {kind}, and this torch sees no such device"
        lines += [f"if not torch.{kind}.is_available():", f'    sys.exit("{said}")']
    if node.threads:
        lines.append(f"torch.set_num_threads({node.threads})")
    if node.is_deterministic:
        lines.append("torch.use_deterministic_algorithms(True)")
    return [
        *lines,
        *(f"{key} = {value}" for key, value in node.settings.items() if key in SETTINGS),
    ]


def _rebuilt(given: GivenTensor) -> str:
    """An expression that gives a tensor with these elements, strides and device."""
    text = f'tensors["{given.name}"]'
    if given.dtype not in CODES:
        text += f".view(torch.{given.dtype})"
        if not given.is_span:
            text += f".view({_tuple(given.size)})"
    if given.device != "cpu":
        text += f'.to("{given.device}")'
    if given.is_span:
        text += f".as_strided({_tuple(given.size)}, {_tuple(given.stride)})"
    if given.is_conj:
        text += ".conj()"
    return f"torch._neg_view({text})" if given.is_neg else text


def _tuple(numbers: Sequence[int]) -> str:
    return repr(tuple(numbers))


def _statement(call: AtenCall) -> str:
    given = [*map(_written, call.args), *(f"{k}={_written(v)}" for k, v in call.kwargs.items())]
    text = f"{call.operator}({', '.join(given)})"
    target = _target(call.result)
    return text if target == "_" else f"{target} = {text}"


def _target(result: Any) -> str:
    if isinstance(result, list | tuple):
        if not any(_target(each) != "_" for each in result):
            return "_"
        inner = [f"({_target(x)})" if isinstance(x, list | tuple) else _target(x) for x in result]
        return ", ".join(inner) + ("," if len(inner) == 1 else "")
    return "_" if result is None else str(result)


def _written(value: Any) -> str:
    """An argument as Python writes it."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_written, value))}]"
    if isinstance(value, dict):
        ((tag, content),) = value.items()
        if tag in TAGS:
            return f"torch.{content}"
        if tag in {"float", "complex"}:
            return f'{tag}("{content}")'
        return f'torch.device("{content}")' if tag == "device" else str(content)
    return ascii(value)


def _plain(text: str) -> str:
    return clean(text).encode("ascii", "backslashreplace").decode("ascii")
