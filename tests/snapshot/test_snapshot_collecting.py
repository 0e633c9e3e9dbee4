"""Collecting a snapshot: parts that are readable, missing, or not readable."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import socket
from pathlib import Path

import pytest

from checkpoint import CHECKPOINT_NAME
from devicemanager.snapshot import Places, SnapshotError, archive, collect, layout, read_snapshot
from devicemanager.snapshot.collecting import _host_name as host_name
from devicemanager.snapshot.kubeletconfig import alignment
from devicemanager.snapshot.listeners import listener_of
from devicemanager.snapshot.model import KubeletConfig, Listening, LoggedPod, Snapshot, SocketSeen
from devicemanager.snapshot.packing import unpack
from podresources import MemorySource, PodResourcesServer
from tests.snapshot.made_up import WHOLE, cpu_state

CONFIG = """\
kind: KubeletConfiguration
authentication: {webhook: {cacheTTL: 0s}}
staticPodURLHeader: {secret: [very]}
topologyManagerPolicy: best-effort
cpuManagerPolicy: static
reservedSystemCPUs: 0
topologyManagerPolicyOptions: {prefer-closest-numa-nodes: true}
"""


@pytest.fixture
def host(directory: Path) -> Path:
    """Root of a machine's file system, with an empty plugin directory."""
    (directory / "var/lib/kubelet/device-plugins").mkdir(parents=True)
    return directory


def put(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def listening(path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    return server


@pytest.fixture
def root(host: Path) -> Path:
    """Kubelet directory on a machine without problems."""
    root = host / "var/lib/kubelet"
    put(root / "device-plugins" / CHECKPOINT_NAME, WHOLE.checkpoint or b"")
    put(root / "cpu_manager_state", cpu_state())
    put(root / "memory_manager_state", b"{}")
    put(root / "dra_manager_state", b"{}")
    put(root / "dra_health_state", b"{}")
    put(root / "config.yaml", CONFIG)
    for uid in ("u-infer", "u-train"):
        (root / "pods" / uid).mkdir(parents=True)
    for name in ("ml_train_u-train", "no-pod", "a_b", "a__c"):
        (host / "var/log/pods" / name).mkdir(parents=True)
    node = host / "sys/devices/system/node"
    put(node / "online", "0\n")
    for name, text in {
        "distance": "10",
        "cpulist": "0-3",
        "meminfo": "Node 0 MemTotal:       4 kB",
    }.items():
        put(node / "node0" / name, text)
    put(host / "etc/hostname", "worker-1\n")
    return root


def unpacked(snapshot: Snapshot) -> bytes:
    return b"".join(unpack(archive(snapshot), "s").values())


def problems(host: Path) -> dict[str, str]:
    snapshot = collect(Places.find(host))
    return {part.name: part.problem for part in snapshot.parts if part.problem is not None}


def test_all_parts_of_a_node_are_collected(host: Path, root: Path) -> None:
    plugins = root / "device-plugins"
    source = MemorySource(WHOLE.pods or (), WHOLE.allocatable)
    with (
        PodResourcesServer(source, root / "pod-resources/kubelet.sock"),
        listening(plugins / "gpu.sock"),
    ):
        listening(plugins / "old.sock").close()
        (root / "plugins_registry").mkdir()
        listening(root / "plugins_registry/csi.sock").close()
        snapshot = collect(Places.find(host), now=lambda: 1769860800.0)
    assert {part.name: part.problem for part in snapshot.parts} == dict.fromkeys(
        set(layout.FILES) - {layout.INDEX}
    )
    assert (snapshot.taken, snapshot.node) == ("2026-01-31T12:00:00Z", "worker-1")
    assert (snapshot.pods, snapshot.allocatable) == (WHOLE.pods, WHOLE.allocatable)
    assert (snapshot.checkpoint, snapshot.cpu_state) == (WHOLE.checkpoint, cpu_state())
    assert (snapshot.dra_state, snapshot.dra_health) == (b"{}", b"{}")
    assert [(each.path, each.state, each.pid) for each in snapshot.sockets or ()] == [
        (f"{plugins}/gpu.sock", Listening.LISTENING, os.getpid()),
        (f"{plugins}/old.sock", Listening.DEAD, None),
        (f"{root}/plugins_registry/csi.sock", Listening.DEAD, None),
        (f"{root}/pod-resources/kubelet.sock", Listening.LISTENING, os.getpid()),
    ]
    assert list(Listening) == ["listening", "dead", "unknown"]
    assert (snapshot.sockets or ())[0].process == Path("/proc/self/comm").read_text().strip()
    assert snapshot.numa is not None
    assert snapshot.numa.cpus == {0: (0, 1, 2, 3)}
    assert snapshot.directories is not None
    assert snapshot.directories.uids == ("u-infer", "u-train")
    assert snapshot.directories.logged == (LoggedPod("ml", "train", "u-train"),)
    assert read_snapshot(archive(snapshot)) == snapshot


def test_only_relevant_fields_of_the_configuration_are_collected(host: Path, root: Path) -> None:
    snapshot = collect(Places.find(host))
    assert snapshot.config == KubeletConfig(
        str(root / "config.yaml"),
        {
            "topologyManagerPolicy": "best-effort",
            "topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": True},
            "cpuManagerPolicy": "static",
            "reservedSystemCPUs": 0,
        },
    )
    aligned = alignment(snapshot.config)
    assert (aligned.policy, aligned.scope, aligned.cpu_policy) == (
        "best-effort",
        "container",
        "static",
    )
    assert aligned.options == {"prefer-closest-numa-nodes": "true"}
    assert aligned.reserved_cpus == "0"
    assert b"secret" not in unpacked(snapshot)


def test_flags_of_the_running_kubelet_give_its_paths(host: Path, root: Path) -> None:
    root.rename(host / "data")
    (host / "var/lib/kubelet/device-plugins").mkdir(parents=True)
    (host / "data/device-plugins" / CHECKPOINT_NAME).rename(
        host / "var/lib/kubelet/device-plugins" / CHECKPOINT_NAME
    )
    put(host / "proc/9/comm", "sh\n")
    put(host / "proc/x/comm", "kubelet\n")
    put(host / "proc/x/cmdline", "kubelet\0--root-dir=/no-process\0")
    put(host / "proc/12/comm", "kubelet\n")
    words = ["/usr/bin/kubelet", "--root-dir=/data", "--topology-manager-policy", "restricted"]
    words += ["--config", "/etc/kubelet.yaml", "--config-dir=/etc/kubelet.d", "--token=secret"]
    put(host / "proc/12/cmdline", "\0".join(words) + "\0")
    put(host / "etc/kubelet.yaml", CONFIG)
    put(host / "etc/kubelet.d/10.conf", "cpuManagerPolicy: none\ntopologyManagerScope: pod")
    snapshot = collect(Places.find(host))
    assert snapshot.root == str(host / "data")
    assert snapshot.checkpoint == WHOLE.checkpoint
    assert snapshot.cpu_state == cpu_state()
    assert snapshot.config is not None
    assert (snapshot.config.pid, snapshot.config.source) == (12, str(host / "etc/kubelet.yaml"))
    aligned = alignment(snapshot.config)
    assert (aligned.policy, aligned.scope, aligned.cpu_policy) == ("restricted", "pod", "none")
    assert b"secret" not in unpacked(snapshot)
    # With root=, the running kubelet is another one.
    assert collect(Places.find(host, root=host / "data")).config == KubeletConfig(
        str(host / "data/config.yaml"),
        {
            "topologyManagerPolicy": "best-effort",
            "topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": True},
            "cpuManagerPolicy": "static",
            "reservedSystemCPUs": 0,
        },
    )


