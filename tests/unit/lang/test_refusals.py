"""Each kind of refusal: message, file, line and caret. The carets of the kernels mark the place that is refused."""

from __future__ import annotations

import pytest
from tests.unit.lang.kernels import FLOAT, INT, array, refusal
from tests.unit.lang.wrong import Wrong, check

from quernel.dtypes import ScalarType, i32, u64
from quernel.errors import KernelSyntaxError, KernelTypeError
from quernel.geometry import LaunchForm

STATEMENTS = [
    Wrong(
        "annotated local",
        """
def kernel(x):
    acc: qn.f64 = 0
#   ^^^^^^^^^^^^^^^
    x[0] = acc
""",
        "the annotation of `acc` has no effect in a kernel",
        "write `acc = qn.f64(0)`",
    ),
    Wrong(
        "try",
        """
def kernel(x):
    try:
#   ^^^^
        x[0] = 1
    except ValueError:
        pass
""",
        "`try` has no meaning",
        "test for the condition",
    ),
    Wrong(
        "with",
        """
def kernel(x):
    with x:
#   ^^^^^^^
        pass
""",
        "`with` has no meaning",
        "on the host",
    ),
    Wrong(
        "import",
        """
def kernel(x):
    import math
#   ^^^^^^^^^^^
""",
        "`import` has no meaning",
        "top of the module",
    ),
    Wrong(
        "from import",
        """
def kernel(x):
    from math import pi
#   ^^^^^^^^^^^^^^^^^^^
""",
        "`import` has no meaning",
        "top of the module",
    ),
    Wrong(
        "global",
        """
def kernel(x):
    global y
#   ^^^^^^^^
""",
        "`global` has no meaning",
        "write into an array",
    ),
    Wrong(
        "match",
        """
def kernel(x):
    match 1:
#   ^^^^^^^^
        case 1:
            pass
""",
        "`match` has no meaning",
        "if … elif",
    ),
    Wrong(
        "del",
        """
def kernel(x):
    a = 1
    del a
#   ^^^^^
""",
        "`del` has no meaning",
        "leave the name alone",
    ),
    Wrong(
        "raise",
        """
def kernel(x):
    raise ValueError
#   ^^^^^^^^^^^^^^^^
""",
        "`raise` has no meaning",
        "error code",
    ),
    Wrong(
        "class",
        """
def kernel(x):
    class A:
#   ^^^^^^^^
        pass
""",
        "a class within a kernel",
        "outside",
    ),
    Wrong(
        "inner function",
        """
def kernel(x):
    def inner():
#   ^^^^^^^^^^^^
        pass
""",
        "a function within a kernel",
        "@qn.func",
    ),
    Wrong(
        "loop over a list",
        """
def kernel(x):
    for k in [1, 2]:
#            ^^^^^^
        pass
""",
        "a kernel cannot loop over `[1, 2]`",
        "range(",
    ),
    Wrong(
        "loop into two names",
        """
def kernel(x):
    for a, b in range(3):
#       ^^^^
        pass
""",
        "must be one name",
        "for k in range",
    ),
    Wrong(
        "return of a value",
        """
def kernel(x):
    return x[0]
#   ^^^^^^^^^^^
""",
        "a kernel returns nothing",
        "out[i] = …",
    ),
    Wrong(
        "no effect",
        """
def kernel(x):
    x[0] + 1
#   ^^^^^^^^
""",
        "this expression has no effect",
        "assign it",
    ),
    Wrong(
        "attribute assigned",
        """
def kernel(x):
    x.shape = 3
#   ^^^^^^^
""",
        "`x.shape` cannot be assigned",
        "element of an array",
    ),
    Wrong(
        "starred target",
        """
def kernel(x):
    a, *b = 1, 2
#      ^^
""",
        "`*` in an assignment",
        "name each value",
    ),
    Wrong(
        "variadic parameter",
        """
def kernel(x, *rest):
#              ^^^^
    pass
""",
        "a parameter `*rest` has no meaning",
        "name each parameter",
    ),
]

