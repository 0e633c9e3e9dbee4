"""``devicemanager dra allocate`` and ``devicemanager claims convert``."""

from __future__ import annotations

import json

import pytest
import yaml

from devicemanager.claims.dra import Quirk
from devicemanager.cli import main
from tests.claims.dra.objects import GPU, claim, device, exactly, selected, slice_
from tests.paths import ROOT

V1 = "resource.k8s.io/v1"


def document(kind, value, version=V1):
    return {"apiVersion": version, "kind": kind, **value}


@pytest.fixture
def node(written):
    """A file with a node's slice and class; tests add claims."""
    share = device("d1", allowMultipleAllocations=True, capacity={"memory": {"value": "5Gi"}})
    return written(
        document("ResourceSlice", slice_("d0", share)), document("DeviceClass", GPU), name="n.yaml"
    )


def bare(value):
    """The claim without what the API server sets."""
    del value["metadata"]["namespace"]
    for request in value["spec"]["devices"]["requests"]:
        request["exactly"].pop("allocationMode")
        request["exactly"].pop("count")
    return value


def test_claims_and_their_devices_are_listed(node, written, capsys):
    share = claim(exactly("r", capacity={"requests": {"memory": "2Gi"}}), name="share")
    path = written(document("ResourceClaim", bare(claim())), document("ResourceClaim", bare(share)))
    assert main(["dra", "allocate", node, path]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "CLAIM          REQUEST  DEVICE                SHARE",
        "default/c      r        gpu.example.com/p/d0  -",
        "default/share  r        gpu.example.com/p/d1  memory 2Gi",
    ]


def test_yaml_can_be_read_again(node, written, capsys):
    path = written(document("ResourceClaim", claim()))
    assert main(["dra", "allocate", node, path, "-o", "yaml"]) == 0
    again = written(*yaml.safe_load_all(capsys.readouterr().out), name="again.yaml")
    other = written(document("ResourceClaim", claim(name="other")), name="other.yaml")
    assert main(["dra", "allocate", node, again, other, "-o", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["claims"]
    assert found["status"]["allocation"]["devices"]["results"][0]["device"] == "d1"


def test_claims_that_do_not_fit_have_exit_status_1(node, written, capsys):
    two = claim(exactly("r", 2, **selected("!device.allowMultipleAllocations")))
    path = written(document("ResourceClaim", two))
    assert main(["dra", "allocate", node, path]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "default/c: not enough devices on node worker",
        "claim default/c, request r: devices wanted: 2, usable: 1",
        "  claim default/c, selector #0 is false: !device.allowMultipleAllocations:"
        " gpu.example.com/p/d1",
    ]


def test_an_undecided_search_has_exit_status_3(written, capsys):
    devices = [device(f"d{n}", attributes={"m": n % 16}) for n in range(32)]
    distinct = [{"distinctAttribute": "gpu.example.com/m"}]
    path = written(
        document("ResourceSlice", slice_(*devices)),
        document("DeviceClass", GPU),
        document("ResourceClaim", claim(exactly(count=17), constraints=distinct)),
    )
    assert main(["dra", "allocate", path]) == 3
    assert (
        "node worker: the search for devices stopped after 100000 steps" in capsys.readouterr().out
    )


def test_templates_and_older_versions_are_read(written, capsys):
    flat = {"name": "r", "deviceClassName": "gpu"}
    template = {
        "metadata": {"name": "t"},
        "spec": {"spec": {"devices": {"requests": [flat]}}},
    }
    old = slice_("d0")
    old["spec"]["devices"] = [{"name": "d0", "basic": {"attributes": {"m": {"int": 1}}}}]
    path = written(
        document("ResourceSlice", old, "resource.k8s.io/v1beta1"),
        document("DeviceClass", GPU, "resource.k8s.io/v1beta2"),
        document("ResourceClaimTemplate", template, "resource.k8s.io/v1beta1"),
    )
    assert main(["dra", "allocate", path]) == 0
    assert "default/t  r        gpu.example.com/p/d0" in capsys.readouterr().out


def test_files_of_a_directory_are_read(node, written, tmp_path, capsys):
    written(document("ResourceClaim", claim()))
    assert main(["dra", "allocate", str(tmp_path)]) == 0
    assert "gpu.example.com/p/d0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "no unallocated ResourceClaim among the objects: add one"),
        (["--claim", "nope"], "no ResourceClaim default/nope among the objects"),
        (["--kubelet-version", "1.2"], "unknown version '1.2': use one of 1.34, 1.36, 1.37"),
        (["--quirk", "x"], "unknown quirk 'x'"),
        (["--feature-gate", "X"], "unknown feature gate 'X'"),
    ],
)
def test_mistakes_are_one_line(node, arguments, text, written, capsys):
    claims = [written(document("ResourceClaim", claim()))] if arguments else []
    assert main(["dra", "allocate", node, *claims, *arguments]) == 2
    assert text in capsys.readouterr().err


def test_files_without_a_node(written, capsys):
    assert main(["dra", "allocate", written(document("ResourceClaim", claim()))]) == 2
    assert "the objects name no node: select one with --node" in capsys.readouterr().err


def test_the_node_must_be_known(written, capsys):
    path = written(
        document("ResourceSlice", slice_("d0")),
        document("ResourceSlice", slice_("d0", nodeName="b", name="t")),
        document("ResourceClaim", claim()),
    )
    assert main(["dra", "allocate", path]) == 2
    assert "the objects name the nodes b, worker: select one with --node" in capsys.readouterr().err


def test_an_error_of_the_allocator_is_one_line(node, written, capsys):
    path = written(document("ResourceClaim", claim(exactly(**selected("device.x")))))
    assert main(["dra", "allocate", node, path]) == 2
    assert "claim default/c: selector #0: CEL compile error" in capsys.readouterr().err


def test_structured_claims_are_converted(written, capsys):
    wanted = {
        "apiVersion": "devmgmtproto.k8s.io/v1alpha1",
        "kind": "DeviceClaim",
        "metadata": {"name": "c"},
        "spec": {"claims": [{"deviceClass": "gpu", "limits": {"count": "2"}}]},
    }
    path = written(wanted)
    assert main(["claims", "convert", "--simulate-pools", "gpu=1", path]) == 0
    output = capsys.readouterr()
    found = list(yaml.safe_load_all(output.out))
    assert {each["apiVersion"] for each in found} == {V1}
    assert found[-1]["metadata"] == {"name": "c", "namespace": "default"}
    assert 'note: DeviceClaim "default/c": limits have no equivalent' in output.err


def test_there_must_be_something_to_convert(capsys):
    assert main(["claims", "convert"]) == 2
    assert "no pools, classes, claims or configs to convert: name a file" in capsys.readouterr().err


def test_the_page_shows_what_the_commands_print(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    page = (ROOT / "docs" / "dra-allocate.md").read_text()
    assert main(["dra", "allocate", "examples/dra/train.yaml"]) == 0
    assert capsys.readouterr().out in page


def test_the_page_lists_every_quirk():
    page = (ROOT / "docs" / "dra-allocate.md").read_text()
    assert all(f"| `{quirk.value}` |" in page for quirk in Quirk)
