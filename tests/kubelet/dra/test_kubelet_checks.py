"""The checks of the kubelet's side of DRA, by number (K1, K2 and so on).

Each check is a situation in which kubelets or drivers have had a bug. The issue is in the name of
the upstream repository or, as #N, in kubernetes/kubernetes."""

from __future__ import annotations

import json

import pytest

from devicemanager import DeviceManagerError, ManualClock, MockKubelet, RequestError, Settings
from devicemanager.driver.simulated import SimulatedDriver
from devicemanager.kubelet.dra import connection
from devicemanager.plugin.simulated import SimulatedPlugin, SimulationSettings
from devicemanager.testing import pod_manifest
from tests.kubelet.dra.objects import claim, pod

NIC = "nic.example.com"
PREPARE, UNPREPARE = "NodePrepareResources", "NodeUnprepareResources"


def rpcs(driver):
    """Return the RPC of each call of a driver, with the names of the claims."""
    return [(call.rpc, [name for _, name, _ in call.claims]) for call in driver.calls]


def cached(kubelet):
    """Return the claims in the state file: by name, the pods and the device names."""
    inner = json.loads(json.loads(kubelet.dra_state_path.read_text())["Data"])
    return {
        each["ClaimName"]: (
            set(each["PodUIDs"]),
            [
                device["DeviceName"]
                for state in each["DriverState"].values()
                for device in state["Devices"] or ()
            ],
        )
        for each in inner["ClaimInfoStateList"] or ()
    }


def error_of(kubelet, uid="uid-train"):
    """Return the kubelet's error in the latest event about a pod that could not be prepared."""
    failed = [each for each in kubelet.events.recent("prepare-failed") if each.pod == uid]
    head = "FailedPrepareDynamicResources: Failed to prepare dynamic resources: "
    assert head in failed[-1].message
    return failed[-1].message.partition(head)[2]


def test_k1_second_pod_prepares_only_the_new_claim(node):
    """#135901"""
    driver, kubelet = node.driver(), node.kubelet
    kubelet.admit(pod("a", {"x": "one"}), claims=claim("one", "gpu-0"))
    kubelet.resource_claims.reserve("default", "one", "uid-b")
    admitted = kubelet.admit(pod("b", {"x": "one", "y": "two"}), claims=claim("two", "gpu-1"))
    assert rpcs(driver) == [(PREPARE, ["one"]), (PREPARE, ["two"])]
    assert admitted.containers["main"].run_options.cdi_devices == (
        "k8s.gpu.example.com/claim=uid-one-gpu-0",
        "k8s.gpu.example.com/claim=uid-two-gpu-1",
    )
    assert kubelet.pod("uid-b").running


def test_k2_retry_after_one_of_two_drivers_failed_does_not_double_devices(node):
    """#140274"""
    gpu, nic, kubelet = node.driver(), node.driver(NIC), node.kubelet
    nic.faults.entry_error = "no link"
    both = claim("both", "gpu-0")
    both["status"]["allocation"]["devices"]["results"].append(
        {"driver": NIC, "pool": "mock", "device": "nic-0", "request": "nic"}
    )
    admitted = kubelet.admit(pod(claims={"x": "both"}), claims=both)
    text = "prepare dynamic resources: NodePrepareResources failed for ResourceClaim both: no link"
    assert admitted.admitted
    assert admitted.containers["main"].error == text
    assert error_of(kubelet) == text
    assert kubelet.pod("uid-train").phase == "Pending"
    nic.faults.entry_error = ""
    # The periodic sync is 60 s after the failure.
    node.clock.advance(59)
    assert len(nic.calls) == 1
    node.clock.advance(1)
    kubelet.wait_for_event("container-started", pod="uid-train", after=0)
    assert [rpc for rpc, _ in rpcs(gpu)] == [PREPARE, PREPARE]
    assert cached(kubelet) == {"both": ({"uid-train"}, ["gpu-0", "nic-0"])}


