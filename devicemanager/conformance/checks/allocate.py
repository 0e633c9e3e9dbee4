"""Checks of family A: Allocate.

Two responses for the same devices may differ, for example in random annotation keys. Therefore
checks compare only the *content* of a response: its devices, mounts, CDI devices and names of
variables. Check A06 fails if two responses for the same devices have different contents. Other
checks use only the content that both responses have.
"""

from __future__ import annotations

import math
import re
import stat
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeAlias

from devicemanager.conformance.check_run import CheckRun
from devicemanager.conformance.checks.steps import (
    NO_HOT_PLUG,
    UNKNOWN_ID,
    allocate_many,
    assume_allocates,
    check_sent,
)
from devicemanager.conformance.client import CallFailed, PluginClient, rejection
from devicemanager.conformance.outcomes import Failed, Skipped, Warned
from devicemanager.conformance.registry import builtin
from devicemanager.core.api.cdi import split_name
from devicemanager.core.printable import counted, listed
from protos import deviceplugin_v1beta1 as dp
from protos.deviceplugin_v1beta1_grpc import ALLOCATE

_ENV_NAME = re.compile(r"[^=\x00-\x1f\x7f]+")
_ANNOTATION_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_LONGEST_ANNOTATION = 63
_PLUGIN_DIR = "/var/lib/kubelet/device-plugins"
_MOST_SHOWN = 4

_Content: TypeAlias = frozenset[tuple[str, str]]
"""Content of a response: pairs of a kind, such as mount, and a text."""


class _WrongCount(Failed):
    """Failure of a check: the number of responses differs from the number of containers."""


def _allocate(
    run: CheckRun, client: PluginClient, ids: Iterable[str]
) -> dp.ContainerAllocateResponse:
    """Call Allocate for one container and return its response.

    Raises Failed if the call fails, and Skipped if the number of responses is not 1.
    """
    try:
        return _allocate_one(run, client, list(ids))
    except _WrongCount as failed:
        raise Skipped(str(failed), cause="A01") from None


def _allocate_one(
    run: CheckRun, client: PluginClient, ids: list[str]
) -> dp.ContainerAllocateResponse:
    try:
        responses = client.allocate(ids, seconds=run.limits.allocate_seconds).container_responses
    except CallFailed as error:
        raise Failed(
            f"Allocate of {listed(ids, _MOST_SHOWN)}: {error}",
            symptom="pods with these devices are rejected with UnexpectedAdmissionError",
        ) from None
    if len(responses) != 1:
        raise _WrongCount(
            f"Allocate of {listed(ids, _MOST_SHOWN)} returned {len(responses)} responses for one "
            "container"
        )
    return responses[0]


def _content(response: dp.ContainerAllocateResponse) -> _Content:
    """Return the devices, mounts, CDI devices and names of variables in a response. Parts that may
    differ between calls are left out."""
    return frozenset(
        [
            *(
                ("device", f"{d.host_path}:{d.container_path}:{d.permissions}")
                for d in response.devices
            ),
            *(
                ("mount", f"{m.host_path}:{m.container_path}:{m.read_only}")
                for m in response.mounts
            ),
            *(("cdi", each.name) for each in response.cdi_devices),
            *(("env", name) for name in response.envs),
        ]
    )


def _common_content(run: CheckRun, client: PluginClient, ids: list[str]) -> _Content:
    """Call Allocate twice with the same IDs. Return the content that both responses have."""
    first, second = (_content(_allocate_one(run, client, ids)) for _ in range(2))
    return first & second


def _single_ids(run: CheckRun, resource: str) -> list[str]:
    return run.healthy_ids(resource)[: run.limits.single_devices]


def _clients(run: CheckRun) -> Iterator[tuple[str, PluginClient]]:
    """Iterate over the resources with devices, as pairs of resource and connection.

    Raises Skipped if the plugin fails to allocate a device: A05 reports that, once for all checks.
    """
    for resource, client in run.clients_with_devices():
        assume_allocates(run, client, resource)
        yield resource, client


