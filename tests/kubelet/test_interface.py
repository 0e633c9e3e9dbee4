"""The kubelets and the client have the same members with the same parameters."""

from __future__ import annotations

import inspect

import pytest

from devicemanager import KubeletInterface, MockKubelet
from devicemanager.control import MockKubeletClient
from devicemanager.kubelet.inmemory import InMemoryKubelet


def members(owner: type) -> set[str]:
    return {name for name in dir(owner) if not name.startswith("_")}


def parameters(owner: type, name: str) -> object:
    """Return the parameters of a method with defaults and annotations; None for a property."""
    member = inspect.getattr_static(owner, name)
    return None if isinstance(member, property) else inspect.signature(member).parameters


ATTRIBUTES = {"calls", "clock", "events", "faults", "resource_claims"}
"""Set by ``__init__`` of one of the classes, so that the class does not have them."""


@pytest.mark.parametrize("owner", [MockKubelet, MockKubeletClient])
@pytest.mark.parametrize("name", sorted(members(KubeletInterface) - ATTRIBUTES))
def test_kubelet_and_client_implement_the_interface(owner: type, name: str) -> None:
    assert parameters(owner, name) == parameters(KubeletInterface, name)


SHARED = members(MockKubelet) & members(InMemoryKubelet)


@pytest.mark.parametrize("name", sorted(SHARED))
def test_both_kinds_of_kubelet_have_the_same_parameters(name: str) -> None:
    assert parameters(InMemoryKubelet, name) == parameters(MockKubelet, name)


def test_in_memory_kubelet_has_all_members_for_pods_and_devices() -> None:
    """It lacks what needs sockets, files, calls or waits."""
    assert len(SHARED) == 35
    own = members(InMemoryKubelet) - SHARED
    assert {name for name in own if "device" not in name and "plugin" not in name} == {
        "adopt",
        "delay_prepare",
        "fail_allocate",
        "fail_prepare",
        "fail_unprepare",
        "held_claims",
        "lose_all",
        "lose_checkpoint",
        "return_all",
        "self_check",
        "simulated",
        "start_again",
        "stored_checkpoint",
        "use_claims",
    }


@pytest.mark.parametrize("owner", [MockKubelet, InMemoryKubelet])
def test_every_member_is_defined_and_documented_in_the_class_itself(owner: type) -> None:
    for name in members(owner):
        member = vars(owner)[name]
        assert inspect.getdoc(member), f"{owner.__name__}.{name} has no docstring"
