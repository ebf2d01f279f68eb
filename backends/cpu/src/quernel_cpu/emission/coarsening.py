"""How many threads run together: lanes of a vector, vectors side by side, rows of threads.

Threads are independent between barriers, so any number may take each statement together. More of them share uniform
loads and the control of loops, and keep more arithmetic in flight; too many spill registers. The rule:

* A kernel with loops gets as many copies of its native vectors as half the registers hold of what its innermost loops
  carry from trip to trip: as rows, beside two vectors in a row; in one dimension, up to four vectors in a row.
* A loop that lanes leave one by one gets four rows at most and one vector in a row: lanes far apart leave at more
  different times. Four rows are the most, too, where threads keep locals across barriers.
* A kernel without loops gets two vectors in a row, or four if it calls mathematical functions, whose chains are long.
* A kernel with checks gets two vectors in a row and one row: each check takes lanes out of a mask, and the masks of
  many rows fill the mask registers (checked matmul 512: 2 × 1 43 ms, 2 × 4 40 ms, 1 × 8 57 ms; stencil 1024: 0.28,
  0.55 and 0.40 ms; compiling 2 × 4 takes twice as long).
* Branches with loops inside halve it; so does code that would grow beyond what compiles quickly.

Measured (AVX-512, one core, CPU ms; vectors × rows):

===============  =====  =====  =====  =====  =====  =====
kernel           1 × 1  2 × 1  4 × 1  1 × 4  2 × 4  2 × 8
===============  =====  =====  =====  =====  =====  =====
matmul 1024        199                         32     21
tiled matmul      45.5   34.8                26.6   28.6
Mandelbrot 2000   41.2   29.7          24.7
n-body 16 384     51.0   49.4   49.2
Black-Scholes     23.0   20.1   16.8
stencil 256        9.0    8.8    9.3
===============  =====  =====  =====  =====  =====  =====
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from quernel.capabilities import TargetInfo
from quernel.dtypes import DType
from quernel.geometry import LaunchForm
from quernel.ir.nodes import Assert, For, If, IndexKind, Kernel, Loop, Math, Stmt, Subgroup
from quernel.ir.segments import Segment, SegmentedKernel, segments_of
from quernel.ir.walk import Body, bodies, walk_expressions, walk_statements
from quernel_cpu.emission.forms import MOST_PRIVATE_BYTES, private_bytes
from quernel_cpu.emission.shapes import Axes, Lanes, Layout, Shapes, analyse_shapes, assigned_by

__all__ = ["Step", "chosen_step", "uses_subgroups"]

_MOST_ROWS = 8
_MOST_NODES = 1500
"""Expressions and statements times rows; beyond, a kernel takes long to compile."""


@attrs.frozen
class Step:
    """The threads that run together.

    Attributes:
        width: along the last axis, a power of two.
        rows: along the axis before.
    """

    width: int
    rows: int = 1


def chosen_step(kernel: Kernel, segmented: SegmentedKernel | None, target: TargetInfo) -> Step:
    """How many threads of a kernel run together on a target."""
    vector_bytes = int(target.detail("vector_bytes"))
    native = vector_bytes // 4
    if uses_subgroups(kernel.body):
        return Step(target.subgroup_size)
    lane_size, row_size = _sizes(kernel)
    while native > 1 and lane_size is not None and native // 2 >= lane_size:
        native //= 2
    if target.detail("coarsening") != "on":
        return Step(native)
    has_many_registers = vector_bytes == 64 or target.detail("triple").startswith(("aarch64", "arm64"))
    vectors, rows = _copies(kernel, segmented, 32 if has_many_registers else 16, has_rows=row_size != 1)
    while vectors > 1 and lane_size is not None and native * vectors > lane_size:
        vectors //= 2
    rows = rows if row_size is None else min(rows, row_size)
    while rows * vectors > 1 and private_bytes(kernel.body) * native * vectors * rows > MOST_PRIVATE_BYTES:
        vectors, rows = (vectors, rows // 2) if rows > 1 else (vectors // 2, rows)
    return Step(native * vectors, rows)


def _sizes(kernel: Kernel) -> tuple[int | None, int | None]:
    """Threads of a block along the axes of lanes and of rows; `None` for points, of which as many run as there are."""
    if kernel.form is LaunchForm.OVER:
        return None, (None if kernel.ndim > 1 else 1)
    sizes = [size for size in kernel.block if size > 1]
    return (sizes[-1] if sizes else 1), (sizes[-2] if len(sizes) > 1 else 1)


def uses_subgroups(body: Body) -> bool:
    """Whether a kernel has subgroup operations, or asks for its place in a subgroup."""
    kinds = (IndexKind.SUBGROUP_LANE, IndexKind.SUBGROUP_ID, IndexKind.SUBGROUP_SIZE)
    return any(isinstance(stmt, Subgroup) for stmt in walk_statements(body)) or any(
        getattr(expr, "kind", None) in kinds for expr in walk_expressions(body)
    )


def _copies(kernel: Kernel, segmented: SegmentedKernel | None, registers: int, *, has_rows: bool) -> tuple[int, int]:
    """Vectors side by side, and rows."""
    if any(isinstance(stmt, Assert) for stmt in walk_statements(kernel.body)):
        return 2, 1
    parts = [Segment(kernel.body)] if segmented is None else list(segments_of(segmented.regions))
    carried = {local.name: Layout(Lanes.VECTOR, 0, True) for local in (segmented.carried if segmented else ())}
    axes = Axes(
        lanes=frozenset((kind, kernel.ndim - 1) for kind in (IndexKind.GLOBAL_ID, IndexKind.LOCAL_ID)),
        rows=frozenset((kind, kernel.ndim - 2) for kind in (IndexKind.GLOBAL_ID, IndexKind.LOCAL_ID)),
    )
    types = {local.name: local.type for local in kernel.locals}
    most, diverges, branches, has_loops, nodes = 1, False, False, False, 0
    for part in parts:
        shapes = analyse_shapes(part.body, axes, carried)
        nodes += sum(1 for _ in walk_expressions(part.body)) + sum(1 for _ in walk_statements(part.body))
        for loop in _innermost_loops(part.body):
            has_loops = True
            diverges = diverges or id(loop) in shapes.divergent
            weights = [_registers(types[name]) for name in _carried_by(loop, shapes, part)]
            most = max(most, sum(weights))
        branches = branches or _has_dear_branches(part.body, shapes)
    if not has_loops:
        return (4 if any(isinstance(node, Math) for node in walk_expressions(kernel.body)) else 2), 1
    copies = max(registers // 2 // most, 1)
    if branches:
        copies = min(copies, 2)
    if not has_rows:
        return min(_power_of_two(copies), 2 if diverges else 4), 1
    vectors = 1 if diverges or copies < 4 else 2
    is_kept = segmented is not None and bool(segmented.carried)
    rows = min(_power_of_two(copies // vectors), 4 if diverges or is_kept else _MOST_ROWS)
    while rows > 1 and rows * nodes > _MOST_NODES:
        rows //= 2
    return vectors, rows


def _power_of_two(number: int) -> int:
    return 1 << (max(number, 1).bit_length() - 1)


def _registers(dtype: object) -> int:
    return 2 if isinstance(dtype, DType) and dtype.bits == 64 else 1


def _innermost_loops(body: Body) -> Iterator[For | Loop]:
    for stmt in walk_statements(body):
        if isinstance(stmt, For | Loop) and not any(
            isinstance(inner, For | Loop) for inner in walk_statements(stmt.body)
        ):
            yield stmt


def _carried_by(loop: For | Loop, shapes: Shapes, part: Segment) -> set[str]:
    """Vectors that a loop takes from trip to trip."""
    assigned = {name for stmt in walk_statements(loop.body) for name in assigned_by(stmt)}
    before = {name for stmt in _outside(part.body, loop) for name in assigned_by(stmt)} | set(part.loads)
    return {name for name in assigned & before if shapes.locals.get(name, Layout()).lanes is Lanes.VECTOR}


def _outside(body: Body, loop: Stmt) -> Iterator[Stmt]:
    for stmt in body:
        if stmt is loop:
            continue
        yield stmt
        for inner in bodies(stmt):
            yield from _outside(inner, loop)


def _has_dear_branches(body: Body, shapes: Shapes) -> bool:
    """Whether threads part on branches with loops inside."""
    return any(
        isinstance(stmt, If)
        and not shapes.layout(stmt.condition).is_uniform
        and any(isinstance(inner, For | Loop) for inner in walk_statements((*stmt.then, *stmt.otherwise)))
        for stmt in walk_statements(body)
    )
