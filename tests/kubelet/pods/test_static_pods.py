"""A directory of manifests becomes running pods, through every way in which files change."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.core.errors import RequestError
from devicemanager.core.pods import Pod
from devicemanager.kubelet.pods.static_pods import (
    ManifestDirectoryError,
    ManifestFiles,
    StaticPods,
    is_manifest,
)

DEADLINE = 20


def text(name: str, gpus: int = 1, uid: str | None = None) -> str:
    metadata = {"name": name} | ({"uid": uid} if uid else {})
    container = {"name": "main", "image": "i", "resources": {"limits": {"vendor.com/gpu": gpus}}}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {"containers": [container]},
        }
    )


class Owner:
    """Runs pods by name; rejects those whose name begins with ``reject``."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.running: dict[str, Pod] = {}
        self.rejected: dict[str, Pod] = {}
        self.log: list[str] = []
        self.lines: list[str] = []

    def admit(self, pod: Pod, path: Path) -> bool:
        assert pod.uid not in {**self.running, **self.rejected}
        with self.changed:
            self.log.append(f"admit {pod.name}")
            self.changed.notify_all()
            if pod.name.startswith("raise"):
                raise RequestError("no such luck")
            if pod.name.startswith("reject"):
                self.rejected[pod.uid] = pod
                return False
            self.running[pod.uid] = pod
            return True

    def terminate(self, uid: str) -> None:
        with self.changed:
            pod = self.running.pop(uid, None) or self.rejected.pop(uid)
            self.log.append(f"terminate {pod.name}")
            self.changed.notify_all()

    def report(self, line: str) -> None:
        with self.changed:
            self.lines.append(line)
            self.changed.notify_all()

    def gpus(self) -> dict[str, int]:
        return {
            pod.name: pod.containers[0].limits["vendor.com/gpu"] for pod in self.running.values()
        }

    def wait(self, condition: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, DEADLINE), (self.log, self.lines)


@pytest.fixture
def owner() -> Owner:
    return Owner()


@pytest.fixture
def files(tmp_path: Path, owner: Owner) -> ManifestFiles:
    return ManifestFiles(tmp_path, owner, owner.report)


# --- files and their pods, without a watch


def test_scan_admits_in_order_and_terminates_pods_of_missing_files(
    tmp_path: Path, owner: Owner, files: ManifestFiles
) -> None:
    for name in "ba":
        (tmp_path / f"{name}.yaml").write_text(text(name))
    files.scan()
    (tmp_path / "a.yaml").unlink()
    files.scan()
    assert owner.log == ["admit a", "admit b", "terminate a"]


def test_other_files_are_ignored(tmp_path: Path, owner: Owner, files: ManifestFiles) -> None:
    for name in (".a.yaml", ".a.yaml.swp", "a.yaml~", "#a.yaml#", "4913", "a.yaml.tmp", "a"):
        (tmp_path / name).write_text("broken: [")
        assert not is_manifest(name)
    files.scan()
    assert owner.log == owner.lines == []


def test_directory_with_the_name_of_a_manifest_is_reported(
    tmp_path: Path, owner: Owner, files: ManifestFiles
) -> None:
    path = tmp_path / "a.yaml"
    path.mkdir()
    files.scan()
    files.scan()
    assert owner.lines == [f"{path}: is a directory: manifests in it are not read"]
    path.rmdir()
    path.write_text(text("a"))
    files.scan()
    assert owner.log == ["admit a"]
    assert len(owner.lines) == 1


def test_bad_file_is_reported_once_until_it_changes(
    tmp_path: Path, owner: Owner, files: ManifestFiles
) -> None:
    bad = tmp_path / "a.yaml"
    bad.write_text("kind: Service\n")
    files.scan()
    files.scan()
    assert owner.lines == [f'{bad}: kind: Unsupported value: "Service": supported values: "Pod"']
    bad.write_text(text("a"))
    files.scan()
    assert owner.gpus() == {"a": 1}


