from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import quernel as qn
from quernel.errors import KernelSyntaxError, KernelTypeError, LaunchError


@qn.kernel
def saxpy(a: float, x: qn.Array[qn.f32], y: qn.Array[qn.f32]):
    """`y = a * x + y`."""
    i = qn.global_id()
    y[i] = a * x[i] + y[i]


@qn.kernel(block=64, fast_math=True)
def scale(x, factor=2.0):
    i = qn.global_id()
    x[i] = x[i] * factor


class Holder:
    @qn.kernel
    def inner(x):
        x[qn.global_id()] = 1


def test_kernel_looks_like_its_function() -> None:
    assert saxpy.__name__ == "saxpy"
    assert saxpy.__doc__ == "`y = a * x + y`."
    assert saxpy.__module__ == __name__
    assert repr(saxpy) == "<kernel saxpy(a, x, y)>"
    assert repr(scale) == "<kernel scale(x, factor), block=64, fast_math=True>"
    assert repr(saxpy.over((2, 3))) == "<saxpy over (2, 3), block (8, 32)>"
    assert repr(scale[3]) == "<scale on a grid of (3,), block (64,)>"


def test_call_without_a_shape_shows_both_forms() -> None:
    with pytest.raises(TypeError, match=r"saxpy\.over\(extent\)\(\.\.\.\).*saxpy\[grid, block\]\(\.\.\.\)"):
        saxpy(1.0, np.zeros(2), np.zeros(2))


@pytest.mark.parametrize("thing", [lambda x: x, print, 5, Holder, "kernel"])
def test_only_functions_written_with_def_become_kernels(thing: Any) -> None:
    with pytest.raises(KernelTypeError, match="not a function written with def"):
        qn.kernel(thing)


def test_star_arguments_are_refused_at_the_decorator() -> None:
    with pytest.raises(KernelSyntaxError, match=r"takes \*args"):

        @qn.kernel
        def wrong(*xs):
            pass


def test_options_make_another_kernel_and_leave_the_first_as_it_was() -> None:
    x = np.ones(4, np.float32)
    small = scale.options(block=8, fast_math=False, device="reference")
    assert repr(small) == "<kernel scale(x, factor), block=8, fast_math=False, device='reference'>"
    small.over(4)(x)
    assert x.tolist() == [2.0] * 4
    assert small.over(4)._geometry.block == (8,)
    assert scale.over(4)._geometry.block == (64,)
    assert scale.over(4, block=16)._geometry.block == (16,)
    assert scale.options(block=None).over(4)._geometry.block == (256,)
    assert not small._launchable.options.fast_math
    assert scale._launchable.options.fast_math
    with pytest.raises(TypeError, match="has no setting"):
        scale.options(a=1)  # type: ignore[arg-type]


def test_options_that_change_code_change_the_identity() -> None:
    ids = [
        kernel.specialize(x=qn.Array1[qn.f32], factor=1.0).definition.id.digest
        for kernel in (scale, scale.options(fast_math=False), scale.options(contract=False), scale.options(block=32))
    ]
    assert len(set(ids)) == 4
    same = scale.options(device="reference").specialize(x=qn.Array1[qn.f32], factor=1.0)
    assert same.definition.id.digest == ids[0]


@pytest.mark.parametrize("block", [0, -1, True, 1.5, (1, 2, 3, 4), ()])
def test_block_that_is_none_is_refused(block: Any) -> None:
    with pytest.raises(LaunchError, match="block"):
        qn.kernel(block=block)
    with pytest.raises(LaunchError, match="block"):
        saxpy.over(4, block=block)


