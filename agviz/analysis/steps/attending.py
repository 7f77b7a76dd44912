"""Attention that looks at what it should not: masks the wrong way round, no mask, other axes.

See :mod:`agviz.analysis.steps.mask_sense` for what masks mean.

Note [To see what is to be predicted]
Where the targets are the input shifted by one, attention without a mask looks at each target while
it predicts it. This is said where the model's classes attend over the sequence itself, in a layout
that is known, and where nothing in the whole text may be a mask. A causal model that is held to the
very tokens that it is given only has to copy them: this may be meant, so it is not judged.

Note [Over the heads]
scaled_dot_product_attention attends over the last dimension but one. In [batch, tokens, heads,
size] these are the heads of one token.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.code_search import called_name, line_at, with_functions
from agviz.analysis.steps.finding import StepFinding
from agviz.analysis.steps.mask_sense import (
    FUSED,
    TAKING_PART,
    MaskReader,
    WrongMask,
    is_of_module,
)
from agviz.analysis.steps.next_tokens import NextTokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agviz.analysis.steps.given_names import GivenNames
    from agviz.analysis.steps.next_tokens import Prediction
    from agviz.analysis.steps.run import RunSteps

_WORDS: Final = ("Attention", "Transformer", "attention", "softmax")
"""A program that has none of them in its text does not attend."""
_ENCODERS: Final = frozenset({"TransformerEncoder", "TransformerEncoderLayer"})
_MANY: Final = "MultiheadAttention"
_RECURRENT: Final = frozenset({"GRU", "LSTM", "RNN"})
_TURNING: Final = frozenset(
    {"flatten", "movedim", "permute", "rearrange", "reshape", "squeeze", "swapaxes", "t"}
    | {"transpose", "unflatten", "view"}
)
_SHIFTING: Final = frozenset({"cat", "concat", "narrow", "pad", "roll"})
_CAUSAL: Final = frozenset({"generate_square_subsequent_mask", "tril", "triu"})
_MASKING: Final = ("mask", "causal", "tril", "triu", "inf", "fill", "where", "cumsum")
"""Names with such parts may be of a mask."""
_OF_HEADS: Final = 4
"""Dimensions of [batch, tokens, heads, size]."""
_LARGE: Final = 1e3
"""A number below minus this may be taken for minus infinity."""
_WHAT: Final = {
    "past": "each token itself and those before it",
    "future": "later tokens",
    "real": "real tokens",
    "padding": "padding",
}


class _Text(NamedTuple):
    run: RunSteps
    names: GivenNames
    lines: set[tuple[str, int]]
    """Files and lines in which nodes of graphs were made, or what made these was called."""

    def has_run(self, node: ast.expr, file: str) -> bool:
        """Whether a node of some graph was made in a line of an expression."""
        last = node.end_lineno or node.lineno
        return any((file, line) in self.lines for line in range(node.lineno, last + 1))

    def finding(
        self, kind: str, file: str, node: ast.expr, heading: str, paragraph: str
    ) -> StepFinding:
        function = self.names.function(node)
        within = "<module>" if function is None else function.name
        line = line_at(self.run.trace, file, node.lineno, within)
        return StepFinding(kind=kind, heading=heading, frame=line, paragraph=paragraph)


def attending(run: RunSteps) -> Iterator[StepFinding]:
    """The first attention that looks at what it should not."""
    text = _text(run) if run.passes and _mentions(run, _WORDS) else None
    if text is None:
        return
    for rule in (_wrong_masks, _over_heads, _unmasked):
        found = next(rule(text), None)
        if found is not None:
            yield found
            return


def not_shifted(run: RunSteps) -> StepFinding | None:
    """A causal model whose targets are the tokens that it is given; None: there is none.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    is_sequential = _mentions(run, (*_WORDS, *_RECURRENT))
    text = _text(run) if is_sequential and run.optimizers else None
    return None if text is None else next(_copied(text), None)


def _text(run: RunSteps) -> _Text:
    lines = {(frame.file, frame.line) for frame in run.trace.frames()}
    return _Text(run, run.given_names, lines)


def _mentions(run: RunSteps, words: Iterable[str]) -> bool:
    files = {frame.file for frame in run.trace.frames() if not frame.hidden}
    return any(word in line for file in files for line in run.trace.source(file) for word in words)


def _wrong_masks(text: _Text) -> Iterator[StepFinding]:
    reader = MaskReader(text.names)
    for file, call in _calls(text):
        for wrong in reader.wrong(call):
            yield _of_mask(text, file, wrong)


def _calls(text: _Text) -> Iterator[tuple[str, ast.Call]]:
    """Those that ran, with their files."""
    for file, call in text.names.calls:
        if text.has_run(call, file):
            yield file, call


