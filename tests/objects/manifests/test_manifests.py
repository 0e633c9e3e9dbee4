"""Parse manifests from all sources; each invalid one has an exact one-line error."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import attrs
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from devicemanager.core.pods import Container, Pod
from devicemanager.objects.manifests import ManifestError, document, parse, stable_uid
from devicemanager.objects.manifests.documents import MAX_SIZE, load_documents
from devicemanager.objects.manifests.errors import FieldError, UnknownField
from devicemanager.objects.manifests.fields import CONTAINER, POD_SPEC

LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character"
)
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, "
    "'-' or '.', and must start and end with an alphanumeric character"
)
GPU = "spec.containers[0].resources.limits[vendor.com/gpu]"


MAIN, A, B = ({"name": name, "image": "i"} for name in ("main", "a", "b"))


def manifest(**changes: Any) -> dict[str, Any]:
    """Return a manifest with one container that requests two devices."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train", "uid": "u-1"},
        "spec": {
            "containers": [
                {"name": "main", "image": "i", "resources": {"limits": {"vendor.com/gpu": 2}}}
            ],
        },
    } | changes


def with_resources(**resources: Any) -> dict[str, Any]:
    return manifest(spec={"containers": [MAIN | {"resources": resources}]})


def with_container(**fields: Any) -> dict[str, Any]:
    return manifest(spec={"containers": [MAIN | fields]})


def with_metadata(**metadata: Any) -> dict[str, Any]:
    return manifest(metadata=metadata)


def line_of(source: Any) -> str:
    with pytest.raises(ManifestError) as caught:
        parse(source)
    line = str(caught.value)
    assert len(line.splitlines()) == 1
    return line


POD = Pod(
    uid="u-1",
    name="train",
    namespace="default",
    containers=(Container("main", {"vendor.com/gpu": 2}, {"vendor.com/gpu": 2}),),
)


# Sources.


def test_all_fields_of_client_are_known() -> None:
    from kubernetes.client import V1Container, V1PodSpec

    assert set(V1PodSpec.attribute_map.values()) <= POD_SPEC
    assert set(V1Container.attribute_map.values()) <= CONTAINER


def test_pod_resources_and_unknown_metadata_are_accepted() -> None:
    source = manifest(metadata={"name": "train", "uid": "u-1", "surprise": 1})
    source["spec"]["resources"] = {"limits": {"cpu": 1}}
    assert parse(source) == attrs.evolve(POD, has_resources=True, pod_level_requests={"cpu": 1000})


def test_pod_level_requests_have_the_defaults_of_the_api() -> None:
    source = manifest()
    container = source["spec"]["containers"][0]
    container["resources"] = {"requests": {"cpu": "1", "memory": "1Ki"}}
    source["spec"]["resources"] = {
        "requests": {"cpu": "3"},
        "limits": {"cpu": "4", "memory": "8Ki", "hugepages-2Mi": "2Mi"},
    }
    # A container requests memory, so the pod's request of memory is not set to its limit.
    assert parse(source).pod_level_requests == {"cpu": 3000, "hugepages-2Mi": 2 << 20}


def test_parse_accepts_dict() -> None:
    assert parse(manifest()) == POD


def test_parse_does_not_change_dict() -> None:
    source = manifest()
    before = copy.deepcopy(source)
    parse(source)
    assert source == before


@pytest.mark.parametrize("dump", [yaml.safe_dump, json.dumps, lambda m: json.dumps(m, indent="\t")])
def test_parse_accepts_text(dump: Any) -> None:
    assert parse(dump(manifest())) == POD


def test_parse_accepts_path(tmp_path: Path) -> None:
    file = tmp_path / "train.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + yaml.safe_dump(manifest()).encode())
    assert parse(file) == POD
    assert parse(str(file)) == POD


def test_parse_accepts_path_without_suffix(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "train").write_text(json.dumps(manifest()))
    monkeypatch.chdir(tmp_path)
    assert parse("train") == POD


