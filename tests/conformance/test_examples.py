"""The programs of `docs/examples`, on every device, at sizes that no block divides, against NumPy."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import quernel as qn
from quernel.testing import launching

FILE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "cooperation.py"
SIZES = (1, 2, 31, 255, 256, 257, 511, 513, 1500)
SHAPES = ((1, 1), (1, 40), (31, 33), (64, 32), (33, 5), (7, 70))

pytestmark = [
    pytest.mark.quernel_needs("barriers"),
    pytest.mark.parametrize("is_checked", [False, pytest.param(True, marks=pytest.mark.quernel_needs("checked"))]),
]


@pytest.fixture(scope="module")
def programs() -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(FILE), run_name="cooperation"))


@pytest.fixture
def on(quernel_device: Any, is_checked: bool) -> Callable[[Any], Any]:
    return lambda kernel: launching.on(quernel_device, kernel).options(checked=is_checked)


def random(n: int) -> np.random.Generator:
    return np.random.default_rng(n)


def by_blocks(x: Any, block: int, of_block: Callable[[Any], Any]) -> list[Any]:
    return [of_block(x[first : first + block]) for first in range(0, len(x), block)]


@pytest.mark.parametrize("n", SIZES)
def test_a_block_reduction_sums_each_block(programs: Any, on: Any, n: int) -> None:
    x = random(n).integers(-99, 99, n).astype(np.float32)
    sums = np.full(qn.cdiv(n, 256), np.nan, np.float32)
    on(programs.reduction)[len(sums)](x, sums, n)
    assert sums.tolist() == by_blocks(x, 256, np.sum)


@pytest.mark.parametrize("n", SIZES)
def test_a_prefix_sum_sums_up_to_each_element(programs: Any, on: Any, n: int) -> None:
    x = random(n).integers(-99, 99, n).astype(np.int32)
    out = np.full(n + 1, -7, np.int32)
    on(programs.prefix_sum)[qn.cdiv(n, 256)](x, out, n)
    assert np.array_equal(out[:-1], np.concatenate(by_blocks(x, 256, np.cumsum)))
    assert out[-1] == -7


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("is_turned", [False, True])
def test_a_transpose_turns_a_matrix(programs: Any, on: Any, shape: tuple[int, int], is_turned: bool) -> None:
    image = random(shape[0]).random(shape, np.float32)
    if is_turned:
        image = image.T[::-1]
    rows, columns = image.shape
    out = np.zeros((columns, rows), np.float32)
    on(programs.transpose)[(qn.cdiv(rows, 32), qn.cdiv(columns, 32)), (8, 32)](image, out)
    assert np.array_equal(out, image.T)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("inner", [1, 16, 37])
def test_a_tiled_product_multiplies_matrices(programs: Any, on: Any, shape: tuple[int, int], inner: int) -> None:
    rows, columns = shape
    a = random(inner).integers(-9, 9, (rows, inner)).astype(np.float32)
    b = random(columns).integers(-9, 9, (columns, inner)).astype(np.float32).T
    out = np.full(shape, np.nan, np.float32)
    on(programs.matmul)[(qn.cdiv(rows, 16), qn.cdiv(columns, 16)), (16, 16)](a, b, out)
    assert np.array_equal(out, a @ b)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("grid", [1, 3])
def test_a_histogram_counts_each_byte(programs: Any, on: Any, n: int, grid: int) -> None:
    letters = random(n).integers(0, 256, 2 * n).astype(np.uint8)[::-2]
    counts = np.zeros(256, np.int32)
    on(programs.histogram)[grid](letters, counts)
    assert np.array_equal(counts, np.bincount(letters, minlength=256))


@pytest.mark.parametrize("n", [1, 2, 31, 511, 513, 1500])
def test_a_bitonic_sort_sorts_each_block(programs: Any, on: Any, n: int) -> None:
    keys = random(n).integers(-50, 50, n).astype(np.float32)
    wanted = np.concatenate(by_blocks(keys, 512, np.sort))
    on(programs.bitonic)[qn.cdiv(n, 512)](keys)
    assert np.array_equal(keys, wanted)
