"""Objects of the API: reading, writing, and every rule that they can break."""

import copy
import datetime

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.claims.attributes import AttributeType, AttributeValue
from devicemanager.claims.errors import InvalidObject
from devicemanager.claims.v1alpha1 import objects as api
from devicemanager.claims.v1alpha1.reading import check, read_object, read_text
from devicemanager.claims.v1alpha1.validate import MAX_DEVICES
from devicemanager.claims.v1alpha1.writing import write_object
from devicemanager.core.quantity import Quantity
from tests.claims.documents import claim, config, device_class, document, pool
from tests.strategies import examples

EVERYTHING = yaml.safe_load_all(
    """
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DevicePool
metadata: {name: node-1-gpus, labels: {a: b}}
spec:
  nodeName: node-1
  driver: gpu.example.com
  attributes:
  - {name: model, stringValue: x100}
  - {name: empty, stringValue: ""}
  - {name: driver, semVerValue: 1.2.3-rc.1+b}
  resources:
  - {name: slices, capacity: "7"}
  devices:
  - name: gpu-0
    attributes:
    - {name: numa, intValue: 0}
    - {name: memory, quantityValue: 40Gi}
    requests: {slices: "3"}
    resources:
    - {name: memory, capacity: 40Gi, blockSize: 256Mi}
  - {name: gpu-1}
status: {availableDevices: 2}
---
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DeviceClass
metadata: {name: gpu}
spec:
  driver: gpu.example.com
  deviceType: gpu
  constraints: device.memory >= '10Gi'
  adminAccess: true
  configs:
  - {apiVersion: gpu.example.com/v1, kind: Settings, namespace: default, name: fast}
---
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DeviceClaim
metadata: {name: train, namespace: team, uid: 1234}
spec:
  matchAttributes: [numa]
  claims:
  - deviceClass: gpu
    deviceType: gpu
    constraints: device.numa == 0
    requests: {count: "2"}
    limits: {count: "4"}
    matchAttributes: [model]
    configs:
    - {apiVersion: gpu.example.com/v1, kind: Settings, name: mine}
  - name: second
    oneOf:
    - {deviceType: gpu, requests: {memory: 1536Mi}}
    - {deviceClass: gpu}
status:
  allocations:
  - {devicePoolName: p, deviceName: d, allocations: [{name: memory, allocation: 2Gi}]}
  - {devicePoolName: p, deviceName: e}
  deviceStatuses:
  - devicePoolName: p
    deviceName: d
    conditions: [{type: Ready, status: "True"}]
    deviceIP: 10.0.0.1
    deviceIPs: [{ip: 10.0.0.1}, {ip: fd00::1}]
    deviceInfo: [{anything: [1]}]
  podNames: [a, b]
---
apiVersion: gpu.example.com/v1
kind: Settings
metadata: {name: fast, namespace: default}
spec: {clock: 3}
""".replace("uid: 1234", "uid: '1234'")
)
EVERYTHING = list(EVERYTHING)


@pytest.mark.parametrize("found", EVERYTHING, ids=lambda each: each["kind"])
def test_write_object_returns_the_document_that_was_read(found):
    assert write_object(read_object(copy.deepcopy(found))) == found


def test_read_object_converts_values():
    gpus = read_object(copy.deepcopy(EVERYTHING[0]))
    first = gpus.devices[0]
    assert [each.values() for each in first.attributes] == [
        (AttributeValue(AttributeType.INT, 0),),
        (AttributeValue(AttributeType.QUANTITY, Quantity.parse("40Gi").nanos),),
    ]
    assert first.resources[0].block_size == Quantity.parse("256Mi")
    assert gpus.resources[0].block_size == api.ONE
    assert gpus.available_devices == 2


def test_class_fields_can_have_the_case_that_go_writes():
    spec = {"Driver": "d.example.com", "DeviceType": "gpu"}
    found = read_object(document("DeviceClass", "gpu", spec))
    assert (found.driver, found.device_type) == ("d.example.com", "gpu")
    assert write_object(found)["spec"] == {"driver": "d.example.com", "deviceType": "gpu"}


