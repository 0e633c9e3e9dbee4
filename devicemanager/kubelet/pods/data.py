"""The result of an admission as plain data for JSON (docs/json.md)."""

from __future__ import annotations

from typing import Any

import attrs

from devicemanager.core.errors import RequestError
from devicemanager.core.printable import one_line
from devicemanager.core.runoptions import ContainerSettings, RunOptions
from devicemanager.kubelet.pods.admission import Admission, ContainerOutcome
from devicemanager.kubelet.wire.errors import WireError

__all__ = [
    "container_data",
    "explanation_data",
    "explanation_lines",
    "oci_data",
    "settings_data",
    "sorted_devices",
]

Data = dict[str, Any]


def settings_data(settings: ContainerSettings | RunOptions) -> Data:
    """Return the device settings of a container as a dict for JSON."""
    return attrs.asdict(settings)


def oci_data(given: ContainerOutcome) -> Data:
    """Return a dict with ``oci``, the configuration for a container runtime, and ``oci_error``.

    One of the two is null.
    """
    try:
        return {"oci": given.oci().config, "oci_error": None}
    except (RequestError, WireError) as error:
        return {"oci": None, "oci_error": str(error)}


def container_data(given: ContainerOutcome) -> Data:
    """Convert a container of an admitted pod to plain data."""
    settings, error = None, None
    try:
        settings = settings_data(given.run_options)
    except WireError as unreadable:
        error = str(unreadable)
    return {
        "devices": sorted_devices(given),
        "claims": {name: list(devices) for name, devices in sorted(given.claims.items())},
        "numa_nodes": None if given.affinity is None else list(given.affinity),
        "settings": settings,
        "settings_error": error,
        **oci_data(given),
        "start_error": given.error or None,
    }


def sorted_devices(given: ContainerOutcome) -> dict[str, list[str]]:
    """Return the sorted device IDs of a container by resource, with the resources sorted."""
    return dict(sorted(given.devices.items()))


def explanation_data(admission: Admission) -> Data | None:
    """Return the explanation of an admission as plain data; None if it has no explanation."""
    # Imported here: only a report of an admission needs the explanation as data.
    from devicemanager.core.explanation.data import as_dict

    explanation = admission.explanation
    if explanation is None:
        return None
    data = as_dict(explanation)
    facts = {name: data[name] for name in ("policy", "steps", "holders")}
    return {**facts, "text": explanation_lines(admission)}


def explanation_lines(admission: Admission) -> list[str]:
    """Return the explanation of an admission as lines of text; [] without an explanation."""
    from devicemanager.core.explanation.text import in_use, steps

    explanation = admission.explanation
    if explanation is None:
        return []
    policy = explanation.policy
    lines = [
        f"policy {policy.name}, scope {policy.scope}",
        *steps(explanation),
        *in_use(explanation),
    ]
    return [one_line(line) for line in lines if line]
