"""Targets: the host, and processors by name; what a fingerprint says of each. Nothing here compiles.

A target's facts for the compiler are the details `triple`, `cpu`, `features`, `vector_bytes` and `vector_library`, and
the settings `emitter`, `coarsening` and `mathematics`.
"""

from __future__ import annotations

from functools import cache

from quernel import settings
from quernel.capabilities import Capabilities, Limits, TargetInfo
from quernel.digests import sha256
from quernel.errors import DeviceError
from quernel.values import evolve
from quernel_cpu.host import host
from quernel_cpu.vectormath import vector_library

__all__ = [
    "PIPELINE_VERSION",
    "enabled_features",
    "fingerprint",
    "host_target",
    "named_target",
    "toolchain_version",
]

PIPELINE_VERSION = 2
"""Version of how object code is made of LLVM IR: passes, levels, flags of the target machine."""

_CAPABILITIES = Capabilities(
    exact_f32=True,
    exact_f64=True,
    f64=True,
    f16=True,
    bf16=True,
    int64_atomics=True,
    f64_atomics=True,
    barriers=True,
    subgroups=False,
    checked=True,
    source_languages=("llvm-ir",),
)
_LIMITS = Limits(max_grid=((1 << 62) - 1,) * 3, max_shared_bytes=256 * 1024)
_LEVELS = {
    "x86_64": {
        "x86-64": "",
        "x86-64-v2": "",
        "x86-64-v3": "+avx2,+f16c,+fma",
        "x86-64-v4": "+avx2,+avx512bw,+avx512dq,+avx512f,+avx512vl,+f16c,+fma",
    },
    "aarch64": {"generic": ""},
    "arm64": {"generic": ""},
}
"""Names of targets that are not a host's, and those features of each that are asked for here."""


def host_target() -> TargetInfo:
    """This machine, with every feature that its processor has."""
    here = host()
    return _set_up(
        f"{here.triple.partition('-')[0]}-{here.cpu}", here.triple, here.cpu, here.features, vector_library()
    )


def named_target(name: str) -> TargetInfo:
    """A level of this machine's architecture, for example `x86-64-v3`; `host` is `host_target()`.

    Its code may run on other machines, so it calls no vector library.

    Raises:
        DeviceError: there is no such target.
    """
    here = host_target()
    if name in ("", "host", here.name):
        return here
    triple = here.detail("triple")
    levels = _LEVELS.get(triple.partition("-")[0], {})
    if name not in levels:
        raise DeviceError(
            f"there is no cpu target {name!r} on {triple}", fix=f"use one of {', '.join(['host', here.name, *levels])}"
        )
    return _set_up(name, triple, name, levels[name], "none")


def _set_up(name: str, triple: str, cpu: str, features: str, library: str) -> TargetInfo:
    """The target as the settings of this moment have it."""
    coarsening = "on" if settings.cpu_coarsening() else "off"
    return _target(
        name,
        triple,
        cpu,
        features,
        library,
        settings.cpu_emitter(),
        coarsening,
        settings.cpu_mathematics(),
        host().llvm,
    )


@cache
def _target(
    name: str,
    triple: str,
    cpu: str,
    features: str,
    library: str,
    emitter: str,
    coarsening: str,
    mathematics: str,
    llvm: str,
) -> TargetInfo:
    vector_bytes = _vector_bytes(triple, frozenset(features.split(",")))
    details = {
        "coarsening": coarsening,
        "cpu": cpu,
        "emitter": emitter,
        "features": features,
        "mathematics": mathematics,
        "triple": triple,
        "vector_bytes": str(vector_bytes),
        "vector_library": library,
    }
    sorted_details = tuple(sorted(details.items()))
    return TargetInfo(
        backend="cpu",
        name=name,
        fingerprint=fingerprint(name, sorted_details, llvm),
        capabilities=evolve(_CAPABILITIES, subgroups=emitter == "spmd"),
        limits=_LIMITS,
        subgroup_size=vector_bytes // 4,
        details=sorted_details,
    )


def fingerprint(name: str, details: tuple[tuple[str, str], ...], llvm: str) -> str:
    """The fingerprint of what that version of LLVM makes for a target of that name and those details."""
    facts = (*(f"{key}={value}" for key, value in details), llvm, str(PIPELINE_VERSION))
    digest = sha256("\0".join(facts).encode()).hexdigest()[:16]
    return f"{name}-llvm{llvm}-{digest}"


def _vector_bytes(triple: str, features: frozenset[str]) -> int:
    """The width of the target's widest registers that hold any type's vectors."""
    if {"+avx512f", "+avx512bw", "+avx512dq", "+avx512vl"} <= features:
        return 64
    return 32 if "+avx2" in features else 16


def enabled_features(target: TargetInfo) -> frozenset[str]:
    """The processor features that the target has, as far as its details say.

    With `half`, f16 converts in hardware; with `fma`, products and sums are fused there; with `own-mathematics`, our
    own mathematical functions are used.
    """
    listed = target.detail("features").split(",")
    features = {feature[1:] for feature in listed if feature.startswith("+")}
    if target.detail("triple").startswith(("aarch64", "arm64")):
        features |= {"half", "fma"}
    if "f16c" in features:
        features.add("half")
    if target.detail("mathematics") == "own":
        features.add("own-mathematics")
    return frozenset(features)


def toolchain_version() -> str:
    """LLVM's version."""
    return host().llvm
