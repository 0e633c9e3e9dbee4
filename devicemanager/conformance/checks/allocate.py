"""A: Allocate."""

from __future__ import annotations

import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from devicemanager.conformance.check_run import CheckRun
from devicemanager.conformance.client import CallFailed, PluginClient, rejection
from devicemanager.conformance.outcomes import Failed, Scene, Severity, Skipped, Warned
from devicemanager.conformance.registry import check
from devicemanager.core.api.cdi import split_name

if TYPE_CHECKING:
    from protos import deviceplugin_v1beta1 as dp

MUST, SHOULD = Severity.MUST, Severity.SHOULD
_ENV_NAME = re.compile(r"[^=\x00-\x1f\x7f]+")
_ANNOTATION_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_UNKNOWN = "no-such-device"


def _one(trial: CheckRun, client: PluginClient, ids: Iterable[str]) -> dp.ContainerAllocateResponse:
    """The answer for one container. Raises Failed, and Skipped if there is not one answer."""
    try:
        return _exactly_one(trial, client, list(ids))
    except _Miscounted as failed:
        raise Skipped(f"{failed}: see A01") from None


class _Miscounted(Failed):
    """There are not as many responses as containers."""


def _exactly_one(
    trial: CheckRun, client: PluginClient, ids: list[str]
) -> dp.ContainerAllocateResponse:
    try:
        answers = client.allocate(ids, seconds=trial.limits.allocate_seconds).container_responses
    except CallFailed as error:
        raise Failed(f"Allocate of {_some(ids)}: {error}") from None
    if len(answers) != 1:
        raise _Miscounted(f"Allocate of {_some(ids)}: {len(answers)} responses for one container")
    return answers[0]


def _steady(trial: CheckRun, client: PluginClient, ids: list[str]) -> frozenset[tuple[str, str]]:
    """What is in two answers to the same request: A06 is about the rest."""
    first, second = (_artefacts(_exactly_one(trial, client, ids)) for _ in range(2))
    return first & second


def _some(ids: list[str]) -> str:
    return ", ".join(ids[:4]) + (f", ... {len(ids)} in all" if len(ids) > 4 else "")


def _every_answer(trial: CheckRun) -> Iterator[tuple[str, dp.ContainerAllocateResponse]]:
    """The answers for each of the first devices alone, and for all of them together."""
    for resource in trial.resources:
        ids = trial.healthy_ids(resource)[: trial.limits.single_devices]
        with trial.client(resource) as client:
            for group in (*([id_] for id_ in ids), ids):
                yield f"{resource} {_some(group)}", _one(trial, client, group)


def _artefacts(answer: dp.ContainerAllocateResponse) -> frozenset[tuple[str, str]]:
    """What a container would get, without what may differ from call to call."""
    return frozenset(
        [
            *(
                ("device", f"{d.host_path}:{d.container_path}:{d.permissions}")
                for d in answer.devices
            ),
            *(("mount", f"{m.host_path}:{m.container_path}:{m.read_only}") for m in answer.mounts),
            *(("cdi", each.name) for each in answer.cdi_devices),
            *(("env", name) for name in answer.envs),
        ]
    )


@check(
    "A01",
    MUST,
    "answers for each container",
    does="allocates for 1, 2 and 4 containers in one call",
    expects="as many responses, in the same order",
    production='"no containers return in allocation response", and the devices stay taken',
    links="PROTO, DM",
)
def a01(trial: CheckRun) -> None:
    ids = trial.healthy_ids()
    with trial.client() as client:
        single = {id_: _steady(trial, client, [id_]) for id_ in ids[:4]}
        _exactly_one(trial, client, ids[:2])
        for count in (1, 2, 4):
            groups = [[ids[number % len(ids)]] for number in range(count)]
            try:
                answers = client.allocate(*groups).container_responses
            except CallFailed as error:
                raise Failed(f"{count} containers: {error}") from None
            if len(answers) != count:
                raise Failed(f"{len(answers)} responses for {count} containers")
            for [id_], answer in zip(groups, answers, strict=True):
                if missing := single[id_] - _artefacts(answer):
                    raise Failed(
                        f"of {count} containers, that with {id_} got another's answer: "
                        f"{sorted(missing)[:2]} is not in it"
                    )


