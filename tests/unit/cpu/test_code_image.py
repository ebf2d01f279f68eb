"""Images: code that is mapped as it is, what makes them of object files, and what refuses to."""

from __future__ import annotations

import ctypes
import gc
import math
import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.unit.cpu.harness import CONTIGUOUS, Built
from tests.unit.cpu.test_code import saxpy

import quernel as qn
from quernel.errors import DeviceError
from quernel_cpu import _toolchain, host_store
from quernel_cpu.code_image import encoded_image, is_image, map_image
from quernel_cpu.host import host
from quernel_cpu.linking import linked_image

here = host()
pytestmark = pytest.mark.skipif(
    not here.triple.startswith("x86_64") or "linux" not in here.triple, reason="needs x86-64 Linux"
)

CALLS = """
declare double @fmod(double, double)
declare double @cbrt(double)
@numbers = private constant [3 x double] [double 2.5, double 8.0, double 64.0]

define internal double @inner(i64 %i) noinline nounwind {
  %at = getelementptr double, ptr @numbers, i64 %i
  %number = load double, ptr %at
  %root = call double @cbrt(double %number)
  ret double %root
}
define double @first(i64 %i) nounwind {
  %root = call double @inner(i64 %i)
  %rest = call double @fmod(double %root, double 1.25)
  ret double %rest
}
define double @second() nounwind {
  %root = call double @inner(i64 2)
  ret double %root
}
define ptr @third() nounwind {
  ret ptr @cbrt
}
"""
VARIABLE = """
@count = internal global i64 0
define i64 @first() {
  %before = load i64, ptr @count
  %after = add i64 %before, 1
  store i64 %after, ptr @count
  ret i64 %before
}
"""
POINTERS = """
@table = constant [2 x ptr] [ptr @zero, ptr @one]
define i64 @zero() { ret i64 0 }
define i64 @one() { ret i64 1 }
define i64 @first(i64 %i) {
  %at = getelementptr ptr, ptr @table, i64 %i
  %function = load ptr, ptr %at
  %result = call i64 %function()
  ret i64 %result
}
"""
THREAD_LOCAL = "@own = thread_local global i64 7\ndefine ptr @first() { ret ptr @own }\n"


def compiled(text: str) -> bytes:
    return _toolchain.compile_ir(text, here.triple, here.cpu, here.features, is_vector_code=True)


def permissions(address: int) -> str:
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, _, rest = line.partition("-")
        if int(start, 16) <= address < int(rest.partition(" ")[0], 16):
            return rest.split()[1]
    return ""


def test_functions_find_each_other_their_constants_and_those_of_the_c_library() -> None:
    image = linked_image(compiled(CALLS), "first", "second", "third")
    assert image is not None
    code = map_image(image)
    first = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int64)(code.address_of("first"))
    assert [first(i) for i in range(3)] == [pytest.approx(math.fmod(x ** (1 / 3), 1.25)) for x in (2.5, 8.0, 64.0)]
    assert ctypes.CFUNCTYPE(ctypes.c_double)(code.address_of("second"))() == 4.0
    cbrt = ctypes.cast(ctypes.CDLL("libm.so.6").cbrt, ctypes.c_void_p).value
    assert ctypes.CFUNCTYPE(ctypes.c_void_p)(code.address_of("third"))() == cbrt


@pytest.mark.parametrize("text", [VARIABLE, POINTERS, THREAD_LOCAL])
def test_an_object_that_needs_a_linker_is_no_image(text: str) -> None:
    assert linked_image(compiled(text), "first") is None


def test_what_is_no_object_of_this_kind_is_no_image() -> None:
    whole = compiled(CALLS)
    assert linked_image(b"", "first") is None
    assert linked_image(whole[:200], "first") is None
    assert linked_image(whole, "absent") is None
    assert linked_image(whole.replace(b"\x7fELF\x02", b"\x7fELF\x01"), "first") is None


def test_mapped_code_can_be_run_and_not_written_and_goes_with_its_last_user() -> None:
    image = linked_image(compiled(CALLS), "second")
    assert image is not None
    code = map_image(image)
    address = code.address_of("second")
    assert permissions(address) == "r-xp"
    # Another mapping may follow at once, so the pages are asked, not the address's neighbours.
    del code
    gc.collect()
    assert permissions(address) != "r-xp"