def test_k3_reboot_prepares_again_and_leaves_one_copy(node):
    """#140471"""
    driver, kubelet = node.driver(), node.kubelet
    first = kubelet.admit(pod(), claims=claim("gpu", "gpu-0")).containers["main"]
    node.restart(driver, reboot=True)
    kubelet.resync("uid-train")
    kubelet.wait_for_event("claims-prepared", pod="uid-train", after=0)
    assert len(driver.calls) == 2
    assert cached(kubelet) == {"gpu": ({"uid-train"}, ["gpu-0"])}
    assert kubelet.start_container("uid-train", "main").cdi_devices == (
        first.run_options.cdi_devices
    )


def test_k3_restart_with_a_living_sandbox_calls_nothing(node):
    driver, kubelet = node.driver(), node.kubelet
    first = kubelet.admit(pod(), claims=claim("gpu", "gpu-0")).containers["main"]
    node.restart(driver)
    assert kubelet.restart_container("uid-train", "main").cdi_devices == (
        first.run_options.cdi_devices
    )
    # Also in a new sandbox: the claim is only known to be prepared without a restart.
    assert len(driver.calls) == 1


def test_recreated_sandbox_of_a_prepared_claim_calls_nothing(node):
    driver, kubelet = node.driver(), node.kubelet
    kubelet.admit(pod(), claims=claim("gpu", "gpu-0"))
    mark = kubelet.mark()
    kubelet.recreate_sandbox("uid-train")
    kubelet.wait_for_event("container-started", since=mark)
    assert len(driver.calls) == 1


def test_k4_pod_that_failed_validation_does_not_unprepare_a_shared_claim(node):
    """#140212"""
    driver, kubelet = node.driver(), node.kubelet
    kubelet.admit(pod("a"), claims=claim("gpu", "gpu-0"))
    kubelet.admit(pod("b"))  # not reserved
    assert "not allowed" in error_of(kubelet, "uid-b")
    kubelet.terminate("uid-b")
    assert rpcs(driver) == [(PREPARE, ["gpu"])]
    assert not kubelet.has_pod("uid-b")


def test_k5_prepare_waits_for_the_last_unprepare(node):
    """#140527"""
    driver, kubelet = node.driver(), node.kubelet
    kubelet.admit(pod("a"), claims=claim("gpu", "gpu-0"))
    driver.faults.claim_errors["gpu"] = "busy"
    kubelet.faults.set("delay-call", rpc=UNPREPARE, seconds=5)
    mark = kubelet.mark()
    kubelet.delete("uid-a", 1)
    node.stack.callback(kubelet.faults.clear)
    from threading import Thread

    killer = Thread(target=node.clock.advance, args=(1,))
    killer.start()
    kubelet.wait_for_event("fault", since=mark)
    kubelet.resource_claims.reserve("default", "gpu", "uid-b")
    kubelet.admit(pod("b"))
    assert error_of(kubelet, "uid-b") == (
        "prepare dynamic resources: ResourceClaim gpu is being unprepared"
    )
    driver.faults.claim_errors.clear()
    kubelet.faults.clear()
    killer.join()
    kubelet.wait_for_event("terminated", pod="uid-a", since=mark)
    kubelet.resync("uid-b")
    assert [rpc for rpc, _ in rpcs(driver)] == [PREPARE, UNPREPARE, PREPARE]
    assert kubelet.pod("uid-b").running


def test_k6_claim_with_a_new_uid_waits_for_the_old_one(node):
    """#131617"""
    driver, kubelet = node.driver(), node.kubelet
    kubelet.admit(pod("a"), claims=claim("gpu", "gpu-0", uid="old"))
    kubelet.resource_claims.replace("default", "gpu", "new")
    kubelet.resource_claims.reserve("default", "gpu", "uid-b")
    kubelet.admit(pod("b"))
    assert error_of(kubelet, "uid-b") == (
        "prepare dynamic resources: old ResourceClaim with same name gpu and different UID old "
        "still exists (previous pod force-deleted?!)"
    )
    kubelet.terminate("uid-a")
    kubelet.resync("uid-b")
    assert kubelet.pod("uid-b").running
    assert [call.claims[0][2] for call in driver.calls] == ["old", "old", "new"]


