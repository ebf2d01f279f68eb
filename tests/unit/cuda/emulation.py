"""Kernels' CUDA C++ run on the host: a compiler for it in NVRTC's place, and a driver that runs what it made.

So what the text means is tested where there is no GPU. What NVRTC thinks of the text is tested elsewhere.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from tests.unit.cuda.fake_driver import OK, FakeDriver

from quernel.errors import CompilationError
from quernel_cuda._toolchain import Compiled

COMPILER = shutil.which("g++")
HEADER = Path(__file__).with_name("emulation.hpp")

_DYNAMIC = re.compile(r"^extern __shared__ .*qn_shared\[\];$", re.MULTILINE)
_TO_FLOAT = re.compile(r'asm\("cvt\.f32\.f16[^;]*;" : "=f"\((\w+)\) : "h"\((\w+)\)\);')
_TO_HALF = re.compile(r'asm\("[^"]*cvt\.rn\.f16\.f32[^"]*"\s+: "=r"\((\w+)\) : "f"\((\w+)\)\);')

_folder = Path(tempfile.mkdtemp(prefix="quernel-emulation-"))


def compile_text(text: str, options: tuple[str, ...], entry: str, *, is_ptx: bool = False) -> Compiled:
    """A shared library in place of a cubin."""
    text = _DYNAMIC.sub("alignas(16) static unsigned char qn_shared[1 << 18];", text)
    text = _TO_FLOAT.sub(r"\1 = qn_host_f32(\2);", text)
    text = _TO_HALF.sub(r"\1 = qn_host_f16(\2);", text)
    main = f"""
#include "{HEADER}"
#define QUERNEL_ENTRY {entry}
#line 1 "kernel.cu"
{text}
extern "C" void qn_host_run(void **arguments, const unsigned *dimensions)
{{
    gridDim = {{dimensions[0], dimensions[1], dimensions[2]}};
    blockDim = {{dimensions[3], dimensions[4], dimensions[5]}};
    qn_host::arguments = arguments;
    qn_host::body = [](void **p) {{ qn_host::invoke({entry}, p); }};
    for (blockIdx.z = 0; blockIdx.z < gridDim.z; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y < gridDim.y; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++)
                qn_host::run_block();
}}
"""
    name = hashlib.sha256(main.encode()).hexdigest()[:24]
    library, source = _folder / f"{name}.so", _folder / f"{name}.cpp"
    if not library.exists():
        source.write_text(main)
        flags = ["-std=c++17", "-O1", "-w", "-mfma", "-ffp-contract=off", "-fno-strict-aliasing", "-fwrapv"]
        command = [COMPILER or "g++", *flags, "-shared", "-fPIC", "-o", str(library), str(source)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode:
            raise CompilationError("the host's compiler refuses the text", chain=tuple(ran.stderr.splitlines()))
    return Compiled(b"\x7fELF" + str(library).encode(), entry, {"registers": 1, "spills": 0})


class EmulatedDriver(FakeDriver):
    """Runs launches at once, in the calling thread."""

    def __init__(self) -> None:
        super().__init__(version=13090)
        self.libraries: dict[int, Any] = {}

    def do_cuModuleLoadData(self, payload: bytes) -> tuple[int]:
        number = next(self.numbers)
        self.libraries[number] = ctypes.CDLL(payload[4:].decode())
        return (number,)

    def do_cuModuleGetFunction(self, module: int, name: bytes) -> tuple[int]:
        return (module,)

    def cuLaunchKernelEx(self, config: Any, function: Any, pointers: int, extra: int) -> tuple[Any]:
        assert extra == 0
        assert config.sharedMemBytes <= 1 << 18
        assert int(config.hStream)
        grid = (config.gridDimX, config.gridDimY, config.gridDimZ)
        given = (ctypes.c_uint * 6)(*grid, config.blockDimX, config.blockDimY, config.blockDimZ)
        self.libraries[function].qn_host_run(ctypes.c_void_p(pointers), given)
        return (OK,)
