"""What the text of a program gives to a name: by assignments, as a buffer, as an argument."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.code_search import bindings, called_name, nodes_of, user_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from agviz.traces.reader import Trace

_MODULES: Final = frozenset({"F", "Tensor", "functional", "nn", "np", "torch"})


class GivenValue(NamedTuple):
    """A value, and where it is written."""

    value: ast.expr
    file: str
    function: str


class Values:
    """Asked for names of a program.

    Args:
        trace: holds the text of its files.
    """

    def __init__(self, trace: Trace) -> None:
        self.nodes: Mapping[str, Sequence[tuple[str, ast.AST]]] = {
            file: nodes_of(trace, file) for file in user_files(trace)
        }
        """By file: all nodes, each with the name of its function."""

    def assigned(self, name: str, file: str, function: str) -> Iterator[GivenValue]:
        """What is assigned to a variable in its function or module, to an attribute anywhere.

        Args:
            name: as it is written.
            file: in which that is.
            function: in which that is.
        """
        for where, node in self.nodes.get(file, ()):
            if "." not in name and where not in {function, "<module>"}:
                continue
            match node:
                case ast.Assign() | ast.AnnAssign():
                    for target, value in bindings(node):
                        if ast.unparse(target) == name:
                            yield GivenValue(value, file, where)
                case ast.Call(args=[ast.Constant(value=str() as buffer), value, *_]):
                    if called_name(node) == "register_buffer" and name == f"self.{buffer}":
                        yield GivenValue(value, file, where)

    def arguments(self, name: str, file: str, function: str) -> Iterator[GivenValue]:
        """What calls give for an argument of a function; of ``forward``, calls of modules.

        Args:
            name: of the argument.
            file: in which the function is.
            function: its name.
        """
        takers = [
            node
            for _, node in self.nodes.get(file, ())
            if isinstance(node, ast.FunctionDef)
            and node.name == function
            and name in {each.arg for each in (*node.args.args, *node.args.kwonlyargs)}
        ]
        for taker in takers:
            names = [each.arg for each in taker.args.args if each.arg not in {"cls", "self"}]
            least = len(names) - len(taker.args.defaults)
            for where, nodes in self.nodes.items():
                for made, node in nodes:
                    if not isinstance(node, ast.Call) or not _calls(node, function):
                        continue
                    by_word = {word.arg: word.value for word in node.keywords}
                    count = len(node.args) + len(by_word)
                    if name in by_word:
                        yield GivenValue(by_word[name], where, made)
                    elif name in names[: len(node.args)] and least <= count <= len(names):
                        yield GivenValue(node.args[names.index(name)], where, made)


def all_given(call: ast.Call) -> list[ast.expr]:
    """All that a function of torch, or a method, is given, the tensor it is a method of first."""
    words = [word.value for word in call.keywords]
    if isinstance(call.func, ast.Attribute) and not _is_module(call.func.value):
        return [call.func.value, *call.args, *words]
    return [*call.args, *words]


def _is_module(value: ast.expr) -> bool:
    return ast.unparse(value).rpartition(".")[2] in _MODULES


def _calls(call: ast.Call, function: str) -> bool:
    if function != "forward":
        return called_name(call) == function
    return not (isinstance(call.func, ast.Attribute) and _is_module(call.func.value))