def test_null_is_absent():
    instance = {"deviceClass": "gpu", "deviceType": None, "requests": None, "configs": None}
    found = read_object(claim("c", instance))
    assert found == read_object(claim("c", {"deviceClass": "gpu"}))


def test_namespace_defaults_to_default():
    assert read_object(claim("c")).id == "default/c"
    assert read_object(document("DeviceClaim", "c", claim()["spec"], namespace="n")).id == "n/c"


def test_quantities_can_be_numbers():
    found = read_object(claim("c", {"deviceClass": "gpu", "requests": {"count": 2, "cpu": 0.5}}))
    assert found.claims[0].detail.requests == {
        "count": Quantity.parse("2"),
        "cpu": Quantity.parse("500m"),
    }


def lines(found):
    with pytest.raises(InvalidObject) as caught:
        read_object(found)
    assert all(line.isprintable() and len(line) < 1000 for line in caught.value.lines)
    return list(caught.value.lines)


def of_pool(**spec):
    return pool(**spec)


def of_device(**fields):
    return pool(devices=[{"name": "a", **fields}])


def of_detail(**fields):
    return claim("c", {"deviceClass": "gpu", **fields})


REF = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x"}

BROKEN = [
    (of_pool(driver=""), 'DevicePool "p": spec.driver: Required value'),
    (of_pool(devices=["a", "a"]), 'DevicePool "p": spec.devices[1].name: Duplicate value: "a"'),
    (of_pool(devices=[""]), 'DevicePool "p": spec.devices[0].name: Required value'),
    (of_pool(devices=["<b>x"]), 'DevicePool "p": spec.devices[0].name: Invalid value: "<b>x"'),
    (of_pool(devices=["a\x1b[31m"]),
     'DevicePool "p": spec.devices[0].name: Invalid value: "a\\u001b[31m": must'),
    (of_pool(name="P_1"), 'DevicePool "P_1": metadata.name: Invalid value: "P_1": a lowercase RFC'),
    (of_pool(name=""), 'DevicePool "": metadata.name: Required value'),
    (of_pool(name="x" * 300), 'metadata.name: Invalid value: '),
    (of_pool(nodeName="a b"), 'DevicePool "p": spec.nodeName: Invalid value: "a b": a lowercase'),
    (of_pool(devicez=[]), 'DevicePool "p": spec.devicez: unknown field'),
    (of_pool(devices=[{"name": 7}]), "spec.devices[0].name: must be a string, not the"),
    (of_pool(resources=[{"name": "s"}]), "spec.resources[0].capacity: Required value"),
    (of_pool(resources=[{"name": "s", "capacity": "1K"}]),
     'spec.resources[0].capacity: Invalid value: "1K": unable to parse'),
    (of_pool(resources=[{"name": "s", "capacity": True}]),
     "spec.resources[0].capacity: must be a quantity such as 500m or 1Gi, not true"),
    (of_pool(resources=[{"name": "s", "capacity": -1}]),
     'spec.resources[0].capacity: Invalid value: "-1": must be greater than or equal to 0'),
    (of_pool(resources=[{"name": "s", "capacity": 1}] * 2),
     'spec.resources[1].name: Duplicate value: "s"'),
    (of_device(attributes=[{"name": "x"}]), "attributes[0]: Invalid value: \"x\": exactly"),
    (of_device(attributes=[{"name": "x", "stringValue": "a", "intValue": 1}]),
     'spec.devices[0].attributes[0]: Invalid value: "x": exactly one value must be set, not 2'),
    (of_device(attributes=[{"name": "x", "intValue": 2**63}]),
     "spec.devices[0].attributes[0].intValue: must be a 64-bit integer, not the number"),
    (of_device(attributes=[{"name": "x", "intValue": True}]), "intValue: must be a 64-bit"),
    (of_device(attributes=[{"name": "x", "semVerValue": "1.2"}]),
     'attributes[0].semVerValue: Invalid value: "1.2": not a semantic version'),
    (of_device(attributes=[{"name": "x", "intValue": 1}] * 2),
     'spec.devices[0].attributes[1].name: Duplicate value: "x"'),
    (of_device(attributes=[{"name": "", "intValue": 1}]), "attributes[0].name: Required value"),
    (of_device(requests={"s": 1}),
     'spec.devices[0].requests[s]: Invalid value: "1": the pool has no resource of this name'),
    (of_device(resources=[{"name": "m", "capacity": 1, "blockSize": 0}]),
     'spec.devices[0].resources[0].blockSize: Invalid value: "0": must be greater than 0'),
    (of_device(resources=[{"name": "m", "capacity": 1}] * 2),
     'spec.devices[0].resources[1].name: Duplicate value: "m"'),
    (device_class(driver=None), 'DeviceClass "gpu": spec.driver: Required value'),
    (device_class(deviceType=None), 'DeviceClass "gpu": spec.deviceType: Required value'),
    (device_class(DRIVER="e"), "spec.driver: Invalid value: \"DRIVER\": the field is given twice"),
    (device_class(constraints="device.a ==="),
     'spec.constraints: Invalid value: "device.a ===": the constraint does not compile: line 1'),
    (device_class(configs=[REF]), "spec.configs[0].namespace: Required value"),
    (device_class(configs=[{"kind": "X", "name": "x", "namespace": "n"}]),
     "spec.configs[0].apiVersion: Required value"),
    (device_class(adminAccess="yes"), "spec.adminAccess: must be true or false, not the text"),
    (document("DeviceClass", "x", device_class()["spec"], namespace="n"),
     'DeviceClass "n/x": metadata.namespace: Forbidden: this kind is cluster-scoped'),
    (document("DeviceClaim", "c", {}), 'DeviceClaim "default/c": spec.claims: Required value'),
    (claim("c", {}), "spec.claims[0].deviceClass: Required value: or deviceType"),
    (claim("c", {"oneOf": []}), "spec.claims[0].deviceClass: Required value: or deviceType"),
    (claim("c", {"oneOf": [{}]}), "spec.claims[0].oneOf[0].deviceClass: Required value"),
    (of_detail(oneOf=[{"deviceClass": "gpu"}]),
     "spec.claims[0].oneOf: Forbidden: must not be set together with the fields of"),
    (claim("c", {"oneOf": [{"deviceClass": "gpu"}], "requests": {"count": 1}}),
     "spec.claims[0].oneOf: Forbidden"),
    (claim("c", {"oneOf": [{"deviceClass": "gpu"}] * 9}),
     "spec.claims[0].oneOf: Too many: 9: must have at most 8 items"),
    (claim("c", *[{"deviceClass": "gpu"}] * 33),
     "spec.claims: Too many: 33: must have at most 32 items"),
    (of_detail(requests={"count": "1500m"}),
     'requests[count]: Invalid value: "1500m": must be a whole number of at least 1'),
    (of_detail(requests={"count": 0}), 'requests[count]: Invalid value: "0": must be a whole'),
    (of_detail(limits={"count": 1.5}), 'limits[count]: Invalid value: "1500m": must be a whole'),
    (of_detail(requests={"count": 3}, limits={"count": 2}),
     'limits[count]: Invalid value: "2": must be greater than or equal to the request of 3'),
    (of_detail(requests={"memory": "2Gi"}, limits={"memory": "1G"}),
     'limits[memory]: Invalid value: "1G": must be greater than or equal to the request of 2Gi'),
    (of_detail(requests={"memory": 0}), 'requests[memory]: Invalid value: "0": must be greater'),
    (of_detail(requests={"memory": -1}), 'requests[memory]: Invalid value: "-1": must be greater'),
    (of_detail(limits={"memory": -1}), 'limits[memory]: Invalid value: "-1": must be greater'),
    (of_detail(requests=[1]), "spec.claims[0].requests: must be a mapping, not a list"),
    (of_detail(constraints="device.a =="), "the constraint does not compile: line 1, column 12"),
    (of_detail(constraints="x" * 10241), "too long: 10241 bytes, at most 10240 are allowed"),
    (of_detail(matchAttributes=["a", "a"]), 'matchAttributes[1]: Duplicate value: "a"'),
    (of_detail(matchAttributes=[""]), "spec.claims[0].matchAttributes[0]: Required value"),
    (of_detail(matchAttributes="a"), "spec.claims[0].matchAttributes: must be a list, not the"),
    (of_detail(configs=[{**REF, "namespace": "n"}]), "configs[0].namespace: unknown field"),
    (of_detail(deviceClass="No Such"), 'deviceClass: Invalid value: "No Such": a lowercase'),
    (claim(matchAttributes=["a", "a"]), 'spec.matchAttributes[1]: Duplicate value: "a"'),
    (config(name="X"), 'Settings "default/X": metadata.name: Invalid value'),
    ({"kind": "ConfigMap", "metadata": {"name": "x"}}, 'ConfigMap "default/x": apiVersion'),
    ({"apiVersion": api.API_VERSION, "kind": "DeviceDriver"},
     'DeviceDriver "": kind: Unsupported value: "DeviceDriver": supported values'),
    ([], "must be a mapping with apiVersion and kind, not a list"),
    ("text", "must be a mapping with apiVersion and kind, not the text"),
]  # fmt: skip