def _of_mask(text: _Text, file: str, wrong: WrongMask) -> StepFinding:
    written, where = ast.unparse(wrong.given), _WHAT[wrong.sense.where]
    others = _WHAT[wrong.sense.flipped().where]
    meaning = "takes part" if wrong.taker == FUSED else "is left out"
    if not wrong.sense.is_truth:
        left_in = others if wrong.sense.where in TAKING_PART else where
        return text.finding(
            "mask added",
            file,
            wrong.given,
            f"{wrong.word} of {wrong.taker} is of numbers, 0 and 1, which are added to the scores",
            f"{written} is 1 at {where}, and a mask of numbers is added: 0 and 1 leave nothing out,"
            f" so that attention looks at {left_in}, too. Give it truth values (.bool()), True at"
            f" what {meaning}, or numbers that are -inf there.",
        )
    seen = where if wrong.taker == FUSED else others
    found = text.finding(
        "mask inverted",
        file,
        wrong.given,
        f"{wrong.word} of {wrong.taker} is the wrong way round",
        f"{written} is True at {where}, and in {wrong.word} of {wrong.taker} True is what"
        f" {meaning}: attention looks at {seen} only. Give it {_inverse(wrong.given)}.",
    )
    # A softmax of nothing is NaN, unless it is the fused one.
    first = text.run.passes[0].id
    return replace(found, first_pass=first) if text.run.first_wrong == first else found


def _inverse(given: ast.expr) -> str:
    match given:
        case ast.UnaryOp(op=ast.Invert(), operand=inner):
            return ast.unparse(inner)
        case ast.Name() | ast.Attribute() | ast.Subscript() | ast.Call():
            return f"~{ast.unparse(given)}"
    return f"~({ast.unparse(given)})"


def _over_heads(text: _Text) -> Iterator[StepFinding]:
    """Note [Over the heads]."""
    for file, call in _calls(text):
        if called_name(call) != FUSED or len(call.args) < 2:
            continue
        splits = [_split(text, each) for each in call.args[:2]]
        if None in splits or any(word.arg == "attn_mask" for word in call.keywords):
            continue
        written = ast.unparse(splits[0])  # type: ignore[arg-type]
        yield text.finding(
            "over heads",
            file,
            call,
            f"{FUSED} attends over the heads, not over the tokens",
            f"It attends over the last dimension but one. {ast.unparse(call.args[0])} is"
            f" {written}, [batch, tokens, heads, size], so that the heads of one token look at each"
            " other, and no token at another. Put .transpose(1, 2) behind it, for q, k and v, and"
            " once more behind the result.",
        )


def _split(text: _Text, value: ast.expr) -> ast.Call | None:
    """A view of [batch, tokens, ...] as [batch, tokens, heads, size]; None: it is none."""
    if isinstance(value, ast.Name):
        found = text.names.given(value)
        return _split(text, found[0]) if len(found) == 1 and found[0] is not None else None
    if not isinstance(value, ast.Call) or called_name(value) not in {"reshape", "view"}:
        return None
    sizes = value.args[0].elts if _is_tuple(value) else value.args  # type: ignore[attr-defined]
    if len(sizes) != _OF_HEADS or not isinstance(value.func, ast.Attribute):
        return None
    if not _names_heads(text, sizes[2]) or not _are_first_sizes(text, sizes[0], sizes[1]):
        return None
    return value


def _is_tuple(call: ast.Call) -> bool:
    return len(call.args) == 1 and isinstance(call.args[0], ast.Tuple)


def _names_heads(text: _Text, size: ast.expr) -> bool:
    given = [each for each in text.names.given(size) if each is not None]
    return any("head" in ast.unparse(each).lower() for each in (size, *given))


def _are_first_sizes(text: _Text, first: ast.expr, second: ast.expr) -> bool:
    """Whether two sizes are the first of three of what a line takes apart, or of its shape."""
    names = [ast.unparse(first), ast.unparse(second)]
    for node in ast.walk(text.names.function(first) or ast.Module([], [])):
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=[one, two, *rest])], value=value):
                ends = (".shape", ".size()") if len(rest) == 1 else (".shape[:2]",)
                is_shape = ast.unparse(value).endswith(ends) and len(rest) < 2
                if is_shape and [ast.unparse(one), ast.unparse(two)] == names:
                    return True
    written = [
        ast.unparse(given[0] if len(given) == 1 and given[0] is not None else each)
        for each in (first, second)
        for given in [text.names.given(each)]
    ]
    written = [each.replace(".size(", ".shape[").replace(")", "]") for each in written]
    owner = written[0].removesuffix(".shape[0]")
    return written == [f"{owner}.shape[0]", f"{owner}.shape[1]"]


