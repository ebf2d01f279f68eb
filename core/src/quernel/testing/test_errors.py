"""What is refused is refused whole: what is wrong, where, what to do; and the device goes on as if nothing had been."""

from __future__ import annotations

import linecache
import pickle
from typing import Any

import numpy as np
import pytest

import quernel as qn
from quernel.errors import (
    KernelSyntaxError,
    KernelTypeError,
    LaunchError,
    OutOfBoundsError,
    QuernelError,
    ValidationError,
)
from quernel.testing.claims import claims_of
from quernel.testing.fuzz.programs import kernel_of
from quernel.testing.launching import on


def line_of(error: QuernelError) -> str:
    """The line of source that an error points at."""
    assert error.where is not None
    return linecache.getline(error.where.file, error.where.line).strip()


def written(body: str, parameters: str = "x, out", **options: Any) -> Any:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return kernel_of(f"@qn.kernel\ndef k({parameters}):\n    i = qn.global_id()\n{lines}").options(**options)


# --- what a backend does not claim, it refuses ------------------------------------------------------------------------

FEATURES: dict[str, tuple[str, type, dict[str, bool], bool]] = {
    "f64": ("out[i] = x[i] * 0.5", np.float64, {}, False),
    "f16": ("out[i] = x[i] + 1", np.float16, {}, False),
    "barriers": ("qn.barrier()\nout[i] = x[i] + 1", np.int32, {}, True),
    "subgroups": ("out[i] = qn.subgroup.sum(x[i]) * 0 + x[i] + 1", np.int32, {}, True),
    "int64_atomics": ("out[i] = x[i]\nqn.atomic.add(out, i, 1)", np.int64, {}, False),
    "f64_atomics": ("out[i] = x[i]\nqn.atomic.add(out, i, 1)", np.float64, {}, False),
    "checked": ("out[i] = x[i] + 1", np.int32, {"checked": True}, False),
}


@pytest.mark.parametrize("feature", FEATURES)
def test_a_feature_works_or_is_refused_by_name(quernel_device: Any, feature: str) -> None:
    body, dtype, options, has_block = FEATURES[feature]
    kernel = on(quernel_device, written(body, **options))
    launcher = kernel[1, 4] if has_block else kernel.over(4)
    x, out = np.arange(4).astype(dtype), np.full(4, 77, dtype)
    claims = claims_of(quernel_device)
    if claims[feature] and (claims["f64"] or dtype is not np.float64):
        launcher(x, out)
        assert out.tolist() == [value * 0.5 if feature == "f64" else value + 1 for value in range(4)]
    else:
        with pytest.raises(QuernelError) as caught:  # noqa: PT011 — what it is called differs by feature
            launcher(x, out)
        assert caught.value.fix
        assert out.tolist() == [77] * 4


# --- where and how to mend --------------------------------------------------------------------------------------------


def test_a_type_error_points_at_its_line_and_says_what_to_write(quernel_device: Any) -> None:
    with pytest.raises(KernelTypeError, match="u64 and i32 have no common integer type") as caught:
        on(quernel_device, written("out[i] = x[i] + out[i]")).over(1)(np.zeros(1, np.uint64), np.zeros(1, np.int32))
    assert line_of(caught.value) == "out[i] = x[i] + out[i]"
    assert "qn.u64(" in str(caught.value.fix)
    assert "^" in str(caught.value)


def test_a_statement_that_kernels_do_not_have_points_at_its_line(quernel_device: Any) -> None:
    with pytest.raises(KernelSyntaxError) as caught:  # noqa: PT011 — the line is what matters
        on(quernel_device, written("try:\n    out[i] = x[i]\nfinally:\n    out[i] = 0")).over(1)(
            np.zeros(1, np.int32), np.zeros(1, np.int32)
        )
    assert line_of(caught.value) == "try:"
    assert isinstance(caught.value, SyntaxError)


@pytest.mark.quernel_needs("barriers")
def test_more_shared_memory_than_there_is_is_refused_naming_both(quernel_device: Any) -> None:
    limit = quernel_device.target_info.limits.max_shared_bytes
    body = f"tile = qn.shared({limit // 4 + 1}, qn.i32)\ntile[qn.local_id()] = x[i]\nqn.barrier()\nout[i] = tile[0]"
    with pytest.raises(ValidationError, match=rf"\d+ bytes.*{limit}") as caught:
        on(quernel_device, written(body))[1, 1](np.zeros(1, np.int32), np.zeros(1, np.int32))
    assert caught.value.fix


