"""What a cubin says of its kernels, read from cubins that NVRTC makes here."""

from __future__ import annotations

import pytest

from quernel_cuda._toolchain import Compiled, compile_text
from quernel_cuda.cubins import resources

ARCHITECTURES = ("sm_80", "sm_90", "sm_120")
TEXT = """
extern "C" __global__ void plain(float *x) { x[0] = 1.0f; }
extern "C" __global__ void shared(float *x, int n)
{
    __shared__ float s[100];
    s[threadIdx.x] = x[n];
    __syncthreads();
    x[0] = s[n];
}
extern "C" __global__ void stacked(float *x, int n)
{
    float a[64];
    for (int i = 0; i < 64; i++) a[(i * n) & 63] = x[i];
    x[0] = a[n & 63] + a[(n + 7) & 63];
}
extern "C" __global__ void crowded(float *x, int n)
{
    float a[64];
    #pragma unroll
    for (int i = 0; i < 64; i++) a[i] = x[i * n];
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < 64; i++) x[i] = a[63 - i] * a[i];
}
"""


def made(architecture: str, entry: str, *more: str) -> Compiled:
    return compile_text(TEXT, (f"--gpu-architecture={architecture}", "--ptxas-options=-v", *more), entry)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_each_kernel_has_its_own_resources(architecture: str) -> None:
    cubin = made(architecture, "plain").payload
    plain, shared, stacked = (resources(cubin, entry) for entry in ("plain", "shared", "stacked"))
    assert (plain["stack_bytes"], plain["static_shared_bytes"]) == (0, 0)
    assert (shared["stack_bytes"], shared["static_shared_bytes"]) == (0, 400)
    assert stacked["stack_bytes"] >= 256
    assert 0 < plain["registers"] < resources(cubin, "crowded")["registers"]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_spills_are_the_assemblers_remark(architecture: str) -> None:
    few = made(architecture, "crowded", "--maxrregcount=24").statistics
    assert few["registers"] <= 24
    assert few["spills"] > 0
    assert made(architecture, "stacked").statistics["spills"] == 0


def test_without_the_assemblers_remarks_only_a_stack_leaves_spills_open() -> None:
    silent = "--gpu-architecture=sm_90"
    assert compile_text(TEXT, (silent,), "plain").statistics["spills"] == 0
    assert "spills" not in compile_text(TEXT, (silent,), "stacked").statistics


def test_a_cubin_of_an_unknown_form_is_used_without_its_facts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("quernel_cuda.cubins._MAGIC", b"ELF of another day")
    compiled = made("sm_90", "plain")
    assert compiled.payload.startswith(b"\x7fELF")
    assert compiled.statistics == {}
    assert "says nothing of its registers" in caplog.text


@pytest.mark.parametrize("damage", [0, 20, 80, 400])
def test_what_is_no_cubin_is_refused(damage: int) -> None:
    with pytest.raises(ValueError, match=r"cubin"):
        resources(made("sm_90", "plain").payload[:damage], "plain")


def test_a_kernel_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match="no kernel 'other'"):
        resources(made("sm_90", "plain").payload, "other")