S = KernelSyntaxError
T = KernelTypeError
GRID = "kernel[qn.cdiv(extent, block), block]"
# fmt: off
EXPRESSIONS = [
        ("(lambda: 1)()", " ^^^^^^^^^", "a lambda has no meaning", "@qn.func", S),
        ("[k for k in x][0]", "^^^^^^^^^^^^^^", "a comprehension has no meaning", "write a loop", S),
        ("[1, 2][0]", "^^^^^^", "a list has no meaning", "array as an argument", S),
        ("{1: 2}[1]", "^^^^^^", "a dict has no meaning", "as arguments", S),
        ("len({1, 2})", "    ^^^^^^", "a set has no meaning", "compare with each", S),
        ("(a := 1)", " ^^^^^^", "`:=`", "a line of its own", S),
        ("f'{1}'", "^^^^^^", "an f-string has no meaning", "on the host", S),
        ("3j", "^^", "a complex number has no meaning", "two floats", S),
        ("b'x'", "^^^^", "`b'x'` has no meaning", "use numbers", S),
        ("x[0:2]", "^^^^^^", "a slice has no meaning", "index one element", S),
        ("x[...]", "  ^^^", "`...` in an index", "index every axis", S),
        ("x[None]", "  ^^^^", "`None` in an index", "index every axis", S),
        ("1 in (1, 2)", "^^^^^^^^^^^", "`in` has no meaning", "x == 1 or x == 2", S),
        ("x[0] is x[1]", "^^^^^^^^^^^^", "`is` between values", "`==`", S),
        ("max(*x)", "    ^^", "`*` before an argument", "one by one", S),
        ("max(1, **x)", "       ^^^", "`**` before an argument", "one by one", S),
        ("x", "^", "is a whole array (array<f32, 1>)", "index it: `[i]`", T),
        ("x if 1 else 2", "^^^^^^^^^^^^^", "is a whole array", "index it", T),
        ("None", "^^^^", "is None, not a number", "use a number", T),
        ("x[0] + 'text'", "       ^^^^^^", "`'text'` is a string, not a number", "use a number", T),
        ("x[0] + None", "       ^^^^", "`None` is no number", "use a number", T),
        ("'text'", "^^^^^^", "is the string 'text', not a number", "use a number", T),
        ("math.sin", "^^^^^^^^", "is sin, of type builtin_function_or_method", "use a number", T),
        ("missing", "^^^^^^^", "the name `missing` is not defined", "spelling", T),
        ("math.nothing", "^^^^^^^^^^^^", "math has no attribute 'nothing'", "spelling", T),
        ("x.T", "^^^", "an array has no `.T` in a kernel", "`.shape`", T),
        ("x.sum()", "^^^^^", "an array has no `.sum` in a kernel", "before the launch", T),
        ("qn.grid(1)", "^^^^^^^", "has no attribute 'grid'", "write `qn.global_id()`", T),
        ("qn.threadIdx.x", "^^^^^^^^^^^^", "has no attribute 'threadIdx'", "write `qn.local_id()`", T),
        ("math.squrt(x[0])", "^^^^^^^^^^", "math has no attribute 'squrt'", "did you mean `sqrt`?", T),
        ("math.zzz", "^^^^^^^^", "math has no attribute 'zzz'", "check the spelling", T),
        ("x[0, 1]", "^^^^^^^", "`x` has 1 axis (array<f32, 1>) and is indexed with 2", "`x[i]`", T),
        ("x[1.0]", "  ^^^", "an index of `x` must be an integer, not float", "int(…)", T),
        ("x[x[0]]", "  ^^^^", "an index of `x` must be an integer, not f32", "int(…)", T),
        ("x[True]", "  ^^^^", "an index of `x` must be an integer, not bool", "int(…)", T),
        ("x[-1]", "  ^^", "the index -1 of `x` is negative", "`x.shape[0] - 1`", T),
        ("x.shape[1]", "        ^", "index 1 of a tuple of 1", "within the tuple", T),
        ("x.shape[len(x)]", "        ^^^^^^", "a tuple is indexed by a constant", "as a number", T),
        ("x.shape", "^^^^^^^", "is a tuple of 1 value", "unpack it", T),
        ("qn.u64(1) + qn.i32(1)", "^^^^^^^^^^^^^^^^^^^^^", "u64 and i32 have no common", "qn.u64(…)", T),
        ("qn.u64(1) & qn.i8(1)", "^^^^^^^^^^^^^^^^^^^^", "u64 and i8 have no common", "qn.u64(…)", T),
        ("qn.i32(1) + 2**31", "^^^^^^^^^^^^^^^^^", "2147483648 does not fit i32", "qn.i32(2147483648)", T),
        ("qn.u8(1) & 256", "^^^^^^^^^^^^^^", "256 does not fit u8", "to wrap", T),
        ("qn.u32(1) + -1", "^^^^^^^^^^^^^^", "-1 does not fit u32", "qn.u32(-1)", T),
        ("2 ** -1", "^^^^^^^", "an integer to the negative power -1", "float(x)", T),
        ("2 ** qn.i32(x[0])", "^^^^^^^^^^^^^^^^^", "to the power of a signed i32", "qn.u32(…)", T),
        ("x[0] & 1", "^^^^^^^^", "the operator `&` takes integers and bools, not f32", "qn.bitcast", T),
        ("x[0] << 1", "^^^^^^^^^", "a shift takes integers, not f32", "power of two", T),
        ("1 << x[0]", "^^^^^^^^^", "a shift takes integers, not f32", "power of two", T),
        ("~x[0]", "^^^^^", "the operator `~` takes integers, not f32", "qn.bitcast", T),
        ("~(x[0] > 0)", "^^^^^^^^^^^", "the operator `~` takes integers, not bool", "`not x`", T),
        ("x[0] @ x[1]", "^^^^^^^^^^^", "the operator `@` is not defined", "as loops", T),
        ("x[0] if x[1] else True", "^^^^^^^^^^^^^^^^^^^^^^", "f32 on one side and bool", "cast one side", T),
        ("np.sqrt(x[0])", "^^^^^^^^^^^^^", "`np.sqrt` works on whole NumPy arrays", "`math.sqrt`", T),
        ("np.minimum(x[0], 1)", "^^^^^^^^^^^^^^^^^^^", "works on whole NumPy arrays", "`min(a, b)`", T),
        ("math.gcd(4, 6)", "^^^^^^^^^^^^^^", "`math.gcd` cannot be called", "@qn.func", T),
        ("sum(x)", "^^^^^^", "`sum` has no meaning", "acc += …", S),
        ("len(range(3))", "    ^^^^^^^^", "`range` stands only behind `in`", "for k in range", S),
        ("qn.unroll(1)", "^^^^^^^^^^^^", "`qn.unroll` stands only behind `in`", "for k in", S),
        ("len(3)", "^^^^^^", "`len` takes an array", "a.shape[0]", T),
        ("x[0]()", "^^^^^^", "is f32 and cannot be called", "call a function", T),
        ("max(1)", "^^^^^^", "`max` takes at least 2 arguments in a kernel, not 1", "check", T),
        ("abs(1, 2)", "^^^^^^^^^", "`abs` takes 1 argument in a kernel, not 2", "check", T),
        ("abs(x=1)", "^^^^^^^^", "takes no argument by keyword", "by position", T),
        ("abs(x)", "^^^^^^", "`abs` takes numbers, not array<f32, 1>", "index an array", T),
        ("round(x[0], 2)", "^^^^^^^^^^^^^^", "`round` to a number of digits", "round(x * 100)", T),
        ("qn.f32(1, 2)", "^^^^^^^^^^^^", "a cast to f32 takes one value", "qn.f32(x)", T),
        ("qn.floor(qn.i32(1))", "^^^^^^^^^^^^^^^^^^^", "qn.floor keeps a float's type", "leave", T),
        ("qn.popcount(x[0])", "^^^^^^^^^^^^^^^^^", "qn.popcount takes an integer, not f32", "qn.bitcast", T),
        ("qn.cdiv(1.0, 2)", "^^^^^^^^^^^^^^^", "qn.cdiv takes integers, not float", "math.ceil", T),
        ("qn.bitcast(x[0])", "^^^^^^^^^^^^^^^^", "`bitcast` takes a value and a type", "qn.u32", T),
        ("qn.bitcast(x[0], qn.u64)", "^^^^^^^^^^^^^^^^^^^^^^^^", "a bitcast of f32 to u64", "same width", T),
        ("qn.global_id(1)", "^^^^^^^^^^^^^^^", "axis 1 of `global_id` in a launch of 1 axis", "0 to 0", T),
        ("qn.global_id(len(x))", "^^^^^^^^^^^^^^^^^^^^", "must be a constant integer", "qn.global_id(0)", T),
        ("qn.global_id(0, 1)", "^^^^^^^^^^^^^^^^^^", "takes at most an axis", "qn.global_id(0)", T),
        ("qn.local_id()", "^^^^^^^^^^^^^", "`local_id` needs blocks", GRID, S),
        ("qn.block_id()", "^^^^^^^^^^^^^", "`block_id` needs blocks", GRID, S),
        ("qn.block_dim()", "^^^^^^^^^^^^^^", "`block_dim` needs blocks", GRID, S),
        ("qn.grid_dim()", "^^^^^^^^^^^^^", "`grid_dim` needs blocks", GRID, S),
        ("qn.shared((2,), qn.f32)[0]", "^^^^^^^^^^^^^^^^^^^^^^^", "`shared` needs blocks", GRID, S),
        ("qn.barrier()", "^^^^^^^^^^^^", "`barrier` needs blocks", GRID, S),
        ("qn.subgroup.sum(1)", "^^^^^^^^^^^^^^^^^^", "`subgroup.sum` needs blocks", GRID, S),
        ("qn.block.sum(1)", "^^^^^^^^^^^^^^^", "`block.sum` needs blocks", GRID, S),
]
# fmt: on

