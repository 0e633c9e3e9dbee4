"""Measuring what the processes of a plugin use."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import attrs
import pytest

from devicemanager.conformance import Limits, Usage
from devicemanager.conformance.process_checks import goroutines_in, is_go, usage

MIB = 1 << 20
BEFORE = Usage(
    descriptors=10, threads=5, memory=100 * MIB, inotify=1, unix_listeners=1, processes=1
)
LIMITS = Limits(
    extra_descriptors=2, extra_threads=4, extra_memory_share=0.2, extra_memory_bytes=8 * MIB
)


@pytest.mark.parametrize(
    ("most", "limit"),
    [
        ({"descriptors": 12}, {"descriptors": 13}),
        ({"threads": 9}, {"threads": 10}),
        ({"unix_listeners": 1}, {"unix_listeners": 2}),
        ({"memory": 120 * MIB}, {"memory": 120 * MIB + 1}),
    ],
)
def test_each_resource_has_a_limit_of_its_own(most: dict[str, int], limit: dict[str, int]) -> None:
    assert not attrs.evolve(BEFORE, **most).has_leaked(BEFORE, LIMITS)
    assert attrs.evolve(BEFORE, **limit).has_leaked(BEFORE, LIMITS)


def test_handles_are_descriptors_and_threads_only() -> None:
    more = attrs.evolve(BEFORE, memory=900 * MIB, unix_listeners=5)
    assert not more.has_more_handles(BEFORE, LIMITS)
    assert attrs.evolve(more, threads=10).has_more_handles(BEFORE, LIMITS)
    assert attrs.evolve(more, descriptors=13).has_more_handles(BEFORE, LIMITS)


def test_memory_of_a_small_program_may_grow_by_a_number_of_bytes() -> None:
    assert LIMITS.allow_memory(10 * MIB, 18 * MIB)
    assert not LIMITS.allow_memory(10 * MIB, 18 * MIB + 1)


def test_listening_sockets_are_counted_with_any_path(tmp_path: Path) -> None:
    before = usage(os.getpid()).unix_listeners
    with (
        socket.socket(socket.AF_UNIX) as bound,
        socket.socket(socket.AF_UNIX) as listening,
        socket.socket(socket.AF_UNIX) as other,
    ):
        bound.bind(str(tmp_path / "bound"))
        listening.bind(str(tmp_path / "two\nlines\n\nand more"))
        listening.listen()
        other.bind(str(tmp_path / "spaces and\nspaces 1 2 3 4 5 6"))
        other.listen()
        assert usage(os.getpid()).unix_listeners == before + 2


def test_program_is_go_if_it_has_build_information(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not is_go(os.getpid())
    assert not is_go(-1)
    for content, wanted in [
        (b"\xff Go buildinf:1", True),
        (b"ELF \xff Go buildinf:1", True),
        (b" Go buildinf:", False),
    ]:
        (tmp_path / "exe").write_bytes(content)
        with monkeypatch.context() as patch:
            patch.setattr("builtins.open", lambda *_, of=open: of(tmp_path / "exe", "rb"))
            found = is_go(1)
        assert found is wanted


STACKS = """\
SIGQUIT: quit
goroutine 1 [running]:
main.(*plugin).Allocate(0x1)
\t/src/main.go:7 +0x1
v1beta1._DevicePlugin_Allocate(0x1)
\t/src/api.go:9 +0x1
goroutine 2 [select]:
v1beta1._DevicePlugin_Allocate_Handler.func1(0x1)
\t/src/x.Allocate(1)
created by main.Allocate(0x1)
goroutine 3 [select]:
main.(*plugin).Allocate(0x1)
"""


def test_goroutines_are_counted_once_per_method() -> None:
    assert goroutines_in(STACKS.splitlines(), "Allocate") == 2
    assert goroutines_in(STACKS.splitlines(), "Register") == 0
    assert goroutines_in(["Allocate(", ""], "Allocate") is None
