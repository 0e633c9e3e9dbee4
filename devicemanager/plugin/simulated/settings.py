"""Settings of the simulated plugin. Each field is also an environment variable and a flag.

For example, ``number_devices`` is ``NUMBER_DEVICES`` in the environment and ``--number-devices`` on
the command line. Therefore the converter of each field also accepts text.
"""

from __future__ import annotations

import re
import socket
import uuid
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
"""Approximate number of devices that fit into a list of 4 MiB, the kubelet's limit."""
_MOST_CALLS = 1_000_000
_FALSE = {"0", "false", "no", "off", ""}
_UUID_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "simulated.device")
_PCI_SLOTS = 32


class IdShape(StrEnum):
    """Form of device IDs: ``<prefix>-<node name>-<index>``, or the form of a vendor's plugin."""

    INDEX = "index"
    GPU_UUID = "gpu-uuid"
    MIG = "mig"
    REPLICA = "replica"
    PCI = "pci"


class PreferredPolicy(StrEnum):
    """Policy of GetPreferredAllocation. NONE disables the call; SHORT, GARBAGE and ERROR are
    faults."""

    NONE = "none"
    LEXICAL = "lexical"
    REVERSE = "reverse"
    SHORT = "short"
    GARBAGE = "garbage"
    ERROR = "error"


ChoiceT = TypeVar("ChoiceT", bound=StrEnum)


def _invalid(name: str, value: object, expected: str) -> ConfigurationError:
    return ConfigurationError(f"{title(name)} must be {expected}, not {value!r}")


def title(name: str) -> str:
    """Return the names of a setting's environment variable and flag, for error texts."""
    return f"{name.upper()} (--{name.replace('_', '-')})"


def _whole(name: str, least: int, most: int, value: int | str) -> int:
    try:
        # Convert to text first, because int() would truncate 2.9 and accept True.
        number = int(str(value))
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        raise _invalid(name, value, f"a whole number from {least} to {most}")
    return number


def _switch(name: str, value: bool | str) -> bool:
    # This also accepts a bool, whose text is True or False.
    text = str(value).strip().lower()
    if text not in _TRUE | _FALSE:
        raise _invalid(name, value, "true or false")
    return text in _TRUE


def _choice(name: str, choices: type[ChoiceT], value: ChoiceT | str) -> ChoiceT:
    try:
        return choices(value)
    except ValueError:
        raise _invalid(name, value, f"one of {', '.join(choices)}") from None


