"""`devicemanager dra explain` and `dra state` on a kubelet with a simulated driver."""

from __future__ import annotations

import json

import pytest

from devicemanager import ManualClock, MockKubelet, Settings
from devicemanager.cli import main
from devicemanager.control import ControlServer
from devicemanager.driver.simulated import SimulatedDriver
from tests.kubelet.dra.objects import claim, pod


@pytest.fixture
def kubelet(monkeypatch):
    settings = Settings(durability="process")
    with MockKubelet(settings=settings, clock=ManualClock(50.0)) as made, ControlServer(made):
        monkeypatch.setenv("DEVICEMANAGER_CONTROL", str(made.root))
        yield made


@pytest.fixture
def driver(kubelet):
    with SimulatedDriver(kubelet=kubelet) as made:
        kubelet.wait_for_event("driver-connected", after=0)
        yield made


def explained(capsys, name="train"):
    status = main(["dra", "explain", name])
    return status, capsys.readouterr().out.splitlines()


def line(state, text, of=" (ResourceClaim gpu)"):
    return f"claim gpu{of}: {state}: {text}"


def test_driver_that_never_registered(kubelet, capsys):
    kubelet.admit(pod(), claims=claim("gpu", "gpu-0"))
    assert explained(capsys) == (
        1,
        [
            "pod default/train is Pending: its sandbox was not created",
            line(
                "no-driver",
                "DRA driver gpu.example.com is not registered: it has not registered since the "
                "kubelet started",
            ),
            "last error: prepare dynamic resources: DRA driver gpu.example.com is not registered",
            "next try in 60 s",
        ],
    )


def test_driver_that_deregistered_and_one_that_is_not_connected(kubelet, driver, capsys):
    mark = kubelet.mark()
    driver.sockets.stop_service()
    kubelet.wait_for_event("driver-disconnected", since=mark)
    kubelet.admit(pod(), claims=claim("gpu", "gpu-0"))
    endpoint = driver.sockets.service_socket
    assert explained(capsys)[1][1] == line(
        "not-connected", f"DRA driver gpu.example.com does not accept connections on {endpoint}"
    )
    driver.stop()
    kubelet.wait_for_event("driver-deregistered", since=mark)
    kubelet.clock.advance(12)
    assert explained(capsys)[1][1].endswith("is not registered: it deregistered 12 s ago")


@pytest.mark.parametrize(
    ("given", "state", "text"),
    [
        (claim("other"), "not-found", 'resourceclaims.resource.k8s.io "gpu" not found'),
        (claim("gpu", allocated=False), "not-allocated", "the claim is not allocated: "),
        (claim("gpu", "gpu-0"), "not-reserved", "the claim is not reserved for the pod: "),
    ],
)
def test_claim_that_the_pod_cannot_use(kubelet, driver, capsys, given, state, text):
    kubelet.admit(pod(), claims=given, reserve=False)
    status, lines = explained(capsys)
    assert status == 1
    assert lines[1].startswith(line(state, text))


def test_claim_of_a_template_that_was_not_created(kubelet, driver, capsys):
    kubelet.admit(pod(claims={"gpu": None}))
    assert explained(capsys)[1][1].startswith(line("not-created", 'pod "default/train"', of=""))


def test_claim_with_another_uid(kubelet, driver, capsys):
    kubelet.admit(pod("a"), claims=claim("gpu", "gpu-0", uid="old"))
    kubelet.resource_claims.replace("default", "gpu", "new")
    kubelet.resource_claims.reserve("default", "gpu", "uid-train")
    kubelet.admit(pod())
    assert explained(capsys)[1][1].startswith(
        line("other-uid", "the node still holds an older claim with this name and the UID old")
    )


def test_driver_that_fails_and_a_pod_that_runs_and_ends(kubelet, driver, capsys):
    driver.faults.entry_error = "no link"
    kubelet.admit(pod(), claims=claim("gpu", "gpu-0"))
    _, lines = explained(capsys)
    # The clock of the kubelet shows 50 s.
    assert lines[1:] == [
        line(
            "prepare-failed",
            "the last attempt to prepare the pod's claims failed: prepare dynamic resources: "
            "NodePrepareResources failed for ResourceClaim gpu: no link: the kubelet tries again "
            "at 00:01:50 UTC, or at once with `devicemanager ctl resync`",
        ),
        "next try in 60 s",
    ]
    driver.faults.entry_error = ""
    kubelet.resync("uid-train")
    assert explained(capsys) == (
        0,
        [
            "pod default/train is Running: its claims were prepared",
            line("prepared", "prepared"),
        ],
    )
    driver.faults.entry_error = "busy"
    kubelet.terminate("uid-train")
    status, lines = explained(capsys)
    assert (status, lines[0]) == (1, "pod default/train ends when its claims are unprepared")
    assert lines[-1] == "next try in 10 s"


