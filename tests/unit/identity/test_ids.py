from __future__ import annotations

import enum
import pickle
import subprocess
import sys
import types
from typing import Any

import attrs
import pytest

from quernel.errors import KernelTypeError, PluginError
from quernel.identity import (
    BuildId,
    IrKey,
    KernelCacheKey,
    KernelId,
    SourceDigest,
    capture,
    capture_values,
    encode_variant,
    ids,
    ir_key,
    kernel_cache_key,
    kernel_id,
    source_digest,
)

DIGEST = "0123456789abcdef" * 4
OTHER_DIGEST = "f" * 64
BUILD = BuildId("a" * 64)


class Width(enum.Enum):
    NARROW = 32
    WIDE = 64


@attrs.frozen
class Variant:
    aligned: bool = True
    vector: int = 4
    name: str = "plain"
    width: Width = Width.NARROW
    axes: tuple[Any, ...] = (1, ("x", False))


@attrs.frozen
class OtherVariant:
    aligned: bool = True
    vector: int = 4
    name: str = "plain"
    width: Width = Width.NARROW
    axes: tuple[Any, ...] = (1, ("x", False))


def kernel(x: Any) -> None:
    x[0] = 1


def identify(**changes: Any) -> KernelId:
    settings: dict[str, Any] = {
        "name": "kernel",
        "types": (("x", "f32"),),
        "constants": {"n": 1},
        "block": (256,),
        "options": Variant(),
        "form": "over",
    }
    return kernel_id(capture(kernel), **settings | changes)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"types": (("x", "f64"),)}, ("types",)),
        ({"types": (("x", "f32"), ("y", "f32"))}, ("types",)),
        ({"constants": {"n": 2}}, ("values",)),
        ({"constants": {"n": 1.0}}, ("values",)),
        ({"constants": {"n": True}}, ("values",)),
        ({"constants": {"m": 1}}, ("values",)),
        ({"constants": {}}, ("values",)),
        ({"block": (128,)}, ("block",)),
        ({"block": None}, ("block",)),
        ({"form": "grid"}, ("block",)),
        ({"options": Variant(aligned=False)}, ("options",)),
        ({"name": "another"}, ()),
    ],
)
def test_kernel_id_counts(changes: dict[str, Any], parts: tuple[str, ...]) -> None:
    assert identify(**changes).digest != identify().digest
    assert identify(**changes).differing_parts(identify()) == parts


def test_kernel_id_has_a_short_digest_of_each_part() -> None:
    made = identify()
    assert [name for name, _ in made.parts] == [
        "code",
        "functions",
        "constants",
        "types",
        "values",
        "block",
        "options",
    ]
    assert {len(digest) for _, digest in made.parts} == {16}


def test_kernel_id_counts_bytecode_magic_and_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    before = identify()
    assert sys.implementation.cache_tag.encode() in ids._KERNEL
    assert ids.MAGIC_NUMBER in ids._KERNEL
    monkeypatch.setattr(ids, "_KERNEL", ids._KERNEL + b"another Python")
    assert identify().digest != before.digest


def test_kernel_id_takes_captured_values_as_their_mapping() -> None:
    assert identify(constants=capture_values({"n": 1})) == identify(constants={"n": 1})
    assert identify(constants=capture_values({})) == identify(constants={})


@pytest.mark.parametrize("argument", ["types", "block", "options", "form"])
def test_kernel_id_refuses_a_setting_without_content(argument: str) -> None:
    with pytest.raises(KernelTypeError, match="no canonical encoding"):
        identify(**{argument: (object(),)})


def test_kernel_id_never_refuses_a_compile_time_value() -> None:
    assert identify(constants={"n": [1]}) == identify(constants={"n": [2]})


def test_kernel_id_does_not_compare_parts() -> None:
    bare = KernelId("k", DIGEST)
    assert KernelId("k", DIGEST, (("code", "1"),)) == bare
    assert hash(KernelId("k", DIGEST, (("code", "1"),))) == hash(bare)
    assert KernelId("l", DIGEST) != bare


def test_kernel_id_names_the_parts_that_differ_or_are_missing() -> None:
    left = KernelId("k", DIGEST, (("code", "1"), ("types", "2"), ("block", "3")))
    assert left.differing_parts(KernelId("k", OTHER_DIGEST, (("code", "1"), ("types", "9")))) == ("types", "block")


@pytest.mark.parametrize("cls", [BuildId, IrKey, SourceDigest, KernelCacheKey])
@pytest.mark.parametrize("digest", ["", "a" * 63, "a" * 65, "A" * 64, "g" * 64, "a" * 64 + "\n"])
def test_digest_types_refuse_what_is_no_digest(cls: type, digest: str) -> None:
    with pytest.raises(ValueError, match="is no sha256 in hexadecimal digits"):
        cls(digest)


