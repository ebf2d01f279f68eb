"""What a refused call or name says to write instead: it is there, and it means what is said."""

from __future__ import annotations

import builtins
import cmath
import itertools
import math
import operator
import random
import re
import statistics
import time
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from tests.unit.lang.kernels import kernel_of, language, lowered, refusal, run

from quernel.errors import KernelSyntaxError, KernelTypeError
from quernel.lang.instead import OF_NUMPY

MODULES: dict[str, ModuleType] = {
    "np": np,
    "np.random": np.random,
    "np.linalg": np.linalg,
    "np.fft": np.fft,
    "builtins": builtins,
    "cmath": cmath,
    "math": math,
    "operator": operator,
    "random": random,
    "statistics": statistics,
    "time": time,
}
WRITTEN = re.compile(r"\b(math|qn)\.([a-z]\w*)(?:\.(\w+))?")
"""Functions that a fix names."""


def names_of(fix: str) -> list[object]:
    """The functions of `math` and of the language that `fix` names; each is there."""
    owners = {"math": math, "qn": language()}
    found = []
    for owner, name, member in WRITTEN.findall(fix):
        value = getattr(owners[owner], name, None) if name != "func" else len
        if value is not None and member:
            value = getattr(value, member, None)
        assert value is not None, f"`{owner}.{name}` in `{fix}` is not there"
        found.append(value)
    return found


@pytest.mark.parametrize("module", MODULES)
def test_every_function_of_other_libraries_is_refused_by_names_that_are_there(module: str) -> None:
    for name, function in vars(MODULES[module]).items():
        if name.startswith("_") or not callable(function):
            continue
        text = f"def kernel(x):\n    x[0] = {module}.{name}(x[0], x[0])\n"
        given = {module.partition(".")[0]: MODULES[module.partition(".")[0]]}
        fix = None
        try:
            lowered(kernel_of(text, **given))
        except (KernelSyntaxError, KernelTypeError) as error:
            fix = error.fix or "nothing"
        assert fix != "nothing"
        names_of(fix or "")


FLOATS = [-math.inf, -7.0, -2.5, -0.5, 0.75, 1.5, 6.0, math.inf, math.nan]
INTEGERS = [1, 2, 3, 5, 6]


@pytest.mark.filterwarnings("ignore:numpy.* is deprecated")
@pytest.mark.parametrize("name", OF_NUMPY)
def test_what_stands_for_a_function_of_numpy_means_the_same(name: str) -> None:
    text = OF_NUMPY[name]
    function = getattr(np, name, None)
    if function is None:
        pytest.skip(f"needs a NumPy that has {name}")
    is_integral = re.search(r"[&|^~]|<<|>>|popcount", text) is not None
    # Floor division by zero is documented to be NaN, and of infinities a power is C's.
    values = [value for value in FLOATS if name not in ("power", "pow", "float_power") or math.isfinite(value)]
    values, second, third = (INTEGERS, [1, 3], [5]) if is_integral else (values, [-1.5, 2.0, math.nan], [2.5])
    named = {"clip": "xab", "where": "cab"}.get(name) or [each for each in "abx" if re.search(rf"\b{each}\b", text)]

    kernel = f"def kernel(v, out):\n    a, b, x, c = v[0], v[1], v[2], v[0] > 0\n    result = {text}\n"
    kernel += f"    out[0] = {'result[1]' if name == 'divmod' else 'result'}\n"
    made = kernel_of(kernel)
    fix = refusal(f"def kernel(x):\n    x[0] = np.{name}(x[0], x[0])\n").fix or ""
    assert text in fix

    num_compared = 0
    for a, b, x in itertools.product(values, second, third) if len(named) > 1 else ((v, 2.0, v) for v in values):
        given = {"a": a, "b": b, "x": x, "c": a > 0}
        if "NaN" in fix and any(math.isnan(given[each]) for each in named):
            continue
        v, out = np.array([a, b, x], np.int32 if is_integral else np.float64), np.zeros(1)
        run(made, 1, v, out)
        with np.errstate(all="ignore"):
            expected = function(*(v.dtype.type(given[each]) if each != "c" else given[each] for each in named))
        expected = expected[1] if name == "divmod" else expected
        assert out[0] == pytest.approx(float(expected), nan_ok=True), (a, b, x)
        num_compared += 1
    assert num_compared >= 3


