"""Classes that mention themselves: constants of theirs are read, values of theirs have no end."""

from __future__ import annotations

from typing import Any, ClassVar

import attrs
import numpy as np
import pytest

import quernel as qn
from quernel.errors import KernelTypeError
from quernel.identity import capture


@attrs.frozen
class Node:
    LIMIT: ClassVar[float] = 4.0
    value: float
    next: Node  # type: ignore[misc]


@attrs.frozen
class Chicken:
    LIMIT: ClassVar[float] = 5.0
    egg: Egg


@attrs.frozen
class Egg:
    chicken: Chicken


@attrs.frozen
class Tree:
    LIMIT: ClassVar[float] = 6.0
    branches: qn.Array1[Tree]  # type: ignore[valid-type]


@qn.kernel
def limit_of_node(x):
    x[qn.global_id()] = Node.LIMIT


@qn.kernel
def limit_of_chicken(x):
    x[qn.global_id()] = Chicken.LIMIT


@qn.kernel
def limit_of_tree(x):
    x[qn.global_id()] = Tree.LIMIT


@qn.kernel
def value_of(x, node):
    x[qn.global_id()] = node.value


@qn.kernel
def made(x):
    node = Node(1.0, 2.0)  # type: ignore[arg-type]
    x[qn.global_id()] = node.value


@pytest.mark.parametrize(("kernel", "limit"), [(limit_of_node, 4.0), (limit_of_chicken, 5.0), (limit_of_tree, 6.0)])
def test_constant_of_a_class_that_mentions_itself_is_read(kernel: Any, limit: float) -> None:
    x = np.zeros(1)
    kernel.over(1)(x)
    assert x.tolist() == [limit]


def test_digest_holds_the_fields_of_classes_that_mention_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    function = limit_of_chicken.__wrapped__
    before = capture(function).digest
    assert capture(function).digest == before

    @attrs.frozen
    class Larger:
        chicken: Chicken
        weight: float

    Larger.__module__, Larger.__qualname__ = Egg.__module__, Egg.__qualname__
    monkeypatch.setitem(globals(), "Egg", Larger)
    assert capture(function).digest != before


@pytest.mark.parametrize("given", [Node, Chicken, Tree])
def test_values_of_a_class_that_contains_itself_are_refused(given: type) -> None:
    with pytest.raises(KernelTypeError, match="of which it is a part"):
        value_of.specialize(qn.Array1[qn.f64], given)
    with pytest.raises(KernelTypeError, match="of which it is a part"):
        made.over(1)(np.zeros(1))
    with pytest.raises(KernelTypeError, match="of which it is a part"):
        value_of.over(1)(np.zeros(1), Node(1.0, Node(1.0, 2.0)))  # type: ignore[arg-type]
