"""What the object code is like: vectorised, portable between processes, and equal for equal kernels."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.unit.cpu.harness import CONTIGUOUS, STRIDED, Built, compiler, lowered
from tests.unit.ir_by_hand import add, array, const, global_id, kernel, load, mul, scalar, store

from quernel.dtypes import f32, i64
from quernel.ir.nodes import Binary, BinaryOp, Compare, CompareOp, Fma, If, Module, Param, Return
from quernel.options import KernelOptions
from quernel_cpu import _toolchain
from quernel_cpu.compiler import CpuCompiler
from quernel_cpu.targets import host_target, named_target

is_x86 = _toolchain.host()[0].startswith("x86_64")
needs_x86 = pytest.mark.skipif(not is_x86, reason="needs an x86-64 machine: it reads that assembly")


def saxpy() -> Module:
    value = Fma(a=Param(name="a", type=f32), b=load("x", f32), c=load("y", f32))
    return kernel((scalar("a", f32), array("x", f32), array("y", f32)), (store("y", value),))


def box_blur() -> Module:
    """The mean of nine neighbours, for an extent that leaves out the edge."""
    total = None
    for row in (-1, 0, 1):
        for column in (-1, 0, 1):
            item = load("x", f32, add(global_id(0), const(row)), add(global_id(1), const(column)))
            total = item if total is None else add(total, item)
    assert total is not None
    body = (store("y", mul(total, const(0.125, f32)), global_id(0), global_id(1)),)
    return kernel((array("x", f32, 2), array("y", f32, 2)), body, block=(8, 32))


@needs_x86
def test_saxpy_is_vectorised() -> None:
    assembly = compiler().assembly(lowered(saxpy(), CONTIGUOUS))
    assert re.search(r"vfmadd\d+ps\s.*%[yz]mm" if "avx2" in host_target().detail("features") else r"mulps", assembly)
    assert re.search(r"movu?ps\s+%[xyz]mm\d+, .*\(%r", assembly), "stores whole vectors"


@needs_x86
@pytest.mark.parametrize(("level", "register"), [("x86-64", "xmm"), ("x86-64-v3", "ymm"), ("x86-64-v4", "[yz]mm")])
def test_a_blur_is_vectorised_for_every_level(level: str, register: str) -> None:
    from tests.unit.cpu.harness import LOG
    from tests.unit.ir_by_hand import definition

    from quernel.compiler.artifacts import ArtifactId
    from quernel.compiler.recording import CompilationRecording

    made = CpuCompiler(named_target(level))
    blur = definition(box_blur())
    low = made.lower(blur, ArtifactId(blur.id, CONTIGUOUS), CompilationRecording(), LOG)
    assert re.search(rf"addps\s.*%{register}", made.assembly(low))


@needs_x86
def test_a_guarded_store_is_vectorised_under_a_mask() -> None:
    guard = If(
        condition=Compare(op=CompareOp.LT, left=load("x", f32), right=const(0.0, f32)),
        then=(Return(),),
        otherwise=(store("y", Binary(op=BinaryOp.MUL, left=load("x", f32), right=load("x", f32))),),
    )
    if "avx2" not in host_target().detail("features"):
        pytest.skip("needs AVX2, which has masked stores")
    low = lowered(kernel((array("x", f32), array("y", f32)), (guard,)), CONTIGUOUS)
    assert re.search(r"mulps\s.*%[yz]mm", compiler().assembly(low))


def test_overlapping_arrays_are_updated_as_the_single_threads_would() -> None:
    """The same array twice: each thread reads what it is about to replace."""
    y = np.arange(1000, dtype=np.float32)
    Built(saxpy(), CONTIGUOUS).over(1000, 3.0, y, y)
    assert np.array_equal(y, np.arange(1000, dtype=np.float32) * 4)


def test_a_thread_reads_what_it_wrote_through_another_name() -> None:
    body = (store("x", mul(load("x", i64), const(5))), store("y", add(load("y", i64), load("x", i64))))
    x = np.arange(500, dtype=np.int64)
    Built(kernel((array("x", i64), array("y", i64)), body), CONTIGUOUS).over(500, x, x)
    assert np.array_equal(x, np.arange(500) * 10)


def test_a_blur_equals_numpy() -> None:
    x = np.random.default_rng(0).integers(0, 100, (37, 53)).astype(np.float32)
    for variant, image in ((CONTIGUOUS, x), (STRIDED, np.asfortranarray(x))):
        y = np.zeros_like(x)
        Built(box_blur(), variant).over((range(1, 36), range(1, 52)), image, y)
        wanted = sum(x[1 + r : 36 + r, 1 + c : 52 + c] for r in (-1, 0, 1) for c in (-1, 0, 1)) * np.float32(0.125)
        assert np.array_equal(y[1:36, 1:52], wanted)
        assert not y[0].any()
        assert not y[:, 0].any()


def test_equal_kernels_are_equal_objects() -> None:
    assert lowered(saxpy(), CONTIGUOUS) == lowered(saxpy(), CONTIGUOUS)


def test_fast_math_marks_operations_but_never_says_that_there_is_no_nan() -> None:
    options = KernelOptions(fast_math=True)
    value = add(mul(load("x", f32), load("x", f32)), load("y", f32))
    text = lowered(kernel((array("x", f32), array("y", f32)), (store("y", value),), options=options)).ir
    assert re.search(r"(fadd|call) reassoc arcp afn (<\d+ x )?float", text)
    assert "nnan" not in text
    assert "fast" not in text.replace("fastcc", "")


def test_optimised_ir_and_assembly_can_be_shown() -> None:
    low = lowered(saxpy(), CONTIGUOUS)
    assert "define void @quernel_entry" in compiler().optimized_ir(low)
    assert "quernel_entry:" in compiler().assembly(low)


def test_lowered_artifact_and_compiler_pickle() -> None:
    low = lowered(saxpy(), CONTIGUOUS)
    assert pickle.loads(pickle.dumps(low)) == low
    again = pickle.loads(pickle.dumps(compiler()))
    assert (again.target_info, again.build_id) == (compiler().target_info, compiler().build_id)


LOADING = """
import sys
import numpy as np
from quernel.compiler.artifacts import ArtifactHeader, ArtifactId
from quernel.geometry import extent_geometry
from quernel.identity import KernelId
from quernel_cpu.plugin import quernel_backend
from quernel_cpu.types import CpuArtifact, CpuVariant
import quernel_cpu._toolchain as toolchain

