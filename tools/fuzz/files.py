"""Fuzz targets that read files, from checkpoints to snapshots and claims."""

from __future__ import annotations

import contextlib
import gzip
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tools.fuzz.model import Run, one_line, rejecting, scratch, target

if TYPE_CHECKING:
    from devicemanager.kubelet.runtime.oci import HostNode

_YAML: Final = ("- ", ": ", "&a ", "*a", "<<: ", "!!", "---\n", "{", "}", "[", "]", "null", "|\n")


@target(
    "checkpoint",
    "kubelet_internal_checkpoint, from any kubelet",
    "a damaged checkpoint stops the start, or its repair changes intact entries",
    "checkpoint devicemanager.kubelet.manager devicemanager.core",
    words='"Data" "PodDeviceEntries" "RegisteredDevices" "DeviceIDs" "AllocResp"',
    planted="checkpoints are any JSON",
)
def _checkpoint() -> Run:
    import checkpoint
    from devicemanager import Settings
    from devicemanager.core.errors import DeviceManagerError
    from devicemanager.kubelet.manager.manager import DeviceManager

    def run(data: bytes) -> None:
        found, repaired = checkpoint.inspect(data), checkpoint.repair(data)
        for line in (*found.problems, *found.lost, *repaired.dropped):
            one_line(line)
        assert checkpoint.loads(repaired.data) == repaired.checkpoint, "repair differs"
        # Almost no mutated input has a correct checksum, so the checksum is not verified.
        try:
            saved = checkpoint.loads(data, verify=False)
        except checkpoint.CheckpointError as error:
            return one_line(str(error))
        assert checkpoint.loads(checkpoint.dumps(saved)) == saved, "different when read again"
        for finding in checkpoint.inconsistencies(saved):
            one_line(str(finding))
        manager = DeviceManager(Settings())
        with contextlib.suppress(DeviceManagerError), contextlib.closing(manager):
            manager.restore(saved)
            manager.capacity()

    return run


@target(
    "dra-state",
    "dra_manager_state, from any kubelet",
    "a damaged state file hides claims, or its repair changes intact ones",
    "checkpoint.dra checkpoint.decode checkpoint.parse",
    words='"Data" "Checksum" "ClaimInfoStateList" "ClaimUID" "PodUIDs" "DriverState" "Devices"',
    planted="checkpoints are any JSON",
)
def _dra_state() -> Run:
    import checkpoint
    from checkpoint import dra

    def run(data: bytes) -> None:
        found, repaired = dra.inspect(data), dra.repair(data)
        for line in (*found.problems, *found.lost, *repaired.dropped):
            one_line(line)
        assert dra.loads(repaired.data) == repaired.state, "repair differs"
        assert bool(found.problems) is (dra.kubelet_error(data) is not None), "other verdict"
        dra.is_state_file(data)
        # Almost no mutated input has a correct checksum, so the checksum is not verified.
        try:
            saved = dra.loads(data, verify=False)
        except checkpoint.CheckpointError as error:
            return one_line(str(error))
        assert dra.loads(dra.dumps(saved)) == saved, "different when read again"
        for finding in dra.inconsistencies(saved.claims):
            one_line(finding.text)

    return run


@target(
    "dra-health-state",
    "dra_health_state, from any kubelet",
    "a health file stops the start, or cannot be written again",
    "devicemanager.kubelet.dra.health",
    words='"Devices" "PoolName" "DeviceName" "Health" "Healthy" "LastUpdated" "Message"',
    planted="an invalid health file is an error",
)
def _dra_health_state() -> Run:
    from devicemanager.io.clock import ManualClock
    from devicemanager.kubelet.dra.health import HEALTH_STATE_NAME, HealthFile

    directory = scratch()
    file = HealthFile(directory, ManualClock(1000.0))

    def run(data: bytes) -> None:
        (directory / HEALTH_STATE_NAME).write_bytes(data)
        found = file.load()
        file.write(lambda: found)
        assert file.load().keys() == found.keys(), "different when read again"

    return run


@target(
    "manifest",
    "a pod manifest, from a user",
    "a manifest stops the reader of all manifests",
    "devicemanager.objects.manifests",
    words=(*_YAML, "limits", "requests", "initContainers", "restartPolicy", "example.com/d"),
    planted="values are quoted as they are",
)
def _manifest() -> Run:
    from devicemanager.objects.manifests import ManifestError, parse

    def run(data: bytes) -> None:
        with rejecting(ManifestError):
            parse(data.decode(errors="replace") + "\n")

    return run


