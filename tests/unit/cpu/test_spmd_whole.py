"""The copy without masks for when every lane is on: where there is one, and that it does what the masked one does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.cpu.harness import CONTIGUOUS, Built, compiler_for, lowered
from tests.unit.cpu.test_spmd import A1, A2, WAYS, module_of

LANES = [name for name in WAYS if name != "scalar"]
BODY = """
i = qn.global_id()
total = x[i]
if x[i] > 0:
    total += y[i] * 3
    k = 0
    while k < x[i]:
        if y[(i + k) % len(y)] > 2:
            total += y[i] - k
            if total > 60:
                break
            if k == 3:
                k += 2
                continue
        k += 1
    for j in range(y[i] % 4):
        if j == x[i]:
            out[i] = -total
            return
        total += x[i] * j
    z[i] = total
else:
    z[i] = y[i]
out[i] = total + z[i]
"""


@pytest.mark.parametrize("way", LANES)
@pytest.mark.parametrize("size", [16, 64, 70])
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_lanes_that_agree_and_lanes_that_part_give_the_same(way: str, size: int, data: Any) -> None:
    # Mostly alike, so that whole vectors go one way and some lanes another.
    common, rare = data.draw(st.integers(-1, 6)), data.draw(st.lists(st.integers(0, size - 1), max_size=3))
    x = np.full(size, common)
    for place in rare:
        x[place] = data.draw(st.integers(-3, 9))
    y = np.array(data.draw(st.lists(st.integers(0, 5), min_size=size, max_size=size)))
    results = []
    for one in ("scalar", way):
        z, out = np.full(size, -9), np.full(size, -9)
        built(one).over(size, x, y, z, out)
        results.append((z.tolist(), out.tolist()))
    assert results[0] == results[1]


_built: dict[str, Built] = {}


def built(way: str) -> Built:
    if way not in _built:
        module = module_of(BODY, x=A1, y=A1, z=A1, out=A1)
        _built[way] = Built(module, CONTIGUOUS, compiler_for(*WAYS[way]))
    return _built[way]


def copies(body: str, way: str, **types: Any) -> int:
    block = (8, 32) if A2 in types.values() else (256,)
    low = lowered(module_of(body, block=block, **types), CONTIGUOUS, compiler_for(*WAYS[way]))
    return low.ir.count("\nmasked")


@pytest.mark.parametrize("way", LANES)
def test_a_branch_that_works_on_memory_has_a_copy(way: str) -> None:
    assert copies("i = qn.global_id()\nif x[i] > 0:\n    y[i] = x[i] * 3 + y[i] * y[i]", way, x=A1, y=A1)


@pytest.mark.parametrize("way", LANES)
def test_a_long_branch_and_one_that_only_computes_have_none(way: str) -> None:
    long = "\n".join(f"    v = v * {n} + y[i]" for n in range(90))
    assert not copies(f"i = qn.global_id()\nv = 0\nif x[i] > 0:\n{long}\n    y[i] = v", way, x=A1, y=A1)
    pure = "\n".join(f"    w{n} = v % {n + 3}" for n in range(4))
    assert not copies(f"i = qn.global_id()\nv = x[i]\nif v > 0:\n{pure}\ny[i] = v", way, x=A1, y=A1)


def test_copies_do_not_multiply_with_nesting() -> None:
    def nested(depth: int) -> str:
        lines = ["i = qn.global_id()"]
        for level in range(depth):
            lines.append("    " * level + f"if x[i + {level}] > {level}:")
            lines.append("    " * (level + 1) + f"y[i] = y[i] * {level + 2} + x[i] * y[i]")
        return "\n".join(lines)

    found = [copies(nested(depth), "avx2", x=A1, y=A1) for depth in (2, 4, 8)]
    assert 0 < found[0] <= 4 * 2
    assert found[1] <= 4 * 4
    assert found[2] <= 4 * 8


def test_the_rest_of_a_long_chain_has_no_copies() -> None:
    def chain(length: int) -> str:
        links = (f"{'elif' if n else 'if'} x[i] == {n}:\n    y[i] = {n}" for n in range(length))
        return "\n".join(["i = qn.global_id()", *links])

    assert copies(chain(8), "avx2", x=A1, y=A1) > 4
    assert copies(chain(200), "avx2", x=A1, y=A1) <= 200 // 8