def test_grid_forms(monkeypatch: Any) -> None:
    forms = {
        "3": saxpy[3],
        "3, 32": saxpy[3, 32],
        "(2, 3), (4, 8)": saxpy[(2, 3), (4, 8)],
        "(2, 3),": saxpy[(2, 3),],
    }
    shapes = {text: (launcher._geometry.grid, launcher._geometry.block) for text, launcher in forms.items()}
    assert shapes == {
        "3": ((3,), (256,)),
        "3, 32": ((3,), (32,)),
        "(2, 3), (4, 8)": ((2, 3), (4, 8)),
        "(2, 3),": ((2, 3), (8, 32)),
    }
    with pytest.raises(LaunchError, match=r"is a int, not a stream(?:.|\n)*fix: write a grid of three axes as a tuple"):
        saxpy[2, 3, 4]
    with pytest.raises(LaunchError, match="takes 1 to 3 parts"):
        saxpy[1, 2, None, 4]
    with pytest.raises(LaunchError, match="is a slice, not an integer"):
        saxpy[1:2]


@pytest.mark.parametrize("launch", [saxpy.over, saxpy.__getitem__, lambda array: saxpy[1, array]])
def test_array_in_the_place_of_its_shape_is_refused_with_what_to_take_of_it(launch: Any) -> None:
    for array in (np.zeros(3), qn.device("reference").zeros((3,))):
        with pytest.raises(LaunchError, match=r"is an array of shape \(3,\), not an integer(?:.|\n)*array\.shape"):
            launch(array)


def test_extents_that_an_array_in_their_place_is_said_to_have_are_taken() -> None:
    array = np.zeros((2, 3))
    seen = qn.device("reference").zeros((2, 3))

    @qn.kernel
    def mark(out):
        i, j = qn.global_id()
        out[i, j] = 1

    mark.over(array.shape, device="reference")(array)
    mark.over((seen.shape[0], 3), device="reference")(array)
    assert array.tolist() == [[1] * 3] * 2


@pytest.mark.parametrize("number", [np.float32(3), np.float64(3), np.array(3.0)])
def test_number_of_numpy_that_is_no_integer_is_not_called_an_array_with_a_shape(number: Any) -> None:
    with pytest.raises(LaunchError, match=r"extent .*3\..* is a \w+, not an integer(?:.|\n)*fix: pass in"):
        saxpy.over(number)


@pytest.mark.parametrize("extent", [-1, 2.5, True, (1, 2, 3, 4), range(0, 10, 2), "8", None])
def test_extent_that_is_none_is_refused_at_its_line(extent: Any) -> None:
    with pytest.raises(LaunchError, match="extent"):
        saxpy.over(extent)


def test_settings_may_be_names_of_parameters() -> None:
    @qn.kernel
    def odd(block, device, stream):
        i = qn.global_id()
        stream[i] = block + device

    out = np.zeros(2)
    odd.over(2, device="reference")(block=1.0, device=2.0, stream=out)
    assert out.tolist() == [3.0, 3.0]


def test_local_name_in_a_string_annotation_is_resolved_where_the_kernel_is_defined() -> None:
    Element = qn.f64

    @qn.kernel
    def put(x: qn.Array[Element], v: Element):
        x[qn.global_id()] = v

    Element = qn.u8  # too late to count
    out = np.zeros(2)
    put.over(2, device="reference")(out, 1)
    assert out.tolist() == [1.0, 1.0]


def test_decorator_with_arguments_resolves_local_names_too() -> None:
    Element = qn.u8

    @qn.kernel(block=32)
    def put(x: qn.Array[Element]):
        x[qn.global_id()] = 1

    with pytest.raises(KernelTypeError, match="is an array of u8 and got one of f64"):
        put.over(2, device="reference")(np.zeros(2))


# --- pickling ---------------------------------------------------------------------------------------------------------


def test_kernel_pickles_by_name_with_its_settings() -> None:
    assert pickle.loads(pickle.dumps(saxpy)) is saxpy
    assert copy.deepcopy(saxpy) is saxpy
    again = pickle.loads(pickle.dumps(scale.options(contract=False, block=None)))
    assert again._launchable.options.contract is False
    assert again._launchable.options.fast_math is True
    assert again._launchable.block is None
    assert pickle.loads(pickle.dumps(Holder.inner)) is Holder.inner


def test_kernel_with_a_device_pickles_its_name() -> None:
    again = pickle.loads(pickle.dumps(scale.options(device=qn.device("reference"))))
    assert again._launchable.device == "reference:0"
    with pytest.raises(TypeError, match="a device does not pickle; pass its name 'reference:0'"):
        pickle.dumps(qn.device("reference"))


