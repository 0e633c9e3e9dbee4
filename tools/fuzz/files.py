"""Targets that read files: checkpoint, manifests, CDI, host descriptions."""

from __future__ import annotations

import atexit
import contextlib
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tools.fuzz.guard import Run
from tools.fuzz.model import Target

if TYPE_CHECKING:
    from devicemanager.kubelet.runtime.oci import HostNode

_YAML: Final = ("- ", ": ", "&a ", "*a", "<<: ", "!!", "---\n", "{", "}", "[", "]", "null", "|\n")
_LONGEST: Final = 4000
"""Characters of a text for people."""


def targets() -> list[Target]:
    """By file."""
    return [
        Target(
            "checkpoint",
            "kubelet_internal_checkpoint, of any kubelet",
            _checkpoint,
            ("checkpoint", "devicemanager.kubelet.manager", "devicemanager.core"),
            ('"Data"', '"PodDeviceEntries"', '"RegisteredDevices"', '"DeviceIDs"', '"AllocResp"'),
        ),
        Target(
            "manifest",
            "a pod's manifest, of a user",
            _manifest,
            ("devicemanager.objects.manifests",),
            (*_YAML, "limits", "requests", "initContainers", "restartPolicy", "example.com/d"),
        ),
        Target(
            "cdi",
            "a CDI specification, of any program; and what OCI rendering makes of it",
            _cdi,
            ("devicemanager.kubelet.runtime", "devicemanager.core.api"),
            (*_YAML, "cdiVersion", "containerEdits", "deviceNodes", "mounts", "hooks", "env"),
        ),
        Target(
            "numa",
            "a description of NUMA nodes, of a user; or sysfs",
            _numa,
            ("devicemanager.kubelet.host",),
            (*_YAML, "nodes", "distances", "cpus", "memory", "MemTotal:", " kB", "0-3"),
        ),
        Target(
            "control",
            "the control file of a simulated plugin",
            _control,
            ("devicemanager.plugin.simulated",),
            ("Healthy", "Unhealthy", "gone", "#"),
        ),
        Target(
            "recording",
            "what `devicemanager record` wrote, on any machine; and the answers it holds",
            _recording,
            ("devicemanager.plugin.recording",),
            ('"rpc": "', '"stream": ', '"code": "', '"redacted": [', "Register", "ListAndWatch"),
        ),
    ]


def scratch() -> Path:
    """A directory of this process, gone at its end."""
    directory = Path(tempfile.mkdtemp(prefix="fuzz-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def one_line(text: str) -> None:
    """A text for people is one line of a length that one can read."""
    assert "\n" not in text, f"more than one line: {text!r:.500}"
    assert len(text) < _LONGEST, f"{len(text)} characters: {text!r:.500}"


def _checkpoint() -> Run:
    import checkpoint
    from devicemanager import Settings
    from devicemanager.core.errors import DeviceManagerError
    from devicemanager.kubelet.manager.manager import DeviceManager

    def run(data: bytes) -> None:
        found, mended = checkpoint.inspect(data), checkpoint.repair(data)
        for line in (*found.problems, *found.lost, *mended.dropped):
            one_line(line)
        assert checkpoint.loads(mended.data) == mended.checkpoint, "not what it says"
        try:
            saved = checkpoint.loads(data, verify=False)
        except checkpoint.CheckpointError as error:
            return one_line(str(error))
        assert checkpoint.loads(checkpoint.dumps(saved)) == saved, "read again, it differs"
        for finding in checkpoint.inconsistencies(saved):
            one_line(str(finding))
        manager = DeviceManager(Settings())
        with contextlib.suppress(DeviceManagerError), contextlib.closing(manager):
            manager.restore(saved)
            manager.capacity()

    return run


def _manifest() -> Run:
    from devicemanager.objects.manifests import ManifestError, parse

    def run(data: bytes) -> None:
        try:
            parse(data.decode(errors="replace") + "\n")
        except ManifestError as error:
            one_line(str(error))

    return run


def _cdi() -> Run:
    from devicemanager.core.runoptions import RunOptions
    from devicemanager.kubelet.runtime import cdi
    from devicemanager.kubelet.runtime.oci import HostNode, OciError, render

    directory = scratch()

    def nodes(path: str) -> Mapping[str, HostNode]:
        return {"": HostNode("c", 1, 3)}

    def run(data: bytes) -> None:
        (directory / "bad.json").unlink(missing_ok=True)
        (directory / "bad.yaml").unlink(missing_ok=True)
        path = directory / ("bad.json" if data[:1] == b"{" else "bad.yaml")
        path.write_bytes(data)
        registry = cdi.load([directory])
        for text in registry.errors:
            one_line(text)
        try:
            render(RunOptions(cdi_devices=tuple(registry.devices)[:50]), registry, nodes)
        except (OciError, cdi.CdiError) as error:
            one_line(str(error))

    return run


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


def _control() -> Run:
    import logging

    from devicemanager.plugin.simulated.control import parse_control

    logging.getLogger("devicemanager").setLevel(logging.CRITICAL)

    def run(data: bytes) -> None:
        words = parse_control(data.decode(errors="replace"), "control")
        assert set(words.values()) <= {"Healthy", "Unhealthy", "gone"}, words

    return run


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
