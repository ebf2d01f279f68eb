from __future__ import annotations

import math
import re

import attrs
import pytest
from tests.unit.ir.everything import EVERYTHING

from quernel.dtypes import ArrayType, DType, ScalarType, bf16, bool_, f16, f32, f64, i32, i64, u8
from quernel.geometry import LaunchForm
from quernel.ir.digest import ir_digest
from quernel.ir.nodes import (
    Assign,
    Binary,
    BinaryOp,
    Const,
    Expr,
    Kernel,
    Local,
    LocalVariable,
    Module,
    Parameter,
    Select,
    Unary,
    UnaryOp,
)
from quernel.ir.parser import IRSyntaxError, parse_module
from quernel.ir.printer import print_module
from quernel.locations import Location


def test_text_form_shows_every_construct() -> None:
    module = parse_module(EVERYTHING)
    assert print_module(module) == EVERYTHING
    assert module.kernel.params[2] == Parameter(name="n", type=ScalarType(i64, weak=True), bounds=(-8, 8))
    assert module.functions[0].params[0].type == ArrayType(f32, 2)


def _with(value: object, type_: DType) -> Module:
    body = (Assign(name="r", value=Const(value=value, type=type_)),)  # type: ignore[arg-type]
    variables = (LocalVariable(name="r", type=type_),)
    return Module(kernel=Kernel(name="k", form=LaunchForm.OVER, block=(1,), params=(), locals=variables, body=body))


@pytest.mark.parametrize(
    ("value", "type_", "text"),
    [
        (7, i64, "7"),
        (-7, i32, "-7i32"),
        (200, u8, "200u8"),
        (1.0, f64, "1.0"),
        (1e300, f64, "1e+300"),
        (0.10000000149011612, f32, "0.1f32"),
        (0.1, f64, "0.1"),
        (16777216.0, f32, "16777216.0f32"),
        (1.0, bf16, "1.0bf16"),
        (65504.0, f16, "6.55e+04f16"),
        (-0.0, f32, "-0.0f32"),
        (math.inf, f16, "inff16"),
        (-math.inf, f64, "-inf"),
        (math.nan, f32, "nanf32"),
        (-math.nan, f64, "nan"),
        (2.0**-149, f32, "1e-45f32"),
        (5e-324, f64, "5e-324"),
    ],
)
def test_literal_keeps_every_bit(value: float, type_: DType, text: str) -> None:
    module = _with(value, type_)
    printed = print_module(module)
    found = printed.splitlines()[-1].removeprefix("    r = ")
    assert repr(parse_module(printed)) == repr(module) or math.isnan(value)
    assert found == text


def test_literal_and_negation_of_a_literal_differ() -> None:
    module = _with(1.0, f64)
    negated = Assign(name="r", value=Unary(op=UnaryOp.NEG, operand=Const(value=1.0, type=f64)))
    other = attrs.evolve(module, kernel=attrs.evolve(module.kernel, body=(negated,)))
    assert print_module(other) != print_module(_with(-1.0, f64))
    assert parse_module(print_module(other)) == other


@pytest.mark.parametrize("op", [BinaryOp.SUB, BinaryOp.SHL, BinaryOp.MOD])
def test_brackets_stand_where_order_matters(op: BinaryOp) -> None:
    one = Const(value=1, type=i64)
    inner = Binary(op=op, left=one, right=one)
    symbol = {"sub": "-", "shl": "<<", "mod": "%"}[op.value]
    for tree, text in [
        (Binary(op=op, left=inner, right=one), f"1 {symbol} 1 {symbol} 1"),
        (Binary(op=op, left=one, right=inner), f"1 {symbol} (1 {symbol} 1)"),
    ]:
        module = _with(1, i64)
        module = attrs.evolve(module, kernel=attrs.evolve(module.kernel, body=(Assign(name="r", value=tree),)))
        assert print_module(module).endswith(f"r = {text}\n")
        assert parse_module(print_module(module)) == module