def _every_response(run: CheckRun) -> Iterator[tuple[str, dp.ContainerAllocateResponse]]:
    """Iterate over Allocate responses: for each device alone, and for all devices of a resource
    together.

    Each response comes with a text that names resource and devices.
    """
    for resource, client in _clients(run):
        ids = _single_ids(run, resource)
        for group in (*([id_] for id_ in ids), ids):
            yield f"{resource} {listed(group, _MOST_SHOWN)}", _allocate(run, client, group)


@builtin
def a01(run: CheckRun) -> None:
    ids = run.healthy_ids()
    with run.client() as client:
        assume_allocates(run, client)
        # Allocate each device alone first, to recognize its response among those for several
        # containers.
        single = {id_: _common_content(run, client, [id_]) for id_ in ids[:4]}
        _allocate_one(run, client, ids[:2])
        for count in (1, 2, 4):
            groups = [[ids[number % len(ids)]] for number in range(count)]
            try:
                responses = client.allocate(*groups).container_responses
            except CallFailed as error:
                raise Failed(f"Allocate for {counted(count, 'container')}: {error}") from None
            if len(responses) != count:
                raise Failed(
                    f"Allocate returned {counted(len(responses), 'response')} for "
                    f"{counted(count, 'container')}"
                )
            for [id_], response in zip(groups, responses, strict=True):
                if missing := single[id_] - _content(response):
                    raise Failed(
                        f"Allocate for {counted(count, 'container')}: the response for the "
                        f"container with {id_} lacks {sorted(missing)[:2]}"
                    )


@builtin
def a02(run: CheckRun) -> str:
    with run.client() as client:
        error = rejection(lambda: client.allocate([UNKNOWN_ID]))
    if error is None:
        raise Failed("Allocate accepted an unknown ID")
    # A panic also results in an error, but it stops the plugin.
    run.check_alive("an unknown ID")
    return error.code


@builtin
def a03(run: CheckRun) -> None:
    run.start()
    id_ = run.healthy_ids()[0]
    run.assume_broken(id_)
    with run.client() as client:
        if rejection(lambda: client.allocate([id_])) is None:
            raise Failed(f"Allocate accepted {id_}, which is unhealthy")


@builtin
def a04(run: CheckRun) -> None:
    ids = run.healthy_ids()
    with run.client() as client:
        # Test with one container and with two: some plugins handle containers one by one.
        for groups in ([[ids[0], UNKNOWN_ID]], [[ids[0]], [UNKNOWN_ID]]):
            if rejection(partial(client.allocate, *groups)) is None:
                raise Failed(f"Allocate accepted an unknown ID next to a valid one: {groups}")


@builtin
def a05(run: CheckRun) -> str:
    count = 0
    for resource, client in run.clients_with_devices():
        ids = _single_ids(run, resource)
        for group in (*([id_] for id_ in ids), ids):
            _allocate(run, client, group)
        # The kubelet stores IDs in a set, so it sends them in any order.
        mixed = run.rng.sample(ids, len(ids))
        first, second = (_common_content(run, client, each) for each in (ids, mixed))
        if first != second:
            kind, text = sorted(first ^ second)[0]
            raise Failed(
                f"{resource}: the Allocate response contains {kind} {text} for only one order of "
                "the same IDs"
            )
        count += len(ids)
    return counted(count, "device")


@builtin
def a06(run: CheckRun) -> None:
    for resource, client in _clients(run):
        # Kubelets repeat Allocate: after a lost checkpoint, for a retried admission, and when an
        # app container reuses the device of an init container.
        ids = run.healthy_ids(resource)[:2]
        first, second = (_content(_allocate(run, client, ids)) for _ in range(2))
        if first != second:
            kind, text = sorted(first ^ second)[0]
            raise Failed(
                f"{resource}: only one of two Allocate responses for the same IDs contains {kind} "
                f"{text}"
            )


@builtin
def a07(run: CheckRun) -> str:
    with run.client() as client:
        assume_allocates(run, client)
        return counted(allocate_many(run, client), "allocation")


