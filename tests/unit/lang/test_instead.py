"""What a refused call or name says to write instead: it is there, and it means what is said."""

from __future__ import annotations

import builtins
import cmath
import math
import operator
import random
import re
import statistics
import time
from types import ModuleType

import numpy as np
import pytest
from tests.unit.lang.kernels import array, kernel_of, language, lowered, refusal

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


@pytest.mark.parametrize("name", OF_NUMPY)
def test_what_stands_for_a_function_of_numpy_means_the_same(name: str) -> None:
    text = OF_NUMPY[name]
    function = getattr(np, name, None)
    integral = re.search(r"[&|^~]|<<|>>|popcount", text) is not None
    a, b, x = (6, 3, 5) if integral else (2.25, 0.5, 1.25 if name == "arccosh" else 0.75)
    expected = eval(text, {"math": math, "qn": language(), "a": a, "b": b, "x": x, "c": True})
    if name.startswith("logical"):
        expected = bool(expected)

    kernel = f"def kernel(v, out):\n    a, b, c, x = v[0], v[1], v[0] > 0, v[2]\n    result = {text}\n"
    kernel += "    out[0] = result[0]\n" if name == "divmod" else "    out[0] = result\n"
    element = array("int32" if integral else "float64")
    assert lowered(kernel_of(kernel), v=element, out=array("float64")).module.kernel.body

    if function is None:
        pytest.skip(f"this NumPy has no {name}")
    arguments = {"clip": (x, a, b), "where": (True, a, b)}.get(name, (a, b) if re.search(r"\bb\b", text) else (x,))
    assert np.all(function(*arguments) == pytest.approx(expected))


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


def test_name_that_a_kernel_assigns_hides_the_one_outside_and_says_so() -> None:
    error = refusal("counter = 0\ndef kernel(x):\n    counter += 1\n    x[0] = counter\n")

    assert error.what == "`counter` may be read here before it is assigned"
    assert error.fix is not None
    assert "to read the one outside, give the local another name" in error.fix
