from __future__ import annotations

import builtins
import enum
import importlib.util
import math
import os
import subprocess
import sys
import textwrap
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quernel.identity import CapturedCode, capture, capture_values, code_digest
from quernel.identity.bytecode import lookups


class Device:
    """What `@qn.func` makes, as far as identity knows it."""

    def __init__(self, function: types.FunctionType) -> None:
        self.__quernel_function__ = function


class DeclaredDevice(Device):
    def __init__(self, function: types.FunctionType, declared: object) -> None:
        super().__init__(function)
        self.declared = declared

    def __quernel_identity__(self) -> object:
        return self.declared


def module_of(source: str, **names: object) -> types.ModuleType:
    """A module made of source text, with `Device` and the given names at hand."""
    module = types.ModuleType("kernels")
    vars(module).update({"func": Device, **names})
    exec(compile(textwrap.dedent(source), "kernels.py", "exec"), vars(module))
    return module


def captured(source: str, **names: object) -> CapturedCode:
    return capture(module_of(source, **names).k)


def differing(left: CapturedCode, right: CapturedCode) -> set[str]:
    return {name for (name, a), (_, b) in zip(left.parts, right.parts, strict=True) if a != b}


PLAIN = """
def k(x, y):
    y[0] = x[0] + 1
"""


# --- what does not count ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "edited",
    [
        "\n\n\n\n" + PLAIN,
        "def unrelated(x):\n    return x\n" + PLAIN + "\nOTHER = 3\n",
        "def k(x, y):\n    # a comment\n    y[0] = x[0] + 1  # and another\n",
        "def k(x, y):\n\n    y[0] = (\n        x[0]\n        + 1\n    )\n",
        'def k(x, y):\n    """What it does."""\n    y[0] = x[0] + 1\n',
        'def k(x: "i32", y: "f32") -> None:\n    y[0] = x[0] + 1\n',
        'def k(x, y):\n    """1"""\n    y[0] = x[0] + 1\n',
    ],
    ids=["moved", "unrelated", "comments", "layout", "docstring", "annotations", "short docstring"],
)
def test_capture_ignores(edited: str) -> None:
    assert captured(edited).digest == captured(PLAIN).digest


def test_capture_ignores_the_file() -> None:
    code = compile(PLAIN, "/somewhere/else.py", "exec")
    scope: dict[str, Any] = {}
    exec(code, scope)
    assert capture(scope["k"]).digest == captured(PLAIN).digest


def test_capture_ignores_the_docstring_of_a_device_function() -> None:
    with_docstring = '@func\ndef f(x):\n    "Doubles."\n    y = x * 2\n    return y\ndef k(x):\n    x[0] = f(x[0])\n'
    assert captured(with_docstring).digest == captured(with_docstring.replace('    "Doubles."\n', "")).digest


@pytest.mark.parametrize("count", [10, 254, 255, 256, 257, 300, 70_000])
def test_capture_ignores_a_docstring_however_many_constants_there_are(count: int) -> None:
    body = "".join([f"    x[0] = {index + 1000}.5\n" for index in range(count)])
    plain = capture(module_of("def k(x):\n" + body).k)
    documented = capture(module_of('def k(x):\n    "A docstring."\n' + body).k)
    same = plain.digest == documented.digest
    # One index crosses the width of a byte here, which lengthens the code: a miss that costs a second look-up.
    assert same or count in (255, 256)


def test_capture_ignores_tracing() -> None:
    module = module_of(PLAIN)
    before = capture(module.k).digest
    sys.settrace(lambda frame, event, argument: None)
    try:
        during = capture(module.k).digest
    finally:
        sys.settrace(None)
    assert during == before


def test_capture_ignores_adaptive_specialization() -> None:
    module = module_of("N = 3\ndef k(x, y):\n    for i in range(N):\n        y[0] = x[0] + i * 2\n")
    before = capture(module.k)
    adaptive = module.k.__code__._co_code_adaptive
    for _ in range(1000):
        module.k([1], [0])
    assert module.k.__code__._co_code_adaptive != adaptive
    assert capture(module.k).digest == before.digest


def test_capture_ignores_names_that_pytest_makes_up() -> None:
    scope: dict[str, Any] = {}
    exec(PLAIN, scope)
    code = scope["k"].__code__
    rewritten = code.replace(
        co_names=(*code.co_names, "@py_builtins"),
        co_varnames=(*code.co_varnames, "@py_assert1"),
        co_nlocals=code.co_nlocals + 1,
    )
    variables = {"@py_builtins": builtins, "@pytest_ar": pytest}
    assert capture(types.FunctionType(rewritten, variables)).digest == captured(PLAIN).digest