@builtin
def a08(run: CheckRun) -> None:
    ids = run.healthy_ids()
    count = run.limits.parallel_allocations
    # The kubelet's stream is open meanwhile, because the usual deadlock is a lock that Allocate and
    # ListAndWatch share.
    with run.client() as client, ThreadPoolExecutor(count, thread_name_prefix="allocate") as pool:
        assume_allocates(run, client)
        for _ in range(run.limits.parallel_rounds):
            calls = [
                pool.submit(_allocate, run, client, [ids[number % len(ids)]])
                for number in range(count)
            ]
            for call in calls:
                call.result()


@builtin
def a09(run: CheckRun) -> str:
    longest = 0.0
    for resource, client in _clients(run):
        ids = run.healthy_ids(resource)
        for group in (ids[:1], ids):
            longest = max(longest, _allocate_time(run, client, group))
    if longest > run.limits.allocate_warn_seconds:
        raise Warned(
            f"Allocate took {longest:.1f} s, more than {run.limits.allocate_warn_seconds:g} s"
        )
    return f"{longest:.3f} s"


def _allocate_time(run: CheckRun, client: PluginClient, ids: list[str]) -> float:
    """Return the seconds that Allocate takes. After a slow call, the fastest of ``repeats`` calls
    counts: on a busy machine, any single call can be slow."""
    fastest = math.inf
    for _ in range(run.limits.repeats):
        fastest = min(fastest, run.timed(partial(_allocate, run, client, ids), "Allocate"))
        if fastest <= run.limits.allocate_warn_seconds:
            break
    return fastest


@builtin
def a10(run: CheckRun) -> None:
    for what, response in _every_response(run):
        for device in response.devices:
            _check_absolute(what, device.host_path, device.container_path)
            letters = device.permissions
            if not letters or set(letters) - set("rwm") or len(set(letters)) < len(letters):
                raise Failed(
                    f"{what}: {device.host_path} has invalid permissions {letters!r}: use r, w, m"
                )
        _check_unambiguous(what, "device", response.devices)


@builtin
def a11(run: CheckRun) -> str:
    dev = run.plugin.under_test.hardware.dev
    seen, missing = set(), ""
    for what, response in _every_response(run):
        for device in response.devices:
            if not device.host_path.startswith("/"):
                raise Skipped(f"{what}: {device.host_path!r} is not an absolute path", cause="A10")
            seen.add(device.host_path)
            if problem := _why_missing(run, what, "device node", device.host_path):
                missing = missing or problem
                continue
            # Only root can create device nodes, so a declared directory may have other files.
            mode = run.plugin.path(device.host_path).stat().st_mode
            if dev is None and not _is_device_node(mode):
                raise Failed(f"{what}: {device.host_path} is not a device node")
    if missing:
        raise Warned(missing)
    if not seen:
        raise Skipped("no response has device nodes")
    return counted(len(seen), "device node")


def _why_missing(run: CheckRun, what: str, kind: str, path: str) -> str:
    """Return a text if a host path of a response does not exist on this machine; otherwise empty.

    Raises Failed if the path is below a directory for which the user has declared another one
    (``Hardware``): the path is then missing on every node, not only on this machine.
    """
    # The path as the plugin sees it: with --at-node-paths, it has a different view of the file
    # system.
    if run.plugin.path(path).exists():
        return ""
    option, directory = run.plugin.under_test.hardware.in_place_of(path)
    if directory is not None:
        raise Failed(f"{what}: the {kind} {path} does not exist in {directory} (--{option})")
    # It may belong to a driver that this machine lacks.
    advice = f": declare fake hardware with --{option}" if option else ""
    return f"{what}: the {kind} {path} does not exist on this machine{advice}"


def _is_device_node(mode: int) -> bool:
    # For a directory, the runtime uses all device nodes in it.
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode) or stat.S_ISDIR(mode)


@builtin
def a12(run: CheckRun) -> None:
    # A container with this mount can register plugins and remove the sockets of other plugins.
    plugin_dirs = (str(run.kubelet.plugin_dir), _PLUGIN_DIR)
    missing = ""
    for what, response in _every_response(run):
        for mount in response.mounts:
            _check_absolute(what, mount.host_path, mount.container_path)
            if mount.host_path.rstrip("/") in plugin_dirs:
                raise Failed(f"{what}: the response mounts the plugin directory {mount.host_path}")
            if problem := _why_missing(run, what, "mount", mount.host_path):
                missing = missing or problem
        _check_unambiguous(what, "mount", response.mounts)
    if missing:
        raise Warned(missing)


