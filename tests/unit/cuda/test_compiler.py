"""The half that compiles: what the text says, what NVRTC is asked for, and whose fault an error is."""

from __future__ import annotations

import pickle
import re
from typing import Any

import attrs
import pytest
from tests.unit import ir_by_hand as ir
from tests.unit.cuda import harness
from tests.unit.cuda.harness import STRIDED, WHOLE, compiled, compiler, lowered

from quernel.dtypes import ArrayType, ScalarType, bf16, bool_, f16, f32, f64, i64, u8
from quernel.errors import CompilationError, DeviceError, ValidationError
from quernel.geometry import LaunchForm
from quernel.ir.nodes import (
    Alloc,
    Barrier,
    Binary,
    BinaryOp,
    Break,
    Cast,
    For,
    If,
    IndexKind,
    LocalVariable,
    Loop,
    Math,
    MathFunction,
    Module,
    Param,
    Return,
    RootKind,
    Space,
)
from quernel.locations import Location
from quernel.options import KernelOptions
from quernel_cuda import _toolchain
from quernel_cuda.compiler import DYNAMIC_SHARED, ROW
from quernel_cuda.target import ptx_for_driver
from quernel_cuda.targets import named_target, target_of_device
from quernel_cuda.types import PTX

SOURCE = """
template <typename T>
__global__ void scaled(T a, const T *x, long long n, long long sx, T *y, long long m, long long sy)
{
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) y[i * sy] = a * x[i * sx];
}
"""


def saxpy(**options: bool) -> Module:
    params = (ir.scalar("a", f32), ir.array("x", f32), ir.array("y", f32))
    product = Binary(op=BinaryOp.MUL, left=Param(name="a", type=f32), right=ir.load("x", f32))
    value = Binary(op=BinaryOp.ADD, left=product, right=ir.load("y", f32))
    return ir.kernel(params, (ir.store("y", value),), block=(64,), options=KernelOptions(**options), name="saxpy")


# --- targets ----------------------------------------------------------------------------------------------------------


def test_a_named_target_is_that_of_a_device() -> None:
    assert named_target("sm_90") == target_of_device(9, 0)


@pytest.mark.parametrize(
    ("name", "kib"), [("sm_75", 64), ("sm_80", 163), ("sm_86", 99), ("sm_90", 227), ("sm_120", 99)]
)
def test_shared_memory_is_the_architectures(name: str, kib: int) -> None:
    assert named_target(name).limits.max_shared_bytes == kib * 1024


@pytest.mark.parametrize("name", ["", "sm_70", "90", "sm_9", "gpu"])
def test_what_is_no_target_is_refused(name: str) -> None:
    with pytest.raises(DeviceError, match="is no CUDA target"):
        named_target(name)


def test_an_unknown_architecture_names_the_known_ones() -> None:
    with pytest.raises(DeviceError, match=r"does not know sm_99; it knows .*sm_90"):
        named_target("sm_99")


def test_a_device_newer_than_nvrtc_gets_ptx_of_the_newest_that_it_knows() -> None:
    made = target_of_device(99, 0)
    assert made.name == "sm_990"
    newest = max(_toolchain.supported_architectures())
    assert (made.detail("architecture"), made.detail("code")) == (f"compute_{newest}", "ptx")


def test_a_device_older_than_nvrtc_is_refused_with_another_way() -> None:
    with pytest.raises(DeviceError, match=r"7\.0 is older than 7\.5"):
        target_of_device(7, 0)


def test_fingerprints_tell_architectures_apart() -> None:
    prints = {named_target(name).fingerprint for name in ("sm_80", "sm_90", "compute_90")}
    assert len(prints) == 3


# --- texts ------------------------------------------------------------------------------------------------------------


def test_four_points_of_four_bytes_are_asked_for_before_any_is_stored() -> None:
    made = lowered(compiler(), saxpy())
    assert made.header.points_per_thread == 4
    whole = made.text[made.text.index("if (extent0 - position0 > 192LL)") : made.text.index("} else {")]
    assert whole.count("x[") == 4
    assert max(found.start() for found in re.finditer(r"= .*x\[", whole)) < whole.index("] = value")


@pytest.mark.parametrize(("dtype", "points"), [(f64, 2), (f32, 4), (u8, 4), (f16, 4)])
def test_points_fill_16_bytes(dtype: object, points: int) -> None:
    params = (ir.array("x", dtype), ir.array("y", dtype))  # type: ignore[arg-type]
    module = ir.kernel(params, (ir.store("y", ir.load("x", dtype)),))  # type: ignore[arg-type]
    assert lowered(compiler(), module).header.points_per_thread == points


def test_one_point_where_the_user_or_the_kernel_wants_it() -> None:
    assert lowered(compiler(), saxpy(), attrs.evolve(WHOLE, several_points=False)).header.points_per_thread == 1