def test_k7_pod_of_a_driver_that_never_registered_goes_at_once(node):
    """#131957"""
    kubelet = node.kubelet
    kubelet.admit(pod(), claims=claim("gpu", "gpu-0"))
    assert error_of(kubelet) == (
        "prepare dynamic resources: DRA driver gpu.example.com is not registered"
    )
    kubelet.terminate("uid-train")
    assert not kubelet.has_pod("uid-train")
    assert cached(kubelet) == {}


def test_k8_termination_without_the_claim_of_a_template_does_not_hang(node):
    """#139772"""
    driver, kubelet = node.driver(), node.kubelet
    kubelet.admit(pod(claims={"gpu": None}))
    assert error_of(kubelet) == (
        'prepare dynamic resources: pod "default/train": ResourceClaim not created yet'
    )
    kubelet.delete("uid-train")
    assert not kubelet.has_pod("uid-train")
    assert driver.calls == ()


@pytest.mark.parametrize("grace", [1, None])
def test_k9_unprepare_error_keeps_the_pod_until_a_retry_succeeds(node, grace):
    """#131513"""
    driver, kubelet = node.driver(), node.kubelet
    kubelet.admit(pod(), claims=claim("gpu", "gpu-0"))
    driver.faults.entry_error = "busy"
    if grace is None:
        kubelet.terminate("uid-train")
    else:
        kubelet.delete("uid-train", grace)
        node.clock.advance(grace)
    failed = kubelet.events.recent("unprepare-failed")[-1]
    assert failed.message.endswith(
        "unprepare dynamic resources: NodeUnprepareResources failed for ResourceClaim gpu: busy"
    )
    assert kubelet.pod("uid-train").deleting
    assert set(cached(kubelet)) == {"gpu"}
    driver.faults.entry_error = ""
    node.clock.advance(10)
    kubelet.wait_for_event("terminated", pod="uid-train", after=0)
    assert not kubelet.has_pod("uid-train")
    assert cached(kubelet) == {}


def test_k10_pod_stays_until_any_instance_of_its_driver_returns(node):
    """#129402"""
    driver, kubelet = node.driver(), node.kubelet
    kubelet.admit(pod(), claims=claim("gpu", "gpu-0"))
    mark = kubelet.mark()
    driver.stop()
    kubelet.wait_for_event("driver-deregistered", since=mark)
    kubelet.terminate("uid-train")
    assert kubelet.pod("uid-train").deleting
    other = node.driver(uid="second")
    kubelet.resync("uid-train")
    assert not kubelet.has_pod("uid-train")
    assert rpcs(other) == [(UNPREPARE, ["gpu"])]


def test_k11_late_answer_after_the_deadline_is_ignored(node, monkeypatch):
    monkeypatch.setattr(connection, "CALL_TIMEOUT", 0.2)
    driver, kubelet = node.driver(), node.kubelet
    driver.faults.hang_after = True
    kubelet.admit(pod(), claims=claim("gpu", "gpu-0"))
    assert error_of(kubelet) == (
        "prepare dynamic resources: NodePrepareResources: rpc error: code = DeadlineExceeded "
        "desc = context deadline exceeded"
    )
    assert cached(kubelet) == {"gpu": ({"uid-train"}, [])}
    assert driver.prepared
    driver.faults.hang_after = False
    node.clock.advance(60)
    kubelet.wait_for_event("container-started", pod="uid-train", after=0)
    assert cached(kubelet) == {"gpu": ({"uid-train"}, ["gpu-0"])}


