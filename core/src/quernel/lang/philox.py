"""Philox4x64-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), as device functions.

The words are those of NumPy's `Philox`: `np.random.Philox(key=seed, counter=counter - 1).random_raw(4)`, whose counter
goes up by one before it draws.
"""

from __future__ import annotations

from typing import Any

from quernel.intrinsics import func

__all__ = ["philox4x64"]

_MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_WEYL = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
_LOW = 0xFFFFFFFF
_ROUNDS = 10


@func
def high_product(a: Any, b: Any) -> Any:
    """The upper 64 of the 128 bits of a product of u64."""
    middle = (a >> 32) * (b & _LOW) + ((a & _LOW) * (b & _LOW) >> 32)
    other = (a & _LOW) * (b >> 32) + (middle & _LOW)
    return (a >> 32) * (b >> 32) + (middle >> 32) + (other >> 32)


@func
def philox4x64(seed: Any, counter: Any) -> Any:
    """Four u64 of a key `(seed, 0)` and a counter `(counter, 0, 0, 0)`."""
    x, y, z, w = counter, seed & 0, seed & 0, seed & 0
    key, other_key = seed, seed & 0
    for _ in range(_ROUNDS):
        high, low = high_product(_MULTIPLIERS[0], x), x * _MULTIPLIERS[0]
        other_high, other_low = high_product(_MULTIPLIERS[1], z), z * _MULTIPLIERS[1]
        x, y, z, w = other_high ^ y ^ key, other_low, high ^ w ^ other_key, low
        key += _WEYL[0]
        other_key += _WEYL[1]
    return x, y, z, w