def test_a_body_with_branches_runs_once_for_each_point() -> None:
    is_set = Cast(operand=ir.load("c", u8), type=bool_)
    branch = If(condition=is_set, then=(Return(),), otherwise=(ir.store("y", ir.const(1.0, f32)),))
    params = (ir.array("c", u8), ir.array("y", f32))
    made = lowered(compiler(), ir.kernel(params, (branch, ir.store("y", ir.const(2.0, f32))), block=(64,)))
    assert made.header.points_per_thread == 4
    loop = made.text[made.text.index("for (long long point = 0; point < 256LL && ") :]
    assert "continue;" in loop
    assert "return;" not in loop


@pytest.mark.parametrize(
    "body",
    [
        (Loop(body=(ir.store("y", ir.const(1.0, f32)), Break())),),
        (
            For(
                variable="k",
                start=ir.const(0),
                stop=ir.index(),
                step=ir.const(1),
                body=(ir.store("y", ir.const(1.0, f32)),),
            ),
        ),
        (
            For(
                variable="k",
                start=ir.const(0),
                stop=ir.const(200),
                step=ir.const(1),
                body=(ir.store("y", ir.const(1.0, f32)),),
            ),
        ),
        (For(variable="k", start=ir.const(0), stop=ir.const(2), step=ir.const(1), body=(Return(),)),),
    ],
    ids=["unknown end", "unknown trips", "many trips", "a return inside"],
)
def test_loops_that_are_long_or_left_by_return_keep_one_point(body: Any) -> None:
    locals_ = (LocalVariable(name="k", type=i64),)
    module = ir.kernel((ir.array("y", f32),), (*body, ir.store("y", ir.const(1.0, f32))))
    module = attrs.evolve(module, kernel=attrs.evolve(module.kernel, locals=locals_))
    assert lowered(compiler(), module).header.points_per_thread == 1


def test_long_mathematics_keeps_one_point() -> None:
    sine = Math(function=MathFunction.SIN, operands=(ir.load("x", f32),), type=f32)
    params = (ir.array("x", f32), ir.array("y", f32))
    assert lowered(compiler(), ir.kernel(params, (ir.store("y", sine),))).header.points_per_thread == 1


def test_blocks_of_two_axes_are_numbered_through() -> None:
    here = (ir.index(axis=0), ir.index(axis=1))
    module = ir.kernel((ir.array("y", f32, 2),), (ir.store("y", ir.const(1.0, f32), *here),), block=(8, 32))
    made = lowered(compiler(), module)
    assert ROW in made.header.features
    assert "blockIdx.x % blocks1" in made.text
    assert "blockIdx.y" not in made.text


def test_narrow_indices_are_of_the_variant() -> None:
    assert "(int)" in lowered(compiler(), saxpy(), WHOLE).text
    assert "(int)" not in lowered(compiler(), saxpy(), STRIDED).text


def test_contiguous_arrays_have_no_last_stride() -> None:
    assert "x_stride0" not in lowered(compiler(), saxpy(), WHOLE).text
    assert "x_stride0" in lowered(compiler(), saxpy(), STRIDED).text


def test_16_bit_floats_need_no_header() -> None:
    params = (ir.array("x", f16), ir.array("y", bf16))
    value = Cast(operand=ir.load("x", f16), type=bf16)
    made = lowered(compiler(), ir.kernel(params, (ir.store("y", value),)))
    assert "cvt.f32.f16" in made.text
    assert "#include" not in made.text


def test_the_bits_of_an_f16_leave_their_conversion_as_more_than_16() -> None:
    params = (ir.array("x", f32), ir.array("y", f16))
    made = lowered(compiler(), ir.kernel(params, (ir.store("y", Cast(operand=ir.load("x", f32), type=f16)),)))
    assert "mov.b32 %0, {half, none}" in made.text, "CUDA 13.0 converts numbers where a byte of 16 bits is stored"
    assert '"=h"' not in made.text


def shared(count: int) -> Module:
    here = ir.index(IndexKind.LOCAL_ID)
    body = (
        Alloc(name="s", space=Space.SHARED, element=f32, shape=(count,)),
        ir.store("s", ir.load("x", f32, here), here, kind=RootKind.SHARED),
        Barrier(),
        ir.store("x", ir.load("s", f32, here, kind=RootKind.SHARED), here),
    )
    return ir.kernel((ir.array("x", f32),), body, form=LaunchForm.GRID)


def test_more_than_48_kib_of_shared_memory_is_asked_for_at_the_launch() -> None:
    small, large = (compiled(compiler(), shared(count)).header for count in (12 * 1024, 12 * 1024 + 1))
    assert DYNAMIC_SHARED not in small.features
    assert DYNAMIC_SHARED in large.features
    assert large.shared_bytes == 48 * 1024 + 4


