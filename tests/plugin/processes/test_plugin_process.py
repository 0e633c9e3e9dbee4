"""Plugins in separate processes, as authors in any language test them."""

from __future__ import annotations

import sys
import textwrap
import threading

import psutil
import pytest

from devicemanager import ManualClock, WaitTimeout
from devicemanager.testing import PluginProcess, ProcessEnded
from tests.sessions import NO_SUITE_PLUGINS

GPU = "vendor.com/gpu"
pytest_plugins = ["pytester"]

SIMULATED = [sys.executable, "-m", "devicemanager.plugin.simulated", "run"]


def simulated(*options: str, resource: str = GPU, directory: str = "{plugin_dir}") -> list[str]:
    return [*SIMULATED, "--resource-name", resource, "--directory", directory, *options]


def python(source: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(source)]


def test_command_is_run_and_stopped(mock_kubelet, plugin_process):
    process = plugin_process(simulated("--number-devices", "3"), GPU, 3)
    assert mock_kubelet.allocatable() == {GPU: 3}
    assert process.is_running and process.starts == 1
    assert process.terminate() == 0
    assert process.exit_status == 0 and not process.is_running
    mock_kubelet.wait_for_resource(GPU, 0)


def test_placeholders_in_env_are_replaced(mock_kubelet, plugin_process):
    process = plugin_process(
        ["sh", "-c", "echo $A $B; sleep 300"],
        env={"A": "{plugin_dir}:{kubelet_socket}", "B": "{root}"},
    )
    mock_kubelet.wait_for(process.output, what="a line")
    expected = f"{mock_kubelet.plugin_dir}:{mock_kubelet.plugin_socket} {mock_kubelet.root}"
    assert process.output() == [expected]


def test_plugin_of_the_framework_needs_no_path(mock_kubelet, plugin_process, monkeypatch):
    monkeypatch.setenv("DEVICE_PLUGIN_DIRECTORY", "/of/another/kubelet")
    plugin_process([*SIMULATED, "--resource-name", GPU], GPU, 2)
    command = ["sh", "-c", "echo $DEVICE_PLUGIN_DIRECTORY; sleep 300"]
    for options, expected in (
        ({"env": {"DEVICE_PLUGIN_DIRECTORY": "{root}/mine"}}, f"{mock_kubelet.root}/mine"),
        ({"at_node_paths": True}, "/of/another/kubelet"),
    ):
        process = plugin_process(command, **options)
        mock_kubelet.wait_for(process.output, what="a line")
        assert process.output() == [expected]


