"""What the rows of a store are called, and what a target gets back from one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quernel.digests import sha256
from quernel.values import field, frozen

if TYPE_CHECKING:
    from quernel.identity import IrKey, KernelCacheKey, SourceDigest

__all__ = ["StoreNames", "StoredArtifact"]


@frozen
class StoredArtifact:
    """A backend's artifact as the store keeps it: both parts are opaque here."""

    header: bytes
    payload: bytes = field(repr=False)


@frozen
class StoreNames:
    """Names the maps of one backend, artifact format and fingerprint: what their bytes have in common.

    Payloads and the parts of kernels are named without the namespace: equal bytes are kept once, and a kernel's
    parts do not depend on who compiles it.
    """

    backend: str
    artifact_format: int | str
    fingerprint: str

    @property
    def namespace(self) -> str:
        """What the names of its maps have in common."""
        tag = "int" if isinstance(self.artifact_format, int) else "str"
        return _digest("quernel namespace 1", self.backend, tag, str(self.artifact_format), self.fingerprint)

    def kernel(self, key: KernelCacheKey) -> str:
        """The row that maps a kernel key to its artifact."""
        return f"k/{self.namespace}/{key.digest}"

    def ir(self, key: IrKey) -> str:
        """The row that maps an IR key to its artifact."""
        return f"i/{self.namespace}/{key.digest}"

    def source(self, digest: SourceDigest) -> str:
        """The row that maps a source text's digest to its artifact."""
        return f"s/{self.namespace}/{digest.digest}"

    def payload(self, digest: str) -> str:
        """The row that holds the payload with this sha256, in hexadecimal digits."""
        return f"b/{digest}"

    def parts(self, kernel_name: str) -> str:
        """The row that holds the last sets of parts of the kernels with this name."""
        return f"n/{_digest('quernel parts 1', kernel_name)}"


def _digest(*texts: str) -> str:
    """The sha256 of `texts`, each preceded by its length."""
    sha = sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        sha.update(len(data).to_bytes(8, "big"))
        sha.update(data)
    return sha.hexdigest()