def test_k25_late_deregistration_of_the_old_instance_leaves_the_new_one(node):
    old, kubelet = node.driver(uid="old"), node.kubelet
    new = node.driver(uid="new")
    mark = kubelet.mark()
    old.stop()
    kubelet.wait_for_event("driver-deregistered", since=mark)
    kubelet.admit(pod(), claims=claim("gpu", "gpu-0"))
    assert rpcs(new) == [(PREPARE, ["gpu"])]
    assert kubelet.pod("uid-train").running


def test_k26_broken_connection_is_made_again(node):
    """#133920"""
    driver, kubelet = node.driver(), node.kubelet
    mark = kubelet.mark()
    driver.sockets.stop_service()
    kubelet.wait_for_event("driver-disconnected", since=mark)
    kubelet.admit(pod(), claims=claim("gpu", "gpu-0"))
    assert error_of(kubelet).startswith(
        "prepare dynamic resources: NodePrepareResources: rpc error: code = Unavailable desc = "
    )
    mark = kubelet.mark()
    driver.sockets.start_service()
    kubelet.wait_for_event("driver-connected", since=mark)
    kubelet.resync("uid-train")
    assert kubelet.pod("uid-train").running


def test_k26_idle_connection_is_made_again(node, monkeypatch):
    """#133920: gRPC closes a connection that is not used for 30 minutes."""
    options = connection._options
    # The shortest time that gRPC accepts.
    idle = ("grpc.client_idle_timeout_ms", 1000)
    monkeypatch.setattr(connection, "_options", lambda settings: [*options(settings), idle])
    # A health stream would keep the connection in use.
    driver, kubelet = node.driver(services=["v1.DRAPlugin"]), node.kubelet
    kubelet.admit(pod("a", {"x": "one"}), claims=claim("one", "gpu-0"))
    lost = kubelet.wait_for_event("driver-disconnected", after=0)
    kubelet.wait_for_event("driver-connected", after=lost.number)
    kubelet.admit(pod("b", {"x": "two"}), claims=claim("two", "gpu-1"))
    assert rpcs(driver) == [(PREPARE, ["one"]), (PREPARE, ["two"])]
    assert kubelet.pod("uid-b").running


@pytest.mark.parametrize(
    ("version", "services", "called"),
    [
        ("1.37", ["v1.DRAPlugin"], "v1"),
        ("1.37", ["v1beta1.DRAPlugin"], "v1beta1"),
        ("1.37", ["v2.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAPlugin"], "v1beta1"),
        ("1.32", ["v1.DRAPlugin", "v1beta1.DRAPlugin"], "v1beta1"),
    ],
)
def test_k27_service_that_is_called(nodes, version, services, called):
    gates = {"DynamicResourceAllocation": True} if version == "1.32" else {}
    node = nodes(kubelet_version=version, feature_gates=gates)
    driver, kubelet = node.driver(services=services), node.kubelet
    shared = claim("gpu", "gpu-0")
    shared["status"]["allocation"]["devices"]["results"][0]["shareID"] = "s1"
    kubelet.admit(pod(), claims=shared)
    assert [call.version for call in driver.calls] == [called]
    # Over v1beta1 the share ID is lost.
    text = kubelet.dra_state_path.read_text()
    assert ("s1" in json.loads(text)["Data"].partition("CDIDeviceIDs")[0]) is (called == "v1")


def test_k27_v1_driver_registers_with_1_32_and_every_call_is_unimplemented(nodes):
    node = nodes(kubelet_version="1.32", feature_gates={"DynamicResourceAllocation": True})
    node.driver(services=["v1.DRAPlugin"])
    node.kubelet.admit(pod(), claims=claim("gpu", "gpu-0"))
    assert "NodePrepareResources failed: rpc error: code = Unimplemented" in error_of(node.kubelet)


