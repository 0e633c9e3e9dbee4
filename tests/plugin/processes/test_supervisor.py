"""The supervisor: what passes through it, and that no process is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from devicemanager.plugin.processes import mount_points

EXEC = [sys.executable, "-m", "devicemanager", "exec"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    directory = tmp_path / "kubelet"
    (directory / "device-plugins").mkdir(parents=True)
    return directory


def run(root: Path, *command: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*EXEC, "--root", str(root), "--", *command],
        capture_output=True,
        text=True,
        timeout=30,
        **options,
    )


def shell(root: Path, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(root, "sh", "-c", script, "sh", *arguments)


@pytest.fixture(params=["root", "user"])
def as_anyone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test once as root, once without the capability to mount."""
    if request.param == "user" and os.geteuid() == 0:
        setpriv = ["setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"]
        monkeypatch.setattr(sys.modules[__name__], "EXEC", [*setpriv, *EXEC])
    elif request.param == "root" and os.geteuid() != 0:
        pytest.skip("not root")
    return request.param


def test_command_finds_the_mock_at_the_path_of_a_kubelet(root: Path, as_anyone: str):
    (root / "device-plugins" / "here").write_text("found")
    done = shell(
        root,
        "cat /var/lib/kubelet/device-plugins/here; echo made > /var/lib/kubelet/new; ls /var/lib",
    )
    assert done.stderr == "" and done.returncode == 0
    entries = {path.name for path in Path("/var/lib").iterdir()} | {"kubelet"}
    assert done.stdout.startswith("found")
    assert set(done.stdout.removeprefix("found").split()) == entries
    assert (root / "new").read_text() == "made\n"


