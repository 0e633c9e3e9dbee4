"""CDI specification files: which are read or rejected, and what a name resolves to."""

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.kubelet.runtime.cdi import CdiError, Registry, UnresolvedCdiDevices, load
from devicemanager.kubelet.runtime.cdi.files import load_spec
from devicemanager.kubelet.runtime.cdi.values import (
    CdiDeviceNode,
    CdiHook,
    CdiMount,
    CdiNetDevice,
    CdiSpecError,
    ContainerEdits,
    parse_name,
)

EVERYTHING = """
cdiVersion: 1.1.0
kind: vendor.com/gpu
annotations: {made: by hand}
devices:
  - name: "0"
    annotations: {slot: a}
    containerEdits:
      deviceNodes:
        - path: /dev/gpu0
          hostPath: /dev/vendor/gpu0
          type: c
          major: 195
          minor: 0
          fileMode: 0o660
          permissions: rw
          uid: 1
          gid: 2
        - path: /dev/ctl
      netDevices:
        - {hostInterfaceName: eth42, name: net0}
containerEdits:
  env: [GPU=yes, EMPTY=]
  mounts:
    - hostPath: /usr/lib/gpu
      containerPath: /usr/lib/gpu
      options: [ro, bind]
    - {hostPath: tmpfs, containerPath: /scratch, type: tmpfs}
  hooks:
    - {hookName: createContainer, path: /bin/hook, args: [hook, -v], env: [A=1], timeout: 5}
  additionalGids: [44]
  intelRdt: {closID: gold, enableMonitoring: true}
"""


def spec(kind: str = "vendor.com/gpu", **devices: str) -> dict[str, Any]:
    """A small specification: every device sets DEVICE to the given text."""
    return {
        "cdiVersion": "0.6.0",
        "kind": kind,
        "devices": [
            {"name": name, "containerEdits": {"env": [f"DEVICE={value}"]}}
            for name, value in devices.items()
        ],
    }


Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to(name: str, content: Any) -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return to


def env_of(registry: Registry, *names: str) -> list[str]:
    return [env for _, edits in registry.resolve(names) for env in edits.env]


def test_all_fields_of_a_file(write: Write) -> None:
    read = load_spec(write("all.yaml", EVERYTHING.replace("0o660", "0660")))
    assert (read.kind, read.version) == ("vendor.com/gpu", "1.1.0")
    assert read.devices == {
        "0": ContainerEdits(
            device_nodes=(
                CdiDeviceNode(
                    path="/dev/gpu0",
                    host_path="/dev/vendor/gpu0",
                    type="c",
                    major=195,
                    minor=0,
                    file_mode=0o660,
                    permissions="rw",
                    uid=1,
                    gid=2,
                ),
                CdiDeviceNode(path="/dev/ctl", host_path="/dev/ctl", permissions="rwm"),
            ),
            net_devices=(CdiNetDevice("eth42", "net0"),),
        )
    }
    assert read.edits == ContainerEdits(
        env=("GPU=yes", "EMPTY="),
        mounts=(
            CdiMount(
                host_path="/usr/lib/gpu",
                container_path="/usr/lib/gpu",
                options=("ro", "bind"),
                type="bind",
            ),
            CdiMount(host_path="tmpfs", container_path="/scratch", options=(), type="tmpfs"),
        ),
        hooks=(CdiHook("createContainer", "/bin/hook", ("hook", "-v"), ("A=1",), 5),),
        additional_gids=(44,),
        intel_rdt={"closID": "gold", "enableMonitoring": True},
    )


def test_later_directories_take_precedence(write: Write, tmp_path: Path) -> None:
    write("etc/a.json", spec(a="static", b="static"))
    write("run/b.yaml", json.dumps(spec(a="run time")))
    write("run/c.yml", "not a specification")
    write("run/d.json.swp", "neither")
    registry = load([tmp_path / "etc", tmp_path / "run", tmp_path / "absent"])
    assert registry.errors == ()
    assert env_of(registry, "vendor.com/gpu=a") == ["DEVICE=run time"]
    assert env_of(registry, "vendor.com/gpu=b") == ["DEVICE=static"]


