"""Which fields and flags of a kubelet are read, and what they mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from devicemanager.snapshot.kubeletconfig import (
    Alignment,
    alignment,
    merged_settings,
    running_kubelet,
)
from devicemanager.snapshot.model import KubeletConfig

FIELDS = {
    "topologyManagerPolicy": "restricted",
    "topologyManagerScope": "pod",
    "topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": "true"},
    "cpuManagerPolicy": "static",
    "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
    "memoryManagerPolicy": "Static",
    "reservedMemory": [{"numaNode": 0}],
    "reservedSystemCPUs": "0-1",
    "featureGates": {"ResourceHealthStatus": True},
}
FLAGS = {
    "topology-manager-policy": "best-effort",
    "topology-manager-scope": "container",
    "topology-manager-policy-options": "a=true,b=false",
    "cpu-manager-policy": "none",
    "cpu-manager-policy-options": "c=true",
    "memory-manager-policy": "None",
    "reserved-memory": "0:memory=1Gi",
    "reserved-cpus": "3",
    "feature-gates": "A=true",
    "config": "/etc/kubelet.yaml",
    "config-dir": "/etc/kubelet.d",
    "root-dir": "/var/lib/kubelet",
}


def test_only_fields_of_devices_and_alignment_are_read(tmp_path: Path) -> None:
    import json

    file, others = tmp_path / "config", tmp_path / "config.d"
    file.write_text(json.dumps({**FIELDS, "authentication": {"x509": "secret"}, "port": 10250}))
    assert merged_settings(file) == FIELDS
    others.mkdir()
    (others / "20.conf").write_text("topologyManagerScope: container\nreservedSystemCPUs: 0\n")
    (others / "10.conf").write_text("featureGates: {More: false}\ntopologyManagerScope: x\n")
    (others / "30.yaml").write_text("topologyManagerScope: unread\n")
    (others / "40.conf").write_text("- a list\n")
    assert merged_settings(file, others) == FIELDS | {
        "topologyManagerScope": "container",
        "reservedSystemCPUs": 0,
        "featureGates": {"ResourceHealthStatus": True, "More": False},
    }


@pytest.mark.parametrize("form", ["--{}={}", "-{}={}", "--{} {}"])
def test_flags_of_the_running_kubelet_are_read(tmp_path: Path, form: str) -> None:
    words = ["/usr/bin/kubelet", "--bootstrap-kubeconfig=/secret", "--v", "--hostname-override=a"]
    words += [word for flag in FLAGS.items() for word in form.format(*flag).split()]
    processes = {
        "9": (b"bash\n", ["kubelet"]),
        "10": (b"kubelet\n", words),
        "x": (b"kubelet", words),
    }
    for name, (command, line) in processes.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "comm").write_bytes(command)
        (tmp_path / name / "cmdline").write_bytes("\0".join(line).encode())
    assert running_kubelet(tmp_path) == (10, FLAGS)
    (tmp_path / "10" / "cmdline").unlink()
    assert running_kubelet(tmp_path) is None


def test_flag_without_value_is_empty(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "comm").write_text("kubelet")
    (tmp_path / "1" / "cmdline").write_text("kubelet\0--config\0--root-dir=\0--config-dir")
    assert running_kubelet(tmp_path) == (1, {"config": "", "root-dir": "", "config-dir": ""})


def test_alignment_has_the_kubelets_defaults() -> None:
    default = Alignment("none", "container", {}, "none", "None", "")
    assert alignment(None) == Alignment() == default
    assert alignment(KubeletConfig(settings={}, flags={})) == default


def test_alignment_is_read_from_fields_and_flags() -> None:
    assert alignment(KubeletConfig(settings=FIELDS, flags={})) == Alignment(
        "restricted",
        "pod",
        {"prefer-closest-numa-nodes": "true"},
        "static",
        "Static",
        "0-1",
        {"ResourceHealthStatus": True},
        {"full-pcpus-only": "true"},
    )
    assert alignment(KubeletConfig(settings=FIELDS, flags=FLAGS)) == Alignment(
        "best-effort",
        "container",
        {"a": "true", "b": "false"},
        "none",
        "None",
        "3",
        {"A": True},
        {"c": "true"},
    )


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"reservedSystemCPUs": 0}, Alignment(reserved_cpus="0")),
        ({"reservedSystemCPUs": True}, Alignment()),
        ({"topologyManagerPolicy": ["x"], "topologyManagerPolicyOptions": 3}, Alignment()),
        (
            {"topologyManagerPolicyOptions": {"a": True, 1: 2}},
            Alignment(options={"a": "true", "1": "2"}),
        ),
        ({"topologyManagerPolicyOptions": "a,b=c,"}, Alignment(options={"a": "", "b": "c"})),
    ],
)
def test_values_of_other_types_are_read_or_ignored(
    settings: dict[str, object], expected: Alignment
) -> None:
    assert alignment(KubeletConfig(settings=settings, flags={})) == expected
