"""The text that the core makes of IR for a C-family language: readable, deterministic, ASCII, content only."""

from __future__ import annotations

import re

import attrs
import pytest
from tests.unit.ir_by_hand import const, load, place, store

from quernel.codegen.generate import GeneratedText, generate
from quernel.codegen.pointers import Pointers
from quernel.compiler.arguments import argument_slots
from quernel.dtypes import (
    ArrayType,
    DType,
    ScalarType,
    StructField,
    StructType,
    VectorType,
    bf16,
    bool_,
    f16,
    f32,
    f64,
    i8,
    i32,
    i64,
    u32,
    u64,
)
from quernel.geometry import LaunchForm
from quernel.ir.nodes import (
    Alloc,
    Assign,
    Binary,
    BinaryOp,
    Break,
    Call,
    Cast,
    Compare,
    CompareOp,
    Expr,
    For,
    Function,
    If,
    IndexKind,
    Kernel,
    Local,
    LocalVariable,
    Loop,
    Math,
    MathFunction,
    Module,
    Param,
    Parameter,
    Return,
    RootKind,
    Select,
    Space,
    Stmt,
    Store,
    ThreadIndex,
    Unary,
    UnaryOp,
)
from quernel.locations import Location
from quernel.options import KernelOptions
from quernel_opencl.lowering import OPENCL_C

I = ThreadIndex(kind=IndexKind.GLOBAL_ID, axis=0)


def binary(op: BinaryOp, left: Expr, right: Expr) -> Binary:
    return Binary(op=op, left=left, right=right)


def module(
    body: tuple[Stmt, ...],
    *,
    arrays: dict[str, DType] | None = None,
    scalars: dict[str, DType] | None = None,
    variables: dict[str, DType] | None = None,
    functions: tuple[Function, ...] = (),
    form: LaunchForm = LaunchForm.OVER,
    block: tuple[int, ...] = (256,),
    options: KernelOptions | None = None,
    name: str = "k",
    loc: Location | None = None,
) -> Module:
    params = [Parameter(name=n, type=ArrayType(t, 1)) for n, t in (arrays or {}).items()]
    params += [Parameter(name=n, type=ScalarType(t)) for n, t in (scalars or {}).items()]
    kernel = Kernel(
        name=name,
        form=form,
        block=block,
        params=tuple(params),
        locals=tuple(LocalVariable(name=n, type=t) for n, t in (variables or {}).items()),
        body=body,
        options=options or KernelOptions(),
        **({} if loc is None else {"loc": loc}),
    )
    return Module(kernel=kernel, functions=functions)


def generated(made: Module, *, pointers: Pointers = Pointers.ADDRESS, contiguous: bool = True) -> GeneratedText:
    extents = range(made.kernel.ndim) if made.kernel.form is LaunchForm.OVER else ()
    slots = argument_slots(made, extents=extents)
    if contiguous:
        slots = tuple(slot for slot in slots if slot.kind.value != "stride")
    return generate(made, OPENCL_C, slots, pointers=pointers, contiguous=contiguous)


def text(made: Module) -> str:
    return generated(made).text


def value(expr: Expr, **arrays: DType) -> str:
    """How an expression reads when it is stored."""
    assert isinstance(expr.type, DType)
    made = module((Store(place=place("out", expr.type), value=expr),), arrays={**arrays, "out": expr.type})
    (line,) = [line for line in text(made).splitlines() if line.strip().startswith("out[")]
    return line.strip().removeprefix("out[(long)get_global_id(0) + start0] = ").removesuffix(";")


X = load("x", i32, const(0))
F = load("f", f32, const(0))


SAXPY = """\
#pragma OPENCL FP_CONTRACT OFF

__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void QUERNEL_ENTRY(
    __global const float *x,
    __global float *y,
    const float a,
    const long extent0,
    const long start0
)
{
    if ((long)get_global_id(0) >= extent0) {
        return;
    }
    long i = (long)get_global_id(0) + start0;
    y[i] = a * x[i] + y[i];
}
"""