def test_mounts_are_not_visible_outside(
    root: Path, as_anyone: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # Directories of other processes in /tmp do not count.
    stages = tmp_path / "stages"
    stages.mkdir()
    monkeypatch.setenv("TMPDIR", str(stages))
    mounts = Path("/proc/self/mountinfo").read_text()
    before = Path("/var/lib/kubelet").exists()
    assert shell(root, "test -d /var/lib/kubelet/device-plugins").returncode == 0
    assert Path("/proc/self/mountinfo").read_text() == mounts
    assert Path("/var/lib/kubelet").exists() is before
    assert not list(stages.iterdir())


def test_dev_sys_and_cdi_directories_are_mounted(root: Path, tmp_path: Path, as_anyone: str):
    for name in ("dev", "sys", "cdi"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"in-{name}").touch()
    (tmp_path / "dev" / "null-like").touch()
    options = [f"--{name}={tmp_path / name}" for name in ("dev", "sys", "cdi")]
    done = subprocess.run(
        [
            *EXEC,
            f"--root={root}",
            *options,
            "--",
            "sh",
            "-c",
            "echo gone > /dev/null; ls /dev/in-dev /sys /etc/cdi /var/run/cdi; ls /dev/sda 2>&1",
        ],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.stdout.split().count("in-cdi") == 2
    assert {"/dev/in-dev", "in-sys"} <= set(done.stdout.split())
    assert "No such file" in done.stdout
    # The given directory is unchanged.
    assert {path.name for path in (tmp_path / "dev").iterdir()} == {"in-dev", "null-like"}


def test_running_command_sees_changes_of_dev(root: Path, tmp_path: Path, as_anyone: str):
    dev = tmp_path / "dev"
    dev.mkdir()
    (dev / "card0").touch()
    (dev / "zero").symlink_to("full")  # an entry of the caller replaces the common node
    script = (
        "echo ready; read line; cd /dev; ls; "
        "test -e card0 || echo removed; test -e card1 && echo added; test -c null && readlink zero"
    )
    with subprocess.Popen(
        [*EXEC, f"--root={root}", f"--dev={dev}", "--", "sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        (dev / "card0").unlink()
        (dev / "card1").touch()
        # A second command neither disturbs the first, nor removes its mount points.
        other = [*EXEC, f"--root={root}", f"--dev={dev}", "--", "test", "-c", "/dev/null"]
        assert subprocess.run(other, timeout=30).returncode == 0
        assert (dev / "null").exists()
        output, _ = process.communicate("go\n", timeout=30)
    words = output.split()
    assert words[-3:] == ["removed", "added", "full"]
    assert {"card1", "null", "shm", "random"} <= set(words) and "card0" not in words
    # The entries for common nodes are removed, those of the caller are not.
    assert {path.name for path in dev.iterdir()} == {"card1", "zero"}


def test_directory_without_permissions_gets_no_mount_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As on FAT: without the mark, a run could not find or remove its mount points."""
    monkeypatch.setattr(mount_points, "is_mount_point", lambda path: False)
    lines: list[str] = []
    with mount_points.mount_points(tmp_path, Path("/dev"), ["null"], lines.append):
        assert list(tmp_path.iterdir()) == []
    assert len(lines) == 1 and "(the file system does not support permissions)" in lines[0]


def test_dev_without_write_access_is_copied(root: Path, as_anyone: str):
    done = subprocess.run(
        [*EXEC, f"--root={root}", "--dev=/sys/fs", "--", "sh", "-c", "echo > /dev/null; ls /dev"],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert {"null", "shm", *os.listdir("/sys/fs")} <= set(done.stdout.split())  # noqa: PTH208
    assert done.stderr.startswith("devicemanager: warning: cannot create mount points in /sys/fs (")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("status", [0, 1, 42, 255])
def test_exit_status_passes_through(root: Path, status: int):
    assert shell(root, f"exit {status}").returncode == status


@pytest.mark.parametrize("name", ["TERM", "KILL", "INT", "HUP"])
def test_death_by_a_signal_passes_through(root: Path, name: str):
    done = shell(root, f"kill -{name} $$")
    assert done.returncode == -signal.Signals[f"SIG{name}"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGALRM])
def test_signals_reach_the_command(root: Path, number: signal.Signals):
    name = number.name.removeprefix("SIG")
    script = f"trap 'echo got {name}; exit 7' {name}; echo ready; while :; do sleep 0.05; done"
    with subprocess.Popen(
        [*EXEC, "--root", str(root), "--", "sh", "-c", script], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.stdout.read() == f"got {name}\n"
        assert process.wait(10) == 7


def test_descendants_end_with_the_command(root: Path, tmp_path: Path):
    pids = tmp_path / "pids"
    done = shell(root, "setsid sh -c 'sleep 300 & echo $! $$ > $0; wait' $1 & sleep 0.3", str(pids))
    assert done.returncode == 0
    assert not any(map(psutil.pid_exists, map(int, pids.read_text().split())))


def test_descendants_that_ignore_sigterm_are_killed(root: Path, tmp_path: Path):
    pid = tmp_path / "pid"
    stubborn = "trap '' TERM; echo $$ > $0.new; mv $0.new $0; while :; do sleep 0.05; done"
    wait = 'setsid sh -c "$2" $1 & while ! test -e $1; do sleep 0.02; done'
    assert shell(root, wait, str(pid), stubborn).returncode == 0
    assert not psutil.pid_exists(int(pid.read_text()))


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["--", "no-such-command"], 127, "no-such-command: cannot be started: No such file"),
        (["--dev", "/no/such", "--", "true"], 2, "--dev: /no/such is not a directory"),
        ([], 2, "the following arguments are required: COMMAND"),
    ],
)
def test_invalid_command_is_an_error(root: Path, arguments: list[str], status: int, text: str):
    done = subprocess.run(
        [*EXEC, "--root", str(root), *arguments], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == status and text in done.stderr
    assert "Traceback" not in done.stderr


def test_missing_root_is_an_error(tmp_path: Path):
    done = run(tmp_path / "none", "true")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--root" in done.stderr and "is not a directory" in done.stderr


def gone(pid: int) -> bool:
    limit = time.monotonic() + 10
    while psutil.pid_exists(pid) and time.monotonic() < limit:
        time.sleep(0.01)
    return not psutil.pid_exists(pid)


ENDING = ["KILL", "ALRM", "VTALRM", "PROF", "XCPU", "RTMIN", "PWR"]


@pytest.mark.parametrize("name", ENDING)
def test_command_and_descendants_end_with_exec(root: Path, name: str, as_anyone: str):
    script = "sh -c 'echo $$; exec sleep 300' & echo $$; wait"
    with subprocess.Popen(
        [*EXEC, "--root", str(root), "--", "sh", "-c", script], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        pids = [int(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.Signals[f"SIG{name}"])
        process.wait(30)
        assert all(map(gone, pids))


def test_command_ends_with_its_supervisor(root: Path):
    script = "echo $$; exec sleep 300"
    with subprocess.Popen(
        [*EXEC, "--root", str(root), "--", "sh", "-c", script], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        (supervisor,) = psutil.Process(process.pid).children()
        supervisor.kill()
        assert process.wait(30) == -signal.SIGKILL
        assert gone(pid)


def test_everything_ends_with_the_program_at_the_lifeline(tmp_path: Path):
    """A program starts a plugin and is then killed."""
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, time\n"
        "from devicemanager import MockKubelet\n"
        "from devicemanager.testing import PluginProcess\n"
        "with MockKubelet() as kubelet:\n"
        "    plugin = PluginProcess(kubelet, ['sh', '-c', 'sleep 300 & echo $!; wait']).start()\n"
        "    while not plugin.output():\n"
        "        time.sleep(0.01)\n"
        "    print(kubelet.root, plugin.pid, *plugin.output(), flush=True)\n"
        "    time.sleep(300)\n"
    )
    with subprocess.Popen(
        [sys.executable, str(program)], stdout=subprocess.PIPE, text=True, cwd=Path.cwd()
    ) as process:
        assert process.stdout is not None
        root, *pids = process.stdout.readline().split()
        assert all(psutil.pid_exists(int(pid)) for pid in pids)
        process.kill()
    assert all(gone(int(pid)) for pid in pids)
    subprocess.run(["rm", "-r", root], check=True)
