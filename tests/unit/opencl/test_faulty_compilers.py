"""What the text says otherwise for a driver whose compiler gets the plain words wrong, and for no other."""

from __future__ import annotations

import logging
import re
from typing import Any

import attrs
import pytest
from tests.unit.opencl.harness import infos, opened

import quernel as qn
from quernel.codegen.pointers import Pointers
from quernel.compiler import ArtifactId, CompilationRecording
from quernel.testing.fuzz.programs import kernel_of
from quernel_opencl.compiler import OpenclCompiler

pytestmark = pytest.mark.skipif(
    not infos(), reason="needs an OpenCL device, for example pip install quernel-opencl[pocl]"
)
INTEL = {"platform": "Intel(R) OpenCL", "kind": "cpu"}
OTHERS = ({"platform": "Portable Computing Language", "kind": "cpu"}, {"platform": "Intel(R) OpenCL", "kind": "gpu"})
MARK = '__asm__ volatile("");'


def compiler_for(**details: str) -> OpenclCompiler:
    info = opened(0, Pointers.ADDRESS).target.compiler.target_info
    kept = tuple((name, details.get(name, value)) for name, value in info.details)
    return OpenclCompiler(attrs.evolve(info, details=kept))


def text_of(body: str, details: dict[str, str]) -> str:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    kernel: Any = kernel_of(f"@qn.kernel\ndef k(x, n: int):\n    i = qn.global_id()\n{lines}")
    definition = kernel.specialize(qn.Array1[qn.f32]).definition
    compiler = compiler_for(**details)
    id = ArtifactId(definition.id, compiler.default_variant(definition.specialization.signature))  # noqa: A001
    text = compiler.lower(definition, id, CompilationRecording(), logging.getLogger(__name__)).text
    return text[text.index("__kernel") :]


@pytest.mark.parametrize("loop", ["for k in range(n):", "while n > x[0]:"])
@pytest.mark.parametrize("branch", ["if x[i] > 3:\n        x[i] += 1", "x[i] = 1 if x[i] > 3 else 2"])
def test_a_loop_that_branches_is_marked_for_intels_processors(loop: str, branch: str) -> None:
    body = f"{loop}\n    {branch}"
    assert text_of(body, INTEL).count(MARK) == 1
    assert not [other for other in OTHERS if MARK in text_of(body, other)]


def test_a_loop_that_goes_straight_on_is_not_marked() -> None:
    assert MARK not in text_of("for k in range(n):\n    x[i] += x[k] * x[k]", INTEL)
    assert MARK not in text_of("if x[i] > 3:\n    for k in range(n):\n        x[i] += x[k]", INTEL)


@pytest.mark.parametrize("negative", ["-x[i]", "x[i] * -1.0", "-0.0 - x[i]"])
def test_no_sign_is_plain_in_a_kernel_with_barriers_for_intels_processors(negative: str) -> None:
    body = f"v = {negative}\nqn.barrier()\nx[i] = v"
    assert "qn_negated(" in text_of(body, INTEL)
    assert not re.search(r"-[^>\s]", text_of(body, INTEL))
    assert not [other for other in OTHERS if "qn_negated(" in text_of(body, other)]
    assert "qn_negated(" not in text_of(f"x[i] = {negative}", INTEL)


def test_intels_compiler_for_processors_alone_is_not_held_to_equal_bytes() -> None:
    assert not compiler_for(**INTEL).is_reproducible
    assert all(compiler_for(**other).is_reproducible for other in OTHERS)
    assert qn.device("cpu").operations.target.compiler.is_reproducible
