"""What a mask that is given to attention is True at, by the text of a program.

Note [Masks of truth]
In the masks of torch's modules (``nn.MultiheadAttention``, ``nn.TransformerEncoder`` and the like)
True leaves a place out. In ``scaled_dot_product_attention`` True lets it take part. Which one is
True is read in the text: a triangle of ones, a comparison with the token of padding, or one of
positions with lengths. A triangle that is the wrong way round leaves to the last token, or to the
first, nothing to look at, so that nobody can mean it. Numbers are added to the scores by both, so
that a mask of 0 and 1 leaves nothing out.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.code_search import called_name
from agviz.analysis.steps.values import all_given

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from agviz.analysis.steps.given_names import GivenNames

FUSED: Final = "scaled_dot_product_attention"
_PLACES: Final = {
    FUSED: {"attn_mask": 3},
    "MultiheadAttention": {"key_padding_mask": 3, "attn_mask": 5},
    "TransformerEncoder": {"mask": 1, "src_key_padding_mask": 2},
    "TransformerEncoderLayer": {"src_mask": 1, "src_key_padding_mask": 2},
    "TransformerDecoder": {
        "tgt_mask": 2,
        "memory_mask": 3,
        "tgt_key_padding_mask": 4,
        "memory_key_padding_mask": 5,
    },
    "TransformerDecoderLayer": {
        "tgt_mask": 2,
        "memory_mask": 3,
        "tgt_key_padding_mask": 4,
        "memory_key_padding_mask": 5,
    },
    "Transformer": {
        "src_mask": 2,
        "tgt_mask": 3,
        "memory_mask": 4,
        "src_key_padding_mask": 5,
        "tgt_key_padding_mask": 6,
        "memory_key_padding_mask": 7,
    },
}
"""By what is called: masks, with their places among the arguments."""
_MOST_DEEP: Final = 12
_OTHER_SIDE: Final = {"past": "future", "future": "past", "real": "padding", "padding": "real"}
TAKING_PART: Final = frozenset({"past", "real"})
_KEEPING: Final = frozenset(
    {"clone", "contiguous", "cpu", "cuda", "detach", "expand", "expand_as", "repeat"}
    | {"repeat_interleave", "reshape", "squeeze", "unsqueeze", "view"}
)
_TURNING: Final = frozenset({"mT", "permute", "swapaxes", "t", "T", "transpose"})
_NUMBERS: Final = frozenset({"double", "float", "half", "int", "long"})
_CONVERTING: Final = _NUMBERS | {"astype", "bool", "to", "type"}
_ONES: Final = frozenset({"new_ones", "ones", "ones_like"})
_LENGTHS: Final = frozenset(
    {"count", "counts", "len", "length", "lengths", "lens", "size", "sizes"}
)
_PLAIN: Final = frozenset(
    {"actual", "batch", "cuda", "device", "int", "item", "key", "long", "none", "real", "reshape"}
    | {"self", "seq", "sequence", "src", "text", "tgt", "to", "token", "tokens", "true"}
    | {"unsqueeze", "valid", "view", "word", "words"}
)
"""Words that say nothing else of a length."""
_COMPARING: Final[dict[str, type[ast.cmpop]]] = {
    "eq": ast.Eq,
    "ne": ast.NotEq,
    "not_equal": ast.NotEq,
    "lt": ast.Lt,
    "less": ast.Lt,
    "le": ast.LtE,
    "gt": ast.Gt,
    "greater": ast.Gt,
    "ge": ast.GtE,
}
_READ: Final = frozenset(
    {"bitwise_not", "logical_not", "tril", "triu"}
    | {*_COMPARING, *_CONVERTING, *_KEEPING, *_TURNING}
)
_MIRRORED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.Gt,
    ast.LtE: ast.GtE,
    ast.Gt: ast.Lt,
    ast.GtE: ast.LtE,
    ast.Eq: ast.Eq,
    ast.NotEq: ast.NotEq,
}


class MaskSense(NamedTuple):
    """What a mask is True, or 1, at."""

    where: str
    is_truth: bool
    """Whether it is of truth values, not of numbers."""

    def flipped(self) -> MaskSense:
        """Of the inverted mask."""
        return MaskSense(_OTHER_SIDE[self.where], self.is_truth)

    @property
    def is_triangle(self) -> bool:
        """Whether it is about the order of tokens."""
        return self.where in {"past", "future"}


class WrongMask(NamedTuple):
    """One that says the opposite of what it is to say, or nothing."""

    taker: str
    word: str
    given: ast.expr
    sense: MaskSense


class MaskReader:
    """Reads what masks are True at.

    Args:
        names: of the program.
    """

    def __init__(self, names: GivenNames) -> None:
        self._names = names

    def wrong(self, call: ast.Call) -> Iterator[WrongMask]:
        """Masks given to attention that say the opposite of what they are to say."""
        name = called_name(call)
        if name != FUSED:
            classes = self._names.classes(call.func) if is_of_module(call.func) else set()
            name = classes.pop() if len(classes) == 1 else ""
        words = {word.arg: word.value for word in call.keywords}
        causal = words.get("is_causal")
        if causal is not None and ast.unparse(causal) != "False":
            return  # modules pass over the mask then
        for word, place in _PLACES.get(name, {}).items():
            given = words.get(word, call.args[place] if len(call.args) > place else None)
            if given is None or any(isinstance(each, ast.Starred) for each in call.args):
                continue
            sense = self._sense(given, 0)
            if sense is None:
                continue
            if not sense.is_truth or (sense.where in TAKING_PART) != (name == FUSED):
                yield WrongMask(name, word, given, sense)

    def _sense(self, value: ast.expr, depth: int) -> MaskSense | None:
        if depth > _MOST_DEEP:
            return None
        found: MaskSense | None = None
        match value:
            case ast.UnaryOp(op=ast.Invert(), operand=inner):
                sense = self._sense(inner, depth + 1)
                found = sense.flipped() if sense is not None and sense.is_truth else None
            case ast.BinOp(left=ast.Constant(value=1 | 1.0), op=ast.Sub(), right=inner):
                sense = self._sense(inner, depth + 1)
                found = None if sense is None else sense.flipped()
            case ast.BinOp(left=left, op=ast.BitAnd() | ast.BitOr() as joining, right=right):
                found = self._joined([left, right], depth, is_and=isinstance(joining, ast.BitAnd))
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                found = self._compared(left, type(operator), right, depth)
            case ast.Subscript(value=inner, slice=index):
                sense = self._sense(inner, depth + 1)
                is_part = sense is not None and sense.is_triangle and not _begins(index)
                found = None if is_part else sense
            case ast.Attribute(value=inner, attr=attr) if attr in _TURNING:
                found = self._turned(inner, depth)
            case ast.Call():
                found = self._called(value, depth)
            case ast.IfExp() | ast.Name() | ast.Attribute():
                found = self._agreed(self._choices(value), depth)
        return found

    def _choices(self, value: ast.expr) -> Sequence[ast.expr | None]:
        if isinstance(value, ast.IfExp):
            return [value.body, value.orelse]
        return self._names.given(value)

    def _joined(self, parts: Sequence[ast.expr], depth: int, *, is_and: bool) -> MaskSense | None:
        """Of what takes part where both say so, or is left out where one does."""
        senses = [self._sense(each, depth + 1) for each in parts]
        fits = all(
            each is not None and each.is_truth and (each.where in TAKING_PART) == is_and
            for each in senses
        )
        return senses[0] if fits else None

    def _agreed(self, values: Iterable[ast.expr | None], depth: int) -> MaskSense | None:
        senses = {
            None if each is None else self._sense(each, depth + 1)
            for each in values
            if not (isinstance(each, ast.Constant) and each.value is None)
        }
        return senses.pop() if len(senses) == 1 else None

    def _turned(self, inner: ast.expr, depth: int) -> MaskSense | None:
        sense = self._sense(inner, depth + 1)
        return None if sense is None or sense.is_triangle else sense

    def _called(self, call: ast.Call, depth: int) -> MaskSense | None:
        name, given = called_name(call), all_given(call)
        sense = self._sense(given[0], depth + 1) if given and name in _READ else None
        if not given or name not in _READ:
            return self._agreed(self._names.given(call), depth)
        if name in {"tril", "triu"}:
            return self._triangle(call, depth)
        if name in _COMPARING and len(given) == 2:
            return self._compared(given[0], _COMPARING[name], given[1], depth)
        if sense is None or (name in _TURNING and sense.is_triangle):
            return None
        if name in {"logical_not", "bitwise_not"}:
            return MaskSense(_OTHER_SIDE[sense.where], is_truth=True)
        return _converted(sense, name, given[1:]) if name in _CONVERTING else sense

    def _triangle(self, call: ast.Call, depth: int) -> MaskSense | None:
        given = all_given(call)
        words = {word.arg: word.value for word in call.keywords}
        first = given[0]
        placed = given[1] if len(given) > 1 + len(words) else None
        diagonal = words.get("diagonal", placed)
        begins = "0" if diagonal is None else ast.unparse(diagonal)
        is_truth = self._of_ones(first, depth)
        if is_truth is None or (called_name(call), begins) not in {("tril", "0"), ("triu", "1")}:
            return None
        return MaskSense("past" if called_name(call) == "tril" else "future", is_truth)

    def _of_ones(self, value: ast.expr, depth: int) -> bool | None:
        """Whether ones are truth values; None: they are no ones, or of another kind."""
        match value:
            case ast.Call() if called_name(value) in _ONES:
                return _kind_of_ones(value)
            case ast.Call(func=ast.Attribute(value=inner, attr="bool")):
                return None if self._of_ones(inner, depth + 1) is None else True
            case ast.Name() if depth < _MOST_DEEP:
                found = self._names.given(value)
                if len(found) == 1 and found[0] is not None:
                    return self._of_ones(found[0], depth + 1)
        return None

    def _compared(
        self, left: ast.expr, operator: type[ast.cmpop], right: ast.expr, depth: int
    ) -> MaskSense | None:
        if operator not in _MIRRORED:
            return None
        if isinstance(left, ast.Constant):
            left, operator, right = right, _MIRRORED[operator], left
        sense = self._sense(left, depth + 1)
        kinds = self._positions(left, depth), self._positions(right, depth)
        if sense is not None:
            found = _with_number(sense, operator, ast.unparse(right))
        elif "" not in kinds:
            found = _of_positions(kinds, operator)
        elif operator in {ast.Eq, ast.NotEq}:
            is_of_tokens = self._is_padding(right, left) or self._is_padding(left, right)
            found = MaskSense("padding" if operator is ast.Eq else "real", is_truth=True)
            return found if is_of_tokens else None
        elif kinds == ("", "") or not _is_length(left if kinds[1] else right):
            return None
        else:
            operator = operator if kinds[0] else _MIRRORED[operator]
            is_before = operator in {ast.Lt, ast.LtE}
            found = MaskSense("real" if is_before else "padding", is_truth=True)
        return found

    def _positions(self, value: ast.expr, depth: int) -> str:
        """How ``arange(n)`` lies: ``flat``, or in a ``column``; empty: it is something else."""
        found = ""
        match value:
            case ast.Subscript(value=inner, slice=index):
                found = self._positions(inner, depth + 1)
                is_column = _is_column(ast.unparse(index)) and found == "flat"
                found = "column" if is_column else found if _begins(index) else ""
            case ast.Call(args=[only]) if called_name(value) == "arange":
                found = "" if isinstance(only, ast.Starred) else "flat"
            case ast.Call(func=ast.Attribute(value=inner, attr=attr)) if attr in _KEEPING | {"to"}:
                found = _laid(self._positions(inner, depth + 1), value)
            case ast.Name() | ast.Attribute() if depth < _MOST_DEEP:
                values = self._names.given(value)
                kinds = {
                    "" if each is None else self._positions(each, depth + 1) for each in values
                }
                found = kinds.pop() if len(kinds) == 1 else ""
        return found

    def _is_padding(self, number: ast.expr, tokens: ast.expr) -> bool:
        """Whether tokens are compared with the one of padding."""
        if isinstance(number, ast.Name | ast.Attribute):
            name = number.id if isinstance(number, ast.Name) else number.attr
            return "pad" in name.lower()
        if not isinstance(number, ast.Constant) or not isinstance(number.value, int):
            return False
        return any(
            ast.unparse(each) == ast.unparse(tokens)
            for _, call in self._names.calls
            if self._names.function(call) is self._names.function(tokens)
            and is_of_module(call.func)
            and self._names.classes(call.func) == {"Embedding"}
            for each in call.args
        )


def _is_length(value: ast.expr) -> bool:
    """Whether a number is one of tokens, from the first on, as far as its name says.

    It may be that of a prompt or of padding on the left as well, and is called so then.
    """
    written = ast.unparse(value).lower()
    words = {each for each in re.split("[^a-z]+", written) if len(each) > 1}
    is_own = "-" in written or "len(" in written or "size(" in written
    return not is_own and not _LENGTHS.isdisjoint(words) and words <= _LENGTHS | _PLAIN


def _kind_of_ones(call: ast.Call) -> bool | None:
    """Whether ones are made as truth values; None: as numbers that a mask can't be of."""
    kinds = [ast.unparse(each.value) for each in call.keywords if each.arg == "dtype"]
    if not kinds:
        return False if called_name(call) == "ones" else None
    is_truth = kinds[0].rpartition(".")[2] == "bool"
    return is_truth or (False if "float" in kinds[0] else None)


