"""What the page asks for and the control API does not have."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec

from devicemanager.control.errors import HttpError
from devicemanager.core.ids import PodUid
from devicemanager.core.runoptions import RunOptions
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.kubelet.pods.options import CdiRules
from devicemanager.kubelet.wire.errors import WireError
from devicemanager.observe.web.site import Site

__all__ = ["DeviceHealth", "SettingsOf", "container_settings", "decoded", "set_health"]


class DeviceHealth(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which device of a simulated plugin shall be how."""

    resource: str
    id: str
    health: str


class SettingsOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose settings are asked for."""

    uid: str


def decoded(body: bytes, kind: type[Any]) -> Any:
    """A request's body. Raises HttpError with one line."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise HttpError(HTTPStatus.BAD_REQUEST, "bad-request", f"body: {error}") from None


def set_health(site: Site, asked: DeviceHealth) -> None:
    """A device of a simulated plugin breaks or is mended. Raises HttpError."""
    breakable = site.simulated().get(asked.resource)
    if breakable is None:
        text = (
            f"{asked.resource!r} is not of a plugin that this program simulates: break the "
            "device where its plugin runs"
        )
        raise HttpError(HTTPStatus.CONFLICT, "not-simulated", text)
    try:
        breakable(asked.id, asked.health)
    except Exception as error:  # a device that it has not, a word that it does not know
        raise HttpError(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid", str(error)) from None


def container_settings(kubelet: MockKubelet, asked: SettingsOf) -> dict[str, Any]:
    """By container, what the plugins' answers to Allocate give it in this kubelet's version:
    settings, or the error of an answer that cannot be read. Raises RequestError if the kubelet
    is stopped."""
    uid, rules = PodUid(asked.uid), CdiRules.of(kubelet.settings.behaviour)
    held = kubelet.manager.holdings(uid)
    found: dict[str, Any] = {}
    for container, holdings in held.items():
        try:
            options: RunOptions | None = rules.options(holdings, uid, container)
            found[container] = {"settings": options, "error": None}
        except WireError as error:
            found[container] = {"settings": None, "error": str(error)}
    return found
