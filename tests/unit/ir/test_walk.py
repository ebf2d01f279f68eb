from __future__ import annotations

from typing import get_args

import attrs
import pytest
from tests.unit.ir.everything import EVERYTHING

from quernel.dtypes import bool_, f64, i64
from quernel.ir import math_functions, semantics
from quernel.ir.math_functions import num_operands
from quernel.ir.nodes import Assign, Binary, BinaryOp, Break, Const, Expr, If, Local, Loop, MathFunction, Return, Stmt
from quernel.ir.parser import parse_module
from quernel.ir.walk import (
    bodies,
    children,
    expressions_of,
    fold_expression,
    map_expressions,
    map_statements,
    walk_expressions,
    walk_statements,
    with_bodies,
    with_children,
    with_expressions,
)

MODULE = parse_module(EVERYTHING)
ONE = Const(value=1, type=i64)


def _marked(expr: Expr) -> Expr:
    return Local(name="marked", type=expr.type)


def test_the_example_holds_every_node() -> None:
    bodies_ = (*MODULE.kernel.body, *(stmt for function in MODULE.functions for stmt in function.body))
    statements = {type(stmt) for stmt in walk_statements(bodies_)}
    assert statements == set(get_args(Stmt))
    assert {type(expr) for expr in walk_expressions(MODULE)} == set(get_args(Expr))


def test_children_are_every_expression_below_a_node() -> None:
    for expr in walk_expressions(MODULE):
        fields = attrs.asdict(expr, recurse=False)
        holders = [fields["place"].indices] if "place" in fields else fields.values()
        found = []
        for value in holders:
            found += [item for item in (value if isinstance(value, tuple) else (value,)) if isinstance(item, Expr)]
        assert [id(child) for child in children(expr)] == [id(child) for child in found]


def test_replaced_children_are_the_new_children() -> None:
    for expr in walk_expressions(MODULE):
        marked = tuple(_marked(child) for child in children(expr))
        replaced = with_children(expr, marked)
        assert type(replaced) is type(expr)
        assert children(replaced) == marked
        assert with_children(expr, children(expr)) is expr


def test_replaced_expressions_are_the_new_expressions_of_a_statement() -> None:
    for stmt in walk_statements(MODULE.kernel.body):
        marked = tuple(_marked(expr) for expr in expressions_of(stmt))
        assert expressions_of(with_expressions(stmt, marked)) == marked
        assert with_expressions(stmt, expressions_of(stmt)) is stmt
        empty = tuple(() for _ in bodies(stmt))
        assert bodies(with_bodies(stmt, empty)) == empty
        assert with_bodies(stmt, bodies(stmt)) is stmt


def test_walk_goes_in_source_order_and_outer_first() -> None:
    inner = If(condition=Const(value=True, type=bool_), then=(Break(),), otherwise=(Return(),))
    loop, last = Loop(body=(inner,)), Assign(name="r", value=ONE)
    assert list(walk_statements((loop, last))) == [loop, inner, Break(), Return(), last]
    tree = Binary(op=BinaryOp.ADD, left=Local(name="a", type=i64), right=ONE)
    assert list(walk_expressions(tree)) == [tree, tree.left, tree.right]


def test_map_statements_drops_and_multiplies() -> None:
    body = (Assign(name="a", value=ONE), Loop(body=(Break(), Assign(name="b", value=ONE))))
    doubled = map_statements(body, lambda stmt: () if isinstance(stmt, Break) else (stmt, stmt))
    assert [type(stmt) for stmt in doubled] == [Assign, Assign, Loop, Loop]
    assert bodies(doubled[2]) == ((body[1].body[1],) * 2,)  # type: ignore[union-attr]


def test_map_expressions_rewrites_inner_ones_first() -> None:
    def increased(expr: Expr) -> Expr:
        return Const(value=expr.value + 1, type=i64) if isinstance(expr, Const) and expr.type is i64 else expr

    mapped = map_expressions(MODULE, increased)
    before = [expr.value for expr in walk_expressions(MODULE) if isinstance(expr, Const) and expr.type is i64]
    after = [expr.value for expr in walk_expressions(mapped) if isinstance(expr, Const) and expr.type is i64]
    assert after == [value + 1 for value in before]
    assert len(before) > 5


@pytest.mark.parametrize("length", [20_000])
def test_chains_of_any_length_are_walked(length: int) -> None:
    expr: Expr = ONE
    chain: tuple[Stmt, ...] = ()
    for _ in range(length):
        expr = Binary(op=BinaryOp.ADD, left=expr, right=ONE)
        chain = (If(condition=Const(value=True, type=bool_), then=(Break(),), otherwise=chain),)
    assert fold_expression(expr, lambda node, below: 1 + sum(below)) == 2 * length + 1
    assert sum(1 for _ in walk_statements(chain)) == 2 * length
    replaced = map_statements(chain, lambda stmt: Return() if isinstance(stmt, Break) else stmt)
    assert sum(isinstance(stmt, Return) for stmt in walk_statements(replaced)) == length


def test_chains_with_statements_between_their_links_are_walked() -> None:
    """What the conditions of a chain need stands in front of each link."""
    between = Assign(name="n", value=ONE)
    chain: tuple[Stmt, ...] = ()
    for _ in range(3000):
        chain = (between, If(condition=Const(value=True, type=bool_), then=(Break(),), otherwise=chain))
    assert map_statements(chain, lambda stmt: stmt) is chain
    without = map_statements(chain, lambda stmt: () if isinstance(stmt, Assign) else stmt)
    assert [type(stmt) for stmt in walk_statements(without)] == [If, Break] * 3000
    doubled = map_statements(chain, lambda stmt: (between, stmt) if isinstance(stmt, If) else stmt)
    assert [type(stmt) for stmt in walk_statements(doubled)] == [Assign, Assign, If, Break] * 3000


def test_every_function_has_a_meaning() -> None:
    for function in MathFunction:
        is_integer = function in math_functions.INTEGER_FUNCTIONS
        operands = (3 if is_integer else 1.0,) * num_operands(function)
        result = semantics.math_function(function, operands, i64 if is_integer else f64)
        assert result == result