def _laid(found: str, call: ast.Call) -> str:
    """How positions lie behind a method that may make a column of them."""
    name, given = called_name(call), ", ".join(map(ast.unparse, call.args))
    if not found or name not in {"reshape", "unsqueeze", "view"}:
        return found
    if given in ({"1", "-1"} if name == "unsqueeze" else {"-1, 1"}):
        return "column"
    return found if given in {"0", "1, -1"} else ""


def is_of_module(called: ast.expr) -> bool:
    """Whether what is called may be a module: a variable, an attribute of self, one of a list."""
    match called:
        case ast.Name() | ast.Subscript() | ast.Attribute(value=ast.Name(id="self")):
            return True
    return False


def _converted(sense: MaskSense, name: str, given: list[ast.expr]) -> MaskSense:
    kind = name if not given else ast.unparse(given[0]).rpartition(".")[2]
    if "bool" in kind:
        return sense._replace(is_truth=True)
    if name in _NUMBERS or any(each in kind for each in ("float", "int", "long", "dtype")):
        return sense._replace(is_truth=False)
    return sense


def _with_number(sense: MaskSense, operator: type[ast.cmpop], right: str) -> MaskSense | None:
    """What a comparison of a mask with 0 or 1 is True at."""
    truth = MaskSense(sense.where, is_truth=True)
    number = {"0": 0, "0.0": 0, "False": 0, "1": 1, "1.0": 1, "True": 1}.get(right)
    if (operator, number) in {(ast.Eq, 1), (ast.NotEq, 0), (ast.Gt, 0), (ast.GtE, 1)}:
        return truth
    if (operator, number) in {(ast.Eq, 0), (ast.NotEq, 1), (ast.Lt, 1), (ast.LtE, 0)}:
        return truth.flipped()
    return None


def _of_positions(kinds: tuple[str, str], operator: type[ast.cmpop]) -> MaskSense | None:
    """What a comparison of the positions of queries, a column, and of keys is True at."""
    if sorted(kinds) != ["column", "flat"] or operator not in _MIRRORED:
        return None
    operator = operator if kinds[0] == "column" else _MIRRORED[operator]
    where = {ast.GtE: "past", ast.Lt: "future"}.get(operator)
    return None if where is None else MaskSense(where, is_truth=True)


def _begins(index: ast.expr) -> bool:
    """Whether an index takes what begins at 0, or adds dimensions."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    return all(
        (isinstance(each, ast.Slice) and each.lower is None and each.step is None)
        or (isinstance(each, ast.Constant) and each.value in {None, Ellipsis})
        for each in parts
    )


def _is_column(index: str) -> bool:
    return index.strip("()") in {":, None", "..., None"}
