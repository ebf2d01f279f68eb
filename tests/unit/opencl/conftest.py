"""Every test that asks for a device runs on all of them, in each of their ways to pass arrays."""

from __future__ import annotations

import pytest
from tests.unit.opencl.harness import infos, opened

from quernel.codegen.pointers import Pointers
from quernel_opencl._toolchain import find_devices
from quernel_opencl.device import OpenclDevice
from quernel_opencl.targets import target_of

WAYS = [
    (info.index, pointers)
    for info in infos()
    for pointers in Pointers
    if pointers is Pointers.BUFFER or target_of(find_devices()[0][info.index]).detail("pointers") == pointers.value
]


@pytest.fixture(
    params=WAYS or [None],
    ids=lambda way: "none" if way is None else f"{way[0]}-{way[1].value}",
)
def device(request: pytest.FixtureRequest) -> OpenclDevice:
    if request.param is None:
        pytest.skip("needs an OpenCL device, for example pip install quernel-opencl[pocl]")
    return opened(*request.param)