TYPES = [
    Wrong(
        "kinds of a local",
        """
def kernel(x):
    a = 1
    a = x[0] > 0
#   ^
""",
        "`a` is int in line 2 and bool here; a local keeps one kind",
        "use another name",
        KernelTypeError,
    ),
    Wrong(
        "integer and float local",
        """
def kernel(x):
    a = qn.i32(1)
    a = x[0]
#   ^
""",
        "`a` is i32 in line 2 and f32 here; a local keeps one kind",
        "`a = 0.0`",
        KernelTypeError,
    ),
    Wrong(
        "u64 and signed local",
        """
def kernel(x, u):
    a = u
    a = qn.i32(1)
#   ^
""",
        "`a` is u64 in line 2 and i32 here, which have no common integer type",
        "`qn.u64(…)` of the i32",
        KernelTypeError,
        {"u": ScalarType(u64)},
    ),
    Wrong(
        "constant too large for a local",
        """
def kernel(x):
    a = qn.u8(0)
    a = 256
#       ^^^
""",
        "256 does not fit u8",
        "to wrap",
        KernelTypeError,
    ),
    Wrong(
        "maybe unassigned",
        """
def kernel(x):
    if x[0] > 0:
        v = 1
    x[0] = v
#          ^
""",
        "`v` may be read here before it is assigned",
        "assign `v` before",
        KernelTypeError,
    ),
    Wrong(
        "range variable after a loop that may not run",
        """
def kernel(x):
    for k in range(len(x)):
        pass
    x[0] = k
#          ^
""",
        "`k` may be read here before it is assigned",
        "assign `k` before",
        KernelTypeError,
    ),
    Wrong(
        "step of zero",
        """
def kernel(x):
    for k in range(0, 4, 0):
#                        ^
        pass
""",
        "the step of a range is 0",
        "other than 0",
        KernelTypeError,
    ),
    Wrong(
        "float range",
        """
def kernel(x):
    for k in range(2.0):
#                  ^^^
        pass
""",
        "an end of a range must be an integer, not float",
        "int(…)",
        KernelTypeError,
    ),
    Wrong(
        "unroll without constants",
        """
def kernel(x):
    for k in qn.unroll(range(len(x))):
#            ^^^^^^^^^^^^^^^^^^^^^^^^
        pass
""",
        "must have ends that are known",
        "qn.Const",
        KernelTypeError,
    ),
    Wrong(
        "unroll too far",
        """
def kernel(x):
    for k in qn.unroll(range(5000)):
#            ^^^^^^^^^^^^^^^^^^^^^^
        pass
""",
        "into 5000 copies",
        "at most 1024",
        KernelTypeError,
    ),
    Wrong(
        "array name bound twice",
        """
def kernel(x, y):
    x = y
#   ^
""",
        "`x` is an array, and its name is bound once",
        "a name of its own",
        KernelTypeError,
    ),
    Wrong(
        "array alias bound twice",
        """
def kernel(x, y):
    z = x
#   ^
    if len(x) > 1:
        z = y
""",
        "`z` is an array, and its name is bound once",
        "a name of its own",
        KernelTypeError,
    ),
    Wrong(
        "float into integer",
        """
def kernel(x, n):
    n[0] = x[0]
#          ^^^^
""",
        "a float (f32) is stored into an array of i32",
        "`qn.i32(…)`",
        KernelTypeError,
        {"n": array("int32")},
    ),
    Wrong(
        "division into integer",
        """
def kernel(n):
    n[0] /= 2
#   ^^^^^^^^^
""",
        "a float (f64) is stored into an array of i32",
        "qn.i32(round(…))",
        KernelTypeError,
        {"n": array("int32")},
    ),
    Wrong(
        "number into bool",
        """
def kernel(b):
    b[0] = 1
#          ^
""",
        "a value of type int is stored into an array of bool",
        "bool(…)",
        KernelTypeError,
        {"b": array("bool")},
    ),
    Wrong(
        "unpacking too many",
        """
def kernel(x):
    a, b = 1, 2, 3
#   ^^^^
""",
        "3 values are unpacked into 2 names",
        "as many values",
        KernelTypeError,
    ),
    Wrong(
        "unpacking a scalar",
        """
def kernel(x):
    i, j = qn.global_id()
#   ^^^^
""",
        "one value is unpacked into 2 names",
        "this launch has 1 axis: launch over 2 axes, `kernel.over((height, width))`, or take what there is: "
        "`i = qn.global_id()`",
        KernelTypeError,
    ),
    Wrong(
        "unpacking a number",
        """
def kernel(x):
    a, b = 1
#   ^^^^
""",
        "one value is unpacked into 2 names",
        "as many values",
        KernelTypeError,
    ),
    Wrong(
        "an index of a launch over two axes for an array of one",
        """
def kernel(x):
    ij = 1, 2
    x[ij] = 0
#   ^^^^^
""",
        "`x` has 1 axis (array<f32, 1>) and is indexed with 2 indices",
        "`ij` is a tuple: launch over 1 axis, or take the parts: `i, j = …`",
        KernelTypeError,
    ),
    Wrong(
        "a float that no f32 holds",
        """
def kernel(x):
    x[0] = x[1] * -1e39
#          ^^^^^^^^^^^^
""",
        "-1e+39 does not fit f32, which it takes here: it would be an infinity",
        "write qn.f32(-1e+39), or math.inf",
        KernelTypeError,
    ),
    Wrong(
        "an integer that no f32 holds",
        """
def kernel(x):
    x[0] = x[1] + 10**39
#          ^^^^^^^^^^^^^
""",
        "an integer of 130 bits does not fit f32",
        "cast the other value to a wider type",
        KernelTypeError,
    ),
    Wrong(
        "wrong number of indices of a 3-D array",
        """
def kernel(x):
    x[1, 2] = 0
#   ^^^^^^^
""",
        "`x` has 3 axes (array<f32, 3>) and is indexed with 2",
        "`x[i, j, k]`; a kernel has no rows: go through it by `for k in range(x.shape[2])`, or pass an array of 2 axes",
        KernelTypeError,
        {"x": array("float32", 3)},
    ),
    Wrong(
        "power of a parameter",
        """
def kernel(x, n):
    x[0] = 3 ** n
#          ^^^^^^
""",
        "to the power of a signed i64",
        "qn.u32(…)",
        KernelTypeError,
        {"n": INT},
    ),
]


