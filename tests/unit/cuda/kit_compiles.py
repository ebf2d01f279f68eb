"""A pytest plugin that compiles every kernel of the tests it runs for CUDA targets too, without a GPU.

    python -m pytest -p tests.unit.cuda.kit_compiles --quernel-backend cpu --quernel-whole tests/conformance

Each kernel that the CPU compiler lowers is kept; at the end NVRTC compiles all of them, for each target, as whole and
as strided arrays. A kernel that the target refuses by name counts as refused, one that NVRTC refuses fails the run.
"""

from __future__ import annotations

import logging
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from quernel.compiler.artifacts import ArtifactId
from quernel.compiler.recording import CompilationRecording
from quernel.errors import QuernelError, ValidationError
from quernel_cpu.compiler import CpuCompiler
from quernel_cuda.compiler import CudaCompiler
from quernel_cuda.targets import named_target
from quernel_cuda.types import CudaVariant

TARGETS = ("sm_80", "sm_90")
VARIANTS = (CudaVariant(aligned16=True, contiguous=True, index32=True), CudaVariant())

_OUTCOMES = "quernel-cuda-outcomes"
_LOST = "a process that ran tests ended without saying what it compiled"

_kept: dict[Any, Any] = {}
_lower = CpuCompiler.lower


def _keeping(self: CpuCompiler, kernel: Any, *arguments: Any) -> Any:
    if kernel.foreign is None:
        _kept.setdefault(kernel.id, kernel)
    return _lower(self, kernel, *arguments)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Gathered(), _OUTCOMES)
    CpuCompiler.lower = _keeping  # type: ignore[method-assign]


def _outcome(compiler: CudaCompiler, kernel: Any, variant: CudaVariant) -> str:
    identity = ArtifactId(kernel.id, variant)
    try:
        lowered = compiler.lower(kernel, identity, CompilationRecording(), logging.getLogger(__name__))
        compiler.finalize(identity, lowered)
    except ValidationError:
        return "refused"
    except QuernelError as error:
        return f"{compiler.target_info.name} {kernel.name}: {error}"
    return "compiled"


def _outcomes() -> list[str]:
    """What became of each kernel that was kept in this process, for each target and variant."""
    work = [
        (CudaCompiler(named_target(target)), kernel, variant)
        for target in TARGETS
        for kernel in _kept.values()
        for variant in VARIANTS
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda one: _outcome(*one), work))


class _Gathered:
    """In the process that hands out the tests to others, with pytest-xdist: what they have compiled."""

    def __init__(self) -> None:
        self.outcomes: list[str] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.outcomes += getattr(node, "workeroutput", {}).get(_OUTCOMES, [_LOST])


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    CpuCompiler.lower = _lower  # type: ignore[method-assign]
    gathered = session.config.pluginmanager.get_plugin(_OUTCOMES)
    outcomes = [*_outcomes(), *gathered.outcomes]
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[_OUTCOMES] = outcomes
        return
    failures = [outcome for outcome in outcomes if outcome not in ("compiled", "refused")]
    compiled, refused = outcomes.count("compiled"), outcomes.count("refused")
    print(f"\nCUDA: {compiled} compiled, {refused} refused by name, {len(failures)} failed")
    for failure in failures[:10]:
        print(failure)
    if failures or not compiled:
        session.exitstatus = 1