@pytest.mark.parametrize(("found", "line"), BROKEN, ids=range(len(BROKEN)))
def test_broken_rules_have_one_line_each(found, line):
    (only,) = lines(found)
    assert line in only


def test_values_without_a_json_form_are_converted_or_rejected():
    inside = {**pool(), "metadata": {"name": "p", "labels": {}}}
    inside["metadata"]["labels"]["x"] = inside
    assert lines(inside) == ["object: nested too deeply, or contains itself"]
    (line,) = lines(of_device(attributes=[{"name": "x", "stringValue": "\ud800"}]))
    assert "spec.devices[0].attributes[0].stringValue: Invalid value" in line
    assert "must be Unicode text" in line
    odd = {1: b"x", "when": datetime.date(2026, 1, 2), "set": {"b", "a"}, "\ud800": float("inf")}
    found = read_object(config(**{"spec": odd}))
    plain = {"1": "b'x'", "when": "2026-01-02", "set": ["a", "b"], "?": "inf"}
    assert write_object(found)["spec"] == plain


def test_all_broken_rules_are_reported():
    found = pool(driver="", devices=[{"name": "a", "requests": {"x": 1, "y": 2}}, "a"])
    assert len(lines(found)) == 4


FORM_AND_RULES = [
    # Errors of form and of rules, in different fields.
    (
        pool(
            driver=7,
            nodeName="No Node",
            devices=[{"name": "a b"}, {"name": "ok", "color": "red"}, {"name": "ok"}],
        ),
        [
            "spec.driver: must be a string",
            "spec.devices[1].color: unknown field",
            "spec.nodeName: Invalid value",
            "spec.devices[0].name: Invalid value",
            "spec.devices[2].name: Duplicate value",
        ],
    ),
    # An unreadable value is not also a missing one.
    (
        pool(
            resources=[{"name": "units", "capacity": []}, {"name": 1, "capacity": 1}],
            devices=[
                {"name": "a", "attributes": [{"name": "n", "intValue": "x"}]},
                {"name": "b", "requests": {"lanes": 1}},
            ],
        ),
        [
            "spec.resources[0].capacity: must be a quantity",
            "spec.resources[1].name: must be a string",
            "spec.devices[0].attributes[0].intValue: must be a 64-bit integer",
        ],
    ),
    # The items after an unreadable one have other numbers: nothing is said about them.
    (
        document("DevicePool", "p", {"devices": [{"name": "c d"}, "a b", {"name": ""}]}),
        ["spec.devices[1]: must be a mapping", "spec.driver: Required value"],
    ),
    (
        claim("c", {"deviceClass": 3}, {"deviceclass": "gpu"}),
        [
            "spec.claims[0].deviceClass: must be a string",
            "spec.claims[1].deviceclass: unknown field",
            "spec.claims[1].deviceClass: Required value",
        ],
    ),
]