def saxpy(name: str = "saxpy") -> Module:
    i = Local(name="i", type=i64)
    product = binary(BinaryOp.MUL, Param(name="a", type=f32), load("x", f32, i))
    body = (
        Assign(name="i", value=I),
        Store(place=place("y", f32, i), value=binary(BinaryOp.ADD, product, load("y", f32, i))),
    )
    return module(body, arrays={"x": f32, "y": f32}, scalars={"a": f32}, variables={"i": i64}, name=name)


def test_a_kernel_reads_as_its_user_wrote_it() -> None:
    assert text(saxpy()) == SAXPY


def test_the_kernels_name_is_no_part_of_the_text() -> None:
    assert text(saxpy("one")) == text(saxpy("two"))


def test_buffers_come_with_an_offset_in_bytes() -> None:
    lines = generated(saxpy(), pointers=Pointers.BUFFER).text.splitlines()
    assert "    __global const float *x_buffer," in lines
    assert "    const long x_offset," in lines
    assert (
        "    __global const float *x = (__global const float *)((__global const uchar *)x_buffer + x_offset);" in lines
    )


def test_strides_are_passed_where_arrays_are_not_contiguous() -> None:
    assert "y[i * y_stride0] = a * x[i * x_stride0] + y[i * y_stride0];" in generated(saxpy(), contiguous=False).text


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (binary(BinaryOp.ADD, X, const(1, i32)), "(int)((uint)x[0L] + 1u)"),
        (
            binary(BinaryOp.MUL, binary(BinaryOp.ADD, X, X), const(-3, i32)),
            "(int)(((uint)x[0L] + (uint)x[0L]) * 4294967293u)",
        ),
        (binary(BinaryOp.FLOORDIV, X, X), "qn_floordiv_i32(x[0L], x[0L])"),
        (binary(BinaryOp.SHL, X, const(3, i32)), "(int)((uint)x[0L] << 3)"),
        (binary(BinaryOp.SHR, X, const(40, i32)), "qn_shr_i32(x[0L], 40)"),
        (binary(BinaryOp.AND, X, X), "x[0L] & x[0L]"),
        (Unary(op=UnaryOp.NEG, operand=X), "(int)(0u - (uint)x[0L])"),
        (binary(BinaryOp.MIN, X, X), "qn_min_i32(x[0L], x[0L])"),
        (Cast(operand=X, type=i8), "(char)x[0L]"),
        (Cast(operand=X, type=f32), "(float)x[0L]"),
        (const(i32.min, i32), "-2147483647 - 1"),
        (const(i64.min), "-9223372036854775807L - 1"),
        (const(u64.max, u64), "18446744073709551615UL"),
    ],
    ids=str,
)
def test_integers_wrap_in_their_unsigned_type(expr: Expr, expected: str) -> None:
    assert value(expr, x=i32).replace("(long)get_global_id(0) + start0", "i") == expected


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (binary(BinaryOp.SUB, F, binary(BinaryOp.SUB, F, F)), "f[0L] - (f[0L] - f[0L])"),
        (binary(BinaryOp.ADD, binary(BinaryOp.MUL, F, F), F), "f[0L] * f[0L] + f[0L]"),
        (binary(BinaryOp.DIV, F, const(0.5, f32)), "f[0L] / 0.5f"),
        (binary(BinaryOp.MOD, F, F), "qn_mod_f32(f[0L], f[0L])"),
        (Unary(op=UnaryOp.NEG, operand=F), "-f[0L]"),
        (Math(function=MathFunction.RSQRT, operands=(F,), type=f32), "1.0f / sqrt(f[0L])"),
        (Math(function=MathFunction.GAMMA, operands=(F,), type=f32), "tgamma(f[0L])"),
        (Math(function=MathFunction.ISNAN, operands=(F,), type=bool_), "qn_isnan_f32(f[0L])"),
        (Compare(op=CompareOp.LE, left=F, right=F), "f[0L] <= f[0L]"),
        (Cast(operand=F, type=i32), "qn_i32_of_f32(f[0L])"),
        (Cast(operand=F, type=bool_), "f[0L] != 0.0f"),
        (const(float("inf"), f32), "INFINITY"),
        (const(float("-inf"), f64), "-(double)INFINITY"),
        (const(1.401298464324817e-45, f32), "1e-45f"),
        (const(16777216.0, f32), "16777216.0f"),
        (const(0.1, f64), "0.1"),
        (const(-0.0, f64), "-0.0"),
    ],
    ids=str,
)
def test_floats_read_as_written(expr: Expr, expected: str) -> None:
    assert value(expr, f=f32) == expected


