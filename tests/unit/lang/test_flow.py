"""Which names are surely assigned where they are read, and what is left out because nothing reaches it."""

from __future__ import annotations

import pytest
from tests.unit.lang.kernels import INT, kernel_of, lowered, refusal

from quernel.errors import KernelTypeError
from quernel.ir import nodes


def body_of(text: str) -> str:
    return "def kernel(x, n):\n" + "".join(f"    {line}\n" for line in text.strip("\n").split("\n"))


ASSIGNED = {
    "both sides": "if n:\n    v = 1\nelse:\n    v = 2\nx[0] = v",
    "one side returns": "if n:\n    v = 1\nelse:\n    return\nx[0] = v",
    "elif chain": "if n == 1:\n    v = 1\nelif n == 2:\n    v = 2\nelse:\n    v = 3\nx[0] = v",
    "loop that runs": "for k in range(3):\n    v = k\nx[0] = v + k",
    "loop that runs backwards": "for k in range(3, 0, -1):\n    v = k\nx[0] = v + k",
    "loop that runs and continues": "for k in range(3):\n    v = k\n    if n:\n        continue\nx[0] = v",
    "endless loop": "while True:\n    v = n\n    if n:\n        break\nx[0] = v",
    "endless loop with two exits": "while 1:\n    if n:\n        v = 1\n        break\n    v = 2\n    break\nx[0] = v",
    "within the body": "for k in range(n):\n    v = k\n    x[k] = v",
    "before the loop": "v = 0\nfor k in range(n):\n    v = k\nx[0] = v",
    "unrolled": "for k in qn.unroll(range(2)):\n    v = k\nx[0] = v + k",
    "constant condition": "if True:\n    v = 1\nx[0] = v",
    "other side cannot run": "if False:\n    w = missing\nelse:\n    v = 1\nx[0] = v",
    "after a return on the other way": "if n:\n    return\nelse:\n    v = 1\nx[0] = v",
    "behind an endless loop": "while True:\n    x[0] = 1\nx[0] = v\nv = 1",
}

UNASSIGNED = {
    "one side": ("if n:\n    v = 1\nx[0] = v", "v"),
    "while body": ("while n > 3:\n    v = 1\n    n -= 1\nx[0] = v", "v"),
    "loop that may not run": ("for k in range(n):\n    v = 1\nx[0] = v", "v"),
    "loop that does not run": ("for k in range(0):\n    v = 1\nx[0] = k", "k"),
    "break before": ("for k in range(3):\n    if n:\n        break\n    v = 1\nx[0] = v", "v"),
    "continue before": ("for k in range(3):\n    if n:\n        continue\n    v = 1\nx[0] = v", "v"),
    "endless loop left before": ("while True:\n    if n:\n        break\n    v = 1\nx[0] = v", "v"),
    "read in the body before": ("for k in range(3):\n    if k > 0:\n        x[0] = v\n    v = 1", "v"),
    "augmented": ("v += 1", "v"),
    "assigned later": ("x[0] = v\nv = 1", "v"),
    "never on the live side": ("if False:\n    v = 1\nx[0] = v", "v"),
    "elif without else": ("if n == 1:\n    v = 1\nelif n == 2:\n    v = 2\nx[0] = v", "v"),
    "unrolled over nothing": ("for k in qn.unroll(range(0)):\n    v = 1\nx[0] = k", "k"),
}


@pytest.mark.parametrize("name", ASSIGNED)
def test_name_that_is_assigned_on_every_way_may_be_read(name: str) -> None:
    assert lowered(kernel_of(body_of(ASSIGNED[name])), n=INT).module.kernel.body


@pytest.mark.parametrize("name", UNASSIGNED)
def test_name_that_may_be_unassigned_is_refused_where_it_is_read(name: str) -> None:
    text, variable = UNASSIGNED[name]

    error = refusal(body_of(text), n=INT)

    assert isinstance(error, KernelTypeError)
    assert error.what == f"`{variable}` may be read here before it is assigned"
    assert error.where is not None
    assert error.source_line is not None
    assert error.source_line[error.where.column : error.where.end_column] == variable


def test_side_that_a_constant_rules_out_is_not_looked_at() -> None:
    text = "def kernel(x):\n    if MODE == 'fast':\n        x[0] = 1\n    else:\n        x[0] = missing.thing()\n"

    body = lowered(kernel_of(text, MODE="fast")).module.kernel.body

    assert [type(statement) for statement in body] == [nodes.Store]


def test_constant_parameter_decides_a_branch() -> None:
    kernel = kernel_of(
        "def kernel(x, mode):\n    if mode is None or mode == 2:\n        x[0] = 1\n    elif 1:\n        x[1] = 2\n"
    )

    def stores(mode: object) -> int:
        body = lowered(kernel, constants={"mode": mode}).module.kernel.body
        (store,) = body
        assert isinstance(store, nodes.Store)
        (index,) = store.place.indices
        assert isinstance(index, nodes.Const)
        return int(index.value)

    assert [stores(mode) for mode in (None, 2, 3)] == [0, 0, 1]


def test_dead_part_of_a_boolean_operator_is_not_looked_at() -> None:
    assert lowered(kernel_of("def kernel(x):\n    if True or missing:\n        x[0] = 1\n")).module.kernel.body


def test_statements_behind_a_return_are_left_out() -> None:
    body = lowered(kernel_of("def kernel(x):\n    x[0] = 1\n    return\n    x[0] = missing\n")).module.kernel.body

    assert [type(statement) for statement in body] == [nodes.Store, nodes.Return]


def test_while_that_never_runs_is_left_out() -> None:
    assert lowered(kernel_of("def kernel(x):\n    while False:\n        x[0] = missing\n")).module.kernel.body == ()


def test_docstring_pass_and_ellipsis_do_nothing() -> None:
    assert lowered(kernel_of("def kernel(x):\n    'text'\n    pass\n    ...\n")).module.kernel.body == ()


def test_plain_condition_stays_an_expression_and_one_that_reads_becomes_a_branch() -> None:
    text = "def kernel(x, n):\n    if n > 1 and {} < 9:\n        x[0] = 1\n"
    plain = lowered(kernel_of(text.format("n")), n=INT).module.kernel.body
    reading = lowered(kernel_of(text.format("x[n]")), n=INT).module.kernel.body

    assert [type(statement) for statement in plain] == [nodes.If]
    assert isinstance(plain[0], nodes.If)
    assert isinstance(plain[0].condition, nodes.Select)
    assert [type(statement) for statement in reading] == [nodes.If, nodes.If]


def test_loops_of_one_name_share_the_variable() -> None:
    text = (
        "def kernel(x):\n    for k in range(2):\n        x[k] = 1\n"
        "    for k in range(3):\n        x[k] = 2\n    x[k] = 3\n"
    )

    assert [variable.name for variable in lowered(kernel_of(text)).module.kernel.locals] == ["k"]
