"""Nodes that another process runs are not taken over by accident."""

import os
import subprocess
import sys
import time

import pytest

from devicemanager.client.errors import ClusterError
from devicemanager.client.lease_controller import HOLDER, PATH
from devicemanager.cluster import Cluster
from devicemanager.cluster.holders import check_holders, this_process
from devicemanager.objects.status.times import timestamp

HOST = os.uname().nodename


def lease(apiserver, name="n-0", holder=None, age=5.0):
    annotations = {} if holder is None else {HOLDER: holder}
    renewed = timestamp(time.time() - age)
    apiserver.create(
        "leases",
        {
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": renewed},
        },
        "kube-node-lease",
    )


@pytest.mark.parametrize(
    ("holder", "text"),
    [("elsewhere/7", "process 7 on elsewhere"), (f"{HOST}/1", f"process 1 on {HOST}")],
)
def test_live_process_is_named(api, apiserver, holder, text):
    lease(apiserver, holder=holder)
    with pytest.raises(ClusterError, match=f"^{text} runs the existing node n-0: its lease"):
        check_holders(api, ["n-1", "n-0"])


def test_lease_without_a_holder_is_that_of_another_process(api, apiserver):
    lease(apiserver)
    with pytest.raises(ClusterError, match=r"^another process runs the existing node n-0: "):
        check_holders(api, ["n-0"])


def test_nodes_of_ended_processes_are_free(api, apiserver):
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    lease(apiserver, "old", "elsewhere/7", age=41.0)
    lease(apiserver, "ended", f"{HOST}/{ended.pid}")
    lease(apiserver, "own", this_process())
    check_holders(api, ["old", "ended", "own", "without-lease"])


class Api:
    """An API client with the Lease of each node."""

    def __init__(self, lease):
        self.lease = lease
        self.requests = []

    def attempt(self, method, path, *, user):
        self.requests.append((method, path, user))
        return self.lease


@pytest.mark.parametrize(
    ("spec", "age"),
    [
        ({}, 5),
        ({"leaseDurationSeconds": 6}, 5),
        ({"leaseDurationSeconds": 5}, None),
        ({"renewTime": "2027-01-15T08:00:06.000000Z"}, 0),
        ({"renewTime": "never"}, None),
        ({"renewTime": None}, None),
        ({"leaseDurationSeconds": None}, None),
        ({"leaseDurationSeconds": "x"}, None),
    ],
)
def test_lease_counts_until_it_expires(spec, age):
    renewed = "2027-01-15T08:00:00.000000Z"
    lease = {"spec": {"renewTime": renewed, "leaseDurationSeconds": 40, **spec}}
    now = 1_800_000_005.0
    if age is None:
        check_holders(Api(lease), ["n"], now)
        return
    with pytest.raises(ClusterError) as raised:
        check_holders(Api(lease), ["n"], now)
    assert str(raised.value) == (
        f"another process runs the existing node n: its lease was renewed {age} s ago: "
        "use another --prefix, or --take-over"
    )


@pytest.mark.parametrize("lease", [{}, {"spec": None}, {"metadata": None, "spec": {}}])
@pytest.mark.parametrize("as_nodes", [True, False])
def test_lease_without_a_time_has_no_holder(lease, as_nodes):
    """At most 100 leases are read, in the order of their names."""
    api = Api(lease)
    names = [f"n-{number:03}" for number in reversed(range(101))]
    check_holders(api, names, 0.0, as_nodes=as_nodes)
    assert api.requests == [
        ("GET", f"{PATH}/{name}", name if as_nodes else None) for name in sorted(names)[:100]
    ]


@pytest.mark.parametrize(
    ("holder", "error", "text"),
    [
        (f"{HOST}/5", None, f"process 5 on {HOST}"),
        (f"{HOST}/5", PermissionError, f"process 5 on {HOST}"),
        (f"{HOST}/5", OverflowError, f"process 5 on {HOST}"),
        (f"{HOST}/5", ProcessLookupError, None),
        ("elsewhere/5", ProcessLookupError, "process 5 on elsewhere"),
        (f"{HOST}/x", ProcessLookupError, f"process x on {HOST}"),
        ("a/b/5", None, "process 5 on a/b"),
        ("5", None, "another process"),
        (None, None, "another process"),
    ],
)
def test_holder_is_asked_whether_it_runs(monkeypatch, holder, error, text):
    def kill(process, signal):
        assert (process, signal) == (5, 0)
        if error is not None:
            raise error

    monkeypatch.setattr("os.kill", kill)
    renewed = timestamp(time.time())
    api = Api(
        {
            "metadata": {"annotations": {HOLDER: holder}},
            "spec": {"renewTime": renewed, "leaseDurationSeconds": 40},
        }
    )
    if text is None:
        check_holders(api, ["n"])
        return
    with pytest.raises(ClusterError, match=f"^{text} runs the existing node n: "):
        check_holders(api, ["n"])


def test_joined_nodes_name_their_process(apiserver, tmp_path, until):
    kubeconfig = apiserver.kubeconfig(tmp_path / "kubeconfig")
    with Cluster.connect(kubeconfig) as cluster:
        cluster.join_in_memory("n", 1, {"vendor.com/gpu": 1})
        until(lambda: apiserver.get("leases", "n-0", "kube-node-lease"))
        found = apiserver.get("leases", "n-0", "kube-node-lease")["metadata"]
        assert found["annotations"] == {HOLDER: this_process()}

        def taken(value):
            value["metadata"]["annotations"][HOLDER] = "elsewhere/7"
            return value

        apiserver.change("leases", "n-0", taken, "kube-node-lease")
        with pytest.raises(ClusterError, match="use another --prefix, or --take-over"):
            cluster.check(["n-0"])
        assert cluster.check(["n-0"], take_over=True).existing == {"n-0"}
        assert cluster.check(["n-0"], shards=True).existing == {"n-0"}
