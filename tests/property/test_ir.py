"""Laws of the IR: its text form, its walks, and that passes keep the meaning."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.property.ir_evaluator import Memory, OutOfFuelError, run
from tests.property.ir_strategies import modules

from quernel.dtypes import DType
from quernel.geometry import LaunchForm
from quernel.ir.analysis import parameter_uses
from quernel.ir.digest import ir_digest
from quernel.ir.nodes import Module, Store, StructMake, VecMake
from quernel.ir.parser import IRSyntaxError, parse_module
from quernel.ir.passes import contract, fold, guard_edge, optimize, remove_dead_code, split_composites
from quernel.ir.printer import print_module
from quernel.ir.semantics import same_value
from quernel.ir.verifier import verify
from quernel.ir.walk import fold_expression, map_expressions, walk_expressions, walk_statements, with_children
from quernel.locations import Location

MODERATE = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


@MODERATE
@given(modules())
def test_printed_module_parses_back_to_itself(module: Module) -> None:
    text = print_module(verify(module))
    parsed = parse_module(text)
    assert print_module(parsed) == text
    # The representation tells -0.0 from 0.0 and finds a NaN like itself, which equality of nodes does not.
    assert repr(parsed) == repr(module)


@MODERATE
@given(modules(), st.data())
def test_damaged_text_is_refused_with_its_place(module: Module, data: st.DataObject) -> None:
    text = print_module(module)
    position = data.draw(st.integers(0, len(text) - 1))
    damaged = text[:position] + data.draw(st.sampled_from(["", "§", "(", "]", " ", "= ", "\n"])) + text[position + 1 :]
    where = _place_of_fault(damaged)
    assert where is None or 1 <= where.line <= damaged.count("\n") + 1


def _place_of_fault(text: str) -> Location | None:
    try:
        parse_module(text)
    except IRSyntaxError as error:
        return error.where
    return None


@MODERATE
@given(modules())
def test_digest_ignores_the_kernels_name_and_nothing_else_of_the_text(module: Module) -> None:
    renamed = attrs.evolve(module, kernel=attrs.evolve(module.kernel, name="another"))
    assert ir_digest(renamed) == ir_digest(module)
    longer = attrs.evolve(module.kernel, block=tuple(size + 1 for size in module.kernel.block))
    assert ir_digest(attrs.evolve(module, kernel=longer)) != ir_digest(module)


@MODERATE
@given(modules())
def test_rewriting_nothing_gives_the_same_object(module: Module) -> None:
    assert map_expressions(module, lambda expr: expr) is module


@MODERATE
@given(modules())
def test_walk_and_fold_meet_the_same_expressions(module: Module) -> None:
    for expr in module.kernel.body and walk_expressions(module.kernel):
        assert fold_expression(expr, lambda node, counts: 1 + sum(counts)) == sum(1 for _ in walk_expressions(expr))
        assert fold_expression(expr, with_children) is expr


@MODERATE
@given(modules(), st.sampled_from([fold, remove_dead_code, contract, guard_edge, optimize, split_composites]))
def test_passes_give_valid_modules(module: Module, transform: object) -> None:
    assert callable(transform)
    verify(transform(module))


@MODERATE
@given(modules(), st.sampled_from([fold, remove_dead_code, contract, optimize, split_composites]))
def test_passes_change_nothing_more_the_second_time(module: Module, transform: object) -> None:
    assert callable(transform)
    once = transform(module)
    assert print_module(transform(once)) == print_module(once)


@MODERATE
@given(modules())
def test_what_is_left_of_composites_is_what_is_stored_whole(module: Module) -> None:
    split = split_composites(module)
    owners = (split.kernel, *split.functions)
    made = {
        id(expr)
        for owner in owners
        for stmt in walk_statements(owner.body)
        if isinstance(stmt, Store)
        for expr in walk_expressions(stmt.value)
        if isinstance(expr, VecMake | StructMake)
    }
    for owner in owners:
        assert all(isinstance(local.type, DType) for local in owner.locals)
        assert all(isinstance(expr.type, DType) or id(expr) in made for expr in walk_expressions(owner.body))


def _same(left: Memory, right: Memory) -> bool:
    return left.keys() == right.keys() and all(same_value(value, right[where]) for where, value in left.items())


@settings(MODERATE, max_examples=300)
@given(modules(plain=True), st.sampled_from([fold, remove_dead_code, optimize]))
def test_passes_keep_what_a_kernel_writes(module: Module, transform: object) -> None:
    assert callable(transform)
    options = attrs.evolve(module.kernel.options, contract=False, checked=False)
    module = attrs.evolve(module, kernel=attrs.evolve(module.kernel, options=options))
    try:
        expected = run(module, fuel=2000)
    except OutOfFuelError:
        assume(False)
    assert _same(run(transform(module), fuel=4000), expected)


@MODERATE
@given(modules(plain=True))
def test_only_arrays_said_to_be_written_are_written(module: Module) -> None:
    uses = parameter_uses(module)
    try:
        written = run(module, fuel=2000)
    except OutOfFuelError:
        assume(False)
    assert {name for name, _ in written} <= set(uses.written)


@pytest.mark.parametrize("form", LaunchForm)
def test_guard_is_for_launches_over_an_extent(form: LaunchForm) -> None:
    text = f"kernel k(x: array<f32, 1>) {form.value} (4):\n    x[global_id(0)] = 1.0f32\n"
    assert (guard_edge(parse_module(text)) == parse_module(text)) == (form is LaunchForm.GRID)