@check(
    "A02",
    MUST,
    "rejects an unknown device",
    does="allocates an id that was never listed",
    expects="an error, best INVALID_ARGUMENT or NOT_FOUND, and the plugin lives",
    production="a container starts without its device",
    links="DM",
)
def a02(trial: CheckRun) -> str:
    with trial.client() as client:
        error = rejection(lambda: client.allocate([_UNKNOWN]))
    if error is None:
        raise Failed("Allocate took an unknown id")
    trial.check_alive("an unknown id")
    return error.code


@check(
    "A03",
    SHOULD,
    "rejects a broken device",
    does="breaks a device and allocates it",
    expects="an error",
    production="a pod on a dead device",
    links="DM",
    scene=Scene.OWN,
    hooks=("break-device",),
)
def a03(trial: CheckRun) -> None:
    trial.start()
    id_ = trial.healthy_ids()[0]
    trial.broken(id_)
    with trial.client() as client:
        if rejection(lambda: client.allocate([id_])) is None:
            raise Failed(f"Allocate took {id_}, which is broken")


@check(
    "A04",
    MUST,
    "allocates all or nothing",
    does="allocates a device together with an unknown one",
    expects="an error for the whole call",
    production="a half-configured container",
    links="PROTO",
)
def a04(trial: CheckRun) -> None:
    ids = trial.healthy_ids()
    with trial.client() as client:
        for groups in ([[ids[0], _UNKNOWN]], [[ids[0]], [_UNKNOWN]]):
            if rejection(partial(client.allocate, *groups)) is None:
                raise Failed(f"Allocate took {groups}")


@check(
    "A05",
    MUST,
    "allocates any set of its devices",
    does="allocates each device alone, all together, and all in another order",
    expects="answers, and the same artefacts in any order",
    production="a variable names the last device alone",
    links="DM",
)
def a05(trial: CheckRun) -> str:
    for resource in trial.resources:
        ids = trial.healthy_ids(resource)[: trial.limits.single_devices]
        with trial.client(resource) as client:
            for group in (*([id_] for id_ in ids), ids):
                _one(trial, client, group)
            mixed = trial.rng.sample(ids, len(ids))
            first, second = (_steady(trial, client, each) for each in (ids, mixed))
        if first != second:
            odd = sorted(first ^ second)[0]
            raise Failed(f"{resource}: in another order of ids, {odd[0]} {odd[1]} differs")
    return f"{len(ids)} devices"


@check(
    "A06",
    MUST,
    "allocates a device again",
    does="sends the same request twice",
    expects="answers with the same artefacts (annotations may differ)",
    production="the kubelet asks again after a lost checkpoint and for a retried admission",
    links="k/k#52678, k/k#56022",
)
def a06(trial: CheckRun) -> None:
    for resource in trial.resources:
        ids = trial.healthy_ids(resource)[:2]
        with trial.client(resource) as client:
            first, second = _one(trial, client, ids), _one(trial, client, ids)
        if _artefacts(first) != _artefacts(second):
            odd = sorted(_artefacts(first) ^ _artefacts(second))[0]
            raise Failed(f"{resource}: the second time, {odd[0]} {odd[1]} differs")


@check(
    "A07",
    MUST,
    "allocates without end",
    does="allocates as often as the limit allocations says, with no release: there is none",
    expects="answers",
    production="slots leak until pods are rejected",
    links="k/k#59110, akri#849",
)
def a07(trial: CheckRun) -> str:
    ids = trial.healthy_ids()
    with trial.client() as client:
        for number in range(trial.limits.allocations):
            try:
                client.allocate([ids[number % len(ids)]], seconds=trial.limits.allocate_seconds)
            except CallFailed as error:
                raise Failed(f"allocation {number + 1}: {error}") from None
    return f"{trial.limits.allocations} allocations"


