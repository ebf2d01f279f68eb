"""Refusals of tuples, vectors, structs, loops that are written out, assertions, prints and what threads do together."""

from __future__ import annotations

import attrs
import pytest
from tests.unit.lang.kernels import INT
from tests.unit.lang.test_refusals_together import wrong
from tests.unit.lang.wrong import Wrong, check

import quernel as qn
from quernel.dtypes import ArrayType, ScalarType, VectorType, f32, i32
from quernel.errors import KernelSyntaxError, KernelTypeError
from quernel.structs import struct_of


@attrs.frozen
class Pair:
    a: qn.f32
    b: qn.i32


PAIRS = {"s": ArrayType(struct_of(Pair), 1), "v": ArrayType(VectorType(f32, 4), 1)}


def refused(name: str, text: str, what: str, fix: str, *, syntax: bool = False, **parameters: object) -> Wrong:
    """A kernel launched over an extent, with an array `s` of structs and `v` of vectors."""
    error = KernelSyntaxError if syntax else KernelTypeError
    return Wrong(name, text, what, fix, error, {**PAIRS, **parameters})  # type: ignore[dict-item]


MORE = [
    refused(
        "tuple of other parts",
        """
def kernel(x):
    t = (1, 2)
    t = (1, 2, 3)
#   ^
""",
        "`t` is tuple of 2 in line 2 and tuple of 3 here",
        "a name of its own",
    ),
    refused(
        "tuple and number",
        """
def kernel(x):
    t = (1, 2)
    t = 1
#   ^
""",
        "`t` is tuple of 2 in line 2 and 1 here",
        "a name of its own",
    ),
    refused(
        "number and tuple",
        """
def kernel(x):
    t = x[0]
    t = (1, 2)
#   ^
""",
        "`t` is f32 in line 2 and tuple of 2 here",
        "a name of its own",
    ),
    refused(
        "kind of an item",
        """
def kernel(x):
    t = (1, 2)
    t = (1, True)
#   ^
""",
        "`t[1]` is int in line 2 and bool here",
        "use another name",
    ),
    refused(
        "order of tuples",
        """
def kernel(x):
    x[0] = (1, 2) < (1, 3)
#          ^^^^^^^^^^^^^^^
""",
        "tuples have no order",
        "compare their items",
    ),
    refused(
        "index beyond a tuple",
        """
def kernel(x):
    t = (1, x[0])
    x[0] = t[2]
#            ^
""",
        "index 2 of a tuple of 2",
        "within the tuple",
    ),
    refused(
        "run-time index of a tuple",
        """
def kernel(x, n):
    t = (1, x[0])
    x[0] = t[n]
#            ^
""",
        "a tuple is indexed by a constant integer",
        "as a number",
        n=INT,
    ),
    refused(
        "sides of a conditional",
        """
def kernel(x):
    t = (1, 2) if x[0] > 0 else (1, 2, 3)
#       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
""",
        "tuple of 2 on one side and tuple of 3 on the other",
        "the same parts",
    ),
    refused(
        "results of other parts",
        """
@qn.func
def f(x):
    if x[0] > 0:
        return 1, (2, 3)
    return 1, 2
#   ^^^^^^^^^^^

def kernel(x):
    t = f(x)
""",
        "tuple of 2 is returned here and tuple of 2 in line 4",
        "the same parts",
    ),
    refused(
        "vector where a number is wanted",
        """
def kernel(x, v):
    x[0] = v[0]
#          ^^^^
""",
        "what is stored is a vector (vec<f32, 4>), not a number",
        "`.x`",
    ),
    refused(
        "number into a vector",
        """
def kernel(x, v):
    v[0] = x[0]
#          ^^^^
""",
        "f32 is stored into an element of type vec<f32, 4>",
        "of the same length",
    ),
    refused(
        "component that is not there",
        """
def kernel(x):
    x[0] = qn.vec(qn.f32, 2)(1, 2).z
#          ^^^^^^^^^^^^^^^^^^^^^^^^^
""",
        "vec<f32, 2> has no `z`",
        "it has x, y",
    ),
    refused(
        "components of a vector",
        """
def kernel(x):
    w = qn.vec(qn.f32, 4)(1, 2)
#       ^^^^^^^^^^^^^^^^^^^^^^^
""",
        "vec<f32, 4> is made of 2 values",
        "`(x, y, z, w)`",
    ),
    refused(
        "length of a vector",
        """
def kernel(x):
    w = qn.vec(qn.f32, 3)(1)
#       ^^^^^^^^^^^^^^^^^
""",
        "a vector of 3 components",
        "2 or 4",
    ),
    refused(
        "run-time component",
        """
def kernel(x, v, n):
    x[0] = v[0][n]
#               ^
""",
        "a vector is indexed by a constant integer",
        "as a number",
        n=INT,
    ),
    refused(
        "vectors of different lengths",
        """
def kernel(x, v):
    w = v[0] + qn.vec(qn.f32, 2)(1)
#       ^^^^^^^^^^^^^^^^^^^^^^^^^^^
""",
        "vec<f32, 4> and vec<f32, 2> have different lengths",
        "one length",
    ),
    refused(
        "field that is not there",
        """
def kernel(x, s):
    x[0] = s[0].c
#          ^^^^^^
""",
        "struct<Pair> has no `c`",
        "it has a, b",
    ),
    refused(
        "field of a value",
        """
def kernel(x, s):
    p = s[0]
    p.a = 1
#   ^^^
""",
        "`p` is a value (struct<Pair>), and its parts do not change",
        "make a new one",
    ),
    refused(
        "struct where a number is wanted",
        """
def kernel(x, s):
    x[0] = s[0] + 1
#          ^^^^
""",
        "`s[0]` is a struct (struct<Pair>), not a number",
        "`.a`",
    ),
    refused(
        "float into an integer field",
        """
def kernel(x, s):
    s[0].b = x[0]
#            ^^^^
""",
        "a float (f32) is stored into an array of i32",
        "qn.i32",
    ),
    refused(
        "loop over an array",
        """
def kernel(x):
    for v in x:
#            ^
        pass
""",
        "a kernel cannot loop over `x`",
        "loop over `range(…)`",
        syntax=True,
    ),
    refused(
        "enumerate a range",
        """
def kernel(x):
    for j, k in enumerate(range(len(x))):
#               ^^^^^^^^^^^^^^^^^^^^^^^^
        pass
""",
        "must have ends that are known",
        "a plain `range`",
    ),
    refused(
        "two variables of a range",
        """
def kernel(x):
    for j, k in range(3):
#       ^^^^
        pass
""",
        "the variable of a `for` must be one name",
        "for k in range",
        syntax=True,
    ),
    refused(
        "message of an assertion",
        """
def kernel(x):
    assert x[0] > 0, f"{x[0]}"
#                    ^^^^^^^^^
""",
        "the message of an assertion must be a string",
        "write the text",
        syntax=True,
    ),
    refused(
        "print of an array",
        """
def kernel(x):
    print("x =", x)
#                ^
""",
        "`x` cannot be printed in a kernel",
        "print numbers",
    ),
    refused(
        "end of a print",
        """
def kernel(x):
    print(x[0], end="")
#   ^^^^^^^^^^^^^^^^^^^
""",
        "`end=` of `print` has no meaning",
        "`sep=`",
        syntax=True,
    ),
    refused(
        "number between the values of a print",
        """
def kernel(x):
    print(x[0], 1, sep=1)
#   ^^^^^^^^^^^^^^^^^^^^^
""",
        "the `sep=` of `print` must be a string",
        "write the text",
        syntax=True,
    ),
    refused(
        "value of a print",
        """
def kernel(x):
    y = print(x[0])
#       ^^^^^^^^^^^
""",
        "`print` returns nothing",
        "call it alone",
    ),
    refused(
        "seed of random numbers",
        """
def kernel(x):
    t = qn.random.philox(1.5, 2)
#       ^^^^^^^^^^^^^^^^^^^^^^^^
""",
        "the seed of `qn.random.philox` must be an integer, not float",
        "cast it",
    ),
    refused(
        "argument that follows from a parameter in its own way",
        """
def kernel(x, i, n, m):
    x[0] = i + n * m
#          ^^^^^^^^^
""",
        "this follows from the parameter",
        "cast it, which wraps",
        i=ScalarType(i32),
        n=INT,
        m=INT,
    ),
    wrong(
        "arguments of a collective",
        """
def kernel(x):
    x[0] = qn.block.sum(1, 2)
#          ^^^^^^^^^^^^^^^^^^
""",
        "`qn.block.sum` takes one value",
        "`qn.block.sum(x)`",
    ),
    wrong(
        "collective of an array",
        """
def kernel(x):
    x[0] = qn.block.sum(x)
#                       ^
""",
        "`x` is a whole array",
        "index it",
    ),
    wrong(
        "collective under a varying condition",
        """
def kernel(x):
    if qn.local_id() > 0:
        x[0] = qn.block.sum(1)
#              ^^^^^^^^^^^^^^^
""",
        "a barrier is reached by some threads of a block and not by others",
        "move it",
        syntax=True,
    ),
    wrong(
        "scan is not uniform",
        """
def kernel(x):
    if qn.block.scan(1) > 0:
        qn.barrier()
#       ^^^^^^^^^^^^
""",
        "a barrier is reached by some threads of a block and not by others",
        "move it",
        syntax=True,
    ),
    wrong(
        "subgroup operation under a varying condition",
        """
def kernel(x):
    if qn.subgroup.lane() > 0:
        x[0] = qn.subgroup.sum(1)
#              ^^^^^^^^^^^^^^^^^^
""",
        "a subgroup operation is reached by some threads of a subgroup",
        "move it",
        syntax=True,
    ),
    wrong(
        "lane of a shuffle",
        """
def kernel(x):
    x[0] = qn.subgroup.shuffle(1, 1.5)
#                                 ^^^
""",
        "the lane of `qn.subgroup.shuffle` must be an integer, not float",
        "int(…)",
    ),
    wrong(
        "arguments of a shuffle",
        """
def kernel(x):
    x[0] = qn.subgroup.shuffle(1)
#          ^^^^^^^^^^^^^^^^^^^^^^
""",
        "`qn.subgroup.shuffle` cannot take 1 argument",
        "`qn.subgroup.shuffle(x, lane)`",
    ),
]


@pytest.mark.parametrize("wrong", MORE, ids=lambda wrong: wrong.name)
def test_wrong_kernel_is_refused_at_its_line_and_column(wrong: Wrong) -> None:
    check(wrong)
