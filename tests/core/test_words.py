"""Words of enums, which are part of the API: of JSON, of flags and of files."""

from __future__ import annotations

from devicemanager import core
from tests.helpers import own_words


def test_words_are_the_names_in_lower_case() -> None:
    assert own_words(core) == {
        "ConditionType.CONTAINERS_READY": "ContainersReady",
        "ConditionType.INITIALIZED": "Initialized",
        "ConditionType.READY": "Ready",
        "ConditionType.READY_TO_START_CONTAINERS": "PodReadyToStartContainers",
        "ConditionType.SCHEDULED": "PodScheduled",
        "DraWording.V1_32": "as in v1.32",
        "DraWording.V1_34": "as in v1.34",
        "DraWording.V1_36": "as in v1.36",
        "Health.HEALTHY": "Healthy",
        "Health.UNHEALTHY": "Unhealthy",
        "Health.UNKNOWN": "Unknown",
        "HealthCheck.LENIENT": "fails after the registration server has failed, with the cause",
        "HealthCheck.STRICT": "fails until the registration server has started, "
        "and after it has failed",
        "Operation.PREPARE": "NodePrepareResources",
        "Operation.UNPREPARE": "NodeUnprepareResources",
        "Phase.FAILED": "Failed",
        "Phase.PENDING": "Pending",
        "Phase.RUNNING": "Running",
        "Phase.SUCCEEDED": "Succeeded",
        "Phase.UNKNOWN": "Unknown",
        "Pressure.DISK": "DiskPressure",
        "Pressure.MEMORY": "MemoryPressure",
        "Pressure.PID": "PIDPressure",
        "QosClass.BEST_EFFORT": "BestEffort",
        "QosClass.BURSTABLE": "Burstable",
        "QosClass.GUARANTEED": "Guaranteed",
        "ResizeCondition.IN_PROGRESS": "PodResizeInProgress",
        "ResizeCondition.PENDING": "PodResizePending",
        "RestartPolicy.ALWAYS": "Always",
        "RestartPolicy.NEVER": "Never",
        "RestartPolicy.ON_FAILURE": "OnFailure",
        "StartRemoves.ALL_BUT_DIRECTORIES": "everything but directories and the checkpoint",
        "WipeRule.AT_ONCE": "when the driver deregisters",
        "WipeRule.DEREGISTERED": "30 s after the last instance has deregistered",
        "WipeRule.DISCONNECTED": "30 s after the last instance has lost its connection or "
        "deregistered",
    }
