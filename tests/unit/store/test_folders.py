"""Which folders a store is kept in, and which are refused."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from quernel.errors import StoreError
from quernel.store import ArtifactStore, Environment
from quernel.store.folders import network_filesystem

needs_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root, to give a file away"
)


def mode(path: str) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


def test_folders_are_made_private_whatever_the_umask(store, env, keys) -> None:
    previous = os.umask(0)
    try:
        store.put(keys.kernel("a"), keys.artifact(b"x" * 2**20))
    finally:
        os.umask(previous)
    assert [mode(path) for path in (env.path, env.store_path, env.locks_path)] == [0o700] * 3


@pytest.mark.parametrize("by", ["get", "put"])
def test_open_store_folder_is_made_private(store, env, names, keys, by) -> None:
    store.put(keys.kernel("a"), keys.artifact())
    store.close()
    os.chmod(env.store_path, 0o777)
    again = ArtifactStore(env, names)
    if by == "get":
        assert again.get(keys.kernel("a")) == keys.artifact()
    else:
        again.put(keys.kernel("b"), keys.artifact())
    assert mode(env.store_path) == 0o700
    again.close()


@pytest.mark.parametrize("part", ["path", "store_path", "database"])
def test_symbolic_link_is_refused_with_a_fix(store, env, names, keys, tmp_path, part) -> None:
    store.put(keys.kernel("a"), keys.artifact())
    store.close()
    linked = Path(env.store_path, "cache.db") if part == "database" else Path(getattr(env, part))
    linked.rename(tmp_path / "elsewhere")
    linked.symlink_to(tmp_path / "elsewhere")
    again = ArtifactStore(env, names)
    for use in (again.open, lambda: again.get(keys.kernel("a")), lambda: again.put(keys.kernel("a"), keys.artifact())):
        with pytest.raises(StoreError, match=f"{linked} is a symbolic link") as caught:
            use()
        assert caught.value.fix
    again.close()


@needs_root
@pytest.mark.parametrize("part", ["path", "store_path", "database"])
def test_what_another_user_owns_is_refused_with_a_fix(store, env, names, keys, part) -> None:
    store.put(keys.kernel("a"), keys.artifact())
    store.close()
    path = os.path.join(env.store_path, "cache.db") if part == "database" else getattr(env, part)
    os.chown(path, 65534, 65534)
    again = ArtifactStore(env, names)
    for use in (again.open, lambda: again.get(keys.kernel("a")), lambda: again.put(keys.kernel("a"), keys.artifact())):
        with pytest.raises(StoreError, match=f"{path} belongs to user 65534, not to user 0") as caught:
            use()
        assert "chown" in str(caught.value.fix)
    again.close()


@needs_root
@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
def test_what_another_user_put_beside_the_database_is_refused(store, env, names, keys, suffix) -> None:
    store.put(keys.kernel("a"), keys.artifact())
    store.close()
    beside = Path(env.store_path, "cache.db" + suffix)
    beside.touch()
    os.chown(beside, 65534, 65534)
    again = ArtifactStore(env, names)
    for use in (again.open, lambda: again.get(keys.kernel("a")), lambda: again.put(keys.kernel("a"), keys.artifact())):
        with pytest.raises(StoreError, match=f"{beside} belongs to user 65534, not to user 0"):
            use()
    again.close()


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
def test_link_beside_the_database_is_refused(store, env, names, keys, tmp_path, suffix) -> None:
    store.put(keys.kernel("a"), keys.artifact())
    store.close()
    beside = Path(env.store_path, "cache.db" + suffix)
    beside.symlink_to(tmp_path / "elsewhere")
    again = ArtifactStore(env, names)
    with pytest.raises(StoreError, match=f"{beside} is a symbolic link"):
        again.get(keys.kernel("a"))
    again.close()
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("part", ["path", "store_path"])
def test_file_in_a_folders_place_is_refused(store, env, keys, part) -> None:
    path = Path(getattr(env, part))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("not a folder")
    for use in (store.open, lambda: store.put(keys.kernel("a"), keys.artifact())):
        with pytest.raises(StoreError, match=r"is not a folder|Not a directory"):
            use()
    assert path.read_text() == "not a folder"


def test_folder_in_the_databases_place_is_refused(store, env, keys) -> None:
    Path(env.store_path, "cache.db").mkdir(parents=True)
    with pytest.raises(StoreError, match=r"cache\.db is not a file\n  fix: remove .*cache\.db"):
        store.get(keys.kernel("a"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("_sql", "x"),
        ("sqlite_temp_store_directory", "/tmp"),
        ("disk_evil", 1),
        ("cull_limit", 10),
        ("eviction_policy", "least-recently-used"),
        ("sqlite_mmap_size", 2**26),
        ("sqlite_journal_mode", "off"),
        ("count", "many"),
    ],
)
def test_foreign_setting_is_refused_with_a_fix(store, env, names, keys, sql, name, value) -> None:
    store.put(keys.kernel("a"), keys.artifact())
    store.close()
    sql("INSERT OR REPLACE INTO Settings VALUES (?, ?)", name, value)
    again = ArtifactStore(env, names)
    for use in (again.open, lambda: again.get(keys.kernel("a")), lambda: again.put(keys.kernel("a"), keys.artifact())):
        with pytest.raises(StoreError, match=f"foreign setting '{name}'") as caught:
            use()
        assert "quernel cache clear" in str(caught.value.fix)
    again.clear()
    again.put(keys.kernel("a"), keys.artifact())
    assert again.get(keys.kernel("a")) == keys.artifact()
    again.close()


def test_diskcache_has_no_setting_that_this_store_does_not_know() -> None:
    from diskcache.core import DEFAULT_SETTINGS, METADATA

    from quernel.store.database import _COUNTERS, SETTINGS

    assert set(DEFAULT_SETTINGS) == set(SETTINGS)
    assert set(METADATA) == set(_COUNTERS)


def test_database_has_the_settings_of_this_store(store, keys, sql) -> None:
    from quernel.store.database import _COUNTERS, SETTINGS

    store.put(keys.kernel("a"), keys.artifact())
    rows = dict(sql("SELECT key, value FROM Settings"))
    assert {name: value for name, value in rows.items() if name not in _COUNTERS} == SETTINGS
    assert sql("PRAGMA journal_mode") == [("wal",)]


@pytest.mark.parametrize("name", ["with space", "50% off", "a?b#c", "ünïcode", "$HOMELESS", "semi;colon"])
def test_store_works_below_any_folder_name(tmp_path, names, keys, name) -> None:
    env = Environment(tmp_path / name)
    store = ArtifactStore(env, names)
    store.put(keys.kernel("a"), keys.artifact())
    store.close()
    again = ArtifactStore(env, names)
    assert again.get(keys.kernel("a")) == keys.artifact()
    again.close()
    assert os.listdir(tmp_path) == [name]


def test_path_that_diskcache_would_expand_is_refused(tmp_path, names, keys, monkeypatch) -> None:
    monkeypatch.setenv("QN_SOMEWHERE", "else")
    store = ArtifactStore(Environment(tmp_path / "$QN_SOMEWHERE"), names)
    with pytest.raises(StoreError, match="names an environment variable"):
        store.put(keys.kernel("a"), keys.artifact())
    assert os.listdir(tmp_path) == []
    store.close()


def test_network_file_system_is_refused_with_its_type(store, keys, monkeypatch) -> None:
    monkeypatch.setattr("quernel.store.writer.network_filesystem", lambda folder: "nfs4")
    for use in (store.open, lambda: store.put(keys.kernel("a"), keys.artifact())):
        with pytest.raises(StoreError, match=r"network file system \(nfs4\)"):
            use()


@pytest.mark.parametrize(("kind", "found"), [("nfs4", "nfs4"), ("fuse.sshfs", "fuse.sshfs"), ("ext4", None)])
def test_network_filesystem_finds_the_mount_of_a_folder(tmp_path, kind, found) -> None:
    device = os.stat(tmp_path).st_dev
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "21 1 0:4095 / /proc rw - proc proc rw\n"
        f"22 1 {os.major(device)}:{os.minor(device)} / / rw,relatime shared:1 - {kind} server:/home rw\n"
    )
    assert network_filesystem(str(tmp_path), str(mounts)) == found
    assert network_filesystem(str(tmp_path), str(tmp_path / "missing")) is None


READ_ONLY = """
import logging, os, sys
logging.basicConfig(format="%(levelname)s %(message)s")
from quernel.identity import KernelCacheKey
from quernel.store import Environment, StoredArtifact, compilation_store, store_compiled
env = Environment(sys.argv[1])
store = compilation_store("cpu", "fp", environment=env)
key = KernelCacheKey("0" * 64)
if sys.argv[2] == "fill":
    assert store_compiled(store, key, StoredArtifact(b"h", b"code"))