@pytest.mark.parametrize(
    ("services", "error"),
    [
        ([], "empty list of supported gRPC services (aka supported versions)"),
        (
            ["1.0.0"],
            'none of services supported by the plugin (["1.0.0"]) are supported by the kubelet '
            '(["v1.DRAPlugin" "v1beta1.DRAPlugin"])',
        ),
    ],
)
def test_k27_refused_services(node, services, error):
    driver = SimulatedDriver(kubelet=node.kubelet, services=services)
    node.stack.callback(driver.stop)
    driver.start()
    node.kubelet.wait_for_event("registration-rejected", after=0)
    node.kubelet.wait_for(lambda: bool(driver.sockets.statuses))
    assert driver.sockets.statuses[0] == (
        False,
        "RegisterPlugin error -- plugin validation failed with err: invalid supported gRPC "
        "versions of DRA driver plugin gpu.example.com at endpoint "
        f"{driver.sockets.service_socket}: {error}",
    )


def test_k28_slices_are_wiped_at_start_and_30_s_after_the_last_instance(node):
    """#132683, #140011"""
    kubelet = node.kubelet
    driver = node.driver()
    kubelet.wait_for_event("slices-wiped", text="spec.nodeName=mock", after=0)
    for seconds in (29, 30):
        mark = kubelet.mark()
        driver.stop()
        kubelet.wait_for_event("driver-deregistered", since=mark)
        node.clock.advance(seconds)
        if seconds == 29:
            node.start(driver)
            node.clock.advance(60)
    kubelet.wait_for_event("slices-wiped", text="spec.driver=gpu.example.com,", after=0)
    wiped = [
        each.message
        for each in kubelet.events.recent("slices-wiped")
        if "spec.driver" in each.message
    ]
    assert wiped == ["deleted ResourceSlices with spec.driver=gpu.example.com,spec.nodeName=mock"]


def test_k34_container_gets_the_devices_of_its_requests(node):
    node.driver()
    two = claim("two", "gpu-0")
    two["status"]["allocation"]["devices"]["results"].append(
        {"driver": "gpu.example.com", "pool": "mock", "device": "gpu-1", "request": "other"}
    )
    resources = {
        "one": [{"name": "x", "request": "gpu"}],
        "all": [{"name": "x"}],
        "both": [{"name": "x", "request": "other"}, {"name": "x", "request": "gpu"}],
        "none": [],
    }
    manifest = pod(claims={"x": "two"})
    manifest["spec"]["containers"] = [
        {"name": name, "image": "i", "resources": {"claims": uses}}
        for name, uses in resources.items()
    ]
    found = node.kubelet.admit(manifest, claims=two).containers
    given = {
        name: [each.rpartition("-")[2] for each in outcome.run_options.cdi_devices]
        for name, outcome in found.items()
    }
    assert given == {"one": ["0"], "all": ["0", "1"], "both": ["1", "0"], "none": []}


def test_k34_device_without_request_names_goes_to_all_and_repeats_are_kept(node):
    driver = node.driver()
    driver.faults.no_request_names = True
    uses = [{"name": "gpu", "request": "gpu"}, {"name": "gpu", "request": "other"}]
    found = node.kubelet.admit(pod(uses=uses), claims=claim("gpu", "gpu-0")).containers["main"]
    assert len(found.run_options.cdi_devices) == 2
    assert len(set(found.run_options.cdi_devices)) == 1


def listed(kubelet):
    """Return what PodResources lists of the first container."""
    from podresources import PodResourcesClient

    with PodResourcesClient(kubelet.pod_resources_socket) as client:
        found = client.list()
    return found[0].containers[0].dynamic_resources if found else ()


def test_k35_pod_resources_has_each_device_with_its_own_ids(node):
    driver, kubelet = node.driver(), node.kubelet
    kubelet.admit(pod(), claims=claim("gpu", "gpu-0", "gpu-1"), start=False)
    assert listed(kubelet) == ()
    kubelet.start_pod("uid-train")
    [resource] = listed(kubelet)
    assert (resource.claim_namespace, resource.claim_name) == ("default", "gpu")
    assert [
        (each.driver_name, each.pool_name, each.device_name, each.cdi_devices)
        for each in resource.claim_resources
    ] == [
        ("gpu.example.com", "mock", f"gpu-{n}", (f"k8s.gpu.example.com/claim=uid-gpu-gpu-{n}",))
        for n in (0, 1)
    ]
    kubelet.terminate("uid-train")
    assert listed(kubelet) == ()
    assert driver.prepared == {}