def test_name_defined_by_two_files_is_unresolvable(write: Write, tmp_path: Path) -> None:
    write("etc/a.json", spec(a="older"))
    for file in ("1.json", "2.json", "3.json"):
        write(f"run/{file}", spec(a=file, **{f"own{file[0]}": file}))
    registry = load([tmp_path / "etc", tmp_path / "run"])
    assert env_of(registry, "vendor.com/gpu=own3") == ["DEVICE=3.json"]
    with pytest.raises(
        UnresolvedCdiDevices, match=r"another file .* defines vendor.com/gpu=a, too"
    ):
        registry.resolve(["vendor.com/gpu=a"])


def test_edits_of_the_file_come_once_before_its_first_device(write: Write, tmp_path: Path) -> None:
    write("etc/a.json", {**spec(a="a", b="b"), "containerEdits": {"env": ["ALL=gpu"]}})
    write("etc/b.json", {**spec("vendor.com/nic", c="c"), "containerEdits": {"env": ["ALL=nic"]}})
    names = ("vendor.com/gpu=b", "vendor.com/nic=c", "vendor.com/gpu=a", "vendor.com/gpu=b")
    assert env_of(load([tmp_path / "etc"]), *names) == [
        "ALL=gpu",
        "DEVICE=b",
        "ALL=nic",
        "DEVICE=c",
        "DEVICE=a",
    ]


def test_unresolvable_name_error_lists_the_directories(write: Write, tmp_path: Path) -> None:
    write("etc/good.json", spec(a="a"))
    broken = write("etc/broken.json", "{")
    with pytest.raises(UnresolvedCdiDevices) as error:
        load([tmp_path / "etc"]).resolve(["vendor.com/gpu=a", "vendor.com/gpu=7", "x.com/y=z"])
    assert error.value.names == ("vendor.com/gpu=7", "x.com/y=z")
    text = str(error.value)
    assert text.startswith("unresolvable CDI devices vendor.com/gpu=7, x.com/y=z: searched ")
    assert str(broken) in text and "\n" not in text


@pytest.mark.parametrize(
    "name", ["", "gpu", "vendor.com/gpu", "vendor.com=0", "vendor.com/gpu=", "/gpu=0", "v/c=a b"]
)
def test_malformed_names_are_rejected(name: str) -> None:
    with pytest.raises(CdiError, match=r"expected vendor\.com/class=device"):
        parse_name(name)


def changed(**fields: Any) -> dict[str, Any]:
    return {key: value for key, value in {**spec(a="a"), **fields}.items() if value is not None}


@pytest.mark.parametrize(
    "version",
    ["0.1.0", "0.2.0", "0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0"],
)
def test_each_released_version_is_accepted(tmp_path: Path, version: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(changed(cdiVersion=version)))
    assert [*load_spec(path).devices] == ["a"]


def test_version_can_have_the_prefix_v(write: Write) -> None:
    assert load_spec(write("a.json", changed(cdiVersion="v0.6.0"))).version == "v0.6.0"
    with pytest.raises(CdiSpecError, match=r'unknown cdiVersion "x0.6.0": use 0.1.0 to 1.1.0'):
        load_spec(write("a.json", changed(cdiVersion="x0.6.0")))


@pytest.mark.parametrize(
    "name",
    ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"],
)
def test_each_hook_of_the_specification_is_accepted(write: Write, name: str) -> None:
    path = write("a.json", edits(hooks=[{"hookName": name, "path": "/x"}]))
    (hook,) = load_spec(path).edits.hooks
    assert hook == CdiHook(name, "/x", (), (), None)


@pytest.mark.parametrize("kind", ["b", "c", "u", "p"])
def test_each_type_of_a_device_node_is_accepted(write: Write, kind: str) -> None:
    path = write("a.json", edits(deviceNodes=[{"path": "/x", "type": kind}]))
    (node,) = load_spec(path).edits.device_nodes
    assert node.type == kind