def test_policy_options_are_read_from_a_flag() -> None:
    flags = {"topology-manager-policy-options": "a=true,b=2,"}
    assert alignment(KubeletConfig(None, {}, flags)).options == {"a": "true", "b": "2"}
    assert alignment(KubeletConfig(None, {"topologyManagerPolicyOptions": 7})).options == {}


def test_flags_are_used_without_a_configuration_file(host: Path) -> None:
    put(host / "proc/12/comm", "kubelet\n")
    put(host / "proc/12/cmdline", "kubelet\0--topology-manager-policy=restricted\0")
    config = collect(Places.find(host)).config
    assert config == KubeletConfig(None, {}, {"topology-manager-policy": "restricted"}, 12)
    assert alignment(config).policy == "restricted"


def test_unreadable_part_has_a_reason_and_does_not_affect_others(host: Path, root: Path) -> None:
    shutil.rmtree(root / "pods")
    (root / "cpu_manager_state").unlink()
    (root / "cpu_manager_state").mkdir()
    (root / "memory_manager_state").unlink()
    os.mkfifo(root / "memory_manager_state")
    put(root / "config.yaml", "topologyManagerPolicy: [")
    put(host / "sys/devices/system/node/node0/cpulist", "many")
    listening((root / "device-plugins") / "kubelet.sock").close()
    (root / "pod-resources").mkdir()
    listening(root / "pod-resources/kubelet.sock").close()
    found = problems(host)
    assert {name: text.partition("/")[0] for name, text in found.items()} == {
        layout.POD_RESOURCES: "no process is listening",
        layout.ALLOCATABLE: "no process is listening",
        layout.CPU_STATE: "it is a directory, not a regular file",
        layout.MEMORY_STATE: "it is a pipe, not a regular file",
        layout.CONFIG: found[layout.CONFIG],
        layout.PODS: "no such file",
        layout.NUMA: "",
    }
    assert "not YAML" in found[layout.CONFIG]
    assert "invalid `many`: expected a number or a range" in found[layout.NUMA]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_missing_permission_is_reported(host: Path, root: Path) -> None:
    (root / "device-plugins" / CHECKPOINT_NAME).chmod(0)
    assert problems(host)[layout.CHECKPOINT] == "Permission denied"


