"""A backward node alone: the ATen calls that it made, and the tensors that they were given.

Note [A node is its calls]
How a node came to what it put out is known from the calls of ATen that it made while it ran, each
with its arguments. That holds for torch's own formulas and for custom Functions alike, and needs no
rule for each of some 300 kinds of nodes. A tensor among the arguments is either the result of an
earlier call, or *given*: then its elements are kept, with dtype, strides and device. Numbers that
the node read from tensors (``item``) are among the arguments. Random numbers are given, too.

What a file says is checked before a script is made of it: only calls of ATen and prims, only
arguments of the kinds below, only names made of letters. Nothing is evaluated to read it.
"""

from __future__ import annotations

import json
import keyword
import math
import re
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from agviz.errors import AgvizError
from agviz.repro import safetensors
from agviz.words.safe import clean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.repro.safetensors import StoredTensor

KEY: Final = "agviz_node"
"""In the metadata of the file."""
NAMESPACES: Final = frozenset({"aten", "prims"})
"""Of the operators that every torch has."""
_REFUSED: Final = frozenset({"from_file"})
"""Operators that touch files."""
_OPERATOR: Final = re.compile(r"(aten|prims)\.([A-Za-z_]\w*)\.([A-Za-z_]\w*)", re.ASCII)
_NAME: Final = re.compile(r"t\d{1,9}|(grad|given|output)_\d{1,9}|saved_\w{1,90}", re.ASCII)
"""What tensors are called; none of them is another name of the script's."""
_WORD: Final = re.compile(r"[a-z][a-z0-9_]{0,40}", re.ASCII)
_DEVICE: Final = re.compile(r"[a-z]{1,20}(:\d{1,4})?", re.ASCII)
TAGS: Final = frozenset({"dtype", "layout", "memory_format"})
"""Of arguments that are attributes of the module torch."""
_OF_TAG: Final = {
    **dict.fromkeys(TAGS, _WORD),
    "tensor": _NAME,
    "device": _DEVICE,
    "float": re.compile("inf|-inf|nan"),
}
"""What an argument of a kind may say, but for ``complex``."""
SETTINGS: Final[dict[str, Any]] = {
    "torch.backends.cuda.matmul.allow_tf32": False,
    "torch.backends.cudnn.allow_tf32": True,
    "torch.backends.cudnn.benchmark": False,
    "torch.backends.cudnn.deterministic": False,
    "torch.backends.cudnn.enabled": True,
    "torch.backends.mkldnn.enabled": True,
}
"""Settings that bits may depend on, with the value that they have in a fresh process."""
_LARGEST: Final = 2**62


@dataclass(frozen=True)
class GivenTensor:
    """A tensor that no call of the node made."""

    name: str
    """Of its elements in the file, and in the script."""
    dtype: str
    """Without ``torch.``."""
    size: tuple[int, ...]
    stride: tuple[int, ...]
    """In elements."""
    device: str
    is_span: bool = False
    """Whether the file has all elements of its memory from the first to the last, in one dimension,
    because they are not in order of their indices."""
    is_conj: bool = False
    """Whether it is lazily conjugated; the file has what it is the conjugate of."""
    is_neg: bool = False
    """The same of its sign."""


@dataclass(frozen=True)
class AtenCall:
    """One call; tensors are named, see :func:`tagged`."""

    operator: str
    """``aten.mul.Tensor``."""
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    """Name of what it made, None for what is not wanted or no tensor, or a list of them."""


@dataclass(frozen=True)
class IsolatedNode:
    """What was kept of one node."""

    name: str
    """torch's name of it."""
    facts: dict[str, str] = field(default_factory=dict)
    """Versions and the like, for the reader: texts."""
    threads: int = 0
    """Of torch, for one operator; 0: not known."""
    is_deterministic: bool = False
    """Whether deterministic algorithms were asked for."""
    settings: dict[str, bool] = field(default_factory=dict)
    """As :data:`SETTINGS`, those that differ."""
    given: tuple[GivenTensor, ...] = ()
    calls: tuple[AtenCall, ...] = ()
    outputs: tuple[str | None, ...] = ()
    """Names of what it put out; None: undefined."""
    recorded: tuple[GivenTensor | None, ...] = ()
    """The same, as recorded; by output."""
    grads: tuple[str | None, ...] = ()
    """Names of the gradients that came in; None: undefined, or used by no call."""
    why_not: str = ""
    """Why the node can't be run alone; empty: it can."""

    @property
    def devices(self) -> list[str]:
        """Other than the CPU."""
        return sorted({each.device for each in self.given} - {"cpu"})


def encode(node: IsolatedNode, tensors: dict[str, StoredTensor]) -> bytes:
    """A safetensors file."""
    return safetensors.encode(tensors, {KEY: json.dumps(asdict(node), separators=(",", ":"))})


