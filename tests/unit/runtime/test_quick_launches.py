"""Quick launches are held against the general path, which is the reference for what a launch does."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.runtime.scripted import ScriptedBackend, ScriptedDevice

import quernel as qn
from quernel.errors import LaunchError, QuernelError
from quernel.runtime.devices import Device
from quernel.runtime.interceptors import LaunchMode, standing
from quernel.runtime.launchers import Launcher
from quernel.runtime.quick import _MISSES
from quernel.runtime.ready import RequestedLaunch

FACTOR = 2


@qn.kernel
def combine(a: qn.Array[qn.f32], b, s: qn.f32, n: int, k: qn.Const[int] = 1):
    i = qn.global_id()
    if i < n:
        b[i] = a[i] * s * FACTOR + k


@qn.kernel
def rows(a: qn.Array2[qn.f32], out: qn.Array2[qn.f64]):
    i, j = qn.global_id()
    out[i, j] = out[i, j] + a[i, j] * a.shape[0]


@qn.kernel
def small(x: qn.Array1[qn.i64], n: qn.i8, f: qn.bf16):
    i = qn.global_id()
    x[i] = x[i] + n + qn.i64(f)


@pytest.fixture
def general(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What quick launches have left to the general path."""
    left: list[Any] = []
    whole: Any = Launcher._general

    def noted(self: Launcher, *given: Any) -> None:
        left.append(given)
        whole(self, *given)

    monkeypatch.setattr(Launcher, "_general", noted)
    return left


def fresh(kernel: Any) -> Any:
    """The kernel without anything that earlier tests have made ready."""
    return kernel.options(debug=False)


def arrays(device: Device, n: int = 32) -> tuple[Any, Any]:
    return device.array(np.arange(n, dtype=np.float32)), device.zeros(n, qn.f32)


def outcome(launch: Callable[[], object], seen: ScriptedDevice) -> tuple[Any, ...]:
    """What a launch did: what the backend saw, or the error."""
    before = len(seen.launches)
    try:
        launch()
    except QuernelError as error:
        return type(error), error.what, error.fix, seen.launches[before:]
    return ("launched", seen.launches[before:])


