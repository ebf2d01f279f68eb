from __future__ import annotations

import attrs
import pytest

import quernel as qn
from quernel.capabilities import Capabilities, details_digest


def test_feature_that_a_backend_does_not_name_is_none_that_it_has() -> None:
    assert not any(attrs.astuple(Capabilities()))


@pytest.mark.parametrize(("name", "lacks"), [("cpu", {"breakpoints"}), ("reference", set())])
def test_backends_of_this_project_state_every_feature(name: str, lacks: set[str]) -> None:
    stated = attrs.asdict(qn.device(name).target_info.capabilities)
    assert {feature for feature, value in stated.items() if value is False} == lacks


def test_digest_of_details_tells_values_and_versions_apart_and_not_their_order() -> None:
    one = details_digest({"a": "1", "b": "2"}, "1")
    assert one == details_digest({"b": "2", "a": "1"}, "1")
    others = [details_digest({"a": "1", "b": "3"}, "1"), details_digest({"a": "1"}, "1"), details_digest({}, "1")]
    assert len({one, *others, details_digest({"a": "1", "b": "2"}, "2")}) == 5