def edits(**fields: Any) -> dict[str, Any]:
    return changed(containerEdits=fields)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "Expecting value"),
        ("[1]", "specification must be a mapping"),
        (changed(cdiVersion=None), "specification.cdiVersion is missing"),
        (changed(cdiVersion="9.9.9"), 'unknown cdiVersion "9.9.9"'),
        (changed(cdiVersion=1), "specification.cdiVersion must be text, not the number 1"),
        (changed(kind=None), "specification.kind is missing"),
        (changed(kind="gpu"), 'invalid kind "gpu": use vendor.com/class'),
        (changed(devices=None), "specification.devices is empty: expected at least one device"),
        (changed(devices=[]), "specification.devices is empty: expected at least one device"),
        (changed(devices={}), "specification.devices must be a list"),
        (changed(devices=spec(a="1")["devices"] * 2), 'duplicate device "a"'),
        (
            changed(devices=[{"name": "-a"}]),
            "devices[0].name is not a valid device name",
        ),
        (changed(devices=[{"name": "a"}]), 'containerEdits is empty for device "a"'),
        (changed(surprise=1), "specification has unknown fields: surprise"),
        (changed(annotations=[]), "specification.annotations must be a mapping"),
        (edits(surprise=1), "specification.containerEdits has unknown fields: surprise"),
        (edits(env=["=x"]), "env[0] must be of the form NAME=value"),
        (edits(env=["A"]), "env[0] must be of the form NAME=value"),
        (edits(env=[1]), "env[0] must be text"),
        (edits(deviceNodes=[{}]), "deviceNodes[0].path is missing"),
        (edits(deviceNodes=[{"path": "dev/x"}]), "must be an absolute path"),
        (edits(deviceNodes=[{"path": "/x", "type": "z"}]), "type must be one of b, c, u, p"),
        (
            edits(deviceNodes=[{"path": "/x", "permissions": "rx"}]),
            '.permissions "rx": use some of r, w and m',
        ),
        (edits(deviceNodes=[{"path": "/x", "major": True}]), "major must be a whole number"),
        (edits(mounts=[{"containerPath": "/x"}]), "mounts[0].hostPath is missing"),
        (edits(mounts=[{"hostPath": "/x"}]), "mounts[0].containerPath is missing"),
        (edits(hooks=[{"hookName": "x", "path": "/x"}]), "hookName must be one of prestart"),
        (edits(hooks=[{"hookName": "poststop", "path": "x"}]), "must be an absolute path"),
        (edits(netDevices=[{"name": "x"}]), "netDevices[0].hostInterfaceName is missing"),
        (edits(additionalGids=[-1]), "additionalGids[0] must be a group id"),
        (edits(additionalGids=[2**32]), "additionalGids[0] must be a group id"),
        (edits(deviceNodes=[{"path": "/x", "fileMode": 2**40}]), "fileMode must be a whole number"),
        (edits(deviceNodes=[{"path": "/x", "major": -1}]), "major must be a whole number from 0"),
        (edits(deviceNodes=[{"path": "/x\0"}]), "path has an invalid character (NUL or surrogate)"),
        (edits(env=["A=\ud800"]), "env[0] has an invalid character"),
        (edits(env=[f"A={chr(0xDFFF)}"]), "env[0] has an invalid character"),
        (edits(intelRdt={"x": 1}), "intelRdt has unknown fields: x"),
        ("[" * 100_000, ""),
    ],
)
def test_invalid_file_is_rejected_with_the_place(write: Write, content: Any, reason: str) -> None:
    path = write("bad.json", content)
    with pytest.raises(CdiSpecError) as error:
        load_spec(path)
    assert str(error.value).startswith(f"{path}: ") and "\n" not in str(error.value)
    assert reason in str(error.value)


@pytest.mark.parametrize(
    ("field", "most"),
    [
        ("major", 2**63 - 1),
        ("minor", 2**63 - 1),
        ("fileMode", 2**32 - 1),
        ("uid", 2**32 - 1),
        ("gid", 2**32 - 1),
    ],
)
def test_numbers_of_a_device_node_have_these_limits(write: Write, field: str, most: int) -> None:
    names = {"fileMode": "file_mode"}
    for number in (0, most):
        path = write("a.json", edits(deviceNodes=[{"path": "/x", field: number}]))
        (node,) = load_spec(path).edits.device_nodes
        assert getattr(node, names.get(field, field)) == number
    for number in (-1, most + 1):
        path = write("a.json", edits(deviceNodes=[{"path": "/x", field: number}]))
        with pytest.raises(CdiSpecError) as error:
            load_spec(path)
        assert str(error.value) == (
            f"{path}: specification.containerEdits.deviceNodes[0].{field} must be a whole number "
            f"from 0 to {most}, not the number {number}"
        )


