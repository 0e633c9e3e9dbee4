"""The directory watch: it follows the directory, not only its first incarnation."""

import threading

import pytest

from devicemanager.plugin.watch import DirectoryWatch

PATIENCE = 15.0


@pytest.fixture
def rung():
    return threading.Event()


@pytest.fixture
def watch(directory, rung):
    made = DirectoryWatch(directory / "plugins", rung.set)
    yield made
    made.stop()


def test_a_directory_is_watched_once_it_is_there_and_anew_when_made_anew(directory, watch, rung):
    plugins = directory / "plugins"
    assert not watch.ensure()
    for _ in range(2):
        plugins.mkdir()
        assert watch.ensure()
        assert not watch.ensure()
        rung.clear()
        (plugins / "kubelet.sock").touch()
        assert rung.wait(PATIENCE)
        rung.clear()
        (plugins / "kubelet.sock").unlink()
        assert rung.wait(PATIENCE)
        # A file keeps the next directory from getting this one's number.
        (directory / "keep").touch()
        plugins.rmdir()
        assert not watch.ensure()


def test_after_a_stop_nothing_rings(directory, watch, rung):
    (directory / "plugins").mkdir()
    watch.ensure()
    watch.stop()
    (directory / "plugins/kubelet.sock").touch()
    assert not rung.is_set()
    assert watch.ensure()
    (directory / "plugins/kubelet.sock").unlink()
    assert rung.wait(PATIENCE)


@pytest.mark.parametrize("when", ["at once", "when started"])
def test_without_inotify_it_says_so_once(directory, watch, monkeypatch, caplog, when):
    class Exhausted:
        def __init__(self):
            if when == "at once":
                raise OSError(24, "Too many open files")

        def schedule(self, *_args, **_options):
            pass

        def start(self):
            raise OSError(28, "No space left on device")

        def stop(self):
            pass

    (directory / "plugins").mkdir()
    monkeypatch.setattr("devicemanager.plugin.watch.Observer", Exhausted)
    assert not watch.ensure()
    assert not watch.ensure()
    assert caplog.text.count("looking at it instead") == 1