def test_command_cannot_hide_the_supervisor(plugin_process, tmp_path):
    """The command's directory and PYTHONPATH have another package ``devicemanager``."""
    (tmp_path / "devicemanager").mkdir()
    (tmp_path / "devicemanager/__init__.py").write_text("raise SystemExit('the wrong package')")
    process = plugin_process(["true"], cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    assert (process.wait(), process.output()) == (0, [])


def test_plugin_with_hard_coded_paths(mock_kubelet, plugin_process):
    command = simulated(directory="/var/lib/kubelet/device-plugins")
    plugin_process(command, GPU, 2, at_node_paths=True)


def test_early_exit_is_noticed_at_once(mock_kubelet, plugin_process):
    command = ["sh", "-c", "echo no such driver >&2; exit 3"]
    with pytest.raises(ProcessEnded) as ended:
        plugin_process(command, GPU, timeout=60)
    assert "sh exited with status 3" in str(ended.value)
    assert "  | no such driver" in str(ended.value)


def test_escape_sequences_in_output_are_not_printed(plugin_process):
    with pytest.raises(ProcessEnded) as ended:
        plugin_process(["printf", "\x1b[31mred"], GPU, timeout=60)
    assert "\x1b" not in str(ended.value) and "red" in str(ended.value)


def test_missing_resource_is_a_wait_timeout(plugin_process):
    with pytest.raises(
        WaitTimeout, match=r"^waited 0\.2 s for any devices of vendor\.com/gpu from sleep"
    ):
        plugin_process(["sleep", "300"], GPU, timeout=0.2)


def test_command_that_does_not_exit_is_a_wait_timeout(mock_kubelet, plugin_process):
    process = plugin_process(["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"])
    mock_kubelet.wait_for(process.output, what="a line")
    with pytest.raises(WaitTimeout, match=r"sh still runs after 0 s\n  \| ready"):
        process.wait(0)
    with pytest.raises(WaitTimeout, match=r"^sh still runs 0 s after SIGTERM"):
        process.terminate(0)
    assert process.kill() == -9


@pytest.mark.parametrize(("timeout", "status"), [(0.0, -9), (30.0, 7)])
def test_stop_waits_for_the_exit_up_to_its_timeout(mock_kubelet, plugin_process, timeout, status):
    script = "trap 'sleep 0.3; exit 7' TERM; echo ready; while :; do sleep 0.1; done"
    process = plugin_process(["sh", "-c", script])
    mock_kubelet.wait_for(process.output, what="a line")
    process.stop(timeout)
    assert process.exit_status == status


def test_missing_command_is_an_error(plugin_process):
    with pytest.raises(ProcessEnded, match=r"^no-such-plugin exited with status 127"):
        plugin_process(["no-such-plugin"], GPU)


def test_invalid_uses_are_errors(mock_kubelet):
    with pytest.raises(TypeError, match=r"^expected a command as a list of words"):
        PluginProcess(mock_kubelet, "./plugin --flag")
    with pytest.raises(ValueError, match=r"^unknown restart 'sometimes': use 'never'"):
        PluginProcess(mock_kubelet, ["x"], restart="sometimes")
    process = PluginProcess(mock_kubelet, ["x"])
    for use in (process.wait, process.kill, process.pause):
        with pytest.raises(ProcessEnded, match=r"^x was never started"):
            use()
    process.stop()


def test_process_that_has_ended_gets_no_signal(plugin_process):
    process = plugin_process(["sh", "-c", "exit 3"])
    assert process.wait() == 3
    for use in (process.terminate, process.pause):
        with pytest.raises(ProcessEnded, match=r"^sh exited with status 3"):
            use()


def test_stop_cancels_a_restart_that_waits(make_mock_kubelet):
    clock = ManualClock(1000.0)
    kubelet = make_mock_kubelet(clock=clock)
    timers = len(clock._timers)
    with PluginProcess(kubelet, ["false"], restart="always") as process:
        kubelet.wait_for(lambda: process.waits, what="the second exit")
        assert len(clock._timers) == timers + 1
    assert len(clock._timers) == timers


def test_restarts_back_off_as_in_the_kubelet(make_mock_kubelet):
    clock = ManualClock(1000.0)
    kubelet = make_mock_kubelet(clock=clock)
    with PluginProcess(kubelet, ["false"], restart="always") as process:
        # The first restart is immediate, the next ones 10, 20 and 40 s after the exit.
        for count, pause in ((2, 10.0), (3, 20.0), (4, 40.0)):
            kubelet.wait_for(lambda n=count: process.starts == n and process.waits, what="the exit")
            clock.advance(pause - 0.1)
            assert process.starts == count
            clock.advance(0.1)
            assert process.starts == count + 1
    assert not process.is_running
    clock.advance(1000.0)
    assert process.starts == 5


def test_long_running_process_restarts_at_once(make_mock_kubelet):
    clock = ManualClock(1000.0)
    kubelet = make_mock_kubelet(clock=clock)
    with PluginProcess(kubelet, ["sleep", "300"], restart="always") as process:
        for starts in (2, 3):
            clock.advance(601.0)
            process.kill()
            kubelet.wait_for(lambda n=starts: process.starts == n and process.is_running)


def test_concurrent_start_and_restart_run_one_process(mock_kubelet, tmp_path, monkeypatch):
    """A test stops and starts the process just when its exit is about to restart it."""
    launch, threads = PluginProcess._launch, []

    def late(process, former):
        threads.append(threading.current_thread())
        if len(threads) == 2:
            process.stop()
            process.start()
        launch(process, former)

    monkeypatch.setattr(PluginProcess, "_launch", late)
    once = f"test -e {tmp_path}/ended || {{ touch {tmp_path}/ended; exit 1; }}; exec sleep 300"
    with PluginProcess(mock_kubelet, ["sh", "-c", once], restart="always") as process:
        mock_kubelet.wait_for(lambda: len(threads) == 3)
        threads[1].join()
        assert process.starts == 2 and process.is_running


def test_pause_and_resume(mock_kubelet, plugin_process):
    process = plugin_process(simulated(), GPU, 2)
    child = psutil.Process(process.pid)
    process.pause()
    mock_kubelet.wait_for(lambda: child.status() == psutil.STATUS_STOPPED)
    process.resume()
    mock_kubelet.wait_for(lambda: child.status() != psutil.STATUS_STOPPED)
    process.pause()
    process.stop()  # works with a paused process
    assert process.exit_status is not None


def test_paused_command_can_be_terminated(mock_kubelet, plugin_process):
    process = plugin_process(["sleep", "300"])
    child = psutil.Process(process.pid)
    process.pause()
    mock_kubelet.wait_for(lambda: child.status() == psutil.STATUS_STOPPED)
    assert process.terminate() == -15


def test_upgrade_without_a_gap(mock_kubelet, plugin_process):
    process = plugin_process(simulated("--plugin-name", "one"), GPU, 2)
    old = process.pid
    process.upgrade(simulated("--plugin-name", "two", "--number-devices", "5"), GPU)
    mock_kubelet.wait_for_resource(GPU, 5)
    assert process.pid != old
    mock_kubelet.wait_for(lambda: not psutil.pid_exists(old))
    assert mock_kubelet.allocatable() == {GPU: 5}


def test_stop_also_ends_old_commands_of_upgrades(mock_kubelet, plugin_process):
    process = plugin_process(["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"])
    mock_kubelet.wait_for(process.output, what="a line")
    old = process.pid
    process.upgrade(simulated(), GPU)
    process.upgrade(simulated("--plugin-name", "two"), GPU)
    assert psutil.pid_exists(old)
    process.stop(1)
    assert not psutil.pid_exists(old)


def test_failed_upgrade_keeps_the_old_process(mock_kubelet, plugin_process):
    process = plugin_process(simulated(), GPU, 2)
    old = process.pid
    with pytest.raises(ProcessEnded):
        process.upgrade(["false"], GPU)
    assert process.pid == old and process.is_running
    assert mock_kubelet.allocatable() == {GPU: 2}


def test_output_without_line_breaks_is_split(mock_kubelet, plugin_process):
    process = plugin_process(python("print('x' * 300_000, end='', flush=True)"))
    process.wait()
    assert sum(map(len, process.output())) == 300_000
    assert max(map(len, process.output())) <= 1 << 16


def test_no_process_is_left_after_the_test(pytester):
    pytester.makepyfile(
        """
        import psutil

        seen = []

        def test_one(plugin_process):
            process = plugin_process(["sh", "-c", "sleep 300 & echo $!; wait"])
            while not process.output():
                pass
            seen.extend([process.pid, int(process.output()[0])])
            assert all(map(psutil.pid_exists, seen))

        def test_two():
            assert not any(map(psutil.pid_exists, seen))
        """
    )
    pytester.runpytest_subprocess(*NO_SUITE_PLUGINS).assert_outcomes(passed=2)


def test_failure_report_has_the_output_of_the_process(pytester):
    pytester.makepyfile(
        """
        def test_one(plugin_process):
            process = plugin_process(["sh", "-c", "echo driver not loaded; sleep 300"])
            while not process.output():
                pass
            assert False
        """
    )
    result = pytester.runpytest_subprocess(*NO_SUITE_PLUGINS)
    result.stdout.fnmatch_lines(["*plugin process output*", "sh, started once", "  | driver*"])


@pytest.mark.parametrize("at_node_paths", [False, True])
def test_start_and_stop_leak_no_descriptors_and_threads(
    mock_kubelet, tmp_path, monkeypatch, at_node_paths
):
    # Directories of other processes in /tmp do not count.
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    here = psutil.Process()

    def round_() -> None:
        with PluginProcess(mock_kubelet, ["sleep", "300"], at_node_paths=at_node_paths) as process:
            process.kill()

    round_()
    before = here.num_fds(), here.num_threads()
    for _ in range(10):
        round_()
    mock_kubelet.wait_for(lambda: here.num_threads() <= before[1], what="threads")
    assert here.num_fds() <= before[0]
    assert not here.children(recursive=True)
    assert not list(tmp_path.glob("dm-mounts-*"))
