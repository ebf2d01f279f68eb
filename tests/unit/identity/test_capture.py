"""What counts of a kernel's code and of its device functions, and what does not."""

from __future__ import annotations

import builtins
import importlib.util
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from tests.unit.identity.captured import PLAIN, DeclaredDevice, captured, differing, module_of

from quernel.identity import capture, capture_values, code_digest

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
