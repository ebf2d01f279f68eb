from __future__ import annotations

import gc
import re
import threading
from typing import Any

import numpy as np
import pytest
from tests.unit.runtime.scripted import ScriptedBackend, ScriptedDevice, Variant

import quernel as qn
from quernel.capabilities import Limits
from quernel.compiler.artifacts import ArtifactHeader, SlotKind
from quernel.errors import DeviceError, KernelTypeError, LaunchError, ValidationError
from quernel.installing import install_backend
from quernel.runtime.devices import Device
from quernel.runtime.interceptors import LaunchMode
from quernel.runtime.ready import RequestedLaunch, _check_shared

SCALE = 2


@qn.kernel
def saxpy(a: float, x: qn.Array[qn.f32], y: qn.Array[qn.f32]):
    i = qn.global_id()
    y[i] = a * x[i] + y[i]


@qn.kernel
def untyped(n, out):
    i = qn.global_id()
    out[i] = out[i] + n


@qn.kernel
def typed(n: qn.i32, f: qn.f32, out: qn.Array[qn.f64]):
    out[qn.global_id()] = n * f


@qn.kernel
def powers(x: qn.Array1[qn.f32], n: qn.Const[int] = 2):
    i = qn.global_id()
    x[i] = x[i] ** n


@qn.kernel
def scaled(x: qn.Array[qn.i64]):
    x[qn.global_id()] = SCALE


@qn.kernel
def counted(x: qn.Array[qn.f64]):
    i = qn.global_id()
    x[i] = x[i] + 1


@qn.kernel
def ids2(out: qn.Array2[qn.i64]):
    row, column = qn.global_id()
    out[row, column] = 10 * row + column


@pytest.fixture(params=["cpu", "reference"])
def host(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def arrays(n: int = 8) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    return np.arange(n, dtype=np.float32), np.ones(n, np.float32)


# --- what runs --------------------------------------------------------------------------------------------------------


def test_numpy_arrays_are_written_in_place_by_the_best_host_device() -> None:
    x, y = arrays()
    assert saxpy.over(len(x))(2.0, x, y) is None
    assert y.tolist() == (2 * x + 1).tolist()


def test_keywords_defaults_and_positions_mean_the_same(host: str) -> None:
    x, y = arrays()
    launcher = saxpy.over(8, device=host)
    launcher(a=1.0, y=y, x=x)
    launcher(1.0, x, y=y)
    assert y.tolist() == (2 * x + 1).tolist()
    powers.over(8, device=host)(x)
    powers.over(8, device=host)(x, n=1)
    powers.over(8, device=host)(x, 3)
    assert x.tolist() == [float(i**6) for i in range(8)]


@pytest.mark.parametrize(
    "view",
    [np.s_[:, 0], np.s_[::-1, 1], np.s_[::2, 0], np.s_[1:, 1], np.s_[0, :], np.s_[3:0:-2, 0]],
)
def test_views_are_written_where_they_lie(view: Any, host: str) -> None:
    base = np.arange(12, dtype=np.float64).reshape(4, 3)
    expected = base.copy()
    expected[view] += 5
    untyped.over(base[view].shape[0], device=host)(5.0, base[view])
    assert base.tolist() == expected.tolist()


def test_transposed_array_is_written_where_it_lies(host: str) -> None:
    base = np.zeros((3, 2), np.int64)
    ids2.over((2, 3), device=host)(base.T)
    assert base.tolist() == [[0, 10], [1, 11], [2, 12]]


def test_empty_arrays_and_extents_run_nothing_but_are_checked(host: str) -> None:
    empty = np.zeros((0,), np.float32)
    saxpy.over(0, device=host)(1.0, empty, empty)
    ids2.over((0, 5), device=host)(np.zeros((0, 5), np.int64))
    x, y = arrays()
    saxpy.over(0, device=host)(1.0, x, y)
    assert y.tolist() == [1.0] * 8
    with pytest.raises(KernelTypeError, match="is an array of f32 and got one of f64"):
        saxpy.over(0, device=host)(1.0, x, y.astype(np.float64))


def test_empty_launch_does_not_reach_the_backend(gpu: Device, seen: ScriptedDevice) -> None:
    array = gpu.zeros(0, qn.f32)
    saxpy.over(0, device=gpu)(1.0, array, array)
    saxpy[0, 32](1.0, array, array)
    assert seen.launches == []


def test_range_starts_where_it_says(host: str) -> None:
    x = np.zeros(8, np.float32)
    y = np.zeros(8, np.float32)
    x[:] = 1
    saxpy.over(range(2, 5), device=host)(1.0, x, y)
    assert y.tolist() == [0, 0, 1, 1, 1, 0, 0, 0]


def test_grid_runs_every_thread_of_every_block(host: str) -> None:
    out = np.zeros(12, np.float64)
    untyped.options(device=host)[3, 4](1.0, out)
    assert out.tolist() == [1.0] * 12


# --- scalars ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "f"),
    [(3, 0.5), (np.int64(3), np.float64(0.5)), (np.uint8(3), np.float16(0.5)), (np.int32(3), np.float32(0.5))],
)
def test_scalars_convert_by_the_declared_type(n: Any, f: Any, host: str) -> None:
    out = np.zeros(2)
    typed.over(2, device=host)(n, f, out)
    assert out.tolist() == [1.5, 1.5]


