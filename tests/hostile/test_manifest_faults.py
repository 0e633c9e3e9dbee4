"""Manifests that no API server would take, through MockKubelet.admit.

| fault | test |
|---|---|
| not YAML, not a Pod, fractional or negative counts, duplicate names, ... | test_a_bad_manifest |
| a file that is absent, a directory, binary | test_a_bad_manifest_file |
| two pods with one UID | test_two_pods_with_one_uid |
| a resource nobody registered | test_an_unknown_resource |
"""

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


def twice() -> Any:
    manifest = pod("bad")
    manifest["spec"]["containers"] *= 2
    return manifest


def also_init() -> Any:
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
    "two pods": (f"{yaml.dump(pod('a'))}---\n{yaml.dump(pod('b'))}", "holds 2 pods"),
    "no containers": ({**pod("bad"), "spec": {}}, "containers"),
    "fractional": (limits(limits={R: "1500m"}), "must be an integer"),
    "half": (limits(limits={R: 0.5}), "must be an integer"),
    "negative": (limits(limits={R: -1}), "must be greater than or equal to 0"),
    "no number": (limits(limits={R: "many"}), "many"),
    "requests differ": (limits(limits={R: 1}, requests={R: 2}), "must be equal to"),
    "requests only": (limits(requests={R: 1}), "Limit must be set for non overcommitable"),
    "a native name": (limits(limits={"gpu": 1}), "gpu"),
    "duplicate names": (twice(), 'Duplicate value: "main"'),
    "init container of one name": (also_init(), 'Duplicate value: "main"'),
    "name": (pod("Not_A_Name"), "metadata.name"),
    "uid": (pod("bad", uid="../../etc"), "metadata.uid"),
    "a number": (7, "a manifest is a dict, YAML text, a path or a V1Pod, not"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_manifest(kubelet: MockKubelet, what: str) -> None:
    """One line that names field and fault; the node does not know the pod."""
    source, expected = BAD[what]
    with pytest.raises(ManifestError) as caught:
        kubelet.admit(source)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)
    assert kubelet.pods() == {}


def test_a_bad_manifest_file(kubelet: MockKubelet, root: Path) -> None:
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


def test_two_pods_with_one_uid(kubelet: MockKubelet) -> None:
    """The first keeps what it has."""
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
        with pytest.raises(RequestError, match="is admitted already: terminate it first"):
            kubelet.admit(pod("a", uid="one"))
        assert kubelet.devices("one") == {"main": {R: ["d0"]}}
        kubelet.terminate("one")
        assert kubelet.admit(pod("b", uid="one")).admitted


def test_an_unknown_resource(start: Start) -> None:
    """A warning by default; a rejection when strict (Q14)."""
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