@target(
    "cdi",
    "a CDI specification, from any program; and OCI rendering of it",
    "a CDI file stops the reader of all CDI files",
    "devicemanager.kubelet.runtime devicemanager.core.api",
    words=(*_YAML, "cdiVersion", "containerEdits", "deviceNodes", "mounts", "hooks", "env"),
    planted="a bad CDI file is an error",
)
def _cdi() -> Run:
    from devicemanager.core.runoptions import RunOptions
    from devicemanager.kubelet.runtime import cdi
    from devicemanager.kubelet.runtime.oci import HostNode, OciError, render

    directory = scratch()

    def nodes(path: str) -> Mapping[str, HostNode]:
        return {"": HostNode("c", 1, 3)}

    def run(data: bytes) -> None:
        # The suffix selects the parser. Only one file may exist, so that one input is measured.
        (directory / "bad.json").unlink(missing_ok=True)
        (directory / "bad.yaml").unlink(missing_ok=True)
        path = directory / ("bad.json" if data[:1] == b"{" else "bad.yaml")
        path.write_bytes(data)
        registry = cdi.load([directory])
        for text in registry.errors:
            one_line(text)
        with rejecting(OciError, cdi.CdiError):
            render(RunOptions(cdi_devices=tuple(registry.devices)[:50]), registry, nodes)

    return run


@target(
    "numa",
    "a description of NUMA nodes, from a user; or sysfs",
    "a description of NUMA nodes stops the start without a cause",
    "devicemanager.kubelet.host",
    words=(*_YAML, "nodes", "distances", "cpus", "memory", "MemTotal:", " kB", "0-3"),
    planted="texts of a file break lines",
)
def _numa() -> Run:
    from devicemanager.core.errors import RequestError
    from devicemanager.kubelet.host.numa import NumaMachine, from_file, from_host

    root = scratch()
    nodes = root / "sys/devices/system/node"
    (nodes / "node0").mkdir(parents=True)
    names = ("online", "node0/distance", "node0/cpulist", "node0/meminfo")

    def described(data: bytes) -> NumaMachine:
        if data[:1] != b"\0":
            (root / "numa.yaml").write_bytes(data)
            return from_file(root / "numa.yaml")
        for name, text in zip(names, (data[1:] + b"\0" * 4).split(b"\0"), strict=False):
            (nodes / name).write_bytes(text)
        return from_host(root)

    def run(data: bytes) -> None:
        try:
            machine = described(data)
        except RequestError as error:
            return one_line(str(error))
        machine.cpu_provider()
        machine.memory_provider()

    return run


@target(
    "control",
    "the control file of a simulated plugin",
    "a control file stops the plugin, or sets an unknown health",
    "devicemanager.plugin.simulated",
    words="Healthy Unhealthy gone #",
    planted="any state of a device is accepted",
)
def _control() -> Run:
    import logging

    from devicemanager.plugin.simulated.control import parse_control

    # Disable warnings: each invalid line causes one, and millions would slow down the fuzzer.
    logging.getLogger("devicemanager").setLevel(logging.CRITICAL)

    def run(data: bytes) -> None:
        words = parse_control(data.decode(errors="replace"), "control")
        assert set(words.values()) <= {"Healthy", "Unhealthy", "gone"}, words

    return run


@target(
    "recording",
    "a recording of `devicemanager record`, from any machine; and its responses",
    "a recording stops the replay without a cause",
    "devicemanager.plugin.recording",
    words=('"rpc": "', '"stream": ', '"code": "', '"redacted": [', "Register", "ListAndWatch"),
    planted="recorded values have any type",
)
def _recording() -> Run:
    from devicemanager.plugin.recording import Recording
    from devicemanager.plugin.recording.errors import RecordingError
    from devicemanager.plugin.recording.responses import RecordedResponses

    path = scratch() / "recording"

    def run(data: bytes) -> None:
        path.write_bytes(data)
        try:
            recording = Recording.load(path)
        except RecordingError as error:
            return one_line(str(error))
        for resource in recording.resources:
            for registration in recording.registrations(resource):
                answers = RecordedResponses(registration.calls)
                for call in registration.calls:
                    assert answers.take(call.rpc, call.request_bytes) is not None
                    one_line(str(answers.miss(call.rpc, b"")))

    return run


@target(
    "snapshot-archive",
    "a snapshot archive before compression, from any user",
    "an archive fills the memory, or stops the command without a cause",
    "devicemanager.snapshot",
    words='snapshot/ snapshot.json ustar numa.json "schema" "parts"',
    planted="archives are trusted",
)
def _archive() -> Run:
    from devicemanager.snapshot import SnapshotError, read_snapshot

    def run(data: bytes) -> None:
        with rejecting(SnapshotError):
            # The input is not compressed: mutated compressed data would only test gzip.
            read_snapshot(gzip.compress(data, 1))

    return run


