"""What a compiler must know of a device, frozen: features, limits, and the fingerprint of what it makes."""

from __future__ import annotations

from collections.abc import Mapping

from quernel.values import frozen

__all__ = ["Capabilities", "Limits", "TargetInfo", "details_digest"]


@frozen
class Capabilities:
    """What a target can do; conformance tests and lowering gate on these, never on names.

    A feature that a backend does not name is one that it does not have: so one added here is claimed by none before it
    says so.

    Attributes:
        exact_f32: f32 `+ - * /`, sqrt, fma and denormals are exact as IEEE 754 says.
        exact_f64: the same for f64.
        f64: f64 exists at all.
        f16: f16 arrays can be read and written.
        bf16: bf16 arrays can be read and written.
        int64_atomics: 64-bit integer atomics exist.
        f64_atomics: f64 atomic add exists, natively or by compare-and-swap.
        barriers: threads of a block can wait for each other.
        subgroups: subgroup operations exist.
        checked: launches that check every index, and asserts.
        breakpoints: `breakpoint()` in a kernel stops in Python's debugger.
        source_languages: languages that `qn.source_kernel` may hand to this target, for example `llvm-ir`.
    """

    exact_f32: bool = False
    exact_f64: bool = False
    f64: bool = False
    f16: bool = False
    bf16: bool = False
    int64_atomics: bool = False
    f64_atomics: bool = False
    barriers: bool = False
    subgroups: bool = False
    checked: bool = False
    breakpoints: bool = False
    source_languages: tuple[str, ...] = ()


@frozen
class Limits:
    """The most that one launch may ask for.

    Attributes:
        max_block_threads: threads of a block.
        max_block: threads of a block along each axis, in array order for 3 axes (the last is the fastest).
        max_grid: blocks along each axis, in array order for 3 axes.
        max_shared_bytes: shared memory of a block.
    """

    max_block_threads: int = 1024
    max_block: tuple[int, int, int] = (1024, 1024, 1024)
    max_grid: tuple[int, int, int] = ((1 << 31) - 1,) * 3
    max_shared_bytes: int = 48 * 1024


@frozen
class TargetInfo:
    """Everything about a device that compiled bytes may depend on; made from a device or from a target's name.

    Attributes:
        backend: the backend's name, `cpu`.
        name: the target's name within the backend, for example `x86-64-v4` or `sm_90`.
        fingerprint: names what the bytes depend on: architecture, features, toolchain version, flags, vector library,
            driver where it matters. Artifacts of another fingerprint are never loaded.
        capabilities: what it can do.
        limits: what one launch may ask for.
        subgroup_size: threads of a subgroup.
        details: further facts that the backend's own compiler reads, as sorted (name, value) pairs of strings.
    """

    backend: str
    name: str
    fingerprint: str
    capabilities: Capabilities = Capabilities()
    limits: Limits = Limits()
    subgroup_size: int = 32
    details: tuple[tuple[str, str], ...] = ()

    def detail(self, name: str, default: str = "") -> str:
        """The further fact called `name`."""
        return dict(self.details).get(name, default)


def details_digest(details: Mapping[str, str], *versions: str) -> str:
    """A short digest for a fingerprint: of the facts that compiled bytes depend on, and of what makes them."""
    from quernel.digests import sha256

    content = "\0".join([*(f"{name}={value}" for name, value in sorted(details.items())), *versions])
    return sha256(content.encode()).hexdigest()[:16]