def test_pod_that_has_ended(kubelet, driver, capsys):
    kubelet.admit(pod(), claims=claim("gpu", "gpu-0"))
    driver.faults.entry_error = "busy"
    kubelet.finish("uid-train")
    assert explained(capsys)[0] == 1
    driver.faults.entry_error = ""
    kubelet.resync("uid-train")
    status, lines = explained(capsys)
    assert (status, lines[0]) == (
        0,
        "pod default/train is Succeeded: it no longer needs its claims",
    )
    assert not any("busy" in each or "next try" in each for each in lines)


def test_response_that_is_lost(kubelet, driver, capsys):
    kubelet.faults.set("fail-call", rpc="NodePrepareResources", when="after", times=1)
    kubelet.admit(pod(), claims=claim("gpu", "gpu-0"))
    _, lines = explained(capsys)
    failed = "the last attempt to prepare the pod's claims failed: prepare dynamic resources: "
    assert lines[1].startswith(line("prepare-failed", failed))
    assert "Unavailable" in lines[1]
    assert main(["ctl", "claims", "-o", "wide"]) == 0
    shown = capsys.readouterr().out
    assert "prepare-failed" in shown
    assert failed in shown


def test_pod_that_lost_its_sandbox(kubelet, driver, capsys):
    kubelet.admit(pod(), claims=claim("gpu", "gpu-0"))
    driver.faults.entry_error = "busy"
    kubelet.reboot()
    _, lines = explained(capsys)
    assert lines[0] == (
        "pod default/train is Running, but it lost its sandbox, for example in a reboot: "
        "the kubelet creates a new one before it starts a container"
    )


def test_json(kubelet, driver, capsys):
    kubelet.admit(pod(), claims=claim("gpu", "gpu-0"))
    assert main(["dra", "explain", "train", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], found["sandbox"]) == ("devicemanager.pod-claims/v1", True)
    assert found["claims"][0]["state"] == "prepared"
    assert main(["dra", "state", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["driver"] for each in found["drivers"]] == ["gpu.example.com"]
    assert found["claims"][0]["devices"][0]["cdi_devices"] == [
        "k8s.gpu.example.com/claim=uid-gpu-gpu-0"
    ]


def test_state_is_a_table_of_drivers_and_claims(kubelet, driver, capsys):
    kubelet.admit(pod(), claims=claim("gpu", "gpu-0"))
    assert main(["dra", "state"]) == 0
    rows = [each.split() for each in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["DRIVER", "SERVICE", "HEALTH", "CONNECTED", "ENDPOINT"]
    assert rows[1][:4] == ["gpu.example.com", "v1", "v1", "yes"]
    assert rows[-2] == ["NAMESPACE", "CLAIM", "STATE", "PODS", "DEVICES"]
    assert rows[-1] == ["default", "gpu", "prepared", "uid-train", "gpu.example.com/mock/gpu-0"]


def test_state_of_an_unreadable_file(capsys, tmp_path):
    path = tmp_path / "dra_manager_state"
    path.write_text("garbage")
    assert main(["dra", "state", str(path)]) == 1
    assert capsys.readouterr().out == "no claims are readable\n"


def test_state_without_drivers(kubelet, capsys):
    main(["dra", "state"])
    assert "gpu" not in capsys.readouterr().out


def test_ctl_admit_of_a_pending_pod_names_dra_explain(kubelet, capsys, tmp_path):
    path = tmp_path / "pod.yaml"
    path.write_text("\n---\n".join(map(json.dumps, (pod(), claim("gpu", "gpu-0")))))
    assert main(["ctl", "admit", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "  main did not start: prepare dynamic resources: DRA driver gpu.example.com is not "
        "registered",
        "  run `devicemanager dra explain default/train` to see what its claims wait for",
    ]


def test_pod_that_is_not_bound_to_the_node(kubelet, capsys):
    assert main(["dra", "explain", "train"]) != 0
    error = capsys.readouterr().err
    assert "unknown pod 'train'" in error
    assert "use --kubeconfig FILE" in error
