"""Code for a processor that is not this one: 64-bit ARM, whose vectors have four lanes and no masks."""

from __future__ import annotations

import re

import attrs
import llvmlite.binding as llvm
import pytest
from tests.unit.cpu.harness import CONTIGUOUS, lowered
from tests.unit.cpu.test_spmd import F1, module_of

from quernel.dtypes import ArrayType, VectorType, f32, i32
from quernel_cpu.compiler import CpuCompiler
from quernel_cpu.targets import host_target

F2, I1 = ArrayType(f32, 2), ArrayType(i32, 1)
V4 = ArrayType(VectorType(f32, 4), 1)
KERNELS = {
    "vectors": ("i = qn.global_id()\ny[i] = x[i] * 2.0 + y[i]", {"x": V4, "y": V4}, r"fml[as]\s+v\d+\.4s"),
    "saxpy": ("i = qn.global_id()\ny[i] = x[i] * 2.0 + y[i]", {"x": F1, "y": F1}, r"fmla\s+v\d+\.4s"),
    "matmul": (
        "row, column = qn.global_id()\ntotal = qn.f32(0)\nfor k in range(a.shape[1]):\n"
        "    total += a[row, k] * b[k, column]\nout[row, column] = total",
        {"a": F2, "b": F2, "out": F2},
        r"fmla\s+v\d+\.4s",
    ),
    "halvings": (
        "i = qn.global_id()\nx = seed[i]\nsteps = qn.i32(0)\nwhile x > 1.0:\n    x = x * 0.5\n    steps += 1\n"
        "out[i] = steps",
        {"seed": F1, "out": I1},
        r"fcmgt\s+v\d+\.4s",
    ),
    "branches": (
        "i = qn.global_id()\nv = x[i]\nif v > 0.5:\n    w = y[i]\n    v = v * w + z[i] * 0.25 + w * w\n"
        "    z[i] = v * 1.5 + y[i]\nelse:\n    z[i] = y[i]",
        {"x": F1, "y": F1, "z": F1},
        r"fmul\s+v\d+\.4s",
    ),
    "exp": ("i = qn.global_id()\ny[i] = math.exp(x[i])", {"x": F1, "y": F1}, r"fmla\s+v\d+\.4s"),
}


@pytest.fixture(scope="module")
def compiler() -> CpuCompiler:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        llvm.Target.from_triple("aarch64-unknown-linux-gnu")
    except RuntimeError as error:
        pytest.skip(f"needs an llvmlite whose LLVM writes code for AArch64: {error}")
    host = host_target()
    details = dict(host.details) | {
        "triple": "aarch64-unknown-linux-gnu",
        "cpu": "neoverse-n1",
        "features": "",
        "vector_bytes": "16",
        "vector_library": "none",
        "emitter": "spmd",
        "coarsening": "on",
    }
    return CpuCompiler(attrs.evolve(host, name="aarch64", details=tuple(sorted(details.items())), subgroup_size=4))


@pytest.mark.parametrize("name", KERNELS)
def test_arithmetic_is_done_on_vectors_alone(compiler: CpuCompiler, name: str) -> None:
    body, types, wanted = KERNELS[name]
    block = (8, 32) if F2 in types.values() else (256,)
    assembly = compiler.assembly(lowered(module_of(body, block=block, **types), CONTIGUOUS, compiler))
    assert re.search(wanted, assembly)
    assert not re.search(r"\b(fmul|fmadd|fadd|fsub|fcmp|fdiv)\s+[sdh]\d", assembly)
    assert not re.search(r"\bbl\s", assembly)  # Nothing is called lane by lane.


def test_the_loop_of_a_matrix_product_keeps_its_sums_in_registers(compiler: CpuCompiler) -> None:
    body, types, _ = KERNELS["matmul"]
    assembly = compiler.assembly(lowered(module_of(body, block=(8, 32), **types), CONTIGUOUS, compiler))
    loops = re.findall(r"^(\.LBB\w+):\n((?:(?!^\.LBB).*\n)*?)\s+b\.\w+\s+\1\n", assembly, re.MULTILINE)
    inner = max((text for _, text in loops), key=lambda text: len(re.findall(r"fmla\s", text)))
    assert len(re.findall(r"fmla\s", inner)) >= 16
    assert "sp" not in re.findall(r"\[(\w+)", inner)


def test_whole_steps_of_divergent_code_have_no_branch_for_each_lane(compiler: CpuCompiler) -> None:
    """Loads and stores under a mask go lane by lane here; so the copy for when every lane is on has to be there."""
    body, types, _ = KERNELS["branches"]
    assembly = compiler.assembly(lowered(module_of(body, **types), CONTIGUOUS, compiler))
    blocks = re.split(r"^\.LBB\w+:\n", assembly, flags=re.MULTILINE)
    whole = [
        block for block in blocks if len(re.findall(r"(?:fmul|fmla|fadd)\s+v\d+\.4s", block)) >= 8 and "ldp\tq" in block
    ]
    assert whole
    assert not any(re.search(r"ld1\s+\{ v\d+\.s \}\[", block) for block in whole)
