"""Which kernel is which: the canonical encoding, the ids and keys made of it, and what a kernel captured.

On the warm path: it imports neither the frontend nor the IR.
"""

from __future__ import annotations

from quernel.identity.build import build_id_hash
from quernel.identity.capture import CapturedCode, CapturedValues, capture, capture_values, code_digest
from quernel.identity.encoding import SCHEMA, Encoder, StrictEncoder, encode
from quernel.identity.guards import Guards
from quernel.identity.ids import (
    BuildId,
    IrKey,
    KernelCacheKey,
    KernelId,
    SourceDigest,
    encode_variant,
    ir_key,
    kernel_cache_key,
    kernel_id,
    source_digest,
)

__all__ = [
    "SCHEMA",
    "BuildId",
    "CapturedCode",
    "CapturedValues",
    "Encoder",
    "Guards",
    "IrKey",
    "KernelCacheKey",
    "KernelId",
    "SourceDigest",
    "StrictEncoder",
    "build_id_hash",
    "capture",
    "capture_values",
    "code_digest",
    "encode",
    "encode_variant",
    "ir_key",
    "kernel_cache_key",
    "kernel_id",
    "source_digest",
]
