"""``devicemanager dra validate``, ``slices``, ``pools`` and ``claims``: files and an API server."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from devicemanager.apiserver import FakeApiServer
from devicemanager.cli import main

SLICE = """\
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s}
spec:
  driver: gpu.example.com
  nodeName: n
  pool: {name: n, generation: 1, resourceSliceCount: 1}
  devices:
  - name: gpu-0
    attributes: {model: {string: A100}}
    capacity: {memory: {value: 40Gi}}
"""
CLAIM = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c, namespace: default}
spec:
  devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}
status:
  allocation:
    devices:
      results:
      - {request: gpu, driver: gpu.example.com, pool: n, device: gpu-0}
  reservedFor: [{resource: pods, name: p, uid: u}]
"""


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write(text: str, name: str = "objects.yaml") -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


def run(capsys: Any, *argv: str) -> tuple[int, str, str]:
    status = main(argv)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_valid_objects(write: Any, capsys: Any) -> None:
    assert run(capsys, "dra", "validate", write(SLICE)) == (0, "1 object is valid\n", "")
    assert run(capsys, "dra", "validate", write(f"{SLICE}---\n{CLAIM}"))[1] == (
        "2 objects are valid\n"
    )


def test_file_that_is_not_text_names_the_byte(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"a: \xff")
    status, _, err = run(capsys, "dra", "validate", str(path))
    assert status == 2 and f"{path}: not UTF-8 text (byte 3)" in err


def test_broken_rules_have_the_texts_of_the_api_server(write: Any, capsys: Any) -> None:
    path = write(SLICE.replace("A100", "A" * 65).replace("generation: 1", "generation: -1"))
    status, out, _ = run(capsys, "dra", "validate", path)
    assert status == 1
    assert out.splitlines() == [
        'ResourceSlice "s": spec.pool.generation: Invalid value: -1: must be greater than or equal '
        "to zero",
        'ResourceSlice "s": spec.devices[0].attributes[model].string: Too long: may not be more '
        "than 64 bytes",
    ]


def test_json_names_object_and_field(write: Any, capsys: Any) -> None:
    path = write(SLICE.replace("driver: gpu.example.com", "driver: ''"))
    _, out, _ = run(capsys, "dra", "validate", path, "-o", "json")
    assert json.loads(out) == {
        "schema": "devicemanager.dra-validate/v1",
        "valid": False,
        "problems": [
            {
                "kind": "ResourceSlice",
                "name": "s",
                "field": "spec.driver",
                "text": "Required value",
            }
        ],
        "notes": [],
    }


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("generation: 1", "generation: one", "json: cannot unmarshal string into Go struct field"),
        ("nodeName: n", "nodes: 3", 'strict decoding error: unknown field "spec.nodes"'),
    ],
)
def test_objects_that_cannot_be_decoded(
    old: str, new: str, text: str, write: Any, capsys: Any
) -> None:
    status, out, _ = run(capsys, "dra", "validate", write(SLICE.replace(old, new, 1)))
    assert status == 1 and text in out


def test_status_of_a_claim_is_checked(write: Any, capsys: Any) -> None:
    status, out, _ = run(
        capsys, "dra", "validate", write(CLAIM.replace("request: gpu", "request: x"))
    )
    assert status == 1
    assert "status.allocation.devices.results[0].request: Invalid value: " in out


def test_consumed_capacity_has_the_names_of_the_slice(write: Any, capsys: Any) -> None:
    consumed = 'device: gpu-0, consumedCapacity: {"gpu.example.com/memory": 1Gi}'
    path = write(f"{SLICE}---\n{CLAIM.replace('device: gpu-0', consumed)}")
    status, out, _ = run(capsys, "dra", "validate", path)
    assert status == 0
    assert (
        'note: ResourceClaim "default/c": status.allocation.devices.results[0].consumedCapacity'
        "[gpu.example.com/memory]: device gpu.example.com/n/gpu-0 has no such capacity: use the "
        "names of its slice: memory" in out
    )


def test_admin_access_needs_the_label_of_a_namespace_in_the_files(write: Any, capsys: Any) -> None:
    claim = CLAIM.replace("{deviceClassName", "{adminAccess: true, deviceClassName")
    namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: default}\n---\n"
    assert run(capsys, "dra", "validate", write(claim))[0] == 0
    status, out, _ = run(capsys, "dra", "validate", write(namespace + claim))
    assert status == 1 and "admin access to devices requires" in out


