"""What counts of the values that a kernel captures."""

from __future__ import annotations

import enum
import math
import os
import types

import numpy as np
import pytest
from tests.unit.identity.captured import Parent, captured, differing, module_of, module_with

from quernel.identity import capture


class Mode(enum.Enum):
    FAST = 1
    SLOW = 2


class Level(enum.IntEnum):
    LOW = 1


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1, 2),
        (1, 1.0),
        (1, True),
        (0.0, -0.0),
        (1, None),
        ("a", "b"),
        ((1, 2), (1, 3)),
        (np.float32(1), np.float64(1)),
        (np.float32(1), np.float32(2)),
        (Mode.FAST, Mode.SLOW),
        (Level.LOW, 1),
        (math.sin, math.cos),
        (int, float),
        (math, os),
        ([1], (1,)),
    ],
)
def test_capture_counts_a_global(left: object, right: object) -> None:
    source = "def k(x):\n    x[0] = VALUE\n"
    assert differing(captured(source, VALUE=left), captured(source, VALUE=right)) == {"constants"}


@pytest.mark.parametrize(("left", "right"), [([1], [2]), ({"a": 1}, {"b": 2}), (np.zeros(3), np.ones(4))])
def test_capture_takes_mutable_data_as_opaque_and_never_refuses(left: object, right: object) -> None:
    source = "def k(x):\n    x[0] = VALUE[0]\n"
    assert captured(source, VALUE=left).digest == captured(source, VALUE=right).digest


def test_capture_never_refuses_an_object_that_raises() -> None:
    class Hostile:
        def __getattr__(self, name: str) -> object:
            raise RuntimeError(name)

        def __eq__(self, other: object) -> bool:
            raise RuntimeError

        def __hash__(self) -> int:
            raise RuntimeError

    found = captured("def k(x):\n    x[0] = VALUE + OTHER[0]\n", VALUE=Hostile(), OTHER=(Hostile(),))
    assert found.is_current()


def test_capture_tells_a_global_from_a_builtin_of_the_same_value() -> None:
    source = "def k(x):\n    x[0] = len(x)\n"
    assert differing(captured(source), captured(source, len=len)) == {"constants"}


def test_capture_counts_a_missing_name() -> None:
    source = "def k(x):\n    x[0] = VALUE\n"
    assert captured(source).digest != captured(source, VALUE=None).digest


CLOSURE = """
def make(n):
    def k(x):
        x[0] = n
    return k
k = make({})
"""


def test_capture_counts_a_closure_cell() -> None:
    assert differing(captured(CLOSURE.format(1)), captured(CLOSURE.format("1.0"))) == {"constants"}


def test_capture_tells_a_cell_from_a_global() -> None:
    as_global = "n = 1\ndef k(x):\n    x[0] = n\n"
    assert differing(captured(as_global), captured(CLOSURE.format(1))) == {"code", "constants"}


def test_capture_counts_an_empty_cell() -> None:
    source = "def make():\n    def k(x):\n        x[0] = n\n    n = 1\n    {}\n    return k\nk = make()\n"
    empty, filled = captured(source.format("del n")), captured(source.format("pass"))
    assert empty.digest != filled.digest


def test_capture_counts_names_of_nested_code() -> None:
    source = "def k(x):\n    x[0] = (lambda: (lambda: VALUE))()()\n"
    assert captured(source, VALUE=1).digest != captured(source, VALUE=2).digest


def test_capture_counts_an_attribute_of_a_module() -> None:
    source = "def k(x):\n    x[0] = mod.CONST\n"
    one, two = (captured(source, mod=module_with(CONST=value, other=value)) for value in (1, 2))
    assert differing(one, two) == {"constants"}


def test_capture_ignores_another_attribute_of_a_module() -> None:
    source = "def k(x):\n    x[0] = mod.CONST\n"
    one, two = (captured(source, mod=module_with(CONST=1, other=value)) for value in (1, 2))
    assert one.digest == two.digest


def test_capture_counts_an_attribute_of_a_module_in_a_module() -> None:
    source = "def k(x):\n    x[0] = outer.inner.CONST\n"
    one, two = (captured(source, outer=module_with(inner=module_with(CONST=value))) for value in (1, 2))
    assert differing(one, two) == {"constants"}


