"""Nodes that another process runs are not taken over by accident."""

import os
import subprocess
import sys
import time

import pytest

from devicemanager.client.errors import ClusterError
from devicemanager.client.lease_controller import HOLDER
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