def test_more_shared_memory_than_the_architecture_has_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"takes 240000 bytes of shared memory; cuda:sm_90 allows 232448"):
        lowered(compiler(), shared(60_000))


# --- what NVRTC makes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_90", "sm_120"])
def test_cubins_say_registers_spills_and_bytes(architecture: str) -> None:
    artifact = compiled(compiler(architecture), saxpy())
    facts = dict(artifact.header.statistics)
    assert artifact.payload.startswith(b"\x7fELF")
    assert artifact.header.entry == "saxpy"
    assert 8 <= facts["registers"] <= 64
    assert facts["spills"] == 0
    assert facts["code_bytes"] == len(artifact.payload)


def test_contraction_is_ours_alone() -> None:
    made = lowered(compiler(), saxpy(contract=False))
    assert "fma.rn.f32" not in compiler().ptx(made)
    assert "--fmad=false" in made.options


def test_fast_mathematics_never_asks_for_use_fast_math() -> None:
    made = lowered(compiler(), saxpy(fast_math=True))
    assert "--ftz=true" in made.options
    assert not [option for option in made.options if "use_fast_math" in option]


def test_a_target_of_ptx_gives_ptx() -> None:
    artifact = compiled(compiler("compute_80"), saxpy())
    assert PTX in artifact.header.features
    assert b".target sm_80" in artifact.payload


def test_a_compiler_pickles_and_gives_the_same() -> None:
    again = pickle.loads(pickle.dumps(compiler()))
    assert compiled(again, saxpy()) == compiled(compiler(), saxpy())


def test_equal_kernels_of_other_names_are_equal_sources() -> None:
    one = saxpy()
    other = Module(kernel=attrs.evolve(one.kernel, name="axpy"))
    assert compiler().source(lowered(compiler(), one)) == compiler().source(lowered(compiler(), other))


def test_an_instance_of_a_template_is_a_kernel() -> None:
    params = {"a": ScalarType(f32), "x": ArrayType(f32, 1), "y": ArrayType(f32, 1)}
    artifact = compiled(compiler(), harness.foreign(SOURCE, "scaled<float>", params, ("y",)))
    assert artifact.header.entry.startswith("_Z")
    assert [parameter.is_written for parameter in artifact.header.params] == [False, False, True]


def test_a_ready_made_source_takes_arrays_without_rank_as_pointers_alone() -> None:
    text = """
    extern "C" __global__ void saxpy(float a, const float *x, float *y, long long n)
    {
        long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
        if (i < n) y[i] = a * x[i] + y[i];
    }
    """
    params = {"a": ScalarType(f32), "x": ArrayType(f32), "y": ArrayType(f32), "n": ScalarType(i64)}
    header = compiled(compiler(), harness.foreign(text, "saxpy", params, ("y",))).header
    assert [(slot.kind.value, slot.param) for slot in header.slots] == [
        ("scalar", 0),
        ("pointer", 1),
        ("pointer", 2),
        ("scalar", 3),
    ]
    assert header.statistics


def test_a_source_without_the_entry_says_so() -> None:
    with pytest.raises(CompilationError, match="missing"):
        compiled(compiler(), harness.foreign(SOURCE, "missing", {}, ()))


def test_an_error_in_an_own_source_says_what_and_brings_the_log() -> None:
    with pytest.raises(CompilationError, match='identifier "undefined_name" is undefined') as caught:
        compiled(compiler(), harness.foreign('extern "C" __global__ void k() { undefined_name(); }', "k", {}, ()))
    assert any("undefined_name" in line for line in caught.value.chain)
    assert caught.value.fix == "mend the source"


def test_an_error_in_a_text_is_shown_at_the_users_line() -> None:
    made = lowered(compiler(), saxpy())
    number = next(n for n, line in enumerate(made.text.splitlines()) if "value = " in line)
    where = Location("user.py", 12, 4)
    lines = [*made.lines]
    lines[number] = where
    text = made.text.splitlines()
    text[number] = "        float value = nonsense;"
    broken = attrs.evolve(made, text="\n".join(text), lines=tuple(lines))
    with pytest.raises(CompilationError, match="nonsense") as caught:
        compiler().finalize(harness.ArtifactId(ir.definition(saxpy()).id, WHOLE), broken)
    assert caught.value.where == where


def test_ptx_is_written_down_to_what_the_driver_reads() -> None:
    ptx = b"//\n.version 9.5\n.target sm_90\n"
    assert b".version 9.0\n" in ptx_for_driver(ptx, (13, 0))
    assert b".version 8.5\n" in ptx_for_driver(ptx, (12, 6))
    assert ptx_for_driver(ptx, (13, 5)) == ptx
    assert ptx_for_driver(ptx, (14, 0)) == ptx
