"""Which folder holds, for whom, and for how long."""

from __future__ import annotations

import contextvars
import os
import subprocess
import sys
import threading

import pytest

from quernel.errors import StoreError
from quernel.store import (
    Environment,
    StoredArtifact,
    compilation_store,
    current_environment,
    default_environment,
    environment,
    generation,
    store_compiled,
)


def test_environment_names_its_folders_and_touches_no_disk(tmp_path) -> None:
    env = Environment(tmp_path / "e")
    assert env.path == str(tmp_path / "e")
    assert [env.store_path, env.records_path, env.locks_path] == [
        str(tmp_path / "e" / part) for part in ("store", "records", "locks")
    ]
    assert not (tmp_path / "e").exists()


def test_environment_path_is_absolute_and_expands_the_home(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/somewhere")
    assert Environment("here").path == str(tmp_path / "here")
    assert Environment("~/there").path == "/somewhere/there"


def test_default_environment_follows_the_variable(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("QUERNEL_ENVIRONMENT", str(tmp_path / "a"))
    first = default_environment()
    assert first.path == str(tmp_path / "a")
    assert current_environment() is first is default_environment()
    monkeypatch.setenv("QUERNEL_ENVIRONMENT", str(tmp_path / "b"))
    assert default_environment().path == str(tmp_path / "b")


@pytest.mark.parametrize("base", [None, "", "/xdg/cache", "relative"])
def test_default_environment_is_where_platformdirs_says(monkeypatch, base) -> None:
    import platformdirs

    monkeypatch.delenv("QUERNEL_ENVIRONMENT", raising=False)
    monkeypatch.setenv("HOME", "/home/someone")
    if base is None:
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", base)
    assert default_environment().path == os.path.abspath(platformdirs.user_cache_dir("quernel", appauthor=False))


def test_default_environment_loads_platformdirs_at_most_where_it_must() -> None:
    script = """
import sys, quernel.store as s
s.default_environment()
print("platformdirs" in sys.modules)
"""
    for extra, needed in [({"QUERNEL_ENVIRONMENT": "/x"}, False), ({}, sys.platform != "linux")]:
        env = {name: value for name, value in os.environ.items() if name != "QUERNEL_ENVIRONMENT"} | extra
        result = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
        assert result.stdout.strip() == str(needed)


def test_nowhere_to_go_means_none_and_one_warning(monkeypatch, caplog) -> None:
    monkeypatch.delenv("QUERNEL_ENVIRONMENT", raising=False)
    monkeypatch.setattr("quernel.store.environments._user_cache", lambda: "~/.cache/quernel")
    assert compilation_store("cpu", "fp") is None
    assert compilation_store("cuda", "fp") is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "no home folder" in caplog.text
    assert "set QUERNEL_ENVIRONMENT to a folder" in caplog.text


def test_relative_folder_in_a_folder_that_is_gone_is_nowhere_to_go(monkeypatch) -> None:
    def gone() -> str:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setenv("QUERNEL_ENVIRONMENT", "relative/kernels")
    with monkeypatch.context() as patched:
        patched.setattr(os, "getcwd", gone)
        patched.setattr(os, "getcwdb", gone)
        assert compilation_store("cpu", "fp") is None
        assert "which cannot be found: No such file" in str(default_environment().unusable)
        with pytest.raises(StoreError, match="'relative/kernels' is relative to the current folder") as raised:
            environment("relative/kernels").__enter__()
    assert raised.value.fix == "give an absolute path"
    assert default_environment().path == os.path.abspath("relative/kernels")


def test_environment_holds_inside_its_block_only(tmp_path) -> None:
    outside = current_environment()
    with environment(tmp_path / "a") as a:
        assert current_environment() is a
        with environment(tmp_path / "b") as b:
            assert current_environment() is b
        assert current_environment() is a
        assert b.is_closed
        assert not a.is_closed
    assert current_environment() is outside
    assert a.is_closed


def test_environment_is_left_when_the_block_raises(tmp_path) -> None:
    outside = current_environment()
    with pytest.raises(KeyError), environment(tmp_path) as env:
        raise KeyError
    assert current_environment() is outside
    assert env.is_closed


def test_environment_does_not_reach_other_threads_and_contexts(tmp_path) -> None:
    outside = current_environment()
    empty = contextvars.Context()
    with environment(tmp_path):
        seen = []
        thread = threading.Thread(target=lambda: seen.append((current_environment(), generation())))
        thread.start()
        thread.join()
        assert seen == [(outside, 0)]
        assert empty.run(current_environment) is outside


def test_environment_of_one_folder_is_shared_and_closed_by_the_last(tmp_path) -> None:
    with environment(tmp_path / "a") as outer:
        with environment(f"{tmp_path}/./a") as inner:
            assert inner is outer
        assert not outer.is_closed
    assert outer.is_closed
    with environment(tmp_path / "a") as anew:
        assert anew is not outer


def test_environment_block_of_the_default_folder_does_not_close_it(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("QUERNEL_ENVIRONMENT", str(tmp_path))
    default = default_environment()
    with environment(tmp_path) as env:
        assert env is default
    assert not default.is_closed


def test_environment_object_may_be_entered_again_and_nested(tmp_path) -> None:
    block = environment(tmp_path)
    with block as first, block as second:
        assert first is second
    with block as third:
        assert third is not first


def test_generation_differs_in_every_block_and_comes_back_after_it(tmp_path) -> None:
    before = generation()
    seen = [before]
    for name in ("a", "b", "a"):
        with environment(tmp_path / name):
            seen.append(generation())
            with environment(tmp_path / name):
                seen.append(generation())
        assert generation() == before
    assert len(set(seen)) == 7
    assert all(type(number) is int for number in seen)


def test_closing_calls_back_once_in_reverse_and_survives_a_failing_callback(tmp_path, caplog) -> None:
    called = []

    def failing(env: Environment) -> None:
        called.append("failing")
        raise RuntimeError("boom")

    with environment(tmp_path) as env:
        env.when_closed(lambda closing: called.append(("first", closing)))
        env.when_closed(failing)
    env.close()
    assert called == ["failing", ("first", env)]
    assert "boom" in caplog.text


def test_closing_closes_its_stores(tmp_path, keys) -> None:
    with environment(tmp_path) as env:
        store = compilation_store("cpu", "fp")
        assert store is not None
        assert compilation_store("cpu", "fp") is store
        assert compilation_store("cpu", "fp", artifact_format=2) is not store
        assert compilation_store("cpu", "fp", environment=env) is store
    with pytest.raises(StoreError, match="is closed"):
        store.get(keys.kernel("a"))
    assert compilation_store("cpu", "fp", environment=env) is None


# What a target calls


@pytest.fixture
def here(tmp_path):
    with environment(tmp_path / "env") as env:
        yield env


def test_compilation_store_is_none_when_caching_is_off(here, monkeypatch, caplog) -> None:
    monkeypatch.setenv("QUERNEL_NO_CACHE", "1")
    assert compilation_store("cpu", "fp") is None
    assert not os.path.exists(here.path)
    assert caplog.records == []


def test_compilation_store_warns_once_per_environment_about_an_unusable_folder(here, tmp_path, caplog) -> None:
    (tmp_path / "env").write_text("a file")
    for backend in ("cpu", "cuda", "cpu"):
        assert compilation_store(backend, "fp") is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "is not a folder" in caplog.text
    with environment(tmp_path / "other"):
        assert compilation_store("cpu", "fp") is not None
    assert (tmp_path / "env").read_text() == "a file"


def test_compilation_store_opens_once_what_was_in_the_way_is_gone(here, tmp_path) -> None:
    (tmp_path / "env").write_text("a file")
    assert compilation_store("cpu", "fp") is None
    (tmp_path / "env").unlink()
    assert compilation_store("cpu", "fp") is not None


def test_what_an_environment_holds_is_made_without_its_lock_and_once(here) -> None:
    class Held:
        is_closed = False

        def close(self):
            self.is_closed = True

    first, second = Held(), Held()

    def make():
        other = threading.Thread(target=lambda: here.hold("key", lambda: second))
        other.start()
        other.join(timeout=10)
        return first

    assert here.hold("key", make) is second
    assert (first.is_closed, second.is_closed) == (True, False)


def test_store_compiled_says_whether_the_store_took_it(here, keys) -> None:
    store = compilation_store("cpu", "fp")
    assert store_compiled(store, keys.kernel("a"), keys.artifact(), kernel_name="k", parts=(("code", "1"),))
    assert store.get(keys.kernel("a")) == keys.artifact()
    assert store.last_parts("k") == [{"code": "1"}]
    assert not store_compiled(None, keys.kernel("a"), keys.artifact())


def test_store_compiled_warns_once_instead_of_failing(here, keys, caplog, monkeypatch) -> None:
    store = compilation_store("cpu", "fp")
    monkeypatch.setattr(store.local, "put", lambda *a: (_ for _ in ()).throw(StoreError("disk full", fix="delete")))
    assert not store_compiled(store, keys.kernel("a"), keys.artifact())
    assert not store_compiled(store, keys.kernel("b"), keys.artifact())
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "compiled kernels are not kept in" in caplog.text
    assert "fix: delete" in caplog.text
    monkeypatch.undo()
    assert store_compiled(store, keys.kernel("a"), keys.artifact())


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), "sqlite", "timeout"])
def test_store_compiled_takes_every_kind_of_failure(here, keys, monkeypatch, error) -> None:
    import sqlite3

    import diskcache

    store = compilation_store("cpu", "fp")
    store.put(keys.kernel("a"), keys.artifact())
    raised = {"sqlite": sqlite3.DatabaseError("malformed"), "timeout": diskcache.Timeout()}.get(str(error), error)

    def failing(*arguments: object, **settings: object) -> None:
        raise raised

    with monkeypatch.context() as patch:
        patch.setattr(diskcache.Cache, "set", failing)
        with pytest.raises(StoreError, match=r"cannot write to the store|is damaged") as caught:
            store.put(keys.kernel("b"), keys.artifact())
        assert caught.value.__cause__ is raised
        assert not store_compiled(store, keys.kernel("b"), StoredArtifact(b"", b""))
    assert store_compiled(store, keys.kernel("b"), keys.artifact())
