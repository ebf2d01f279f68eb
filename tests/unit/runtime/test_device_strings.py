from __future__ import annotations

import pytest

from quernel.errors import DeviceError
from quernel.runtime.device_strings import DeviceChoice, parse_device_string, select_device
from quernel.runtime.operations import DeviceInfo

DEVICES = (
    DeviceInfo("ocl", 0, "NVIDIA H200", "gpu", uuid="GPU-aaaa-bbbb"),
    DeviceInfo("ocl", 1, "NVIDIA H200 NVL", "gpu", uuid="GPU-cccc-dddd"),
    DeviceInfo("ocl", 2, "Intel Xeon", "cpu"),
)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("auto", (DeviceChoice(None),)),
        ("AUTO", (DeviceChoice(None),)),
        ("cpu", (DeviceChoice("cpu"),)),
        (" CUDA : 1 ", (DeviceChoice("cuda", "1"),)),
        ("opencl:gpu:1", (DeviceChoice("opencl", "gpu:1"),)),
        ("cuda,cpu", (DeviceChoice("cuda"), DeviceChoice("cpu"))),
    ],
)
def test_device_string_is_parsed_into_its_alternatives(spec: str, expected: tuple[DeviceChoice, ...]) -> None:
    assert parse_device_string(spec) == expected


@pytest.mark.parametrize("spec", ["", ":0", "cuda:", "cuda,,cpu", "auto:1"])
def test_device_string_of_another_form_is_refused_with_the_forms(spec: str) -> None:
    with pytest.raises(DeviceError, match="BACKEND:NUMBER"):
        parse_device_string(spec)


@pytest.mark.parametrize(
    ("selector", "index"),
    [
        ("", 0),
        ("1", 1),
        ("gpu", 0),
        ("gpu:1", 1),
        ("CPU", 2),
        ("xeon", 2),
        ("nvidia h200", 0),
        ("NVL", 1),
        ("GPU-cccc-dddd", 1),
        ("ccccdddd", 1),
    ],
)
def test_selector_finds_its_device(selector: str, index: int) -> None:
    found = select_device(DeviceChoice("ocl", selector), DEVICES)
    assert found is DEVICES[index]


def test_selector_that_nothing_matches_gives_none() -> None:
    assert select_device(DeviceChoice("ocl", "radeon"), DEVICES) is None


def test_ambiguous_part_of_a_name_lists_its_matches() -> None:
    with pytest.raises(DeviceError, match=r"matches 2 devices: ocl:0 \(NVIDIA H200\), ocl:1 \(NVIDIA H200 NVL\)"):
        select_device(DeviceChoice("ocl", "nvidia"), DEVICES)


@pytest.mark.parametrize(("selector", "shown"), [("7", "Intel Xeon"), ("cpu:1", "cpu devices: ocl:2")])
def test_number_beyond_the_last_device_is_refused_with_those_there_are(selector: str, shown: str) -> None:
    with pytest.raises(DeviceError, match=shown):
        select_device(DeviceChoice("ocl", selector), DEVICES)
