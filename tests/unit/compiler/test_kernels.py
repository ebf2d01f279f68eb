from __future__ import annotations

import pytest
from tests.unit.compiler.scripted import Bench, ScriptedVariant, definition

import quernel as qn
from quernel.compiler import Kernels
from quernel.compiler.halves import ANY_LAUNCH, LaunchFacts


@qn.kernel
def doubled(x: qn.Array1[qn.f64]):  # type: ignore[no-untyped-def, valid-type]
    i = qn.global_id()
    x[i] = 2 * x[i]


def test_kernel_asked_for_without_a_variant_fits_every_launch(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def variant(facts: LaunchFacts) -> ScriptedVariant:
        return ScriptedVariant(is_wide=facts.contiguous)

    monkeypatch.setattr(bench.loader.target, "variant", variant)
    monkeypatch.setattr(bench.loader.target.compiler, "default_variant", lambda signature: ScriptedVariant(True))
    kernels = Kernels(bench.loader)
    assert kernels.get(definition("a")).id.variant == ScriptedVariant(is_wide=False)
    assert kernels.get(definition("a"), ScriptedVariant(is_wide=True)).id.variant.is_wide


def test_kernel_of_the_cpu_that_fits_every_launch_reads_the_strides() -> None:
    kernels = qn.device("cpu").kernels
    specialized = doubled.specialize()
    fitting = kernels.get(specialized.definition)
    assert fitting.id.variant == qn.device("cpu").operations.target.variant(ANY_LAUNCH)
    assert "stride" in {slot.kind.value for slot in fitting.header.slots}
    likely = kernels.get(
        specialized.definition, kernels.compiler.default_variant(specialized.definition.specialization.signature)
    )
    assert "stride" not in {slot.kind.value for slot in likely.header.slots}