@target(
    "snapshot-part",
    "a file in a snapshot: its name, a newline, its content",
    "a file of a snapshot stops the report, or leads to a false finding",
    "devicemanager.snapshot devicemanager.kubelet.host checkpoint",
    words=(
        "pod-resources.json\n",
        "sockets.json\n",
        "cpu_manager_state\n",
        "memory_manager_state\n",
        "kubelet_internal_checkpoint\n",
        '"pod_resources"',
        '"policyName"',
        '"entries"',
        '{"PodUID":',
    ),
    planted="texts are not cut",
)
def _part() -> Run:
    from devicemanager.snapshot import SnapshotError, archive, layout, read_snapshot, report
    from devicemanager.snapshot.node import Node
    from devicemanager.snapshot.packing import pack
    from devicemanager.snapshot.rules import findings
    from tools.damage.verification import false_findings

    index = {"schema": layout.SCHEMA, "taken": "2026-01-31T12:00:00Z", "tool": "0"}
    head = json.dumps(index | {"node": "n", "root": "/r"}).encode()
    names = {name.encode(): name for name in layout.FILES[1:]}

    def run(data: bytes) -> None:
        name, _, content = data.partition(b"\n")
        if name not in names:
            return None
        try:
            snapshot = read_snapshot(pack({layout.INDEX: head, names[name]: content}, 0))
        except SnapshotError as error:
            return one_line(str(error))
        node = Node(snapshot)
        found = findings(node)
        for line in report.lines(node, found):
            one_line(line)
        verifiable = [each for each in found if not _is_state(each.kind)]
        assert not list(false_findings(snapshot, verifiable))
        assert read_snapshot(archive(snapshot)) == snapshot, "different when read again"

    return run


def _is_state(kind: str) -> bool:
    # The verification has no second implementation of the checks of state files.
    return kind in ("cpu-state", "memory-state")


@target(
    "kubectl-pods",
    "output of kubectl get pods -o json, from any cluster",
    "pods of a cluster stop the report",
    "devicemanager.snapshot",
    words='"items" "metadata" "uid" "name" "annotations" kubernetes.io/config.hash',
    planted="metadata of pods has any type",
)
def _kubectl() -> Run:
    from devicemanager.snapshot import SnapshotError
    from devicemanager.snapshot.names import from_kubectl

    def run(data: bytes) -> None:
        with rejecting(SnapshotError):
            from_kubectl(data, "pods.json")

    return run


@target(
    "claim-object",
    "a pool, class or claim, from any user",
    "an object stops the reader of all objects",
    "devicemanager.claims devicemanager.objects.manifests",
    words="DevicePool DeviceClass ResourceClaim spec devices attributes",
    planted="values are quoted as they are",
)
def _object() -> Run:
    from devicemanager.claims.errors import InvalidObject
    from devicemanager.claims.v1alpha1.reading import read_object
    from devicemanager.objects.manifests import ManifestError
    from devicemanager.objects.manifests.documents import load_documents

    def run(data: bytes) -> None:
        try:
            documents = load_documents(data.decode(errors="replace"))
        except ManifestError:
            return  # the target `manifest` covers this
        for document in documents[:5]:
            try:
                read_object(document)
            except InvalidObject as error:
                for line in error.lines:
                    one_line(line)

    return run


@target(
    "claim-constraint",
    "a constraint of a class or claim, from any user",
    "a constraint occupies the kubelet",
    "devicemanager.claims",
    words="device driver == && || in has( .matches( quantity( semver( ?:",
    planted="constraints have no bound",
)
def _constraint() -> Run:
    from devicemanager.claims import cel
    from devicemanager.claims.errors import CompileError, EvaluationError

    def run(data: bytes) -> None:
        with rejecting(CompileError, EvaluationError):
            expression = cel.compile_v1alpha1(data.decode(errors="replace"))
            if expression is not None:
                expression.matches({})

    return run


@target(
    "claim-state",
    "device_claims_state, from any kubelet",
    "a damaged state file stops the start",
    "devicemanager.claims",
    words='"charges" "claims" "grants" "users" "prepared" "nanos" "shared"',
    planted="claims of a state file are trusted",
)
def _state() -> Run:
    from devicemanager.claims.core.ledger import Ledger, LedgerError
    from devicemanager.claims.state_file import (
        StateCorrupt,
        StateWriter,
        parse_state,
        with_checksum,
    )

    def run(data: bytes) -> None:
        # Add a correct checksum: no mutated input would have one.
        try:
            state = parse_state(with_checksum(data))
            Ledger.restore(state.ledger())
        except (StateCorrupt, LedgerError) as error:
            one_line(str(error))
        else:
            assert parse_state(StateWriter().render(state)) == state

    return run