def _unmasked(text: _Text) -> Iterator[StepFinding]:
    """Note [To see what is to be predicted]."""
    trees = text.names.trees.values()
    if any(_may_mask(node) for tree in trees for _, node in with_functions(tree)):
        return
    for file, prediction in _predictions(text):
        axis = prediction.targets.axis
        is_next = prediction.given.precedes(prediction.targets)
        is_whole = prediction.given.axis != -1 or prediction.is_cut
        if not is_next or not is_whole or axis not in {0, 1}:
            continue
        found = _attention(text, prediction, axis)
        if found is None:
            continue
        where, call = found
        taker = ast.unparse(call.func)
        yield text.finding(
            "no causal mask",
            where,
            call,
            "each token looks at the one that it is to predict: there is no causal mask",
            f"Targets are the next tokens (line {prediction.loss.lineno} of"
            f" {file.rpartition('/')[2]}), and {taker} is given no mask, so that each is among what"
            " it is predicted from. The loss falls by copying, and where the next token is not yet"
            f" there, nothing was learnt. {_advice(call)}",
        )


def _advice(call: ast.Call) -> str:
    if called_name(call) == FUSED:
        return "Give it is_causal=True."
    if called_name(call) == "softmax":
        return "Fill the scores of later tokens with -inf before it."
    return "Give it nn.Transformer.generate_square_subsequent_mask(n) and is_causal=True."


def _copied(text: _Text) -> Iterator[StepFinding]:
    for file, prediction in _predictions(text):
        is_same = prediction.given == prediction.targets and not prediction.is_cut
        if not is_same or not prediction.is_of_classes:
            continue
        model = _causal_part(text, prediction)
        if model:
            yield text.finding(
                "not shifted",
                file,
                prediction.loss,
                "the targets are the tokens that the model is given, not the next ones",
                f"It looks at no later tokens ({model}), but each target is the token at its own"
                " place, which is there to be copied. To learn what follows, compare"
                " logits[:, :-1] with tokens[:, 1:]. If it is to give back what it is given, all"
                " is well.",
            )


def _predictions(text: _Text) -> Iterator[tuple[str, Prediction]]:
    asked = NextTokens(text.names)
    for file, tree in text.names.trees.items():
        for each in asked.predictions(tree):
            if text.has_run(each.loss, file):
                yield file, each


