"""Properties of responses: bytes and values agree, and a cached response equals a new one."""

from __future__ import annotations

from google.protobuf.json_format import MessageToDict
from hypothesis import given
from hypothesis import strategies as st

from podresources import (
    Allocatable,
    ClaimResource,
    Container,
    ContainerDevices,
    ContainerMemory,
    DynamicResource,
    MemorySource,
    Pod,
    View,
    as_dict,
    decoding,
)
from protos import podresources_v1 as v1
from protos import podresources_v1alpha1 as v1alpha1
from tests.strategies import examples

INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=8)


def tuples(of: st.SearchStrategy, size: int = 3) -> st.SearchStrategy:
    return st.lists(of, max_size=size).map(tuple)


DEVICES = st.builds(ContainerDevices, TEXT, tuples(TEXT), tuples(INT64))
MEMORY = st.builds(ContainerMemory, TEXT, st.integers(0, 2**64 - 1), tuples(INT64))
CLAIM_RESOURCES = st.builds(ClaimResource, TEXT, TEXT, TEXT, tuples(TEXT), st.none() | TEXT)
CLAIMS = st.builds(DynamicResource, TEXT, TEXT, tuples(CLAIM_RESOURCES))
CONTAINERS = st.builds(
    Container,
    TEXT,
    tuples(DEVICES),
    tuples(INT64),
    tuples(MEMORY),
    tuples(CLAIMS),
    restartable_init=st.booleans(),
)
PODS = st.builds(Pod, TEXT, TEXT, tuples(CONTAINERS), tuples(INT64), tuples(MEMORY))
ALLOCATABLES = st.builds(Allocatable, tuples(DEVICES), tuples(INT64), tuples(MEMORY))


def split(devices):
    return tuple(entry for group in devices for entry in group.entries())


def as_listed(pod: Pod) -> Pod:
    """Return the pod as the kubelet lists it: one entry per device ID and NUMA node."""
    containers = (
        Container(c.name, split(c.devices), c.cpu_ids, c.memory, c.dynamic_resources)
        for c in pod.containers
    )
    return Pod(pod.name, pod.namespace, tuple(containers), pod.cpu_ids, pod.memory)


def as_listed_v1alpha1(pod: Pod) -> Pod:
    containers = (
        Container(
            c.name, tuple(ContainerDevices(d.resource_name, d.device_ids) for d in split(c.devices))
        )
        for c in pod.containers
        if not c.restartable_init
    )
    return Pod(pod.name, pod.namespace, tuple(containers))


def json(message):
    return MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


@examples(0.5)
@given(tuples(PODS))
def test_list_is_read_back(pods):
    body = View(MemorySource(pods)).list_v1()
    listed = tuple(map(as_listed, pods))
    assert decoding.pods_from_bytes(body) == listed
    assert json(v1.ListPodResourcesResponse.FromString(body)) == as_dict(listed)


@examples(0.5)
@given(tuples(PODS))
def test_v1alpha1_list_has_app_containers_without_topology(pods):
    body = View(MemorySource(pods)).list_v1alpha1()
    assert decoding.pods_from_v1alpha1_bytes(body) == tuple(map(as_listed_v1alpha1, pods))
    v1alpha1.ListPodResourcesResponse.FromString(body)


@given(ALLOCATABLES)
def test_allocatable_is_read_back(allocatable):
    body = View(MemorySource(allocatable=allocatable)).allocatable_v1()
    listed = Allocatable(split(allocatable.devices), allocatable.cpu_ids, allocatable.memory)
    assert decoding.allocatable_from_bytes(body) == listed
    assert json(v1.AllocatableResourcesResponse.FromString(body)) == as_dict(listed)


@examples(0.5)
@given(st.lists(PODS, max_size=4, unique_by=lambda pod: (pod.namespace, pod.name)))
def test_get_returns_each_pod(pods):
    view = View(MemorySource(pods))
    for pod in pods:
        body = view.get_v1(pod.name, pod.namespace)
        assert decoding.pod_from_bytes(body) == as_listed(pod)
        response = v1.GetPodResourcesResponse.FromString(body)
        assert json(response) == {"pod_resources": as_dict(as_listed(pod))}
    assert view.get_v1("no such pod in here", "at all") is None


def responses(view: View, pods) -> tuple:
    found = [view.get_v1(pod.name, pod.namespace) for pod in pods]
    return view.list_v1(), view.list_v1alpha1(), view.allocatable_v1(), found


CHANGES = st.one_of(
    st.tuples(st.just("add"), PODS),
    st.tuples(st.just("remove"), st.integers(0, 5)),
    st.tuples(st.just("change"), st.integers(0, 5), PODS),
    st.tuples(st.just("repeat"), st.integers(0, 5)),
    st.tuples(st.just("mark"), st.integers(0, 5)),
    st.tuples(st.just("allocatable"), ALLOCATABLES),
    st.tuples(st.just("nothing")),
)


def changed(pods: list[Pod], change) -> list[Pod]:
    match change:
        case ("add", pod):
            return [*pods, pod]
        case ("remove", index):
            return pods[:index] + pods[index + 1 :]
        case ("change", index, pod) if index < len(pods):
            return [*pods[:index], pod, *pods[index + 1 :]]
        case ("repeat", index):  # the same object twice
            return pods + pods[index : index + 1]
        case ("mark", index) if index < len(pods):  # an equal pod with a different v1alpha1 form
            old = pods[index]
            marked = tuple(
                Container(c.name, c.devices, restartable_init=not c.restartable_init)
                for c in old.containers
            )
            return [*pods[:index], Pod(old.name, old.namespace, marked), *pods[index + 1 :]]
    return pods


@examples(0.5)
@given(st.lists(CHANGES, max_size=12))
def test_cached_response_equals_new_one(changes):
    source = MemorySource()
    caching = View(source)
    for change in changes:
        pods = changed(list(source.pods()), change)
        source.replace(pods=pods, allocatable=change[1] if change[0] == "allocatable" else None)
        new = View(MemorySource(pods, source.allocatable()))
        assert responses(caching, pods) == responses(new, pods)
