"""Assertions and prints: what they become, and what they say."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest
from tests.unit.lang.kernels import array, kernel_of, over

from quernel.errors import KernelAssertionError
from quernel.geometry import LaunchForm
from quernel.ir import nodes
from quernel.ir.nodes import Module
from quernel.ir.walk import walk_statements
from quernel.lang import expand
from quernel.options import KernelOptions


def expanded(text: str, *, checked: bool) -> Module:
    module, _ = expand(
        kernel_of(text),
        name="kernel",
        parameter_types={"x": array("float32")},
        constants={},
        form=LaunchForm.OVER,
        block=(256,),
        options=KernelOptions(checked=checked),
    )
    return module


def asserts(module: Module) -> list[nodes.Assert]:
    return [
        stmt for stmt in walk_statements(module.kernel.body) if isinstance(stmt, nodes.Assert) and stmt.array is None
    ]


ASSERTION = "def kernel(x):\n    assert x[0] > 0, MESSAGE\n".replace("MESSAGE", '"must be positive"')


def test_assertion_is_kept_in_a_checked_kernel_with_its_message() -> None:
    (found,) = asserts(expanded(ASSERTION, checked=True))

    assert found.message == "must be positive"


def test_assertion_leaves_nothing_in_a_kernel_without_checks() -> None:
    assert expanded(ASSERTION, checked=False).kernel.body == ()


def test_what_an_assertion_calls_is_called_in_a_checked_kernel_only() -> None:
    text = "@qn.func\ndef count(x):\n    return qn.atomic.add(x, 0, 1)\n\ndef kernel(x):\n    assert count(x) < 5\n"

    assert expanded(text, checked=False).functions == ()
    assert asserts(expanded(text, checked=True))


def test_assertion_that_does_not_hold_is_raised_at_its_line() -> None:
    kernel = kernel_of("def kernel(x):\n    i = qn.global_id()\n    assert x[i] < 2, 'too large'\n    x[i] = 7\n")
    x = np.arange(3, dtype=np.float32)

    with pytest.raises(KernelAssertionError, match="too large") as caught:
        over(kernel, 3, x, checked=True)

    assert caught.value.where is not None
    assert caught.value.where.line == 3


def test_assertions_are_dropped_where_python_drops_them(tmp_path: object) -> None:
    script = """
import linecache, sys
import quernel as qn
from quernel.geometry import LaunchForm
from quernel.lang import expand
from quernel.options import KernelOptions
from quernel.dtypes import ArrayType, f32
text = "def kernel(x):\\n    assert x[0] > 0\\n"
linecache.cache["k"] = (len(text), None, text.splitlines(True), "k")
scope = {}
exec(compile(text, "k", "exec"), scope)
module, _ = expand(scope["kernel"], name="k", parameter_types={"x": ArrayType(f32, 1)}, constants={},
                   form=LaunchForm.OVER, block=(256,), options=KernelOptions(checked=True))
print(len(module.kernel.body))
"""
    kept = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    dropped = subprocess.run([sys.executable, "-O", "-c", script], capture_output=True, text=True, check=True)

    assert int(kept.stdout) > 0
    assert int(dropped.stdout) == 0


PRINTS = [
    ('"x =", x[0]', ("x = ", ""), 1),
    ("x[0], 1, True", ("", " ", " ", ""), 3),
    ('"a", "b"', ("a b",), 0),
    ("", ("",), 0),
    ('x[0], "end", sep=""', ("", "end"), 1),
    ("(x[0], (1,))", ("(", ", (", ",))"), 2),
    ("qn.vec(qn.i32, 2)(1, 2)", ("(", ", ", ")"), 2),
    ('1, 2, sep=", "', ("", ", ", ""), 2),
]


@pytest.mark.parametrize(("arguments", "pieces", "num_values"), PRINTS)
def test_print_has_the_text_between_its_values(arguments: str, pieces: tuple[str, ...], num_values: int) -> None:
    (found,) = [
        stmt
        for stmt in expanded(f"def kernel(x):\n    print({arguments})\n", checked=False).kernel.body
        if isinstance(stmt, nodes.Print)
    ]

    assert found.format == pieces
    assert len(found.values) == num_values


def test_printed_line_is_pythons(capsys: pytest.CaptureFixture[str]) -> None:
    kernel = kernel_of("def kernel(x, n):\n    print('x', n, '=', x[n], n > 1, (n, 0.5), sep='~')\n")

    over(kernel, 1, np.array([0, 1, 2.5], np.float32), 2)

    assert re.fullmatch(r"x~2~=~2\.5~True~\(2, 0\.5\)\n", capsys.readouterr().out)
