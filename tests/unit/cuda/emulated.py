"""A pytest plugin that gives the process a CUDA device that is not there: its kernels run on the host.

python -m pytest -p tests.unit.cuda.emulated --quernel-backend cuda tests/conformance
"""

from __future__ import annotations

from tests.unit.cuda.emulation import EmulatedDriver, compile_text

from quernel_cuda import _driver, _toolchain

_driver._loaded = EmulatedDriver()
_toolchain.compile_text = compile_text
