"""Our own f32 functions on every target: within their stated bounds, and C's values at the edges."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.cpu.harness import CONTIGUOUS, Built, compiler_for
from tests.unit.cpu.test_spmd import F1, module_of

BOUNDS = {"exp": 1.1, "log": 1.0}
LEVELS = {"host": "", "avx2": "x86-64-v3"}
NEAR = {"exp": (-104.5, 89.5), "log": (0.4, 2.5)}
"""Where the results are hard, beside all bit patterns."""


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", BOUNDS)
def test_a_function_of_our_own_is_within_its_bound(name: str, level: str) -> None:
    built = Built(
        module_of(f"i = qn.global_id()\ny[i] = math.{name}(x[i])", x=F1, y=F1),
        CONTIGUOUS,
        compiler_for("spmd", "on", LEVELS[level]),
    )
    generator = np.random.default_rng(7)
    bits = generator.integers(0, 1 << 32, 1 << 20, dtype=np.uint64).astype(np.uint32).view(np.float32)
    edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-45, 1.1754944e-38, 3.4028235e38], np.float32)
    edges = np.concatenate([edges, np.float32([88.72283, 88.72284, -87.33655, -103.97207, -103.9721, -104.0])])
    for x in (bits, generator.uniform(*NEAR[name], 1 << 20).astype(np.float32), edges):
        y = np.zeros_like(x)
        built.over(len(x), x, y)
        with np.errstate(all="ignore"):
            exact = getattr(np, name)(x.astype(np.float64))
            rounded = exact.astype(np.float32)
        finite = np.isfinite(rounded) & np.isfinite(y)
        same = (np.isnan(rounded) & np.isnan(y)) | (rounded == y)
        # At the edge of overflow either neighbour may be the infinite one.
        assert (finite | same | (np.abs(exact) > 3.402823e38)).all(), x[~(finite | same)]
        error = np.abs(y[finite].astype(np.float64) - exact[finite]) / np.spacing(np.abs(rounded[finite]))
        assert error.max() <= BOUNDS[name], x[finite][error.argmax()]