def test_k35_pod_resources_has_share_ids_and_claims_without_devices(node):
    node.driver()
    shared = claim("gpu", "gpu-0")
    shared["status"]["allocation"]["devices"]["results"][0]["shareID"] = "s1"
    node.kubelet.admit(pod(claims={"x": "gpu", "y": "none"}), claims=[shared, claim("none")])
    gpu, none = listed(node.kubelet)
    assert [each.share_id for each in gpu.claim_resources] == ["s1"]
    assert (none.claim_name, none.claim_resources) == ("none", ())


def test_k35_pod_resources_has_nothing_of_a_claim_that_is_not_allocated(node):
    node.driver()
    reserved = {"reservedFor": [{"uid": "uid-train"}]}
    given = claim("gpu", allocated=False, status=reserved)
    node.kubelet.admit(pod(), claims=given, reserve=False)
    assert "not allocated" in error_of(node.kubelet)
    assert listed(node.kubelet) == ()


@pytest.mark.parametrize(
    ("claims", "given", "error"),
    [
        (
            {"gpu": "gpu"},
            claim("gpu", "gpu-0", metadata={"namespace": "default"}),
            "pod train (uid-train) is not allowed to use ResourceClaim gpu (uid-gpu)",
        ),
        (
            {"gpu": "gpu"},
            claim("gpu", allocated=False, status={"reservedFor": [{"uid": "uid-train"}]}),
            "ResourceClaim gpu: not allocated",
        ),
        (
            {"gpu": "gpu"},
            claim("other"),
            'fetch ResourceClaim gpu: resourceclaims.resource.k8s.io "gpu" not found',
        ),
        (
            {"gpu": None},
            claim("made", "gpu-0", status={"reservedFor": [{"uid": "uid-train"}]}),
            "ResourceClaim default/made was not created for Pod default/train (Pod is not owner)",
        ),
    ],
)
def test_k36_claim_that_the_pod_may_not_use(node, claims, given, error):
    driver, kubelet = node.driver(), node.kubelet
    manifest = pod(claims=claims)
    manifest["status"] = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "made"}]}
    kubelet.admit(manifest, claims=given, reserve=False)
    assert error_of(kubelet) == f"prepare dynamic resources: {error}"
    assert driver.calls == ()
    assert cached(kubelet) == {}


def test_claim_of_a_template_gets_owner_and_status(node):
    driver, kubelet = node.driver(), node.kubelet
    kubelet.admit(pod(claims={"gpu": None}), claims=claim("train-gpu-x", "gpu-0"))
    assert rpcs(driver) == [(PREPARE, ["train-gpu-x"])]
    owner = kubelet.resource_claim("default", "train-gpu-x")["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Pod", "uid-train", True)


def test_k37_claim_without_results_needs_no_driver(node):
    kubelet = node.kubelet
    kubelet.admit(pod(), claims=claim("gpu"))
    assert kubelet.pod("uid-train").running
    kubelet.terminate("uid-train")
    assert not kubelet.has_pod("uid-train")


def test_k38_unused_claim_of_a_pod_is_prepared(node):
    driver = node.driver()
    found = node.kubelet.admit(pod(uses=[]), claims=claim("gpu", "gpu-0")).containers["main"]
    assert rpcs(driver) == [(PREPARE, ["gpu"])]
    assert found.run_options.cdi_devices == ()