def test_kernel_that_cannot_be_imported_does_not_pickle() -> None:
    @qn.kernel
    def local(x):
        x[qn.global_id()] = 1

    with pytest.raises(LaunchError, match="define it at the top of a module"):
        pickle.dumps(local)


def test_name_that_is_no_kernel_any_more_is_refused(monkeypatch: Any) -> None:
    data = pickle.dumps(scale.options(contract=False))
    monkeypatch.setitem(globals(), "scale", 5)
    with pytest.raises(KernelTypeError, match="is no kernel any more"):
        pickle.loads(data)


def test_unpickled_kernel_launches_elsewhere_with_the_same_identity(tmp_path: Path) -> None:
    (tmp_path / "shipped.py").write_text(
        "import quernel as qn\n"
        "@qn.kernel\n"
        "def twice(x: qn.Array1[qn.f64]):\n"
        "    i = qn.global_id()\n"
        "    x[i] = 2 * x[i]\n"
    )
    code = """
import pickle, sys
sys.path.insert(0, sys.argv[1])
import numpy as np
if sys.argv[2] == "dump":
    import shipped
    kernel = shipped.twice.options(contract=False, device="reference")
    open(sys.argv[1] + "/kernel", "wb").write(pickle.dumps(kernel))
else:
    kernel = pickle.load(open(sys.argv[1] + "/kernel", "rb"))
x = np.arange(3.0)
kernel.over(3)(x)
assert x.tolist() == [0, 2, 4]
print(kernel.specialize().definition.id.digest)
"""
    ran = [
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path), how], check=True, capture_output=True, text=True, timeout=60
        ).stdout
        for how in ("dump", "load")
    ]
    assert ran[0] == ran[1]
    assert len(ran[0].strip()) == 64


# --- source kernels ---------------------------------------------------------------------------------------------------

FILL = """
define void @fill(i64 %i, float %value, ptr %x, i64 %n, i64 %step) {
  %at = mul i64 %i, %step
  %where = getelementptr float, ptr %x, i64 %at
  store float %value, ptr %where
  ret void
}
"""


def test_ready_made_source_launches_as_a_kernel() -> None:
    fill = qn.source_kernel(
        "llvm-ir", FILL, entry="fill", params={"value": qn.f32, "x": qn.Array1[qn.f32]}, writes=["x"]
    )
    x = np.zeros(10, np.float32)
    fill.over(5, device="cpu")(value=3, x=x[::2])
    assert x.tolist() == [3, 0] * 5
    assert fill.writes == ("x",)
    assert fill.__name__ == "fill"
    x.setflags(write=False)
    with pytest.raises(LaunchError, match="writes parameter 'x', and the array is read-only"):
        fill.over(5, device="cpu")(3.0, x)
    with pytest.raises(KernelTypeError, match="parameter 'value' is f32 and got '3'"):
        fill.over(5, device="cpu")("3", np.zeros(5, np.float32))


DOUBLED = """
define void @doubled(i64 %i, i64 %n, ptr %x, ptr %y) {
  %inside = icmp slt i64 %i, %n
  br i1 %inside, label %work, label %end
work:
  %xp = getelementptr float, ptr %x, i64 %i
  %yp = getelementptr float, ptr %y, i64 %i
  %v = load float, ptr %xp
  %r = fadd float %v, %v
  store float %r, ptr %yp
  br label %end
end:
  ret void
}
"""


def doubled() -> qn.Kernel:
    params = {"n": qn.i64, "x": qn.Array[qn.f32], "y": qn.Array[qn.f32]}
    return qn.source_kernel("llvm-ir", DOUBLED, entry="doubled", params=params, writes=["y"])


