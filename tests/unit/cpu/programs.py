"""Programs in which threads work together, as IR; each handles sizes that no block divides."""

from __future__ import annotations

from quernel.ir.nodes import Module
from quernel.ir.parser import parse_module
from quernel.ir.verifier import verify

__all__ = ["bitonic_sort", "histogram", "matmul", "prefix_sum", "reduction", "transpose"]


def module(text: str) -> Module:
    """The module of a text, which keeps the rules of the IR."""
    return verify(parse_module(text))


def reduction(threads: int, dtype: str = "f32") -> Module:
    """Sums of the blocks, as a tree; `threads` is a power of two."""
    return module(f"""\
kernel reduction(x: array<{dtype}, 1>, out: array<{dtype}, 1>, n: i64) grid ({threads}):
    local i, l, width: i64
    local value: {dtype}
    shared part: {dtype}[{threads}]
    i = global_id(0)
    l = local_id(0)
    value = {dtype}(0)
    if i < n:
        value = x[i]
    part[l] = value
    barrier
    width = {threads // 2}
    loop:
        if width == 0:
            break
        if l < width:
            part[l] = part[l] + part[l + width]
        barrier
        width = width // 2
    if l == 0:
        out[block_id(0)] = part[0]
""")


def prefix_sum(threads: int, dtype: str = "i32") -> Module:
    """Inclusive sums within each block, in doubling steps."""
    return module(f"""\
kernel prefix_sum(x: array<{dtype}, 1>, out: array<{dtype}, 1>, n: i64) grid ({threads}):
    local i, l, step: i64
    local value: {dtype}
    shared part: {dtype}[{threads}]
    i = global_id(0)
    l = local_id(0)
    value = {dtype}(0)
    if i < n:
        value = x[i]
    step = 1
    loop:
        if step >= {threads}:
            break
        part[l] = value
        barrier
        if l >= step:
            value = value + part[l - step]
        barrier
        step = step * 2
    if i < n:
        out[i] = value
""")


def transpose(tile: int = 16, rows: int = 4) -> Module:
    """A matrix turned by way of a tile in shared memory."""
    return module(f"""\
kernel transpose(x: array<f32, 2>, out: array<f32, 2>) grid ({rows}, {tile}):
    local r, c, k: i64
    shared own: f32[{tile}, {tile + 1}]
    c = block_id(1) * {tile} + local_id(1)
    for k in range(0, {tile}, {rows}):
        r = block_id(0) * {tile} + local_id(0) + k
        if (r < x.shape[0]) & (c < x.shape[1]):
            own[local_id(0) + k, local_id(1)] = x[r, c]
    barrier
    c = block_id(0) * {tile} + local_id(1)
    for k in range(0, {tile}, {rows}):
        r = block_id(1) * {tile} + local_id(0) + k
        if (r < x.shape[1]) & (c < x.shape[0]):
            out[r, c] = own[local_id(1), local_id(0) + k]
""")


def matmul(tile: int = 16) -> Module:
    """A product of matrices, by tiles."""
    return module(f"""\
kernel matmul(a: array<f32, 2>, b: array<f32, 2>, out: array<f32, 2>) grid ({tile}, {tile}):
    local row, column, first, k, y, x: i64
    local total, left, right: f32
    shared ta: f32[{tile}, {tile}]
    shared tb: f32[{tile}, {tile}]
    y = local_id(0)
    x = local_id(1)
    row = block_id(0) * {tile} + y
    column = block_id(1) * {tile} + x
    total = 0.0f32
    for first in range(0, a.shape[1], {tile}):
        left = 0.0f32
        right = 0.0f32
        if (row < a.shape[0]) & (first + x < a.shape[1]):
            left = a[row, first + x]
        if (first + y < a.shape[1]) & (column < b.shape[1]):
            right = b[first + y, column]
        ta[y, x] = left
        tb[y, x] = right
        barrier
        for k in range(0, {tile}, 1):
            total = fma(ta[y, k], tb[k, x], total)
        barrier
    if (row < a.shape[0]) & (column < b.shape[1]):
        out[row, column] = total
""")


def histogram(threads: int, bins: int) -> Module:
    """Counts in shared memory, added to the result by atomics."""
    return module(f"""\
kernel histogram(x: array<u8, 1>, counts: array<i32, 1>) grid ({threads}):
    local i, b: i64
    shared own: i32[{bins}]
    for b in range(local_id(0), {bins}, {threads}):
        own[b] = 0i32
    barrier
    for i in range(global_id(0), x.shape[0], global_dim(0)):
        atomic.add(own[i64(x[i]) % {bins}], 1i32)
    barrier
    for b in range(local_id(0), {bins}, {threads}):
        atomic.add(counts[b], own[b])
""")


def bitonic_sort(threads: int) -> Module:
    """Each block sorts its own numbers; places beyond the end hold infinity."""
    return module(f"""\
kernel bitonic_sort(x: array<f32, 1>) grid ({threads}):
    local i, l, size, stride, other: i64
    local mine, its: f32
    local swaps: bool
    shared own: f32[{threads}]
    i = global_id(0)
    l = local_id(0)
    mine = inff32
    if i < x.shape[0]:
        mine = x[i]
    own[l] = mine
    barrier
    size = 2
    loop:
        if size > {threads}:
            break
        stride = size // 2
        loop:
            if stride == 0:
                break
            other = l ^ stride
            if other > l:
                mine = own[l]
                its = own[other]
                swaps = (its < mine) == ((l & size) == 0)
                if swaps & (mine != its):
                    own[l] = its
                    own[other] = mine
            barrier
            stride = stride // 2
        size = size * 2
    if i < x.shape[0]:
        x[i] = own[l]
""")
