"""Manifests that an API server would reject, given to MockKubelet.admit.

| fault | test |
|---|---|
| not YAML, not a Pod, fractional or negative counts, duplicate names, ... | test_invalid_manifest_is_rejected |
| a missing file, a directory, a binary file | test_invalid_manifest_file_is_rejected |
| two pods with one UID | test_second_pod_with_the_same_uid_is_rejected |
| a resource that no plugin has registered | test_unknown_resource_is_a_warning_or_rejection |
"""  # noqa: E501

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from devicemanager.core.errors import RequestError
from devicemanager.events.stream import EventKind
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.kubelet.settings import Settings
from devicemanager.objects.manifests import ManifestError
from tests.hostile import hostile
from tests.hostile.conftest import Start, pod


def limits(**resources: Any) -> Any:
    manifest = pod("bad")
    manifest["spec"]["containers"][0]["resources"] = resources
    return manifest


def with_duplicate_names() -> Any:
    manifest = pod("bad")
    manifest["spec"]["containers"] *= 2
    return manifest


def with_init_container_of_the_same_name() -> Any:
    manifest = pod("bad")
    manifest["spec"]["initContainers"] = manifest["spec"]["containers"]
    return manifest


R = hostile.RESOURCE
BAD: dict[str, tuple[Any, str]] = {
    "not YAML": ("a: [1,\n2", "not YAML: line "),
    "control characters": ("a: \0\nb: 1", "not YAML"),
    "empty": ("\n", "empty"),
    "a list": ("- a\n- b\n", "must be a mapping with kind: Pod"),
    "not a Pod": ({"apiVersion": "v1", "kind": "Service"}, "kind"),
    "two pods": (f"{yaml.dump(pod('a'))}---\n{yaml.dump(pod('b'))}", "contains 2 pods"),
    "no containers": ({**pod("bad"), "spec": {}}, "containers"),
    "fractional": (limits(limits={R: "1500m"}), "must be an integer"),
    "half": (limits(limits={R: 0.5}), "must be an integer"),
    "negative": (limits(limits={R: -1}), "must be greater than or equal to 0"),
    "not a number": (limits(limits={R: "many"}), "many"),
    "requests differ": (limits(limits={R: 1}, requests={R: 2}), "must be equal to"),
    "requests only": (limits(requests={R: 1}), "Limit must be set for non overcommitable"),
    "a native name": (limits(limits={"gpu": 1}), "gpu"),
    "duplicate names": (with_duplicate_names(), 'Duplicate value: "main"'),
    "init container of the same name": (
        with_init_container_of_the_same_name(),
        'Duplicate value: "main"',
    ),
    "name": (pod("Not_A_Name"), "metadata.name"),
    "uid": (pod("bad", uid="../../etc"), "metadata.uid"),
    "a number": (7, "invalid manifest: expected a dict, YAML text"),
}


@pytest.mark.parametrize("what", BAD)
def test_invalid_manifest_is_rejected(kubelet: MockKubelet, what: str) -> None:
    """The error is one line that names field and problem; the pod is not recorded."""
    source, expected = BAD[what]
    with pytest.raises(ManifestError) as caught:
        kubelet.admit(source)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)
    assert kubelet.pods() == {}


def test_invalid_manifest_file_is_rejected(kubelet: MockKubelet, root: Path) -> None:
    binary = root / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    directory = root / "directory.yaml"
    directory.mkdir()
    broken = root / "broken.yaml"
    broken.write_text("a: [")
    for path in (binary, directory, broken, root / "absent.yaml"):
        with pytest.raises(ManifestError) as caught:
            kubelet.admit(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert "\n" not in str(caught.value)
    assert kubelet.pods() == {}


def test_second_pod_with_the_same_uid_is_rejected(kubelet: MockKubelet) -> None:
    """The first keeps its devices."""
    with hostile.RawPlugin(kubelet.plugin_dir / "p.sock"):
        assert hostile.register(kubelet.plugin_socket, "p.sock") is None
        kubelet.wait_for_resource(R, 2)
        assert kubelet.admit(pod("a", uid="one")).admitted
        with pytest.raises(RequestError) as caught:
            kubelet.admit(pod("b", uid="one"))
        assert str(caught.value) == (
            "pod default/b has the UID one of pod default/a: "
            "use a unique metadata.uid for every pod, or none"
        )
        with pytest.raises(RequestError, match="is already admitted: terminate it first"):
            kubelet.admit(pod("a", uid="one"))
        assert kubelet.devices("one") == {"main": {R: ["d0"]}}
        kubelet.terminate("one")
        assert kubelet.admit(pod("b", uid="one")).admitted


def test_unknown_resource_is_a_warning_or_rejection(start: Start) -> None:
    """It is a warning by default, a rejection with ``strict`` (Q14)."""
    kubelet = start()
    assert kubelet.admit(pod("a")).admitted
    event = kubelet.wait_for_event(EventKind.UNKNOWN_RESOURCE, after=0)
    assert event.is_warning
    assert "requests example.com/dev, which no plugin has registered" in event.message
    kubelet.stop()
    strict = start(Settings(strict=True))
    answer = strict.admit(pod("b"))
    assert answer.message == (
        "Allocate failed due to cannot allocate unregistered device example.com/dev, "
        "which is unexpected"
    )
