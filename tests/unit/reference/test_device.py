"""Memory of the interpreter's device, and what its backend says of itself."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
from tests.unit.reference.builders import Interpreter

import quernel as qn
from quernel.errors import DeviceError, OutOfBoundsError
from quernel.reference.compiler import ReferenceCompiler
from quernel.reference.plugin import QUERNEL_PLUGIN_API, quernel_backend
from quernel.runtime.operations import PLUGIN_API, Memory


@qn.kernel
def reach(x):
    x[7] = 1


def filled(interpreter: Interpreter, data: bytes) -> Memory:
    memory = interpreter.device.allocate(len(data))
    interpreter.device.copy_from_host(memory, 0, np.frombuffer(data, np.uint8), None)
    return memory


def content(interpreter: Interpreter, memory: Memory) -> bytes:
    out = np.empty(memory.nbytes, np.uint8)
    interpreter.device.copy_to_host(out, memory, 0, None)
    return out.tobytes()


@pytest.mark.parametrize("nbytes", [1, 63, 64, 1000])
def test_memory_is_aligned_and_wholly_usable(interpreter: Interpreter, nbytes: int) -> None:
    data = bytes(range(256)) * 4
    memory = filled(interpreter, data[:nbytes])
    assert memory.address % 64 == 0
    assert content(interpreter, memory) == data[:nbytes]


def test_memory_of_no_bytes_has_no_address(interpreter: Interpreter) -> None:
    memory = interpreter.device.allocate(0)
    assert (memory.address, memory.nbytes) == (0, 0)
    assert content(interpreter, memory) == b""
    interpreter.device.free(memory)


def test_memory_that_is_not_there_is_refused(interpreter: Interpreter) -> None:
    with pytest.raises(DeviceError, match=f"there is no host memory for {1 << 62} bytes"):
        interpreter.device.allocate(1 << 62)


def test_copies_within_the_device_may_overlap(interpreter: Interpreter) -> None:
    memory = filled(interpreter, b"abcdefgh")
    interpreter.device.copy(memory, 2, memory, 0, 6, None)
    assert content(interpreter, memory) == b"ababcdef"


def test_a_pattern_fills_a_range(interpreter: Interpreter) -> None:
    memory = filled(interpreter, b"........")
    interpreter.device.fill(memory, 2, b"xy", 2, None)
    assert content(interpreter, memory) == b"..xyxy.."


def test_the_host_view_is_the_memory_itself(interpreter: Interpreter) -> None:
    memory = filled(interpreter, b"abc")
    view = interpreter.device.host_view(memory)
    assert view is not None
    view[1] = ord("X")
    assert content(interpreter, memory) == b"aXc"


def test_the_plugin_states_the_api_of_this_core() -> None:
    assert QUERNEL_PLUGIN_API == PLUGIN_API
    assert quernel_backend().name == "reference"


def test_there_is_one_device_and_one_target() -> None:
    backend = quernel_backend()
    (info,) = backend.devices()  # type: ignore[misc]  # the interpreter is always there
    assert (info.backend, info.index, info.kind) == ("reference", 0, "cpu")
    assert backend.target_info("") == backend.target_info("python")
    with pytest.raises(DeviceError, match="the interpreter has no target 'sm_90'"):
        backend.target_info("sm_90")
    assert backend.health().problems == ()


def test_the_compiler_pickles(interpreter: Interpreter) -> None:
    again = pickle.loads(pickle.dumps(interpreter.compiler))
    assert isinstance(again, ReferenceCompiler)
    assert (again.build_id, again.target_info) == (interpreter.compiler.build_id, interpreter.compiler.target_info)


def test_listing_the_device_imports_no_interpreter() -> None:
    program = (
        "import sys; from quernel.reference.plugin import quernel_backend; quernel_backend().devices();"
        "assert not {'ast', 'quernel.ir', 'quernel.reference.lowering'} & set(sys.modules) - before"
    )
    subprocess.run(
        [sys.executable, "-c", f"import sys, numpy, attrs; before = set(sys.modules); {program}"], check=True
    )


def test_large_launch_takes_no_memory_for_its_extent() -> None:
    import tracemalloc

    x = np.zeros(1)
    launchers = [reach.over((2**33, 2**29), device="reference"), reach.over(2**62, device="reference")]
    tracemalloc.start()
    try:
        for launcher in launchers:
            with pytest.raises(OutOfBoundsError, match="is outside x"):
                launcher(x)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