# --- what counts: code and constants ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("1", "1.0"),
        ("1", "True"),
        ("1.0", "True"),
        ("0.0", "-0.0"),
        ("(1, 2)", "(1, 2.0)"),
        ("x in {1, 2, 3}", "x in {1, 2, 4}"),
        ("x in {1, 2, 3}", "x in {1, 2, 3.0}"),
        ("x in {1, 2, 3}", "x in (1, 2, 3)"),
        ("x + 1", "x - 1"),
        ("x.a", "x.b"),
        ("(lambda: 1)()", "(lambda: 2)()"),
        ("(lambda: (lambda: 1))()", "(lambda: (lambda: True))()"),
        ("f(a=1, b=2)", "f(a=1, c=2)"),
        ("1e400", "-1e400"),
    ],
)
def test_capture_tells_apart(left: str, right: str) -> None:
    first = captured(f"def k(x):\n    y = {left}\n")
    second = captured(f"def k(x):\n    y = {right}\n")
    assert differing(first, second) == {"code"}


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("def k(x, y): pass", "def k(x, *, y): pass"),
        ("def k(x, y): pass", "def k(x, y, /): pass"),
        ("def k(x, y): pass", "def k(x, *y): pass"),
        ("def k(x, y): pass", "def k(y, x): pass"),
        ("def k(x): pass", "def k(x): yield"),
    ],
)
def test_capture_tells_signatures_apart(left: str, right: str) -> None:
    assert captured(left).digest != captured(right).digest


def test_capture_counts_the_exception_table() -> None:
    code = module_of("def k(x):\n    try:\n        x()\n    except ValueError:\n        pass\n").k.__code__
    assert code_digest(code) != code_digest(code.replace(co_exceptiontable=b""))


@pytest.mark.parametrize(
    "change", [{"co_kwonlyargcount": 0}, {"co_argcount": 0}, {"co_flags": 0}, {"co_name": "l"}, {"co_names": ("b",)}]
)
def test_capture_counts_each_field_of_a_code_object(change: dict[str, Any]) -> None:
    code = module_of("def k(x, *, y):\n    x = x.a\n").k.__code__
    assert code_digest(code) != code_digest(code.replace(**change))


def test_capture_ignores_the_flag_by_which_python_marks_a_docstring() -> None:
    code = module_of(PLAIN).k.__code__
    assert code_digest(code) == code_digest(code.replace(co_flags=code.co_flags | 0x4000000))


def test_capture_tells_wide_constant_indices_apart() -> None:
    lines = [f"    x[0] = {index}.5\n" for index in range(400)]
    one = captured("def k(x):\n" + "".join(lines))
    lines[350] = "    x[0] = 9999.5\n"
    assert captured("def k(x):\n" + "".join(lines)).digest != one.digest


def test_code_digest_is_equal_for_equal_code_elsewhere() -> None:
    here = module_of(PLAIN).k.__code__
    there = module_of("\n\n" + PLAIN).k.__code__
    assert code_digest(here) == code_digest(there)


# --- what counts: captured values -------------------------------------------------------------------------------------


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


def module_with(**attributes: object) -> types.ModuleType:
    module = types.ModuleType("constants")
    vars(module).update(attributes)
    return module


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


class Parent:
    INHERITED = 1
    HIDDEN = 1


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


# --- what counts: device functions ------------------------------------------------------------------------------------

CALLING = """
SCALE = {scale}

@func
def inner(x):
    return x {op} SCALE

@func
def outer(x, y={default}, *, z={keyword}):
    return inner(x) + y + z

def k(x):
    x[0] = outer(x[0])
"""
AS_IT_WAS = {"scale": 2, "op": "*", "default": 1, "keyword": 1}


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"op": "+"}, "functions"),
        ({"scale": "2.0"}, "constants"),
        ({"default": "1.0"}, "constants"),
        ({"keyword": "True"}, "constants"),
    ],
)
def test_capture_counts_a_change_of_a_device_function(change: dict[str, object], part: str) -> None:
    before = captured(CALLING.format(**AS_IT_WAS))
    assert differing(captured(CALLING.format(**AS_IT_WAS | change)), before) == {part}


def test_capture_counts_a_device_function_of_another_module() -> None:
    source = "def k(x):\n    x[0] = mod.helper(x[0])\n"
    one, two, other = (
        captured(source, mod=module_of(f"@func\ndef helper(x):\n    return x + {value}\nUNRELATED = {unrelated}\n"))
        for value, unrelated in [(1, 1), (2, 1), (1, 2)]
    )
    assert differing(one, two) == {"functions"}
    assert one.digest == other.digest


def test_capture_counts_a_static_method_that_is_a_device_function() -> None:
    method = "class C:\n    @staticmethod\n    @func\n    def f(x):\n        return x + {}\n"
    source = method + "def k(x):\n    x[0] = C.f(x[0])\n"
    assert differing(captured(source.format(1)), captured(source.format(2))) == {"functions"}


def test_capture_counts_a_device_function_in_a_tuple() -> None:
    source = "@func\ndef f(x):\n    return x + {}\nALL = (f,)\ndef k(x):\n    x[0] = ALL[0](x[0])\n"
    assert differing(captured(source.format(1)), captured(source.format(2))) == {"functions"}