def decode(data: bytes) -> tuple[IsolatedNode, dict[str, StoredTensor]]:
    """The node of a safetensors file, and the elements in it, by name.

    Raises:
        agviz.errors.AgvizError: the file is damaged.
    """
    tensors, metadata = safetensors.decode(data)
    try:
        node = _node(json.loads(metadata[KEY]))
        _check(node, tensors)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise AgvizError("the node that was kept is damaged; record it again") from error
    return node, tensors


def names_in(tree: Any) -> Iterator[str]:
    """The names of tensors in an argument, or in a result."""
    if isinstance(tree, list | tuple):
        for each in tree:
            yield from names_in(each)
    elif isinstance(tree, dict) and "tensor" in tree:
        yield tree["tensor"]


def made_by(call: AtenCall) -> Iterator[str]:
    """The names of what a call makes."""
    to_visit = [call.result]
    while to_visit:
        one = to_visit.pop(0)
        if isinstance(one, list | tuple):
            to_visit = [*one, *to_visit]
        elif one is not None:
            yield one


def _node(facts: dict[str, Any]) -> IsolatedNode:
    return IsolatedNode(
        name=clean(_text(facts["name"])),
        facts={clean(_text(k)): clean(_text(v)) for k, v in facts["facts"].items()},
        threads=_count(facts["threads"]),
        is_deterministic=facts["is_deterministic"] is True,
        settings={
            key: value is True for key, value in facts["settings"].items() if key in SETTINGS
        },
        given=tuple(_given(each) for each in facts["given"]),
        calls=tuple(_call(each) for each in facts["calls"]),
        outputs=tuple(_name(each, or_none=True) for each in facts["outputs"]),
        recorded=tuple(None if each is None else _given(each) for each in facts["recorded"]),
        grads=tuple(_name(each, or_none=True) for each in facts["grads"]),
        why_not=clean(_text(facts["why_not"])),
    )


def _given(facts: dict[str, Any]) -> GivenTensor:
    size, stride = (tuple(map(_count, facts[key])) for key in ("size", "stride"))
    if len(size) != len(stride) or math.prod(size) > _LARGEST:
        raise ValueError(facts)
    return GivenTensor(
        str(_name(facts["name"])),
        _matched(_WORD, facts["dtype"]),
        size,
        stride,
        _matched(_DEVICE, facts["device"]),
        is_span=facts["is_span"] is True,
        is_conj=facts["is_conj"] is True,
        is_neg=facts["is_neg"] is True,
    )


def _call(facts: dict[str, Any]) -> AtenCall:
    operator = facts["operator"]
    match = _OPERATOR.fullmatch(operator)
    if not match or match[2] in _REFUSED or any(map(keyword.iskeyword, match.groups())):
        raise ValueError(operator)
    kwargs = {_keyword(key): _argument(value) for key, value in facts["kwargs"].items()}
    return AtenCall(
        operator, tuple(map(_argument, facts["args"])), kwargs, _result(facts["result"])
    )


def _keyword(value: Any) -> str:
    if keyword.iskeyword(value):
        raise ValueError(value)
    return _matched(_WORD, value)


def _argument(value: Any) -> Any:
    if isinstance(value, list):
        return [_argument(each) for each in value]
    if not isinstance(value, dict):
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise TypeError(value)
    ((tag, content),) = value.items()
    if tag == "complex":
        return {tag: str(complex(_text(content)))}
    return {tag: _matched(_OF_TAG[tag], content)}


def _result(value: Any) -> Any:
    if isinstance(value, list):
        return [_result(each) for each in value]
    return _name(value, or_none=True)


def _check(node: IsolatedNode, tensors: dict[str, StoredTensor]) -> None:
    """See that each name refers to one thing, made before it is used."""
    known = {each.name for each in node.given}
    if len(known) < len(node.given) or len(node.outputs) != len(node.recorded):
        raise ValueError(known)
    for each in (*node.given, *node.recorded):
        if each is not None:
            _fits(each, tensors)
    for call in node.calls:
        made = list(made_by(call))
        if not known.issuperset(names_in([*call.args, *call.kwargs.values()])):
            raise KeyError(call.operator)
        if known.intersection(made) or len({*made}) < len(made):
            raise ValueError(made)
        known.update(made)
    for name, output in zip(node.outputs, node.recorded, strict=True):
        if (name is None) != (output is None) or (name is not None and name not in known):
            raise KeyError(name)


def _fits(given: GivenTensor, tensors: dict[str, StoredTensor]) -> None:
    """See that the file has the elements of a tensor."""
    stored = tensors[given.name]
    code = safetensors.CODES.get(given.dtype, "U8")
    if stored.code != code or (
        given.dtype in safetensors.CODES and not given.is_span and stored.shape != given.size
    ):
        raise ValueError(given)


def _name(value: Any, *, or_none: bool = False) -> str | None:
    return None if value is None and or_none else _matched(_NAME, value)


def _matched(pattern: re.Pattern[str], value: Any) -> str:
    if not pattern.fullmatch(_text(value)):
        raise ValueError(value)
    return str(value)


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(value)
    return value


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _LARGEST:
        raise TypeError(value)
    return value