@pytest.mark.parametrize("dtype", [f16, bf16], ids=str)
def test_narrow_floats_are_rounded_after_each_operation(dtype: DType) -> None:
    h = load("h", dtype, const(0))
    name = dtype.name
    stored = value(binary(BinaryOp.ADD, h, h), h=dtype)
    assert stored == f"qn_{name}_of_f32(qn_round_{name}(qn_f32_of_{name}(h[0L]) + qn_f32_of_{name}(h[0L])))"


def test_conditions_need_no_parentheses_where_everybody_knows_the_order() -> None:
    less = Compare(op=CompareOp.LT, left=X, right=X)
    both = binary(BinaryOp.AND, less, less)
    assert value(Select(condition=both, then=X, otherwise=X), x=i32) == "x[0L] < x[0L] && x[0L] < x[0L] ? x[0L] : x[0L]"


def test_helpers_are_there_only_when_used_and_before_their_users() -> None:
    plain = text(saxpy())
    assert "qn_" not in plain
    rounding = text(module((store("y", Cast(operand=load("x", f64), type=f16)),), arrays={"x": f64, "y": f16}))
    definitions = re.findall(r"^static \w+ (qn_\w+)\(", rounding, re.MULTILINE)
    assert definitions == ["qn_odd_f32_of_f64", "qn_f32_of_f16", "qn_f16_of_f32", "qn_round_f16"]
    assert "cl_khr_fp64" in rounding
    assert "cl_khr_fp64" not in plain


def test_equal_modules_give_equal_texts() -> None:
    assert generated(saxpy()) == generated(saxpy())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("int", "int_"),
        ("kernel", "kernel_"),
        ("__global", "v__global"),
        ("restrict", "restrict_"),
        ("max", "max_"),
        ("float4", "float4_"),
        ("get_global_id", "get_global_id_"),
        ("qn_helper", "qn_helper_"),
        ("č", "u10D"),
        ("a·b", "auB7b"),
        ("1st", "v1st"),
        ("plain", "plain"),
        ("M", "M"),
        ("M_PI", "M_PI_"),
    ],
)
def test_names_that_clash_are_changed_and_the_text_is_ascii(name: str, expected: str) -> None:
    body = (Assign(name=name, value=load("x", f32)), store("x", Local(name=name, type=f32)))
    made = text(module(body, arrays={"x": f32}, variables={name: f32}))
    assert f"float {expected} = x[" in made
    assert made.isascii()


def test_names_that_become_one_are_told_apart() -> None:
    names = ["č", "u10D", "int", "int_"]
    body = tuple(Assign(name=name, value=load("x", f32)) for name in names)
    made = text(module(body, arrays={"x": f32}, variables=dict.fromkeys(names, f32)))
    assert re.findall(r"float (\w+) = ", made) == ["u10D", "u10D_2", "int_", "int__2"]