@pytest.mark.parametrize(("found", "lines"), FORM_AND_RULES, ids=range(len(FORM_AND_RULES)))
def test_errors_of_form_and_broken_rules_are_reported_together(found, lines):
    with pytest.raises(InvalidObject) as caught:
        read_object(found)
    texts = [line.partition(": ")[2] for line in caught.value.lines]
    assert len(texts) == len(lines), texts
    for text, line in zip(texts, lines, strict=True):
        assert text.startswith(line)


def test_limits_can_equal_requests():
    amounts = {"count": 2, "memory": "1Gi"}
    found = read_object(of_detail(requests=amounts, limits=amounts))
    assert found.claims[0].detail.limits == found.claims[0].detail.requests


def test_too_many_devices_are_one_line():
    found = pool(devices=[f"d{number}" for number in range(MAX_DEVICES + 1)])
    assert lines(found) == [
        f'DevicePool "p": spec.devices: Too many: 20001: must have at most {MAX_DEVICES} items'
    ]


def test_parser_stops_at_too_many_items():
    with pytest.raises(
        InvalidObject, match=f"^p.yaml: line 1: the list has more than {MAX_DEVICES}"
    ):
        read_text(f"[{'1,' * (MAX_DEVICES + 1)}}}", "p.yaml")


def test_device_status_must_name_an_allocated_device():
    allocated = {"devicePoolName": "p", "deviceName": "d"}

    def with_status(**status):
        found = claim("c")
        found["status"] = {"allocations": [allocated], "deviceStatuses": [{**allocated, **status}]}
        return found

    addresses = [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]
    read_object(with_status(deviceIP="10.0.0.1", deviceIPs=addresses))
    read_object(with_status(deviceIP="10.0.0.1"))
    (line,) = lines(with_status(deviceIPs=addresses))
    assert 'deviceIPs[0].ip: Invalid value: "10.0.0.1": must be equal to deviceIP' in line
    (line,) = lines(with_status(deviceIP="10.0.0.2", deviceIPs=addresses))
    assert "must be equal to deviceIP" in line
    (line,) = lines(with_status(deviceName="e"))
    assert 'Invalid value: "p/e": the device is not allocated to the claim' in line


