"""Settings of the simulated plugin. Every field is a variable and a flag of its name.

``number_devices`` is ``NUMBER_DEVICES`` in the environment and ``--number-devices`` as a
flag. Text is accepted wherever a variable may bring it.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Self, TypeVar

import attrs
import grpc

from devicemanager.core.api.deviceplugin import MAX_NUMA_NODES
from devicemanager.plugin.errors import ConfigurationError
from devicemanager.plugin.names import check_resource_name
from devicemanager.plugin.simulated.faults import (
    RPCS,
    AllocateFault,
    ListFault,
    SimulatedError,
)
from devicemanager.plugin.values import ContainerSettings, DeviceSpec

__all__ = ["IdShape", "PreferredPolicy", "SimulationSettings", "as_text", "title"]

_TRUE = {"1", "true", "yes", "on"}
_MOST_DEVICES = 100_000
"""About as many as fit into the 4 MiB that a kubelet takes for a list."""
_MOST_CALLS = 1_000_000
_FALSE = {"0", "false", "no", "off", ""}


class IdShape(StrEnum):
    """What device ids look like: ours, or as certain vendors make theirs."""

    INDEX = "index"
    GPU_UUID = "gpu-uuid"
    MIG = "mig"
    REPLICA = "replica"
    PCI = "pci"


class PreferredPolicy(StrEnum):
    """How GetPreferredAllocation answers. NONE does not offer it; the last three are
    wrong answers on purpose."""

    NONE = "none"
    LEXICAL = "lexical"
    REVERSE = "reverse"
    SHORT = "short"
    GARBAGE = "garbage"
    ERROR = "error"


ChoiceT = TypeVar("ChoiceT", bound=StrEnum)


def _bad(name: str, value: object, wanted: str) -> ConfigurationError:
    return ConfigurationError(f"{title(name)} must be {wanted}, not {value!r}")


def title(name: str) -> str:
    """A setting under both names that a person may have given it by."""
    return f"{name.upper()} (--{name.replace('_', '-')})"


def _whole(name: str, least: int, most: int, value: int | str) -> int:
    try:
        # By way of text, since int alone would cut 2.9 and take True for 1.
        number = int(str(value))
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        raise _bad(name, value, f"a whole number from {least} to {most}")
    return number


def _switch(name: str, value: bool | str) -> bool:
    text = str(value).strip().lower()
    if text not in _TRUE | _FALSE:
        raise _bad(name, value, "true or false")
    return text in _TRUE


def _choice(name: str, choices: type[ChoiceT], value: ChoiceT | str) -> ChoiceT:
    try:
        return choices(value)
    except ValueError:
        raise _bad(name, value, f"one of {', '.join(choices)}") from None


def _numa(value: str | tuple[int, ...] | list[int]) -> tuple[int, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    try:
        nodes = tuple(int(str(part)) for part in parts if str(part).strip())
    except ValueError:
        raise _bad("numa", value, "node numbers such as 0,1") from None
    if any(not 0 <= node < MAX_NUMA_NODES for node in nodes):
        raise _bad("numa", value, f"node numbers from 0 to {MAX_NUMA_NODES - 1}")
    return nodes


def _pairs(name: str, value: str) -> dict[str, str]:
    """``RPC=value,RPC=value``, with names checked against the five calls."""
    pairs: dict[str, str] = {}
    for part in filter(None, map(str.strip, value.split(","))):
        rpc, equals, setting = part.partition("=")
        if not equals or rpc not in RPCS:
            raise _bad(name, value, f"RPC=value pairs, RPC being one of {', '.join(RPCS)}")
        pairs[rpc] = setting
    return pairs


def _delays(value: str | Mapping[str, float]) -> dict[str, float]:
    pairs = _pairs("rpc_delays", value) if isinstance(value, str) else value
    try:
        return {rpc: float(seconds) for rpc, seconds in pairs.items()}
    except ValueError:
        raise _bad("rpc_delays", value, "seconds per RPC, such as Allocate=0.5") from None


def _errors(value: str | Mapping[str, SimulatedError]) -> dict[str, SimulatedError]:
    if not isinstance(value, str):
        return dict(value)
    errors = {}
    for rpc, setting in _pairs("rpc_errors", value).items():
        code, _, text = setting.partition(":")
        if code not in grpc.StatusCode.__members__:
            raise _bad("rpc_errors", value, "gRPC codes per RPC, such as Allocate=INTERNAL:text")
        errors[rpc] = SimulatedError(code, text or "simulated")
    return errors


# One named converter a field: the type checker reads a field's type from nothing less.


def _number_devices(value: int | str) -> int:
    return _whole("number_devices", 0, _MOST_DEVICES, value)


def _replicas(value: int | str) -> int:
    return _whole("replicas", 1, _MOST_DEVICES, value)


def _calls_kept(value: int | str) -> int:
    return _whole("calls_kept", 0, _MOST_CALLS, value)


def _id_shape(value: IdShape | str) -> IdShape:
    return _choice("id_shape", IdShape, value)


def _preferred_policy(value: PreferredPolicy | str) -> PreferredPolicy:
    return _choice("preferred_policy", PreferredPolicy, value)


def _pre_start(value: bool | str) -> bool:
    return _switch("pre_start", value)


def _list_fault(value: ListFault | str) -> ListFault:
    return _choice("list_fault", ListFault, value)


def _allocate_fault(value: AllocateFault | str) -> AllocateFault:
    return _choice("allocate_fault", AllocateFault, value)


def as_text(value: object) -> str:
    """A setting's value as a variable or a flag brings it."""
    match value:
        case bool():
            return str(value).lower()
        case tuple():
            return ",".join(map(str, value))
        case dict():
            return ",".join(f"{key}={entry}" for key, entry in value.items())
    return str(value)