@pytest.mark.parametrize(
    ("n", "f", "message"),
    [
        (2**40, 0.5, "parameter 'n' is i32 and got 1099511627776, which does not fit"),
        (True, 0.5, "parameter 'n' is i32 and got True of type bool"),
        (3.0, 0.5, "parameter 'n' is i32 and got 3.0 of type float"),
        (3, 1e300, r"parameter 'f' is f32 and got 1e\+300, which does not fit"),
        (3, "x", "parameter 'f' is f32 and got 'x' of type str"),
        (np.zeros(2), 1.0, "parameter 'n' is i32 and got an array of f64"),
    ],
)
def test_scalar_that_does_not_fit_is_refused_before_and_after_the_first_launch(n: Any, f: Any, message: str) -> None:
    fresh = qn.kernel(typed.__wrapped__)
    out = np.zeros(2)
    for _ in range(2):
        with pytest.raises(KernelTypeError, match=message):
            fresh.over(2, device="reference")(n, f, out)
        fresh.over(2, device="reference")(3, 0.5, out)
    assert out.tolist() == [1.5, 1.5]


def test_infinities_and_nan_pass_into_narrow_floats() -> None:
    out = np.zeros(1)
    typed.over(1, device="reference")(1, float("inf"), out)
    assert out[0] == np.inf
    typed.over(1, device="reference")(1, float("nan"), out)
    assert np.isnan(out[0])


def test_python_integer_adapts_and_is_refused_where_it_does_not_fit(host: str) -> None:
    out = np.full(2, 250, np.uint8)
    untyped.over(2, device=host)(5, out)
    assert out.tolist() == [255, 255]
    for value in (2**40, -(2**63) - 1, 10**30):
        with pytest.raises(KernelTypeError, match=f"parameter 'n'.* got {value}, which does not fit"):
            untyped.over(2, device=host)(value, out)


def test_numpy_scalar_is_typed_where_a_python_number_is_weak(gpu: Device, seen: ScriptedDevice) -> None:
    out = gpu.zeros(2, qn.f32)
    untyped.over(2)(1.5, out)
    untyped.over(2)(np.float32(1.5), out)
    weak, exact = (launch.header.params[0] for launch in seen.launches)
    assert (weak.dtype, weak.weak) == ("f64", True)
    assert (exact.dtype, exact.weak) == ("f32", False)


