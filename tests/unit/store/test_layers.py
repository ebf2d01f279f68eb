"""Layers below a store of one's own: asked in order, and switched off when they fail."""

from __future__ import annotations

import pytest

from quernel.errors import StoreError
from quernel.store import ArtifactStore, ReadOnlyLayer, StoredArtifact


class Layer:
    name = "a bundle"

    def __init__(self, found: StoredArtifact | None = None, error: StoreError | None = None) -> None:
        self.found, self.error, self.asked, self.closed = found, error, [], 0

    def find(self, name: str) -> StoredArtifact | None:
        self.asked.append(name)
        if self.error is not None:
            raise self.error
        return self.found

    def close(self) -> None:
        self.closed += 1


def test_layers_are_asked_in_order_after_a_local_miss_only(env, names, keys) -> None:
    first, second = Layer(), Layer(keys.artifact(b"from below"))
    assert isinstance(first, ReadOnlyLayer)
    store = ArtifactStore(env, names, layers=[first, second])
    store.put(keys.kernel("local"), keys.artifact())
    assert store.get(keys.kernel("local")) == keys.artifact()
    assert first.asked == []
    assert store.get(keys.kernel("a")) == keys.artifact(b"from below")
    assert first.asked == second.asked == [names.kernel(keys.kernel("a"))]
    store.close()
    assert (first.closed, second.closed) == (1, 1)


def test_failing_layer_is_switched_off_after_three_failures(env, names, keys, caplog) -> None:
    bad, good = Layer(error=StoreError("connection refused")), Layer(keys.artifact())
    store = ArtifactStore(env, names, layers=[bad, good])
    for _ in range(5):
        assert store.get(keys.kernel("a")) == keys.artifact()
    assert len(bad.asked) == 3
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "a bundle is not asked any more: connection refused" in caplog.text
    store.close()


class _Odd:
    """A layer of somebody else's making that keeps no contract."""

    def __init__(self, result: object) -> None:
        self.result = result

    def find(self, name: str) -> object:
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    def close(self) -> None:
        pass


@pytest.mark.parametrize("result", [RuntimeError("a bug"), b"bytes", 7])
def test_layer_that_breaks_its_contract_is_switched_off(env, names, keys, caplog, result) -> None:
    store = ArtifactStore(env, names, layers=[_Odd(result)])
    for _ in range(4):
        assert store.get(keys.kernel("a")) is None
    assert caplog.text.count("_Odd is not asked any more") == 1
    store.close()


def test_dropped_artifact_is_not_found_in_a_layer_either(env, names, keys) -> None:
    store = ArtifactStore(env, names, layers=[Layer(keys.artifact())])
    store.drop(keys.kernel("a"))
    assert store.get(keys.kernel("a")) is None
    store.close()
