"""A search for claims that reached its limits is neither "admitted" nor "does not fit"."""

import json

import pytest

from devicemanager.claims.allocator import Allocator
from devicemanager.claims.core.model import Limits
from devicemanager.claims.errors import DoesNotFit, TryAgain
from devicemanager.cli import main
from devicemanager.control.errors import error_of, problem_of
from tests.claims.documents import claim, device_class, pool


@pytest.fixture
def client(client, mock_kubelet):
    client.publish(pool(nodeName=mock_kubelet.settings.node_name))
    client.define(device_class())
    client.claim(claim("one"))
    client.claim(claim("four", {"deviceClass": "gpu", "requests": {"count": 4}}))
    return client


@pytest.fixture
def limited(monkeypatch):
    """Limits that end every search before its first step."""
    monkeypatch.setitem(Allocator.__init__.__kwdefaults__, "limits", Limits(first_fit=0, total=0))


def pod(name):
    uses = [{"name": name, "resourceClaimName": name}]
    container = {"name": "main", "image": "i", "resources": {"claims": [{"name": name}]}}
    spec = {"resourceClaims": uses, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def test_admission_has_three_results(client, mock_kubelet):
    found = [client.admit(pod(name)) for name in ("one", "four")]
    assert [(each.admitted, each.undecided) for each in found] == [(True, False), (False, False)]
    found = [mock_kubelet.admit({**pod("four"), "metadata": {"name": "again"}})]
    assert [(each.admitted, each.undecided) for each in found] == [(False, False)]


def test_cut_off_search_is_undecided(limited, client, raw, mock_kubelet):
    again = {**pod("one"), "metadata": {"name": "again"}}
    for admission in (client.admit(pod("one")), mock_kubelet.admit(again)):
        assert (admission.admitted, admission.undecided) == (False, True)
        assert "cut off" in admission.message
    shape = json.loads(raw.ask("POST", "/v1/pods", json.dumps(pod("one")).encode()).body)
    assert (shape["admitted"], shape["undecided"]) == (False, True)


@pytest.mark.parametrize(("name", "status"), [("one", 0), ("four", 1)])
def test_command_exits_with_the_result(client, server, tmp_path, name, status):
    path = tmp_path / "pod.json"
    path.write_text(json.dumps(pod(name)))
    assert main(["ctl", "admit", str(path), "--control", str(server.socket_path)]) == status


def test_command_exits_with_3_for_a_cut_off_search(limited, client, server, tmp_path):
    path = tmp_path / "pod.json"
    path.write_text(json.dumps(pod("one")))
    control = ["--control", str(server.socket_path)]
    assert main(["ctl", "admit", str(path), *control]) == 3


def test_errors_of_searches_differ_for_clients():
    no, undecided = DoesNotFit("no"), TryAgain("cut off", ("all of it",))
    assert [problem_of(each).reason for each in (no, undecided)] == ["does-not-fit", "undecided"]
    assert problem_of(undecided).status == 503
    again = error_of(problem_of(undecided))
    assert (type(again), str(again), again.unexamined) == (TryAgain, "cut off", ("all of it",))
    assert type(error_of(problem_of(no))) is DoesNotFit
