"""Device strings: `auto | BACKEND[:SELECTOR]`, commas between alternatives in order of preference.

A selector is a number, `KIND[:N]`, part of a name, or a UUID; case does not matter.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from quernel.errors import DeviceError
from quernel.runtime.operations import DeviceInfo
from quernel.values import frozen

__all__ = ["DeviceChoice", "is_only_a_kind", "parse_device_string", "select_device"]

_KINDS = ("cpu", "gpu", "accelerator")
_FORM = "write auto, BACKEND, BACKEND:NUMBER, BACKEND:KIND, BACKEND:KIND:N, BACKEND:NAME or BACKEND:UUID"


@frozen
class DeviceChoice:
    """One alternative of a device string; `backend` is `None` for `auto`."""

    backend: str | None
    selector: str = ""

    def __str__(self) -> str:
        if self.backend is None:
            return "auto"
        return f"{self.backend}:{self.selector}" if self.selector else self.backend


def is_only_a_kind(name: str, backends: Collection[str]) -> bool:
    """Whether a name that stands for a backend is a kind of device; `cpu` is both, also where it is not installed."""
    return name in _KINDS and name not in backends and name != "cpu"


def parse_device_string(spec: str) -> tuple[DeviceChoice, ...]:
    """The alternatives of a device string, the preferred one first.

    Raises:
        DeviceError: the string has another form.
    """
    choices = []
    for part in spec.split(","):
        backend, colon, selector = (piece.strip() for piece in part.strip().partition(":"))
        if not backend:
            raise DeviceError(f"device string {spec!r} lacks the name of a backend", fix=_FORM)
        if colon and not selector:
            raise DeviceError(f"device string {spec!r} has nothing after {backend + ':'!r}", fix=_FORM)
        if backend.lower() == "auto":
            if selector:
                raise DeviceError(f"'auto' takes no selector, got {part.strip()!r}", fix=_FORM)
            choices.append(DeviceChoice(None))
        else:
            choices.append(DeviceChoice(backend.lower(), selector))
    return tuple(choices)


def select_device(choice: DeviceChoice, devices: Sequence[DeviceInfo]) -> DeviceInfo | None:
    """The device that a choice names among those of its backend, or `None` where its selector matches nothing.

    Raises:
        DeviceError: a number beyond the last device, or part of a name that several devices have.
    """
    if not choice.selector:
        return devices[0] if devices else None
    selector = choice.selector.lower()
    if selector.isdecimal():
        return _numbered(choice, [info for info in devices if info.index == int(selector)], devices)
    kind, _, number = selector.partition(":")
    if kind in _KINDS and (number.isdecimal() or not number):
        of_kind = [info for info in devices if info.kind == kind]
        return _numbered(choice, of_kind[int(number or 0) :][:1], of_kind, kind)
    exact = [info for info in devices if info.uuid and _plain(info.uuid) == _plain(selector)]
    if not exact:
        exact = [info for info in devices if info.name.lower() == selector]
    matches = exact or [info for info in devices if selector in info.name.lower()]
    if len(matches) > 1:
        shown = ", ".join(f"{info.backend}:{info.index} ({info.name})" for info in matches)
        raise DeviceError(
            f"{choice} matches {len(matches)} devices: {shown}",
            fix=f"use a number, for example {matches[0].backend}:{matches[0].index}",
        )
    return matches[0] if matches else None


def _numbered(
    choice: DeviceChoice, found: Sequence[DeviceInfo], among: Sequence[DeviceInfo], kind: str = ""
) -> DeviceInfo:
    if found:
        return found[0]
    noun = f"{kind} devices" if kind else "devices"
    shown = ", ".join(f"{info.backend}:{info.index} ({info.name})" for info in among) or "none"
    raise DeviceError(
        f"there is no device {choice}; {choice.backend} has these {noun}: {shown}",
        fix="see qn.devices(), or `quernel devices`",
    )


def _plain(uuid: str) -> str:
    return uuid.lower().removeprefix("gpu-").replace("-", "")