def test_check_validates_objects_made_in_a_program():
    bad = api.DeviceClass(api.ObjectMeta("gpu"), "d.example.com")
    with pytest.raises(InvalidObject, match=r'^DeviceClass "gpu": spec.deviceType: Required value'):
        check(bad)
    check(api.DeviceClass(api.ObjectMeta("gpu"), "d.example.com", "gpu"))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@st.composite
def damaged(draw):
    """Draw a valid document in which one field at any depth has another value."""
    found = copy.deepcopy(draw(st.sampled_from(EVERYTHING[:3])))
    node = found
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = draw(st.sampled_from(keys))
        below = node[key]
        if not isinstance(below, (dict, list)) or not below or draw(st.booleans()):
            node[key] = draw(VALUES)
            return found
        node = below


@examples(0.5)
@given(damaged())
def test_any_document_is_read_or_rejected(found):
    try:
        again = read_object(found)
    except InvalidObject as error:
        assert error.lines and all("\n" not in line for line in error.lines)
    else:
        assert read_object(write_object(again)) == again


ATTRIBUTES = st.builds(
    api.Attribute,
    st.just("x"),
    st.none() | st.sampled_from(["", "1", "1Gi", "1.0.0"]),
    st.none() | st.sampled_from([0, 1]),
    st.none() | st.sampled_from(["1Gi", "1024Mi", "1"]).map(Quantity.parse),
    st.none() | st.sampled_from(["1.0.0", "1.0.0+a"]),
)


@given(ATTRIBUTES, ATTRIBUTES)
def test_equality_of_attributes(one, other):
    assert one.equals(other) == other.equals(one)
    assert one.equals(one) == bool(one.values())
    if len(one.values()) == len(other.values()) == 1:
        assert one.equals(other) == (one.values() == other.values())