EMPTY = (
    '{"Data":"{\\"kind\\":\\"DRACheckpoint\\",\\"apiVersion\\":'
    '\\"checkpoint.dra.kubelet.k8s.io/v1\\",\\"ClaimInfoStateList\\":null}",'
    '"Checksum":4010664294}'
)
EXAMPLE = (
    '{"Data":"{\\"kind\\":\\"DRACheckpoint\\",\\"apiVersion\\":'
    '\\"checkpoint.dra.kubelet.k8s.io/v1\\",\\"ClaimInfoStateList\\":[{\\"ClaimUID\\":'
    '\\"067798be-454e-4be4-9047-1aa06aea63f7\\",\\"ClaimName\\":\\"example\\",\\"Namespace\\":'
    '\\"default\\",\\"PodUIDs\\":{\\"139cdb46-f989-4f17-9561-ca10cfb509a6\\":{}},'
    '\\"DriverState\\":{\\"test-driver.cdi.k8s.io\\":{\\"Devices\\":[{\\"PoolName\\":'
    '\\"worker-1\\",\\"DeviceName\\":\\"dev-1\\",\\"RequestNames\\":[\\"test request\\"],'
    '\\"CDIDeviceIDs\\":[\\"example.com/example=cdi-example\\"]}]}}}]}","Checksum":1656016162}'
)


def test_k39_state_file_without_and_with_claims(node, directory):
    node.driver()
    assert node.kubelet.dra_state_path.read_text() == EMPTY
    (directory / "dra_manager_state").write_text(EXAMPLE)
    with MockKubelet(directory, clock=ManualClock()) as kubelet:
        loaded = kubelet.events.recent("dra-state-loaded")
        assert loaded[0].message.endswith("dra_manager_state: 1 ResourceClaim")
    # The file of an older kubelet is not rewritten before the next change.
    assert (directory / "dra_manager_state").read_text() == EXAMPLE


def test_lost_state_file_leaves_the_claim_prepared_in_the_driver(node):
    driver, kubelet = node.driver(), node.kubelet
    kubelet.admit(pod(), claims=claim("gpu", "gpu-0"))
    kubelet.faults.set("lose-dra-state", times=1)
    node.restart(driver)
    assert kubelet.dra_state_path.read_text() == EMPTY
    # As in the kubelet, a container cannot be started, and the driver is not called.
    with pytest.raises(DeviceManagerError, match="unable to get claim info for ResourceClaim gpu"):
        kubelet.restart_container("uid-train", "main")
    kubelet.terminate("uid-train")
    assert rpcs(driver) == [(PREPARE, ["gpu"])]
    assert set(driver.prepared) == {"uid-gpu"}