def test_group_ids_and_timeouts_have_these_limits(write: Write) -> None:
    ids = [0, 1, 2**32 - 1]
    assert load_spec(write("a.json", edits(additionalGids=ids))).edits.additional_gids == tuple(ids)
    for value, shown in [(-1, "the number -1"), (2**32, "the number 4294967296"), (True, "true")]:
        path = write("a.json", edits(additionalGids=[0, value]))
        with pytest.raises(CdiSpecError) as error:
            load_spec(path)
        assert str(error.value) == (
            f"{path}: specification.containerEdits.additionalGids[1] must be a group id, "
            f"not {shown}"
        )
    for timeout in (0, 2**63 - 1):
        hook = {"hookName": "poststop", "path": "/x", "timeout": timeout}
        (read,) = load_spec(write("a.json", edits(hooks=[hook]))).edits.hooks
        assert read.timeout == timeout


def bomb(before: str = "", after: str = "") -> str:
    """A billion values, in aliases of aliases."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    return "\n".join((before, *lines, after))


ODD_YAML = [
    "a: [", "a: !!python/object:os.system {}", "{1: 2}", "\x00", "!!set {a, b}", "!!timestamp x",
    "2001-01-01: x", "--- a\n--- b", "", "&a [*a]", "? [a, b]\n: c", "!!int ''", "[" * 100_000,
    "a: &a {<<: *a}", "a: 1\na: 2", "<<: 7", "!!binary ä", "kind: !!float x", "=: =",
    bomb(), bomb(after="kind: *a9"), bomb(after="devices: *a9"),
]  # fmt: skip


@pytest.mark.parametrize("text", ODD_YAML)
def test_invalid_or_unsafe_yaml_is_rejected(write: Write, text: str) -> None:
    with pytest.raises(CdiSpecError) as error:
        load_spec(write("bad.yaml", text))
    assert "\n" not in str(error.value) and len(str(error.value)) < 1000


def test_bad_file_does_not_affect_others(write: Write, tmp_path: Path) -> None:
    write("cdi/good.json", spec(a="a"))
    os.mkfifo(tmp_path / "cdi/pipe.yaml")
    (tmp_path / "cdi/zero.json").symlink_to("/dev/zero")
    (tmp_path / "cdi/loop.json").symlink_to("loop.json")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "cdi/socket.json"))
    for name in ("sparse.yaml", "sparse.json"):
        (tmp_path / "cdi" / name).touch()
        os.truncate(tmp_path / "cdi" / name, 2 << 30)
    for number, text in enumerate(ODD_YAML):
        write(f"cdi/odd{number}.yaml", text)
    write("cdi/line\nend\x1b.json", "{")
    registry = load([tmp_path / "cdi"])
    assert env_of(registry, "vendor.com/gpu=a") == ["DEVICE=a"]
    errors = {error.split(": ")[0].rpartition("/")[2]: error for error in registry.errors}
    assert set(errors) == {
        *("pipe.yaml", "zero.json", "loop.json", "socket.json", "sparse.yaml", "sparse.json"),
        *(f"odd{number}.yaml" for number in range(len(ODD_YAML))),
        "line end\\x1b.json",
    }
    assert errors["pipe.yaml"].endswith("a pipe, not a regular file")
    assert errors["zero.json"].endswith("a device, not a regular file")
    assert errors["sparse.json"].endswith("2147483648 bytes, more than the limit of 1048576 bytes")
    with pytest.raises(UnresolvedCdiDevices, match=r"more errors$"):
        registry.resolve(["vendor.com/gpu=absent"])


def test_unreadable_files_are_listed_as_errors(write: Write, tmp_path: Path) -> None:
    write("etc/good.json", spec(a="a"))
    (tmp_path / "etc/directory.json").mkdir()
    (tmp_path / "etc/dangling.yaml").symlink_to(tmp_path / "nowhere")
    write("file", "")
    registry = load([tmp_path / "file", tmp_path / "etc"])
    assert env_of(registry, "vendor.com/gpu=a") == ["DEVICE=a"]
    assert [error.split(":")[0].rpartition(os.sep)[2] for error in registry.errors] == [
        "file",
        "dangling.yaml",
        "directory.json",
    ]


FIELDS = (
    *("cdiVersion", "kind", "devices", "name", "containerEdits", "env", "deviceNodes", "mounts"),
    *("hooks", "path", "netDevices", "additionalGids", "intelRdt", "hostPath", "containerPath"),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "/a", "A=1", "c", "v/c"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(json_values)
def test_any_edits_are_accepted_or_rejected(tmp_path_factory: Any, value: Any) -> None:
    path = Path(tmp_path_factory.getbasetemp(), "any.json")
    path.write_text(json.dumps(changed(containerEdits=value)))
    try:
        load_spec(path)
    except CdiSpecError as error:
        assert "\n" not in str(error)
