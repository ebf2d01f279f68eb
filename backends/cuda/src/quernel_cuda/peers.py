"""The straight way between the memories of two devices."""

from __future__ import annotations

from typing import Final

from quernel_cuda import _driver
from quernel_cuda._driver import Context, call
from quernel_cuda.memory import Pool

__all__ = ["open_way"]

_THERE_ALREADY: Final = "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED"


def open_way(user: Context, owner: Context, pool: Pool) -> None:
    """Lets device `user` reach the memory of device `owner`, that of its pool and what other libraries allocated there.

    A copy between devices without such a way goes through the host's memory, at a tenth of NVLink's speed. Where the
    machine has none, or the driver refuses, it stays at that.
    """
    if not call("cuDeviceCanAccessPeer", user.device, owner.device):
        return
    with user:
        status, *_ = _driver.driver().cuCtxEnablePeerAccess(owner.handle, 0)
    if int(status) and _driver.status_name(status) != _THERE_ALREADY:
        return
    with owner:
        pool.open_to(user.number)
