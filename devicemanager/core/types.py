"""Types of ``devicemanager.core`` in public signatures, such as that of ``MockKubelet.pod()``.

Import the types from this module for annotations, or to implement a ``HintProvider``. The modules
that define them can change. No other module imports ``types``. Python therefore loads it only if
you import it.
"""

from devicemanager.core.devices import Device
from devicemanager.core.endpoints import PluginOptions
from devicemanager.core.explanation.model import (
    AdmissionExplanation,
    AlignmentFault,
    DeviceState,
    Holder,
    MergeExplanation,
    ResourceExplanation,
    StepExplanation,
)
from devicemanager.core.ids import ContainerName, DeviceId, PodUid, ResourceName
from devicemanager.core.inventory import Columns, DeviceIndex, DeviceList
from devicemanager.core.ledger import AllocatedDevices
from devicemanager.core.node import NodeStatus
from devicemanager.core.nodestatus.conditions import Pressure
from devicemanager.core.pods import Container, Pod, RestartPolicy, RestartRule
from devicemanager.core.podstatus.conditions import Condition
from devicemanager.core.podstatus.containers import (
    ContainerStatus,
    Running,
    Terminated,
    Waiting,
)
from devicemanager.core.podstatus.phase import Phase
from devicemanager.core.podstatus.status import ContainerEntry, PodStatus, QosClass
from devicemanager.core.providers.cpu import CpuProvider
from devicemanager.core.providers.memory import MemoryProvider
from devicemanager.core.providers.provider import CpusAndMemory, HintProvider, MemoryBlock
from devicemanager.core.quantity import Quantity
from devicemanager.core.runoptions import (
    Conflict,
    ContainerSettings,
    DeviceSpec,
    Mount,
    NetworkInterface,
    PciDevice,
    RunOptions,
)
from devicemanager.core.status import Health, ResourceHealth, ResourceStatus
from devicemanager.core.topology import (
    Hint,
    NumaTopology,
    PolicyName,
    PolicyOptions,
    ScopeName,
    TopologyPolicy,
)
from devicemanager.core.versions.behaviour import Behaviour
from devicemanager.core.versions.table import (
    DraWording,
    HealthCheck,
    Level,
    MergeRule,
    StartRemoves,
    WipeRule,
)
from devicemanager.core.versions.version import KubeletVersion, VersionError

__all__ = [
    "AdmissionExplanation",
    "AlignmentFault",
    "AllocatedDevices",
    "Behaviour",
    "Columns",
    "Condition",
    "Conflict",
    "Container",
    "ContainerEntry",
    "ContainerName",
    "ContainerSettings",
    "ContainerStatus",
    "CpuProvider",
    "CpusAndMemory",
    "Device",
    "DeviceId",
    "DeviceIndex",
    "DeviceList",
    "DeviceSpec",
    "DeviceState",
    "DraWording",
    "Health",
    "HealthCheck",
    "Hint",
    "HintProvider",
    "Holder",
    "KubeletVersion",
    "Level",
    "MemoryBlock",
    "MemoryProvider",
    "MergeExplanation",
    "MergeRule",
    "Mount",
    "NetworkInterface",
    "NodeStatus",
    "NumaTopology",
    "PciDevice",
    "Phase",
    "PluginOptions",
    "Pod",
    "PodStatus",
    "PodUid",
    "PolicyName",
    "PolicyOptions",
    "Pressure",
    "QosClass",
    "Quantity",
    "ResourceExplanation",
    "ResourceHealth",
    "ResourceName",
    "ResourceStatus",
    "RestartPolicy",
    "RestartRule",
    "RunOptions",
    "Running",
    "ScopeName",
    "StartRemoves",
    "StepExplanation",
    "Terminated",
    "TopologyPolicy",
    "VersionError",
    "Waiting",
    "WipeRule",
]
