"""Whatever IR is valid becomes CUDA C++ that NVRTC takes, for the oldest and the newest architecture in wide use."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from tests.property.ir_strategies import modules
from tests.unit.cuda.harness import compiled, compiler
from tests.unit.ir_by_hand import definition

from quernel.errors import KernelSyntaxError, ValidationError
from quernel.ir.nodes import Atomic, Module, Stmt, Subgroup
from quernel.ir.passes.inline import inline
from quernel.ir.walk import Body, map_bodies, map_statements
from quernel_cuda.lowering import CUDA_CPP
from quernel_cuda.types import CudaVariant


def supported(module: Module) -> Module:
    """The module without what CUDA refuses by name, for a block of one thread."""

    def kept(stmt: Stmt) -> Stmt | tuple[Stmt, ...]:
        is_small = isinstance(stmt, Atomic) and stmt.place.type.itemsize < 4
        is_odd = isinstance(stmt, Subgroup) and stmt.operands[0].type not in CUDA_CPP.subgroup_types
        return () if is_small or is_odd else stmt

    def kept_in(body: Body) -> Body:
        return map_statements(body, kept)

    module = map_bodies(module, kept_in)
    options = attrs.evolve(module.kernel.options, checked=False)
    kernel = attrs.evolve(module.kernel, block=(1,) * module.kernel.ndim, options=options)
    return inline(attrs.evolve(module, kernel=kernel))


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(module=modules())
def test_every_valid_module_compiles(architecture: str, module: Module) -> None:
    made = definition(supported(module))
    for variant in (CudaVariant(), CudaVariant(aligned16=True, contiguous=True, index32=True)):
        try:
            artifact = compiled(compiler(architecture), made, variant)
        except (ValidationError, KernelSyntaxError):
            return  # by-value vectors, waiting where not all threads do: refused by name, which other tests hold
        assert artifact.payload.startswith(b"\x7fELF")
