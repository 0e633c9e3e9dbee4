"""A directory of objects: additions are applied, removals withdrawn, bad files reported."""

import queue

import pytest

from devicemanager.claims.directory import ClaimsDirectory, ObjectFiles
from devicemanager.claims.errors import ClaimsError
from tests.claims.documents import claim, config, device_class, pool, write

TIMEOUT = 20


class Owner:
    """An owner that records its calls and rejects some names."""

    def __init__(self, *rejected):
        self.calls = queue.SimpleQueue()
        self.rejected = rejected

    def apply(self, objects):
        for each in objects:
            if each.metadata.name in self.rejected:
                raise ClaimsError(f"{each.metadata.name} is rejected")
            self.calls.put(f"+ {each.metadata.name}")

    def withdraw(self, found):
        self.calls.put(f"- {found.metadata.name}")
        return True

    def all_calls(self):
        return [self.calls.get_nowait() for _ in range(self.calls.qsize())]


@pytest.fixture
def lines():
    return []


def test_scan_applies_referenced_objects_first(tmp_path, lines):
    owner = Owner()
    write(tmp_path, "a.yaml", claim("c"), pool("p"), device_class("k"))
    write(tmp_path, "b.yml", config("s"))
    write(tmp_path, ".hidden.yaml", claim("h"))
    write(tmp_path, "notes.txt", claim("n"))
    files = ObjectFiles(tmp_path, owner, lines.append)
    files.scan()
    assert owner.all_calls() == ["+ s", "+ k", "+ p", "+ c"]
    files.scan()
    assert owner.all_calls() == lines == []


def test_scan_applies_changes_and_withdraws_removed_objects(tmp_path, lines):
    owner = Owner()
    first = write(tmp_path, "a.yaml", pool("p"), device_class("k"), claim("c"))
    files = ObjectFiles(tmp_path, owner, lines.append)
    files.scan()
    owner.all_calls()
    write(tmp_path, "a.yaml", pool("p", ["z"]), device_class("k"), claim("c"))
    files.scan()
    assert owner.all_calls() == ["+ p"]
    first.rename(tmp_path / "b.yaml")
    files.scan()
    assert owner.all_calls() == []
    write(tmp_path, "b.yaml", device_class("k"))
    files.scan()
    assert owner.all_calls() == ["- c", "- p"]
    files.withdraw_all()
    assert owner.all_calls() == ["- k"]


def test_bad_file_is_reported_once_and_keeps_its_objects(tmp_path, lines):
    owner = Owner()
    write(tmp_path, "a.yaml", pool("p"))
    files = ObjectFiles(tmp_path, owner, lines.append)
    files.scan()
    owner.all_calls()
    (tmp_path / "a.yaml").write_text("a: [")
    files.scan()
    files.scan()
    (line,) = lines
    assert line.startswith(f"{tmp_path}/a.yaml: not YAML: line 2")
    assert line.endswith("; its last valid objects stay")
    assert owner.all_calls() == []
    write(tmp_path, "a.yaml", device_class("k"))
    files.scan()
    assert owner.all_calls() == ["- p", "+ k"]


def test_first_of_two_objects_with_one_name_counts(tmp_path, lines):
    owner = Owner()
    write(tmp_path, "a.yaml", pool("p", ["x"]))
    write(tmp_path, "b.yaml", pool("p", ["y"]))
    files = ObjectFiles(tmp_path, owner, lines.append)
    files.scan()
    assert owner.all_calls() == ["+ p"]
    assert lines == [
        f'{tmp_path}/b.yaml: DevicePool "p" is also in another file: the other file is used'
    ]
    (tmp_path / "a.yaml").unlink()
    files.scan()
    assert owner.all_calls() == ["+ p"]


def test_rejected_object_is_reported_once_and_not_withdrawn(tmp_path, lines):
    owner = Owner("p")
    write(tmp_path, "a.yaml", pool("p"), device_class("k"))
    files = ObjectFiles(tmp_path, owner, lines.append)
    files.scan()
    files.scan()
    files.withdraw_all()
    assert owner.all_calls() == ["+ k", "- k"]
    assert lines == [f"{tmp_path}: p is rejected"]


def test_directory_follows_changes(tmp_path, lines):
    owner = Owner()
    path = write(tmp_path, "a.yaml", pool("p"))
    with ClaimsDirectory(tmp_path, owner, lines.append):
        assert owner.calls.get_nowait() == "+ p"
        write(tmp_path, "b.yaml", device_class("k"))
        assert owner.calls.get(timeout=TIMEOUT) == "+ k"
        path.unlink()
        assert owner.calls.get(timeout=TIMEOUT) == "- p"


def test_missing_directory_is_an_error(tmp_path, lines):
    with pytest.raises(ClaimsError, match="nosuch: No such file or directory"):
        ClaimsDirectory(tmp_path / "nosuch", Owner(), lines.append).start()