def test_lines_lead_back_to_the_users() -> None:
    i = Local(name="i", type=i64)
    first, second = Location("user.py", 3, 4), Location("user.py", 4, 4)
    body = (
        Assign(name="i", value=I, loc=first),
        Store(place=place("y", f32, i), value=load("x", f32, i), loc=second),
    )
    made = generated(module(body, arrays={"x": f32, "y": f32}, variables={"i": i64}))
    numbers = {line.strip().split(" ")[0]: number for number, line in enumerate(made.text.splitlines(), 1)}
    assert made.location(numbers["long"]) == first
    assert made.location(numbers["y[i]"]) == second
    assert made.location(1) is None
    assert made.location(10_000) is None
    assert len(made.lines) == len(made.text.splitlines())


def test_debug_adds_line_directives() -> None:
    where = Location('čes"ty.py', 3, 4)
    body = (Store(place=place("y", f32), value=const(1.0, f32), loc=where),)
    made = generated(module(body, arrays={"y": f32}, options=KernelOptions(debug=True)))
    assert '#line 3 "?esty.py"' in made.text
    assert len(made.lines) == len(made.text.splitlines())
    assert "#line" not in text(saxpy())


def test_a_local_is_declared_where_it_is_first_assigned() -> None:
    t = Local(name="t", type=f32)
    inside = (Assign(name="t", value=load("x", f32)), store("x", t))
    condition = Compare(op=CompareOp.LT, left=I, right=const(5))
    made = text(module((If(condition=condition, then=inside),), arrays={"x": f32}, variables={"t": f32}))
    assert "        float t = x[" in made


def test_a_local_that_outlives_the_nest_of_its_assignment_is_declared_at_the_top() -> None:
    t = Local(name="t", type=f32)
    condition = Compare(op=CompareOp.LT, left=I, right=const(5))
    body = (
        If(
            condition=condition,
            then=(Assign(name="t", value=const(1.0, f32)),),
            otherwise=(Assign(name="t", value=const(2.0, f32)),),
        ),
        store("x", t),
    )
    made = text(module(body, arrays={"x": f32}, variables={"t": f32}))
    assert "\n    float t;\n" in made


def test_a_local_carried_from_trip_to_trip_is_declared_outside_its_loop() -> None:
    t = Local(name="t", type=i64)
    body = (
        Loop(
            body=(
                If(condition=Compare(op=CompareOp.GT, left=t, right=const(5)), then=(Break(),)),
                Assign(name="t", value=binary(BinaryOp.ADD, t, const(1))),
            )
        ),
    )
    made = text(module(body, variables={"t": i64}))
    assert "\n    long t;\n    while (!(t > 5L)) {\n" in made


def test_range_loops_count_in_their_variable() -> None:
    k = Local(name="k", type=i64)
    loop = For(
        variable="k",
        start=const(0),
        stop=Param(name="n", type=i64),
        step=const(1),
        body=(Store(place=place("y", i64, k), value=k),),
    )
    down = attrs.evolve(loop, start=const(9), stop=const(-1), step=const(-2))
    made = text(module((loop, down), arrays={"y": i64}, scalars={"n": i64}, variables={"k": i64}))
    assert "for (long k = 0L; k < n; k++) {" in made
    assert "for (long k = 9L; k > -1L; k -= 2) {" in made


def test_functions_stand_before_their_callers_once_for_each_use() -> None:
    def function(name: str, *body: Stmt) -> Function:
        return Function(name=name, params=(), results=(), locals=(), body=(*body, Return()))

    def call(name: str) -> Call:
        return Call(results=(), function=name, arguments=())

    functions = (function("first", call("second")), function("second", call("third")), function("third"))
    made = text(module((call("third"), call("first"), call("second")), functions=functions))
    assert re.findall(r"^static void (\w+)\(void\)", made, re.MULTILINE) == ["third", "second", "first"]


def test_a_dialect_can_replace_a_helper() -> None:
    own = attrs.evolve(
        OPENCL_C, helpers={"floordiv_i32": "{function} int {name}(int a, int b) {{ return mine(a, b); }}"}
    )
    made = module((store("x", binary(BinaryOp.FLOORDIV, X, X)),), arrays={"x": i32})
    slots = argument_slots(made, extents=(0,))
    assert "static int qn_floordiv_i32(int a, int b) { return mine(a, b); }" in generate(made, own, slots).text