def _check_absolute(what: str, *paths: str) -> None:
    for path in paths:
        if not path.startswith("/"):
            raise Failed(f"{what}: invalid path {path!r}: expected an absolute path")


def _check_unambiguous(what: str, kind: str, given: Iterable[dp.DeviceSpec | dp.Mount]) -> None:
    """Raise Failed if a container path has two different host paths.

    The same pair of paths may repeat, for example if several device IDs have one device node: the
    kubelet skips the repetition (deviceRunContainerOptions, 1.36.3).
    """
    known: dict[str, str] = {}
    for each in given:
        before = known.setdefault(each.container_path, each.host_path)
        if before != each.host_path:
            raise Failed(
                f"{what}: the response has two {kind}s for the container path "
                f"{each.container_path}: {before} and {each.host_path}"
            )


@builtin
def a13(run: CheckRun) -> None:
    for what, response in _every_response(run):
        for name, value in response.envs.items():
            if not _ENV_NAME.fullmatch(name):
                raise Failed(
                    f"{what}: invalid variable name {name!r}: use no = and no control characters"
                )
            if "\0" in value:
                raise Failed(f"{what}: the value of variable {name} contains a NUL character")
    for resource, client in _clients(run):
        ids = run.healthy_ids(resource)[:2]
        if len(ids) == 2:
            alone = [dict(_allocate(run, client, [id_]).envs) for id_ in ids]
            _check_both_named(resource, ids, alone, dict(_allocate(run, client, ids).envs))


def _check_both_named(
    resource: str, ids: list[str], alone: list[dict[str, str]], both: dict[str, str]
) -> None:
    """Raise Failed if the response for two devices names only one of them in a variable that names
    each device alone.

    ``alone`` has the variables of the response for each of the two ``ids``, and ``both`` has the
    variables of the response for both. It is not a failure if ``both`` names the other device
    elsewhere: in the value of any variable, or by a variable that only this device has.
    """
    for name in alone[0].keys() & alone[1].keys() & both.keys():
        first, second = (envs[name] for envs in alone)
        if first == second or both[name] not in (first, second):
            continue
        lost, at = (second, 1) if both[name] == first else (first, 0)
        has_own_variable = (alone[at].keys() - alone[1 - at].keys()) & both.keys()
        if not has_own_variable and not any(lost in value for value in both.values()):
            raise Failed(
                f"{resource}: variable {name} is {first!r} for {ids[0]}, {second!r} for {ids[1]}, "
                f"and {both[name]!r} for both together: the value of one device is missing"
            )


@builtin
def a14(run: CheckRun) -> str:
    names = set()
    for what, response in _every_response(run):
        for device in response.cdi_devices:
            if split_name(device.name) is None:
                raise Failed(
                    f"{what}: invalid CDI device {device.name!r}: expected vendor/class=name"
                )
            names.add(device.name)
    if not names:
        raise Skipped("no response has CDI devices")
    if cdi := run.plugin.under_test.hardware.cdi:
        _check_resolved(names, cdi)
    return counted(len(names), "CDI device")


def _check_resolved(names: Iterable[str], cdi: Path) -> None:
    """Raise Warned if no CDI specification in ``cdi`` defines a name."""
    from devicemanager.kubelet.runtime.cdi import UnresolvedCdiDevices, load

    try:
        load([cdi]).resolve(sorted(names))
    except UnresolvedCdiDevices as error:
        raise Warned(f"{error}, in {cdi}") from None