def test_kernel_id_refuses_what_is_no_digest() -> None:
    with pytest.raises(ValueError, match="is no sha256 in hexadecimal digits"):
        KernelId("k", "abc")


def test_digests_of_different_types_are_never_equal() -> None:
    made = [cls(DIGEST) for cls in (BuildId, IrKey, SourceDigest, KernelCacheKey)]
    assert len(set(made)) == 4


@pytest.mark.parametrize(
    "value",
    [*[cls(DIGEST) for cls in (BuildId, IrKey, SourceDigest, KernelCacheKey)], KernelId("k", DIGEST, (("code", "1"),))],
)
def test_ids_are_frozen_and_pickle(value: Any) -> None:
    assert attrs.has(type(value))
    assert pickle.loads(pickle.dumps(value)) == value
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        value.digest = OTHER_DIGEST
    with pytest.raises((attrs.exceptions.FrozenInstanceError, AttributeError)):
        value.another = 1


def test_ids_print_as_their_digest() -> None:
    assert str(IrKey(DIGEST)) == DIGEST
    assert repr(IrKey(DIGEST)) == f"IrKey(digest='{DIGEST}')"


@pytest.mark.parametrize("make", [ir_key, kernel_cache_key])
def test_keys_count_content_variant_and_build(make: Any) -> None:
    made = {
        make(DIGEST, Variant(), BUILD),
        make(OTHER_DIGEST, Variant(), BUILD),
        make(DIGEST, Variant(vector=8), BUILD),
        make(DIGEST, OtherVariant(), BUILD),
        make(DIGEST, Variant(), BuildId(OTHER_DIGEST)),
    }
    assert len(made) == 5
    assert make(DIGEST, Variant(), BUILD) == make(DIGEST, Variant(), BUILD)


def test_kernel_cache_key_takes_an_id_or_its_digest() -> None:
    made = identify()
    assert kernel_cache_key(made, Variant(), BUILD) == kernel_cache_key(made.digest, Variant(), BUILD)


def test_formulas_do_not_share_digests() -> None:
    assert ir_key(DIGEST, Variant(), BUILD).digest != kernel_cache_key(DIGEST, Variant(), BUILD).digest


def test_source_digest_counts_the_text_alone() -> None:
    assert source_digest("a") == source_digest("a")
    assert source_digest("a") != source_digest("b")


@pytest.mark.parametrize(
    "changed",
    [
        Variant(aligned=False),
        Variant(vector=8),
        Variant(vector=True),
        Variant(name="other"),
        Variant(width=Width.WIDE),
        Variant(axes=(1, ("x", True))),
        Variant(axes=(1, "x", False)),
    ],
)
def test_variant_encoding_counts_every_field(changed: Variant) -> None:
    assert encode_variant(changed) != encode_variant(Variant())


def test_variant_encoding_leaves_out_the_module_of_the_class() -> None:
    moved = attrs.make_class("Variant", {"aligned": attrs.field(default=True)}, frozen=True)
    twin = attrs.make_class("Variant", {"aligned": attrs.field(default=True)}, frozen=True)
    moved.__module__, twin.__module__ = "here", "there"
    assert encode_variant(moved()) == encode_variant(twin())


@pytest.mark.parametrize("value", [1.5, None, [1], (1, [2]), b"a", frozenset()])
def test_variant_encoding_refuses_other_fields(value: Any) -> None:
    with pytest.raises(PluginError, match=r"field 'axes' of the variant .*Variant holds a [\s\S]*attrs.frozen"):
        encode_variant(Variant(axes=value))


@attrs.define
class Thawed:
    aligned: bool = True


@pytest.mark.parametrize("value", [Thawed(), object(), None, types.SimpleNamespace(), (1, 2)])
def test_variant_encoding_refuses_what_is_no_frozen_attrs_class(value: object) -> None:
    with pytest.raises(PluginError, match="must be a frozen attrs class"):
        encode_variant(value)


def test_identity_imports_neither_the_frontend_nor_the_ir() -> None:
    script = (
        "import sys, numpy, attrs; before = set(sys.modules); import quernel.identity; "
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "quernel.identity.capture" in loaded
    unwanted = ("quernel.ir", "quernel.lang", "ast", "click", "rich", "filelock", "diskcache", "llvmlite")
    assert not [name for name in loaded if name.startswith(unwanted)]


def test_identity_all_is_what_can_be_imported() -> None:
    import quernel.identity as package

    assert sorted(package.__all__) == sorted(set(package.__all__))
    assert all(hasattr(package, name) for name in package.__all__)
