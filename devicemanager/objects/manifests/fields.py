"""Known fields of a pod's spec and containers.

These are the fields of Kubernetes 1.37, and ``workloadRef``, which only 1.35 has.
"""

# An unknown field is usually misspelled. Ignoring it could silently run the pod without its
# devices, so it is rejected, like in the API server with strict field validation.

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from devicemanager.objects.manifests.errors import UnknownField, plain


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


POD_SPEC = _names(
    """
    activeDeadlineSeconds affinity automountServiceAccountToken containers dnsConfig dnsPolicy
    enableServiceLinks ephemeralContainers evictionResponders hostAliases hostIPC hostNetwork
    hostPID hostUsers hostname hostnameOverride imagePullSecrets initContainers nodeName
    nodeSelector os overhead preemptionPolicy priority priorityClassName readinessGates
    resourceClaims resources restartPolicy runtimeClassName schedulerName schedulingGates
    schedulingGroup securityContext serviceAccount serviceAccountName setHostnameAsFQDN
    shareProcessNamespace subdomain terminationGracePeriodSeconds tolerations
    topologySpreadConstraints volumes workloadRef
    """
)
CONTAINER = _names(
    """
    args command env envFrom image imagePullPolicy lifecycle livenessProbe name ports
    readinessProbe resizePolicy resources restartPolicy restartPolicyRules securityContext
    startupProbe stdin stdinOnce terminationMessagePath terminationMessagePolicy tty
    volumeDevices volumeMounts workingDir
    """
)
EPHEMERAL = CONTAINER | {"targetContainerName"}
RESOURCES = frozenset({"limits", "requests", "claims"})


def check_known(fields: Mapping[Any, Any], known: frozenset[str]) -> None:
    """Raise UnknownField for the alphabetically first field that is not in ``known``."""
    if fields.keys() <= known:
        return
    unknown = min(plain(name) for name in fields.keys() - known)
    raise UnknownField(unknown, _hint(unknown, known))


def _hint(unknown: str, known: frozenset[str]) -> str:
    if known is CONTAINER and unknown in RESOURCES:
        return f'did you mean "resources.{unknown}"?'
    # Ignore case: wrong case is the most common mistake, and must not count as a wrong letter.
    by_lower = {name.lower(): name for name in sorted(known)}
    close = difflib.get_close_matches(unknown.lower(), by_lower, n=1)
    return f'did you mean "{by_lower[close[0]]}"?' if close else ""