def test_bool_is_no_integer_but_a_type_of_its_own(gpu: Device, seen: ScriptedDevice) -> None:
    @qn.kernel
    def choose(flag, out):
        out[qn.global_id()] = 1.0 if flag else 2.0

    out = gpu.zeros(2, qn.f32)
    choose.over(2)(True, out)
    choose.over(2)(np.True_, out)
    assert [launch.header.params[0].dtype for launch in seen.launches] == ["bool", "bool"]
    with pytest.raises(KernelTypeError, match="parameter 'a' is float and got True of type bool"):
        saxpy.over(2)(True, out, out)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (1j, "parameter 'n' got 1j of type complex, which no kernel takes"),
        ("a", "parameter 'n' got 'a' of type str"),
        ([1, 2], r"which no kernel takes(?:.|\n)*fix: make it an array first: n = np.asarray"),
        (np.complex64(1), "NumPy dtype complex64 is no element type"),
        (np.datetime64(1, "s"), "datetime64"),
    ],
)
def test_argument_that_no_kernel_takes_is_refused_by_name(value: Any, message: str) -> None:
    with pytest.raises(KernelTypeError, match=message):
        untyped.over(2, device="reference")(value, np.zeros(2))


# --- arrays -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(2, np.complex64), "parameter 'out': NumPy dtype complex64 is no element type"),
        (np.zeros(2, object), "parameter 'out': NumPy dtype object is no element type"),
        (np.zeros(2, ">f8"), "parameter 'out': elements of >f8 are byte-swapped"),
        (np.zeros(2, "U3"), "parameter 'out': NumPy dtype <U3"),
        (np.zeros(()), r"parameter 'out' got a 0-d array(?:.|\n)*fix: pass array.reshape\(1\)"),
        (np.ma.masked_array(np.zeros(2), [True, False]), "parameter 'out' got a masked array"),
    ],
)
def test_array_that_no_kernel_takes_is_refused_by_name(array: Any, message: str) -> None:
    with pytest.raises(KernelTypeError, match=message):
        untyped.over(2, device="reference")(1.0, array)


def test_strides_that_are_no_whole_elements_are_refused() -> None:
    record = np.zeros(3, np.dtype([("b", "<f8"), ("a", "u1")]))["b"]
    with pytest.raises(LaunchError, match=r"strides \(9,\), which are no multiples of its 8-byte elements"):
        untyped.over(3, device="reference")(1.0, record)


def test_elements_off_their_alignment_are_refused() -> None:
    shifted = np.zeros(33, np.uint8)[1:].view(np.float64)
    with pytest.raises(LaunchError, match=r"not aligned to the 8 bytes of f64(?:.|\n)*fix: pass a copy"):
        untyped.over(4, device="reference")(1.0, shifted)
    shared = qn.device("reference").asarray(shifted)
    shared.fill(1)
    assert not shifted.any()


def test_rank_must_be_the_declared_one() -> None:
    with pytest.raises(KernelTypeError, match=r"parameter 'out' is an array of 2 axes and got shape \(4,\)"):
        ids2.over((2, 2), device="reference")(np.zeros(4, np.int64))


def test_read_only_array_may_be_read_and_not_written(host: str) -> None:
    x, y = arrays()
    x.setflags(write=False)
    saxpy.over(8, device=host)(1.0, x, y)
    assert y.tolist() == (x + 1).tolist()
    with pytest.raises(
        LaunchError, match=r"writes parameter 'y', and the array is read-only(?:.|\n)*y.copy\(\) is in the copy"
    ):
        saxpy.over(8, device=host)(1.0, y, x)
    assert x.tolist() == list(range(8))


def test_repeated_elements_may_be_read_and_not_written(host: str) -> None:
    y = np.ones(8, np.float32)
    same = np.broadcast_to(np.float32(3), (8,))
    writable = np.lib.stride_tricks.as_strided(np.ones(1, np.float32), (8,), (0,))
    saxpy.over(8, device=host)(1.0, same, y)
    assert y.tolist() == [4.0] * 8
    with pytest.raises(LaunchError, match="writes parameter 'y', an array with a stride of 0"):
        saxpy.over(8, device=host)(1.0, y, writable)


def test_memory_map_is_an_array(tmp_path: Any) -> None:
    mapped = np.memmap(tmp_path / "data", np.float64, "w+", shape=(4,))
    untyped.over(4, device="reference")(1.0, mapped)
    assert mapped.tolist() == [1.0] * 4


