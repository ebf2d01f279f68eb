"""Guards, by which a launch notices that what a kernel captured has changed."""

from __future__ import annotations

import builtins
import types
from collections.abc import Callable, Iterator

import pytest
from tests.unit.identity.captured import Parent, captured, module_of, module_with

from quernel.identity import capture
from quernel.identity.bytecode import lookups


@pytest.fixture
def extra_builtins() -> Iterator[Callable[[str, object], None]]:
    added: list[str] = []

    def add(name: str, value: object) -> None:
        setattr(builtins, name, value)
        added.append(name)

    yield add
    for name in added:
        delattr(builtins, name)


GUARDED = """
@func
def helper(x):
    return x + INNER

def k(x):
    for i in range(len(x)):
        x[i] = mod.CONST + VALUE + helper(x[i]) + mod.missing + nowhere + C.ATTRIBUTE + x.shape
"""


@pytest.fixture
def guarded() -> types.ModuleType:
    made = type("C", (Parent,), {"ATTRIBUTE": 1})
    return module_of(GUARDED, mod=module_with(CONST=1), VALUE=1, INNER=1, C=made)


def test_guards_are_current_right_after_the_capture(guarded: types.ModuleType) -> None:
    assert capture(guarded.k).is_current()


def set_in(path: str, name: str) -> Callable[[types.ModuleType], None]:
    def change(module: types.ModuleType) -> None:
        setattr(getattr(module, path) if path else module, name, 12345)

    return change


def delete_from(path: str, name: str) -> Callable[[types.ModuleType], None]:
    def change(module: types.ModuleType) -> None:
        delattr(getattr(module, path) if path else module, name)

    return change


@pytest.mark.parametrize(
    "change",
    [
        set_in("", "VALUE"),
        set_in("", "INNER"),
        set_in("", "helper"),
        set_in("", "mod"),
        set_in("", "len"),
        set_in("", "range"),
        set_in("", "nowhere"),
        set_in("mod", "CONST"),
        set_in("mod", "missing"),
        set_in("C", "ATTRIBUTE"),
        delete_from("", "VALUE"),
        delete_from("mod", "CONST"),
        delete_from("C", "ATTRIBUTE"),
    ],
)
def test_guards_notice(guarded: types.ModuleType, change: Callable[[types.ModuleType], None]) -> None:
    before = capture(guarded.k)
    change(guarded)
    assert not before.is_current()
    after = capture(guarded.k)
    assert after.is_current()
    assert after.digest != before.digest


def test_guards_ignore_what_the_kernel_does_not_name(guarded: types.ModuleType) -> None:
    before = capture(guarded.k)
    guarded.unrelated = 1
    guarded.mod.unrelated = 1
    assert before.is_current()


def test_guards_notice_a_new_builtin(guarded: types.ModuleType, extra_builtins: Callable[[str, object], None]) -> None:
    before = capture(guarded.k)
    extra_builtins("nowhere", 1)
    assert not before.is_current()


def test_guards_notice_an_attribute_that_hides_an_inherited_one() -> None:
    made = type("C", (Parent,), {})
    before = captured("def k(x):\n    x[0] = C.INHERITED\n", C=made)
    made.INHERITED = 1  # type: ignore[attr-defined]
    assert not before.is_current()


def test_guards_notice_a_cell_that_changes() -> None:
    source = "def make():\n    n = 1\n    def k(x):\n        x[0] = n\n    def change(value):\n        nonlocal n\n"
    made = module_of(source + "        n = value\n    return k, change\n").make
    k, change = made()
    before = capture(k)
    assert before.is_current()
    change(2)
    assert not before.is_current()


@pytest.mark.parametrize("starts_empty", [True, False])
def test_guards_notice_a_cell_that_is_filled_or_emptied(starts_empty: bool) -> None:
    cell = types.CellType() if starts_empty else types.CellType(1)
    k = module_of("def make(n):\n    def k(x):\n        x[0] = n\n    return k\n").make(0)
    function = types.FunctionType(k.__code__, k.__globals__, "k", None, (cell,))
    before = capture(function)
    assert before.is_current()
    if starts_empty:
        cell.cell_contents = 1
    else:
        del cell.cell_contents
    assert not before.is_current()


def test_guards_compare_by_identity_and_an_equal_object_gives_the_same_digest(guarded: types.ModuleType) -> None:
    guarded.VALUE = 10**6
    before = capture(guarded.k)
    guarded.VALUE = int("1000000")
    assert not before.is_current()
    assert capture(guarded.k).digest == before.digest


def test_guards_of_a_name_read_twice_are_one() -> None:
    source = "@func\ndef f(x):\n    return x + N\ndef k(x):\n    x[0] = f(x[0]) + N\n"
    assert [name for _, name, _ in captured(source, N=1).guards.reads].count("N") == 1


def test_guards_of_absent_globals_leave_out_names_of_attributes() -> None:
    module = module_of("def k(x):\n    x[0] = x.shape + len(x) + mod.CONST\n", mod=module_with(CONST=1))
    absences = {id(mapping): names for mapping, names in capture(module.k).guards.absences}
    assert absences[id(vars(module))] == {"len"}
    assert absences[id(vars(module.mod))] == {"shape"}


def test_guards_of_an_immutable_class_are_its_name_alone() -> None:
    guards = captured("def k(x):\n    x[0] = int(x.real)\n").guards
    assert [name for _, name, _ in guards.reads] == ["int"]
    assert sum(len(names) for _, names in guards.absences) == 1


def test_lookups_tells_globals_from_attributes_on_this_python() -> None:
    code = module_of("def k(x):\n    a.b(c.d, e(), x.f.g, x.h(1))\n").k.__code__
    found = lookups(code)
    assert found.as_globals == {"a", "c", "e"}
    assert found.as_attributes == {"b", "d", "f", "g", "h"}


def test_lookups_errs_on_the_side_of_too_many() -> None:
    many = "".join([f"    x.a{n} + g{n}\n" for n in range(80)])
    found = lookups(module_of("def k(x):\n" + many).k.__code__)
    assert found.as_globals == found.as_attributes == set(found.names)
