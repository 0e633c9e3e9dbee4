"""Commands with the settings of a container: both backends, notes, and the end of all processes."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from io import RawIOBase
from pathlib import Path
from typing import Any

import pytest

from devicemanager.core.runoptions import NetworkInterface, PciDevice, RunOptions
from devicemanager.kubelet.container_runs import bundle_of
from devicemanager.plugin.processes.namespace import NamespaceError, enter_container
from devicemanager.sandbox import Bundle, SandboxError, backends, bundle, inside, run
from devicemanager.sandbox.inside import _add_processes
from devicemanager.sandbox.terminal import add_to

BACKENDS = [
    "namespaces",
    *(
        pytest.param(
            each, marks=pytest.mark.skipif(not shutil.which(each), reason=f"no {each} is installed")
        )
        for each in ("crun", "runc")
    ),
]


def works() -> bool:
    """True if this machine allows user namespaces."""
    program = f"from {enter_container.__module__} import enter_container; enter_container()"
    return not subprocess.run([sys.executable, "-c", program], capture_output=True).returncode


pytestmark = pytest.mark.skipif(not works(), reason="the machine allows no user namespaces")


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "libgpu.so"
    path.write_text("the library\n")
    return path


def said(made: Bundle, backend: str) -> str:
    done = run(made, backend, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def shell(text: str, fragment: dict[str, Any], rootfs: Path = Path("/")) -> Bundle:
    return bundle(fragment, ["/bin/sh", "-c", text], rootfs)


def bind(source: Path, destination: str, *options: str) -> dict[str, Any]:
    return {"destination": destination, "type": "", "source": str(source), "options": list(options)}


@pytest.mark.parametrize("backend", BACKENDS)
def test_variables_and_mounts_at_new_paths(backend: str, library: Path) -> None:
    mounts = [
        bind(library, "/usr/lib/new/libgpu.so", "ro"),
        bind(library.parent, "/opt/vendor/deep"),
        bind(library, "/var/run/vendor/libgpu.so"),
    ]
    fragment = {"process": {"env": ["GPU=0", "PATH=/bin:/usr/bin"]}, "mounts": mounts}
    text = "echo $GPU; cat /usr/lib/new/libgpu.so /opt/vendor/deep/libgpu.so; "
    text += "cat /var/run/vendor/libgpu.so; echo written > /opt/vendor/deep/new"
    assert said(shell(text, fragment), backend) == "0\n" + "the library\n" * 3
    assert (library.parent / "new").read_text() == "written\n"
    assert not Path("/usr/lib/new").exists()


@pytest.mark.parametrize("backend", BACKENDS)
def test_only_writable_mounts_can_be_written(backend: str, library: Path, tmp_path: Path) -> None:
    fragment = {"mounts": [bind(library, "/opt/libgpu.so", "ro")]}
    text = f"echo x 2>/dev/null >/opt/libgpu.so; echo x 2>/dev/null >{tmp_path}/new; "
    text += "echo x 2>/dev/null >/usr/new; mount -o remount,rw /usr 2>/dev/null; "
    text += "touch /usr/new 2>/dev/null; echo y >/tmp/new; cat /tmp/new"
    assert said(shell(text, fragment), backend) == "y\n"
    assert library.read_text() == "the library\n"
    assert not Path("/usr/new").exists()


@pytest.mark.parametrize("backend", BACKENDS)
def test_device_node_with_another_name(backend: str) -> None:
    device = {"path": "/dev/vendor0", "type": "c", "major": 1, "minor": 5}
    text = "head -c 3 /dev/vendor0 | wc -c; echo x >/dev/vendor0; ls -l /dev/vendor0 | cut -c1"
    assert said(shell(text, {"linux": {"devices": [device]}}), backend) == "3\nc\n"


def test_device_node_is_a_bind_mount_of_the_host_node() -> None:
    device = {"path": "/dev/zero", "type": "c", "major": 1, "minor": 5}
    assert bundle({"linux": {"devices": [device]}}, ["true"]).config["mounts"] == [
        {
            "destination": "/dev/zero",
            "type": "bind",
            "source": "/dev/zero",
            "options": ["bind", "rw", "nosuid"],
        }
    ]


@pytest.mark.parametrize(
    "device",
    [
        {"path": "/dev/tty", "type": "c", "major": 5, "minor": 0},
        {"path": "/dev/tty", "type": "u", "major": 5},  # unbuffered, and without the default minor
    ],
)
def test_type_and_default_number_of_a_device_node(device: dict[str, Any]) -> None:
    pipe = {"path": "/dev/pipe", "type": "p"}
    made = bundle({"linux": {"devices": [pipe, device]}}, ["true"])
    assert made.notes[0] == "device node /dev/pipe is left out: it is a named pipe"
    assert [each["source"] for each in made.config["mounts"]] == ["/dev/tty"]


def test_configuration_is_restricted() -> None:
    config = bundle({"annotations": {"a": "b"}}, ["true", "x"], Path("/srv")).config
    assert config["root"] == {"path": "/srv", "readonly": True}
    assert config["process"]["args"] == ["true", "x"]
    assert (config["process"]["noNewPrivileges"], config["process"]["terminal"]) == (True, False)
    assert config["annotations"] == {"a": "b"}


def test_mounts_are_bind_mounts_or_in_memory(library: Path) -> None:
    memory = {"destination": "/scratch", "type": "tmpfs", "source": "tmpfs"}
    mounts = [
        bind(library, "/a", "ro"),
        bind(library, "/b", "bind", "rw"),
        bind(library, "/c", "rbind"),
        memory,
    ]
    made = shell("echo x >/scratch/new; cat /scratch/new", {"mounts": mounts})
    *binds, last = made.config["mounts"]
    assert [each["options"] for each in binds] == [["ro", "rbind"], ["bind", "rw"], ["rbind"]]
    assert {each["type"] for each in binds} == {"bind"} and last == memory
    assert said(made, "namespaces") == "x\n"


@pytest.mark.parametrize("backend", BACKENDS)
def test_basic_device_nodes(backend: str) -> None:
    text = "for n in full null random tty urandom zero; do test -c /dev/$n || echo no $n; done"
    assert said(shell(text, {}), backend) == ""


@pytest.mark.parametrize("backend", BACKENDS)
def test_processes_of_the_command_end_with_it(backend: str) -> None:
    # Otherwise the test would wait until the end of the sleep.
    assert said(shell("sleep 3000 & ls /proc/$!/exe", {}), backend) != ""


@pytest.mark.skipif(not os.access("/dev/fuse", os.R_OK | os.W_OK), reason="no usable /dev/fuse")
@pytest.mark.parametrize("backend", BACKENDS)
def test_fuse_can_be_opened(backend: str) -> None:
    device = {"path": "/dev/fuse", "type": "c", "major": 10, "minor": 229}
    made = shell("exec 3<>/dev/fuse && echo open", {"linux": {"devices": [device]}})
    assert made.notes == ()
    assert said(made, backend) == "open\n"


@pytest.mark.parametrize("backend", BACKENDS)
def test_hooks_run_before_the_command(backend: str) -> None:
    # The root file system of the container is at this path for hooks.
    script = "cat > /tmp/root/tmp/state; echo $1 > /tmp/root/tmp/hooked"
    hook = {"path": "/bin/sh", "args": ["sh", "-c", script, "sh", "ran"]}
    fragment = {"hooks": {"createContainer": [hook]}}
    text = "cat /tmp/hooked; grep -c bundle /tmp/state"
    assert said(shell(text, fragment), backend) == "ran\n1\n"


def test_hooks_get_the_state_of_the_container() -> None:
    # The output of hooks is on standard error.
    # One write for each line: hooks can run at the same time.
    hook = {"path": "/bin/sh", "args": ["sh", "-c", "printf '%s\\n' \"$(cat)\""]}
    kinds = ("createRuntime", "startContainer", "poststart", "poststop")
    made = shell("true", {"hooks": {kind: [hook] for kind in kinds}})
    done = run(made, "namespaces", capture_output=True, text=True)
    states = [json.loads(line) for line in done.stderr.splitlines()]
    assert {frozenset(each) for each in states} == {
        frozenset(("ociVersion", "id", "status", "pid", "bundle"))
    }
    # The hooks at the start of the command can run at the same time.
    assert states[0]["status"] == "creating"
    assert {each["status"] for each in states[1:3]} == {"created", "running"}
    last = states[-1]
    assert (states[0]["pid"], last["pid"]) == (1, 1)
    assert (last["id"], last["status"], last["bundle"]) == ("container", "stopped", "/tmp")


def test_hook_has_only_its_own_variables() -> None:
    hook = {"path": "/usr/bin/env", "args": ["env"], "env": ["A=b=c", "D="]}
    made = shell("env | grep ^E", {"process": {"env": ["E=f=g"]}, "hooks": {"poststart": [hook]}})
    done = run(made, "namespaces", capture_output=True, text=True)
    assert (done.stderr, done.stdout) == ("A=b=c\nD=\n", "E=f=g\n")


def test_orphans_are_reaped_before_the_command_ends() -> None:
    text = "orphan=$(sh -c 'exit 9' >/dev/null & echo $!); "
    text += "while kill -0 $orphan 2>/dev/null; do :; done; exit 5"
    assert run(shell(text, {}), "namespaces").returncode == 5


def test_variables_of_the_container_override_the_defaults() -> None:
    fragment = {"process": {"env": ["GPU=0", "HOME=/home/a=b", "GPU=1"]}}
    default = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    assert bundle(fragment, ["true"]).config["process"]["env"] == [
        *(default, "HOME=/home/a=b", "TERM=xterm", "GPU=1")
    ]


def test_runtime_creates_processes_and_a_terminal() -> None:
    """Runtimes are not installed on every machine, so this compares what they read."""
    config = bundle({"mounts": [bind(Path("/"), "/a")]}, ["true"]).config
    _add_processes(config)
    add_to(config)
    assert config["linux"]["namespaces"] == [{"type": "mount"}, {"type": "pid"}]
    assert config["process"]["terminal"] is True
    assert [(each["destination"], each["type"]) for each in config["mounts"]] == [
        *(("/proc", "proc"), ("/a", "bind"), ("/dev/pts", "devpts"))
    ]
    assert "ro" in config["mounts"][0]["options"]
    assert {"newinstance", "ptmxmode=0666"} <= set(config["mounts"][2]["options"])


def test_configuration_without_settings_is_complete() -> None:
    made = bundle({"annotations": {"a": "b"}, "hooks": {}}, ["ls", "-l"], Path("/image"))
    assert made == Bundle(
        {
            "ociVersion": "1.0.2",
            "process": {
                "terminal": False,
                "user": {"uid": 0, "gid": 0},
                "args": ["ls", "-l"],
                "env": [
                    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                    "HOME=/",
                    "TERM=xterm",
                ],
                "cwd": "/",
                "noNewPrivileges": True,
            },
            "root": {"path": "/image", "readonly": True},
            "mounts": [],
            "annotations": {"a": "b"},
            "linux": {"namespaces": [{"type": "mount"}]},
        }
    )


@pytest.fixture
def mounted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The calls that would change mounts; none of them is made."""
    calls: list[tuple[Any, ...]] = []
    for name in ("mount", "set_read_only"):

        def call(*args: Any, _name: str = name, **options: Any) -> None:
            calls.append((_name, *args, *options.items()))

        monkeypatch.setattr(inside, name, call)
    return calls


