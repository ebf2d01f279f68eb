"""A compiler that travels reports the toolchain of where it is."""

import pickle

import pytest

pytest.importorskip("cuda.bindings", reason="needs cuda-python: pip install quernel-cuda")

from quernel_cuda import _toolchain
from quernel_cuda.compiler import CudaCompiler
from quernel_cuda.targets import named_target


@pytest.mark.parametrize("target", ["sm_90", "compute_90"])
def test_local_fingerprint_is_the_targets_own_with_the_same_nvrtc(target: str) -> None:
    compiler = CudaCompiler(named_target(target))
    assert pickle.loads(pickle.dumps(compiler)).local_fingerprint() == compiler.target_info.fingerprint


def test_local_fingerprint_differs_with_another_nvrtc(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = CudaCompiler(named_target("sm_90"))
    monkeypatch.setattr(_toolchain, "version", lambda: "99.1")
    assert "nvrtc99.1" in compiler.local_fingerprint()
    assert compiler.local_fingerprint() != compiler.target_info.fingerprint
