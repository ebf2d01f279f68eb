"""A backend of tables, `finalize` and a loop round the kernel: what a third party writes for a language like C."""

from __future__ import annotations

import logging
import pickle
import re
import subprocess
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from tests.unit.ir_by_hand import array, const, definition, index, kernel, load, scalar, store

from quernel.codegen.names import Names
from quernel.compiler import (
    AlignedVariant,
    ArgumentPacker,
    ArtifactId,
    CompilationRecording,
    ForeignSource,
    KernelDefinition,
    Specialization,
)
from quernel.compiler.arguments import ArrayArgument
from quernel.dtypes import ArrayType, ScalarType, StructField, StructType, VectorType, f16, f32, f64, i32, i64, u8
from quernel.errors import CompilationError, ValidationError
from quernel.geometry import Geometry, LaunchForm, extent_geometry, grid_geometry
from quernel.identity import KernelId
from quernel.ir.nodes import (
    Atomic,
    AtomicOp,
    Barrier,
    Binary,
    BinaryOp,
    Cast,
    Fma,
    IndexKind,
    Module,
    Param,
    Parameter,
    Place,
    Root,
    RootKind,
    Store,
    VecGet,
    VecMake,
)
from quernel.locations import Location
from quernel.runtime.layouts import INDEX32, strided_layout
from quernel.runtime.operations import DeviceInfo, Unavailable
from quernel_c._toolchain import find_toolchain
from quernel_c.compiler import CCompiler, target_of
from quernel_c.device import CDevice
from quernel_c.lowering import DIALECT
from quernel_c.target import CTarget

TOOLCHAIN = find_toolchain()
if isinstance(TOOLCHAIN, Unavailable):
    pytest.skip(f"needs a C compiler: {TOOLCHAIN.reason}", allow_module_level=True)
COMPILER = CCompiler(target_of(TOOLCHAIN))

LOG = logging.getLogger(__name__)
INFO = DeviceInfo("c", 0, "host", "cpu")
WHOLE = AlignedVariant(aligned16=True, contiguous=True, index32=True)


def made(of: Module | KernelDefinition) -> KernelDefinition:
    return definition(of) if isinstance(of, Module) else of


def lowered(of: Module | KernelDefinition, variant: AlignedVariant = WHOLE) -> Any:
    kernel_id = ArtifactId(made(of).id, variant)
    return COMPILER.lower(made(of), kernel_id, CompilationRecording(), LOG)