class Ended(Exception):
    """Stands for the end of the process."""


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process does not end, and does not fork."""

    def end(status: int) -> None:
        raise Ended(status)

    def fork() -> int:
        raise AssertionError("the process must end before it forks")

    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(os, "fork", fork)
    monkeypatch.setattr(inside, "end_with_parent", lambda *_: None)


@pytest.mark.parametrize("error", [NamespaceError("no namespaces"), OSError("no namespaces")])
def test_without_namespaces_nothing_is_started(
    error: Exception, ends: None, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    def enter() -> None:
        raise error

    monkeypatch.setattr(inside, "enter_container", enter)
    with pytest.raises(Ended, match=r"^127$"):
        inside.main("{}")
    assert capfd.readouterr() == ("", "devicemanager: no namespaces\n")


@pytest.mark.parametrize("backend", ["namespaces", "crun", "runc"])
def test_nothing_is_mounted_outside_a_new_namespace(
    backend: str,
    ends: None,
    mounted: list[tuple[Any, ...]],
    monkeypatch: pytest.MonkeyPatch,
    capfd: Any,
) -> None:
    def stage(*_: Any) -> None:
        raise AssertionError("the check must be before the mounts")

    monkeypatch.setattr(inside, "_stage", stage)
    with pytest.raises(Ended, match=r"^127$"):
        inside._contain(shell("true", {}).config, backend, False)
    text = "cannot create the container: the process is not in a new PID namespace"
    assert capfd.readouterr() == ("", f"devicemanager: {text}\n")
    assert mounted == []


def test_warning_can_have_any_text(capfd: Any) -> None:
    inside._warn("file a\udcffb")
    assert capfd.readouterr().err == "devicemanager: file a?b\n"


@pytest.mark.parametrize(
    ("backend", "is_directory", "is_mount", "expected"),
    [
        ("runc", True, True, ("set_read_only", "/cgroups", True, ("recursive", True))),
        ("runc", True, False, ("mount", "tmpfs", "/cgroups", "tmpfs", 0)),
        ("runc", False, False, None),
        ("crun", True, True, ("mount", "tmpfs", "/cgroups", "tmpfs", 0)),
        ("crun", True, False, ("mount", "tmpfs", "/cgroups", "tmpfs", 0)),
        ("crun", False, False, None),
    ],
)
def test_runtimes_see_no_cgroups_that_they_could_change(
    backend: str,
    is_directory: bool,
    is_mount: bool,
    expected: tuple[Any, ...] | None,
    mounted: list[tuple[Any, ...]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Cgroups:
        def is_dir(self) -> bool:
            return is_directory

        def is_mount(self) -> bool:
            return is_mount

        def __str__(self) -> str:
            return "/cgroups"

    monkeypatch.setattr(inside, "_CGROUPS", Cgroups())
    inside._hide_cgroups(backend)
    assert mounted == ([] if expected is None else [expected])


@pytest.fixture(autouse=True)
def _no_mounts() -> Iterator[None]:
    """Fail a test that mounts in the host's namespace: as root, it would hide the host's files."""
    before = Path("/proc/self/mountinfo").read_text()
    yield
    assert Path("/proc/self/mountinfo").read_text() == before


def test_staged_bundle_has_the_root_and_sources_in_memory(
    tmp_path: Path,
    library: Path,
    mounted: list[tuple[Any, ...]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = tmp_path / "stage"
    stage.mkdir()
    root = stage / "root"
    monkeypatch.setattr(inside, "_STAGE", stage)
    monkeypatch.setattr(inside, "_ROOT", root)
    monkeypatch.setattr(tempfile, "tempdir", None)
    shown: list[Any] = []
    monkeypatch.setattr(inside, "_show_root", lambda _, nodes: shown.append(nodes))
    made: list[tuple[str, bool]] = []
    monkeypatch.setattr(inside, "_make", lambda path, *, is_file: made.append((path, is_file)))
    image = tmp_path / "image"
    image.mkdir()
    mounts = [
        bind(library, "/opt/libgpu.so", "ro"),
        {"destination": "/scratch", "type": "tmpfs", "source": "tmpfs"},
        bind(tmp_path, "/data"),
    ]
    config = bundle({"mounts": mounts}, ["true"], image).config
    inside._stage(config, ("null",))
    assert shown == [("null",)]
    assert json.loads((stage / "config.json").read_text()) == config
    assert config["root"] == {"path": str(root), "readonly": True}
    assert [each["source"] for each in config["mounts"]] == [
        *(str(stage / "sources/0"), "tmpfs", str(stage / "sources/2"))
    ]
    assert made == [("/opt/libgpu.so", True), ("/scratch", False), ("/data", False)]
    assert [each for each in mounted if str(each[1]).startswith("/proc/self/fd/") is False] == [
        ("mount", "tmpfs", str(stage), "tmpfs", 0, b"mode=0755"),
        ("mount", "tmpfs", str(root), "tmpfs", 0, b"mode=0755"),
        ("set_read_only", str(root), True, ("recursive", True)),
        ("set_read_only", str(root / "dev"), False),
        ("set_read_only", str(root / "tmp"), False),
    ]


def test_a_failing_hook_is_one_line() -> None:
    hooks = {"createRuntime": [{"path": "/bin/false", "args": ["false"]}]}
    done = run(shell("true", {"hooks": hooks}), "namespaces", capture_output=True, text=True)
    text = "cannot create the container: hook createRuntime /bin/false: exit status 1"
    assert (done.returncode, done.stderr) == (127, f"devicemanager: {text}\n")


def test_a_failing_poststop_hook_keeps_the_exit_status() -> None:
    hooks = {"poststop": [{"path": "/bin/false"}, {"path": "/bin/echo", "args": ["echo", "last"]}]}
    done = run(shell("exit 5", {"hooks": hooks}), "namespaces", capture_output=True, text=True)
    text = "warning: hook poststop /bin/false: exit status 1"
    assert (done.returncode, done.stderr) == (5, f"devicemanager: {text}\nlast\n")


@pytest.mark.skipif(not shutil.which("crun"), reason="no crun is installed")
def test_a_runtime_below_tmp_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(str(shutil.which("crun")), tmp_path / "crun")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert said(shell("echo here", {}), "crun") == "here\n"


@pytest.mark.parametrize("kind", ["createRuntime", "startContainer"])
@pytest.mark.parametrize(
    ("hook", "problem"),
    [
        ({"path": "/no/hook"}, "/no/hook: No such file or directory"),
        (
            {"path": "/bin/sleep", "args": ["sleep", "300"], "timeout": 0.1},
            "/bin/sleep: did not exit",
        ),
    ],
)
def test_a_hook_that_cannot_run_is_one_line(kind: str, hook: dict[str, Any], problem: str) -> None:
    made = shell("true", {"hooks": {kind: [hook]}})
    done = run(made, "namespaces", capture_output=True, text=True)
    text = f"devicemanager: cannot create the container: hook {kind} {problem}"
    assert (done.returncode, done.stderr[: len(text)]) == (127, text)
    assert done.stderr.count("\n") == 1


def test_a_mount_below_a_file_is_one_line(library: Path) -> None:
    made = shell("true", {"mounts": [bind(library, "/etc/passwd/lib")]})
    done = run(made, "namespaces", capture_output=True, text=True)
    text = "cannot create the container: mount /etc/passwd/lib: /etc/passwd is not a directory"
    assert (done.returncode, done.stderr) == (127, f"devicemanager: {text}\n")


@pytest.mark.parametrize("backend", BACKENDS)
def test_another_root_file_system(backend: str, tmp_path: Path) -> None:
    for name in ("bin", "lib", "lib64", "usr"):
        if Path("/", name).is_symlink():
            (tmp_path / name).symlink_to(Path("/", name).readlink())
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/name").write_text("mine\n")
    mounts = [bind(Path("/usr"), "/usr", "ro")]
    before = sorted(each.name for each in tmp_path.iterdir())
    text = "cat /etc/name; ls -d /root 2>/dev/null || true"
    assert said(shell(text, {"mounts": mounts}, tmp_path), backend) == "mine\n"
    assert sorted(each.name for each in tmp_path.iterdir()) == before


def test_exit_status_and_a_missing_command() -> None:
    assert run(shell("exit 3", {}), "namespaces").returncode == 3
    assert run(shell("kill -9 $$", {}), "namespaces").returncode == 128 + 9
    done = run(bundle({}, ["no-such-command"]), "namespaces", capture_output=True, text=True)
    assert done.returncode == 127
    assert done.stderr == (
        "devicemanager: no-such-command: cannot be started: No such file or directory\n"
    )


def test_notes_say_in_advance_what_needs_root(library: Path) -> None:
    fragment = {
        "process": {"user": {"additionalGids": [54321]}},
        "mounts": [
            bind(library, "/a"),
            bind(Path("/no/such"), "/b"),
            {"destination": "/c", "type": "ext4", "source": "/dev/sda"},
        ],
        "linux": {
            "devices": [{"path": "/dev/none", "type": "c", "major": 999, "minor": 9}],
            "netDevices": {"eth9": {}},
            "intelRdt": {"closID": "x"},
        },
    }
    made = bundle(fragment, ["true"])
    assert made.notes == (
        "mount /b is left out: /no/such is missing",
        "mount /c is left out: only root can mount ext4",
        "device node /dev/none is left out: only root can create it",
        "network interface eth9 is left out: only root can move it",
        "intelRdt is left out: only root can set it",
        "group 54321 is left out: only root can join it",
    )
    assert [each["destination"] for each in made.config["mounts"]] == ["/a"]


def test_notes_name_typed_devices_that_are_left_out() -> None:
    options = RunOptions(
        network_interfaces=(NetworkInterface("eth9", "eth0"),),
        pci_devices=(PciDevice("8086", "1572", ("0000:3b:00.0",)), PciDevice("8086", "10fb")),
    )
    assert bundle_of(options, ["true"], Path("/")).notes == (
        "network interface eth9 is left out: only root can move it",
        "PCI device 8086:1572 is left out: OCI has no field for it",
        "PCI device 8086:10fb is left out: OCI has no field for it",
    )


def test_a_source_without_permission_is_a_note(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stat(*_: object, **__: object) -> None:
        raise PermissionError

    with monkeypatch.context() as patch:
        # Root has all permissions.
        patch.setattr(Path, "stat", stat)
        made = bundle({"mounts": [bind(library, "/a")]}, ["true"])
    expected = f"mount /a is left out: {library} is not accessible to user {os.getuid()}"
    assert made.notes == (expected,)


def test_unknown_backend_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert backends() == ["namespaces"]
    with pytest.raises(SandboxError, match="backend crun is not available: use one of namespaces"):
        run(bundle({}, ["true"]), "crun")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_user_without_capabilities_can_do_it(backend: str, library: Path) -> None:
    made = bundle({"mounts": [bind(library, "/opt/new/lib")]}, ["cat", "/opt/new/lib"])
    plan = json.dumps({"backend": backend, "config": made.config})
    # In the outer user namespace, the user is not root and has no capabilities.
    outer = ["unshare", "-U", "--map-user=65534", "--map-group=65534"]
    words = [*outer, sys.executable, "-m", "devicemanager.sandbox.inside", plan]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if "unshare" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert (done.returncode, done.stdout) == (0, "the library\n"), done.stderr


@pytest.mark.parametrize("killed", [0, 1, 2, 3])
@pytest.mark.parametrize("backend", BACKENDS)
def test_nothing_is_left_if_any_process_is_killed(
    backend: str, killed: int, tmp_path: Path
) -> None:
    """Kill the program, the process of the namespaces, process 1 in them, or the command."""
    made = shell("echo ready; sleep 300 & sleep 300 & wait", {})
    plan = {"backend": backend, "config": made.config}
    program = (
        "import json, sys\n"
        "from devicemanager.sandbox import Bundle, run\n"
        "plan = json.loads(sys.argv[1])\n"
        "run(Bundle(plan['config']), plan['backend'])\n"
    )
    words = [sys.executable, "-c", program, json.dumps(plan)]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        family = [process.pid]
        for _ in range(killed):
            family.append(child_of(family[-1]))
        os.kill(family[-1], signal.SIGKILL)
        # All processes of the container have the other end of this pipe until they end.
        assert process.stdout.read() == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_shell_has_job_control(backend: str) -> None:
    program = (
        "import fcntl, os, sys, termios\n"
        "from devicemanager.sandbox import bundle, run\n"
        "fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
        "done = run(bundle({}, ['/bin/sh', '-i']), sys.argv[1])\n"
        "print('status', done.returncode, os.tcgetpgrp(0) == os.getpgrp())\n"
    )
    terminal, inner = pty.openpty()
    words = [sys.executable, "-c", program, backend]
    process = subprocess.Popen(
        words, stdin=inner, stdout=inner, stderr=inner, start_new_session=True
    )
    os.close(inner)
    with process, os.fdopen(terminal, "rb+", buffering=0) as shell:
        # The quotes distinguish the output from the echo of the input.
        shell.write(b"set -o | grep monitor; sh -c 'echo rea\"\"dy; exec sleep 300'\n")
        assert re.search(rb"monitor\s+on", read_to(shell, b"ready"))
        shell.write(b"\x1a")
        read_to(shell, b"Stopped")
        shell.write(b"kill %1; exit 3; exit 3\n")
        # The terminal is back in the foreground of the program.
        read_to(shell, b"status 3 True")


def read_to(terminal: RawIOBase, text: bytes) -> bytes:
    """Read the output of a terminal until ``text``, and return it."""
    found = b""
    while text not in found:
        more = terminal.read(1024)
        assert more, found
        found += more
    return found


def child_of(pid: int) -> int:
    # Any thread of runc can be the one that has created the child.
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return int(next(child for each in tasks for child in each.read_text().split()))