@check(
    "A08",
    MUST,
    "allocates in parallel",
    does="sends parallel_allocations calls at a time, parallel_rounds times, with a list stream "
    "open",
    expects="answers to all",
    production="admission is serial: one call that hangs blocks the node",
    links="rdma#51",
)
def a08(trial: CheckRun) -> None:
    ids = trial.healthy_ids()
    count = trial.limits.parallel_allocations
    with trial.client() as client, client.watch() as stream:
        trial.first_list(stream)
        with ThreadPoolExecutor(count, thread_name_prefix="allocate") as pool:
            for _ in range(trial.limits.parallel_rounds):
                calls = [
                    pool.submit(_one, trial, client, [ids[number % len(ids)]])
                    for number in range(count)
                ]
                for call in calls:
                    call.result()


@check(
    "A09",
    MUST,
    "allocates in time",
    does="measures Allocate of one device and of all",
    expects="within allocate_seconds (a warning after allocate_warn_seconds): the kubelet sets no "
    "deadline",
    production="the node stops admitting pods",
    links="DM",
)
def a09(trial: CheckRun) -> str:
    longest = 0.0
    for resource in trial.resources:
        ids = trial.healthy_ids(resource)
        with trial.client(resource) as client:
            for group in (ids[:1], ids):
                took = trial.timed(partial(_one, trial, client, group), "Allocate")
                longest = max(longest, took)
    if longest > trial.limits.allocate_warn_seconds:
        raise Warned(f"Allocate took {longest:.1f} s")
    return f"{longest:.3f} s"


@check(
    "A10",
    MUST,
    "names devices that a runtime takes",
    does="looks at the devices in every answer",
    expects="absolute paths; permissions of r, w and m, and not empty; each container path once",
    production="the runtime rejects to create the container",
    links="PROTO",
)
def a10(trial: CheckRun) -> None:
    for what, answer in _every_answer(trial):
        for device in answer.devices:
            for path in (device.host_path, device.container_path):
                if not path.startswith("/"):
                    raise Failed(f"{what}: {path!r} is no absolute path")
            letters = device.permissions
            if not letters or set(letters) - set("rwm") or len(set(letters)) < len(letters):
                raise Failed(f"{what}: {device.host_path} has permissions {letters!r}")
        _unique(what, "device", [device.container_path for device in answer.devices])


@check(
    "A11",
    SHOULD,
    "names devices of the host",
    does="looks for the devices of every answer on this machine",
    expects="a character or block device",
    production='"not a device node"',
    links="nv#1041",
)
def a11(trial: CheckRun) -> str:
    seen = set()
    for what, answer in _every_answer(trial):
        for device in answer.devices:
            if not device.host_path.startswith("/"):
                raise Skipped(f"{what}: {device.host_path!r} is no absolute path: see A10")
            path = trial.host_path(device.host_path)
            if not path.exists():
                raise Failed(f"{what}: {device.host_path} is not there")
            mode = path.stat().st_mode
            if not (stat.S_ISCHR(mode) or stat.S_ISBLK(mode) or stat.S_ISDIR(mode)):
                raise Failed(f"{what}: {device.host_path} is no device")
            seen.add(device.host_path)
    if not seen:
        raise Skipped("no answer names a device")
    return f"{len(seen)} devices"


