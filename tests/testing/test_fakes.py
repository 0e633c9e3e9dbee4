"""The fake plugin: its responses, the recorded calls, and what it reports to the manager."""

from __future__ import annotations

from typing import Any, cast

import pytest

from devicemanager.core.errors import RpcError
from devicemanager.kubelet.manager.plugin_handler import ClientHandler
from devicemanager.kubelet.wire import settings as wire
from devicemanager.testing import fakes
from devicemanager.testing.fakes import FakeCall, FakePlugin
from tests.helpers import device


class Handler:
    """Handler that records what a plugin does."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def connect(self, resource: str, name: str, options: Any, client: Any) -> int:
        shown = (options.pre_start_required, options.get_preferred_allocation_available)
        self.seen.append(("connect", resource, name, *shown, client))
        return 7

    def update(self, endpoint: int, columns: Any) -> None:
        self.seen.append(("update", endpoint, list(columns.ids)))

    def disconnect(self, endpoint: int, cause: str) -> None:
        self.seen.append(("disconnect", endpoint, cause))


def ids(text: str) -> Any:
    return tuple(text.split())


@pytest.mark.parametrize(
    ("preference", "size", "chosen"),
    [
        (fakes.first, 3, "c a b"),
        (fakes.last, 3, "c e d"),
        (fakes.first, 0, "c"),
        (fakes.last, 0, "c"),
        (fakes.one_short, 3, "c a"),
        (fakes.one_short, 1, "c"),
        (fakes.garbage, 3, "no-such-device another"),
    ],
)
def test_preferences(preference: fakes.Preference, size: int, chosen: str) -> None:
    assert preference(ids("e b c a d"), ids("c"), size) == ids(chosen)


def test_plugin_registers_lists_and_leaves() -> None:
    handler, plugin = Handler(), FakePlugin("vendor.com/gpu")
    with pytest.raises(
        ValueError,
        match=r"^the fake plugin of vendor.com/gpu has not registered: call register first$",
    ):
        plugin.leave()
    assert plugin.register(cast(ClientHandler, handler)) == 7
    plugin.send_list([device("a"), device("b")])
    plugin.leave()
    plugin.leave("killed")
    assert handler.seen == [
        ("connect", "vendor.com/gpu", "plugin.sock", False, False, plugin),
        ("update", 7, ["a", "b"]),
        ("disconnect", 7, "the plugin ended"),
        ("disconnect", 7, "killed"),
    ]


def test_plugin_reports_its_optional_calls() -> None:
    handler = Handler()
    plugin = FakePlugin("vendor.com/gpu", preference=fakes.first, pre_start_required=True)
    plugin.register(cast(ClientHandler, handler), "other.sock")
    assert handler.seen == [("connect", "vendor.com/gpu", "other.sock", True, True, plugin)]


def test_calls_are_recorded_and_answered() -> None:
    plugin = FakePlugin("vendor.com/gpu", preference=fakes.last)
    (response,) = plugin.allocate(ids("a")).responses
    assert wire.settings_from_bytes(response).envs == {"A": "1"}
    assert plugin.preferred_allocation(ids("a b c"), ids("a"), 2) == ids("a c")
    plugin.preference = None
    assert plugin.preferred_allocation(ids("a"), (), 1) == ()
    plugin.pre_start_container(ids("a"))
    assert plugin.calls == [
        FakeCall("Allocate", ids("a")),
        FakeCall("GetPreferredAllocation", available=ids("a b c"), must_include=ids("a"), size=2),
        FakeCall("GetPreferredAllocation", available=ids("a"), size=1),
        FakeCall("PreStartContainer", ids("a")),
    ]
    assert not plugin.closed
    plugin.close()
    assert plugin.closed


@pytest.mark.parametrize(
    ("field", "call", "arguments"),
    [
        ("allocate_error", "allocate", [()]),
        ("preference_error", "preferred_allocation", [(), (), 1]),
        ("pre_start_error", "pre_start_container", [()]),
    ],
)
def test_failed_call_is_recorded_first(field: str, call: str, arguments: list[Any]) -> None:
    seen: list[int] = []
    plugin = FakePlugin("vendor.com/gpu", before_answer=lambda _: seen.append(len(plugin.calls)))
    setattr(plugin, field, RpcError("Unknown", "no"))
    with pytest.raises(RpcError, match=r"desc = no$"):
        getattr(plugin, call)(*arguments)
    assert seen == [1]