def agree(launcher: Launcher, seen: ScriptedDevice, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """Launches both ways, and gives what both did."""
    quick = outcome(lambda: launcher(*args, **kwargs), seen)
    whole = outcome(lambda: Launcher.__call__(launcher, *args, **kwargs), seen)
    assert quick == whole
    return quick


# --- what is quick ----------------------------------------------------------------------------------------------------


def test_the_third_launch_of_the_same_kinds_is_quick(gpu: Device, seen: ScriptedDevice, general: list[Any]) -> None:
    a, b = arrays(gpu)
    launcher = fresh(combine)[1, 32]
    for _ in range(2):
        launcher(a, b, 0.5, 32)
    assert type(launcher) is not Launcher
    assert isinstance(launcher, Launcher)
    for number in range(3):
        launcher(b, a, 1.5 + number, number)
        launcher(a, n=number, b=b, s=0.5)
        launcher(a, b, 0.5, n=number, k=1)
    assert not general
    assert len(seen.launches) == 11
    assert repr(launcher) == "<combine on a grid of (1,), block (32,)>"


def test_launchers_of_other_shapes_begin_quick(gpu: Device, seen: ScriptedDevice, general: list[Any]) -> None:
    a, b = arrays(gpu)
    kernel = fresh(combine)
    for _ in range(2):
        kernel.over(32)(a, b, 0.5, 32)
    launcher = kernel.over(16)
    assert type(launcher) is not Launcher
    launcher(a, b, 0.5, 32)
    assert seen.launches[-1].geometry.extent == (16,)
    assert not general
    assert type(kernel.over(16, block=128)) is Launcher
    assert type(kernel.over(0)) is Launcher
    assert type(kernel.over(1 << 33)) is Launcher
    assert type(kernel[1, 32]) is Launcher


def test_numpy_arrays_launch_quickly_on_the_host(general: list[Any]) -> None:
    a, out = np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros((2, 3))
    launcher = fresh(rows).over((2, 3))
    for _ in range(5):
        launcher(a, out)
    launcher(a[:, :], out)
    assert not general
    assert out.tolist() == (12.0 * a).tolist()


@pytest.mark.parametrize("name", ["float", "int", "i8", "bf16"])
def test_numbers_are_packed_as_on_the_general_path(name: str, gpu: Device, seen: ScriptedDevice) -> None:
    x = gpu.zeros(8, qn.i64)
    launcher = fresh(small).over(8)
    values: dict[str, list[Any]] = {
        "float": [0.5, -0.0, 1e300, float("inf"), float("nan")],
        "int": [1, 0, -1, 127, 128, -128, -129, 1 << 70],
        "i8": [np.int8(3), np.int64(127), np.int64(128), True, 1.0],
        "bf16": [np.float32(1.5), np.float64(3.4e38), 3, 3.5e38],
    }
    for _ in range(3):
        launcher(x, 1, 1.0)
    for value in values[name]:
        agree(launcher, seen, x, *((value, 1.0) if name in ("int", "i8") else (1, value)))


@qn.kernel
def halves(x: qn.Array1[qn.f32], h: qn.f16, s: qn.f32):
    i = qn.global_id()
    x[i] = x[i] + qn.f32(h) + s


@pytest.mark.parametrize("kind", [float, int, np.float64, np.float32])
@pytest.mark.parametrize("value", [65504, 65519, 65520, 3.4028234e38, 3.40282356e38, 3.4028236e38, -1e39, 1 << 2000])
def test_floats_are_refused_as_on_the_general_path(kind: Any, value: Any, gpu: Device, seen: ScriptedDevice) -> None:
    x = gpu.zeros(8, qn.f32)
    launcher = fresh(halves).over(8)
    for _ in range(3):
        launcher(x, kind(1), kind(1))
    assert type(launcher) is not Launcher
    try:
        with np.errstate(over="ignore"):
            given = kind(value)
    except OverflowError:
        given = kind("inf")
    for args in ((given, kind(1)), (kind(1), given), (kind(1), -given)):
        agree(launcher, seen, x, *args)


# --- what is left to the general path ---------------------------------------------------------------------------------


def cases(gpu: Device, other: Device) -> dict[str, Callable[[Any, Any], tuple[tuple[Any, ...], dict[str, Any]]]]:
    return {
        "same": lambda a, b: ((a, b, 0.5, 7), {}),
        "swapped": lambda a, b: ((b, a, 0.5, 7), {}),
        "keywords": lambda a, b: ((), {"n": 3, "b": b, "a": a, "s": 2.5}),
        "constant": lambda a, b: ((a, b, 0.5, 7, 2), {}),
        "constant of bool": lambda a, b: ((a, b, 0.5, 7, True), {}),
        "constant of float": lambda a, b: ((a, b, 0.5, 7, 1.0), {}),
        "unaligned": lambda a, b: ((a[1:], b, 0.5, 7), {}),
        "strided": lambda a, b: ((a[::2], b, 0.5, 7), {}),
        "reversed": lambda a, b: ((a, b[::-1], 0.5, 7), {}),
        "shorter": lambda a, b: ((a[:8], b[16:], 0.5, 7), {}),
        "empty": lambda a, b: ((a[:0], b, 0.5, 7), {}),
        "another dtype": lambda a, b: ((a, gpu.zeros(32, qn.f64), 0.5, 7), {}),
        "dtype refused": lambda a, b: ((gpu.zeros(32, qn.f64), b, 0.5, 7), {}),
        "another rank": lambda a, b: ((a, b.reshape(4, 8), 0.5, 7), {}),
        "another device": lambda a, b: ((a, other.zeros(32, qn.f32), 0.5, 7), {}),
        "both on another device": lambda a, b: ((other.zeros(32, qn.f32), other.zeros(32, qn.f32), 0.5, 7), {}),
        "numpy": lambda a, b: ((a, np.zeros(32, np.float32), 0.5, 7), {}),
        "list": lambda a, b: (([1.0], b, 0.5, 7), {}),
        "none": lambda a, b: ((None, b, 0.5, 7), {}),
        "too few": lambda a, b: ((a, b, 0.5), {}),
        "too many": lambda a, b: ((a, b, 0.5, 7, 1, 1), {}),
        "unknown keyword": lambda a, b: ((a, b, 0.5, 7), {"m": 1}),
        "twice": lambda a, b: ((a, b, 0.5, 7), {"a": a}),
        "gap": lambda a, b: ((a,), {"n": 7, "s": 0.5}),
        "int for float": lambda a, b: ((a, b, 2, 7), {}),
        "float for int": lambda a, b: ((a, b, 0.5, 7.0), {}),
        "bool for int": lambda a, b: ((a, b, 0.5, True), {}),
        "numpy scalars": lambda a, b: ((a, b, np.float32(0.5), np.int32(7)), {}),
        "too large": lambda a, b: ((a, b, 1e39, 7), {}),
        "too wide": lambda a, b: ((a, b, 0.5, 1 << 64), {}),
        "infinite": lambda a, b: ((a, b, float("inf"), 7), {}),
        "not a number": lambda a, b: ((a, b, float("nan"), 7), {}),
    }


@pytest.fixture
def other() -> Device:
    backend = ScriptedBackend("other", [("gpu", "Other One")])
    (info,) = backend.devices()  # type: ignore[misc]
    return Device(backend.open(info), backend=backend)


NAMES = sorted(cases(None, None))  # type: ignore[arg-type]  # only the names


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(NAMES), min_size=1, max_size=8), st.booleans())
def test_any_sequence_of_arguments_means_the_same_both_ways(
    gpu: Device, other: Device, seen: ScriptedDevice, names: list[str], is_over: bool
) -> None:
    made = cases(gpu, other)
    a, b = arrays(gpu)
    kernel = fresh(combine)
    launcher = kernel.over(32) if is_over else kernel[1, 32]
    for _ in range(2):
        launcher(a, b, 0.5, 7)
    assert type(launcher) is not Launcher
    for name in names:
        args, kwargs = made[name](a, b)
        agree(launcher, seen, *args, **kwargs)
        assert agree(launcher, seen, a, b, 0.5, 7)[0] == "launched"


