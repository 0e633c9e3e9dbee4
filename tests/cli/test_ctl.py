"""``devicemanager ctl`` with a kubelet in this process."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml

from devicemanager import ManualClock
from devicemanager.cli import main
from devicemanager.control import ControlServer
from devicemanager.control.remote import RemoteEvents
from devicemanager.testing import pod_manifest
from tests.paths import ROOT

GPU = "vendor.com/gpu"
STAGES = ROOT / "examples/3-stages.yaml"


@pytest.fixture
def mock_kubelet(make_mock_kubelet):
    return make_mock_kubelet(clock=ManualClock(1000.0))


@pytest.fixture
def server(mock_kubelet, monkeypatch):
    with ControlServer(mock_kubelet, tcp="127.0.0.1:0") as server:
        monkeypatch.setenv("DEVICEMANAGER_CONTROL", str(mock_kubelet.root))
        yield server


@pytest.fixture
def ctl(server, capsys):
    def run(*words, status=0):
        capsys.readouterr()
        assert main(["ctl", *words]) == status, capsys.readouterr()
        said = capsys.readouterr()
        return said.err if status else said.out

    return run


@pytest.fixture
def manifest(tmp_path):
    def write(name, gpus=1):
        path = tmp_path / f"{name}.json"
        content = pod_manifest(name, {GPU: gpus}, uid=f"uid-{name}")
        content["spec"]["restartPolicy"] = "Never"
        path.write_text(json.dumps(content))
        return str(path)

    return write


def test_invalid_manifest_error_names_the_file(ctl, manifest):
    bad = manifest("b_d")
    assert ctl("admit", manifest("a"), bad, status=2).startswith(
        f"devicemanager: error: {bad}: metadata.name: Invalid value"
    )


def test_running_column_counts_sidecars(ctl, simulated_plugin):
    simulated_plugin(GPU, 4)
    assert "pod default/stages admitted" in ctl("admit", str(STAGES))
    listed = "default    stages  {}/2      Running  -"
    assert ctl("pods").splitlines()[1] == listed.format(2)
    for _ in "restarted at once", "restarted later":
        ctl("exit-container", "stages", "main")
    assert ctl("pods").splitlines()[1] == listed.format(1)


def test_pod_actions(ctl, manifest, simulated_plugin, capsys):
    simulated_plugin(GPU, 4)
    assert ctl("admit", manifest("a"), manifest("b")) == (
        f"pod default/a admitted (uid-a)\n  main: {GPU} gpu-mock-0\n"
        f"pod default/b admitted (uid-b)\n  main: {GPU} gpu-mock-1\n"
    )
    assert main(["ctl", "admit", manifest("c", 9)]) == 1
    assert "pod default/c rejected: UnexpectedAdmissionError" in capsys.readouterr().out
    assert ctl("pods").splitlines() == [
        "NAMESPACE  NAME  RUNNING  STATUS   REASON",
        "default    a     1/1      Running  -",
        "default    b     1/1      Running  -",
        "default    c     0/1      Failed   UnexpectedAdmissionError",
    ]
    assert ctl("pods", "-o", "name", "uid-b", "a") == "default/b\ndefault/a\n"
    assert "gpu-mock-0  -            uid-a" in ctl("pods", "a", "-o", "wide")
    shown = yaml.safe_load(ctl("pods", "default/a", "-o", "yaml"))
    assert shown["schema"] == "devicemanager.pod-list/v1"
    assert shown == json.loads(ctl("pods", "a", "-o", "json"))
    assert ctl("devices", "--resource", GPU).splitlines()[1].split() == [
        *(GPU, "gpu-mock-0", "Healthy", "-", "default/a", "main")
    ]
    assert ctl("resources").splitlines()[1].split() == [GPU, "4", "4"]
    assert ctl("plugins").splitlines()[1].split() == [GPU, "gpu.sock", "yes", "4", "4"]
    settings = yaml.safe_load(ctl("restart-container", "a", "main"))
    assert settings == yaml.safe_load(ctl("start-container", "a", "main"))
    assert ctl("finish", "a", "--exit-code", "main=3") == "pod default/a Failed\n"
    assert ctl("finish", "b") == "pod default/b Succeeded\n"
    assert ctl("wait", "pod", "b", "--phase", "Succeeded") == ""
    assert ctl("delete", "a", "uid-b").splitlines() == [f"pod default/{x} deleted" for x in "ab"]
    assert ctl("wait", "pod", "a", "--phase", "Deleted") == ""


def test_wait_for_a_phase_that_cannot_come_ends_at_once(ctl, manifest, simulated_plugin):
    simulated_plugin(GPU, 4)
    ctl("admit", manifest("a"), manifest("b"))
    ctl("finish", "a", "--exit-code", "main=3")
    # Without a deadline: the wait must not need one.
    hour = ("--timeout", "1h")
    said = ctl("wait", "pod", "a", "--phase", "Running", *hour, status=1)
    assert said == "pod a is Failed: it cannot become Running any more\n"
    assert ctl("wait", "pod", "a", "--phase", "Failed", *hour) == ""
    # The pod ends while the command waits.
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(main, ["ctl", "wait", "pod", "b", "--phase", "Succeeded", *hour])
        main(["ctl", "delete", "b"])
        assert waiting.result(20) in (1, 2)  # 2 if it was deleted before the wait began


def test_exit_container_and_grace_period(ctl, manifest, mock_kubelet, simulated_plugin):
    simulated_plugin(GPU, 4)
    ctl("admit", manifest("a"), manifest("b"))
    status = yaml.safe_load(ctl("exit-container", "a", "main", "--exit-code", "2"))
    assert status["state"]["terminated"]["reason"] == "Error"
    said = ctl("exit-container", "b", "main", "--reason", "Rain", "-o", "json")
    assert json.loads(said)["state"]["terminated"]["reason"] == "Rain"
    assert yaml.safe_load(ctl("container-statuses", "a"))["items"] == [status]
    assert "is terminated: expected a running container" in ctl(
        "exit-container", "a", "main", status=2
    )
    ctl("admit", manifest("c"))
    assert ctl("delete", "c", "--grace-period", "1m") == "pod default/c is being deleted\n"
    assert ctl("wait", "event", "deleting", "--after", "0").endswith("1m0s to end\n")
    assert "uid-c" in mock_kubelet.pods()
    ctl("clock", "advance", "1m")
    assert ctl("wait", "pod", "c", "--phase", "Deleted") == ""


def test_node_actions(ctl, mock_kubelet, simulated_plugin, tmp_path):
    simulated_plugin(GPU, 2)
    assert yaml.safe_load(ctl("node"))["root"] == str(mock_kubelet.root)
    assert "RegisteredDevices" in json.loads(ctl("checkpoint", "-o", "json"))["Data"]
    assert ctl("sources-ready") == "the kubelet knows all pods\n"
    assert ctl("restart") == "kubelet restarted\n"
    assert ctl("reboot") == "node rebooted\n"
    assert ctl("stop") == "kubelet stopped\n"
    assert ctl("resources", status=2).startswith("devicemanager: error: the kubelet is not running")
    assert ctl("start") == "kubelet started\n"
    assert ctl("clock", "advance", "1h1m1.5s") == "clock advanced by 3661.5 s\n"
    assert json.loads(ctl("clock", "show", "-o", "json"))["time"] == 4661.5
    pools = tmp_path / "pools.yaml"
    pools.write_text("kind: x\n")
    assert "apiVersion" in ctl("apply", str(pools), status=2)


def test_events_and_calls(ctl, manifest, simulated_plugin):
    simulated_plugin(GPU, 2)
    ctl("admit", manifest("a"))
    events = [json.loads(line) for line in ctl("events", "-o", "json").splitlines()]
    assert [each["number"] for each in events] == list(range(1, len(events) + 1))
    assert f"registered: {GPU}: plugin gpu.sock registered" in ctl("events", "--kind", "registered")
    assert ctl("events", "--since", str(len(events))) == ""
    assert "Allocate vendor.com/gpu (gpu.sock) gpu-mock-0: OK" in ctl("calls", "--rpc", "Allocate")
    (allocate,) = ctl("calls", "--rpc", "Allocate", "-o", "json").splitlines()
    assert json.loads(allocate)["request"]["container_requests"]
    assert f"ListAndWatch {GPU} (gpu.sock): 1 messages" in ctl("calls", "--pending")
    for words in (
        ["--since", "1"],
        ["-f"],
        ["--resource", GPU],
        ["--rpc", "Allocate"],
        ["--plugin", "x"],
        ["--code", "OK"],
        ["--device-id", "x"],
    ):
        said = ctl("calls", "--pending", *words, status=2)
        assert said.startswith("devicemanager: error: --pending lists all calls without a response")
        assert len(said.splitlines()) == 1
    said = ctl("wait", "call", "Allocate", "--resource", GPU, "--code", "OK", "--after", "0")
    assert "Allocate vendor.com/gpu (gpu.sock) gpu-mock-0: OK" in said
    assert json.loads(ctl("wait", "call", "--after", "0", "-o", "json"))["number"] == 1
    assert main(["ctl", "wait", "call", "Allocate", "--timeout", "0"]) == 1  # later than now
    assert "admitted: pod default/a" in ctl("wait", "event", "admitted", "--after", "0")


def test_failed_waits_exit_with_1(ctl):
    said = ctl("wait", "resource", GPU, "--count", "2", "--timeout", "0.01s", status=1)
    assert said.startswith(f"waited 0.01 s for 2 allocatable devices of {GPU}; no plugin has")
    assert "\n  started: kubelet serves" in said
    said = ctl("wait", "event", "registered", "--timeout", "0.01", status=1)
    assert said.startswith("waited 0.01 s for the event registered")


def test_wait_for_an_unknown_pod_ends_at_once(ctl):
    words = ["wait", "pod", "x", "--timeout", "60"]
    assert "unknown pod 'x'" in ctl(*words, "--phase", "Running", status=2)
    assert ctl(*words, "--phase", "Deleted") == ""


def test_client_waits_longer_than_the_kubelet(ctl, monkeypatch):
    asked = []

    def ask(client, name, *path, timeout=0.0, **_):
        asked.append(timeout)

    monkeypatch.setattr("devicemanager.control.client.MockKubeletClient.ask", ask)
    ctl("wait", "resource", GPU, "--timeout", "40")
    ctl("wait", "resource", GPU, "--timeout", "5")
    # The time for a wait comes on top of that for other calls.
    assert asked[0] - asked[1] == 35


def test_fault_actions(ctl):
    assert ctl("fault", "set", "reject-register:times=2", "hang-register") == (
        "fault 1 set: reject-register:times=2\nfault 2 set: hang-register\n"
    )
    assert ctl("fault", "list").splitlines()[1].split() == [
        *("1", "reject-register:times=2", "0", "0", "no")
    ]
    assert ctl("fault", "clear", "1", "hang-register") == "2 faults cleared\n"
    assert ctl("fault", "set", "restart") == "fault 3 executed: restart\n"
    assert "unknown fault 'x'" in ctl("fault", "set", "hang-register", "x", status=2)
    assert ctl("fault", "clear") == "0 faults cleared\n"


class Output(io.StringIO):
    """Standard output that one thread writes and another reads. capsys drops what is written
    while it is read."""

    def wait_for(self, found, thread):
        """Wait until ``found`` returns True for the text."""
        while not found(self.getvalue()):
            assert thread.is_alive(), self.getvalue()
            thread.join(0.01)


@pytest.mark.parametrize("form", ["table", "json", "name"])
def test_watch_prints_changes_until_the_server_stops(form, mock_kubelet, server):
    mock_kubelet.admit(pod_manifest("a", {}, uid="a"))
    status = []
    watch = threading.Thread(target=lambda: status.append(main(["ctl", "pods", "-w", "-o", form])))
    with contextlib.redirect_stdout(Output()) as output:
        watch.start()
        output.wait_for(lambda said: "a" in said, watch)
        mock_kubelet.admit(pod_manifest("b", {}, uid="b"))
        mock_kubelet.terminate("a")
        output.wait_for(lambda said: "gone" in said or "deleted" in said, watch)
        server.stop()
        watch.join()
    assert status == [0]
    lines = output.getvalue().splitlines()
    assert {"table": "default", "json": '{"schema"', "name": "default/b"}[form] in lines[-2]
    assert lines[-1] == ('{"deleted": "default/a"}' if form == "json" else "default/a is gone")


def test_watch_ends_if_the_server_stops_after_an_event(mock_kubelet, server, capsys, monkeypatch):
    """There is no server any more that could be asked what the event has changed."""

    def follow(events, since):
        server.stop()
        yield "an event"

    monkeypatch.setattr(RemoteEvents, "follow", follow)
    assert main(["ctl", "pods", "-w"]) == 0
    assert capsys.readouterr().err == ""


def test_follow_prints_new_events(mock_kubelet, server):
    ended = []
    follow = threading.Thread(target=lambda: ended.append(main(["ctl", "events", "-f"])))
    with contextlib.redirect_stdout(Output()) as output:
        follow.start()
        output.wait_for(lambda said: "started" in said, follow)
        mock_kubelet.restart()
        output.wait_for(lambda said: said.count("started") == 2, follow)
        server.stop()
        follow.join()
    assert ended == [0]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["pods", "x"], "unknown pod 'x': `devicemanager ctl pods` lists all"),
        (["finish", "a", "--exit-code", "x"], "invalid --exit-code x: expected a number"),
        (["finish", "a", "--exit-code", "1", "--exit-code", "2"], "is for all containers"),
        (["admit", "-", "-"], "standard input (-) is used for more than one file"),
        (["admit", "/missing"], "/missing: No such file or directory"),
        (["pods", "--control", "http://x/y"], "--control: invalid address 'http://x/y'"),
        (["pods", "--control", "/nowhere"], "cannot connect to the control API at /nowhere"),
        (["pods", "--token-file", "/missing"], "/missing: No such file or directory"),
        (["clock", "advance", "5x"], "invalid duration '5x': use 90, 90s, 5m or 1h30m"),
        (["delete"], "the following arguments are required: POD"),
        (["admit", "{empty}"], "{empty}: the file is empty"),
        (["admit", "{binary}"], "{binary}: not UTF-8 text (byte 1)"),
        (["admit", ""], "invalid value '': expected a file"),
        (["apply", "{empty}"], "{empty}: the file is empty"),
        (["apply", "{text}"], "{text}: must be a mapping with apiVersion and kind, not the text"),
        (["pods", "--token-file", "{binary}"], "--token-file: {binary} is not UTF-8 text"),
        (
            ["pods", "--control", "{kubelet_socket}"],
            "{kubelet_socket} does not serve the control API",
        ),
        (
            ["wait", "resource", GPU, "--count", "-1"],
            "--count: invalid value '-1': expected a whole number of at least 0",
        ),
        (
            ["wait", "event", "--after", "x"],
            "--after: invalid value 'x': expected a whole number of at least 0",
        ),
        (
            ["events", "--since", "x"],
            "--since: invalid value 'x': expected a whole number of at least 0",
        ),
        (
            ["exit-container", "a", "main", "--exit-code", "x"],
            "invalid value 'x': expected a whole number",
        ),
    ],
)
def test_user_errors(ctl, mock_kubelet, tmp_path, words, text):
    mock_kubelet.admit(pod_manifest("a", {}, uid="a"))
    places = {"kubelet_socket": mock_kubelet.plugin_dir / "kubelet.sock"}
    for name, content in (("empty", b"\n"), ("binary", b"a\xff"), ("text", b"hello")):
        places[name] = tmp_path / name
        places[name].write_bytes(content)
    said = ctl(*(word.format(**places) for word in words), status=2)
    assert text.format(**places) in said


def test_control_flag_works_before_the_action(ctl, mock_kubelet, monkeypatch):
    monkeypatch.delenv("DEVICEMANAGER_CONTROL")
    root = str(mock_kubelet.root)
    assert yaml.safe_load(ctl("--control", root, "node"))["root"] == root
    assert yaml.safe_load(ctl("--control", "/nowhere", "node", "--control", root))["root"] == root
    assert ctl("--control", root, "fault", "list") == ctl("fault", "list", "--control", root)


def test_ambiguous_pod_name_is_an_error(ctl, mock_kubelet):
    for uid in "ab":
        mock_kubelet.admit(pod_manifest("same", {}, uid=uid))
    assert (
        "several pods are named 'same': use the UID of one of default/same (a), default/same (b)"
        in ctl("delete", "same", status=2)
    )
    ctl("delete", "b")


def test_tcp_with_token(ctl, server):
    where = f"http://{server.address}"
    assert "the token is in the file control.token" in ctl("node", "--control", where, status=2)
    assert ctl("node", "--control", where, "--token-file", str(server.token_path))


def test_missing_address_is_an_error(monkeypatch, capsys):
    monkeypatch.delenv("DEVICEMANAGER_CONTROL", raising=False)
    assert main(["ctl", "pods"]) == 2
    assert "no kubelet selected: use --control DIR" in capsys.readouterr().err


def test_missing_extra_is_reported(monkeypatch, capsys):
    for name in ("ctl_kubelet", "ctl_action"):
        monkeypatch.delitem(sys.modules, f"devicemanager.cli.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "msgspec", None)
    for words in (["ctl", "pods"], ["ctl", "--help"]):
        assert main(words) == 2
        assert "pip install 'kubelet-devicemanager[control]'" in capsys.readouterr().err
    assert main(["completion", "bash"]) == 0
    assert "checkpoint" in capsys.readouterr().out


@pytest.mark.parametrize("action", ["wait call", "wait event", "calls"])
def test_every_simple_field_is_an_option(ctl, capsys, action):
    """A parameter of an operation is an option without a line of code."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        assert main(["ctl", *action.split(), "--help"]) == 0
    fields = {"wait call": "plugin device-id", "wait event": "pod text", "calls": "plugin"}
    assert all(f"--{name} " in output.getvalue() for name in fields[action].split())


@pytest.mark.parametrize("module", ["control.client", "cli.ctl_nodes"])
def test_client_loads_no_kubelet(module):
    code = (
        f"import devicemanager.{module}, sys;"
        "print(sorted({'grpc', 'google.protobuf', 'starlette', 'uvicorn', 'yaml', 'rich',"
        "'kubernetes', 'devicemanager.kubelet.mock'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