def _numa(value: str | tuple[int, ...] | list[int]) -> tuple[int, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    try:
        nodes = tuple(int(str(part)) for part in parts if str(part).strip())
    except ValueError:
        raise _invalid("numa", value, "node numbers such as 0,1") from None
    if any(not 0 <= node < MAX_NUMA_NODES for node in nodes):
        raise _invalid("numa", value, f"node numbers from 0 to {MAX_NUMA_NODES - 1}")
    return nodes


def _pairs(name: str, value: str) -> dict[str, str]:
    """Parse ``RPC=value,RPC=value`` into values by RPC name.

    Raises ConfigurationError for an unknown RPC; ``name`` names the setting in the error.
    """
    pairs: dict[str, str] = {}
    for part in filter(None, map(str.strip, value.split(","))):
        rpc, equals, setting = part.partition("=")
        if not equals or rpc not in RPCS:
            raise _invalid(name, value, f"RPC=value pairs, with RPC one of {', '.join(RPCS)}")
        pairs[rpc] = setting
    return pairs


def _delays(value: str | Mapping[str, float]) -> dict[str, float]:
    pairs = _pairs("rpc_delays", value) if isinstance(value, str) else value
    try:
        return {rpc: float(seconds) for rpc, seconds in pairs.items()}
    except ValueError:
        raise _invalid("rpc_delays", value, "seconds per RPC, such as Allocate=0.5") from None


def _errors(value: str | Mapping[str, SimulatedError]) -> dict[str, SimulatedError]:
    if not isinstance(value, str):
        return dict(value)
    errors = {}
    for rpc, setting in _pairs("rpc_errors", value).items():
        code, _, text = setting.partition(":")
        if code not in grpc.StatusCode.__members__:
            raise _invalid(
                "rpc_errors", value, "gRPC codes per RPC, such as Allocate=INTERNAL:text"
            )
        errors[rpc] = SimulatedError(code, text or "simulated")
    return errors


# Each field has a named converter, because type checkers take the field's type from its annotation.


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
    """Convert a setting's value to text for an environment variable or a flag."""
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
    """Settings of a simulated plugin.

    The first eight fields have the names and defaults of the plugin simple-device-plugin.

    The constructor raises ConfigurationError for an invalid value. The error names the environment
    variable and the flag.
    """

    namespace: str = attrs.field(
        default="simple-device-plugin", metadata=_help("Kubernetes namespace of the deployment")
    )
    plugin_name: str = attrs.field(
        default="simple-device-plugin", metadata=_help("name of the socket and the DaemonSet")
    )
    resource_name: str = attrs.field(
        default="example.com/simple-device", metadata=_help("resource to register")
    )
    number_devices: int = attrs.field(
        default=2,
        converter=_number_devices,
        metadata=_help("number of devices"),
    )
    device_id_prefix: str = attrs.field(
        default="simple-device",
        metadata=_help("prefix of device IDs: <prefix>-<node name>-<index>"),
    )
    annotation_prefix: str = attrs.field(
        default="",
        metadata=_help("annotate containers with <prefix>-<index>=<id> per device"),
    )
    env_prefix: str = attrs.field(
        default="",
        metadata=_help("set <prefix>_<index>=/dev/<index> per device in containers"),
    )
    device_file_prefix: str = attrs.field(
        default="",
        metadata=_help("add the device node /dev/<prefix>-<index> per device to containers"),
    )
    node_name: str = attrs.field(
        factory=socket.gethostname,
        metadata=_help("node in device IDs (default: the host name)"),
    )
    numa: tuple[int, ...] = attrs.field(
        default=(),
        converter=_numa,
        metadata=_help("NUMA nodes, assigned to the devices in turn: 0,1"),
    )
    id_shape: IdShape = attrs.field(
        default=IdShape.INDEX,
        converter=_id_shape,
        metadata=_help(f"form of device IDs: {', '.join(IdShape)}"),
    )
    replicas: int = attrs.field(
        default=2,
        converter=_replicas,
        metadata=_help("number of IDs per device, if ID_SHAPE is replica"),
    )
    preferred_policy: PreferredPolicy = attrs.field(
        default=PreferredPolicy.NONE,
        converter=_preferred_policy,
        metadata=_help(f"policy of GetPreferredAllocation: {', '.join(PreferredPolicy)}"),
    )
    pre_start: bool = attrs.field(
        default=False,
        converter=_pre_start,
        metadata=_help("require PreStartContainer: true or false"),
    )
    cdi_kind: str = attrs.field(
        default="",
        metadata=_help("add the CDI name <kind>=<id> per device, such as vendor.com/gpu=…"),
    )
    calls_kept: int = attrs.field(
        default=10_000,
        converter=_calls_kept,
        metadata=_help("maximum number of calls in the call log, for Python programs"),
    )
    control_file: str = attrs.field(
        default="",
        metadata=_help("file with a line per device: ID and Healthy, Unhealthy or gone"),
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
        metadata=_help(f"fault of ListAndWatch: {', '.join(ListFault)}"),
    )
    allocate_fault: AllocateFault = attrs.field(
        default=AllocateFault.NONE,
        converter=_allocate_fault,
        metadata=_help(f"fault of Allocate: {', '.join(AllocateFault)}"),
    )

    def __attrs_post_init__(self) -> None:
        check_resource_name(self.resource_name)
        # The name becomes a file name. Kubelets ignore files whose names begin with a dot.
        if not re.fullmatch(r"[\w.-]+", self.plugin_name) or self.plugin_name.startswith("."):
            expected = "a file name of letters, digits, _, - and . that does not begin with a dot"
            raise _invalid("plugin_name", self.plugin_name, expected)
        # Check the prefixes now, not when the first pod is admitted.
        try:
            self.container_settings({"probe": 0})
        except ValueError as error:
            raise ConfigurationError(str(error)) from error

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Self:
        """Read the settings from environment variables; if a variable is unset or empty, use the
        default."""
        given: dict[str, Any] = {}
        # An empty variable counts as unset: manifests often have empty optional values.
        for field in attrs.fields(cls):
            if value := environ.get(field.name.upper()):
                given[field.name] = value
        return cls(**given)

    def device_id(self, index: int) -> str:
        """Return the ID of device number ``index``: unique, and the same after restarts."""
        match self.id_shape:
            case IdShape.INDEX:
                return self._plain_id(index)
            case IdShape.GPU_UUID:
                return f"GPU-{self._uuid(index)}"
            case IdShape.MIG:
                return f"MIG-{self._uuid(index)}"
            case IdShape.REPLICA:
                gpu, replica = divmod(index, self.replicas)
                return f"GPU-{self._uuid(gpu)}::{replica}"
            case IdShape.PCI:
                bus, slot = divmod(index, _PCI_SLOTS)
                # Skip bus 0 of each domain, which has the chipset on real machines.
                domain, bus = divmod(bus, 255)
                return f"{domain:04x}:{bus + 1:02x}:{slot:02x}.0"

    def _plain_id(self, index: int) -> str:
        return f"{self.device_id_prefix}-{self.node_name}-{index}"

    def _uuid(self, index: int) -> uuid.UUID:
        return uuid.uuid5(_UUID_NAMESPACE, self._plain_id(index))

    def container_settings(self, indexes: Mapping[str, int]) -> ContainerSettings:
        """Return the variables, annotations, device nodes and CDI names for a container.

        ``indexes``: index of each device of the container, by device ID.
        """
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