@check(
    "A12",
    MUST,
    "names mounts that can be made",
    does="looks at the mounts in every answer",
    expects="absolute paths, the host's side exists, nothing of the kubelet's directory, each "
    "container path once",
    production='"no such file or directory" when the container starts',
    links="PROTO",
)
def a12(trial: CheckRun) -> None:
    kubelet = (str(trial.kubelet.plugin_dir), "/var/lib/kubelet/device-plugins")
    for what, answer in _every_answer(trial):
        for mount in answer.mounts:
            for path in (mount.host_path, mount.container_path):
                if not path.startswith("/"):
                    raise Failed(f"{what}: {path!r} is no absolute path")
            if mount.host_path.rstrip("/") in kubelet:
                raise Failed(f"{what}: {mount.host_path} is the kubelet's own directory")
            if not trial.host_path(mount.host_path).exists():
                raise Failed(f"{what}: {mount.host_path} is not there")
        _unique(what, "mount", [mount.container_path for mount in answer.mounts])


@check(
    "A13",
    MUST,
    "names every device in its variables",
    does="looks at the environment for one device, for another, and for both",
    expects="names without = and control characters, no NUL; what names one device alone names "
    "both together, in one variable or in several",
    production="the program in the container sees one of its devices",
    links="DM",
)
def a13(trial: CheckRun) -> None:
    for what, answer in _every_answer(trial):
        for name, value in answer.envs.items():
            if not _ENV_NAME.fullmatch(name):
                raise Failed(f"{what}: {name!r} is no name for a variable")
            if "\0" in value:
                raise Failed(f"{what}: the value of {name} has a NUL")
    for resource in trial.resources:
        ids = trial.healthy_ids(resource)
        if len(ids) < 2:
            continue
        with trial.client(resource) as client:
            alone = [dict(_one(trial, client, [id_]).envs) for id_ in ids[:2]]
            both = dict(_one(trial, client, ids[:2]).envs)
        for name in alone[0].keys() & alone[1].keys() & both.keys():
            first, second = (envs[name] for envs in alone)
            if first == second or both[name] not in (first, second):
                continue
            lost = second if both[name] == first else first
            if not any(lost in value for value in both.values()):
                raise Failed(
                    f"{resource}: {name} is {first!r} for {ids[0]}, {second!r} for {ids[1]}, and "
                    f"{both[name]!r} for both"
                )


@check(
    "A14",
    MUST,
    "names CDI devices in full",
    does="looks at the CDI devices in every answer",
    expects="vendor/class=name",
    production='"unresolvable CDI devices"',
    links="PROTO, moby#47633",
)
def a14(trial: CheckRun) -> str:
    names = set()
    for what, answer in _every_answer(trial):
        for device in answer.cdi_devices:
            if split_name(device.name) is None:
                raise Failed(f"{what}: {device.name!r} is no CDI device: vendor/class=name")
            names.add(device.name)
    if not names:
        raise Skipped("no answer names a CDI device")
    return f"{len(names)} CDI devices"


@check(
    "A15",
    SHOULD,
    "annotates as Kubernetes does",
    does="looks at the annotations in every answer",
    expects="keys with a valid name of at most 63 characters; a device is not injected by "
    "annotation and by cdi_devices",
    production="a device twice, or a container that is rejected",
    links="https://github.com/cncf-tags/container-device-interface/pull/43",
)
def a15(trial: CheckRun) -> None:
    for what, answer in _every_answer(trial):
        named = {device.name for device in answer.cdi_devices}
        for key, value in answer.annotations.items():
            name = key.rpartition("/")[2]
            if len(name) > 63 or not _ANNOTATION_NAME.fullmatch(name):
                raise Failed(f"{what}: {key!r} is no valid annotation")
            if key.startswith("cdi.k8s.io/") and (twice := named & set(value.split(","))):
                raise Failed(f"{what}: {min(twice)} is injected by annotation and by cdi_devices")