def test_capture_counts_an_attribute_of_a_module_in_a_module_of_the_same_name() -> None:
    source = "def k(x):\n    x[0] = mod.mod.mod.CONST\n"
    one, two = (captured(source, mod=module_with(mod=module_with(mod=module_with(CONST=value)))) for value in (1, 2))
    assert differing(one, two) == {"constants"}


def test_capture_counts_an_attribute_of_a_module_in_a_cell() -> None:
    source = "def make(mod):\n    def k(x):\n        x[0] = mod.CONST\n    return k\n"
    one, two = (capture(module_of(source).make(module_with(CONST=value))) for value in (1, 2))
    assert differing(one, two) == {"constants"}


def test_capture_ends_on_modules_that_hold_each_other() -> None:
    left, right = module_with(), module_with(CONST=1)
    left.right, right.left = right, left
    source = "def k(x):\n    x[0] = left.right.left.right.CONST\n"
    before = captured(source, left=left)
    right.CONST = 2
    assert captured(source, left=left).digest != before.digest


def lazy_module(value: object, keep: bool) -> types.ModuleType:
    module = types.ModuleType("lazy")

    def make(name: str) -> object:
        if name != "CONST":
            raise AttributeError(name)
        if keep:
            module.CONST = value
        return value

    module.__getattr__ = make  # type: ignore[method-assign]
    return module


@pytest.mark.parametrize("keep", [True, False])
def test_capture_counts_an_attribute_that_a_module_makes(keep: bool) -> None:
    source = "def k(x):\n    x[0] = mod.CONST + mod.CONST.real\n"
    one, two = (captured(source, mod=lazy_module(value, keep)) for value in (1, 2))
    assert one.digest != two.digest
    assert one.is_current()


class Child(Parent):
    HIDDEN = 2


def test_capture_counts_an_attribute_of_a_class() -> None:
    source = "def k(x):\n    x[0] = C.CONST\n"
    one, two = (captured(source, C=type("C", (), {"CONST": value})) for value in (1, 2))
    assert differing(one, two) == {"constants"}


def test_capture_counts_an_inherited_attribute(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "def k(x):\n    x[0] = C.INHERITED + C.HIDDEN\n"
    before = captured(source, C=Child)
    monkeypatch.setattr(Parent, "HIDDEN", 5)
    assert captured(source, C=Child).digest == before.digest
    monkeypatch.setattr(Parent, "INHERITED", 5)
    assert captured(source, C=Child).digest != before.digest


def enum_of(**members: object) -> type[enum.Enum]:
    return enum.Enum("Colour", members)  # type: ignore[return-value]


def test_capture_counts_an_enum_member() -> None:
    source = "def k(x):\n    x[0] = Colour.RED\n"
    one, two, other = (
        captured(source, Colour=enum_of(RED=red, GREEN=green)) for red, green in [(1, 2), (3, 2), (1, 4)]
    )
    assert differing(one, two) == {"constants"}
    assert one.digest == other.digest


def test_capture_counts_an_enum_member_that_hides_a_property() -> None:
    class Mixin:
        @property
        def RED(self) -> int:
            return 0

    source = "def k(x):\n    x[0] = Colour.RED.value\n"
    one, two = (captured(source, Colour=enum.Enum("Colour", {"RED": value}, type=Mixin)) for value in (1, 2))
    assert differing(one, two) == {"constants"}


def test_capture_counts_what_a_metaclass_makes() -> None:
    class Meta(type):
        value = 1

        @property
        def CONST(cls) -> int:
            return Meta.value

    source = "def k(x):\n    x[0] = C.CONST\n"
    made = Meta("C", (), {})
    before = captured(source, C=made)
    Meta.value = 2
    assert not before.is_current()
    assert captured(source, C=made).digest != before.digest


def test_capture_counts_what_a_descriptor_computes() -> None:
    class Computed:
        value = 1

        def __get__(self, instance: object, owner: type) -> int:
            return self.value

    source = "def k(x):\n    x[0] = C.CONST\n"
    made = type("C", (), {"CONST": Computed()})
    before = captured(source, C=made)
    Computed.value = 2
    assert not before.is_current()
    assert captured(source, C=made).digest != before.digest
