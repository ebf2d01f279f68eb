"""Threads of a block that work together: six classics, each correct for sizes that no block divides."""

import numpy as np

import quernel as qn


@qn.kernel(block=256)
def reduction(x: qn.Array1[qn.f32], sums: qn.Array1[qn.f32], n: int):
    """The sum of each block, as a tree in shared memory."""
    part = qn.shared(256, qn.f32)
    i = qn.global_id()
    thread = qn.local_id(0)
    value = qn.f32(0)
    if i < n:
        value = x[i]
    part[thread] = value
    qn.barrier()
    width = 128
    while width > 0:
        if thread < width:
            part[thread] = part[thread] + part[thread + width]
        qn.barrier()
        width = width // 2
    if thread == 0:
        sums[qn.block_id(0)] = part[0]


@qn.kernel(block=256)
def prefix_sum(x: qn.Array1[qn.i32], out: qn.Array1[qn.i32], n: int):
    """The sums up to each element, block by block, in doubling steps."""
    part = qn.shared(256, qn.i32)
    i = qn.global_id()
    thread = qn.local_id(0)
    value = qn.i32(0)
    if i < n:
        value = x[i]
    step = 1
    while step < 256:
        part[thread] = value
        qn.barrier()
        if thread >= step:
            value = value + part[thread - step]
        qn.barrier()
        step = step * 2
    if i < n:
        out[i] = value


@qn.kernel
def transpose(x: qn.Array2[qn.f32], out: qn.Array2[qn.f32]):
    """A matrix turned by way of a tile, so that both sides go along rows."""
    tile = qn.shared((32, 33), qn.f32)
    y = qn.local_id(0)
    lane = qn.local_id(1)
    column = qn.block_id(1) * 32 + lane
    for k in range(0, 32, 8):
        row = qn.block_id(0) * 32 + y + k
        if row < x.shape[0] and column < x.shape[1]:
            tile[y + k, lane] = x[row, column]
    qn.barrier()
    column = qn.block_id(0) * 32 + lane
    for k in range(0, 32, 8):
        row = qn.block_id(1) * 32 + y + k
        if row < x.shape[1] and column < x.shape[0]:
            out[row, column] = tile[lane, y + k]


@qn.kernel
def matmul(a: qn.Array2[qn.f32], b: qn.Array2[qn.f32], out: qn.Array2[qn.f32]):
    """A product of matrices; each block reads its tiles once for all its threads."""
    left = qn.shared((16, 16), qn.f32)
    right = qn.shared((16, 16), qn.f32)
    y = qn.local_id(0)
    lane = qn.local_id(1)
    row = qn.global_id(0)
    column = qn.global_id(1)
    total = qn.f32(0)
    for first in range(0, a.shape[1], 16):
        left[y, lane] = a[row, first + lane] if row < a.shape[0] and first + lane < a.shape[1] else 0.0
        right[y, lane] = b[first + y, column] if first + y < a.shape[1] and column < b.shape[1] else 0.0
        qn.barrier()
        for k in range(16):
            total += left[y, k] * right[k, lane]
        qn.barrier()
    if row < a.shape[0] and column < b.shape[1]:
        out[row, column] = total


@qn.kernel(block=256)
def histogram(x: qn.Array1[qn.u8], counts: qn.Array1[qn.i32]):
    """How often each byte occurs: counted in shared memory first, then added up by atomics."""
    own = qn.shared(256, qn.i32)
    thread = qn.local_id(0)
    own[thread] = 0
    qn.barrier()
    for i in range(qn.global_id(0), len(x), qn.global_dim(0)):
        qn.atomic.add(own, x[i], 1)
    qn.barrier()
    qn.atomic.add(counts, thread, own[thread])


INFINITY = float("inf")


@qn.kernel(block=512)
def bitonic(x: qn.Array1[qn.f32]):
    """Each block of 512 numbers, sorted in place."""
    own = qn.shared(512, qn.f32)
    i = qn.global_id()
    thread = qn.local_id(0)
    value = qn.f32(INFINITY)
    if i < len(x):
        value = x[i]
    own[thread] = value
    qn.barrier()
    size = 2
    while size <= 512:
        stride = size // 2
        while stride > 0:
            other = thread ^ stride
            if other > thread:
                mine = own[thread]
                its = own[other]
                if mine != its and (its < mine) == (thread & size == 0):
                    own[thread] = its
                    own[other] = mine
            qn.barrier()
            stride = stride // 2
        size = size * 2
    if i < len(x):
        x[i] = own[thread]


def main() -> None:
    rng = np.random.default_rng(0)
    n = 10_001
    blocks = qn.cdiv(n, 256)

    x = rng.integers(-9, 9, n).astype(np.float32)
    sums = np.zeros(blocks, np.float32)
    reduction[blocks](x, sums, n)
    assert np.array_equal(sums, [x[first : first + 256].sum() for first in range(0, n, 256)])

    numbers = x.astype(np.int32)
    scanned = np.zeros(n, np.int32)
    prefix_sum[blocks](numbers, scanned, n)
    assert np.array_equal(scanned, np.concatenate([np.cumsum(numbers[f : f + 256]) for f in range(0, n, 256)]))

    image = rng.random((101, 207), np.float32)
    turned = np.zeros((207, 101), np.float32)
    transpose[(qn.cdiv(101, 32), qn.cdiv(207, 32)), (8, 32)](image, turned)
    assert np.array_equal(turned, image.T)

    a = rng.integers(-9, 9, (33, 70)).astype(np.float32)
    b = rng.integers(-9, 9, (70, 45)).astype(np.float32)
    product = np.zeros((33, 45), np.float32)
    matmul[(qn.cdiv(33, 16), qn.cdiv(45, 16)), (16, 16)](a, b, product)
    assert np.array_equal(product, a @ b)

    letters = rng.integers(0, 256, n).astype(np.uint8)
    counts = np.zeros(256, np.int32)
    histogram[7](letters, counts)
    assert np.array_equal(counts, np.bincount(letters, minlength=256))

    keys = rng.random(n, np.float32)
    wanted = np.concatenate([np.sort(keys[first : first + 512]) for first in range(0, n, 512)])
    bitonic[qn.cdiv(n, 512)](keys)
    assert np.array_equal(keys, wanted)
    print("reduction, prefix sum, transpose, product, histogram and sort agree with NumPy")


if __name__ == "__main__":
    main()