def test_part_that_fails_with_a_system_error_has_its_text(host: Path, root: Path) -> None:
    loop = root / "cpu_manager_state"
    loop.unlink()
    loop.symlink_to(loop)
    assert problems(host) == {
        layout.POD_RESOURCES: "no such file",
        layout.ALLOCATABLE: "no such file",
        layout.CPU_STATE: "Too many levels of symbolic links",
    }


@pytest.mark.parametrize(("size", "is_read"), [(1 << 20, True), ((1 << 20) + 1, False)])
def test_size_of_the_configuration_is_limited(
    host: Path, root: Path, size: int, is_read: bool
) -> None:
    put(root / "config.yaml", CONFIG + "#" * (size - len(CONFIG)))
    assert (layout.CONFIG not in problems(host)) is is_read


def test_directory_without_a_kubelet_is_an_error(directory: Path) -> None:
    with pytest.raises(SnapshotError) as raised:
        collect(Places.find(directory))
    root = directory / "var/lib/kubelet"
    assert str(raised.value) == (
        f"no files of a kubelet found in {root} and {root}/device-plugins: use --root for the "
        "kubelet's directory, or --host for the file system of the node"
    )
    with pytest.raises(SnapshotError, match=r"^no files of a kubelet found in"):
        collect(Places.find(directory, root=directory / "none"))


def test_file_names_may_contain_any_bytes(host: Path, root: Path) -> None:
    directory = os.fsencode(root / "pods")
    os.mkdir(directory + b"/u-\xff")  # noqa: PTH102  # bytes
    listening((root / "device-plugins") / "s\x1b[31m.sock").close()
    snapshot = collect(Places.find(host))
    assert snapshot.directories is not None
    assert "u-\ufffd" in (snapshot.directories.uids or ())
    assert read_snapshot(archive(snapshot)) == snapshot


def test_state_of_a_socket_with_a_long_path_is_known(host: Path) -> None:
    deep = host / ("d" * 100)
    deep.mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        descriptor = os.open(deep, os.O_PATH)
        server.bind(f"/proc/self/fd/{descriptor}/x.sock")
        os.close(descriptor)
        assert listener_of(deep / "x.sock").state is Listening.DEAD
        server.listen()
        assert listener_of(deep / "x.sock").state is Listening.LISTENING


def test_process_with_a_full_backlog_is_listening(host: Path) -> None:
    path = host / "x.sock"
    with socket.socket(socket.AF_UNIX) as server, contextlib.ExitStack() as stack:
        server.bind(str(path))
        server.listen(0)
        with pytest.raises(BlockingIOError):
            for _ in range(10):
                client = stack.enter_context(socket.socket(socket.AF_UNIX))
                client.setblocking(False)
                client.connect(str(path))
        assert listener_of(path) == SocketSeen(str(path), Listening.LISTENING, None, None)


def test_state_of_a_datagram_socket_is_unknown(host: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(host / "x.sock"))
        seen = listener_of(host / "x.sock")
    assert (seen.state, seen.problem) == (
        Listening.UNKNOWN,
        "Protocol wrong type for socket",
    )


def test_checkpoint_that_changes_during_collection_is_read_again(
    host: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from devicemanager.snapshot import collecting

    path = root / "device-plugins" / CHECKPOINT_NAME
    contents = [b"1", b"2", b"3"]

    def listed(_: Path) -> tuple[()]:
        if contents:
            path.write_bytes(contents.pop(0))
        return ()

    monkeypatch.setattr(collecting, "_listed", listed)
    snapshot = collect(Places.find(host))
    assert (snapshot.checkpoint, contents) == (b"3", [])
    assert sum(part.name == layout.CHECKPOINT for part in snapshot.parts) == 1
    # A checkpoint that does not change is read once.
    calls: list[Path] = []
    monkeypatch.setattr(collecting, "_listed", calls.append)
    assert collect(Places.find(host)).checkpoint == b"3"
    assert len(calls) == 1


@pytest.mark.parametrize(("length", "name"), [(1024, "n" * 1024), (1025, "unknown")])
def test_length_of_the_host_name_is_limited(host: Path, root: Path, length: int, name: str) -> None:
    put(host / "etc/hostname", "n" * length)
    assert collect(Places.find(host)).node == name


def test_default_host_is_this_machine(root: Path) -> None:
    assert Places.find(root=root).host == Path("/")


def test_public_names_differ_from_module_names() -> None:
    import importlib
    import pkgutil

    import devicemanager.snapshot as package

    modules = {each.name for each in pkgutil.iter_modules(package.__path__)}
    for name in modules:
        importlib.import_module(f"devicemanager.snapshot.{name}")
    assert not modules & set(package.__all__)


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b" node-1\n", "node-1"),
        (b"n\xff\n", "n\ufffd"),
        (b"x" * 1025, "unknown"),
        (None, "unknown"),
    ],
)
def test_name_of_another_machine_is_in_its_file(tmp_path, content, name):
    (tmp_path / "etc").mkdir()
    if content is not None:
        (tmp_path / "etc/hostname").write_bytes(content)
    assert host_name(tmp_path) == name
    assert host_name(Path("/")) == platform.node()