@pytest.mark.parametrize("shape", ["left", "right", "select", "negation"])
def test_deep_expressions_are_printed_and_read(shape: str) -> None:
    one = Const(value=1, type=i64)
    deep: Expr = Local(name="r", type=i64)
    for _ in range(5000):
        match shape:
            case "left":
                deep = Binary(op=BinaryOp.ADD, left=deep, right=one)
            case "right":
                deep = Binary(op=BinaryOp.SUB, left=one, right=deep)
            case "select":
                deep = Select(condition=Const(value=True, type=bool_), then=deep, otherwise=one)
            case _:
                deep = Unary(op=UnaryOp.NEG, operand=deep)
    module = _with(1, i64)
    module = attrs.evolve(module, kernel=attrs.evolve(module.kernel, body=(Assign(name="r", value=deep),)))
    text = print_module(module)
    assert print_module(parse_module(text)) == text


def test_text_has_no_locations() -> None:
    module = _with(1, i64)
    moved = attrs.evolve(module.kernel.body[0], loc=Location("somewhere.py", 7))
    other = attrs.evolve(module, kernel=attrs.evolve(module.kernel, body=(moved,)))
    assert print_module(other) == print_module(module)


def test_digest_is_stable() -> None:
    assert ir_digest(parse_module(EVERYTHING)) == ir_digest(parse_module(EVERYTHING.replace("kernel k(", "kernel q(")))
    assert re.fullmatch(r"[0-9a-f]{64}", ir_digest(parse_module(EVERYTHING)))
    assert ir_digest(parse_module(EVERYTHING)) != ir_digest(parse_module(EVERYTHING.replace("1.0f32", "2.0f32")))


HEAD = "kernel k(x: array<f32, 1>, n: i64) over (4):\n    local i: i64\n"


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("", 1, 0, "the text is empty"),
        ("kernel k() over (4):\n", 1, 20, "something is missing behind this line"),
        ("kernel k() under (4):\n    pass\n", 1, 11, "expected 'over' or 'grid', found 'under'"),
        ("kernel k() over (4) with speed:\n    pass\n", 1, 25, "expected one of checked, fast_math"),
        ("kernel k(x: f33) over (4):\n    pass\n", 1, 12, "expected a type, found 'f33'"),
        (HEAD + "    i = j\n", 3, 8, "'j' is no local and no scalar parameter"),
        (HEAD + "    i = 1 +\n", 3, 11, "expected a name, found the end of the line"),
        (HEAD + "    i = (1\n", 3, 10, r"expected '\)', found the end of the line"),
        (HEAD + "    i = 1 < 2 < 3\n", 3, 14, "expected the end of the line, found '<'"),
        (HEAD + "    i = foo(1)\n", 3, 8, "'foo' is no operation"),
        (HEAD + "    i = select(1)\n", 3, 8, "select takes 3 operands, 1 are given"),
        (HEAD + "    i = 300u8\n", 3, 8, "300 does not fit u8"),
        (HEAD + "    i = 1.5i32\n", 3, 8, "1.5i32 is no integer"),
        (HEAD + "    i = 1i7\n", 3, 8, "i7 is no type"),
        (HEAD + "    y[0] = 1.0f32\n", 3, 4, "'y' is no array parameter"),
        (HEAD + "    i = x\n", 3, 9, "expected '.', found the end of the line"),
        (HEAD + "    i = n.a\n", 3, 10, "i64 has no part 'a'"),
        (HEAD + "      i = n\n", 3, 6, "the line is indented by 6 spaces, not 4"),
        (HEAD + "    i = n\n    else:\n        pass\n", 4, 4, "this belongs to no if"),
        (HEAD + "    i = n $ 2\n", 3, 10, r"'\$' begins nothing"),
        (HEAD + "    loop = n\n", 3, 9, "expected ':', found '='"),
        (HEAD + "    i, i = n\n", 3, 4, "only a call gives several values"),
        (HEAD + "    for i in range(0, n):\n        pass\n", 3, 24, "a range has a start, a stop and a step"),
        (HEAD + "    i = atomic.jump(x[0], 1.0f32)\n", 3, 15, "expected one of add, sub"),
    ],
)
def test_wrong_text_is_refused_at_its_place(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(IRSyntaxError, match=message) as caught:
        parse_module(text)
    assert caught.value.where is not None
    assert (caught.value.where.line, caught.value.where.column) == (line, column)