def test_a_damaged_image_is_refused() -> None:
    image = encoded_image(b"\xc3" * 8, {"first": 0}, (), 8)
    assert map_image(image).address_of("first")
    for damaged in (
        image[:20],
        image.replace(b'"first":0', b'"first":9'),
        image.replace(b'"first":0', b'"first":[]'),
        image.replace(b'"table":8', b'"table":9'),
        encoded_image(b"\xc3" * 8, {"first": 0}, ("cbrt",), 4),
        encoded_image(b"\xc3" * 8, {"first": -1}, (), 0),
    ):
        with pytest.raises(DeviceError, match="damaged"):
            map_image(damaged)


@pytest.mark.parametrize(
    "head",
    [
        b"[" * 100_000,
        b"{",
        b"null",
        b'{"exports":{"first":' + b"9" * 5000 + b'},"imports":[],"table":0}',
        b'{"exports":{"first":0.5},"imports":[],"table":0}',
        b'{"exports":{"first":true},"imports":[],"table":0}',
        b'{"exports":{"first":NaN},"imports":[],"table":0}',
        b'{"exports":["first"],"imports":[],"table":0}',
        b'{"exports":{},"imports":[],"table":0.5}',
        b'{"exports":{},"imports":[],"table":null}',
        b'{"exports":{},"imports":"cbrt","table":0}',
        b'{"exports":{},"imports":{"cbrt":0},"table":0}',
        b'{"exports":{},"imports":[1],"table":0}',
        b'{"exports":{},"imports":["\\ud800"],"table":0}',
        b'{"exports":{},"imports":["cbrt"],"table":-8}',
        b'{"exports":{},"imports":["cbrt"],"table":57}',
    ],
    ids=lambda head: head[:40].decode(),
)
def test_whatever_a_head_says_only_offsets_within_the_code_are_taken(head: bytes) -> None:
    start = encoded_image(b"", {}, (), 0)
    magic = start[: start.index(b"{") - 4]
    with pytest.raises(DeviceError, match="the code image is damaged"):
        map_image(magic + struct.pack("<I", len(head)) + head + b"\xc3" * 64)


def test_an_image_without_code_is_damaged() -> None:
    with pytest.raises(DeviceError, match="the code image is damaged: it has no code"):
        map_image(encoded_image(b"", {}, (), 0))


def test_a_damaged_object_is_an_image_or_none() -> None:
    whole, rng = compiled(CALLS), np.random.default_rng(7)
    refused = 0
    for _ in range(3000):
        damaged = bytearray(whole[: rng.integers(64, len(whole)) if rng.random() < 0.2 else len(whole)])
        for place in rng.integers(0, len(damaged), rng.integers(1, 5)):
            damaged[place] ^= 1 << rng.integers(8)
        image = linked_image(bytes(damaged), "first")
        assert image is None or is_image(image)
        refused += image is None
    assert refused > 500


def test_an_image_that_calls_what_is_not_here_is_refused() -> None:
    calls = encoded_image(b"\xc3" * 16, {"first": 0}, ("quernel_no_such_function",), 8)
    with pytest.raises(DeviceError, match="quernel_no_such_function, which no library"):
        map_image(calls)
    with pytest.raises(DeviceError, match=r"libquernel_absent\.so cannot be loaded"):
        map_image(calls, "libquernel_absent.so")
    with pytest.raises(DeviceError, match="defines no second"):
        map_image(encoded_image(b"\xc3", {"first": 0}, (), 1)).address_of("second")


def test_kernels_are_images_and_run_as_their_objects_do() -> None:
    built = Built(saxpy(), CONTIGUOUS)
    assert is_image(built.artifact.payload)
    x, y = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
    built.over(1000, np.float32(2), x, y)
    assert np.array_equal(y, 2 * x + 1)