def test_fast_math_takes_the_approximate_functions_but_never_for_f64() -> None:
    root = Math(function=MathFunction.SQRT, operands=(F,), type=f32)
    double = Math(function=MathFunction.SQRT, operands=(load("d", f64),), type=f64)
    body = (store("f", root), store("d", double))
    made = text(module(body, arrays={"f": f32, "d": f64}, options=KernelOptions(fast_math=True)))
    assert "native_sqrt(f[0L])" in made
    assert "= sqrt(d[" in made


def test_bools_are_bytes_in_memory() -> None:
    made = text(
        module(
            (store("y", Cast(operand=load("b", bool_), type=u32)),),
            arrays={"b": bool_, "y": u32},
        )
    )
    assert "__global const uchar *b" in made
    assert "(uint)(b[(long)get_global_id(0) + start0] != 0)" in made


QUAD = VectorType(f32, 4)


def of_body(struct: StructType) -> str:
    """The text of a kernel that moves a field of each element, and the whole element, through an array of its own."""
    body = (
        Alloc(name="own", space=Space.PRIVATE, element=struct, shape=(2,)),
        store("own", load("x", struct), const(0), kind=RootKind.PRIVATE),
        store("x", load("own", QUAD, const(0), kind=RootKind.PRIVATE, view=("at",)), view=("at",)),
    )
    return text(module(body, arrays={"x": struct}))


def test_a_vector_in_a_struct_is_read_by_components_where_the_struct_is_aligned_to_them() -> None:
    made = of_body(StructType("body", (StructField("at", QUAD, 0), StructField("mass", f32, 16)), 20, 4))
    assert "bytes" not in made
    assert "float4 *" not in made
    assert "*(__global const float *)(p + 0 + 12)" in made
    assert "uchar own[40] __attribute__((aligned(4)));" in made


def test_a_vector_in_a_struct_is_read_at_once_where_the_struct_is_aligned_to_it() -> None:
    made = of_body(StructType("body", (StructField("at", QUAD, 0), StructField("mass", f32, 16)), 32, 16))
    assert "*(__global const float4 *)(p + 0)" in made
    assert "uchar own[64] __attribute__((aligned(16)));" in made


def test_fields_of_a_packed_struct_are_read_byte_by_byte() -> None:
    made = of_body(StructType("body", (StructField("tag", i8, 0), StructField("at", QUAD, 1)), 17, 1))
    assert "qn_load_4_bytes_param" in made
    assert "aligned(" not in made


def test_two_structs_never_share_a_function_whatever_they_are_called() -> None:
    inner = StructType("body", (StructField("mass", f64, 0),), 8, 8)
    other = StructType("body_aligned_to_4", (StructField("tag", i32, 0),), 4, 4)
    outer = StructType("pair", (StructField("one", other, 0), StructField("two", inner, 4)), 12, 4)
    made = text(module((store("x", load("x", outer, const(1))),), arrays={"x": outer}))
    heads = re.findall(r"^static (\w+) (qn_load_body\w*)\(", made, re.MULTILINE)
    assert sorted(c_type for c_type, _ in heads) == ["body", "body_aligned_to_4"]
    assert len({name for _, name in heads}) == 2
    for field, name in ("one", "body_aligned_to_4"), ("two", "body"):
        (called,) = re.findall(rf"qn_value\.{field} = (\w+)\(p \+ ", made)
        assert (name, called) in heads


def owned(body: tuple[Stmt, ...], **variables: DType) -> list[str]:
    """The lines of the kernel in which a value becomes the thread's own."""
    made = module(body, arrays={"x": f32, "y": f32}, scalars={"a": f32, "n": i64}, variables=dict(variables))
    slots = tuple(slot for slot in argument_slots(made, extents=range(1)) if slot.kind.value != "stride")
    dialect = attrs.evolve(OPENCL_C, own="own({0})")
    text = generate(made, dialect, slots, pointers=Pointers.ADDRESS, contiguous=True).text
    return [line.strip() for line in text.splitlines() if "own(" in line]