def test_capture_counts_which_device_function_a_name_means() -> None:
    source = (
        "@func\ndef f(x):\n    return x + 1\n@func\ndef g(x):\n    return x + 2\nh = {}\ndef k(x):\n    x[0] = {}\n"
    )
    one = captured(source.format("f", "f(g(h(x[0])))"))
    two = captured(source.format("g", "f(g(h(x[0])))"))
    assert differing(one, two) == {"functions"}


def test_capture_counts_what_a_device_function_declares() -> None:
    function = module_of("def f(x):\n    return x\n").f
    source = "def k(x):\n    x[0] = f(x[0])\n"
    one, two = (captured(source, f=DeclaredDevice(function, declared)) for declared in ("f32", "f64"))
    assert differing(one, two) == {"functions"}


def test_capture_takes_a_plain_function_by_its_name_alone() -> None:
    source = "def f(x):\n    return x + {}\ndef g(x):\n    return x\nh = {}\ndef k(x):\n    x[0] = h(x[0])\n"
    assert captured(source.format(1, "f")).digest == captured(source.format(2, "f")).digest
    assert captured(source.format(1, "f")).digest != captured(source.format(1, "g")).digest


CYCLE = """
@func
def even(n):
    return odd(n - 1)

@func
def odd(n):
    return even(n - 1) + {}

def k(x):
    x[0] = even(x[0])
"""


def test_capture_ends_on_device_functions_that_call_each_other() -> None:
    assert captured(CYCLE.format(1)).digest == captured(CYCLE.format(1)).digest
    assert captured(CYCLE.format(1)).digest != captured(CYCLE.format(2)).digest


def test_capture_has_no_limit_of_depth() -> None:
    chain = "".join([f"@func\ndef f{n}(x):\n    return f{n + 1}(x)\n" for n in range(3000)])
    source = chain + "@func\ndef f3000(x):\n    return x + {}\ndef k(x):\n    x[0] = f0(x[0])\n"
    assert differing(captured(source.format(1)), captured(source.format(2))) == {"functions"}


# --- compile-time values ----------------------------------------------------------------------------------------------


def test_capture_values_counts_the_code_of_a_device_function() -> None:
    one, two = (module_of(f"@func\ndef f(x):\n    return x + {value}\n").f for value in (1, 2))
    assert capture_values({"op": one}).digest != capture_values({"op": two}).digest


def test_capture_values_counts_and_guards_what_a_device_function_captured() -> None:
    module = module_of("N = 1\n@func\ndef f(x):\n    return x + N\n")
    before = capture_values({"op": module.f})
    assert before.guards.is_current()
    module.N = 2
    assert not before.guards.is_current()
    assert capture_values({"op": module.f}).digest != before.digest


def test_capture_values_ignores_the_order_of_names() -> None:
    assert capture_values({"a": 1, "b": 2}).digest == capture_values({"b": 2, "a": 1}).digest


def test_capture_numbers_no_function_in_a_set_whose_order_is_chance() -> None:
    one, two = (module_of(f"@func\ndef f(x):\n    return x + {value}\n").f for value in (1, 2))
    found = capture_values({"ops": frozenset({one})})
    assert found.digest == capture_values({"ops": frozenset({two})}).digest
    assert len(found.guards) == 0


# --- the same in every process ----------------------------------------------------------------------------------------

IN_A_PROCESS = """
import enum, math
import numpy as np
from quernel.identity import capture, capture_values, kernel_id

class Device:
    def __init__(self, function):
        self.__quernel_function__ = function

class Colour(enum.Enum):
    RED = "red"
    GREEN = frozenset({"x", "y", "z"})

NAMES = frozenset({"alpha", "beta", "gamma", "delta"})
LIST = [1, 2]
STEP = np.float32(0.5)

@Device
def helper(x):
    return math.sin(x) * STEP if x in {"a", "b", "c", 1, 2.5} else x

def k(x):
    x[0] = helper(x[0]) + (Colour.GREEN in NAMES) + LIST[0] + (x[1] in {"p", "q", "r", "s", None, True, 7})

print(kernel_id(capture(k), name="k", types=("f32",), constants={"n": NAMES, "f": helper}, block=(256,),
                options={"b": 1, "a": 2}, form="over").digest)
"""


def test_kernel_id_agrees_between_processes_of_different_hash_seeds(tmp_path: Path) -> None:
    digests = set()
    for seed in ("0", "1", "4242"):
        script = tmp_path / f"script{seed}.py"
        script.write_text("\n" * int(seed) + IN_A_PROCESS)
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=True)
        digests.add(done.stdout.strip())
    assert len(digests) == 1


def test_capture_agrees_on_a_module_that_is_loaded_again(tmp_path: Path) -> None:
    file = tmp_path / "again.py"
    file.write_text(PLAIN)

    def load() -> types.ModuleType:
        spec = importlib.util.spec_from_file_location("again", file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    before = capture(load().k).digest
    file.write_text("# a comment\n" + PLAIN + "def another(): pass\n")
    assert capture(load().k).digest == before
    file.write_text(PLAIN.replace("+ 1", "+ 2"))
    assert capture(load().k).digest != before


# --- guards -----------------------------------------------------------------------------------------------------------


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