@pytest.mark.parametrize("wrong", [*STATEMENTS, *TYPES], ids=lambda wrong: wrong.name)
def test_wrong_kernel_is_refused_at_its_line_and_column(wrong: Wrong) -> None:
    check(wrong)


@pytest.mark.parametrize(("source", "carets", "what", "fix", "error"), EXPRESSIONS, ids=[row[0] for row in EXPRESSIONS])
def test_wrong_expression_is_refused_under_its_own_characters(
    source: str, carets: str, what: str, fix: str, error: type[Exception]
) -> None:
    found = refusal(f"def kernel(x):\n    x[0] = {source}\n")

    assert isinstance(found, error)
    assert found.where is not None
    assert what in found.what
    assert found.fix is not None
    assert fix in found.fix
    start = 11 + carets.index("^")
    length = len(carets.strip())
    assert (found.where.line, found.where.column, found.where.end_column) == (2, start, start + length)


def test_syntax_refusal_carries_the_fields_that_python_prints() -> None:
    error = refusal("def kernel(x):\n    del x\n")

    assert isinstance(error, SyntaxError)
    assert (error.lineno, error.offset, error.text) == (2, 5, "    del x\n")


def test_columns_count_characters_when_the_line_has_letters_of_several_bytes() -> None:
    error = refusal("def kernel(x, č):\n    ϕ = č; x[0] = ϕ; x[0] = 'text'\n", č=FLOAT)

    assert error.where is not None
    assert (error.where.column, error.where.end_column) == (28, 34)


def test_nesting_beyond_a_hundred_levels_is_refused() -> None:
    error = refusal("def kernel(x, n):\n    x[0] = " + "(n - " * 101 + "n" + ")" * 101 + "\n", n=INT)

    assert isinstance(error, KernelSyntaxError)
    assert "nests more than 100 levels deep" in error.what


def test_block_indices_are_there_in_a_grid_launch() -> None:
    text = "def kernel(x):\n    x[qn.local_id() + qn.block_dim() * qn.block_id()] = qn.grid_dim() + missing\n"

    error = refusal(text, form=LaunchForm.GRID)

    assert "the name `missing` is not defined" in error.what


def test_i32_parameter_is_not_weak() -> None:
    error = refusal("def kernel(x, n):\n    x[0] = qn.u64(1) + n\n", n=ScalarType(i32))

    assert "u64 and i32 have no common integer type" in error.what