def test_a_block_wider_than_an_axis_allows_is_refused(quernel_device: Any) -> None:
    limits = quernel_device.target_info.limits
    wide = min(limits.max_block[2], limits.max_block_threads) + 1
    with pytest.raises(ValidationError, match=str(wide)) as caught:
        on(quernel_device, written("out[i] = qn.local_id()"))[1, wide](np.zeros(1, np.int32), np.zeros(wide, np.int32))
    assert caught.value.fix


ARGUMENTS: dict[str, tuple[type[Exception], str, tuple[Any, ...]]] = {
    "too few": (TypeError, "'out'", (np.zeros(1, np.int32),)),
    "too many": (TypeError, "3", (np.zeros(1, np.int32),) * 3),
    "a list": (KernelTypeError, "list", ([1, 2], np.zeros(1, np.int32))),
    "an array of objects": (KernelTypeError, "object", (np.zeros(1, object), np.zeros(1, np.int32))),
    "an array without axes": (KernelTypeError, "0-d", (np.zeros((), np.int32), np.zeros(1, np.int32))),
}


def is_right(argument: object) -> bool:
    return isinstance(argument, np.ndarray) and argument.dtype == np.int32 and argument.ndim == 1


READ_ON_THE_HOST = {"an array of objects", "an array without axes"}
"""Elsewhere any NumPy array is refused, with how to copy it."""


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.quernel_needs("host_access") if case in READ_ON_THE_HOST else ())
        for case in ARGUMENTS
    ],
)
def test_an_argument_that_cannot_be_one_is_refused_before_anything_runs(quernel_device: Any, case: str) -> None:
    kind, said, arguments = ARGUMENTS[case]
    kernel = written("out[i] = x[i] + 1").options(device=quernel_device)
    given = [quernel_device.array(value) if is_right(value) else value for value in arguments]
    with pytest.raises(kind, match=said):
        kernel.over(1)(*given)


def test_arrays_of_two_devices_are_refused_naming_both(quernel_device: Any) -> None:
    others = [name for name in ("reference", "cpu") if name != quernel_device.info.backend]
    there = qn.device(others[0])
    with pytest.raises(LaunchError, match=others[0]) as caught:
        written("out[i] = x[i] + 1").over(1)(quernel_device.zeros(1, qn.i32), there.zeros(1, qn.i32))
    assert quernel_device.info.backend in str(caught.value)


def test_a_source_in_a_language_that_it_does_not_speak_is_refused(quernel_device: Any) -> None:
    kernel = qn.source_kernel("no-such-language", "text", entry="k", params={"x": qn.Array1[qn.i32]}, writes=["x"])
    with pytest.raises(QuernelError, match="no-such-language") as caught:
        kernel.options(device=quernel_device)[1, 1](quernel_device.zeros(1, qn.i32))
    assert caught.value.fix


# --- afterwards -------------------------------------------------------------------------------------------------------


def test_errors_pickle_with_all_that_they_say(quernel_device: Any) -> None:
    limit = quernel_device.target_info.limits.max_block_threads
    with pytest.raises(ValidationError, match=str(limit)) as caught:
        on(quernel_device, written("out[i] = qn.local_id()"))[1, limit + 1](
            np.zeros(1, np.int32), np.zeros(limit + 1, np.int32)
        )
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is ValidationError
    assert (again.what, again.where, again.fix) == (caught.value.what, caught.value.where, caught.value.fix)


def test_a_refused_kernel_is_refused_again_and_the_next_one_runs(quernel_device: Any) -> None:
    limit = quernel_device.target_info.limits.max_block_threads
    wrong, right = written("out[i] = qn.local_id()"), written("out[i] = x[i] + 1")
    x, out = np.arange(4, dtype=np.int32), np.zeros(limit + 1, np.int32)
    for _ in range(2):
        with pytest.raises(ValidationError, match=str(limit)):
            on(quernel_device, wrong)[1, limit + 1](x, out)
    assert not out.any()
    on(quernel_device, right).over(4)(x, out)
    assert out[:5].tolist() == [1, 2, 3, 4, 0]


@pytest.mark.quernel_needs("checked")
def test_a_launch_after_one_that_went_wrong_is_right(quernel_device: Any) -> None:
    kernel = on(quernel_device, written("out[i] = x[out[i]]", checked=True))
    x, out = np.arange(10, 14, dtype=np.int32), np.array([0, 1, 9, 3], np.int32)
    with pytest.raises(OutOfBoundsError, match="9") as caught:
        kernel.over(4)(x, out)
    assert line_of(caught.value) == "out[i] = x[out[i]]"
    out = np.array([3, 2, 1, 0], np.int32)
    kernel.over(4)(x, out)
    assert out.tolist() == [13, 12, 11, 10]