def test_cells_hold_addresses_shapes_and_strides_in_elements(gpu: Device, seen: ScriptedDevice) -> None:
    array = gpu.zeros((4, 6), qn.i64)
    ids2.over((4, 3))(array[:, ::-2])
    (launch,) = seen.launches
    by_kind = {(slot.kind, slot.axis): cell for slot, cell in zip(launch.header.slots, launch.cells, strict=True)}
    assert by_kind[SlotKind.POINTER, 0] == array.address + 5 * 8
    assert by_kind[SlotKind.STRIDE, 0] == 6
    assert by_kind[SlotKind.STRIDE, 1] == 2**64 - 2


def test_variant_says_what_the_arrays_allow(gpu: Device, seen: ScriptedDevice) -> None:
    whole = gpu.zeros(64, qn.f32)
    for x in (whole, whole[1:], whole[4:], whole[::2]):
        saxpy.over(8)(1.0, x, whole)
    variants = [found.variant for found in seen.target.compiler.lowered]
    assert variants == [Variant(True, True, True), Variant(False, True, True), Variant(True, False, True)]


def test_ndarray_and_device_array_facts_agree(host: str) -> None:
    device = qn.device(host)
    base = np.zeros(64, np.float32)
    shared = device.asarray(base)
    launcher = saxpy.over(4, device=host)
    specs = saxpy._launchable.parameters.specs
    for view in (np.s_[:], np.s_[1:], np.s_[::2], np.s_[::-1]):
        _, values, _ = launcher._find(specs, (1.0, base[view], base[view]), device)
        _, others, _ = launcher._find(specs, (1.0, shared[view], shared[view]), device)
        assert values == others


# --- where ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["call", "bind", "update", "over", "grid", "block"])
def test_error_about_a_launch_points_at_the_launch(how: str) -> None:
    x, y = arrays()
    bound = saxpy.over(8, device="reference").bind(1.0, x, y)
    č = 1  # columns count characters
    launches = {
        "call": lambda: (č, saxpy.over(8, device="reference")("a", x, y)),
        "bind": lambda: (č, saxpy.over(8, device="reference").bind(1.0, x)),
        "update": lambda: (č, bound.update(a="a")),
        "over": lambda: (č, saxpy.over(-1)),
        "grid": lambda: (č, saxpy["8"]),
        "block": lambda: (č, saxpy.over(8, block=5000, device="reference")(1.0, x, y)),
    }
    with pytest.raises(qn.errors.QuernelError, match=re.escape(__file__)) as caught:
        launches[how]()
    error = caught.value
    assert error.where is not None
    assert error.where.file == __file__
    assert error.where.column == error.source_line.index("č, ") + 3  # type: ignore[union-attr]
    text = str(error)
    assert text.startswith(f"{__file__}:{error.where.line}:{error.where.column + 1}: ")
    assert "^^^" in text


# --- devices ----------------------------------------------------------------------------------------------------------


def test_arrays_decide_the_device(gpu: Device, seen: ScriptedDevice) -> None:
    array = gpu.zeros(4, qn.f32)
    with qn.use("reference"):
        saxpy.over(4)(1.0, array, array)
    assert len(seen.launches) == 1


def test_arrays_of_two_devices_are_refused_naming_both(gpu: Device) -> None:
    here, there = qn.device("reference").zeros(4, qn.f32), gpu.zeros(4, qn.f32)
    with pytest.raises(LaunchError, match=r"on two devices, reference:0 and fake:0(?:.|\n)*fix: move one"):
        saxpy.over(4)(1.0, here, there)
    with pytest.raises(LaunchError, match=r"the launch is on reference:0, its arrays are on fake:0"):
        saxpy.over(4, device="reference")(1.0, there, there)


def test_numpy_arrays_are_refused_where_the_device_does_not_reach_them(gpu: Device) -> None:
    x, y = arrays()
    fix = r"fix: copy it to the device first: y = device.array\(y\)"
    with pytest.raises(LaunchError, match=rf"parameter 'y' got a NumPy array, and fake:0 does not reach(?:.|\n)*{fix}"):
        saxpy.over(8)(1.0, gpu.array(x), y)


