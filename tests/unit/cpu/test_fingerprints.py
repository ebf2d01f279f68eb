"""A compiler that travels reports the toolchain of where it is."""

import pickle

import pytest

from quernel.errors import DeviceError
from quernel_cpu import _toolchain
from quernel_cpu.compiler import CpuCompiler
from quernel_cpu.targets import host_target, named_target


@pytest.mark.parametrize("target", ["host", "x86-64-v3"])
def test_local_fingerprint_is_the_targets_own_with_the_same_llvm(target: str) -> None:
    try:
        compiler = CpuCompiler(named_target(target))
    except DeviceError as error:
        pytest.skip(f"needs an x86-64 machine: {error}")
    assert pickle.loads(pickle.dumps(compiler)).local_fingerprint() == compiler.target_info.fingerprint


def test_local_fingerprint_differs_with_another_llvm(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = CpuCompiler(host_target())
    monkeypatch.setattr(_toolchain, "version", lambda: "99.1")
    assert "llvm99.1" in compiler.local_fingerprint()
    assert compiler.local_fingerprint() != compiler.target_info.fingerprint