def _help(text: str) -> dict[str, str]:
    return {"help": text}


@attrs.frozen(kw_only=True)
class SimulationSettings:
    """The first eight fields are those of the well-known simple-device-plugin.

    A value that cannot work raises ConfigurationError, which names the variable and flag.
    """

    namespace: str = attrs.field(
        default="simple-device-plugin", metadata=_help("Kubernetes namespace of the deployment")
    )
    plugin_name: str = attrs.field(
        default="simple-device-plugin", metadata=_help("name of its socket and its DaemonSet")
    )
    resource_name: str = attrs.field(
        default="example.com/simple-device", metadata=_help("resource it registers")
    )
    number_devices: int = attrs.field(
        default=2,
        converter=_number_devices,
        metadata=_help("how many devices"),
    )
    device_id_prefix: str = attrs.field(
        default="simple-device",
        metadata=_help("device ids are <prefix>-<node name>-<index>"),
    )
    annotation_prefix: str = attrs.field(
        default="",
        metadata=_help("an annotation <prefix>-<index>=<id> per device"),
    )
    env_prefix: str = attrs.field(
        default="",
        metadata=_help("a variable <prefix>_<index>=/dev/<index> per device"),
    )
    device_file_prefix: str = attrs.field(
        default="",
        metadata=_help("a device node /dev/<prefix>-<index> per device"),
    )
    node_name: str = attrs.field(
        factory=socket.gethostname, metadata=_help("in device ids (default: the host name)")
    )
    numa: tuple[int, ...] = attrs.field(
        default=(),
        converter=_numa,
        metadata=_help("NUMA nodes, given to the devices in turn: 0,1"),
    )
    id_shape: IdShape = attrs.field(
        default=IdShape.INDEX,
        converter=_id_shape,
        metadata=_help(f"shape of device ids: {', '.join(IdShape)}"),
    )
    replicas: int = attrs.field(
        default=2,
        converter=_replicas,
        metadata=_help("ids per device with ID_SHAPE replica"),
    )
    preferred_policy: PreferredPolicy = attrs.field(
        default=PreferredPolicy.NONE,
        converter=_preferred_policy,
        metadata=_help(f"answers of GetPreferredAllocation: {', '.join(PreferredPolicy)}"),
    )
    pre_start: bool = attrs.field(
        default=False,
        converter=_pre_start,
        metadata=_help("ask for PreStartContainer: true or false"),
    )
    cdi_kind: str = attrs.field(
        default="",
        metadata=_help("a CDI name <kind>=<id> per device, as vendor.com/gpu=…"),
    )
    calls_kept: int = attrs.field(
        default=10_000,
        converter=_calls_kept,
        metadata=_help("how many calls are remembered, for programs that ask for them"),
    )
    control_file: str = attrs.field(
        default="",
        metadata=_help("file with a line a device: id and Healthy, Unhealthy or gone"),
    )
    rpc_delays: Mapping[str, float] = attrs.field(
        factory=dict, converter=_delays, metadata=_help("delays in seconds: Allocate=0.5,…")
    )
    rpc_errors: Mapping[str, SimulatedError] = attrs.field(
        factory=dict,
        converter=_errors,
        metadata=_help("errors: Allocate=UNAVAILABLE:text,…"),
    )
    list_fault: ListFault = attrs.field(
        default=ListFault.NONE,
        converter=_list_fault,
        metadata=_help(f"wrong lists on purpose: {', '.join(ListFault)}"),
    )
    allocate_fault: AllocateFault = attrs.field(
        default=AllocateFault.NONE,
        converter=_allocate_fault,
        metadata=_help(f"wrong Allocate answers on purpose: {', '.join(AllocateFault)}"),
    )

    def __attrs_post_init__(self) -> None:
        check_resource_name(self.resource_name)
        if not re.fullmatch(r"[\w.-]+", self.plugin_name) or self.plugin_name.startswith("."):
            raise _bad("plugin_name", self.plugin_name, "a file name")
        # Fails now rather than at the first pod.
        try:
            self.container_settings({"probe": 0})
        except ValueError as error:
            raise ConfigurationError(str(error)) from error

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Self:
        """From variables of the fields' names; empty or absent ones keep their default."""
        given: dict[str, Any] = {}
        for field in attrs.fields(cls):
            if value := environ.get(field.name.upper()):
                given[field.name] = value
        return cls(**given)

    def container_settings(self, indexes: Mapping[str, int]) -> ContainerSettings:
        """What a container gets for these devices, by id with their indexes."""
        return ContainerSettings(
            envs={
                f"{self.env_prefix}_{i}": f"/dev/{i}" for i in indexes.values() if self.env_prefix
            },
            annotations={
                f"{self.annotation_prefix}-{i}": id_
                for id_, i in indexes.items()
                if self.annotation_prefix
            },
            devices=[
                DeviceSpec(host_path=f"/dev/{self.device_file_prefix}-{i}")
                for i in indexes.values()
                if self.device_file_prefix
            ],
            cdi_devices=[f"{self.cdi_kind}={id_}" for id_ in indexes if self.cdi_kind],
        )
