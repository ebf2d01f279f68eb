"""Refusals of what threads do together: memory, barriers, atomics."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.lang.kernels import array, refusal
from tests.unit.lang.wrong import Wrong, check

from quernel.errors import KernelSyntaxError, KernelTypeError
from quernel.geometry import LaunchForm

GRID = LaunchForm.GRID


def wrong(name: str, text: str, what: str, fix: str, *, syntax: bool = False, **others: Any) -> Wrong:
    """A kernel launched over a grid."""
    return Wrong(name, text, what, fix, KernelSyntaxError if syntax else KernelTypeError, form=GRID, **others)


TOGETHER = [
    wrong(
        "shared below the top level",
        """
def kernel(x):
    if x[0] > 0:
        tile = qn.shared(32, qn.f32)
#              ^^^^^^^^^^^^^^^^^^^^^
""",
        "`qn.shared` stands in a branch or loop",
        "top level",
        syntax=True,
    ),
    wrong(
        "private in a loop",
        """
def kernel(x):
    for k in range(3):
        tile = qn.private(32, qn.f32)
#              ^^^^^^^^^^^^^^^^^^^^^^
""",
        "`qn.private` stands in a branch or loop",
        "top level",
        syntax=True,
    ),
    wrong(
        "shared within an expression",
        """
def kernel(x):
    x[0] = qn.shared(32, qn.f32)[0]
#          ^^^^^^^^^^^^^^^^^^^^^
""",
        "stands only on the right of an assignment to a name",
        "`tile = qn.shared(32, qn.f32)`",
        syntax=True,
    ),
    wrong(
        "shared into two names",
        """
def kernel(x):
    a = b = qn.shared(32, qn.f32)
#   ^
""",
        "assigned to something other than one name",
        "give the array a name",
        syntax=True,
    ),
    wrong(
        "shape not constant",
        """
def kernel(x):
    tile = qn.shared((32, len(x)), qn.f32)
#                    ^^^^^^^^^^^^
""",
        "the shape of `qn.shared` must be constant integers",
        "`qn.Const` parameters",
    ),
    wrong(
        "empty shape",
        """
def kernel(x):
    tile = qn.shared((32, 0), qn.f32)
#                    ^^^^^^^
""",
        "an array of shape (32, 0) cannot be allocated",
        "positive length",
    ),
    wrong(
        "no type",
        """
def kernel(x):
    tile = qn.shared(32, 1.0)
#                        ^^^
""",
        "the second argument of `qn.shared` must be a type, not 1.0",
        "`qn.f32`",
    ),
    wrong(
        "too few arguments of shared",
        """
def kernel(x):
    tile = qn.shared(32)
#          ^^^^^^^^^^^^^
""",
        "`qn.shared` takes a shape and a type",
        "`qn.shared((32, 33), qn.f32)`",
    ),
    wrong(
        "array name of an allocation bound twice",
        """
def kernel(x):
    tile = qn.shared(32, qn.f32)
#   ^^^^
    tile = x
""",
        "`tile` is an array, and its name is bound once",
        "a name of its own",
    ),
    wrong(
        "wrong number of indices of shared memory",
        """
def kernel(x):
    tile = qn.shared((4, 4), qn.f32)
    tile[0] = 1
#   ^^^^^^^
""",
        "`tile` has 2 axes (array<f32, 2>) and is indexed with 1",
        "`tile[i, j]`; a kernel has no rows",
    ),
    wrong(
        "argument of a barrier",
        """
def kernel(x):
    qn.barrier(x)
#   ^^^^^^^^^^^^^
""",
        "`qn.barrier` takes no arguments",
        "`qn.barrier()`",
    ),
    wrong(
        "value of a barrier",
        """
def kernel(x):
    x[0] = qn.barrier()
#          ^^^^^^^^^^^^
""",
        "`qn.barrier` returns nothing",
        "call it alone",
    ),
    wrong(
        "barrier under a varying condition",
        """
def kernel(x):
    i = qn.local_id()
    if i < 3:
        qn.barrier()
#       ^^^^^^^^^^^^
""",
        "a barrier is reached by some threads of a block and not by others",
        "move it to where all threads",
        syntax=True,
    ),
    wrong(
        "barrier in a loop whose count differs",
        """