@builtin
def a15(run: CheckRun) -> None:
    for what, response in _every_response(run):
        named = {device.name for device in response.cdi_devices}
        for key, value in response.annotations.items():
            name = key.rpartition("/")[2]
            if len(name) > _LONGEST_ANNOTATION or not _ANNOTATION_NAME.fullmatch(name):
                raise Failed(
                    f"{what}: invalid annotation key {key!r}: expected a valid name of up to "
                    f"{_LONGEST_ANNOTATION} characters"
                )
            # Runtimes inject devices from both, so the container would get this device twice.
            if key.startswith("cdi.k8s.io/") and (twice := named & set(value.split(","))):
                raise Failed(
                    f"{what}: CDI device {min(twice)} is in an annotation and in cdi_devices"
                )


@builtin
def a16(run: CheckRun) -> None:
    if len(run.resources) < 2:
        raise Skipped("needs 2 resources, the plugin has 1")
    # If the responses of two resources conflict, the kubelet uses one value and only logs the
    # conflict. Different plugins cannot avoid conflicts, but one plugin with two resources can.
    known: dict[tuple[str, str], tuple[str, str]] = {}
    for resource, client in _clients(run):
        response = _allocate(run, client, run.healthy_ids(resource)[:1])
        given = {("variable", name): value for name, value in response.envs.items()}
        given |= {("mount", each.container_path): each.host_path for each in response.mounts}
        given |= {("device", each.container_path): each.host_path for each in response.devices}
        for (kind, name), value in given.items():
            other, before = known.setdefault((kind, name), (resource, value))
            if before != value:
                raise Failed(
                    f"{kind} {name} is {before!r} for {other}, but {value!r} for {resource}"
                )


@builtin
def a17(run: CheckRun) -> None:
    id_ = run.healthy_ids()[0]
    with run.client() as client:
        for what, request in (
            ("an empty request", b""),
            ("a request without device IDs", b"\x0a\x00"),
            ("a request with an ID twice", _request(id_, id_)),
            # The field 1000, as a newer kubelet might send it.
            ("a request with an unknown field", b"\xc2\x3e\x01x" + _request(id_)),
        ):
            call = partial(client.raw, ALLOCATE, request, run.limits.allocate_seconds)
            try:
                rejection(call, what)
            except Failed:
                # A crash closes the connection before the exit is noticed.
                run.until(lambda: run.plugin.has_exited, run.limits.settle_seconds)
                run.check_alive(what)
                raise
    run.check_alive("unusual requests")


def _request(*ids: str) -> bytes:
    request = dp.ContainerAllocateRequest(devices_ids=list(ids))
    return dp.AllocateRequest(container_requests=[request]).SerializeToString()


@builtin
def a18(run: CheckRun) -> str:
    count = 0
    for resource, client in _clients(run):
        ids = _single_ids(run, resource)
        users: dict[str, list[str]] = {}
        for id_ in ids:
            for path in {device.host_path for device in _allocate(run, client, [id_]).devices}:
                users.setdefault(path, []).append(id_)
        # A device node that all devices have is a control device, such as /dev/nvidiactl. If there
        # are only such nodes, all devices are the same.
        shared = {path: own for path, own in users.items() if 1 < len(own) < len(ids)}
        if shared:
            path, own = min(shared.items())
            raise Failed(f"{resource}: {own[0]} and {own[1]} have the same device node {path}")
        # Many plugins offer slots of one device on purpose, such as /dev/fuse.
        if len(ids) > 1 and users and all(len(own) == len(ids) for own in users.values()):
            raise Warned(
                f"{resource}: all devices have the same device node {min(users)}, so a device may "
                "be used by several pods"
            )
        count += len(users)
    return counted(count, "device node")


@builtin
def a19(run: CheckRun) -> None:
    run.start()
    with run.client() as client:
        assume_allocates(run, client)
    before = {device.ID for device in run.devices()}
    since = run.kubelet.mark()
    run.hook("add-device")

    def added() -> set[str]:
        return {device.ID for device in run.devices()} - before

    if run.until(lambda: bool(added()), run.limits.refresh_seconds) is None:
        check_sent(run, since, "add-device", NO_HOT_PLUG)
        raise Failed(
            f"no device list contains a new device within {run.limits.refresh_seconds:g} s: the "
            "hook add-device must add a device that the plugin did not have",
            symptom=NO_HOT_PLUG,
        )
    with run.client() as client:
        _allocate(run, client, sorted(added())[:1])