elif sys.argv[2] == "hit":
    assert store.get(key) == StoredArtifact(b"h", b"code")
    assert not store_compiled(store, KernelCacheKey("1" * 64), StoredArtifact(b"h", b"code"))
    assert not store_compiled(store, KernelCacheKey("2" * 64), StoredArtifact(b"h", b"code"))
    assert store.get(KernelCacheKey("1" * 64)) is None
    assert store.get(key) == StoredArtifact(b"h", b"code")
    assert compilation_store("cpu", "other", environment=env).get(key) is None
else:
    assert store is None
    assert compilation_store("cpu", "other", environment=env) is None
    assert not store_compiled(store, key, StoredArtifact(b"h", b"code"))
env.close()
print("done")
"""


GIVE_UP_OVERRIDE = """
import ctypes, struct
header = ctypes.create_string_buffer(struct.pack("<Ii", 0x20080522, 0))
sets = ctypes.create_string_buffer(24)
libc = ctypes.CDLL(None, use_errno=True)
assert libc.capget(header, sets) == 0
words = list(struct.unpack("<6I", sets.raw))
for index in (0, 1):
    words[index] &= ~0b110
assert libc.capset(header, ctypes.create_string_buffer(struct.pack("<6I", *words))) == 0
"""
"""Takes from root the right to write where permissions say no."""


def without_override(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a script that permissions bind, also when the tests run as root."""
    if os.geteuid() == 0:
        script = GIVE_UP_OVERRIDE + script
    return subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True)