@pytest.mark.parametrize("name", NAMES)
def test_each_change_means_the_same_both_ways(name: str, gpu: Device, other: Device, seen: ScriptedDevice) -> None:
    a, b = arrays(gpu)
    launcher = fresh(combine)[1, 32]
    for _ in range(3):
        launcher(a, b, 0.5, 7)
    args, kwargs = cases(gpu, other)[name](a, b)
    for _ in range(4):
        agree(launcher, seen, *args, **kwargs)


HOST_CHANGES: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "same": lambda a, out: (a, out),
    "transposed": lambda a, out: (a.T, out.T),
    "rows apart": lambda a, out: (a[::2], out[::2]),
    "unaligned": lambda a, out: (a.reshape(-1)[1:9].reshape(2, 4), out),
    "not even to elements": lambda a, out: (np.zeros(65, np.uint8)[1:].view(np.float32).reshape(4, 4), out),
    "another dtype": lambda a, out: (a.astype(np.float64), out),
    "other byte order": lambda a, out: (a.astype(">f4"), out),
    "another rank": lambda a, out: (a.reshape(-1), out),
    "read only": lambda a, out: (np.broadcast_to(a, a.shape), out),
    "read only, written": lambda a, out: (a, np.broadcast_to(out, out.shape)),
    "repeating": lambda a, out: (a, np.broadcast_to(out[:1], out.shape)),
    "empty": lambda a, out: (a[:0], out),
    "matrix": lambda a, out: (a.view(np.matrix), out),
    "masked": lambda a, out: (np.ma.masked_array(a), out),
    "device array": lambda a, out: (qn.device("cpu").array(a), out),
    "number": lambda a, out: (1.0, out),
}