def test_named_device_gets_numpy_arrays_and_none_is_silently_replaced(installed: Any) -> None:
    installed(ScriptedBackend("cuda", [("gpu", "A")]), ScriptedBackend("cpu", [("cpu", "Host")], host_accessible=True))
    fresh = qn.kernel(saxpy.__wrapped__)
    x, y = arrays()
    fresh.over(8)(1.0, x, y)
    with qn.use("cuda"), pytest.raises(LaunchError, match="cuda:0 does not reach the host's memory"):
        fresh.over(8)(1.0, x, y)
    with pytest.raises(LaunchError, match="cuda:0 does not reach"):
        fresh.options(device="cuda").over(8)(1.0, x, y)


def test_numpy_arrays_without_any_backend_say_what_to_install(installed: Any) -> None:
    installed(ScriptedBackend("reference", [("cpu", "Interpreter")], host_accessible=True))
    x, y = arrays()
    with pytest.raises(DeviceError, match=f"no backend is installed(?:.|\n)*fix: {re.escape(install_backend('cpu'))}"):
        saxpy.over(8)(1.0, x, y)


def test_launch_with_numpy_arrays_waits_and_one_on_device_arrays_does_not(installed: Any) -> None:
    backend = ScriptedBackend("cpu", [("cpu", "Host")], host_accessible=True)
    installed(backend)
    x, y = arrays()
    saxpy.over(8)(1.0, x, y)
    (operations,) = backend.opened
    assert operations.log == ["launch", ("synchronize", None)]
    operations.log.clear()
    device = qn.device("cpu")
    array = device.empty(8, qn.f32)
    saxpy.over(8)(1.0, array, array)
    assert operations.log == ["launch"]


def test_limits_are_checked_before_anything_is_compiled_or_launched() -> None:
    limits = Limits(max_block_threads=64, max_block=(4, 32, 64), max_grid=(10, 20, 30))
    backend = ScriptedBackend("fake", [("gpu", "Small")], limits=limits)
    device = Device(backend.open(backend.devices()[0]))  # type: ignore[index]
    array = device.zeros((4, 4), qn.i64)
    with pytest.raises(ValidationError, match=r"block \(2, 33\) has 66 threads, fake:0 allows 64"):
        ids2.over((4, 4), block=(2, 33))(array)
    with pytest.raises(ValidationError, match=r"block \(33, 1\) has 33 threads along axis 0, fake:0 allows 32"):
        ids2.over((4, 4), block=(33, 1))(array)
    assert backend.opened[0].target.compiler.lowered == []
    with pytest.raises(LaunchError, match=r"grid \(21, 1\) has 21 blocks along axis 0, fake:0 allows 20"):
        ids2[(21, 1), (1, 4)](array)
    assert backend.opened[0].launches == []
    ids2[(20, 30), (1, 4)](array)
    ids2.over((4000, 4), block=(1, 4))(array)
    assert len(backend.opened[0].launches) == 2


def test_checked_launch_is_refused_where_the_device_does_not_check(gpu: Device, monkeypatch: Any) -> None:
    array = gpu.zeros(4, qn.f32)
    with pytest.raises(ValidationError, match="fake:0 does not check indices"):
        saxpy.options(checked=True).over(4)(1.0, array, array)
    saxpy.over(4)(1.0, array, array)
    monkeypatch.setenv("QUERNEL_CHECKED", "1")
    with pytest.raises(ValidationError, match="fake:0 does not check indices"):
        saxpy.over(4)(1.0, array, array)


def test_checked_launch_in_the_interpreter_raises_at_the_line_of_the_kernel(monkeypatch: Any) -> None:
    x, y = arrays()
    launcher = saxpy.options(checked=True, device="reference").over(9)
    monkeypatch.setenv("QUERNEL_CHECKED", "1")
    for launch in (launcher, saxpy.over(9, device="reference")):
        with pytest.raises(IndexError, match="index 8 is outside") as caught:
            launch(1.0, x, y)
        assert isinstance(caught.value, qn.errors.OutOfBoundsError)
        assert caught.value.where is not None
        assert caught.value.where.file == __file__


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_second_launch_of_a_kind_compiles_nothing(gpu: Device, seen: ScriptedDevice) -> None:
    fresh = qn.kernel(saxpy.__wrapped__)
    array = gpu.zeros(16, qn.f32)
    for n in range(1, 10):
        fresh.over(n)(float(n), array, array)
    assert len(seen.target.compiler.lowered) == 1
    assert len(seen.launches) == 9
    assert len(gpu.kernels) == 1


