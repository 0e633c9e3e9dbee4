"""Identity of socket files."""

import os
from pathlib import Path

import pytest

from podresources.sockets import FileIdentity, remove_if_same


def test_identity_differs_for_a_reused_inode(tmp_path: Path) -> None:
    path = tmp_path / "kubelet.sock"
    assert FileIdentity.of(path) is None
    path.touch()
    first = FileIdentity.of(path)
    path.chmod(0o600)
    assert FileIdentity.of(path) == first
    # A file system that reuses inode numbers at once.
    os.utime(path, ns=(1, 1))
    assert FileIdentity.of(path) != first
    assert FileIdentity.of(path / "below") is None


def test_remove_if_same_keeps_other_files(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    path.touch()
    identity = FileIdentity.of(path)
    os.utime(path, ns=(1, 1))
    remove_if_same(path, identity)
    assert path.exists()
    remove_if_same(path, FileIdentity.of(path))
    remove_if_same(path, identity)
    assert not path.exists()
    remove_if_same(tmp_path / "absent", None)


def test_identity_of_a_directory_ignores_its_contents(tmp_path: Path) -> None:
    before = FileIdentity.of(tmp_path)
    (tmp_path / "a").touch()
    os.utime(tmp_path, ns=(1, 1))
    assert FileIdentity.of(tmp_path) == before


@pytest.mark.parametrize("follow", [True, False])
def test_identity_of_a_link(tmp_path: Path, follow: bool) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    target = FileIdentity.of(tmp_path / "file")
    assert (FileIdentity.of(tmp_path / "link", follow_links=follow) == target) is follow