def _model(text: _Text, prediction: Prediction) -> tuple[list[ast.ClassDef], set[str]]:
    """The classes of the program that a model is made of, and the names of all that they call."""
    defined: dict[str, ast.ClassDef] = {
        node.name: node
        for tree in text.names.trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    is_class = isinstance(prediction.model, ast.ClassDef)
    waiting = (
        {prediction.model.name}  # type: ignore[union-attr]
        if is_class
        else text.names.classes(prediction.model)  # type: ignore[arg-type]
    )
    found = dict[str, ast.ClassDef]()
    called = set[str]()
    while waiting:
        name = waiting.pop()
        called.add(name)
        if name in defined and name not in found:
            found[name] = defined[name]
            inner = {
                called_name(node) for node in ast.walk(defined[name]) if isinstance(node, ast.Call)
            }
            called |= inner
            waiting |= inner & defined.keys()
    return list(found.values()), called


def _causal_part(text: _Text, prediction: Prediction) -> str:
    """What makes a model causal; empty: nothing does, or the model may shift what it is given."""
    classes, called = _model(text, prediction)
    nodes = [node for each in classes for node in ast.walk(each)]
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    helpers = [
        inner
        for tree in text.names.trees.values()
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name in called
        for inner in ast.walk(node)
    ]
    is_shifted = any("shift" in each or each in _SHIFTING for each in called)
    if is_shifted or "Embedding" not in called or any(map(_may_shift, [*nodes, *helpers])):
        return ""
    for call in calls:
        words = {word.arg: ast.unparse(word.value) for word in call.keywords}
        if called_name(call) in _CAUSAL:
            return called_name(call)
        if words.get("is_causal") == "True":
            return "is_causal=True"
    recurrent = [call for call in calls if called_name(call) in _RECURRENT]
    if len(recurrent) == 1 and not any(w.arg == "bidirectional" for w in recurrent[0].keywords):
        return called_name(recurrent[0])
    return ""


def _attention(text: _Text, prediction: Prediction, axis: int) -> tuple[str, ast.Call] | None:
    """The first self attention of a model over the sequence that ran; None: none is sure."""
    classes, _ = _model(text, prediction)
    for file, call in _calls(text):
        owner, function = text.names.owner(call), text.names.function(call)
        if owner not in classes or function is None or _goes_on(function):
            continue
        others = {
            node
            for each in classes
            for node in ast.walk(each)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node is not function
            and node.name != "__init__"
        }
        if any(_turns(node) for each in others for node in _before(each, None)):
            continue
        if _is_torchs(text, call, function, classes, axis) or (
            axis == 1 and _is_by_hand(call, function)
        ):
            return file, call
    return None


def _goes_on(function: ast.AST) -> bool:
    """Whether a function may attend to one place after the other."""
    return any(
        isinstance(node, ast.For) and "range(" in ast.unparse(node.iter)
        for node in ast.walk(function)
    )


def _is_torchs(
    text: _Text, call: ast.Call, function: ast.AST, classes: list[ast.ClassDef], axis: int
) -> bool:
    """Whether a call is self attention of a module of torch, which gets its input as it is."""
    kinds = text.names.classes(call.func) if is_of_module(call.func) else set()
    given = list(map(ast.unparse, call.args[:3]))
    is_self = kinds <= _ENCODERS or (kinds == {_MANY} and len(given) == 3 == given.count(given[0]))
    if not kinds or not is_self or any(map(_turns, _before(function, call))):
        return False
    made = [
        node
        for each in classes
        for node in ast.walk(each)
        if isinstance(node, ast.Call) and called_name(node) in {_MANY, "TransformerEncoderLayer"}
    ]
    firsts = {
        any(
            word.arg == "batch_first" and ast.unparse(word.value) == "True"
            for word in each.keywords
        )
        for each in made
    }
    return firsts == {axis == 1}


def _is_by_hand(call: ast.Call, function: ast.AST) -> bool:
    """Whether a call is a softmax of all keys for each query, or the fused function.

    Of what has one argument, [batch, tokens, size], which may be split into heads.
    """
    inside = list(ast.walk(function))
    is_one = isinstance(function, ast.FunctionDef) and len(function.args.args) == 2
    is_one = is_one and called_name(call) in {FUSED, "softmax"}
    if not is_one or any(map(_takes_part, inside)):
        return False
    products = [
        node.right
        for node in inside
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult) and _turns(node.right)
    ]
    if called_name(call) != FUSED:
        given = [*call.args, *(word.value for word in call.keywords)]
        is_last = "-1" in map(ast.unparse, given)
        if not is_last or len(products) != 1:
            return False
    turns = [node for node in _before(function, call) if _turns(node) and node not in products]
    splits = [
        node.func.value
        for node in turns
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and ast.unparse(node).endswith(".transpose(1, 2)")
        and isinstance(node.func.value, ast.Call)
        and called_name(node.func.value) in {"reshape", "view"}
        and len(node.func.value.args) == _OF_HEADS
    ]
    return len(turns) == 2 * len(splits)


def _takes_part(node: ast.AST) -> bool:
    """Whether a node is a slice, of something else but what the module has."""
    if not isinstance(node, ast.Subscript) or ast.unparse(node.value).startswith("self."):
        return False
    return any(isinstance(each, ast.Slice) for each in ast.walk(node.slice))


def _before(function: ast.AST, call: ast.Call | None) -> Iterator[ast.AST]:
    """The nodes of a function up to a call; None: up to its last call of a module of its own."""
    inside = list(ast.walk(function))
    lines = [
        node.end_lineno or node.lineno
        for node in inside
        if isinstance(node, ast.Call) and is_of_module(node.func)
    ]
    last = max(lines, default=0) if call is None else call.end_lineno or call.lineno
    before = (node for node in inside if getattr(node, "lineno", 0) <= last)
    return (node for node in before if call is None or call not in ast.walk(node))


def _turns(node: ast.AST) -> bool:
    """Whether a node takes dimensions in another order, or others together."""
    match node:
        case ast.Call(func=ast.Attribute(value=inner, attr="unsqueeze")):
            return "arange" not in ast.unparse(inner)
        case ast.Call():
            return called_name(node) in _TURNING
        case ast.Attribute(attr="T" | "mT"):
            return True
    return False


def _may_mask(node: ast.AST) -> bool:
    match node:
        case (
            ast.Name(id=name)
            | ast.Attribute(attr=name)
            | ast.keyword(arg=str() as name)
            | ast.arg(arg=name)
            | ast.FunctionDef(name=name)
            | ast.alias(name=name)
        ):
            low = name.lower()
            return any(part in low for part in _MASKING) and "pad" not in low
        case ast.Constant(value=str() as written):
            return written.strip().lower() in {"-inf", "-infinity"}
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return number >= _LARGE
    return False


def _may_shift(node: ast.AST) -> bool:
    match node:
        case ast.Slice(lower=lower, upper=upper, step=None):
            bounds = ["" if each is None else ast.unparse(each) for each in (lower, upper)]
            return bounds[0] == "1" or bounds[1] == "-1" or "+ 1" in " ".join(bounds)
    return False
