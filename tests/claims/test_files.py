"""Objects from files, directories and Python values."""

import json

import pytest
import yaml

from devicemanager.claims.errors import ClaimsError, InvalidObject
from devicemanager.claims.files import identity, read_paths, read_source
from tests.claims.documents import claim, config, device_class, pool, read, write

CLASS = device_class()


@pytest.mark.parametrize(
    "source",
    [
        CLASS,
        read(CLASS),
        json.dumps(CLASS),
        yaml.safe_dump(CLASS),
        yaml.safe_dump(CLASS, default_flow_style=True, width=10**6),
    ],
    ids=["dict", "object", "json", "yaml", "one-line"],
)
def test_read_source_accepts_values_and_text(source):
    assert read_source(source) == (read(CLASS),)


def test_read_source_accepts_paths(tmp_path, monkeypatch):
    path = write(tmp_path, "class.yaml", CLASS, config())
    write(tmp_path, "class", CLASS, config())
    expected = (read(CLASS), read(config()))
    assert read_source(path) == read_source(str(path)) == expected
    monkeypatch.chdir(tmp_path)
    assert read_source("class") == expected
    with pytest.raises(InvalidObject, match=r"^nosuch\.yaml: No such file"):
        read_source("nosuch.yaml")


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        (7, "expected a dict, YAML text, a path or an object of devicemanager.claims, not the"),
        ("a: b", 'object "": apiVersion: Required value'),
        ("a\0", 'invalid path "a'),
    ],
)
def test_read_source_rejects_anything_else(source, fault):
    with pytest.raises(InvalidObject, match="^" + fault):
        read_source(source)


def test_invalid_object_joins_its_lines():
    error = InvalidObject(("a: first", "b: second"))
    assert (str(error), error.lines) == ("a: first; b: second", ("a: first", "b: second"))


def test_read_paths_reports_faults_of_all_files(tmp_path):
    write(tmp_path, "a.yaml", pool("p", ["x", "x"]), claim("c"))
    write(tmp_path, "b.yaml", claim("c", {"deviceClass": "gpu", "requests": {"count": 0}}))
    write(tmp_path, "c.yaml", claim("d"), claim("d"))
    (tmp_path / "d.json").write_bytes(b"\xff")
    with pytest.raises(InvalidObject) as caught:
        read_paths([tmp_path])
    a, b, d, c = caught.value.lines
    assert a.startswith(f'{tmp_path}/a.yaml: DevicePool "p": spec.devices[1].name')
    assert b.startswith(f'{tmp_path}/b.yaml: DeviceClaim "default/c": ')
    assert d == f"{tmp_path}/d.json: not UTF-8 text (byte 0)"
    assert c == f'{tmp_path}/c.yaml: DeviceClaim "default/d" is already in {tmp_path}/c.yaml'


def test_read_paths_reads_files_and_directories(tmp_path):
    write(tmp_path, "a.yaml", pool("p"))
    (tmp_path / "below").mkdir()
    other = write(tmp_path / "below", "odd-name", claim("c"))
    files = read_paths([tmp_path, other])
    found = [identity(each) for file in files for each in file.objects]
    assert found == [("DevicePool", "", "p"), ("DeviceClaim", "default", "c")]
    with pytest.raises(ClaimsError, match="nosuch: No such file or directory"):
        read_paths([tmp_path / "nosuch"])