def run(of: Module | KernelDefinition, geometry: Geometry, *arguments: Any, variant: AlignedVariant = WHOLE) -> None:
    device, kernel_id = CDevice(INFO, CTarget(COMPILER)), ArtifactId(made(of).id, variant)
    artifact = device.target.compiler.finalize(kernel_id, lowered(of, variant))
    loaded = device.target.load(kernel_id, artifact)
    given = [
        ArrayArgument(item.ctypes.data, item.shape, tuple(stride // item.itemsize for stride in item.strides))
        if isinstance(item, np.ndarray)
        else item
        for item in arguments
    ]
    cells = ArgumentPacker(artifact.header)(given, geometry)
    device.launch(loaded, artifact.header, geometry, cells, None)


def saxpy() -> Module:
    value = Fma(a=Param(name="a", type=f32), b=load("x", f32), c=load("y", f32))
    params = (scalar("a", f32), array("x", f32), array("y", f32))
    return kernel(params, (store("y", value),), name="saxpy")


def test_every_point_runs_once_and_none_beyond_the_extent() -> None:
    x, y = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
    run(saxpy(), extent_geometry(990, (64,)), 2.0, x, y)
    assert np.array_equal(y, np.where(np.arange(1000) < 990, 2 * x + 1, 1))


@pytest.mark.parametrize("variant", [AlignedVariant(), AlignedVariant(index32=True)])
def test_strides_are_arguments_of_what_is_not_contiguous(variant: AlignedVariant) -> None:
    x, y = np.arange(200, dtype=np.float32)[::2], np.zeros(300, np.float32)[::-3]
    run(saxpy(), extent_geometry(100, (64,)), 3.0, x, y, variant=variant)
    assert np.array_equal(y, 3 * x)


def test_axes_are_in_array_order() -> None:
    here = (index(axis=0), index(axis=1))
    value = Binary(op=BinaryOp.ADD, left=Binary(op=BinaryOp.MUL, left=here[0], right=const(100)), right=here[1])
    y = np.zeros((7, 33), np.int64)
    module = kernel((array("y", i64, 2),), (store("y", value, *here),), block=(4, 8))
    run(module, extent_geometry((7, 33), (4, 8)), y)
    assert np.array_equal(y, np.add.outer(100 * np.arange(7), np.arange(33)))


def test_atomics_count_every_thread_of_a_grid() -> None:
    place = Place(root=Root(RootKind.PARAM, "n"), indices=(const(0),), type=i32)
    add = Atomic(op=AtomicOp.ADD, place=place, operands=(const(1, i32),), result=None)
    n = np.zeros(1, np.int32)
    run(kernel((array("n", i32),), (add,), form=LaunchForm.GRID, block=(32,)), grid_geometry(5, (32,)), n)
    assert n[0] == 160


def test_vectors_are_structs_and_half_floats_are_bits() -> None:
    pair = VectorType(f32, 2)
    made = VecMake(components=(Cast(operand=load("h", f16), type=f32), const(0.5, f32)), type=pair)
    parts = tuple(VecGet(operand=made, index=number, type=f32) for number in (0, 1))
    total = Binary(op=BinaryOp.ADD, left=parts[0], right=parts[1])
    h, y = np.arange(10, dtype=np.float16), np.zeros(10, np.float32)
    run(kernel((array("h", f16), array("y", f32)), (store("y", total),)), extent_geometry(10, (64,)), h, y)
    assert np.array_equal(y, np.arange(10) + 0.5)


def test_what_the_target_has_not_is_refused_by_name() -> None:
    module = kernel((array("y", u8),), (Barrier(),), form=LaunchForm.GRID)
    with pytest.raises(ValidationError, match=r"the target c:.* has no barriers"):
        lowered(module)


def test_a_complaint_of_the_compiler_is_shown_at_the_users_line() -> None:
    text = lowered(saxpy())
    where = Location("user.py", 12, 4)
    number = next(n for n, line in enumerate(text.text.splitlines()) if "fmaf(" in line)
    lines = [*text.lines]
    lines[number] = where
    broken = text.text.replace("fmaf(", "nonsense + fmaf(")
    with pytest.raises(
        CompilationError, match=r"kernel saxpy: the C compiler refuses the text: .nonsense. undeclared"
    ) as caught:
        COMPILER.finalize(ArtifactId(made(saxpy()).id, WHOLE), attrs.evolve(text, text=broken, lines=tuple(lines)))
    assert caught.value.where == where


def test_equal_kernels_of_other_names_are_equal_sources() -> None:
    one = saxpy()
    other = Module(kernel=attrs.evolve(one.kernel, name="axpy"))
    assert COMPILER.source(lowered(one)) == COMPILER.source(lowered(other))


def test_the_compiler_pickles() -> None:
    again = pickle.loads(pickle.dumps(COMPILER))
    assert (again.build_id, again.target_info) == (COMPILER.build_id, COMPILER.target_info)


def foreign(entry: str, language: str = "c") -> KernelDefinition:
    text = """
    #include <stdint.h>
    void doubled(const unsigned char *cells, const int64_t *grid)
    {
        double a = *(double *)cells, *x = *(double **)(cells + 8);
        int64_t n = *(int64_t *)(cells + 16), stride = *(int64_t *)(cells + 24);
        for (int64_t i = 0; i < n; i++) x[i * stride] *= a;
    }
    """
    parameters = (("a", ScalarType(f64)), ("x", ArrayType(f64, 1)))
    specialization = Specialization(parameters, (), LaunchForm.GRID, (64,))
    return KernelDefinition(
        KernelId("doubled", "1" * 64), specialization, foreign=ForeignSource(language, text, entry, ("x",))
    )


def test_a_ready_made_source_gets_lengths_and_strides_in_elements() -> None:
    x = np.arange(20, dtype=np.float64)
    run(foreign("doubled"), grid_geometry(1, (64,)), 3.0, x[::2])
    assert np.array_equal(x[::2], 3.0 * np.arange(0, 20, 2))
    assert np.array_equal(x[1::2], np.arange(1, 20, 2))


def test_a_ready_made_source_in_another_language_is_refused() -> None:
    with pytest.raises(ValidationError, match="'llvm-ir', which c targets do not compile"):
        lowered(foreign("doubled", "llvm-ir"))


@pytest.mark.parametrize("entry", ["", "a b", "k; -o /tmp/x", "9", "k<float>"])
def test_an_entry_that_is_no_name_never_reaches_the_compiler(entry: str) -> None:
    with pytest.raises(ValidationError, match="is no name of a function in 'c'"):
        lowered(foreign(entry))


def test_indices_of_a_grid_are_the_loops() -> None:
    block = index(IndexKind.BLOCK_ID)
    y = np.zeros(12, np.int64)
    body = (store("y", block, index()),)
    run(kernel((array("y", i64),), body, form=LaunchForm.GRID, block=(4,)), grid_geometry(3, (4,)), y)
    assert y.tolist() == [0] * 4 + [1] * 4 + [2] * 4


def test_no_name_of_a_user_is_that_of_a_header(tmp_path: Path) -> None:
    """Macros would change the user's text, and functions of the library clash with `qn.func`s of their names."""
    headers = "\n".join(line for line in DIALECT.preamble if line.startswith("#include"))
    (tmp_path / "headers.c").write_text(headers)
    said = subprocess.run([TOOLCHAIN.path, *TOOLCHAIN.flags, "-dD", "-E", tmp_path / "headers.c"], capture_output=True)
    text = said.stdout.decode()
    macros = re.findall(r"^#define (\w+)", text, re.MULTILINE)
    declared = re.findall(r"\b(\w+) \([^()]*\) __attribute__", re.sub(r"^#.*$", "", text, flags=re.MULTILINE))
    names = Names(DIALECT.reserved)
    taken = [name for name in {*macros, *declared} if not name.startswith("_") and names.fresh(name) == name]
    assert len(macros) > 200
    assert "lgamma" in declared
    assert taken == []


def test_offsets_that_fit_32_bits_are_computed_in_them() -> None:
    here = (index(axis=0), index(axis=1))
    module = kernel((array("y", f32, 2),), (store("y", const(1.0, f32), *here),), block=(1, 8))
    assert re.search(r"y\[\(int32_t\)\(.*\) \* \(int32_t\)y_stride0 \+ \(int32_t\)\(", lowered(module).text)
    assert "(int32_t)" not in lowered(module, AlignedVariant(contiguous=True)).text


def test_the_stride_of_a_single_row_may_be_of_any_length() -> None:
    here = (index(axis=0), index(axis=1))
    module = kernel((array("y", f32, 2),), (store("y", const(1.0, f32), *here),), block=(1, 8))
    y = np.zeros(50, np.float32)
    row = np.lib.stride_tricks.as_strided(y, (1, 50), ((1 << 42) + 4, 4))
    assert strided_layout(row.shape, row.strides, 4)[0] & INDEX32
    run(module, extent_geometry((1, 50), (1, 8)), row)
    assert y.all()


def test_bytes_of_structs_are_counted_in_64_bits() -> None:
    pair = StructType("pair", (StructField("a", f64, 0), StructField("b", f64, 8)), 16, 8)
    place = Place(root=Root(RootKind.PARAM, "y"), indices=(index(),), type=f64, view=("b",))
    module = kernel((Parameter(name="y", type=ArrayType(pair, 1)),), (Store(place=place, value=const(1.0, f64)),))
    assert re.search(r"\(int64_t\)\(\(int32_t\)\(.*\)\) \* 16 \+ 8\)", lowered(module).text)
    y = np.zeros(20, [("a", "f8"), ("b", "f8")])
    run(module, extent_geometry(20, (64,)), y)
    assert y["b"].all()
    assert not y["a"].any()
