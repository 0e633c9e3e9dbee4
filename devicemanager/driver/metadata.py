"""Metadata files of devices (KEP-5304), from which programs in containers learn device attributes.

Each request of a claim has a file on the host, and a CDI device that mounts it. Paths and content
are those of the Go library (``kubeletplugin/metadata.go``, v0.37), so programs find the same files
with any driver.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from devicemanager.driver.allocation import base_request
from devicemanager.driver.slices import attribute_json
from devicemanager.driver.values import Attribute, Claim, PreparedDevice

__all__ = ["MetadataFiles"]

_API_VERSION = "metadata.resource.k8s.io/v1beta1"
_CONTAINER_DIRECTORY = "/var/run/kubernetes.io/dra-device-attributes"
# Mounts need no newer version, and old runtimes reject newer versions.
_CDI_VERSION = "0.3.0"


class MetadataFiles:
    """Metadata files in the data directory of one driver, and the CDI files that mount them."""

    def __init__(self, driver: str, data_dir: Path, cdi_dir: Path) -> None:
        self._driver = driver
        self._directory = data_dir / "dra-device-metadata"
        self._cdi_dir = cdi_dir

    def contents(
        self, claim: Claim, devices: Iterable[tuple[PreparedDevice, Mapping[str, Attribute]]]
    ) -> dict[Path, str]:
        """Return the contents of a claim's metadata files and CDI files, by path.

        ``devices`` has pairs of a prepared device and its attributes.
        """
        by_request: dict[str, list[dict[str, Any]]] = {}
        for prepared, attributes in devices:
            made = self._device(prepared, attributes)
            by_request.setdefault(prepared.device.request, []).append(made)
        found: dict[Path, str] = {}
        for request, rows in by_request.items():
            found |= self._of_request(claim, request, rows)
        return found

    def id(self, claim: Claim, request: str) -> str:
        """Return the ID of the CDI device that mounts the metadata file of a request."""
        return f"{self._driver}/metadata={claim.uid}_{base_request(request)}"

    def _device(
        self, prepared: PreparedDevice, attributes: Mapping[str, Attribute]
    ) -> dict[str, Any]:
        values = {key: attribute_json(value) for key, value in sorted(attributes.items())}
        return {
            "driver": self._driver,
            "pool": prepared.device.pool,
            "name": prepared.device.device,
            **({"attributes": values} if values else {}),
        }

    def _of_request(
        self, claim: Claim, request: str, devices: list[dict[str, Any]]
    ) -> dict[Path, str]:
        base = base_request(request)
        content: dict[str, Any] = {
            "kind": "DeviceMetadata",
            "apiVersion": _API_VERSION,
            "metadata": {
                "name": claim.name,
                "namespace": claim.namespace,
                "uid": claim.uid,
                "generation": 1,
            },
            "requests": [{"name": request, "devices": devices}],
        }
        if claim.pod_claim_name:
            content["podClaimName"] = claim.pod_claim_name
        path = self._host_path(claim, base)
        return {
            path: json.dumps(content, indent=2) + "\n",
            self._cdi_path(claim.uid, base): self._cdi(claim, base, path),
        }

    def _cdi(self, claim: Claim, base: str, path: Path) -> str:
        mount = {
            "hostPath": str(path),
            "containerPath": self._container_path(claim, base),
            "options": ["ro", "bind"],
        }
        device = {"name": f"{claim.uid}_{base}", "containerEdits": {"mounts": [mount]}}
        content = {
            "cdiVersion": _CDI_VERSION,
            "kind": f"{self._driver}/metadata",
            "devices": [device],
        }
        return json.dumps(content, indent=2)

    def remove(self, claim: Claim) -> None:
        """Remove the metadata files and CDI files of a claim, if they exist. Raises OSError."""
        # Search by name: if the checkpoint was lost, the requests of the claim are unknown.
        for path in self._cdi_dir.glob(f"{self._driver}_metadata_{claim.uid}_*.json"):
            path.unlink(missing_ok=True)
        directory = self._claim_directory(claim)
        for path in directory.glob("*/metadata.json"):
            # A newer claim with the same name has the same directory.
            if claim.uid.encode() in path.read_bytes():
                shutil.rmtree(path.parent)
        if directory.exists() and not any(directory.iterdir()):
            directory.rmdir()

    def _claim_directory(self, claim: Claim) -> Path:
        return self._directory / f"{claim.namespace}_{claim.name}"

    def _host_path(self, claim: Claim, base: str) -> Path:
        return self._claim_directory(claim) / base / "metadata.json"

    def _cdi_path(self, uid: str, base: str) -> Path:
        return self._cdi_dir / f"{self._driver}_metadata_{uid}_{base}.json"

    def _container_path(self, claim: Claim, base: str) -> str:
        """Return the path of a file in the container.

        For a claim from a template, the path contains the pod's name for the claim. For any other
        claim, it contains the name of the ResourceClaim.
        """
        of_template = claim.pod_claim_name
        kind = "resourceclaimtemplates" if of_template else "resourceclaims"
        name = of_template or claim.name
        return f"{_CONTAINER_DIRECTORY}/{kind}/{name}/{base}/{self._driver}-metadata.json"
