"""Intel's compiler is told what to leave alone: complements that all threads share, by least and greatest values."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.opencl.harness import infos

from quernel.errors import DeviceError
from quernel_opencl import _intel, _toolchain

OPTIONS = "CL_CONFIG_LLVM_OPTIONS"
LEFT_ALONE = "-disable-x86-scalar-to-vector"
needs_intel = pytest.mark.skipif(
    not any(info.name.endswith("(Intel(R) OpenCL)") for info in infos()),
    reason="needs pip install quernel-opencl[intel]",
)


class Driver:
    """What stands for pyopencl: its contexts note the options that a compiler would start with."""

    def __init__(self) -> None:
        self.options: list[str | None] = []

    def Context(self, devices: list[Any]) -> list[Any]:
        self.options.append(os.environ.get(OPTIONS))
        return devices


DEVICE = SimpleNamespace(name="CPU", driver_version="1", platform=SimpleNamespace(name="Intel(R) OpenCL"))


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A library with the option, in a process whose compiler has not started."""
    path = tmp_path / "libintelocl.so.1"
    path.write_bytes(b"\0disable-x86-scalar-to-vector\0")
    monkeypatch.setattr(_intel, "_is_trusted", False)
    monkeypatch.setattr(_intel, "_loaded", lambda: (path, True))
    monkeypatch.setattr(_intel, "_is_right", lambda *_: False)
    monkeypatch.delenv(OPTIONS, raising=False)
    return path


@pytest.mark.parametrize(("theirs", "given"), [
    (None, LEFT_ALONE), ("-their-own=1", f"-their-own=1 {LEFT_ALONE}"), (f"{LEFT_ALONE} -b", f"{LEFT_ALONE} -b"),
])  # fmt: skip
def test_the_first_context_alone_is_opened_with_the_option(
    library: Path, monkeypatch: pytest.MonkeyPatch, theirs: str | None, given: str
) -> None:
    driver = Driver()
    if theirs is not None:
        monkeypatch.setenv(OPTIONS, theirs)
    assert _intel.open_context(driver, DEVICE) == [DEVICE]
    assert os.environ.get(OPTIONS) == theirs
    _intel.open_context(driver, DEVICE)
    assert driver.options == [given, theirs]


