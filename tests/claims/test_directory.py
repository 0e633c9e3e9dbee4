"""A directory of objects: what appears is applied, what goes is withdrawn, bad files are told."""

import queue

import pytest
import yaml

from devicemanager.claims.directory import ClaimsDirectory, ObjectFiles
from devicemanager.claims.errors import ClaimsError, InvalidObject
from devicemanager.claims.files import identity, read_paths
from tests.claims.documents import claim, config, device_class, pool

TIMEOUT = 20


class Owner:
    """Notes what it is told; rejects the names it is given."""

    def __init__(self, *rejected):
        self.told = queue.SimpleQueue()
        self.rejected = rejected

    def apply(self, objects):
        for each in objects:
            if each.metadata.name in self.rejected:
                raise ClaimsError(f"{each.metadata.name} is rejected")
            self.told.put(f"+ {each.metadata.name}")

    def withdraw(self, found):
        self.told.put(f"- {found.metadata.name}")
        return True

    def all_told(self):
        return [self.told.get_nowait() for _ in range(self.told.qsize())]


def write(directory, name, *documents):
    path = directory / name
    path.write_text(yaml.safe_dump_all(documents))
    return path


@pytest.fixture
def lines():
    return []


def test_objects_are_applied_in_the_order_in_which_they_refer_to_each_other(tmp_path, lines):
    owner = Owner()
    write(tmp_path, "a.yaml", claim("c"), pool("p"), device_class("k"))
    write(tmp_path, "b.yml", config("s"))
    write(tmp_path, ".hidden.yaml", claim("h"))
    write(tmp_path, "notes.txt", claim("n"))
    files = ObjectFiles(tmp_path, owner, lines.append)
    files.scan()
    assert owner.all_told() == ["+ s", "+ k", "+ p", "+ c"]
    files.scan()
    assert owner.all_told() == lines == []


def test_only_what_changed_is_applied_and_what_is_gone_is_withdrawn(tmp_path, lines):
    owner = Owner()
    first = write(tmp_path, "a.yaml", pool("p"), device_class("k"), claim("c"))
    files = ObjectFiles(tmp_path, owner, lines.append)
    files.scan()
    owner.all_told()
    write(tmp_path, "a.yaml", pool("p", ["z"]), device_class("k"), claim("c"))
    files.scan()
    assert owner.all_told() == ["+ p"]
    first.rename(tmp_path / "b.yaml")
    files.scan()
    assert owner.all_told() == []
    write(tmp_path, "b.yaml", device_class("k"))
    files.scan()
    assert owner.all_told() == ["- c", "- p"]
    files.withdraw_all()
    assert owner.all_told() == ["- k"]


def test_a_bad_file_is_told_once_and_what_it_held_stays(tmp_path, lines):
    owner = Owner()
    write(tmp_path, "a.yaml", pool("p"))
    files = ObjectFiles(tmp_path, owner, lines.append)
    files.scan()
    owner.all_told()
    (tmp_path / "a.yaml").write_text("a: [")
    files.scan()
    files.scan()
    (line,) = lines
    assert line.startswith(f"{tmp_path}/a.yaml: not YAML: line 2")
    assert line.endswith("; its last objects stay")
    assert owner.all_told() == []
    write(tmp_path, "a.yaml", device_class("k"))
    files.scan()
    assert owner.all_told() == ["- p", "+ k"]


def test_of_two_objects_of_one_name_the_first_counts(tmp_path, lines):
    owner = Owner()
    write(tmp_path, "a.yaml", pool("p", ["x"]))
    write(tmp_path, "b.yaml", pool("p", ["y"]))
    files = ObjectFiles(tmp_path, owner, lines.append)
    files.scan()
    assert owner.all_told() == ["+ p"]
    assert lines == [f'{tmp_path}/b.yaml: DevicePool "p" is also in another file, which counts']
    (tmp_path / "a.yaml").unlink()
    files.scan()
    assert owner.all_told() == ["+ p"]


def test_what_is_rejected_is_told_once_and_never_withdrawn(tmp_path, lines):
    owner = Owner("p")
    write(tmp_path, "a.yaml", pool("p"), device_class("k"))
    files = ObjectFiles(tmp_path, owner, lines.append)
    files.scan()
    files.scan()
    files.withdraw_all()
    assert owner.all_told() == ["+ k", "- k"]
    assert lines == [f"{tmp_path}: p is rejected"]


def test_changes_are_followed(tmp_path, lines):
    owner = Owner()
    path = write(tmp_path, "a.yaml", pool("p"))
    with ClaimsDirectory(tmp_path, owner, lines.append):
        assert owner.told.get_nowait() == "+ p"
        write(tmp_path, "b.yaml", device_class("k"))
        assert owner.told.get(timeout=TIMEOUT) == "+ k"
        path.unlink()
        assert owner.told.get(timeout=TIMEOUT) == "- p"


def test_a_directory_that_is_not_there_is_said(tmp_path, lines):
    with pytest.raises(ClaimsError, match="nosuch does not exist"):
        ClaimsDirectory(tmp_path / "nosuch", Owner(), lines.append).start()


def test_all_that_is_wrong_in_several_files_is_said_at_once(tmp_path):
    write(tmp_path, "a.yaml", pool("p", ["x", "x"]), claim("c"))
    write(tmp_path, "b.yaml", claim("c", {"deviceClass": "gpu", "requests": {"count": 0}}))
    write(tmp_path, "c.yaml", claim("d"), claim("d"))
    (tmp_path / "d.json").write_bytes(b"\xff")
    with pytest.raises(InvalidObject) as caught:
        read_paths([tmp_path])
    a, b, d, c = caught.value.lines
    assert a.startswith(f'{tmp_path}/a.yaml: DevicePool "p": spec.devices[1].name')
    assert b.startswith(f'{tmp_path}/b.yaml: DeviceClaim "default/c": ')
    assert d == f"{tmp_path}/d.json: is not UTF-8 text (byte 0)"
    assert c == f'{tmp_path}/c.yaml: DeviceClaim "default/d" is already in {tmp_path}/c.yaml'


def test_paths_are_files_and_directories(tmp_path):
    write(tmp_path, "a.yaml", pool("p"))
    (tmp_path / "below").mkdir()
    other = write(tmp_path / "below", "odd-name", claim("c"))
    files = read_paths([tmp_path, other])
    found = [identity(each) for file in files for each in file.objects]
    assert found == [("DevicePool", "", "p"), ("DeviceClaim", "default", "c")]
    with pytest.raises(ClaimsError, match="nosuch: no such file or directory"):
        read_paths([tmp_path / "nosuch"])
