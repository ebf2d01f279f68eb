"""What launches report: violations raise where they happened, prints are shown when a launch is known to be over."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.runtime.scripted import ScriptedBackend, ScriptedDevice, ir_kernel

import quernel as qn
from quernel import diagnostics as d
from quernel.compiler.artifacts import ArtifactHeader, SlotKind
from quernel.errors import DeviceError, KernelAssertionError, LaunchError, OutOfBoundsError
from quernel.geometry import Geometry
from quernel.ir.nodes import Assert, Module
from quernel.ir.walk import walk_statements
from quernel.options import KernelOptions
from quernel.runtime.devices import Device
from quernel.runtime.reports import PendingReport


@qn.kernel
def shift(x: qn.Array[qn.f32], by: int):
    i = qn.global_id()
    x[i + by] = 1.0


@qn.kernel
def table(x: qn.Array2[qn.i64], y: qn.Array[qn.i64]):
    i, j = qn.global_id()
    x[i, j] = y[i * 10 + j]


@pytest.fixture(params=["cpu", "reference"])
def host(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


# --- violations -------------------------------------------------------------------------------------------------------


def test_violation_names_file_line_array_index_shape_and_thread(host: str) -> None:
    x = np.zeros(8, np.float32)
    with pytest.raises(IndexError, match=r"index 8 is outside x, whose shape is \(8,\) \(in thread 7\)") as caught:
        shift.options(checked=True).over(8, device=host)(x, 1)
    error = caught.value
    assert isinstance(error, OutOfBoundsError)
    assert error.where is not None
    assert error.where.file == __file__
    assert "x[i + by] = 1.0" in Path(__file__).read_text().splitlines()[error.where.line - 1]
    assert "    x[i + by] = 1.0\n    ^^^^^^^^^" in str(error)


def test_violation_leaves_what_the_others_wrote(host: str) -> None:
    x = np.zeros(8, np.float32)
    with pytest.raises(IndexError, match="index 8 is outside x"):
        shift.options(checked=True).over(4, device=host)(x, 5)
    assert x[:5].tolist() == [0] * 5
    assert set(x[5:].tolist()) <= {0.0, 1.0}
    shift.options(checked=True).over(3, device=host)(x, 5)
    assert x.tolist() == [0] * 5 + [1] * 3


def test_negative_index_never_wraps(host: str) -> None:
    x = np.zeros(8, np.float32)
    with pytest.raises(IndexError, match=r"index -1 is outside x.*\(in thread 0\)"):
        shift.options(checked=True).over(1, device=host)(x, -1)
    assert x.tolist() == [0] * 8


def test_several_axes_are_named_as_tuples(host: str) -> None:
    x, y = np.zeros((2, 3), np.int64), np.zeros(100, np.int64)
    with pytest.raises(
        IndexError, match=r"index \((0|1), 3\) is outside x, whose shape is \(2, 3\) \(in thread \(\1, 3\)\)"
    ):
        table.options(checked=True).over((2, 4), device=host)(x, y)


def test_variable_checks_every_launch_and_bound_ones(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.zeros(8, np.float32)
    monkeypatch.setenv("QUERNEL_CHECKED", "1")
    with pytest.raises(IndexError, match="index 8 is outside x"):
        shift.over(8, device=host)(x, 1)
    bound = shift.over(8, device=host).bind(x, 0)
    bound()
    bound()
    assert x.tolist() == [1] * 8
    bound.update(by=2)
    for _ in range(2):
        with pytest.raises(IndexError, match=r"index (8|9) is outside x"):
            bound()


def test_violation_of_one_launch_is_no_violation_of_the_next(host: str) -> None:
    launcher = shift.options(checked=True).over(8, device=host)
    for _ in range(3):
        with pytest.raises(IndexError, match="index 7 is outside x"):
            launcher(np.zeros(7, np.float32), 0)
        launcher(np.zeros(8, np.float32), 0)


def test_warm_start_reports_at_the_line_too(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import sys
            import numpy as np
            import quernel as qn

            @qn.kernel(checked=True)
            def far(x: qn.Array[qn.i32]):
                x[qn.global_id() + 3] = 1

            far.over(1, device="cpu")(np.zeros(4, np.int32))
            assert sys.argv[1] == "cold" or "quernel.ir" not in sys.modules
            try:
                far.over(4, device="cpu")(np.zeros(6, np.int32))
            except IndexError as error:
                print(error.where.line, error.what)
            """
        )
    )
    env = {**os.environ, "QUERNEL_ENVIRONMENT": str(tmp_path / "environment")}
    for start in ("cold", "warm"):
        done = subprocess.run([sys.executable, script, start], capture_output=True, text=True, env=env, check=True)
        assert re.fullmatch(r"8 index 6 is outside x, whose shape is \(6,\) \(in thread 3\)\n", done.stdout), start


