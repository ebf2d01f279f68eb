"""Several kernels as one text: each artifact loads alone, and no kernel's failure is another's."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from tests.unit import ir_by_hand as ir
from tests.unit.cuda.fake_driver import FakeDriver
from tests.unit.cuda.harness import LOG, WHOLE, compiler

from quernel.compiler.artifacts import ArtifactId
from quernel.compiler.lowered_text import LoweredText
from quernel.compiler.recording import CompilationRecording
from quernel.dtypes import f32
from quernel.errors import CompilationError
from quernel.identity import KernelId
from quernel.ir.nodes import Binary, BinaryOp, Math, MathFunction
from quernel.options import KernelOptions
from quernel_cuda.types import CudaArtifact
from quernel_cuda.units import unit_of


def lowered(number: int, **options: Any) -> LoweredText:
    """`y[i] = remainder(sin(x[i]), number)`: it brings a function of its own along, as the others do."""
    sine = Math(function=MathFunction.SIN, operands=(ir.load("x", f32),), type=f32)
    value = Binary(op=BinaryOp.MOD, left=sine, right=ir.const(float(number), f32))
    params = (ir.array("x", f32), ir.array("y", f32))
    module = ir.kernel(params, (ir.store("y", value),), options=KernelOptions(**options))
    definition = ir.definition(module)
    return compiler().lower(definition, ArtifactId(definition.id, WHOLE), CompilationRecording(), LOG)


def ids(number: int) -> list[ArtifactId[Any]]:
    return [ArtifactId(KernelId(f"k{index}", f"{index:064x}"), WHOLE) for index in range(number)]


def spoiled(kernel: LoweredText) -> LoweredText:
    return attrs.evolve(kernel, text=kernel.text.replace("threadIdx.x", "nothing.x"))


def test_a_group_is_one_payload_with_an_entry_and_a_header_for_each() -> None:
    kernels = [lowered(number) for number in range(2, 6)]
    made = compiler().finalize_group(ids(4), kernels)
    assert all(isinstance(artifact, CudaArtifact) for artifact in made)
    artifacts = [artifact for artifact in made if isinstance(artifact, CudaArtifact)]
    assert len({artifact.payload for artifact in artifacts}) == 1
    assert len({artifact.header.entry for artifact in artifacts}) == 4
    for artifact, kernel in zip(artifacts, kernels, strict=True):
        assert artifact.payload.startswith(b"\x7fELF")
        assert b".text." + artifact.header.entry.encode() + b"\0" in artifact.payload
        alone = compiler().finalize(ids(1)[0], kernel)
        statistics, own = dict(artifact.header.statistics), dict(alone.header.statistics)
        assert statistics["registers"] == own["registers"]
        assert statistics["kernels_of_code"] == 4
        assert attrs.evolve(artifact.header, entry="", statistics=()) == attrs.evolve(
            alone.header, entry="", statistics=()
        )


def test_an_entry_is_named_after_its_own_text_whatever_the_company() -> None:
    first, second, third = lowered(2), lowered(3), lowered(4)
    assert unit_of([first, second]).entries[1] == unit_of([third, second]).entries[1]
    assert len(set(unit_of([first, second, third]).entries)) == 3


def test_equal_texts_of_a_group_share_their_code() -> None:
    same, other = lowered(2), lowered(3)
    made = compiler().finalize_group(ids(3), [same, other, same])
    entries = [artifact.header.entry for artifact in made if isinstance(artifact, CudaArtifact)]
    assert len(entries) == 3
    assert entries[0] == entries[2] != entries[1]


def test_a_kernel_that_nvrtc_refuses_costs_no_other() -> None:
    kernels = [lowered(2), spoiled(lowered(3)), lowered(4)]
    first, second, third = compiler().finalize_group(ids(3), kernels)
    assert isinstance(first, CudaArtifact)
    assert isinstance(third, CudaArtifact)
    assert first.payload != third.payload
    assert isinstance(second, CompilationError)
    assert 'kernel k1: NVRTC reports NVRTC_ERROR_COMPILATION: identifier "nothing" is undefined' in str(second)


def test_only_own_texts_of_equal_options_go_together() -> None:
    exact, fast = lowered(2), lowered(2, fast_math=True)
    assert compiler().group_key(exact) is not None
    assert compiler().group_key(exact) == compiler().group_key(lowered(3))
    assert compiler().group_key(exact) != compiler().group_key(fast)
    assert compiler().group_key(lowered(2, debug=True)) is None
    assert compiler().group_key(attrs.evolve(exact, lines=())) is None
    assert compiler("compute_90").group_key(exact) is None


def test_kernels_of_one_payload_share_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    from quernel_cuda import _driver
    from quernel_cuda.target import CudaTarget

    fake = FakeDriver()
    monkeypatch.setattr(_driver, "driver", lambda: fake)
    target = CudaTarget(compiler(), _driver.Context(0))
    kernels = [lowered(2), lowered(3)]
    loaded = [
        target.load(id, artifact)
        for id, artifact in zip(ids(2), compiler().finalize_group(ids(2), kernels), strict=True)  # noqa: A001
        if isinstance(artifact, CudaArtifact)
    ]
    assert fake.names().count("cuModuleLoadData") == 1
    assert fake.names().count("cuModuleGetFunction") == 2
    assert loaded[0].module == loaded[1].module
    assert loaded[0].function != loaded[1].function
    target.load(ids(1)[0], compiler().finalize(ids(1)[0], kernels[0]))
    assert fake.names().count("cuModuleLoadData") == 2
    target.unload()
    assert fake.names().count("cuModuleUnload") == 2