toolchain.compile_ir = None  # nothing may be compiled here
header, payload = (open(path, "rb").read() for path in sys.argv[1:3])
artifact = CpuArtifact(ArtifactHeader.from_bytes(header), payload)
backend = quernel_backend()
device = backend.open(backend.devices()[0])
loaded = device.target.load(ArtifactId(KernelId("k", "0" * 64), CpuVariant(contiguous=True)), artifact)
x, y = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
cells = np.float32(2).tobytes().ljust(8, b"\\0") + np.array([x.ctypes.data, y.ctypes.data], np.uint64).tobytes()
device.launch(loaded, artifact.header, extent_geometry(1000, (256,)), cells, None)
assert np.array_equal(y, 2 * x + 1)
heavy = {"ast", "quernel.ir", "quernel.lang", "click", "rich", "filelock", "diskcache", "pluggy"}
import numpy, attrs
print(sorted(heavy & set(sys.modules) - {"ast"}))
"""


def test_object_code_runs_in_another_process_without_compiling_or_ir(tmp_path: Path) -> None:
    artifact = Built(saxpy(), CONTIGUOUS).artifact
    (tmp_path / "header").write_bytes(artifact.header.to_bytes())
    (tmp_path / "payload").write_bytes(artifact.payload)
    run = subprocess.run(
        [sys.executable, "-c", LOADING, str(tmp_path / "header"), str(tmp_path / "payload")],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONWARNINGS": "error"},
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "[]"
