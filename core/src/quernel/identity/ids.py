"""The ids of kernels and the keys of the store: each a type of its own round a digest, made by one formula."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from enum import Enum
from importlib.util import MAGIC_NUMBER
from typing import Any

from quernel.digests import sha256
from quernel.errors import PluginError
from quernel.identity.capture import CapturedCode, CapturedValues, capture_values
from quernel.identity.encoding import StrictEncoder, encode, text_frame, type_name
from quernel.values import compared_fields, field, frozen

__all__ = [
    "BuildId",
    "IrKey",
    "KernelCacheKey",
    "KernelId",
    "SourceDigest",
    "encode_variant",
    "ir_key",
    "kernel_cache_key",
    "kernel_id",
    "source_digest",
]

_KERNEL = encode(("kernel", sys.implementation.cache_tag, MAGIC_NUMBER))
"""What every kernel's digest starts with: what the meaning of bytecode depends on."""

_SHORT = 16
_HEXADECIMAL = frozenset("0123456789abcdef")


def _is_digest(owner: object, given: Any, value: str) -> None:
    """Checks the field `given` of `owner`.

    Raises:
        ValueError: it is no sha256 in hexadecimal digits.
    """
    if not isinstance(value, str) or len(value) != 64 or not _HEXADECIMAL.issuperset(value):
        raise ValueError(f"{given.name} {value!r} is no sha256 in hexadecimal digits")


@frozen
class _Digest:
    """A sha256 in hexadecimal. Two kinds of digest are never equal, whatever they hold."""

    digest: str = field(validator=_is_digest)

    def __quernel_identity__(self) -> object:
        return self.digest

    def __str__(self) -> str:
        return self.digest


@frozen
class BuildId(_Digest):
    """Which sources of core and backend turn a kernel into bytes.

    One made of installed `packages` pickles as their names: whoever unpickles it has the id of what is installed there.
    """

    packages: tuple[str, ...] = field(default=(), eq=False, repr=False)

    def __reduce__(self) -> tuple[Callable[..., BuildId], tuple[str, ...]]:
        if not self.packages:
            return BuildId, (self.digest,)
        from quernel.identity.build import build_id_hash

        return build_id_hash, self.packages


class IrKey(_Digest):
    """The second key of an artifact: its IR, variant and build, whatever Python and whatever spelling made the IR."""

    __slots__ = ()


class SourceDigest(_Digest):
    """The key of an artifact by the text that the toolchain read. Without a build id: an upgrade keeps it."""

    __slots__ = ()


class KernelCacheKey(_Digest):
    """The first key of an artifact: kernel, variant and build."""

    __slots__ = ()


@frozen
class KernelId:
    """Which kernel, specialized: a readable name and the digest of its content.

    `parts` are short digests of what went into it, by name: code, functions, constants, types, values, block,
    options. They are not compared; they tell why a look-up missed.
    """

    name: str
    digest: str = field(validator=_is_digest)
    parts: tuple[tuple[str, str], ...] = field(default=(), eq=False, repr=False)

    def __quernel_identity__(self) -> object:
        return self.digest

    def differing_parts(self, other: KernelId) -> tuple[str, ...]:
        """The names of the parts in which `other` differs or that it lacks."""
        others = dict(other.parts)
        return tuple([name for name, digest in self.parts if others.get(name) != digest])


_strict = StrictEncoder()
_NO_VALUES = capture_values({})


def kernel_id(
    captured: CapturedCode,
    *,
    name: str,
    types: object,
    constants: Mapping[str, object] | CapturedValues,
    block: object,
    options: object,
    form: object,
) -> KernelId:
    """The id of one specialization of a captured kernel.

    Args:
        captured: the kernel's code and what it captured.
        name: the kernel's readable name; it counts, so that two kernels of equal content have a record each.
        types: the parameters' resolved types.
        constants: compile-time values by parameter. Give a `capture_values` where device functions may be among
            them and the launcher needs their guards.
        block: the block's shape, or `None`.
        options: every option that changes what is compiled.
        form: the form of launch. It belongs to the part `block`.

    Raises:
        KernelTypeError: types, block, options or form hold a value without a canonical encoding.
    """
    if not constants:
        values = _NO_VALUES
    else:
        values = constants if isinstance(constants, CapturedValues) else capture_values(constants)
    parts = (
        *captured.parts,
        ("types", sha256(_strict.body(types)).hexdigest()),
        ("values", values.digest),
        ("block", sha256(_strict.body((form, block))).hexdigest()),
        ("options", sha256(_strict.body(options)).hexdigest()),
    )
    # The parts' digests are of one length and always in this order, so they need no frames.
    content = _KERNEL + text_frame(b"s", name) + "".join([full for _, full in parts]).encode()
    return KernelId(name, sha256(content).hexdigest(), tuple([(part, full[:_SHORT]) for part, full in parts]))


def ir_key(ir_digest: str, variant: object, build_id: BuildId) -> IrKey:
    """The key of what `ir_digest` (the digest of an IR module, without names) becomes in this variant and build."""
    return IrKey(_digest_of("ir", ir_digest, encode_variant(variant), build_id.digest))


def source_digest(text: str) -> SourceDigest:
    """The key of what a toolchain makes of `text`."""
    return SourceDigest(_digest_of("source", text))


def kernel_cache_key(kernel: KernelId | str, variant: object, build_id: BuildId) -> KernelCacheKey:
    """The key of what a kernel (its id or that id's digest) becomes in this variant and build."""
    digest = kernel.digest if isinstance(kernel, KernelId) else kernel
    return KernelCacheKey(_digest_of("kernel cache", digest, encode_variant(variant), build_id.digest))


def encode_variant(variant: object) -> bytes:
    """The canonical encoding of a backend's variant: its class's name without the module, and its compared fields.

    Raises:
        PluginError: it is not a frozen attrs class, or a field is not a bool, int, str, enum member or tuple of them.
    """
    cls = type(variant)
    fields = compared_fields(cls)
    if fields is None or cls.__hash__ is None:
        raise PluginError(f"a variant must be a frozen attrs class, {type_name(cls)} is not", fix=_VARIANT_FIX)
    for name in fields:
        if not _may_be_in_a_variant(getattr(variant, name)):
            held = type_name(type(getattr(variant, name)))
            raise PluginError(f"field {name!r} of the variant {type_name(cls)} holds a {held}", fix=_VARIANT_FIX)
    return _strict.body(variant)


_VARIANT_FIX = "decorate it with @attrs.frozen and give it fields of bool, int, str, enum and tuple only"


def _may_be_in_a_variant(value: object) -> bool:
    if type(value) is tuple:
        return all(map(_may_be_in_a_variant, value))
    return type(value) in (bool, int, str) or isinstance(value, Enum)


def _digest_of(formula: str, *content: object) -> str:
    """The digest of content under the name of the formula, so that no two formulas can give the same."""
    return sha256(encode((formula, *content))).hexdigest()