START = """
import math
import sys
import numpy as np
import quernel as qn

@qn.kernel
def waves(x: qn.Array1[qn.f32], y: qn.Array1[qn.f32]):
    i = qn.global_id()
    y[i] = math.sin(x[i]) + math.atan2(x[i], 2.0) + x[i] % 0.75

@qn.kernel(block=64)
def reversed_blocks(x: qn.Array1[qn.f32], y: qn.Array1[qn.f32]):
    part = qn.shared(64, qn.f32)
    part[qn.local_id()] = x[qn.global_id()]
    qn.barrier()
    y[qn.global_id()] = part[63 - qn.local_id()]

x = np.linspace(-9, 9, 1 << 20, dtype=np.float32)
y, z = np.empty_like(x), np.empty_like(x)
waves.over(len(x), device="cpu")(x, y)
np.testing.assert_allclose(y, np.sin(x) + np.arctan2(x, 2) + x % 0.75, atol=1e-5)
for _ in range(5):
    reversed_blocks[len(x) // 64](x, z)
assert np.array_equal(z.reshape(-1, 64), x.reshape(-1, 64)[:, ::-1])
from quernel_cpu import workers
if "--wait" in sys.argv:
    workers._making.wait()
print("llvmlite" in sys.modules, workers._making.workers is not None)
"""


def test_a_warm_start_loads_no_llvm_also_with_functions_workers_and_shared_memory(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(START)
    environment = {
        "PATH": "",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "QUERNEL_NUM_THREADS": "2",
        "QUERNEL_ENVIRONMENT": str(tmp_path / "store"),
    }

    def start(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, str(program), *arguments], capture_output=True, text=True, timeout=120, env=environment
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert start("--wait") == "True True"
    assert start() == "False True"


def test_what_is_kept_of_another_machine_is_not_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from quernel.store import environment

    with environment(tmp_path / "store") as where:
        host_store.keep("text", b"content", where)
        assert host_store.kept("text", where) == b"content"
        assert host_store.kept("other", where) is None
        monkeypatch.setattr(host_store, "_machine", lambda: "0" * 64)
        assert host_store.kept("text", where) is None
        monkeypatch.setattr(host_store, "_machine", lambda: "")
        host_store.keep("other", b"content", where)
        assert host_store.kept("other", where) is None
    assert host_store.kept("text", None) is None


@pytest.mark.parametrize("content", [b"", b"[]", b'{"triple": "x"}', b'{"triple":1,"cpu":1,"features":1,"llvm":1}'])
def test_a_description_that_is_none_is_not_taken(
    content: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from quernel.store import environment
    from quernel_cpu import host as host_module

    with environment(tmp_path / "store") as where:
        host_store.keep("host", content, where)
        monkeypatch.setattr(host_module, "_host", None)
        host_module.recall_host(where)
        assert host_module._host is None
        host_module.keep_host(where)
        monkeypatch.setattr(host_module, "_host", None)
        host_module.recall_host(where)
        assert host_module.host() == here


def test_a_machine_that_the_system_describes_anew_is_kept_anew_though_all_kernels_are_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from quernel.store import environment
    from quernel_cpu import host as host_module

    @qn.kernel
    def ones(x: qn.Array1[qn.f32]):  # type: ignore[no-untyped-def, valid-type]
        x[qn.global_id()] = 1.0

    def launch_as_first(machine: str) -> bool:
        """Launches as a process would that has just begun; whether it has found what LLVM says."""
        monkeypatch.setattr(host_store, "_machine", lambda: machine)
        monkeypatch.setattr(host_module, "_host", None)
        with environment(tmp_path / "store") as where:
            host_module.recall_host(where)
            is_known = host_module._host is not None
            ones.over(4)(np.zeros(4, np.float32))
        return is_known

    assert not launch_as_first("1" * 64)
    assert launch_as_first("1" * 64)
    assert not launch_as_first("2" * 64)
    assert launch_as_first("2" * 64)


AT_EXIT = """
import atexit
import numpy as np
import quernel as qn

@qn.kernel
def more(x: qn.Array1[qn.f32]):
    x[qn.global_id()] += 1.0

def last():
    x = np.zeros(1 << 20, np.float32)
    for _ in range(8):
        more.over(len(x), device="cpu")(x)
    assert (x == 8).all()
    print("done")

atexit.register(last)
"""


def test_launches_at_the_interpreters_end_do_not_keep_it_from_ending(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(AT_EXIT)
    done = subprocess.run(
        [sys.executable, str(program)],
        env={
            "PATH": "",
            "PYTHONPATH": os.pathsep.join(sys.path),
            "QUERNEL_NUM_THREADS": "2",
            "QUERNEL_ENVIRONMENT": str(tmp_path / "store"),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "done\n"