def kernel(x):
    for k in range(qn.local_id()):
        qn.barrier()
#       ^^^^^^^^^^^^
""",
        "a barrier is reached by some threads of a block and not by others",
        "move it to where all threads",
        syntax=True,
    ),
    wrong(
        "barrier after a varying return",
        """
def kernel(x):
    if x[qn.global_id()] > 0:
        return
    qn.barrier()
#   ^^^^^^^^^^^^
""",
        "a barrier is reached by some threads of a block and not by others",
        "move it to where all threads",
        syntax=True,
    ),
    wrong(
        "barrier in a function called under a varying condition",
        """
@qn.func
def meet():
    qn.barrier()
#   ^^^^^^^^^^^^

def kernel(x):
    if qn.local_id() == 0:
        meet()
""",
        "a barrier is reached by some threads of a block and not by others",
        "move it to where all threads",
        syntax=True,
    ),
    wrong(
        "atomic of a number",
        """
def kernel(x):
    qn.atomic.add(x[0], 0, 1)
#                 ^^^^
""",
        "`qn.atomic.add` changes an element of an array, not f32",
        "`qn.atomic.add(a, index, value)`",
    ),
    wrong(
        "too few arguments of an atomic",
        """
def kernel(x):
    qn.atomic.cas(x, 0, 1)
#   ^^^^^^^^^^^^^^^^^^^^^^
""",
        "`qn.atomic.cas` takes 4 arguments, not 3",
        "`qn.atomic.cas(a, index, expected, desired)`",
    ),
    wrong(
        "atomic by keyword",
        """
def kernel(x):
    qn.atomic.add(x, 0, value=1)
#   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
""",
        "`qn.atomic.add` takes no argument by keyword",
        "by position",
    ),
    wrong(
        "atomic of 16 bits",
        """
def kernel(h):
    qn.atomic.add(h, 0, 1)
#                 ^
""",
        "atomics work on elements of 32 and 64 bits, and `h` is array<i16, 1>",
        "use an array of i32",
        parameters={"h": array("int16")},
    ),
    wrong(
        "atomic of f16",
        """
def kernel(h):
    qn.atomic.max(h, 0, 1)
#                 ^
""",
        "atomics work on elements of 32 and 64 bits, and `h` is array<f16, 1>",
        "use an array of i32",
        parameters={"h": array("float16")},
    ),
    wrong(
        "atomic of bools",
        """
def kernel(h):
    qn.atomic.or_(h, 0, True)
#                 ^
""",
        "atomics work on elements of 32 and 64 bits, and `h` is array<bool, 1>",
        "use an array of i32",
        parameters={"h": array("bool")},
    ),
    wrong(
        "bitwise atomic of floats",
        """
def kernel(x):
    qn.atomic.xor(x, 0, 1)
#                 ^
""",
        "bitwise atomics work on integers, and `x` is array<f32, 1>",
        "array of integers",
    ),
    wrong(
        "atomic of private memory",
        """
def kernel(x):
    mine = qn.private(4, qn.i32)
    qn.atomic.add(mine, 0, 1)
#                 ^^^^
""",
        "`mine` is private to a thread, and needs no atomics",
        "`mine[…] += …`",
    ),
    wrong(
        "float into an atomic of integers",
        """
def kernel(n):
    qn.atomic.add(n, 0, 1.5)
#                       ^^^
""",
        "a float is stored into an array of i32",
        "qn.i32(…)",
        parameters={"n": array("int32")},
    ),
]


@pytest.mark.parametrize("wrong", TOGETHER, ids=lambda wrong: wrong.name)
def test_wrong_cooperation_is_refused_at_its_line_and_column(wrong: Wrong) -> None:
    check(wrong)


def test_refused_barrier_shows_the_way_to_what_differs_between_threads() -> None:
    error = refusal(
        "def kernel(x):\n    i = qn.local_id()\n    limit = i + 1\n    if x[limit] > 0:\n        qn.barrier()\n",
        form=GRID,
    )

    assert [line.split(": ", 1)[1] for line in error.chain] == [
        "this condition decides",
        "limit differs between threads",
        "limit is assigned here",
        "i differs between threads",
        "i is assigned here",
        "local_id differs between threads",
    ]
