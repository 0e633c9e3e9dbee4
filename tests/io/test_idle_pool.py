"""What is idle between two users."""

from __future__ import annotations

import os
import signal

from devicemanager.io.idle_pool import IdlePool


def things() -> tuple[IdlePool[str], list[str]]:
    """At most two things are kept; the list has those that were ended."""
    ended: list[str] = []
    return IdlePool(2, ended.append), ended


def test_nothing_is_kept_unless_somebody_asks() -> None:
    idle, ended = things()
    idle.give_back("a")
    assert ended == ["a"]
    assert idle.take() is None


def test_the_latest_is_taken_first_and_by_one_alone() -> None:
    idle, ended = things()
    with idle.enabled():
        idle.give_back("a")
        idle.give_back("b")
        assert [idle.take(), idle.take(), idle.take()] == ["b", "a", None]
    assert ended == []


def test_not_more_than_so_many_are_kept() -> None:
    idle, ended = things()
    with idle.enabled():
        for name in "abc":
            idle.give_back(name)
        assert ended == ["c"]
    assert ended == ["c", "a", "b"]


def test_they_are_kept_until_the_last_keeper_goes() -> None:
    idle, ended = things()
    with idle.enabled():
        with idle.enabled():
            idle.give_back("a")
        assert ended == []
    assert ended == ["a"]


def test_a_forked_child_finds_none_and_ends_none_of_its_parents() -> None:
    idle, ended = things()
    with idle.enabled():
        idle.give_back("a")
        with idle._here().lock:  # as if another thread were in the midst of it
            child = os.fork()
            if not child:
                signal.alarm(5)  # it may hang for the parent's lock
                idle.give_back("b")
                with idle.enabled():
                    idle.give_back("c")
                    known = idle.take()
                os._exit(0 if (known, idle.take(), ended) == ("c", None, ["b"]) else 1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert idle.take() == "a"


def test_a_forked_child_that_leaves_its_parents_block_ends_nothing() -> None:
    idle, ended = things()
    with idle.enabled():
        idle.give_back("a")
        child = os.fork()
    if not child:
        os._exit(len(ended))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert ended == ["a"]
