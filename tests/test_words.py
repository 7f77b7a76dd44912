"""Numbers, shapes and nodes in words, the same wherever they are written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agviz.words.health import nonfinite
from agviz.words.labels import numbered, of_owner, queue_label, with_origin
from agviz.words.shapes import read_shape, write_shape
from agviz.words.units import duration, percent, size, ticks


@pytest.mark.parametrize(
    ("ns", "expected"),
    [
        (None, ""),
        (0, "0 ns"),
        (999, "999 ns"),
        (999.6, "1.00 µs"),
        (1_000, "1.00 µs"),
        (35_400, "35.4 µs"),
        (45_240, "45.2 µs"),
        (999_400, "999 µs"),
        (999_600, "1.00 ms"),
        (9_996_000, "10.0 ms"),
        (12_345_678, "12.3 ms"),
        (100_000_000, "100 ms"),
        (61_000_000_000, "61.0 s"),
        (86_400_000_000_000, "86,400 s"),
    ],
)
def test_durations_have_three_significant_digits(ns: float | None, expected: str) -> None:
    assert duration(ns) == expected
    assert len(expected) <= 8


@pytest.mark.parametrize(
    ("nbytes", "expected"),
    [
        (0, "0 B"),
        (1_023, "1023 B"),
        (1_024, "1.00 KiB"),
        (1_572_864, "1.50 MiB"),
        (1_625_292, "1.55 MiB"),
        (2**20 - 1, "1.00 MiB"),
        (150 * 2**30, "150 GiB"),
        (2**40, "1.00 TiB"),
        (2_000 * 2**40, "2,000 TiB"),
    ],
)
def test_sizes_have_three_significant_digits(nbytes: int, expected: str) -> None:
    assert size(nbytes) == expected


@given(st.floats(0, 1e12), st.floats(1, 1e12), st.integers(1, 20))
def test_ticks_are_few_round_and_inside(begin: float, length: float, most: int) -> None:
    found = ticks(begin, begin + length, most)
    assert len(found) <= most + 1
    for time, label in found:
        assert begin - 1 <= time <= begin + length + 1
        assert label.split()[1] in {"ns", "µs", "ms", "s"}
    assert len({label.split()[1] for _, label in found}) <= 1


@given(st.none() | st.lists(st.integers(0, 2**63 - 1), max_size=8).map(tuple))
def test_a_shape_is_read_as_it_was_written(shape: tuple[int, ...] | None) -> None:
    assert read_shape(write_shape(shape)) == shape


def test_shapes() -> None:
    assert write_shape(()) == "[]"
    assert write_shape([8, 64]) == "[8, 64]"
    assert write_shape(None, "undefined") == "undefined"


def test_nonfinite_counts() -> None:
    assert nonfinite(0, 0, 0) == ""
    assert nonfinite(1_200, 1, 2) == "1,200 NaN, 1 +Inf, 2 -Inf"
    assert nonfinite(3, 0, 1, " and ") == "3 NaN and 1 -Inf"


def test_labels() -> None:
    assert numbered(12, "AddmmBackward0") == "#12 AddmmBackward0"
    assert numbered(None, "AddmmBackward0") == "AddmmBackward0"
    assert of_owner("AccumulateGrad", "head.weight") == "AccumulateGrad of head.weight"
    assert with_origin("MulBackward0", "encoder", "", None) == "MulBackward0 (encoder)"
    assert with_origin("MulBackward0") == "MulBackward0"
    assert [queue_label(queue) for queue in (-1, 0, 3)] == ["caller", "device 0", "device 3"]


@pytest.mark.parametrize(
    ("share", "said"),
    [(0, "0 %"), (2.13e-5, "0.0021 %"), (0.0844, "8.4 %"), (0.0996, "10 %"), (1.0, "100 %")],
)
def test_a_share_in_percent(share: float, said: str) -> None:
    assert percent(share) == said
