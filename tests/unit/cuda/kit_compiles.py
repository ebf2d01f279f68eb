"""A pytest plugin that compiles every kernel of the tests it runs for CUDA targets too, without a GPU.

    python -m pytest -p tests.unit.cuda.kit_compiles --quernel-backend cpu --quernel-whole tests/conformance

Each kernel that the CPU compiler lowers is kept; at the end NVRTC compiles all of them, as whole and as strided arrays:
for one target alone, as a launch does it, for the other several in one text, as `compile` does it, which takes half the
time. A text that is the same for both is compiled for one of them, half of the texts for each. A kernel that the target
refuses by name counts as refused, one that NVRTC refuses fails the run.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any, TypeAlias

import pytest

from quernel.compiler.artifacts import ArtifactId
from quernel.compiler.halves import ArtifactCompiler
from quernel.compiler.lowered_text import LoweredText
from quernel.compiler.recording import CompilationRecording
from quernel.errors import QuernelError, ValidationError
from quernel_cpu.compiler import CpuCompiler
from quernel_cuda.compiler import CudaCompiler
from quernel_cuda.targets import named_target
from quernel_cuda.types import CudaArtifact, CudaVariant

TARGETS = {"sm_80": 1, "sm_90": 16}
"""Each with how many kernels are one text at the most."""
VARIANTS = (CudaVariant(aligned16=True, contiguous=True, index32=True), CudaVariant())

_OUTCOMES = "quernel-cuda-outcomes"
_LOST = "a process that ran tests ended without saying what it compiled"

_Lowered: TypeAlias = tuple[ArtifactId[CudaVariant], LoweredText]
_Alike: TypeAlias = dict[tuple[tuple[str, ...], str], list[_Lowered]]
"""Kernels by their options and text."""

_kept: dict[Any, Any] = {}
_lower = CpuCompiler.lower


def _keeping(self: CpuCompiler, kernel: Any, *arguments: Any) -> Any:
    if kernel.foreign is None:
        _kept.setdefault(kernel.id, kernel)
    return _lower(self, kernel, *arguments)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Gathered(), _OUTCOMES)
    CpuCompiler.lower = _keeping  # type: ignore[method-assign]


def _outcomes() -> list[str]:
    """What became of each kernel that was kept in this process, in each variant."""
    compilers = {target: CudaCompiler(named_target(target)) for target in TARGETS}
    alike: dict[str, _Alike] = {target: {} for target in TARGETS}
    found: list[str] = []
    for kernel, variant in itertools.product(_kept.values(), VARIANTS):
        identity, made = ArtifactId(kernel.id, variant), {}
        for target, compiler in compilers.items():
            try:
                made[target] = compiler.lower(kernel, identity, CompilationRecording(), logging.getLogger(__name__))
            except ValidationError:
                found.append("refused")
            except QuernelError as error:
                found.append(f"{target} {kernel.name}: {error}")
        for target in _worth_compiling(made):
            alike[target].setdefault((made[target].options, made[target].text), []).append((identity, made[target]))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for target, compiler in compilers.items():
            found += _outcomes_for(target, compiler, alike[target], pool)
    return found


def _worth_compiling(made: dict[str, LoweredText]) -> list[str]:
    """All targets that have texts of their own; of those that share one, the same in every run."""
    targets, texts = sorted(made), {lowered.text for lowered in made.values()}
    if len(texts) == 1:
        return [targets[sha256(texts.pop().encode()).digest()[0] % len(targets)]]
    return targets


def _outcomes_for(target: str, compiler: CudaCompiler, alike: _Alike, pool: ThreadPoolExecutor) -> Iterator[str]:
    parts = list(_parts(compiler, [same[0] for same in alike.values()], TARGETS[target]))
    for part, artifacts in zip(parts, pool.map(lambda part: _finalized(compiler, part), parts), strict=True):
        for (identity, lowered), artifact in zip(part, artifacts, strict=True):
            outcome = "compiled"
            if isinstance(artifact, Exception):
                outcome = f"{target} {identity.kernel.name}: {artifact}"
            elif dict(artifact.header.statistics).get("kernels_of_code", 1) < len(part):
                outcome = f"{target} {identity.kernel.name}: compiles alone, but not together with others"
            yield from [outcome] * len(alike[lowered.options, lowered.text])


def _finalized(compiler: CudaCompiler, part: list[_Lowered]) -> list[CudaArtifact | Exception]:
    finalize_group = CudaCompiler.finalize_group if len(part) > 1 else ArtifactCompiler.finalize_group
    return finalize_group(compiler, *zip(*part, strict=True))


def _parts(compiler: CudaCompiler, kernels: list[_Lowered], most: int) -> Iterator[list[_Lowered]]:
    """The kernels in parts that may be one text each."""
    together: dict[Hashable, list[_Lowered]] = {}
    for one in kernels:
        key = compiler.group_key(one[1])
        together.setdefault(one[0] if key is None else key, []).append(one)
    for group in together.values():
        yield from (group[start : start + most] for start in range(0, len(group), most))


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
