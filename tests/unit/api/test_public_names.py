from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path

import pytest

import quernel as qn
import quernel.api
import quernel.plugins


def test_every_public_name_can_be_imported_and_is_documented() -> None:
    for name in qn.__all__:
        value = getattr(qn, name)
        assert value is not None
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__doc__, name


def test_what_type_checkers_see_is_what_can_be_imported() -> None:
    tree = ast.parse(Path(qn.__file__).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        alias.asname or alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert set(seen) == set(qn.__all__)
    assert sorted(qn.__all__) == sorted(set(qn.__all__))
    for name, module in seen.items():
        assert module is not None
        if module == "quernel.api.static":  # annotations as a type checker reads them stand for those that run
            assert hasattr(importlib.import_module(module), "boolean" if name == "bool" else name)
        elif name != "errors":
            assert getattr(importlib.import_module(module), name) is getattr(qn, name)


def test_unknown_name_is_an_attribute_error() -> None:
    for package in (qn, quernel.api):
        with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
            package.nothing  # noqa: B018


def test_dir_lists_names_that_were_not_loaded_yet() -> None:
    assert set(qn.__all__) <= set(dir(qn))


@pytest.mark.parametrize("package", [quernel.api, quernel.plugins])
def test_names_of_a_package_are_there(package: object) -> None:
    for name in package.__all__:  # type: ignore[attr-defined]
        assert getattr(package, name) is not None


def test_bool_is_the_type_of_the_language() -> None:
    assert qn.bool is importlib.import_module("quernel.dtypes").bool_
    assert qn.errors is importlib.import_module("quernel.errors")


def test_version_is_that_of_the_installed_distribution() -> None:
    from importlib.metadata import version

    assert qn.__version__ == version("quernel")
    assert "__version__" not in vars(qn)