# --- a device that goes on beside the host ----------------------------------------------------------------------------


class Reporting(ScriptedDevice):
    """Runs kernels that report: what `reports` says of a launch is put into its diagnostics buffer."""

    site = 0
    violating = False
    printed: tuple[tuple[int, ...], ...] = ()
    lost = 0

    def launch(self, loaded: Any, header: ArtifactHeader, geometry: Geometry, arguments: bytes, stream: Any) -> None:
        super().launch(loaded, header, geometry, arguments, stream)
        cell = next((n for n, slot in enumerate(header.slots) if slot.kind is SlotKind.DIAGNOSTICS), None)
        if cell is None:
            return
        buffer = self.live[self.launches[-1].cells[cell]]

        def put(position: int, *cells: int) -> None:
            struct.pack_into(f"<{len(cells)}q", buffer, d.CELL_BYTES * position, *cells)

        assert struct.unpack_from("<Q", buffer, d.CELL_BYTES * d.CAPACITY)[0] == d.DEFAULT_PRINT_CELLS
        assert not any(buffer[: d.CELL_BYTES * d.CAPACITY])
        if self.violating:
            put(d.CLAIM, 1, self.site, 0, 0, 8, 2, 9, 8)
        position = d.PRINT_RECORDS
        for thread, *values in self.printed:
            put(position, d.print_head(self.site, len(values)), 0, 0, thread, *values)
            position += d.RECORD_CELLS + len(values)
        put(d.PRINT_CURSOR, position - d.PRINT_RECORDS, self.lost)


class ReportingBackend(ScriptedBackend):
    def open(self, info: Any) -> Any:
        operations = Reporting(info, self._limits)
        operations.target.compiler.target_info = attrs_with_checks(operations.target.compiler.target_info)
        self.opened.append(operations)
        return operations


def attrs_with_checks(info: Any) -> Any:
    import attrs

    return attrs.evolve(info, capabilities=attrs.evolve(info.capabilities, checked=True))


@pytest.fixture
def beside() -> Device:
    backend = ReportingBackend("fake", [("gpu", "Fake One")])
    (info,) = backend.devices()  # type: ignore[misc]
    return Device(backend.open(info), backend=backend)


def bounds_site(module: Module) -> int:
    return next(stmt.site for stmt in walk_statements(module.kernel.body) if isinstance(stmt, Assert))


def test_checked_launch_waits_and_raises_and_frees_its_buffer(beside: Device) -> None:
    operations: Any = beside.operations
    x = beside.zeros(8, qn.f32)
    live = len(operations.live)
    launcher = shift.options(checked=True).over(8)
    launcher(x, 0)
    assert ("synchronize", None) in operations.log
    operations.violating = True
    with pytest.raises(OutOfBoundsError, match=r"index 9 is outside x, whose shape is \(8,\) \(in thread 8\)"):
        launcher(x, 0)
    assert len(operations.live) == live


def test_checked_launch_in_a_stream_waits_for_that_stream(beside: Device) -> None:
    operations: Any = beside.operations
    with beside.stream() as stream:
        shift.options(checked=True).over(8, stream=stream)(beside.zeros(8, qn.f32), 0)
        assert ("synchronize", stream.handle) in operations.log


def test_graph_refuses_a_kernel_that_checks(beside: Device) -> None:
    x = beside.zeros(8, qn.f32)
    with beside.graph(), pytest.raises(LaunchError, match="kernel shift checks or prints, which a graph cannot repeat"):
        shift.options(checked=True).over(8)(x, 0)


def test_kernel_without_sites_has_no_buffer(beside: Device) -> None:
    x = beside.zeros(8, qn.f32)
    (gpu_kernel := shift.options(device=beside)).over(8)(x, 0)
    (ready,) = gpu_kernel._launchable.over.values()
    assert ready.reports is None


speak = ir_kernel(
    "kernel speak(x: array<f32, 1>) over (8):\n    print[0] global_id(0), x[global_id(0)]\n", x=qn.Array1[qn.f32]
)


def test_prints_are_shown_thread_by_thread(host: str, capsys: Any) -> None:
    speak.over(300, device=host)(np.arange(300, dtype=np.float32))
    assert capsys.readouterr().out == "".join(f"{i} {float(i)}\n" for i in range(300))


def bits(value: float) -> int:
    number: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return number


@pytest.mark.parametrize("wait", ["device", "stream", "copy", "close", "stream close"])
def test_prints_wait_until_somebody_waits(beside: Device, capsys: Any, wait: str) -> None:
    operations: Any = beside.operations
    operations.printed = ((2, 2, bits(0.5)), (1, 1, bits(1.5)))
    stream = beside.stream() if "stream" in wait else None
    x = beside.zeros(8, qn.f32)
    speak.over(8, stream=stream)(x)
    assert capsys.readouterr().out == ""
    if stream is not None:
        beside.stream().synchronize()
        assert capsys.readouterr().out == ""
        stream.synchronize() if wait == "stream" else stream.close()
    elif wait == "device":
        beside.synchronize()
    elif wait == "copy":
        x.numpy()
    else:
        beside.close()
    assert capsys.readouterr().out == "1 1.5\n2 0.5\n"
    if not beside.is_closed:
        beside.synchronize()
    assert capsys.readouterr().out == ""