@pytest.mark.parametrize(
    ("expression", "fix"),
    [
        ("np.sqrt(x[0])", "use the scalar function: `math.sqrt`"),
        ("np.arcsin(x[0])", "write `math.asin(x)`"),
        ("np.clip(x[0], 0, 1)", "write `qn.clamp(x, a, b)`"),
        ("np.zeros(3)", "`own = qn.private(shape, T)`"),
        ("np.ones(3)", "`own = qn.private(shape, T)`"),
        ("np.sum(x)", "`qn.block.sum(x)`"),
        ("np.arange(3)", "`range(…)`"),
        ("np.bincount(x)", "`qn.atomic.add(counts, k, 1)`"),
        ("np.random.rand()", "`qn.random.philox(seed, counter)`"),
        ("np.sort(x)", "one element"),
        ("random.random()", "`qn.random.philox(seed, counter)`"),
        ("random.uniform(0, 1)", "`qn.random.philox(seed, counter)`"),
        ("statistics.mean(x)", "or a @qn.func"),
        ("doubled(x[0])", "with def, under @qn.func"),
        ("math.gcd(2, 3)", "those of `math` that kernels have: acos,"),
        ("qn.sqrt(x[0])", "write `math.sqrt`"),
        ("qn.abs(x[0])", "write `abs`"),
        ("qn.max(x[0], 1)", "write `max`"),
        ("qn.pi", "write `math.pi`"),
        ("qn.float32(1)", "write `qn.f32`"),
        ("qn.uint8(1)", "write `qn.u8`"),
        ("qn.zeros(3)", "`own = qn.private(shape, T)`"),
        ("qn.bfloat16(1)", "write `qn.bf16`"),
        ("qn.bfloat32(1)", "check the spelling"),
        ("qn.int8(1)", "write `qn.i8`"),
        ("qn.half(1)", "write `qn.f16`"),
        ("qn.print(1)", "write `print`"),
        ("qn.len(x)", "write `len`"),
        ("bfloat16(1)", "write `qn.bf16`, or define `bfloat16`"),
        ("np.maximum(x[0], 1)", "write `max(a, b)`, which makes something else of NaN"),
        ("np.nan_to_num(x[0])", "write what it does to one element"),
        ("qn.atomic_add(x, 0, 1)", "write `qn.atomic.add`"),
        ("qn.shuffle_xor(x[0], 1)", "write `qn.subgroup.shuffle_xor`"),
        ("qn.block_idx()", "write `qn.block_id()`"),
        ("qn.barier()", "did you mean `barrier`?"),
        ("qn.declared(x)", "check the spelling"),
        ("math.rsqrt(x[0])", "write `qn.rsqrt`"),
        ("math.max(x[0], 1)", "write `max`"),
        ("sqrt(x[0])", "write `math.sqrt`, or define `sqrt`"),
        ("size", "define it, or check the spelling"),
        ("e", "define it, or check the spelling"),
        ("global_id()", "write `qn.global_id`, or define `global_id`"),
    ],
)
def test_refused_call_says_what_the_language_has(expression: str, fix: str) -> None:
    text = f"import random, statistics\ndoubled = lambda a: 2 * a\ndef kernel(x):\n    x[0] = {expression}\n"

    error = refusal(text)

    assert isinstance(error, KernelTypeError)
    assert error.fix is not None
    assert fix in error.fix


def test_name_that_only_the_host_has_is_not_proposed() -> None:
    import quernel

    text = "def kernel(x):\n    x[0] = q.device_id()\n"
    with pytest.raises(KernelTypeError, match="has no attribute 'device_id'") as caught:
        lowered(kernel_of(text, q=quernel))

    assert caught.value.fix is not None
    assert "`device`" not in caught.value.fix


def test_function_of_a_file_called_like_a_module_of_python_is_the_users(tmp_path: Path) -> None:
    file = tmp_path / "random.py"
    file.write_text("def twice(a):\n    return 2 * a\n")
    scope: dict[str, object] = {"__name__": "random"}
    exec(compile(file.read_text(), str(file), "exec"), scope)
    with pytest.raises(KernelTypeError, match=r"decorate it with @qn\.func: `twice`"):
        lowered(kernel_of("def kernel(x):\n    x[0] = twice(x[0])\n", twice=scope["twice"]))


def test_name_of_a_builtin_that_a_kernel_sums_up_in_is_only_to_be_assigned_before() -> None:
    error = refusal("def kernel(x):\n    sum += x[0]\n    x[0] = sum\n")

    assert error.fix == "assign `sum` before, on every way that leads here"


def test_name_that_a_kernel_assigns_hides_the_one_outside_and_says_so() -> None:
    error = refusal("counter = 0\ndef kernel(x):\n    counter += 1\n    x[0] = counter\n")

    assert error.what == "`counter` may be read here before it is assigned"
    assert error.fix is not None
    assert "to read the one outside, give the local another name" in error.fix