A = Param(name="a", type=f32)
IS_LARGE = Compare(op=CompareOp.LT, left=A, right=load("x", f32, I))


def test_one_of_two_values_that_are_alike_in_all_threads_becomes_the_threads_own() -> None:
    v = Local(name="v", type=f32)
    then, otherwise = (Assign(name="v", value=binary(op, A, A)) for op in (BinaryOp.ADD, BinaryOp.MUL))
    assert owned((If(condition=IS_LARGE, then=(then,), otherwise=(otherwise,)), store("y", v)), v=f32) == [
        "v = own(a * a);"
    ]
    assert owned((If(condition=IS_LARGE, then=(then,)), store("y", v)), v=f32) == ["v = own(a + a);"]
    nested = If(condition=IS_LARGE, then=(then,), otherwise=(If(condition=IS_LARGE, then=(otherwise,)),))
    assert owned((nested, store("y", v)), v=f32) == ["v = own(a * a);"]


def test_what_stays_on_one_way_need_not_become_the_threads_own() -> None:
    v, t = Local(name="v", type=f32), Local(name="t", type=f32)
    kept = Assign(name="t", value=binary(BinaryOp.ADD, A, A))
    then, otherwise = (kept, Assign(name="v", value=t)), (Assign(name="v", value=A),)
    assert owned((If(condition=IS_LARGE, then=then, otherwise=otherwise), store("y", v)), v=f32, t=f32) == [
        "v = own(a);"
    ]
    both = (If(condition=IS_LARGE, then=then, otherwise=otherwise), store("y", v), store("x", t))
    assert owned((Assign(name="t", value=A), *both), v=f32, t=f32) == ["t = own(a + a);", "v = own(a);"]


@pytest.mark.parametrize("step", [const(1), Param(name="n", type=i64)])
def test_a_loops_variable_that_is_read_behind_a_branch_becomes_the_threads_own(step: Expr) -> None:
    m = Local(name="m", type=i64)
    then, otherwise = (
        For(variable="m", start=const(0), stop=const(stop), step=step, body=(store("x", A, m),)) for stop in (3, 5)
    )
    branch = If(condition=IS_LARGE, then=(then,), otherwise=(otherwise,))
    assert owned((If(condition=IS_LARGE, then=(then,)),), m=i64) == []
    (line,) = owned((Assign(name="m", value=const(0)), branch, store("y", A, m)), m=i64)
    assert line.startswith("m = own(")


def test_what_varies_by_itself_or_under_no_branch_needs_not_become_the_threads_own() -> None:
    v, i = Local(name="v", type=f32), Local(name="i", type=i64)
    of_thread = Assign(name="v", value=load("x", f32, i))
    uniform = Compare(op=CompareOp.LT, left=Param(name="n", type=i64), right=const(3))
    plain = Assign(name="v", value=A)
    start = Assign(name="i", value=I)
    assert owned((start, plain, If(condition=IS_LARGE, then=(of_thread,)), store("y", v)), v=f32, i=i64) == []
    assert (
        owned((plain, If(condition=uniform, then=(Assign(name="v", value=binary(BinaryOp.ADD, A, A)),))), v=f32) == []
    )


def test_a_choice_between_values_that_are_alike_makes_one_of_them_the_threads_own() -> None:
    chosen = Select(condition=IS_LARGE, then=A, otherwise=binary(BinaryOp.ADD, A, A))
    (line,) = owned((store("y", chosen),))
    assert line.endswith("? a : own(a + a);")
    constants = Select(condition=IS_LARGE, then=const(1.0, f32), otherwise=const(2.0, f32))
    assert owned((store("y", constants),)) == []