def test_truncated_state_file_is_set_aside(node):
    driver, kubelet = node.driver(), node.kubelet
    kubelet.admit(pod(), claims=claim("gpu", "gpu-0"))
    whole = kubelet.dra_state_path.read_bytes()
    kubelet.faults.set("truncate-dra-state", times=1)
    node.restart(driver)
    assert kubelet.events.recent("dra-state-set-aside")
    aside = kubelet.root / "dra_manager_state.corrupt-1"
    assert aside.read_bytes() == whole[: len(whole) // 2]


@pytest.mark.parametrize("text", [EXAMPLE.replace("dev-1", "dev-2"), EXAMPLE[:100], "[]"])
def test_k39_corrupt_state_file_is_set_aside(directory, text):
    (directory / "dra_manager_state").write_text(text)
    with MockKubelet(directory) as kubelet:
        assert kubelet.events.recent("dra-state-set-aside")
        assert kubelet.dra_state_path.read_text() == EMPTY
    assert (directory / "dra_manager_state.corrupt-1").read_text() == text


def test_k39_corrupt_state_file_stops_the_start_with_quirk_q38(directory):
    (directory / "dra_manager_state").write_text(EXAMPLE.replace("dev-1", "dev-2"))
    text = (
        "create ResourceClaim cache: GetOrCreate() on checkpoint state: failed to get checkpoint "
        "dra_manager_state: checkpoint is corrupted"
    )
    from devicemanager import StartError

    with pytest.raises(StartError, match=text.replace("(", r"\(").replace(")", r"\)")):
        MockKubelet(directory, Settings(quirks={"Q38"})).start()


def test_k39_no_driver_is_called_before_the_state_is_written(node):
    driver, kubelet = node.driver(), node.kubelet
    kubelet.faults.set("fail-checkpoint", error="ENOSPC")
    kubelet.admit(pod(), claims=claim("gpu", "gpu-0"))
    assert error_of(kubelet) == (
        "prepare dynamic resources: checkpoint ResourceClaim cache: could not save checkpoint "
        "dra_manager_state: no space left on device"
    )
    assert driver.calls == ()
    kubelet.faults.clear()
    kubelet.resync("uid-train")
    assert kubelet.pod("uid-train").running


def test_k40_extended_resource_of_a_claim_gets_its_cdi_devices(node):
    """#141426: the device plugin is not called for it."""
    driver, kubelet = node.driver(), node.kubelet
    manifest = pod(claims={})
    manifest["spec"]["containers"][0]["resources"] = {"limits": {"vendor.com/gpu": "1"}}
    manifest["status"] = {
        "extendedResourceClaimStatus": {
            "resourceClaimName": "extended",
            "requestMappings": [
                {"containerName": "main", "resourceName": "vendor.com/gpu", "requestName": "gpu"}
            ],
        }
    }
    found = kubelet.admit(manifest, claims=claim("extended", "gpu-0"))
    assert found.admitted
    assert found.containers["main"].run_options.cdi_devices == (
        "k8s.gpu.example.com/claim=uid-extended-gpu-0",
    )
    assert rpcs(driver) == [(PREPARE, ["extended"])]
    [resource] = listed(kubelet)
    assert resource.claim_name == "extended"


def extended(name, *containers):
    """Return a pod whose containers get ``vendor.com/gpu`` from the ResourceClaim ``extended``."""
    limits = {"limits": {"vendor.com/gpu": "1"}}
    mappings = [
        {"containerName": each, "resourceName": "vendor.com/gpu", "requestName": "gpu"}
        for each in containers
    ]
    *init, main = [{"name": each, "image": "i", "resources": limits} for each in containers]
    manifest = pod(name, claims={}, containers=[main], initContainers=init)
    status = {"resourceClaimName": "extended", "requestMappings": mappings}
    manifest["status"] = {"extendedResourceClaimStatus": status}
    return manifest


def test_k40_resource_of_a_device_plugin_that_dra_serves_later(node):
    """#141426"""
    driver, kubelet = node.driver(), node.kubelet
    plugin = SimulationSettings(resource_name="vendor.com/gpu", number_devices=2)
    with SimulatedPlugin(plugin, kubelet.plugin_dir):
        kubelet.wait_for_resource("vendor.com/gpu", 2)
        before = pod_manifest("before", {"vendor.com/gpu": 1}, uid="before")
        kubelet.admit(before).raise_for_rejection()
        mark = kubelet.mark()
        found = kubelet.admit(extended("after", "main"), claims=claim("extended", "gpu-0"))
        assert found.admitted
        assert found.containers["main"].run_options.cdi_devices == (
            "k8s.gpu.example.com/claim=uid-extended-gpu-0",
        )
        assert not kubelet.calls(rpc="Allocate", since=mark)
    assert rpcs(driver) == [(PREPARE, ["extended"])]


def test_k40_init_container_shares_the_request(node):
    """#134882"""
    driver, kubelet = node.driver(), node.kubelet
    found = kubelet.admit(extended("train", "init", "main"), claims=claim("extended", "gpu-0"))
    given = ("k8s.gpu.example.com/claim=uid-extended-gpu-0",)
    for name in ("init", "main"):
        assert found.containers[name].run_options.cdi_devices == given
    assert rpcs(driver) == [(PREPARE, ["extended"])]


def test_before_1_32_there_is_no_dra(nodes):
    kubelet = nodes(kubelet_version="1.31").kubelet
    with pytest.raises(RequestError, match=r"kubelet 1\.31 prepares no ResourceClaims"):
        kubelet.admit(pod(), claims=claim("gpu", "gpu-0"))