def test_pod_keeps_running_after_a_bad_change(
    tmp_path: Path, owner: Owner, files: ManifestFiles
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(text("a"))
    files.scan()
    file.write_text("")
    files.scan()
    assert owner.gpus() == {"a": 1}
    assert owner.lines[0].endswith("; the pod admitted from it before keeps running")
    file.write_text(text("a"))
    files.scan()
    assert owner.log == ["admit a"]
    file.unlink()
    files.scan()
    assert owner.log == ["admit a", "terminate a"]


def test_changed_pod_is_admitted_again(tmp_path: Path, owner: Owner, files: ManifestFiles) -> None:
    file = tmp_path / "a.yaml"
    for gpus in (1, 1, 2):
        file.write_text(text("a", gpus))
        files.scan()
    assert owner.log == ["admit a", "terminate a", "admit a"]
    assert owner.gpus() == {"a": 2}


def test_first_of_two_files_keeps_the_uid(
    tmp_path: Path, owner: Owner, files: ManifestFiles
) -> None:
    a, b = tmp_path / "a.yaml", tmp_path / "b.yaml"
    a.write_text(text("a", uid="u-1"))
    b.write_text(text("b", uid="u-1"))
    files.scan()
    files.scan()
    assert owner.gpus() == {"a": 1}
    assert owner.lines == [
        f"{b}: pod default/b has the same UID as the pod in a.yaml (u-1): "
        "not admitted: remove or rename one of them"
    ]
    a.unlink()
    files.scan()
    assert owner.gpus() == {"b": 1}
    assert len(owner.lines) == 1


def test_file_can_pass_its_uid_to_another(
    tmp_path: Path, owner: Owner, files: ManifestFiles
) -> None:
    a, b = tmp_path / "a.yaml", tmp_path / "b.yaml"
    a.write_text(text("a", uid="u-1"))
    b.write_text(text("b", uid="u-1"))
    files.scan()
    a.write_text(text("a", uid="u-2"))
    files.check("a.yaml")
    assert sorted(owner.gpus()) == ["a", "b"]


def test_renamed_file_keeps_its_pod(tmp_path: Path, owner: Owner, files: ManifestFiles) -> None:
    a, b = tmp_path / "a.yaml", tmp_path / "b.yaml"
    a.write_text(text("a"))
    files.scan()
    a.rename(b)
    files.moved("a.yaml", "b.yaml")
    assert owner.log == ["admit a"]
    b.unlink()
    files.check("b.yaml")
    assert owner.log == ["admit a", "terminate a"]


def test_file_renamed_over_another_terminates_its_pod(
    tmp_path: Path, owner: Owner, files: ManifestFiles
) -> None:
    for name in "ab":
        (tmp_path / f"{name}.yaml").write_text(text(name))
    files.scan()
    (tmp_path / "a.yaml").rename(tmp_path / "b.yaml")
    files.moved("a.yaml", "b.yaml")
    assert owner.log[2:] == ["terminate b"]
    assert owner.gpus() == {"a": 1}


def test_rejected_pod_is_retried_when_its_file_is_written(
    tmp_path: Path, owner: Owner, files: ManifestFiles
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(text("reject"))
    files.scan()
    files.check("a.yaml")
    file.unlink()
    files.scan()
    assert owner.log == ["admit reject", "terminate reject", "admit reject", "terminate reject"]


def test_error_of_one_pod_is_reported_and_others_run(
    tmp_path: Path, owner: Owner, files: ManifestFiles
) -> None:
    (tmp_path / "a.yaml").write_text(text("raise"))
    (tmp_path / "b.yaml").write_text(text("b"))
    files.scan()
    assert owner.lines == [f"{tmp_path / 'a.yaml'}: no such luck"]
    assert owner.gpus() == {"b": 1}
    (tmp_path / "a.yaml").unlink()
    files.scan()
    assert owner.log == ["admit raise", "admit b"]


contents = st.one_of(
    st.none(),
    st.just("broken: ["),
    st.builds(
        text,
        st.sampled_from(["a", "b", "reject"]),
        st.integers(1, 2),
        st.sampled_from([None, "u-1", "u-2"]),
    ),
)
steps = st.lists(st.tuples(st.sampled_from(["x.yaml", "y.yaml", "z.yaml"]), contents), max_size=12)


@given(steps)
def test_running_pods_match_the_files(tmp_path_factory: Any, changes: Any) -> None:
    directory, owner = tmp_path_factory.mktemp("manifests"), Owner()
    files = ManifestFiles(directory, owner, owner.report)
    good: dict[str, str] = {}
    for name, content in changes:
        path = directory / name
        if content is None:
            path.unlink(missing_ok=True)
        else:
            path.write_text(content)
        files.check(name)
        present = {each.name for each in directory.iterdir()}
        good = {key: value for key, value in good.items() if key in present}
        if content is not None and content.startswith("{"):
            good[name] = content
        # Each UID runs at most once (the owner asserts it), and none without a file.
        assert len(owner.running) <= len(good)
    for path in directory.iterdir():
        path.unlink()
    files.scan()
    assert owner.running == owner.rejected == {}


# --- pods that hang


class Hanging(Owner):
    """As its base, but actions on a pod named ``slow…`` last until ``release``."""

    def __init__(self) -> None:
        super().__init__()
        self.hanging, self.release = threading.Event(), threading.Event()

    def _hang(self, name: str) -> None:
        if name.startswith("slow"):
            self.hanging.set()
            assert self.release.wait(DEADLINE)

    def admit(self, pod: Pod, path: Path) -> bool:
        self._hang(pod.name)
        return super().admit(pod, path)


@pytest.fixture
def slow() -> Iterator[Hanging]:
    owner = Hanging()
    yield owner
    owner.release.set()
    for thread in threading.enumerate():
        if thread.name == "static pod":
            thread.join(DEADLINE)


def test_hanging_pod_blocks_only_its_own_file(tmp_path: Path, slow: Hanging) -> None:
    files = ManifestFiles(tmp_path, slow, slow.report)
    for name in ("a", "slow-b", "c"):
        (tmp_path / f"{name}.yaml").write_text(text(name))
    files.scan()
    assert slow.log == ["admit a", "admit c"]
    (tmp_path / "a.yaml").unlink()
    (tmp_path / "slow-b.yaml").write_text(text("slow-b", 2))
    (tmp_path / "d.yaml").write_text(text("d"))
    files.scan()
    (tmp_path / "slow-b.yaml").unlink()
    files.scan()
    assert slow.log == ["admit a", "admit c", "terminate a", "admit d"]
    slow.release.set()
    slow.wait(lambda: len(slow.log) == 8)
    assert slow.log[4:] == ["admit slow-b", "terminate slow-b"] * 2
    assert slow.gpus() == {"c": 1, "d": 1}


def test_rewriting_the_file_of_a_hanging_pod_changes_nothing(tmp_path: Path, slow: Hanging) -> None:
    files = ManifestFiles(tmp_path, slow, slow.report, patience=0)
    (tmp_path / "slow.yaml").write_text(text("slow"))
    for _ in range(3):
        files.check("slow.yaml")
    slow.release.set()
    slow.wait(lambda: bool(slow.running))
    files.check("slow.yaml")
    assert slow.log == ["admit slow"]


def test_uid_becomes_free_when_its_pod_is_terminated(tmp_path: Path, slow: Hanging) -> None:
    freed = threading.Event()
    files = ManifestFiles(tmp_path, slow, slow.report, freed.set, patience=0)
    (tmp_path / "slow.yaml").write_text(text("slow", uid="u"))
    files.check("slow.yaml")
    (tmp_path / "slow.yaml").unlink()
    (tmp_path / "then.yaml").write_text(text("then", uid="u"))
    files.scan()
    assert slow.log == slow.lines == []
    slow.release.set()
    assert freed.wait(DEADLINE)
    files.check_waiting()
    slow.wait(lambda: slow.log == ["admit slow", "terminate slow", "admit then"])


def test_unexpected_exception_is_reported(tmp_path: Path, owner: Owner) -> None:
    class Broken(Owner):
        def admit(self, pod: Pod, path: Path) -> bool:
            raise ZeroDivisionError("oh")

    broken = Broken()
    files = ManifestFiles(tmp_path, broken, broken.report)
    (tmp_path / "a.yaml").write_text(text("a"))
    files.scan()
    assert broken.lines == [f"{tmp_path / 'a.yaml'}: unexpected ZeroDivisionError: oh"]


@given(steps, st.booleans())
def test_running_pods_match_the_files_after_any_hang(
    tmp_path_factory: Any, changes: Any, hangs: bool
) -> None:
    """Without patience all pods are admitted concurrently; the owner asserts that each UID runs
    at most once."""
    directory, slow = tmp_path_factory.mktemp("manifests"), Hanging()
    if not hangs:
        slow.release.set()
    files = ManifestFiles(directory, slow, slow.report, patience=0)
    for name, content in changes:
        path = directory / name
        if content is None:
            path.unlink(missing_ok=True)
        else:
            path.write_text(content.replace('"a"', '"slow"'))
        files.check(name)
    slow.release.set()
    for path in directory.iterdir():
        path.unlink()
    files.scan()
    slow.wait(lambda: not slow.running and not slow.rejected)
    assert not [line for line in slow.lines if "unexpected" in line]


# --- watched


@pytest.fixture
def watched(tmp_path: Path, owner: Owner) -> Iterator[Path]:
    with StaticPods(tmp_path, owner, owner.report):
        yield tmp_path


def test_files_are_created_changed_and_deleted(watched: Path, owner: Owner) -> None:
    file = watched / "a.yaml"
    file.write_text(text("a"))
    owner.wait(lambda: owner.gpus() == {"a": 1})
    file.write_text(text("a", 2))
    owner.wait(lambda: owner.gpus() == {"a": 2})
    file.unlink()
    owner.wait(lambda: not owner.running)
    assert owner.lines == []


def test_existing_files_are_admitted_before_start_returns(tmp_path: Path, owner: Owner) -> None:
    (tmp_path / "a.yaml").write_text(text("a"))
    with StaticPods(tmp_path, owner, owner.report):
        assert owner.gpus() == {"a": 1}


def test_file_is_read_when_its_writer_closes_it(watched: Path, owner: Owner) -> None:
    whole = text("a")
    with (watched / "a.yaml").open("w") as file:
        # So far written, one manifest is valid and one broken: neither counts yet.
        for part in (text("early"), whole[:20]):
            file.seek(0)
            file.truncate()
            file.write(part)
            file.flush()
            # When the pod of a second file runs, all events before it have been handled.
            (watched / "z.yaml").write_text(text(f"z{len(part)}"))
            owner.wait(lambda part=part: f"z{len(part)}" in owner.gpus())
        file.seek(0)
        file.truncate()
        file.write(whole)
    owner.wait(lambda: "a" in owner.gpus())
    assert "admit early" not in owner.log
    assert owner.lines == []


@pytest.mark.parametrize("how", ["rename", "rename-within", "link", "symlink"])
def test_moved_or_linked_file_is_read_at_once(
    watched: Path, owner: Owner, tmp_path_factory: Any, how: str
) -> None:
    elsewhere = watched if how == "rename-within" else tmp_path_factory.mktemp("elsewhere")
    source, target = elsewhere / ".a.tmp", watched / "a.yaml"
    source.write_text(text("a"))
    match how:
        case "link":
            target.hardlink_to(source)
        case "symlink":
            target.symlink_to(source)
        case _:
            source.rename(target)
    owner.wait(lambda: owner.gpus() == {"a": 1})


def test_file_moved_away_terminates_its_pod(
    watched: Path, owner: Owner, tmp_path_factory: Any
) -> None:
    for name in "ab":
        (watched / f"{name}.yaml").write_text(text(name))
    owner.wait(lambda: len(owner.running) == 2)
    (watched / "a.yaml").rename(tmp_path_factory.mktemp("elsewhere") / "a.yaml")
    (watched / "b.yaml").rename(watched / "b.yaml~")
    owner.wait(lambda: not owner.running)


def test_update_of_a_mounted_config_map(tmp_path: Path, owner: Owner) -> None:
    for number in (1, 2):
        (tmp_path / f"..{number}").mkdir()
        (tmp_path / f"..{number}" / "a.yaml").write_text(text("a", number))
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "a.yaml").symlink_to("..data/a.yaml")
    with StaticPods(tmp_path, owner, owner.report):
        assert owner.gpus() == {"a": 1}
        (tmp_path / "..tmp").symlink_to("..2")
        (tmp_path / "..tmp").rename(tmp_path / "..data")
        owner.wait(lambda: owner.gpus() == {"a": 2})


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file_is_read_when_permissions_change(watched: Path, owner: Owner) -> None:
    hidden = watched / ".a"
    hidden.write_text(text("a"))
    hidden.chmod(0)
    hidden.rename(watched / "a.yaml")
    owner.wait(lambda: len(owner.lines) == 1)
    assert owner.lines[0].endswith("a.yaml: cannot be read: Permission denied")
    (watched / "a.yaml").chmod(0o600)
    owner.wait(lambda: owner.gpus() == {"a": 1})


def test_deleting_the_directory_terminates_its_pods(tmp_path: Path, owner: Owner) -> None:
    directory = tmp_path / "manifests"
    directory.mkdir()
    with StaticPods(directory, owner, owner.report):
        (directory / "a.yaml").write_text(text("a"))
        owner.wait(lambda: owner.gpus() == {"a": 1})
        (directory / "a.yaml").unlink()
        directory.rmdir()
        owner.wait(lambda: len(owner.lines) == 1)
    assert owner.lines == [f"manifest directory {directory} deleted: its pods are terminated"]
    assert owner.running == {}


def test_changes_after_stop_are_ignored(tmp_path: Path, owner: Owner) -> None:
    before = set(threading.enumerate())
    static_pods = StaticPods(tmp_path, owner, owner.report)
    static_pods.start()
    static_pods.stop()
    static_pods.stop()
    (tmp_path / "a.yaml").write_text(text("a"))
    limit = time.monotonic() + DEADLINE
    while set(threading.enumerate()) - before and time.monotonic() < limit:
        for thread in set(threading.enumerate()) - before:
            thread.join(0.1)
    assert set(threading.enumerate()) <= before
    assert owner.log == []


def test_start_does_not_wait_for_a_hanging_admission(tmp_path: Path, slow: Hanging) -> None:
    for name in ("slow", "quick"):
        (tmp_path / f"{name}.yaml").write_text(text(name))
    with StaticPods(tmp_path, slow, slow.report):
        assert slow.log == ["admit quick"]
        (tmp_path / "later.yaml").write_text(text("later"))
        slow.wait(lambda: slow.log == ["admit quick", "admit later"])
        slow.release.set()
        slow.wait(lambda: "slow" in slow.gpus())


def test_stop_does_not_wait_for_a_hanging_admission(tmp_path: Path, slow: Hanging) -> None:
    static_pods = StaticPods(tmp_path, slow, slow.report)
    static_pods.start()
    (tmp_path / "slow.yaml").write_text(text("slow"))
    assert slow.hanging.wait(DEADLINE)
    (tmp_path / "slow.yaml").write_text(text("slow", 2))
    static_pods.stop()
    assert slow.log == []
    slow.release.set()
    slow.wait(lambda: slow.log == ["admit slow"])
    for thread in threading.enumerate():
        if thread.name == "static pod":
            thread.join(DEADLINE)
    assert slow.log == ["admit slow"]


def test_unwatchable_directory_is_an_error(tmp_path: Path, owner: Owner) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ManifestDirectoryError, match=r"file: Not a directory$"):
        StaticPods(file, owner, owner.report).start()
    with pytest.raises(ManifestDirectoryError, match=r"none: No such file or directory$"):
        StaticPods(tmp_path / "none", owner, owner.report).start()
