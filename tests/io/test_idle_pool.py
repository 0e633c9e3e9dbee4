"""Pools of idle objects."""

from __future__ import annotations

import os
import signal

from devicemanager.io.idle_pool import IdlePool


def pool_and_ended() -> tuple[IdlePool[str], list[str]]:
    """Return a pool of at most two objects, and the list of objects that it has disposed of."""
    ended: list[str] = []
    return IdlePool(2, ended.append), ended


def test_pool_is_empty_unless_enabled() -> None:
    idle, ended = pool_and_ended()
    idle.give_back("a")
    assert ended == ["a"]
    assert idle.take() is None


def test_last_returned_object_is_taken_first_and_once() -> None:
    idle, ended = pool_and_ended()
    with idle.enabled():
        idle.give_back("a")
        idle.give_back("b")
        assert [idle.take(), idle.take(), idle.take()] == ["b", "a", None]
    assert ended == []


def test_pool_disposes_of_objects_beyond_its_limit() -> None:
    idle, ended = pool_and_ended()
    with idle.enabled():
        for name in "abc":
            idle.give_back(name)
        assert ended == ["c"]
    assert ended == ["c", "a", "b"]


def test_pool_is_emptied_when_its_last_user_disables_it() -> None:
    idle, ended = pool_and_ended()
    with idle.enabled():
        with idle.enabled():
            idle.give_back("a")
        assert ended == []
    assert ended == ["a"]


def test_forked_child_has_empty_pool() -> None:
    idle, ended = pool_and_ended()
    with idle.enabled():
        idle.give_back("a")
        with idle._here().lock:  # a fork can happen while another thread holds the lock
            child = os.fork()
            if not child:
                signal.alarm(5)  # ends the child if it waits for the parent's lock
                idle.give_back("b")
                with idle.enabled():
                    idle.give_back("c")
                    taken = idle.take()
                os._exit(0 if (taken, idle.take(), ended) == ("c", None, ["b"]) else 1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert idle.take() == "a"


def test_forked_child_disposes_of_nothing_of_its_parent() -> None:
    idle, ended = pool_and_ended()
    with idle.enabled():
        idle.give_back("a")
        child = os.fork()
    if not child:
        os._exit(len(ended))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert ended == ["a"]
