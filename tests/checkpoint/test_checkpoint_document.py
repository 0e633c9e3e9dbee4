"""The growing document: its cost, and its use by several threads."""

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from checkpoint import Checkpoint, Document, PodDevicesEntry, Rendered, dumps, render_entry
from checkpoint import document as document_module
from checkpoint.fnv import extend


def entry(number: int, container: str = "main") -> PodDevicesEntry:
    return PodDevicesEntry(f"u{number}", container, "vendor.com/r", {0: (f"d{number}",)}, b"\x01")


def grown(pods: int) -> Document:
    document = Document()
    for number in range(pods):
        document.put(f"u{number}", [render_entry(entry(number))])
    document.set_registered({"vendor.com/r": tuple(f"d{number}" for number in range(pods))})
    return document


def written(numbers: range | list[int], registered: int) -> bytes:
    devices = {"vendor.com/r": tuple(f"d{number}" for number in range(registered))}
    return dumps(Checkpoint(tuple(map(entry, numbers)) or None, devices))


@pytest.fixture
def hashed(monkeypatch) -> list[int]:
    """Record the lengths of hashed texts, in order."""
    lengths: list[int] = []

    def counting(state: int, text: bytes) -> int:
        lengths.append(len(text))
        return extend(state, text)

    monkeypatch.setattr("checkpoint.document.extend", counting)
    monkeypatch.setattr("checkpoint.fnv.extend", counting)
    return lengths


BLOCK = document_module._BLOCK


def rendered(pods: int) -> Document:
    """Create a document that was rendered, with a cached effect of its registered devices."""
    document = grown(pods)
    document.render()
    _, effect = document._renderer._tail.render(document._registered)
    for low in range(256):
        effect.on(low)
    return document


def test_new_pod_hashes_only_its_bytes(hashed):
    document = rendered(1000)
    for number in range(1000, 1000 + 2 * BLOCK):
        new = render_entry(entry(number))
        document.put(f"u{number}", [new])
        hashed.clear()
        text = document.render()
        assert sum(hashed) == len(new.hashed)
        assert text == written(range(number + 1), 1000)


def test_unchanged_document_hashes_nothing(hashed):
    document = rendered(1000)
    before = document.render()
    hashed.clear()
    assert document.render() == before
    assert hashed == []


def test_change_hashes_at_most_one_block_and_what_follows(hashed):
    document = rendered(1000)
    before = document.render()
    size = len(render_entry(entry(900)).hashed)
    hashed.clear()
    document.remove("u900")
    text = document.render()
    assert sum(hashed) < (100 + BLOCK) * (size + 1)
    assert text == written([*range(900), *range(901, 1000)], 1000)
    hashed.clear()
    document.remove("u999")
    document.render()
    assert sum(hashed) < BLOCK * (size + 1)
    assert document.render() != before


def test_later_blocks_are_cached_after_repeated_changes(hashed):
    document = rendered(1000)
    size = len(render_entry(entry(900)).hashed)
    costs = []
    for number in range(600):
        document.remove(f"u{number}")
        hashed.clear()
        document.render()
        costs.append(sum(hashed) / (size + 1))
    # The first change has a thousand pods behind it, the last one four hundred.
    assert costs[0] > 900
    assert sum(costs[-100:]) / 100 < 2 * BLOCK
    assert document.render() == written(range(600, 1000), 1000)


def test_removals_leave_no_small_blocks():
    document = grown(64 * BLOCK)
    document.render()
    for number in reversed(range(64 * BLOCK)):
        if number % BLOCK:
            document.remove(f"u{number}")
            document.render()
    assert document.render() == written(range(0, 64 * BLOCK, BLOCK), 64 * BLOCK)
    # Commas between blocks, and the text around all of them.
    blocks = (len(document.snapshot().parts()) - 3) / 2
    assert blocks <= 64 * 4 // BLOCK


def test_removed_pods_are_freed():
    document = grown(2 * BLOCK)
    new = render_entry(entry(2 * BLOCK))
    remembered = weakref.ref(new)
    document.put(f"u{2 * BLOCK}", [new])
    del new
    document.render()
    assert remembered() is not None
    for number in range(2 * BLOCK + 1):
        document.remove(f"u{number}")
    assert document.render() == written([], 2 * BLOCK)
    gc.collect()
    assert remembered() is None


def test_pieces_join_to_the_text():
    document = grown(3 * BLOCK)
    assert b"".join(document.snapshot().parts()) == document.render()


def test_registered_devices_are_hashed_once(monkeypatch):
    made = []
    effect = document_module.Effect

    def counting(*text: bytes) -> object:
        made.append(text)
        return effect(*text)

    monkeypatch.setattr(document_module, "Effect", counting)
    document = grown(3)
    document.render()
    made.clear()
    document.put("new", [render_entry(entry(7))])
    document.set_registered({"vendor.com/r": ("d0", "d1", "d2")})
    document.render()
    assert made == []


def test_only_changed_resources_are_rendered(monkeypatch):
    rendered = []
    render = document_module.render_resource

    def counting(name: str, ids: tuple[str, ...] | None) -> Rendered:
        rendered.append(name)
        return render(name, ids)

    monkeypatch.setattr(document_module, "render_resource", counting)
    document = Document()
    document.set_registered({"a": ("1",), "b": ("2",)})
    document.render()
    rendered.clear()
    document.set_registered({"b": ("3",), "a": ("1",), "c": None})
    assert document.render() == dumps(Checkpoint(None, {"a": ("1",), "b": ("3",), "c": None}))
    assert sorted(rendered) == ["b", "c"]


def test_caller_can_modify_its_mapping_later():
    registered = {"a": ("1",)}
    document = Document()
    document.set_registered(registered)
    snapshot = document.snapshot()
    registered["b"] = ("2",)
    assert snapshot.render() == dumps(Checkpoint(None, {"a": ("1",)}))
    document.set_registered(registered)
    assert document.render() == dumps(Checkpoint(None, registered))


def test_pod_keeps_its_position():
    document = Document()
    for number in (1, 2):
        document.put(f"u{number}", [render_entry(entry(number, "init"))])
    document.put("u1", [render_entry(entry(1, "init")), render_entry(entry(1, "app"))])
    expected = (entry(1, "init"), entry(1, "app"), entry(2, "init"))
    assert document.render() == dumps(Checkpoint(expected, {}))
    document.put("u1", [])
    document.remove("u2")
    document.remove("never there")
    assert document.render() == dumps(Checkpoint(None, {}))


def test_snapshots_render_from_many_threads():
    lock = threading.Lock()
    document = Document()
    held: list[int] = []

    def admit(number: int) -> None:
        new = render_entry(entry(number))
        with lock:
            document.put(f"u{number}", [new])
            held.append(number)
            if number % 5 == 0:
                gone = held.pop(len(held) // 2)
                document.remove(f"u{gone}")
            snapshot, now = document.snapshot(), list(held)
        assert snapshot.render() == dumps(Checkpoint(tuple(map(entry, now)) or None, {}))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(admit, range(200))) == [None] * 200
