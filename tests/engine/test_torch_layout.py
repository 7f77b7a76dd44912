"""What is read of a tensor in place, held against what torch says when it is asked."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, func
from torch.nn import Parameter
from torch.testing._internal.two_tensor import TwoTensor

from agviz_engine import torch_layout
from agviz_engine.gradient_edge import leaf_edge
from agviz_engine.located_node import node_ref
from agviz_engine.torch_layout import expectation, first_to_judge, fits_into, shapes_texts
from tests.engine.builders import custom

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz_engine.node import NodeRef

_plain: dict[str, Callable[[], Tensor]] = {
    "contiguous": lambda: torch.ones(2, 3),
    "no dimension": lambda: torch.ones(()),
    "empty": lambda: torch.ones(0, 3),
    "five dimensions": lambda: torch.ones(2, 3, 1, 2, 3),
    "transposed": lambda: torch.ones(3, 2).t(),
    "expanded": lambda: torch.ones(1, 3).expand(2, 3),
    "part": lambda: torch.ones(4, 3)[::2],
    "channels last": lambda: torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "double": lambda: torch.ones(2, 3, dtype=torch.float64),
    "half": lambda: torch.ones(2, 3, dtype=torch.float16),
    "complex": lambda: torch.ones(2, 3, dtype=torch.complex64),
    "requires grad": lambda: torch.ones(2, 3, requires_grad=True),
    "with a graph": lambda: torch.ones(2, 3, requires_grad=True) * 2,
    "parameter": lambda: Parameter(torch.ones(2, 3)),
}
_other: dict[str, Callable[[], Tensor]] = {
    "six dimensions": lambda: torch.ones(1, 1, 1, 1, 2, 3),
    "sparse": lambda: torch.ones(2, 3).to_sparse(),
    "compressed sparse": lambda: torch.ones(2, 3).to_sparse_csr(),
    "meta": lambda: torch.ones(2, 3, device="meta"),
    "mkldnn": lambda: torch.ones(2, 3).to_mkldnn(),
    "conjugate": lambda: torch.ones(2, 3, dtype=torch.complex64).conj(),
    "negative": lambda: torch._neg_view(torch.ones(2, 3)),
    "zero tensor": lambda: torch._efficientzerotensor(2, 3),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2, 3)]),
    "batched": lambda: cast("Any", torch._C)._functorch._add_batch_dim(torch.ones(4, 2, 3), 0, 1),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(2, 3), 1.0, 0, torch.qint8),
}
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def _leaf(dtype: torch.dtype, shape: tuple[int, ...]) -> NodeRef:
    """A node with an input of this kind, which validate_outputs has met before."""
    ref = node_ref(leaf_edge(torch.empty(shape, dtype=dtype, requires_grad=True))[0], 0)
    expectation(ref, 0)
    return ref


def _fits(tensor: Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> bool:
    return first_to_judge([(_leaf(dtype, shape), 0)], [tensor]) < 0


@pytest.mark.parametrize("kind", _plain)
def test_a_plain_tensor_fits_what_it_is_and_nothing_else(kind: str) -> None:
    tensor = _plain[kind]()
    dtype, shape = tensor.dtype, tuple(tensor.shape)
    assert _fits(tensor, dtype, shape) is (type(tensor) is Tensor)
    assert not _fits(tensor, torch.bfloat16, shape)
    assert not _fits(tensor, dtype, (*shape, 1))
    for i in range(len(shape)):
        assert not _fits(tensor, dtype, (*shape[:i], shape[i] + 1, *shape[i + 1 :]))


@pytest.mark.parametrize("kind", _other)
def test_nothing_is_said_of_other_tensors(kind: str) -> None:
    tensor = _other[kind]()
    shape = (1, 1, 1, 1, 2, 3) if kind == "six dimensions" else (2, 3)
    dtype = torch.float32 if tensor.is_quantized else tensor.dtype
    assert not _fits(tensor, dtype, shape)
    assert not torch_layout.are_alike(tensor, tensor)


@pytest.mark.slow
def test_nothing_is_said_of_wrapped_tensors() -> None:
    seen: list[bool] = []
    node = _leaf(torch.float32, (3,))

    def body(x: Tensor) -> Tensor:
        seen.append(first_to_judge([(node, 0)], [x]) < 0)
        return x.sum()

    func.vmap(body)(torch.ones(2, 3))
    func.grad(body)(torch.ones(3))
    func.functionalize(body)(torch.ones(3))
    assert seen == [False] * 3


def test_nothing_is_said_of_a_subclass() -> None:
    wrapper = TwoTensor(torch.ones(2, 3), torch.ones(2, 3))
    assert not _fits(wrapper, torch.float32, (2, 3))


@pytest.mark.parametrize("variable", _plain)
@pytest.mark.parametrize("gradient", _plain)
def test_which_gradients_can_be_stolen_at_a_glance(gradient: str, variable: str) -> None:
    ours, theirs = _plain[gradient](), _plain[variable]()
    assert torch_layout.are_alike(ours, theirs) == (
        ours.is_contiguous()
        and theirs.is_contiguous()
        and ours.dtype == theirs.dtype
        and ours.shape == theirs.shape
    )


@pytest.mark.slow
@pytest.mark.parametrize("byte", [pytest.param("0x5a", marks=pytest.mark.slow), "0xff"])
def test_bytes_that_nobody_has_set(byte: str) -> None:
    """Padding is whatever was in the memory before; it must neither refuse a torch nor pile up."""
    program = """if True:
        import torch
        from agviz_engine import installed, torch_layout
        with installed():
            for size in range(1, 40):
                x = torch.randn(size, 3, requires_grad=True)
                (x.sin() * x).exp().sum().backward()
        print(len(torch_layout._kinds), len(torch_layout._plain))
    """
    environment = {**os.environ, "MALLOC_PERTURB_": str(int(byte, 16))}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert max(map(int, done.stdout.split())) < 5


@pytest.mark.parametrize("name", [*_plain, "six dimensions", "sparse", "nested", "jagged"])
def test_shapes_of_inputs_in_words(name: str) -> None:
    makers = _plain | {
        "six dimensions": lambda: torch.ones(1, 2, 1, 2, 1, 2),
        "sparse": lambda: torch.eye(3).to_sparse(),
        "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        "jagged": lambda: torch.nested.nested_tensor(
            [torch.ones(2), torch.ones(3)], layout=torch.jagged
        ),
    }
    tensor = makers[name]().detach().requires_grad_()
    outputs = [tensor * 2, tensor.clone()]
    if name != "nested":  # torch has no custom Functions of those
        outputs.append(custom(lambda _, gradient: gradient * 2)(tensor))
    if name not in {"no dimension", "nested", "jagged", "sparse"}:
        outputs.append(tensor.split(1)[0] if len(tensor) else tensor * 3)
    for output in (*outputs, *outputs):
        ref = node_ref(cast("Any", output.grad_fn), 0)
        try:
            asked = [str(metadata.shape) for metadata in ref.node._input_metadata]
        except RuntimeError:
            asked = []
        has_symbols = any("j" in shape for shape in asked)
        assert shapes_texts([ref])[0] == ("" if has_symbols else ";".join(asked))


@given(
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from([0, 1, 2, 3, 4, 6, 9])), max_size=5),
    st.permutations(range(5)),
)
def test_a_gradient_fits_where_torch_says_the_other_is_dense(
    sizes_and_strides: list[tuple[int, int]], order: list[int]
) -> None:
    sizes = [size for size, _ in sizes_and_strides]
    given_strides = [stride for _, stride in sizes_and_strides]
    dense = torch.empty(sizes).permute([each for each in order if each < len(sizes)])
    strided = torch.empty(300).as_strided(sizes, given_strides)
    for tensor in (dense, strided):
        preserved = torch.empty_like(tensor, memory_format=torch.preserve_format)
        is_dense = all(
            size == 1 or mine == its
            for size, mine, its in zip(
                tensor.shape, tensor.stride(), preserved.stride(), strict=True
            )
        )
        assert fits_into(tensor, tensor) == is_dense