@check(
    "A16",
    SHOULD,
    "has resources that go together",
    does="compares what two resources of the plugin give one container",
    expects="no variable, mount or device with two different values",
    production="the kubelet keeps one and says nothing but a line in its log",
    links="DM",
)
def a16(trial: CheckRun) -> None:
    if len(trial.resources) < 2:
        raise Skipped("the plugin has one resource")
    known: dict[tuple[str, str], tuple[str, str]] = {}
    for resource in trial.resources:
        with trial.client(resource) as client:
            answer = _one(trial, client, trial.healthy_ids(resource)[:1])
        given = {("variable", name): value for name, value in answer.envs.items()}
        given |= {("mount", each.container_path): each.host_path for each in answer.mounts}
        given |= {("device", each.container_path): each.host_path for each in answer.devices}
        for key, value in given.items():
            other, before = known.setdefault(key, (resource, value))
            if before != value:
                raise Failed(
                    f"{key[0]} {key[1]} is {before!r} of {other} and {value!r} of {resource}"
                )


@check(
    "A17",
    MUST,
    "bears odd requests",
    does="sends an empty request, one without ids, one with an id twice, and unknown fields",
    expects="answers or errors, and the plugin lives",
    production="a panic",
    links="PROTO",
)
def a17(trial: CheckRun) -> None:
    from protos.deviceplugin_v1beta1_grpc import ALLOCATE

    id_ = trial.healthy_ids()[0]
    with trial.client() as client:
        # Field 1000, a text: what a newer kubelet might send.
        for request in (b"", b"\x0a\x00", _request(id_, id_), b"\xc2\x3e\x01x" + _request(id_)):
            call = partial(client.raw, ALLOCATE, request, trial.limits.allocate_seconds)
            rejection(call, f"request {request.hex()}")
    trial.check_alive("odd requests")


@check(
    "A18",
    MUST,
    "shares no device between devices",
    does="compares the answers for single devices",
    expects="no device node in two of them (waive this for devices that are meant to be shared)",
    production="two pods on one device",
    links="DOC",
)
def a18(trial: CheckRun) -> str:
    count = 0
    for resource in trial.resources:
        holders: dict[str, list[str]] = {}
        ids = trial.healthy_ids(resource)[: trial.limits.single_devices]
        with trial.client(resource) as client:
            for id_ in ids:
                for path in {device.host_path for device in _one(trial, client, [id_]).devices}:
                    holders.setdefault(path, []).append(id_)
        # A node that every device comes with is a control device, such as /dev/nvidiactl.
        shared = {path: held for path, held in holders.items() if 1 < len(held) < len(ids)}
        if shared:
            path, held = min(shared.items())
            raise Failed(f"{resource}: {path} is in {held[0]} and in {held[1]}")
        if len(ids) > 1 and holders and all(len(held) == len(ids) for held in holders.values()):
            raise Failed(f"{resource}: all devices are {min(holders)}")
        count += len(holders)
    return f"{count} device nodes"


@check(
    "A19",
    SHOULD,
    "allocates what it has just listed",
    does="adds a device, and allocates it as soon as it is listed",
    expects="an answer",
    production="an admission error after a device was plugged in",
    links="DM",
    scene=Scene.OWN,
    hooks=("add-device",),
)
def a19(trial: CheckRun) -> None:
    trial.start()
    before = {device.ID for device in trial.devices()}
    trial.hook("add-device")

    def new() -> set[str]:
        return {device.ID for device in trial.devices()} - before

    if trial.until(lambda: bool(new()), trial.limits.refresh_seconds) is None:
        raise Failed("the device that was added does not appear")
    with trial.client() as client:
        _one(trial, client, sorted(new())[:1])


def _request(*ids: str) -> bytes:
    from protos import deviceplugin_v1beta1 as dp

    request = dp.ContainerAllocateRequest(devices_ids=list(ids))
    return dp.AllocateRequest(container_requests=[request]).SerializeToString()


def _unique(what: str, kind: str, paths: list[str]) -> None:
    for path, count in Counter(paths).items():
        if count > 1:
            raise Failed(f"{what}: {count} {kind}s at {path}")
