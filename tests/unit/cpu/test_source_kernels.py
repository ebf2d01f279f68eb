from __future__ import annotations

import numpy as np
import pytest
from tests.unit.cpu.harness import CONTIGUOUS, STRIDED, Built

from quernel.compiler.definition import ForeignSource, KernelDefinition, Specialization
from quernel.dtypes import ArrayType, ScalarType, bool_, f32, f64
from quernel.errors import CompilationError, ValidationError
from quernel.geometry import LaunchForm
from quernel.identity import KernelId

SAXPY = """
define void @saxpy(i64 %i, float %a, i1 %negate, ptr %x, i64 %nx, i64 %sx, ptr %y, i64 %ny, i64 %sy) {
  %xo = mul i64 %i, %sx
  %yo = mul i64 %i, %sy
  %xp = getelementptr float, ptr %x, i64 %xo
  %yp = getelementptr float, ptr %y, i64 %yo
  %xv = load float, ptr %xp
  %yv = load float, ptr %yp
  %ax = fmul float %a, %xv
  %sum = fadd float %ax, %yv
  %minus = call float @turned(float %sum)
  %r = select i1 %negate, float %minus, float %sum
  store float %r, ptr %yp
  ret void
}
define float @turned(float %v) {
  %r = fneg float %v
  ret float %r
}
"""


def source_kernel(
    text: str,
    entry: str = "saxpy",
    language: str = "llvm-ir",
    form: LaunchForm = LaunchForm.OVER,
    block: tuple[int, ...] = (256,),
) -> KernelDefinition:
    params = (
        ("a", ScalarType(f32)),
        ("negate", ScalarType(bool_)),
        ("x", ArrayType(f32, 1)),
        ("y", ArrayType(f32, 1)),
    )
    return KernelDefinition(
        KernelId("saxpy", "1" * 64),
        Specialization(params, (), form, block),
        foreign=ForeignSource(language, text, entry, ("y",)),
    )


@pytest.mark.parametrize("negate", [False, True])
def test_llvm_ir_runs_once_per_thread(negate: bool) -> None:
    x, y = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
    built = Built(source_kernel(SAXPY), CONTIGUOUS)
    built.over(1000, 2.0, negate, x, y)
    assert np.array_equal(y, (2 * np.arange(1000) + 1) * (-1 if negate else 1))
    assert [(param.is_read, param.is_written) for param in built.header.params[2:]] == [(True, False), (True, True)]


def test_llvm_ir_gets_strides_of_views_and_runs_on_a_grid() -> None:
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    Built(source_kernel(SAXPY, form=LaunchForm.GRID, block=(8,)), STRIDED).grid(4, 1.0, False, x[::2], y[::-2])
    wanted = np.zeros(64, np.float32)
    wanted[::-2] = x[::2]
    assert np.array_equal(y, wanted)


def test_llvm_ir_may_call_the_c_library() -> None:
    text = """
declare double @cbrt(double)
define void @root(i64 %i, ptr %x, i64 %n, i64 %s) {
  %o = mul i64 %i, %s
  %p = getelementptr double, ptr %x, i64 %o
  %v = load double, ptr %p
  %r = call double @cbrt(double %v)
  store double %r, ptr %p
  ret void
}
"""
    definition = KernelDefinition(
        KernelId("root", "2" * 64),
        Specialization((("x", ArrayType(f64, 1)),), (), LaunchForm.OVER, (256,)),
        foreign=ForeignSource("llvm-ir", text, "root", ("x",)),
    )
    x = np.array([8.0, 27.0, -1.0])
    Built(definition).over(3, x)
    assert np.allclose(x, [2, 3, -1])


def test_bad_llvm_ir_is_refused_with_the_whole_message_of_llvm() -> None:
    with pytest.raises(CompilationError, match="LLVM refused the IR") as refusal:
        Built(source_kernel("define void @saxpy() {\n  %a = frob i32 1\n  ret void\n}"))
    assert any("expected instruction opcode" in line for line in refusal.value.chain)
    assert any("%a = frob i32 1" in line for line in refusal.value.chain)


def test_an_entry_of_another_type_is_refused_with_the_type_it_should_have() -> None:
    with pytest.raises(CompilationError, match=r"@saxpy is of type void \(i64\)") as refusal:
        Built(source_kernel("define void @saxpy(i64 %i) {\n  ret void\n}"))
    assert refusal.value.fix == "give it the type void (i64, float, i1, ptr, i64, i64, ptr, i64, i64)"


def test_a_missing_entry_is_refused() -> None:
    with pytest.raises(CompilationError, match="defines no function 'other'"):
        Built(source_kernel(SAXPY, entry="other"))


def test_an_entry_that_is_no_name_is_refused() -> None:
    with pytest.raises(CompilationError, match="is no name of a function"):
        Built(source_kernel(SAXPY, entry="a b"))


def test_another_language_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"written in 'cuda-c\+\+', which cpu targets do not compile"):
        Built(source_kernel(SAXPY, language="cuda-c++"))