@pytest.mark.parametrize("is_native", ["1", "0"])
@pytest.mark.parametrize("name", list(HOST_CHANGES))
def test_changes_of_numpy_arrays_mean_the_same_both_ways(
    name: str, is_native: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUERNEL_NATIVE_LAUNCHES", is_native)
    a, out = np.arange(16, dtype=np.float32).reshape(4, 4), np.zeros((4, 4))
    launcher = fresh(rows).over((2, 4))
    for _ in range(3):
        launcher(a, out)
    results = []
    for launch in (launcher, lambda *args: Launcher.__call__(launcher, *args)):
        given_a, given_out = a.copy(), np.zeros((4, 4))
        try:
            for _ in range(2):
                launch(*HOST_CHANGES[name](given_a, given_out))
            results.append(given_out.tolist())
        except QuernelError as error:
            results.append((type(error), error.what, given_out.tolist()))
    assert results[0] == results[1]


@qn.kernel
def marked(p):
    p[qn.global_id()].x = 1.0


def test_fields_that_are_renamed_in_place_count_at_the_next_launch() -> None:
    points = np.zeros(8, np.dtype([("x", "f4"), ("y", "f4")], align=True))
    launcher = fresh(marked).over(8)
    for _ in range(4):
        launcher(points)
    assert type(launcher) is not Launcher
    points[:] = 0
    points.dtype.names = ("y", "x")
    launcher(points)
    assert points["x"].tolist() == [1.0] * 8
    assert not points["y"].any()


@qn.kernel
def doubled(x: qn.Array, n: int):
    i = qn.global_id()
    if i < n:
        x[i] = x[i] + x[i]


@pytest.mark.filterwarnings("ignore:Setting the (strides|dtype|shape):DeprecationWarning")
@pytest.mark.parametrize("attribute", ["dtype", "shape", "strides", "writeable", "size"])
def test_an_array_that_is_changed_in_place_is_looked_at_anew(attribute: str) -> None:
    memory = np.ones(16, np.float32)
    array = memory[:8] if attribute in ("shape", "strides") else memory
    launcher = fresh(doubled).over(8)
    for _ in range(4):
        launcher(array, 4)
    assert type(launcher) is not Launcher
    memory[:] = 1
    if attribute == "dtype":
        array.dtype = np.dtype(np.int32)
        memory.view(np.int32)[:] = 3
        launcher(array, 4)
        assert memory.view(np.int32).tolist() == [6] * 4 + [3] * 12
    elif attribute == "shape":
        array.shape = (2, 4)
        with pytest.raises(QuernelError, match=r"has 2 axes .* and is indexed with 1 index"):
            launcher(array, 4)
    elif attribute == "strides":
        array.strides = (8,)
        launcher(array, 4)
        assert memory.tolist() == [2.0, 1.0] * 4 + [1.0] * 8
    elif attribute == "writeable":
        array.setflags(write=False)
        with pytest.raises(LaunchError, match="writes parameter 'x', and the array is read-only"):
            launcher(array, 4)
    else:
        array.resize(1 << 20, refcheck=False)
        launcher(array, 4)
        assert array[:16].tolist() == [2.0] * 4 + [1.0] * 12


@pytest.fixture
def factor() -> Iterator[None]:
    yield
    globals()["FACTOR"] = 2


@pytest.mark.usefixtures("factor")
def test_a_changed_global_counts_at_the_next_launch(gpu: Device, seen: ScriptedDevice, general: list[Any]) -> None:
    a, b = arrays(gpu)
    launcher = fresh(combine)[1, 32]
    for _ in range(3):
        launcher(a, b, 0.5, 7)
    compiled: Any = seen.target.compiler
    before = len(compiled.lowered)
    globals()["FACTOR"] = 3
    launcher(a, b, 0.5, 7)
    assert len(compiled.lowered) == before + 1
    launcher(a, b, 0.5, 7)
    launcher(a, b, 0.5, 7)
    assert len(general) == 2 or len(general) == 3
    left = len(general)
    launcher(a, b, 0.5, 7)
    assert len(general) == left, "quick again"


def test_a_closures_variable_that_changes_counts(gpu: Device, seen: ScriptedDevice) -> None:
    step = 1

    @qn.kernel
    def stepped(x: qn.Array1[qn.i64]):
        x[qn.global_id()] = step

    x = gpu.zeros(8, qn.i64)
    launcher = stepped.over(8)
    for _ in range(3):
        launcher(x)
    compiled: Any = seen.target.compiler
    before = len(compiled.lowered)
    step = 2
    launcher(x)
    assert len(compiled.lowered) == before + 1


def test_variables_of_the_environment_count_at_the_next_launch(
    monkeypatch: pytest.MonkeyPatch, general: list[Any]
) -> None:
    a, out = np.ones((2, 3), np.float32), np.zeros((2, 3))
    launcher = fresh(rows).over((4, 3))
    inside = fresh(rows).over((2, 3))
    for _ in range(3):
        inside(a, out)
    assert not general
    monkeypatch.setenv("QUERNEL_CHECKED", "1")
    with pytest.raises(IndexError, match="index"):
        launcher(a, out)
    inside(a, out)
    assert len(general) == 1
    monkeypatch.delenv("QUERNEL_CHECKED")
    monkeypatch.setenv("QUERNEL_INTERPRET", "1")
    inside(a, out)
    assert len(general) == 2
    monkeypatch.delenv("QUERNEL_INTERPRET")
    monkeypatch.setenv("QUERNEL_DEVICE", "reference")
    inside(a, out)
    assert len(general) == 3
    monkeypatch.delenv("QUERNEL_DEVICE")
    with qn.use("reference"):
        inside(a, out)
    assert len(general) == 4
    inside(a, out)
    assert len(general) == 4


def test_an_environment_entered_counts_at_the_next_launch(gpu: Device, general: list[Any], tmp_path: Any) -> None:
    a, b = arrays(gpu)
    launcher = fresh(combine)[1, 32]
    for _ in range(3):
        launcher(a, b, 0.5, 7)
    with qn.environment(tmp_path):
        launcher(a, b, 0.5, 7)
    assert len(general) == 1


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Any, Exception], None]]:
    """Has the handler of a signal that comes in the midst of a launcher's comparisons raise an error."""
    before = signal.getsignal(signal.SIGINT)

    def interrupt(launcher: Launcher, error: Exception) -> None:
        def handle(number: int, frame: object) -> None:
            raise error

        signal.signal(signal.SIGINT, handle)
        names: dict[str, Any] = type(launcher).__call__.__globals__
        current = names["_q_GENERATION"]

        def generation() -> int:
            number: int = current()
            signal.raise_signal(signal.SIGINT)
            return number

        monkeypatch.setitem(names, "_q_GENERATION", generation)

    yield interrupt
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    "error", [TimeoutError, RuntimeError, *_MISSES, qn.errors.QuernelError], ids=lambda error: error.__name__
)
@pytest.mark.parametrize("on_host", [False, True], ids=["device", "host"])
def test_what_a_signals_handler_raises_in_the_midst_of_a_quick_launch_is_raised(
    error: type[Exception],
    on_host: bool,
    gpu: Device,
    general: list[Any],
    interrupted: Callable[[Any, Exception], None],
) -> None:
    a, b = (np.ones(32, np.float32), np.zeros(32, np.float32)) if on_host else arrays(gpu)
    launcher = fresh(combine)[1, 32]
    for _ in range(3):
        launcher(a, b, 0.5, 7)
    assert type(launcher) is not Launcher
    interrupted(launcher, error("of the handler"))
    with pytest.raises(error, match="of the handler"):
        launcher(a, b, 0.5, 7)
    assert not general


