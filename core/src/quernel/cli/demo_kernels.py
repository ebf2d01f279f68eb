"""The kernels of `quernel demo`, and the same computations in NumPy to check them against.

A picture is an array of shape (3, height, width), f32, each plane one colour from 0 to 1.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import quernel as qn

__all__ = [
    "blur_columns",
    "blur_rows",
    "edges",
    "gaussian_taps",
    "mandelbrot",
    "numpy_blur",
    "numpy_edges",
    "numpy_mandelbrot",
    "saxpy",
]

F32Array = np.ndarray[Any, np.dtype[np.float32]]


@qn.kernel
def saxpy(a: float, x: qn.Array[qn.f32], y: qn.Array[qn.f32]) -> None:
    """`y = a * x + y`, element by element."""
    i = qn.global_id()
    y[i] = a * x[i] + y[i]


@qn.kernel
def blur_rows(source: qn.Array3[qn.f32], taps: qn.Array1[qn.f32], target: qn.Array3[qn.f32]) -> None:
    """Weighs the pixels of a row round each pixel; the edge pixel stands for what lies beyond."""
    plane, row, column = qn.global_id()
    radius = len(taps) // 2
    total = 0.0
    for k in range(len(taps)):
        total += taps[k] * source[plane, row, min(max(column + k - radius, 0), source.shape[2] - 1)]
    target[plane, row, column] = total


@qn.kernel
def blur_columns(source: qn.Array3[qn.f32], taps: qn.Array1[qn.f32], target: qn.Array3[qn.f32]) -> None:
    """The same along the columns."""
    plane, row, column = qn.global_id()
    radius = len(taps) // 2
    total = 0.0
    for k in range(len(taps)):
        total += taps[k] * source[plane, min(max(row + k - radius, 0), source.shape[1] - 1), column]
    target[plane, row, column] = total


@qn.func
def luminance(picture: qn.Array3[qn.f32], row: int, column: int) -> float:
    """How bright a pixel is to the eye, from 0 to 1; beyond the edge the edge pixel counts."""
    r = min(max(row, 0), picture.shape[1] - 1)
    c = min(max(column, 0), picture.shape[2] - 1)
    return 0.299 * picture[0, r, c] + 0.587 * picture[1, r, c] + 0.114 * picture[2, r, c]


@qn.kernel
def edges(picture: qn.Array3[qn.f32], target: qn.Array2[qn.f32]) -> None:
    """The length of the brightness gradient by Sobel's operator."""
    row, column = qn.global_id()
    dx = 0.0
    dy = 0.0
    for k in qn.unroll(range(-1, 2)):
        weight = 2 - abs(k)
        dx += weight * (luminance(picture, row + k, column + 1) - luminance(picture, row + k, column - 1))
        dy += weight * (luminance(picture, row + 1, column + k) - luminance(picture, row - 1, column + k))
    target[row, column] = math.sqrt(dx * dx + dy * dy)


@qn.kernel(contract=False)
def mandelbrot(left: qn.f32, top: qn.f32, step: qn.f32, limit: qn.i32, counts: qn.Array2[qn.i32]) -> None:
    """How many steps `z = z*z + c` takes to leave the circle of radius 2, at most `limit`."""
    row, column = qn.global_id()
    c_re = left + step * qn.f32(column)
    c_im = top + step * qn.f32(row)
    re, im = qn.f32(0), qn.f32(0)
    count = 0
    while count < limit and re * re + im * im <= 4:
        re, im = re * re - im * im + c_re, 2 * re * im + c_im
        count += 1
    counts[row, column] = count


def gaussian_taps(radius: int) -> F32Array:
    """The 2 * radius + 1 weights of a Gaussian blur, which add up to 1."""
    x = np.arange(-radius, radius + 1)
    taps = np.exp(-0.5 * (x / (radius / 2)) ** 2)
    return np.asarray(taps / taps.sum(), np.float32)


def numpy_blur(picture: F32Array, taps: F32Array, axis: int) -> F32Array:
    """What `blur_rows` (axis 2) and `blur_columns` (axis 1) compute, in double precision."""
    radius = len(taps) // 2
    pad = [(radius, radius) if i == axis else (0, 0) for i in range(3)]
    padded = np.pad(picture.astype(np.float64), pad, mode="edge")
    length = picture.shape[axis]
    shifted = (padded.take(range(k, k + length), axis) * float(tap) for k, tap in enumerate(taps))
    return np.asarray(np.sum(list(shifted), axis=0), np.float32)


def numpy_edges(picture: F32Array) -> F32Array:
    """What `edges` computes, in double precision."""
    weights = np.array([0.299, 0.587, 0.114])
    light = np.pad(np.tensordot(weights, picture.astype(np.float64), 1), 1, mode="edge")
    smooth_rows = light[:-2] + 2 * light[1:-1] + light[2:]
    smooth_columns = light[:, :-2] + 2 * light[:, 1:-1] + light[:, 2:]
    dx = smooth_rows[:, 2:] - smooth_rows[:, :-2]
    dy = smooth_columns[2:] - smooth_columns[:-2]
    return np.asarray(np.sqrt(dx * dx + dy * dy), np.float32)


def numpy_mandelbrot(
    left: float, top: float, step: float, limit: int, shape: tuple[int, int]
) -> np.ndarray[Any, np.dtype[np.int32]]:
    """What `mandelbrot` computes, with the same f32 operations in the same order: equal bit for bit."""
    f32 = np.float32
    c_re, c_im = np.broadcast_arrays(
        f32(left) + f32(step) * np.arange(shape[1], dtype=f32),
        (f32(top) + f32(step) * np.arange(shape[0], dtype=f32))[:, None],
    )
    c_re, c_im = c_re.ravel(), c_im.ravel()
    counts = np.zeros(shape[0] * shape[1], np.int32)
    alive = np.arange(counts.size)
    re = np.zeros(counts.size, f32)
    im = np.zeros(counts.size, f32)
    for _ in range(limit):
        inside = re * re + im * im <= 4
        alive, re, im, c_re, c_im = alive[inside], re[inside], im[inside], c_re[inside], c_im[inside]
        re, im = re * re - im * im + c_re, 2 * re * im + c_im
        counts[alive] += 1
    return counts.reshape(shape)