def client_pod() -> Any:
    from kubernetes import client

    return client.V1Pod(
        metadata=client.V1ObjectMeta(name="train", uid="u-1"),
        spec=client.V1PodSpec(
            containers=[
                client.V1Container(
                    name="main",
                    image="i",
                    resources=client.V1ResourceRequirements(limits={"vendor.com/gpu": "2"}),
                )
            ]
        ),
    )


def test_parse_accepts_client_pod() -> None:
    pod = client_pod()
    assert parse(pod) == POD
    assert line_of(pod.spec) == "expected a V1Pod, not V1PodSpec"


def test_parse_finds_single_pod_of_text() -> None:
    other = {"apiVersion": "v1", "kind": "ConfigMap"}
    assert parse(yaml.safe_dump_all([None, other, manifest()])) == POD


def test_parse_expands_aliases_and_merge_keys() -> None:
    text = """
apiVersion: v1
kind: Pod
metadata: {name: train, uid: u-1}
spec:
  containers:
  - &base
    name: main
    image: i
    resources: {limits: {vendor.com/gpu: 2}}
  - <<: *base
    name: side
"""
    assert [each.limits for each in parse(text).containers] == [{"vendor.com/gpu": 2}] * 2


def test_dict_loads_neither_kubernetes_nor_yaml() -> None:
    code = (
        "import sys, devicemanager.objects.manifests as m;"
        "m.parse({'kind':'Pod','apiVersion':'v1','metadata':{'name':'a'},"
        "'spec':{'containers':[{'name':'a','image':'i'}]}});"
        "sys.exit(bool({'kubernetes','yaml','grpc'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=30).returncode == 0


def test_parse_returns_pod_unchanged() -> None:
    assert parse(POD) is POD


# Values.


def test_units_and_defaults() -> None:
    pod = parse(
        with_resources(
            limits={"vendor.com/gpu": "2", "cpu": "1500m", "memory": "1Gi", "hugepages-2Mi": "4Mi"},
            requests={"cpu": 0.2501, "ephemeral-storage": "1k"},
        )
    )
    (container,) = pod.containers
    assert container.limits == {
        "vendor.com/gpu": 2,
        "cpu": 1500,
        "memory": 2**30,
        "hugepages-2Mi": 2**22,
    }
    assert container.requests == container.limits | {"cpu": 251, "ephemeral-storage": 1000}


def test_resources_of_kubernetes_io_are_amounts() -> None:
    pod = parse(with_resources(limits={"kubernetes.io/batch": "1500m"}))
    assert pod.containers[0].limits == {"kubernetes.io/batch": 2}


@pytest.mark.parametrize("count", [3, "3", 3.0, "3000m", "0.003k"])
def test_devices_can_be_counted_in_any_notation(count: Any) -> None:
    pod = parse(with_resources(limits={"vendor.com/gpu": count}, requests={"vendor.com/gpu": 3}))
    assert pod.containers[0].limits == {"vendor.com/gpu": 3}


@pytest.mark.parametrize(
    "resources", [None, {}, {"limits": None}, {"limits": {}, "requests": None}]
)
def test_missing_resources_are_empty(resources: Any) -> None:
    pod = parse(manifest(spec={"containers": [MAIN | {"resources": resources}]}))
    assert pod.containers == (Container("main"),)


@pytest.mark.parametrize(("seconds", "grace"), [(None, 30), (-5, 1), (0, 1), (7, 7)])
def test_grace_period_is_at_least_one_second(seconds: int | None, grace: int) -> None:
    spec = {"containers": [MAIN], "terminationGracePeriodSeconds": seconds}
    assert parse(manifest(spec=spec)).termination_grace_period == grace


def test_equal_limits_and_requests_are_one_mapping() -> None:
    (container,) = parse(manifest()).containers
    assert container.requests is container.limits


def test_only_init_containers_can_be_sidecars() -> None:
    spec = {
        "initContainers": [
            {"name": "sidecar", "image": "i", "restartPolicy": "Always"},
            {"name": "step", "image": "i"},
        ],
        "containers": [{"name": "main", "image": "i", "restartPolicy": "Always"}],
        "ephemeralContainers": [{**MAIN, "name": "debug", "targetContainerName": "main"}],
    }
    pod = parse(manifest(spec=spec))
    assert [(each.name, each.restartable) for each, _ in pod.all_containers()] == [
        ("sidecar", True),
        ("step", False),
        ("main", False),
    ]


def test_container_names_the_resources_whose_resize_restarts_it() -> None:
    policies = [
        {"resourceName": "cpu", "restartPolicy": "NotRequired"},
        {"resourceName": "memory", "restartPolicy": "RestartContainer"},
    ]
    for listed, expected in ((policies, ("memory",)), ([], ()), (None, ())):
        (container,) = parse(with_container(resizePolicy=listed)).containers
        assert container.restarts_on_resize == expected


def test_path_of_an_error_has_dots_only_before_names() -> None:
    for field, path in (("name", "a[0].name"), ("[key]", "a[0][key]"), ("", "a[0]")):
        error = FieldError(field, "text").under("a[0]")
        assert (error.field, error.text, str(error)) == (path, "text", f"{path}: text")
    assert isinstance(UnknownField("x", "").under("a"), UnknownField)


def test_longest_names_are_valid() -> None:
    name, namespace, uid, main = "a" * 253, "b" * 63, "u" * 253, "c" * 63
    pod = parse(
        manifest(
            metadata={"name": name, "namespace": namespace, "uid": uid},
            spec={"containers": [{"name": main, "image": "i"}]},
        )
    )
    assert (pod.name, pod.namespace, pod.uid, pod.containers[0].name) == (
        name,
        namespace,
        uid,
        main,
    )


def test_each_field_of_resources_is_checked_under_its_name() -> None:
    for field in ("limits", "requests"):
        at = f"spec.containers[0].resources.{field}"
        for value, line in [
            ({"cpu": -1}, f'{at}[cpu]: Invalid value: "-1": must be greater than or equal to 0'),
            ([], f"{at}: must be a mapping of resource names to quantities, not a list"),
            ({7: 1}, f"{at}[the number 7]: must be a resource name, not the number 7"),
            ({"cpu": []}, f"{at}[cpu]: must be a quantity, not a list"),
            (
                {"gpu": 1},
                f'{at}[gpu]: Invalid value: "gpu": must be a standard resource for containers',
            ),
        ]:
            assert line_of(with_resources(**{field: value})) == line


@pytest.mark.parametrize(
    ("name", "overcommits"),
    [
        ("cpu", True),
        ("memory", True),
        ("ephemeral-storage", True),
        ("example.kubernetes.io/amount", True),
        ("hugepages-2Mi", False),
        ("vendor.com/gpu", False),
    ],
)
def test_only_some_requests_may_be_lower_than_their_limit(name: str, overcommits: bool) -> None:
    at = "spec.containers[0].resources"
    lower = with_resources(limits={name: 2}, requests={name: 1})
    higher = line_of(with_resources(limits={name: 2}, requests={name: 3}))
    alone = with_resources(requests={name: 1})
    parse(with_resources(limits={name: 2}, requests={name: 2}))
    if overcommits:
        parse(lower)
        parse(alone)
        text = f"must be less than or equal to {name} limit of 2"
        assert higher == f'{at}.requests: Invalid value: "3": {text}'
    else:
        text = f"must be equal to {name} limit of 2"
        assert line_of(lower) == f'{at}.requests: Invalid value: "1": {text}'
        assert higher == f'{at}.requests: Invalid value: "3": {text}'
        assert line_of(alone) == (
            f"{at}.limits: Required value: Limit must be set for non overcommitable resources: "
            f"add {name}"
        )


@pytest.mark.parametrize("suffix", [".yaml", ".yml", ".json"])
def test_missing_file_is_named_by_its_suffix(suffix: str) -> None:
    assert line_of(f"no: such{suffix}") == f"no: such{suffix}: No such file or directory"


def test_empty_namespace_is_the_default() -> None:
    for namespace in ("", None):
        assert parse(with_metadata(name="a", namespace=namespace)).namespace == "default"


def test_pod_without_uid_gets_stable_one() -> None:
    pod = parse(with_metadata(name="train", namespace="ml"))
    assert pod.uid == stable_uid("ml", "train") == "f7b4707b-812c-8ad2-90fe-293cc71f1d46"
    assert stable_uid("ml", "train2") != pod.uid != stable_uid("default", "train")
    made = [uuid.UUID(stable_uid("ml", f"train-{number}")) for number in range(20)]
    assert {(each.version, each.variant) for each in made} == {(8, uuid.RFC_4122)}
    assert str(uuid.UUID(pod.uid)) == pod.uid
    assert parse(with_metadata(name="a"), default_uid="{}-{}".format).uid == "default-a"


# Invalid sources with the line of their error.

BAD_FIELDS = [
    (
        manifest(kind=None),
        "kind: Required value: a manifest begins with apiVersion: v1 and kind: Pod",
    ),
    (manifest(kind="Deployment"), 'kind: Unsupported value: "Deployment": supported values: "Pod"'),
    (manifest(kind="List"), "kind: a List is not supported: use one file for each Pod"),
    (manifest(kind="PodList"), "kind: a PodList is not supported: use one file for each Pod"),
    (manifest(kind=3), 'kind: Unsupported value: the number 3: supported values: "Pod"'),
    (manifest(apiVersion=None), "apiVersion: Required value: the apiVersion of a Pod is v1"),
    (manifest(apiVersion="v2"), 'apiVersion: Unsupported value: "v2": supported values: "v1"'),
    (manifest(metadata=None), "metadata.name: Required value"),
    (manifest(metadata=[]), "metadata: must be a mapping, not a list"),
    (with_metadata(), "metadata.name: Required value"),
    (with_metadata(name=""), "metadata.name: Required value"),
    (with_container(name=""), "spec.containers[0].name: Required value"),
    (
        with_container(resizePolicy="x"),
        'spec.containers[0].resizePolicy: must be a list, not the text "x"',
    ),
    (
        with_container(resizePolicy=[{}, 7]),
        "spec.containers[0].resizePolicy[1]: must be a mapping, not the number 7",
    ),
    (
        with_metadata(generateName="train-"),
        "metadata.name: Required value: generateName needs an API server",
    ),
    (with_metadata(name="Train_1"), f'metadata.name: Invalid value: "Train_1": {SUBDOMAIN}'),
    (
        with_metadata(name="a" * 254),
        f'metadata.name: Invalid value: "{"a" * 99}...: must be no more than 253 characters',
    ),
    (with_metadata(name=1), "metadata.name: must be a string, not the number 1; put it in quotes"),
    (
        with_metadata(name=10**29),
        f"metadata.name: must be a string, not the number 1{'0' * 29}; put it in quotes",
    ),
    (
        with_metadata(name=10**30),
        "metadata.name: must be a string, not a very large number; put it in quotes",
    ),
    (
        with_metadata(name=float("inf")),
        "metadata.name: must be a string, not an infinite number; put it in quotes",
    ),
    (with_metadata(name=True), "metadata.name: must be a string, not true; put it in quotes"),
    (with_metadata(name={}), "metadata.name: must be a string, not a mapping"),
    (
        with_metadata(name="a", namespace="x.y"),
        f'metadata.namespace: Invalid value: "x.y": {LABEL}',
    ),
    (
        with_metadata(name="a", uid=""),
        'metadata.uid: Invalid value: "": must be a valid directory name',
    ),
    (
        with_metadata(name="a", uid="../b"),
        "metadata.uid: Invalid value: \"../b\": must not contain '/' or control characters",
    ),
    (
        with_metadata(name="a", uid="a\nb"),
        "metadata.uid: Invalid value: \"a\\nb\": must not contain '/' or control characters",
    ),
    (
        with_metadata(name="a", uid=7),
        "metadata.uid: must be a string, not the number 7; put it in quotes",
    ),
    (manifest(spec=None), "spec: Required value"),
    (manifest(spec="x"), 'spec: must be a mapping, not the text "x"'),
    (manifest(spec={}), "spec.containers: Required value"),
    (manifest(spec={"containers": []}), "spec.containers: Required value"),
    (manifest(spec={"containers": {}}), "spec.containers: must be a list, not a mapping"),
    (manifest(spec={"containers": [None]}), "spec.containers[0]: must be a mapping, not null"),
    (manifest(spec={"containers": [{}]}), "spec.containers[0].name: Required value"),
    (manifest(spec={"containers": [{"name": "a"}]}), "spec.containers[0].image: Required value"),
    (
        manifest(spec={"containers": [A], "initContainers": [B | {"image": ""}]}),
        "spec.initContainers[0].image: Required value",
    ),
    (
        manifest(spec={"containers": [A | {"image": 7}]}),
        "spec.containers[0].image: must be a string, not the number 7",
    ),
    (
        manifest(spec={"containers": [{"name": "a.b"}]}),
        f'spec.containers[0].name: Invalid value: "a.b": {LABEL}',
    ),
    (
        manifest(spec={"containers": [{"name": "a" * 64}]}),
        f'spec.containers[0].name: Invalid value: "{"a" * 64}": must be no more than 63 characters',
    ),
    (
        manifest(spec={"containers": [A, A]}),
        'spec.containers[1].name: Duplicate value: "a"',
    ),
    (
        manifest(
            spec={
                "containers": [A],
                "initContainers": [A],
            }
        ),
        'spec.initContainers[0].name: Duplicate value: "a"',
    ),
    (
        manifest(
            spec={
                "containers": [A],
                "initContainers": [{"name": "b", "image": "i", "restartPolicy": "no"}],
            }
        ),
        'spec.initContainers[0].restartPolicy: Unsupported value: "no": '
        'supported values: "Always", "OnFailure", "Never"',
    ),
    (
        manifest(spec={"containers": [{"name": "a", "image": "i", "resources": []}]}),
        "spec.containers[0].resources: must be a mapping, not a list",
    ),
    (
        with_resources(limit={"vendor.com/gpu": 1}),
        'strict decoding error: unknown field "spec.containers[0].resources.limit"; '
        'did you mean "limits"?',
    ),
    (
        with_container(resource={"limits": {"vendor.com/gpu": 1}}),
        'strict decoding error: unknown field "spec.containers[0].resource"; '
        'did you mean "resources"?',
    ),
    (
        with_container(Resources={"limits": {"vendor.com/gpu": 1}}),
        'strict decoding error: unknown field "spec.containers[0].Resources"; '
        'did you mean "resources"?',
    ),
    (
        with_container(limits={"vendor.com/gpu": 1}),
        'strict decoding error: unknown field "spec.containers[0].limits"; '
        'did you mean "resources.limits"?',
    ),
    (
        with_container(**{"x\n": 1}),
        'strict decoding error: unknown field "spec.containers[0]."x\\n""',
    ),
    (
        manifest(
            spec={
                "containers": [A],
                "initContainer": [B],
            }
        ),
        'strict decoding error: unknown field "spec.initContainer"; did you mean "initContainers"?',
    ),
    (
        manifest(spec={"containers": [A], "HOSTPID": True}),
        'strict decoding error: unknown field "spec.HOSTPID"; did you mean "hostPID"?',
    ),
    (
        manifest(spec={"containers": [A], "terminationGracePeriodSeconds": True}),
        "spec.terminationGracePeriodSeconds: must be a whole number, not true",
    ),
    (
        manifest(spec={"containers": [A], "initContainers": [{"nam": "b"}]}),
        'strict decoding error: unknown field "spec.initContainers[0].nam"; did you mean "name"?',
    ),
    (
        with_resources(limits=["vendor.com/gpu"]),
        "spec.containers[0].resources.limits: "
        "must be a mapping of resource names to quantities, not a list",
    ),
    (
        with_resources(limits={"vendor.com/gpu": "1500m"}),
        f'{GPU}: Invalid value: "1500m": must be an integer',
    ),
    (
        with_resources(limits={"vendor.com/gpu": 1.5}),
        f'{GPU}: Invalid value: "1.5": must be an integer',
    ),
    (
        with_resources(limits={"vendor.com/gpu": -1}),
        f'{GPU}: Invalid value: "-1": must be greater than or equal to 0',
    ),
    (
        with_resources(limits={"vendor.com/gpu": "two"}),
        f'{GPU}: Invalid value: "two": quantities must match the regular expression '
        "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
    ),
    (with_resources(limits={"vendor.com/gpu": True}), f"{GPU}: must be a quantity, not true"),
    (with_resources(limits={"vendor.com/gpu": [1]}), f"{GPU}: must be a quantity, not a list"),
    (
        with_resources(limits={"gpu": 1}),
        "spec.containers[0].resources.limits[gpu]: "
        'Invalid value: "gpu": must be a standard resource for containers',
    ),
    (
        with_resources(limits={"requests.vendor.com/gpu": 1}),
        "spec.containers[0].resources.limits[requests.vendor.com/gpu]: Invalid value: "
        '"requests.vendor.com/gpu": doesn\'t follow extended resource name standard',
    ),
    (
        with_resources(limits={"Vendor.com/gpu": 1}),
        "spec.containers[0].resources.limits[Vendor.com/gpu]: Invalid value: "
        '"Vendor.com/gpu": must be a qualified name, as vendor.com/device',
    ),
    (
        with_resources(limits={"a\nb": 1}),
        'spec.containers[0].resources.limits["a\\nb"]: Invalid value: "a\\nb": '
        "must be a qualified name, as vendor.com/device",
    ),
    (
        with_resources(limits={7: 1}),
        "spec.containers[0].resources.limits[the number 7]: "
        "must be a resource name, not the number 7",
    ),
    (
        with_resources(requests={"vendor.com/gpu": 1}),
        "spec.containers[0].resources.limits: Required value: "
        "Limit must be set for non overcommitable resources: add vendor.com/gpu",
    ),
    (
        with_resources(requests={"vendor.com/gpu": 1}, limits={"vendor.com/gpu": 2}),
        'spec.containers[0].resources.requests: Invalid value: "1": '
        "must be equal to vendor.com/gpu limit of 2",
    ),
    (
        with_resources(requests={"cpu": "1001m"}, limits={"cpu": 1}),
        'spec.containers[0].resources.requests: Invalid value: "1001m": '
        "must be less than or equal to cpu limit of 1",
    ),
]

BAD_TEXTS = [
    ("a: b\nc: [", "not YAML: line 3, column 1: did not find expected node content"),
    (
        "a: !!python/object:os.system x\n",
        "not YAML: line 1, column 4: could not determine a constructor for the tag "
        "'tag:yaml.org,2002:python/object:os.system'",
    ),
    (
        "a: !!timestamp x\n",
        "not YAML: a value cannot be read: 'NoneType' object has no attribute 'groupdict'",
    ),
    ("a: &a [*a]\n", "the alias *a is inside the value of its own anchor"),
    ("a: 1\nb: 2\na: 3\n", 'line 3: key "a" already set in map'),
    ("a: " + "[" * 200, "nested more than 100 levels deep"),
    ("\n", "empty: expected a manifest with apiVersion: v1 and kind: Pod"),
    ("# nothing\n---\n", "empty: expected a manifest with apiVersion: v1 and kind: Pod"),
    ("- a\n- b\n", "must be a mapping with kind: Pod, not a list"),
    ("hello\n", 'must be a mapping with kind: Pod, not the text "hello"'),
    ("", '"" is neither an existing file nor a manifest: check the path'),
    ("train", '"train" is neither an existing file nor a manifest: check the path'),
    ("a\x00b", '"a\\u0000b" is neither an existing file nor a manifest: check the path'),
    ("x" * 5000, f'"{"x" * 99}... is neither an existing file nor a manifest: check the path'),
    ("no/such.yaml", "no/such.yaml: No such file or directory"),
    ("no\x00such.yaml", '"no\\u0000such.yaml": No such file or directory'),
    ("#" * (MAX_SIZE + 1) + "\n", "larger than 1572864 bytes: use a manifest of one pod"),
    ("kind: A\n---\nkind: B\n", "contains 2 documents, but none of kind Pod: add a Pod"),
    ("kind: Pod\n---\nkind: Pod\n", "contains 2 pods: use one file for each Pod"),
    ("kind: List\nitems: []\n", "kind: a List is not supported: use one file for each Pod"),
]


@pytest.mark.parametrize(("source", "line"), BAD_FIELDS, ids=[line[:60] for _, line in BAD_FIELDS])
def test_invalid_fields_have_one_line(source: Any, line: str) -> None:
    assert line_of(source) == line


@pytest.mark.parametrize(("text", "line"), BAD_TEXTS, ids=[line[:60] for _, line in BAD_TEXTS])
def test_invalid_texts_have_one_line(text: str, line: str) -> None:
    assert line_of(text) == line


def test_parse_rejects_other_types() -> None:
    assert (
        line_of(None) == "invalid manifest: expected a dict, YAML text, a path or a V1Pod, not null"
    )
    assert (
        line_of([1])
        == "invalid manifest: expected a dict, YAML text, a path or a V1Pod, not a list"
    )


def test_field_error_names_file(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(yaml.safe_dump(with_resources(limits={"vendor.com/gpu": "0.5"})))
    assert line_of(file) == f'{file}: {GPU}: Invalid value: "0.5": must be an integer'


def test_invalid_files_are_rejected(tmp_path: Path) -> None:
    latin, large, pipe = tmp_path / "latin.yaml", tmp_path / "large.yaml", tmp_path / "pipe.yaml"
    latin.write_bytes(b"name: \xe9")
    large.write_bytes(b"#" * (MAX_SIZE + 1))
    os.mkfifo(pipe)
    assert line_of(latin) == f"{latin}: not UTF-8 text (byte 6): save the file as UTF-8"
    assert line_of(large).startswith(f"{large}: larger than")
    assert line_of(pipe) == f"{pipe}: a pipe, not a regular file"
    assert line_of(tmp_path) == f"{tmp_path}: a directory, not a regular file"
    # The error of a long name depends on the Python version.
    long = line_of(tmp_path / ("x" * 300))
    assert long.endswith(("cannot be read: File name too long", "No such file or directory"))


def test_document_returns_manifest_without_validating_it(tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text("kind: Anything")
    wrong = {"kind": 7}
    assert document(wrong) is wrong
    assert document("kind: Anything") == "kind: Anything"
    assert document(file) == document(str(file)) == "kind: Anything"
    client = document(client_pod())
    assert isinstance(client, dict)
    assert client["metadata"] == {"name": "train", "uid": "u-1"}


def test_document_rejects_other_sources(tmp_path: Path) -> None:
    expected = "invalid manifest: expected a dict, YAML text, a path or a V1Pod"
    for source, line in [
        (tmp_path / "none.yaml", f"{tmp_path}/none.yaml: No such file or directory"),
        (f"{tmp_path}/none.yaml", f"{tmp_path}/none.yaml: No such file or directory"),
        ("none", '"none" is neither an existing file nor a manifest: check the path'),
        ([], f"{expected}, not a list"),
        (parse(POD), f"{expected}, not a value of type Pod"),
    ]:
        with pytest.raises(ManifestError) as raised:
            document(source)
        assert str(raised.value) == line


def test_files_that_could_block_are_rejected(tmp_path: Path) -> None:
    """Covers a huge sparse file, and links to a pipe and to devices."""
    sparse, link = tmp_path / "sparse.yaml", tmp_path / "link.yaml"
    sparse.touch()
    os.truncate(sparse, 1 << 30)
    assert line_of(sparse) == f"{sparse}: larger than {MAX_SIZE} bytes: use a manifest of one pod"
    os.mkfifo(tmp_path / "pipe")
    for target in (tmp_path / "pipe", Path("/dev/zero"), Path("/proc/kmsg")):
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        assert line_of(link).startswith(f"{link}: ")


@pytest.mark.parametrize("merge", [False, True])
def test_expanded_aliases_are_limited(merge: bool) -> None:
    # A "billion laughs" document: eleven levels, each with ten references to the level below.
    lines = ["a0: &a0 {x: 1}"]
    for level in range(1, 12):
        many = ", ".join([f"*a{level - 1}"] * 10)
        lines.append(f"a{level}: &a{level} " + (f"{{<<: [{many}]}}" if merge else f"[{many}]"))
    assert line_of("\n".join(lines)) == "more than 200000 values after aliases are expanded"


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("a", 1),
        ("[a, b]", 3),
        ("{a: b}", 3),
        ("[&x a, *x, *x]", 4),
        ("[&x [a, b], *x]", 7),
        ("a: &x {b: c}\nd: *x\n", 9),
    ],
)
def test_values_are_counted_after_aliases_are_expanded(text: str, nodes: int) -> None:
    assert len(load_documents(text, max_nodes=nodes)) == 1
    with pytest.raises(ManifestError, match=f"^more than {nodes - 1} values after aliases"):
        load_documents(text, max_nodes=nodes - 1)


def test_only_merge_keys_may_be_repeated() -> None:
    text = "x: &x {a: 1}\ny: &y {b: 2}\nz: {<<: *x, <<: *y}\n"
    (found,) = load_documents(text)
    assert isinstance(found, dict) and set(found["z"]) <= {"a", "b"} and found["z"]
    with pytest.raises(ManifestError, match=r'^line 1: key "b" already set in map$'):
        load_documents("{a: {b: 1}, c: {b: 1, b: 1}}")


def test_text_may_have_the_largest_size() -> None:
    assert load_documents("a: 1", max_size=4) == [{"a": 1}]
    with pytest.raises(ManifestError, match=r"^too much$"):
        load_documents("a: 1", max_size=3, too_large="too much")


def test_list_is_rejected_at_its_first_extra_item() -> None:
    text = "a: [1, 2]\nb: {x: 1, y: 2, z: 3}\nc:\n- 1\n- {d: []}\n"
    assert load_documents(text, max_items=2) == load_documents(text)
    # The invalid YAML after the extra item shows that the rest of the text is not parsed.
    with pytest.raises(ManifestError, match=r"^line 6: the list has more than 2 items$"):
        load_documents(text + "- 3\n- }", max_items=2)


# Properties.

plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
keys = st.sampled_from(
    ["name", "uid", "kind", "limits", "requests", "cpu", "vendor.com/gpu", "containers", "<<"]
) | st.text(max_size=5)
values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4)
)