def test_captured_constant_that_changes_counts_at_the_next_launch(host: str, monkeypatch: Any) -> None:
    out = np.zeros(2, np.int64)
    launcher = scaled.over(2, device=host)
    for value in (2, 5, 2, 7):
        monkeypatch.setattr("tests.unit.runtime.test_launchers.SCALE", value, raising=False)
        scaled.__wrapped__.__globals__["SCALE"] = value
        launcher(out)
        assert out.tolist() == [value, value]
    scaled.__wrapped__.__globals__["SCALE"] = 2


def test_constant_of_a_device_function_given_as_const_is_guarded(host: str) -> None:
    factor = 2

    @qn.func
    def times(x):
        return x * factor

    @qn.kernel
    def apply(f: qn.Const, out):
        i = qn.global_id()
        out[i] = f(out[i])

    out = np.ones(2)
    launcher = apply.over(2, device=host)
    launcher(times, out)
    assert out.tolist() == [2.0, 2.0]
    factor = 10
    launcher(times, out)
    assert out.tolist() == [20.0, 20.0]


def test_constants_equal_in_python_but_of_other_types_are_told_apart(gpu: Device, seen: ScriptedDevice) -> None:
    @qn.kernel
    def put(c: qn.Const, out):
        out[qn.global_id()] = c

    out = gpu.zeros(2, qn.f64)
    for value in (1.0, np.float32(1), 0.0, -0.0, 1.0):
        put.over(2)(value, out)
    assert len(put._launchable.over) == 4
    assert len(seen.target.compiler.lowered) == 3  # 1.0 and f32 1.0 give equal IR: one artifact


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (1.5, "Const parameter 'n' is int and got 1.5 of type float"),
        (True, "Const parameter 'n' is int and got True"),
        (np.zeros(2), "Const parameter 'n' got array.*fix: take it as an ordinary parameter"),
    ],
)
def test_constant_that_does_not_fit_its_annotation_is_refused(value: Any, message: str) -> None:
    with pytest.raises(KernelTypeError, match=f"(?s){message}"):
        powers.over(2, device="reference")(np.zeros(2, np.float32), value)


def test_environments_have_entries_of_their_own(tmp_path: Any, gpu: Device, seen: ScriptedDevice) -> None:
    fresh = qn.kernel(saxpy.__wrapped__)
    array = gpu.zeros(16, qn.f32)
    fresh.over(4)(1.0, array, array)
    with qn.environment(tmp_path):
        fresh.over(4)(1.0, array, array)
    fresh.over(4)(1.0, array, array)
    assert len(seen.target.compiler.lowered) == 2
    assert len(seen.launches) == 3


def test_table_of_what_is_ready_stays_bounded(gpu: Device) -> None:
    fresh = qn.kernel(powers.__wrapped__)
    array = gpu.zeros(1, qn.f32)
    for n in range(520):
        fresh.over(1, device=gpu)(array, n % 4)
    launchable = fresh._launchable
    for n in range(600):
        launchable.keep(launchable.over, (n,), next(iter(launchable.over.values())))
    assert len(launchable.over) <= 512


def test_failed_kernel_fails_again_and_leaves_nothing(gpu: Device) -> None:
    @qn.kernel
    def wrong(x):
        x[0] = undefined_name  # noqa: F821

    array = gpu.zeros(4, qn.f32)
    for _ in range(2):
        with pytest.raises(qn.errors.QuernelError, match="undefined_name"):
            wrong.over(4)(array)
    assert wrong._launchable.over == {}


def test_launches_from_several_threads_are_right() -> None:
    n = 64
    results = [np.zeros(n) for _ in range(8)]

    def work(result: np.ndarray[Any, Any], k: int) -> None:
        for _ in range(50):
            untyped.over(n)(float(k), result)

    threads = [threading.Thread(target=work, args=(result, k)) for k, result in enumerate(results)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result.tolist() for result in results] == [[50.0 * k] * n for k in range(8)]


