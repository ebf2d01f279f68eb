"""What outlives a process: environments, compiled kernels, records.

A hit loads neither diskcache nor filelock, and on Linux not platformdirs; records and upkeep are loaded at their first
use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quernel.store.artifact_store import ArtifactStore
from quernel.store.compilation import compilation_store, store_compiled
from quernel.store.environments import (
    Environment,
    current_environment,
    default_environment,
    environment,
    generation,
)
from quernel.store.local_layer import SIZE_LIMIT_BYTES, LocalLayer
from quernel.store.names import StoredArtifact, StoreNames

if TYPE_CHECKING:
    from quernel.store.collection import Collected, collect
    from quernel.store.layers import ReadOnlyLayer
    from quernel.store.record_log import RecordLog, prune_sessions, read_records
    from quernel.store.records import CompilationBatchRecord, CompilationOutcome, CompilationRecord
    from quernel.store.upkeep import (
        StoredKernel,
        StoreInfo,
        VerifyReport,
        clear,
        info,
        stored_kernels,
        verify,
    )

__all__ = [
    "SIZE_LIMIT_BYTES",
    "ArtifactStore",
    "Collected",
    "CompilationBatchRecord",
    "CompilationOutcome",
    "CompilationRecord",
    "Environment",
    "LocalLayer",
    "ReadOnlyLayer",
    "RecordLog",
    "StoreInfo",
    "StoreNames",
    "StoredArtifact",
    "StoredKernel",
    "VerifyReport",
    "clear",
    "collect",
    "compilation_store",
    "current_environment",
    "default_environment",
    "environment",
    "generation",
    "info",
    "prune_sessions",
    "read_records",
    "store_compiled",
    "stored_kernels",
    "verify",
]

_LAZY = {
    "Collected": "collection",
    "CompilationBatchRecord": "records",
    "CompilationOutcome": "records",
    "CompilationRecord": "records",
    "ReadOnlyLayer": "layers",
    "RecordLog": "record_log",
    "StoreInfo": "upkeep",
    "StoredKernel": "upkeep",
    "VerifyReport": "upkeep",
    "clear": "upkeep",
    "collect": "collection",
    "info": "upkeep",
    "prune_sessions": "record_log",
    "read_records": "record_log",
    "stored_kernels": "upkeep",
    "verify": "upkeep",
}


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{module}"), name)