@pytest.fixture
def plain_folder(tmp_path):
    folder = tmp_path / "env"
    folder.mkdir(mode=0o700)
    yield str(folder)
    for inner in (folder, folder / "store"):
        if inner.exists():
            inner.chmod(0o700)


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux, to run without root's rights")
def test_read_only_store_gives_hits_and_warns_once_about_what_is_not_kept(plain_folder) -> None:
    filled = without_override(READ_ONLY, plain_folder, "fill")
    assert (filled.stdout, filled.stderr) == ("done\n", "")
    os.chmod(os.path.join(plain_folder, "store"), 0o500)
    result = without_override(READ_ONLY, plain_folder, "hit")
    assert result.stdout == "done\n", result.stderr
    assert result.stderr.count("WARNING") == 1
    assert "is read-only" in result.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux, to run without root's rights")
def test_read_only_folder_without_a_store_means_none_and_one_warning(plain_folder) -> None:
    os.chmod(plain_folder, 0o500)
    result = without_override(READ_ONLY, plain_folder, "none")
    assert result.stdout == "done\n", result.stderr
    assert result.stderr.count("WARNING") == 1
    assert "Permission denied" in result.stderr


def test_database_of_another_program_is_refused_and_kept(store, env, keys) -> None:
    os.makedirs(env.store_path)
    path = Path(env.store_path, "cache.db")
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE Settings (key TEXT, value)")
    connection.execute("INSERT INTO Settings VALUES ('theme', 'dark')")
    connection.commit()
    connection.close()
    with pytest.raises(StoreError, match="foreign setting 'theme'"):
        store.put(keys.kernel("a"), keys.artifact())
