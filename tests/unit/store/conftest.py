from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from quernel.identity import IrKey, KernelCacheKey, SourceDigest
from quernel.store import ArtifactStore, Environment, StoredArtifact, StoreNames

Sql = Callable[..., list[tuple[object, ...]]]


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class Keys:
    """Keys by readable names."""

    def kernel(self, text: str) -> KernelCacheKey:
        return KernelCacheKey(digest("kernel " + text))

    def ir(self, text: str) -> IrKey:
        return IrKey(digest("ir " + text))

    def source(self, text: str) -> SourceDigest:
        return SourceDigest(digest("source " + text))

    def artifact(self, payload: bytes = b"code", header: bytes = b"slots") -> StoredArtifact:
        return StoredArtifact(header, payload)


@pytest.fixture
def keys() -> Keys:
    return Keys()


@pytest.fixture
def env(tmp_path: Path) -> Iterator[Environment]:
    environment = Environment(tmp_path / "env")
    yield environment
    environment.close()


@pytest.fixture
def names() -> StoreNames:
    return StoreNames("cpu", 1, "x86-64 avx2 llvm22")


@pytest.fixture
def store(env: Environment, names: StoreNames) -> Iterator[ArtifactStore]:
    opened = ArtifactStore(env, names)
    yield opened
    opened.close()


@pytest.fixture
def sql(env: Environment) -> Sql:
    """Runs one statement against the store's database, as someone with an editor would."""

    def run(statement: str, *arguments: object) -> list[tuple[object, ...]]:
        connection = sqlite3.connect(Path(env.store_path) / "cache.db", isolation_level=None)
        try:
            return connection.execute(statement, arguments).fetchall()
        finally:
            connection.close()

    return run
