"""How a `CFamilyCompiler` lowers: the passes before the text, the header beside it. A warm start has no use for it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import attrs

from quernel.codegen.generate import generate
from quernel.codegen.names import Names
from quernel.codegen.points import several_points
from quernel.codegen.validation import shared_bytes, validate_block, validate_kernel
from quernel.compiler.arguments import argument_slots, header_parameters
from quernel.compiler.artifacts import ArtifactHeader, HeaderParameter, Slot, SlotKind
from quernel.compiler.lowered_text import LoweredText
from quernel.dtypes import ArrayType, DType, u64
from quernel.errors import ValidationError
from quernel.geometry import LaunchForm
from quernel.ir.passes import inline, narrow_indices, optimize
from quernel.ir.sites import has_diagnostics, num_sites
from quernel.ir.uniformity import check_uniformity

if TYPE_CHECKING:
    from quernel.compiler.cfamily import AlignedVariantT, CFamilyCompiler
    from quernel.compiler.definition import ForeignSource, KernelDefinition
    from quernel.ir.nodes import Module

__all__ = ["lower_foreign", "lower_ir"]


def lower_ir(
    compiler: CFamilyCompiler[AlignedVariantT, Any], kernel: KernelDefinition, variant: AlignedVariantT
) -> LoweredText:
    """The text of a kernel that has IR.

    Raises:
        ValidationError: the target cannot run this kernel.
    """
    module = optimize(kernel.expand())
    check_uniformity(module)
    module = inline(module)
    own, dialect = module.kernel, compiler.dialect(module, variant)
    validate_kernel(module, dialect, compiler.target_info)
    compiler.validate(module)
    points = compiler.points_per_thread(module, variant)
    several = several_points(own, points) if points > 1 else None
    if variant.index32:
        if several is not None:
            whole = narrow_indices(attrs.evolve(module, kernel=several.kernel))
            several = attrs.evolve(several, kernel=whole.kernel)
        module = narrow_indices(module)
    slots = _slots(module, contiguous=variant.contiguous)
    generated = generate(
        module,
        dialect,
        slots,
        pointers=compiler.pointers,
        contiguous=variant.contiguous,
        index32=variant.index32,
        several=several,
    )
    header = ArtifactHeader(
        entry=Names(dialect.reserved).fresh(kernel.name.rpartition(".")[2]),
        params=header_parameters(module),
        slots=slots,
        block=own.block,
        points_per_thread=points,
        shared_bytes=shared_bytes(module),
        features=tuple(sorted(compiler.features(module))),
        num_sites=num_sites(module),
    )
    return LoweredText(header, generated.text, compiler.options(own.options, is_foreign=False), generated.lines)


def _slots(module: Module, *, contiguous: bool) -> tuple[Slot, ...]:
    """What the entry point receives: besides what the kernel uses, what tells a thread that it is beyond the edge."""
    own = module.kernel
    edges = range(own.ndim) if own.form is LaunchForm.OVER else ()
    starts = edges if has_diagnostics(module) else ()  # Records say which thread it was.
    slots = argument_slots(module, extents=edges, starts=starts)
    if not contiguous:
        return slots
    last = [
        param.type.ndim - 1 if isinstance(param.type, ArrayType) and param.type.ndim else -1 for param in own.params
    ]
    return tuple(slot for slot in slots if slot.kind is not SlotKind.STRIDE or slot.axis != last[slot.param])


def lower_foreign(compiler: CFamilyCompiler[Any, Any], kernel: KernelDefinition, foreign: ForeignSource) -> LoweredText:
    """A ready-made source, whose entry point takes each parameter in order.

    A scalar is passed as itself; an array as its pointer, then the length of each axis and the stride of each axis in
    elements; an array of any rank as its pointer alone.

    Raises:
        ValidationError: the source is in another language, or cannot be launched on the target.
    """
    target, language = compiler.target_info, compiler.language
    if foreign.language != language:
        raise ValidationError(
            f"kernel {kernel.name} is written in {foreign.language!r}, which {target.backend} targets do not compile",
            fix=f"use {language!r}, or a device that takes {foreign.language!r}",
        )
    if not re.fullmatch(compiler.entry_pattern, foreign.entry):
        raise ValidationError(
            f"{foreign.entry!r} is no name of a function in {language!r}", fix="name the entry point as the source does"
        )
    specialization = kernel.specialization
    validate_block(specialization.block, target)
    params: list[HeaderParameter] = []
    slots: list[Slot] = []
    for number, (name, declared) in enumerate(specialization.parameters):
        if isinstance(declared, ArrayType):
            axes = range(declared.ndim or 0)
            slots.append(Slot(SlotKind.POINTER, number, 0, u64))
            slots += [Slot(SlotKind.SHAPE, number, axis) for axis in axes]
            slots += [Slot(SlotKind.STRIDE, number, axis) for axis in axes]
            is_written = name in foreign.writes
            params.append(HeaderParameter.of_array(name, declared, is_read=True, is_written=is_written))
        elif isinstance(declared.dtype, DType):
            slots.append(Slot(SlotKind.SCALAR, number, 0, declared.dtype))
            params.append(HeaderParameter(name, declared.dtype.name, weak=declared.weak))
        else:
            raise ValidationError(
                f"parameter {name!r} of a kernel in {language!r} is of type {declared}",
                fix="use scalars and arrays of scalars",
            )
    header = ArtifactHeader(entry=foreign.entry, params=tuple(params), slots=tuple(slots), block=specialization.block)
    return LoweredText(header, foreign.text, compiler.options(specialization.options, is_foreign=True))