def test_a_library_without_the_option_is_not_told_it(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    library.write_bytes(b"disable-x86-scalar-to-vectors")
    with pytest.raises(DeviceError, match=r"gets `~max\(a, b\)` wrong on CPU"):
        _intel.open_context(driver, DEVICE)
    monkeypatch.setattr(_intel, "_is_right", lambda *_: True)
    _intel.open_context(driver, DEVICE)
    assert driver.options == [None, None]


def test_a_compiler_that_other_code_started_is_tried(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_intel, "_loaded", lambda: (library, False))
    with pytest.raises(DeviceError, match=r"gets `~max\(a, b\)` wrong on CPU") as raised:
        _intel.open_context(Driver(), DEVICE)
    assert f"{OPTIONS}={LEFT_ALONE}" in str(raised.value.fix)
    monkeypatch.setattr(_intel, "_is_right", lambda *_: True)
    assert _intel.open_context(Driver(), DEVICE) == [DEVICE]


def test_what_is_tried_was_compiled_in_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not infos():
        pytest.skip("needs an OpenCL device, for example pip install quernel-opencl[pocl]")
    import pyopencl
    from pyopencl import cache, characterize

    def kept(*_: object, **__: object) -> Any:
        raise AssertionError("a binary of another process may be taken")

    monkeypatch.setattr(pyopencl, "_PYOPENCL_NO_CACHE", False)
    monkeypatch.setattr(characterize, "has_src_build_cache", lambda _: None)  # as of Intel's devices
    monkeypatch.setattr(cache, "create_built_program_from_source_cached", kept)
    context = _toolchain.context_of(_toolchain.find_devices()[0][0].key)
    assert _intel._is_right(pyopencl, context, context.devices[0])


# --- with the runtime itself ------------------------------------------------------------------------------------------


def printed(code: str, **environment: str) -> list[str]:
    """What a program prints in a process of its own, in words."""
    variables = {name: value for name, value in os.environ.items() if name != OPTIONS} | environment
    program = [sys.executable, "-c", code]
    done = subprocess.run(program, env=variables, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


FOR_AVX512 = """
import pyopencl as cl
from quernel_opencl import _toolchain

def bare(key, text, options):
    device = _toolchain.device_of(key)
    program = cl.Program(cl.Context([device]), text).build()
    return program.get_info(cl.program_info.BINARIES)[0], ""

key = next(found.key for found in _toolchain.find_devices()[0] if found.key.platform.startswith("Intel"))
for form in FORMS:
    for type in ("int", "uint", "long", "ulong"):
        parameters = f"__global {type} *y, {type} a, {type} b, {type} c"
        binary, _ = BUILD(key, f"__kernel void k({parameters}) {{ y[get_global_id(0)] = {form}; }}", ())
        print(binary.hex())
"""
FORMS = ("~max(a, b)", "min(~a, a)", "min(a, b) - 1 - c", "max(a, b - c - 1)", "b < a ? ~a : ~b", "~min(c, max(a, b))")
STARTED_BEFORE = """
import pyopencl
device = next(p for p in pyopencl.get_platforms() if p.name.startswith("Intel")).get_devices()[0]
context = pyopencl.Context([device])
"""


def lost_complements(code: bytes) -> int:
    """How often a register of 128 bits is compared with itself into a mask: what should have set all of its bits.

    The instructions are VPCMPEQD and VPCMPEQQ with the prefix of AVX-512.
    """
    found = 0
    for match in re.finditer(rb"\x62([\x00-\xff]{3})([\x76\x29])([\xc0-\xff])", code, re.DOTALL):
        (first, second, third), opcode, operands = match[1], match[2][0], match[3][0]
        is_quad = opcode == 0x29
        if first & 0x07 != (2 if is_quad else 1) or second & 0x87 != (0x85 if is_quad else 0x05) or third & 0xF7:
            continue
        compared = (~second >> 3 & 15) | (~third >> 3 & 1) << 4
        found += compared == (operands & 7) | (~first >> 5 & 1) << 3 | (~first >> 6 & 1) << 4
    return found


def built_for_avx512(build: str) -> list[bytes]:
    """The binaries of kernels with complements, made by a function of that name."""
    code = FOR_AVX512.replace("FORMS", repr(FORMS)).replace("BUILD", build)
    return [bytes.fromhex(binary) for binary in printed(code, CL_CONFIG_CPU_TARGET_ARCH="skx", PYOPENCL_NO_CACHE="1")]


@needs_intel
def test_no_complement_is_lost_in_code_for_avx512() -> None:
    assert [lost_complements(binary) for binary in built_for_avx512("_toolchain.build_binary")] == [0] * 24


@needs_intel
def test_the_check_finds_each_complement_that_a_compiler_loses_which_was_told_nothing() -> None:
    lost = [lost_complements(binary) for binary in built_for_avx512("bare")]
    if not any(lost):
        pytest.skip("needs version 2026.22 of Intel's runtime, or another that loses complements")
    assert all(lost)


@needs_intel
def test_a_device_whose_context_came_later_computes_right_or_is_refused() -> None:
    code = f"""{STARTED_BEFORE}
import numpy as np, quernel as qn
from quernel.errors import DeviceError

@qn.kernel
def k(y: qn.Array[qn.i64], a: int, b: int):
    y[qn.global_id()] = ~max(a, b)

number = next(info.index for info in qn.devices("opencl") if "Intel" in info.name)
y = np.zeros(100, np.int64)
try:
    k.over(100, device=f"opencl:{{number}}")(y, 3, 5)
    print("right" if (y == -6).all() else "wrong")
except DeviceError as error:
    print("refused" if "~max(a, b)" in str(error) else error)
"""
    assert printed(code, QUERNEL_NO_CACHE="1") in (["right"], ["refused"])