# --- bound launches ---------------------------------------------------------------------------------------------------


def test_bound_launch_repeats_and_takes_new_arguments(host: str) -> None:
    x, y = arrays()
    bound = saxpy.over(8, device=host).bind(1.0, x, y=y)
    bound()
    bound()
    assert y.tolist() == (2 * x + 1).tolist()
    assert bound.update(a=3.0) is bound
    bound()
    assert y.tolist() == (5 * x + 1).tolist()
    other = np.zeros(8, np.float32)
    bound.update(y=other)()
    assert other.tolist() == (3 * x).tolist()
    bound.update(0.5)()
    assert other.tolist() == (3.5 * x).tolist()


def test_bound_launch_keeps_its_arrays(host: str) -> None:
    y = np.zeros(1000, np.float32)
    bound = saxpy.over(1000, device=host).bind(1.0, np.ones(1000, np.float32), y)
    gc.collect()
    junk = [np.full(1000, 7, np.float32) for _ in range(8)]
    bound()
    assert y.tolist() == [1.0] * 1000
    del junk


def test_refused_update_leaves_a_bound_launch_as_it_was(host: str) -> None:
    x, y = arrays()
    bound = saxpy.over(8, device=host).bind(1.0, x, y)
    with pytest.raises(KernelTypeError, match="parameter 'a' is float and got 'no'"):
        bound.update(a="no")
    with pytest.raises(KernelTypeError, match="has no parameter 'b'"):
        bound.update(b=1)
    with pytest.raises(KernelTypeError, match="takes 3 positional arguments but 4"):
        bound.update(1.0, x, y, 5)
    bound()
    assert y.tolist() == (x + 1).tolist()


def test_bound_launch_runs_with_the_arguments_of_one_update_when_another_thread_changes_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory = np.zeros(6400)
    strided, dense = memory[::100], np.zeros(64)
    bound = counted.over(64, device="cpu").bind(dense)
    updates = [strided]

    def is_closed(device: Device) -> bool:
        while updates:  # here, in the middle of the launch
            bound.update(updates.pop())
        return False

    monkeypatch.setattr(Device, "is_closed", property(is_closed), raising=False)
    bound()
    assert dense.tolist() == [1.0] * 64
    assert not memory.any()
    bound()
    assert strided.tolist() == [1.0] * 64
    assert memory.sum() == 64


def test_bound_launch_is_checked_when_it_is_bound() -> None:
    x, y = arrays()
    with pytest.raises(KernelTypeError, match="misses the argument 'y'"):
        saxpy.over(8, device="reference").bind(1.0, x)
    y.setflags(write=False)
    with pytest.raises(LaunchError, match="is read-only"):
        saxpy.over(8, device="reference").bind(1.0, x, y)


def test_bound_launch_takes_keyword_only_parameters(host: str) -> None:
    @qn.kernel
    def put(out, *, value, more=1.0):
        out[qn.global_id()] = value + more

    out = np.zeros(2)
    bound = put.over(2, device=host).bind(out, value=2.0)
    bound()
    assert out.tolist() == [3.0, 3.0]
    bound.update(more=0.5)()
    assert out.tolist() == [2.5, 2.5]
    interpreted = put.options(interpret=True).over(2)
    interpreted(out, value=5.0)
    assert out.tolist() == [6.0, 6.0]
    interpreted.bind(out, value=6.0, more=0.0)()
    assert out.tolist() == [6.0, 6.0]


# --- streams ----------------------------------------------------------------------------------------------------------


def test_stream_carries_its_handle_and_decides_the_device(gpu: Device, seen: ScriptedDevice) -> None:
    array = gpu.zeros(4, qn.f32)
    with gpu.stream() as stream:
        saxpy.over(4, stream=stream)(1.0, array, array)
        saxpy[1, 4, stream](1.0, array, array)
    assert [launch.stream for launch in seen.launches] == [1, 1]
    assert ("close stream", 1) in seen.log
    with pytest.raises(LaunchError, match="this stream of fake:0 is closed"):
        saxpy.over(4, stream=stream)(1.0, array, array)


