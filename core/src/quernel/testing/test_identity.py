"""What names a compiled kernel: variants, keys, fingerprints and digests, the same in every process."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path
from typing import Any

import attrs
import pytest

import quernel as qn
from quernel.compiler import LaunchFacts
from quernel.compiler.halves import ANY_LAUNCH
from quernel.identity import BuildId, encode_variant, kernel_cache_key
from quernel.testing.compiling import artifact_of, definition_of, digest_of, id_of
from quernel.testing.processes import said_by

FACTS = [LaunchFacts(*facts) for facts in itertools.product([False, True], repeat=3)]


@qn.kernel
def doubles(x: qn.Array[qn.i32]):
    i = qn.global_id()
    x[i] = x[i] * 2


@qn.kernel
def triples(x: qn.Array[qn.i32]):
    i = qn.global_id()
    x[i] = x[i] * 3


def fact_name(facts: LaunchFacts) -> str:
    return "-".join(name for name, holds in attrs.asdict(facts).items() if holds) or "any"


@pytest.mark.parametrize("facts", FACTS, ids=fact_name)
def test_a_variant_is_a_frozen_value_of_the_launch_alone(quernel_device: Any, facts: LaunchFacts) -> None:
    variant = quernel_device.operations.target.variant(facts)
    again = quernel_device.operations.target.variant(attrs.evolve(facts))
    assert attrs.has(type(variant))
    assert again == variant
    assert hash(again) == hash(variant)
    assert encode_variant(again) == encode_variant(variant)
    assert pickle.loads(pickle.dumps(variant)) == variant
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        variant.anything = 1


def test_variants_that_differ_have_keys_that_differ(quernel_device: Any) -> None:
    target = quernel_device.operations.target
    definition = definition_of(quernel_device, doubles)
    variants = {target.variant(facts) for facts in FACTS}
    keys = {kernel_cache_key(definition.id, variant, target.compiler.build_id) for variant in variants}
    assert len(keys) == len(variants)


def test_the_likely_variant_is_one_of_those_that_launches_have(quernel_device: Any) -> None:
    target = quernel_device.operations.target
    signature = definition_of(quernel_device, doubles).specialization.signature
    assert target.compiler.default_variant(signature) in [target.variant(facts) for facts in FACTS]
    assert target.compiler.default_variant(signature) == target.compiler.default_variant(signature)


def test_kernels_that_differ_have_ids_and_artifacts_that_differ(quernel_device: Any) -> None:
    first, second = (definition_of(quernel_device, kernel) for kernel in (doubles, triples))
    assert first.id != second.id
    artifacts = [artifact_of(quernel_device, definition) for definition in (first, second)]
    assert len({digest_of(quernel_device, artifact) for artifact in artifacts}) == 2


def test_the_digest_of_an_artifact_covers_its_payload_and_header(quernel_device: Any) -> None:
    artifact = artifact_of(quernel_device, definition_of(quernel_device, doubles))
    header = quernel_device.operations.target.header(artifact)
    more = attrs.evolve(header, features=(*header.features, "another"))
    others = [attrs.evolve(artifact, payload=artifact.payload + b"\0"), attrs.evolve(artifact, header=more)]
    digests = [digest_of(quernel_device, one) for one in (artifact, *others)]
    assert len(set(digests)) == 3
    assert digest_of(quernel_device, attrs.evolve(artifact)) == digests[0]


def test_the_fingerprint_is_that_of_this_processs_toolchain(quernel_device: Any) -> None:
    compiler = quernel_device.operations.target.compiler
    assert compiler.local_fingerprint() == compiler.target_info.fingerprint
    assert isinstance(compiler.build_id, BuildId)


NAMES = """
import json, sys
from pathlib import Path
import quernel as qn
from quernel.compiler.halves import ANY_LAUNCH
from quernel.identity import encode_variant, kernel_cache_key
from named import doubles

device = qn.device(sys.argv[1])
target = device.operations.target
definition = doubles.options(device=device).specialize().definition
variants = [target.variant(ANY_LAUNCH), target.compiler.default_variant(definition.specialization.signature)]
build = target.compiler.build_id
print(json.dumps({
    "kernel": definition.id.digest,
    "variants": [encode_variant(variant).hex() for variant in variants],
    "keys": [kernel_cache_key(definition.id, variant, build).digest for variant in variants],
    "build": build.digest,
    "fingerprint": device.target_info.fingerprint,
    "lock": [target.lock_name(type("Id", (), {"kernel": definition.id, "variant": variants[0]}))],
}))
"""
NAMED = """
import quernel as qn

@qn.kernel
def doubles(x: qn.Array[qn.i32]):
    i = qn.global_id()
    x[i] = x[i] * 2
"""


def test_names_are_the_same_in_every_process(quernel_device: Any, tmp_path: Path) -> None:
    (tmp_path / "named.py").write_text(NAMED)
    first, second = (said_by(tmp_path, "names.py", NAMES, quernel_device.name, seed=seed) for seed in ("1", "2"))
    assert first == second
    target = quernel_device.operations.target
    here = [target.variant(ANY_LAUNCH), id_of(quernel_device, definition_of(quernel_device, doubles)).variant]
    assert first["variants"] == [encode_variant(variant).hex() for variant in here]
    assert first["build"] == target.compiler.build_id.digest
    assert first["fingerprint"] == quernel_device.target_info.fingerprint