def test_lost_prints_are_counted(beside: Device, capsys: Any) -> None:
    operations: Any = beside.operations
    operations.printed, operations.lost = ((0, 0, bits(0.5)),), 41
    speak.over(8)(beside.zeros(8, qn.f32))
    beside.synchronize()
    assert capsys.readouterr().out == "0 0.5\n[kernel speak: 41 more prints did not fit]\n"


def test_launches_that_print_do_not_pile_up(beside: Device, capsys: Any) -> None:
    operations: Any = beside.operations
    operations.printed = ((0, 0, bits(0.5)),)
    x = beside.zeros(8, qn.f32)
    for _ in range(200):
        speak.over(8)(x)
    assert len(operations.live) < 70
    beside.synchronize()
    assert capsys.readouterr().out == "0 0.5\n" * 200


def test_report_that_fails_leaves_the_others_shown_and_every_buffer_freed(
    beside: Device, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    operations: Any = beside.operations
    operations.printed = ((0, 0, bits(0.5)),)
    x = beside.zeros(8, qn.f32)
    live = len(operations.live)
    read, failures = PendingReport._read, [DeviceError("the first is lost"), DeviceError("the second is lost")]

    def read_or_fail(report: PendingReport) -> Any:
        if failures:
            raise failures.pop(0)
        return read(report)

    for _ in range(4):
        speak.over(8)(x)
    monkeypatch.setattr(PendingReport, "_read", read_or_fail)
    with pytest.raises(DeviceError, match="the first is lost") as caught:
        beside.synchronize()
    assert caught.value.__notes__ == ["another launch that was waited for: the second is lost"]
    assert capsys.readouterr().out == "0 0.5\n" * 2
    assert len(operations.live) == live
    beside.synchronize()
    assert capsys.readouterr().out == ""


def test_interrupted_report_frees_the_buffers_of_all(beside: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    operations: Any = beside.operations
    x = beside.zeros(8, qn.f32)
    live = len(operations.live)

    def interrupted(report: PendingReport) -> Any:
        raise KeyboardInterrupt

    for _ in range(3):
        speak.over(8)(x)
    monkeypatch.setattr(PendingReport, "_read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        beside.synchronize()
    assert len(operations.live) == live


def test_report_is_never_added_while_another_thread_takes_what_is_over(beside: Device, capsys: Any) -> None:
    operations: Any = beside.operations
    operations.printed = ((0, 0, bits(0.5)),)
    x = beside.zeros(8, qn.f32)
    speak.over(8)(x)
    launching = threading.Thread(target=lambda: speak.over(8)(x))
    with beside._lock:  # as in the middle of `show_reports`
        launching.start()
        launching.join(0.3)
        assert (launching.is_alive(), len(beside.reports)) == (True, 1)
    launching.join()
    beside.synchronize()
    assert capsys.readouterr().out == "0 0.5\n" * 2


def test_prints_are_shown_before_the_process_ends(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import quernel as qn\n"
        "from quernel.runtime.devices import Device\n"
        "from tests.unit.runtime.test_reports import ReportingBackend, speak\n"
        "backend = ReportingBackend('fake', [('gpu', 'One')])\n"
        "device = Device(backend.open(backend.devices()[0]), backend=backend)\n"
        "device.operations.printed = ((0, 0, 0),)\n"
        "speak.over(8)(device.zeros(8, qn.f32))\n"
    )
    path = os.pathsep.join([str(Path(__file__).parents[3]), os.environ["PYTHONPATH"]])
    env = {**os.environ, "QUERNEL_ENVIRONMENT": str(tmp_path / "environment"), "PYTHONPATH": path}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=env, check=True)
    assert done.stdout == "0 0.0\n"


def test_assertion_raises_at_its_place_with_its_values(host: str) -> None:
    text = (
        "kernel small(x: array<f32, 1>) over (8) with checked:\n"
        "    assert[0] x[global_id(0)] < 3.0f32, x[global_id(0)]\n"
    )
    small = ir_kernel(text, KernelOptions(checked=True), x=qn.Array1[qn.f32])
    small.over(3, device=host)(np.arange(8, dtype=np.float32))
    told = r"this assertion does not hold: the values are [34]\.0 \(in thread (3|4)\)"
    with pytest.raises(KernelAssertionError, match=told) as caught:
        small.over(5, device=host)(np.arange(8, dtype=np.float32))
    assert isinstance(caught.value, AssertionError)