def test_list_attributes_need_their_gate(write: Any, capsys: Any) -> None:
    path = write(SLICE.replace("{string: A100}", f"{{strings: {['a'] * 49}}}"))
    gate = ("--feature-gate", "DRAListTypeAttributes")
    status, out, _ = run(capsys, "dra", "validate", path, *gate)
    assert status == 1
    assert "Invalid value: 49: the total number of attribute values must not exceed 48" in out
    status, _, err = run(capsys, "dra", "validate", path, "--feature-gate", "X")
    assert status == 2 and "unknown feature gate 'X'" in err


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a: [", "not YAML"),
        ("kind: Pod\napiVersion: v1\n", "no objects of resource.k8s.io to validate"),
        ("", "no objects of resource.k8s.io to validate"),
        ("kind: ResourceSliceList\nitems: [{}]\n", "no objects of resource.k8s.io to validate"),
    ],
)
def test_files_without_objects(text: str, error: str, write: Any, capsys: Any) -> None:
    path = write(text)
    status, _, err = run(capsys, "dra", "validate", path)
    assert status == 2 and error in err and path in err


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("kind: ResourceSlice", "kind: ResourceSlicee", "ResourceSlicee"),
        ("resource.k8s.io/v1", "resource.k8s.io/v9", "ResourceSlice"),
    ],
)
def test_unknown_kind_or_version(old: str, new: str, kind: str, write: Any, capsys: Any) -> None:
    changed = SLICE.replace(old, new)
    assert changed != SLICE
    status, out, _ = run(capsys, "dra", "validate", write(f"{SLICE}---\n{changed}"))
    assert status == 1
    assert f'{kind} "s": no matches for kind "{kind}" in version "resource.k8s.io/v' in out


def test_pool_with_a_number_that_is_text(write: Any, capsys: Any) -> None:
    for field in ("generation", "resourceSliceCount"):
        path = write(SLICE.replace(f"{field}: 1", f"{field}: one"))
        status, _, err = run(capsys, "dra", "pools", path)
        assert status == 2 and err.count("\n") == 1
        assert f"ResourceSlice s: invalid spec.pool.{field} 'one': use a whole number" in err


def test_lists_of_slices_and_pools(write: Any, capsys: Any) -> None:
    second = SLICE.replace("name: s}", "name: t}").replace("generation: 1", "generation: 2")
    second = second.replace("resourceSliceCount: 1", "resourceSliceCount: 2")
    path = write(f"{SLICE}---\n{second}")
    assert run(capsys, "dra", "slices", path)[1].splitlines()[1].split() == [
        *("s", "gpu.example.com", "n", "1", "n", "1")
    ]
    out = run(capsys, "dra", "pools", path)[1]
    assert out.splitlines()[1].split() == [
        *("gpu.example.com", "n", "2", "1/2", "(incomplete)", "n", "1")
    ]
    pools = json.loads(run(capsys, "dra", "pools", path, "-o", "json")[1])["pools"]
    assert (pools[0]["complete"], pools[0]["obsolete_slices"]) == (False, 1)


def test_wide_list_of_slices_has_the_names_of_devices(write: Any, capsys: Any) -> None:
    two = f"{SLICE}  - name: gpu-1\n"
    before, _, _ = SLICE.replace("name: s}", "name: t}").partition("  devices:")
    counters = f"{before}  sharedCounters: [{{name: a}}, {{name: b}}]\n"
    out = run(capsys, "dra", "slices", write(f"{two}---\n{counters}"), "-o", "wide")[1]
    header, *rows = [re.split(r"\s{2,}", line) for line in out.splitlines()]
    assert header[-2:] == ["DEVICES", "DEVICE NAMES"]
    assert [row[-2:] for row in rows] == [["2", "gpu-0, gpu-1"], ["2 counter sets", "-"]]


def test_files_without_the_objects_are_an_error(write: Any, capsys: Any) -> None:
    path = write(CLAIM)
    status, out, err = run(capsys, "dra", "slices", path)
    assert (status, out) == (2, "")
    assert err.endswith(
        "no ResourceSlice of resource.k8s.io in the files, only ResourceClaim of "
        "resource.k8s.io/v1: name other files\n"
    )
    # A list of an API server can be empty.
    path = write("apiVersion: v1\nkind: List\nitems: []\n")
    assert run(capsys, "dra", "slices", path)[0] == 0


def test_directory_and_old_version(write: Any, tmp_path: Path, capsys: Any) -> None:
    old = CLAIM.replace("/v1\n", "/v1beta1\n", 1)
    write(old.replace("exactly: {deviceClassName: gpu.example.com}", "deviceClassName: x"))
    out = run(capsys, "dra", "claims", str(tmp_path))[1]
    assert out.splitlines()[1].split() == [
        *("default", "c", "allocated,reserved", "gpu=gpu.example.com/n/gpu-0", "p")
    ]


@pytest.mark.parametrize("hidden", [(), ("resource.k8s.io/v1", "resource.k8s.io/v1beta2")])
def test_objects_of_a_server(hidden: tuple[str, ...], tmp_path: Path, capsys: Any) -> None:
    import yaml

    with FakeApiServer(hidden=hidden) as server:
        kubeconfig = str(server.kubeconfig(tmp_path / "config"))
        for text, plural in ((SLICE, "resourceslices"), (CLAIM, "resourceclaims")):
            server.create(plural, yaml.safe_load(text))
        slices = run(capsys, "dra", "slices", "--kubeconfig", kubeconfig)[1]
        claims = run(capsys, "dra", "claims", "--kubeconfig", kubeconfig, "-o", "name")[1]
        data = run(capsys, "dra", "claims", "--kubeconfig", kubeconfig, "-o", "json")[1]
    assert "gpu.example.com" in slices
    assert claims == "default/c\n"
    assert json.loads(data)["schema"] == "devicemanager.dra-claims/v1"


def test_files_and_a_server_exclude_each_other(write: Any, capsys: Any) -> None:
    status, _, err = run(capsys, "dra", "slices", write(SLICE), "--kubeconfig", "x")
    assert status == 2 and "exclude each other" in err