def outcome(source: Any) -> Pod | None:
    try:
        return parse(source)
    except ManifestError as error:
        assert str(error)
        assert len(str(error).splitlines()) == 1
        return None


@given(values)
def test_any_value_is_pod_or_manifest_error(value: Any) -> None:
    outcome(value)


@given(st.sampled_from(["kind", "apiVersion", "metadata", "spec"]), values)
def test_any_field_value_is_pod_or_manifest_error(field: str, value: Any) -> None:
    outcome(manifest(**{field: value}))


@given(st.sampled_from(["name", "resources", "restartPolicy"]), values)
@example("resources", {"limits": {"vendor.com/gpu": 10**5000}})
@example("resources", {"limits": {10**5000: 1}})
@example("name", 10**5000)
def test_any_container_is_pod_or_manifest_error(field: str, value: Any) -> None:
    container = {"name": "main", "image": "i", field: value}
    outcome(
        manifest(
            spec={
                "containers": [container],
                "initContainers": [A | container],
            }
        )
    )


@given(st.dictionaries(keys, plain | st.text("0123456789.mkKi-", max_size=4), max_size=4))
def test_any_limits_are_whole_numbers_or_rejected(limits: Any) -> None:
    pod = outcome(with_resources(limits=limits))
    if pod is not None:
        assert set(pod.containers[0].limits) == set(limits)
        assert all(type(n) is int and n >= 0 for n in pod.containers[0].requests.values())


@given(st.text(alphabet="ab:-[]{}&*!#|>'\"%@`,?\n\t <\x00\ud800é1", max_size=60))
def test_any_text_is_pod_or_manifest_error(text: str) -> None:
    outcome(text + "\n")


@given(values)
def test_yaml_and_dict_agree(value: Any) -> None:
    source = manifest(spec={"containers": [MAIN | {"resources": {"limits": value}}]})
    try:
        text = yaml.safe_dump(source)
    except yaml.YAMLError:
        return
    assert (outcome(text) is None) == (outcome(source) is None)