def test_stream_of_another_device_is_refused(gpu: Device) -> None:
    with pytest.raises(LaunchError, match="the device is reference:0, the stream is of fake:0"):
        saxpy.over(4, device="reference", stream=gpu.stream())
    x, y = arrays()
    with pytest.raises(LaunchError, match="does not reach the host's memory"):
        saxpy.over(4, stream=gpu.stream())(1.0, x, y)


# --- interpreting -----------------------------------------------------------------------------------------------------


def test_interpreted_launch_copies_device_arrays_in_and_written_ones_out(gpu: Device, seen: ScriptedDevice) -> None:
    x, y = gpu.array(np.arange(4, dtype=np.float32)), gpu.zeros(4, qn.f32)
    saxpy.options(interpret=True).over(4)(2.0, x, y)
    assert y.numpy().tolist() == [0, 2, 4, 6]
    assert seen.launches == []


def test_interpreted_launch_by_variable_writes_numpy_arrays_in_place(monkeypatch: Any) -> None:
    x, y = arrays()
    ran: list[str] = []
    reference = qn.device("reference")
    run = type(reference.operations).launch
    monkeypatch.setattr(
        type(reference.operations), "launch", lambda self, *args: (ran.append("reference"), run(self, *args))[1]
    )
    monkeypatch.setenv("QUERNEL_INTERPRET", "1")
    saxpy.over(8)(1.0, x, y)
    saxpy.over(8).bind(1.0, x, y)()
    assert y.tolist() == (2 * x + 1).tolist()
    assert ran == ["reference", "reference"]


def test_kernel_with_too_much_shared_memory_is_named_by_its_own_name(gpu: Device) -> None:
    header = ArtifactHeader("entry_0", (), (), (1,), shared_bytes=1 << 20)
    with pytest.raises(
        ValidationError, match="kernel greedy takes 1048576 bytes of shared memory, fake:0 allows 49152"
    ):
        _check_shared("greedy", header, Limits(), gpu)


# --- modes ------------------------------------------------------------------------------------------------------------


class Taking(LaunchMode):
    def __init__(self, takes: bool) -> None:
        self.takes = takes
        self.shown: list[RequestedLaunch] = []

    def take(self, launch: RequestedLaunch) -> bool:
        self.shown.append(launch)
        return self.takes


@pytest.mark.parametrize("is_loaded", [False, True])
def test_a_mode_is_shown_launches_before_anything_is_compiled(
    gpu: Device, seen: ScriptedDevice, is_loaded: bool
) -> None:
    x = gpu.zeros(8, qn.f64)
    launcher = counted.over(8)
    bound = launcher.bind(x) if is_loaded else None
    compiled, launched = len(seen.target.compiler.lowered), len(seen.launches)
    with Taking(True) as outer, Taking(True) as mode:
        launcher(x)
        counted[1](x)
        if bound is not None:
            bound()
    assert len(mode.shown) == (3 if is_loaded else 2)
    assert not outer.shown
    assert len(seen.target.compiler.lowered) == compiled
    assert len(seen.launches) == launched
    definition, artifact = mode.shown[0].identified()
    assert mode.shown[0].device is gpu
    launcher(x)
    assert len(seen.launches) == launched + 1
    assert seen.target.compiler.lowered[-1] == artifact
    assert definition.name == "counted"


def test_a_mode_that_takes_nothing_lets_launches_run(gpu: Device, seen: ScriptedDevice) -> None:
    x = gpu.zeros(8, qn.f64)
    with Taking(False) as outer, Taking(False) as mode:
        counted.over(8)(x)
    assert len(mode.shown) == len(outer.shown) == len(seen.launches) == 1
    counted.over(8)(x)
    assert len(mode.shown) == 1


def test_a_mode_holds_for_its_own_context(gpu: Device, seen: ScriptedDevice) -> None:
    x = gpu.zeros(8, qn.f64)
    with Taking(True) as mode:
        thread = threading.Thread(target=counted.over(8), args=(x,))
        thread.start()
        thread.join()
    assert not mode.shown
    assert len(seen.launches) == 1