class Foreign:
    """An object of a library whose attributes are looked up by Python code."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"no {name} here")


def test_what_looking_up_an_attribute_of_a_foreign_argument_raises_is_left_to_the_general_path(
    gpu: Device, seen: ScriptedDevice, general: list[Any]
) -> None:
    a, b = arrays(gpu)
    launcher = fresh(combine)[1, 32]
    for _ in range(3):
        launcher(a, b, 0.5, 7)
    kind, what, *_ = agree(launcher, seen, Foreign(), b, 0.5, 7)
    assert kind is qn.errors.KernelTypeError
    assert "Foreign" in what
    assert len(general) == 1


def test_a_closed_device_or_stream_refuses_quick_launches(gpu: Device) -> None:
    a, b = arrays(gpu)
    kernel = fresh(combine)
    stream = gpu.stream()
    in_stream, launcher = kernel[1, 32, stream], kernel[1, 32]
    for _ in range(3):
        in_stream(a, b, 0.5, 7)
        launcher(a, b, 0.5, 7)
    bound = in_stream.bind(a, b, 0.5, 7)
    stream.close()
    for launch in (lambda: in_stream(a, b, 0.5, 7), bound):
        with pytest.raises(LaunchError, match="this stream of fake:0 is closed"):
            launch()
    gpu.close()
    for launch in (lambda: launcher(a, b, 0.5, 7), lambda: kernel[1, 32](a, b, 0.5, 7), bound):
        with pytest.raises(LaunchError, match="is closed"):
            launch()


def test_graphs_profiles_and_modes_get_launches_that_were_quick(gpu: Device, seen: ScriptedDevice) -> None:
    class Taking(LaunchMode):
        def __init__(self) -> None:
            self.shown: list[RequestedLaunch] = []

        def take(self, launch: RequestedLaunch) -> bool:
            self.shown.append(launch)
            return True

    a, b = arrays(gpu)
    launcher = fresh(combine)[1, 32]
    for _ in range(3):
        launcher(a, b, 0.5, 7)
    bound = launcher.bind(a, b, 0.5, 7)
    before = len(seen.launches)
    with gpu.graph() as graph:
        launcher(a, b, 0.5, 7)
        bound()
    assert len(graph) == 2
    assert len(seen.launches) == before
    with gpu.profile() as profile:
        launcher(a, b, 0.5, 7)
        bound()
    assert len(profile.work) == 2
    mode = Taking()
    with mode:
        launcher(a, b, 0.5, 7)
        bound()
    assert len(mode.shown) == 2
    assert len(seen.launches) == before + 2
    assert not standing


# --- kept launchers ---------------------------------------------------------------------------------------------------


def test_the_same_shape_gives_the_same_launcher_and_equal_keys_of_other_types_do_not() -> None:
    kernel = fresh(combine)
    blocks, threads = 4, 256
    assert kernel[4, 256] is kernel[blocks, threads]
    assert kernel.over(8) is kernel.over(8)
    assert kernel.over((8, 8), device="cpu") is kernel.over((8, 8), device="cpu")
    assert kernel.over(8) is not kernel.over(8, block=64)
    for wrong in (lambda: kernel[4.0, 256], lambda: kernel[(4.0,), 256], lambda: kernel[4, 256.0]):
        kernel[(4,), 256]
        with pytest.raises(LaunchError, match="is a float, not an integer"):
            wrong()
    kernel[1, 256], kernel[1]
    for wrong in (lambda: kernel[True, 256], lambda: kernel[True], lambda: kernel.over(True)):
        kernel.over(1)
        with pytest.raises(LaunchError, match="is a bool"):
            wrong()
    with pytest.raises(LaunchError, match="is a float, not an integer"):
        kernel.over(8.0)


def test_lists_and_streams_are_not_kept(gpu: Device) -> None:
    kernel = fresh(combine)
    assert kernel.over([8]) is not kernel.over([8])
    stream = gpu.stream()
    kernel[1, 32, stream]
    assert kernel[1, 32, stream] is not kernel[1, 32, stream]


def test_shapes_that_change_for_ever_do_not_pile_up() -> None:
    kernel = fresh(combine)
    for extent in range(1, 1000):
        kernel.over(extent)
        kernel[extent, 32]
    assert len(kernel._over) <= 256
    assert len(kernel._on_grids) <= 256


def test_a_kept_launcher_of_a_closed_device_is_made_anew(installed: Any) -> None:
    installed(ScriptedBackend("fake", [("gpu", "Fake One")]))
    kernel = fresh(combine)
    first = kernel.over(8, device="fake")
    assert kernel.over(8, device="fake") is first
    qn.device("fake").close()
    second = kernel.over(8, device="fake")
    assert second is not first
    x, y = arrays(qn.device("fake"), 8)
    second(x, y, 1.0, 8)


# --- threads ----------------------------------------------------------------------------------------------------------


def test_threads_that_launch_at_once_through_one_launcher_get_their_own_arguments(
    gpu: Device, seen: ScriptedDevice
) -> None:
    launcher = fresh(combine)[1, 32]
    kinds = [arrays(gpu), arrays(gpu), (arrays(gpu)[0], gpu.zeros(32, qn.f64))]
    cells: dict[int, set[Any]] = {}
    for number, (a, b) in enumerate(kinds):
        launcher(a, b, 0.5, number)
        cells[number] = {seen.launches[-1].cells}
    del seen.launches[:]
    start = threading.Barrier(len(kinds))

    def work(number: int) -> None:
        a, b = kinds[number]
        start.wait()
        for _ in range(200):
            launcher(a, b, 0.5, number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(kinds))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen.launches) == 600
    allowed = set.union(*cells.values())
    assert {launch.cells for launch in seen.launches} <= allowed
    entries = {launch.cells: launch.header.params[1].dtype for launch in seen.launches}
    assert sorted(entries.values()) == ["f32", "f32", "f64"]


def test_an_array_is_freed_when_the_caller_lets_it_go(gpu: Device, seen: ScriptedDevice) -> None:
    a, b = arrays(gpu)
    launcher = fresh(combine)[1, 32]
    for _ in range(4):
        launcher(a, b, 0.5, 7)
    live = len(seen.live)
    del a, b
    gc.collect()
    assert len(seen.live) == live - 2