def test_an_array_without_a_rank_is_passed_to_a_source_as_a_pointer_alone() -> None:
    kernel = doubled()
    for shape in ((24,), (4, 6), (2, 3, 4)):
        x, y = np.arange(24, dtype=np.float32).reshape(shape), np.zeros(shape, np.float32)
        for _ in range(4):  # Also where launchers are written for their arguments.
            kernel[3, 8](24, x, y)
            assert np.array_equal(y, 2 * x)
            y[:] = 0
    header = kernel.specialize().header
    assert [(slot.kind.value, slot.param) for slot in header.slots] == [("scalar", 0), ("pointer", 1), ("pointer", 2)]
    digests = {kernel.specialize(x=given).definition.id.digest for given in (qn.Array1[qn.f32], qn.Array3[qn.f32])}
    assert digests == {kernel.specialize().definition.id.digest}


@pytest.mark.parametrize("on_device", [False, True])
def test_an_array_that_is_passed_as_a_pointer_alone_must_be_contiguous(on_device: bool) -> None:
    kernel, cpu = doubled(), qn.device("cpu")
    x, y = np.arange(32, dtype=np.float32).reshape(4, 8), np.zeros((4, 8), np.float32)
    given = (cpu.array(x), cpu.array(y)) if on_device else (x, y)
    launcher = kernel[4, 8].bind
    for _ in range(4):
        kernel[4, 8](32, *given)
        with pytest.raises(LaunchError, match=r"takes parameter 'x' as a pointer alone, .* not C-contiguous") as caught:
            kernel[4, 8](16, given[0][:, ::2], given[1])
        assert "array.copy()" in (caught.value.fix or "")
        with pytest.raises(LaunchError, match="parameter 'y' as a pointer alone"):
            launcher(32, given[0], given[1][:, :4])
    kernel[1, 8](8, given[0][1], given[1][1:2])  # rows are contiguous
    found = given[1].numpy() if on_device else given[1]
    assert np.array_equal(found, 2 * x)
    kernel[4, 8](0, given[0][:0, ::2], given[1])


def test_the_contiguity_of_arrays_with_a_rank_is_nobodys_business() -> None:
    text = """
define void @first(i64 %i, ptr %x, ptr %y, i64 %n, i64 %s) {
  %o = mul i64 %i, %s
  %xp = getelementptr float, ptr %x, i64 %i
  %yp = getelementptr float, ptr %y, i64 %o
  %v = load float, ptr %xp
  store float %v, ptr %yp
  ret void
}
"""
    params = {"x": qn.Array[qn.f32], "y": qn.Array1[qn.f32]}
    kernel = qn.source_kernel("llvm-ir", text, entry="first", params=params, writes=["y"])
    x, y = np.arange(8, dtype=np.float32), np.zeros(16, np.float32)
    for _ in range(3):
        kernel.over(8, device="cpu")(x, y[::2])
        assert np.array_equal(y[::2], x)
        y[:] = 0


def test_source_kernel_needs_exact_types_and_real_names() -> None:
    with pytest.raises(KernelTypeError, match="parameter 'x' of source kernel f has no exact type"):
        qn.source_kernel("llvm-ir", FILL, entry="f", params={"x": qn.Array})
    with pytest.raises(KernelTypeError, match="parameter 'n' of source kernel f has no exact type"):
        qn.source_kernel("llvm-ir", FILL, entry="f", params={"n": qn.Const[int]})
    with pytest.raises(KernelTypeError, match="has no array parameter 'y'"):
        qn.source_kernel("llvm-ir", FILL, entry="f", params={"x": qn.Array1[qn.f32]}, writes=["y"])


def test_source_in_a_language_of_another_device_is_refused() -> None:
    kernel = qn.source_kernel("cuda-c++", "", entry="f", params={"x": qn.Array1[qn.f32]})
    for device in ("cpu", "reference"):
        with pytest.raises(qn.errors.ValidationError, match=r"cuda-c\+\+"):
            kernel.over(4, device=device)(np.zeros(4, np.float32))


def test_source_kernels_differ_by_their_text() -> None:
    made = [
        qn.source_kernel("llvm-ir", text, entry="fill", params={"value": qn.f32, "x": qn.Array1[qn.f32]}, writes=["x"])
        for text in (FILL, FILL + "\n", FILL)
    ]
    digests = [kernel.specialize().definition.id.digest for kernel in made]
    assert digests[0] == digests[2] != digests[1]
