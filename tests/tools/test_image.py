"""Images without a container runtime: the recipe, the files, the archive and the check."""

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.paths import ROOT
from tools.image import __main__ as command
from tools.image import files
from tools.image.archive import unpack, write
from tools.image.recipe import PROGRAMS, Recipe, read_recipe

RECIPE = Recipe("/join", "[http]", "65532", ["A=1", "B=2"], ["/join/bin/program", "run"])
LDD = """/usr/bin/python3.11:
\tlinux-vdso.so.1 (0x00007ffd3b7f0000)
\tlibpython3.11.so.1.0 => /opt/python/lib/libpython3.11.so.1.0 (0x00007f0e5c600000)
\tlibc.so.6 => {libc} (0x00007f0e5c41e000)
\t/lib64/ld-linux-x86-64.so.2 (0x00007f0e5cc9a000)
/opt/python/lib/python3.11/lib-dynload/_example.so:
\tlibexample.so.8 => not found
\tlibz.so.1 => /opt/python/lib/../lib/libz.so.1 (0x00007f0e5c41e000)
\tld-linux-x86-64.so.2 => /lib64/ld-linux-x86-64.so.2 (0x00007f0e5cc9a000)
\tstatically linked
"""


def done(returncode=0, stderr=""):
    return subprocess.CompletedProcess([], returncode, "", stderr)


# -- the recipe --------------------------------------------------------------------------


def test_recipes_are_those_of_the_dockerfiles():
    found = {
        name: read_recipe((ROOT / program.dockerfile).read_text())
        for name, program in PROGRAMS.items()
    }
    join = ["/join/bin/devicemanager", "join"]
    simulate = ["/plugin/bin/devicemanager", "simulate"]
    assert found == {
        "join": Recipe("/join", "[control,http]", "65532", ["PYTHONDONTWRITEBYTECODE=1"], join),
        "simulate": Recipe("/plugin", "", "0", [], simulate),
    }


def test_image_has_the_name_of_the_manifest_for_clusters():
    assert f"image: {PROGRAMS['join'].image}:latest" in (ROOT / "deploy/join.yaml").read_text()


# -- the files ---------------------------------------------------------------------------


def test_libraries_are_beside_libc_and_the_loader_at_its_path(tmp_path):
    libc = tmp_path / "libc.so.6"
    (tmp_path / "libnss_dns.so.2").touch()
    assert files.libraries(LDD.format(libc=libc)) == {
        libc: libc,
        Path("/lib64/ld-linux-x86-64.so.2"): Path("/lib64/ld-linux-x86-64.so.2"),
        Path("/opt/python/lib/libpython3.11.so.1.0"): tmp_path / "libpython3.11.so.1.0",
        Path("/opt/python/lib/../lib/libz.so.1"): tmp_path / "libz.so.1",
        tmp_path / "libnss_dns.so.2": tmp_path / "libnss_dns.so.2",
    }


def test_other_libcs_are_a_one_line_error():
    printed = "\t/lib/ld-musl-x86_64.so.1 (0x7f0e5cc9a000)\n"
    with pytest.raises(SystemExit, match=r"^image: .* does not use glibc \(musl, for example\)$"):
        files.libraries(printed)


def install(run, packages, monkeypatch):
    monkeypatch.setattr(subprocess, "run", run)
    files.install(packages, RECIPE)


def test_scripts_run_with_the_interpreter_of_the_image(tmp_path, monkeypatch):
    dist_info = tmp_path / "lib/python3.11/site-packages/example-1.dist-info"

    def pip(command, **_):
        assert command[-2:] == ["--prefix", tmp_path]
        assert f"{ROOT}[http]" in command
        assert str(ROOT / "constraints/dev.txt") in command
        dist_info.mkdir(parents=True)
        for name in ("METADATA", "RECORD", "direct_url.json"):
            (dist_info / name).touch()
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin/program").write_text("#!/home/me/python\nmain()\n")
        (tmp_path / "bin/binary").write_bytes(b"\x7fELF\xff\n")
        return done()

    install(pip, tmp_path, monkeypatch)
    assert (tmp_path / "bin/program").read_text() == "#!/join/bin/python\nmain()\n"
    assert (tmp_path / "bin/binary").read_bytes() == b"\x7fELF\xff\n"
    assert [each.name for each in dist_info.iterdir()] == ["METADATA"]


def test_failure_of_pip_is_a_one_line_error(tmp_path, monkeypatch):
    failed = done(1, "Looking for example\nERROR: No matching distribution found for example\n")
    with pytest.raises(SystemExit, match=r"^image: pip failed: ERROR: No matching dist.*example$"):
        install(lambda *_, **__: failed, tmp_path, monkeypatch)


def fill(root, monkeypatch):
    """Fill a root directory, with a small interpreter and a fake pip and ldd."""
    here = root.parent / "here"
    (here / "bin").mkdir(parents=True)
    python = here / "bin/python{}.{}".format(*sys.version_info)
    python.write_text("interpreter")
    library = here / "lib/python"
    for name in (
        "os.py",
        "json/a.py",
        "json/__pycache__/old.pyc",
        "test/b.py",
        "site-packages/c.py",
    ):
        (library / name).parent.mkdir(parents=True, exist_ok=True)
        (library / name).write_text("'text'\n")
    (library / "module.so").touch()
    (here / "libz.so.1").write_text("library")
    (here / "libc.so.6").write_text("libc")
    run = subprocess.run
    commands = []

    def fake_run(command, **options):
        commands.append([str(word) for word in command])
        match command[:3]:
            case [_, "-m", "pip"]:
                for name in ("bin/program", "lib/site-packages/package/extension.so"):
                    (root / "join" / name).parent.mkdir(parents=True, exist_ok=True)
                    (root / "join" / name).write_text("#!\n")
                return done()
            case ["ldd", *_]:
                own = root / "join/lib/site-packages/package/libown.so.1"
                lines = {"libc.so.6": here / "libc.so.6", "libz.so.1": here / "libz.so.1"}
                lines["libown.so.1"] = own
                printed = "".join(f"\t{name} => {path} (0x0)\n" for name, path in lines.items())
                return subprocess.CompletedProcess(command, 1, printed, "")
        return run(command, **options)

    monkeypatch.setattr(sys, "base_prefix", str(here))
    monkeypatch.setattr(files.sysconfig, "get_path", {"stdlib": str(library)}.__getitem__)
    monkeypatch.setattr(subprocess, "run", fake_run)
    files.fill(root, RECIPE)
    return here, python, commands


def test_image_has_an_interpreter_and_the_packages(tmp_path, monkeypatch):
    root = tmp_path / "root"
    here, python, commands = fill(root, monkeypatch)
    inside = root / here.relative_to("/")
    assert (root / python.relative_to("/")).read_text() == "interpreter"
    copied = [path for path in (inside / "lib").rglob("*") if path.is_file()]
    sources = {str(path.relative_to(inside / "lib/python")) for path in copied}
    assert {name for name in sources if not name.endswith(".pyc")} == {
        "os.py",
        "json/a.py",
        "module.so",
    }
    assert not any(name.endswith("old.pyc") for name in sources)
    assert (root / "join/bin/python").resolve() == root / python.relative_to("/")
    assert (root / "join/pyvenv.cfg").read_text() == f"home = {here}/bin\n"
    assert (inside / "libz.so.1").read_text() == "library"
    assert not [*root.rglob("libown.so.1")]
    (ldd,) = (each for each in commands if each[0] == "ldd")
    extension = f"{root}/join/lib/site-packages/package/extension.so"
    assert ldd == ["ldd", str(python), f"{here}/lib/python/module.so", extension]
    users = (root / "etc/passwd").read_text()
    assert users == "nonroot:x:65532:65532::/:\nroot:x:0:0::/:\n"


def test_bytecode_does_not_depend_on_times_and_paths_of_this_machine(tmp_path, monkeypatch):
    root = tmp_path / "root"
    here, _, _ = fill(root, monkeypatch)
    (bytecode,) = (root / here.relative_to("/")).rglob("json/__pycache__/a.*.pyc")
    content = bytecode.read_bytes()
    assert content[4:8] == bytes([1, 0, 0, 0])  # never compared with the source
    assert f"{here}/lib/python/json/a.py".encode() in content
    assert str(root).encode() not in content


def test_missing_tools_are_a_one_line_error(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(files.shutil, "which", lambda _: None)
        with pytest.raises(SystemExit, match=r"^image: ldd is not installed: it is part of glibc$"):
            files.fill(tmp_path, RECIPE)
    with monkeypatch.context() as patch:
        patch.setattr(files.importlib.util, "find_spec", lambda _: None)
        with pytest.raises(SystemExit, match=r"^image: pip is not installed: run `make setup`$"):
            files.fill(tmp_path, RECIPE)
    monkeypatch.setattr(sys, "base_prefix", "/nowhere")
    with pytest.raises(SystemExit, match=r"^image: no Python interpreter at /nowhere/bin/python3"):
        files.fill(tmp_path, RECIPE)
    assert list(tmp_path.iterdir()) == []


# -- the archive -------------------------------------------------------------------------

FILES = {"etc/passwd": 0o600, "join/bin/program": 0o700, "join/b.txt": 0o664, "join/a.txt": 0o640}


def image(directory, names, mtime):
    """Write an image with small files, and return its path."""
    root = directory / "root"
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
        (root / name).chmod(FILES[name])
        os.utime(root / name, (mtime, mtime))
    (root / "tmp").mkdir(mode=0o700)
    (root / "join/bin/python").symlink_to("../../python3")
    write(directory / "image.tar", root, RECIPE, "example:v1")
    return directory / "image.tar"


@pytest.fixture
def small(tmp_path):
    return image(tmp_path, FILES, 1)


def test_equal_files_give_equal_images(tmp_path, small):
    (tmp_path / "again").mkdir()
    again = image(tmp_path / "again", reversed(FILES), 2_000_000_000)
    assert again.read_bytes() == small.read_bytes()
    assert not [
        path for path in tmp_path.iterdir() if path.name not in ("root", "image.tar", "again")
    ]


def test_digests_of_manifest_configuration_and_layer_agree(small):
    with tarfile.open(small) as tar:
        content = {info.name: tar.extractfile(info).read() for info in tar}
    (manifest,) = json.loads(content["manifest.json"])
    (layer,) = manifest["Layers"]
    assert content.keys() == {"manifest.json", manifest["Config"], layer}
    assert manifest["RepoTags"] == ["example:v1"]
    assert manifest["Config"] == f"{hashlib.sha256(content[manifest['Config']]).hexdigest()}.json"
    config = json.loads(content[manifest["Config"]])
    digest = hashlib.sha256(content[layer]).hexdigest()
    assert config["rootfs"] == {"type": "layers", "diff_ids": [f"sha256:{digest}"]}
    assert layer == f"{digest}.tar"
    assert config["config"] == {
        "User": "65532",
        "Env": ["A=1", "B=2"],
        "Entrypoint": ["/join/bin/program", "run"],
        "WorkingDir": "/",
    }
    assert config["os"] == "linux"


@pytest.mark.parametrize(
    ("machine", "name"), [("x86_64", "amd64"), ("aarch64", "arm64"), ("riscv64", "riscv64")]
)
def test_architecture_has_its_name_in_images(tmp_path, monkeypatch, machine, name):
    monkeypatch.setattr("platform.machine", lambda: machine)
    assert unpack(image(tmp_path, FILES, 1), tmp_path / "unpacked")["architecture"] == name


def test_every_user_can_read_the_files_of_a_layer(small):
    with tarfile.open(small) as tar:
        (layer,) = json.load(tar.extractfile("manifest.json"))[0]["Layers"]
        with tarfile.open(fileobj=io.BytesIO(tar.extractfile(layer).read())) as members:
            found = {info.name: info for info in members}
    assert {name: info.mode for name, info in found.items()} == {
        "etc": 0o755,
        "etc/passwd": 0o644,
        "join": 0o755,
        "join/a.txt": 0o644,
        "join/b.txt": 0o644,
        "join/bin": 0o755,
        "join/bin/program": 0o755,
        "join/bin/python": 0o755,
        "tmp": 0o1777,
    }
    assert list(found) == sorted(found)
    assert found["join/bin/python"].linkname == "../../python3"
    owners = {(info.uid, info.gid, info.uname, info.gname) for info in found.values()}
    assert owners == {(0, 0, "", "")}


# -- the check ---------------------------------------------------------------------------


def check(small, monkeypatch, results):
    """Check an image with fake containers. Return the text and the bundles."""
    bundles = []

    def run(bundle, backend, **_):
        assert backend == "namespaces"
        bundles.append(bundle.config)
        if bundle.config["root"]["path"] != "/":
            program = Path(bundle.config["root"]["path"], "join/bin/program")
            assert program.read_text() == "join/bin/program"
        return results[len(bundles) - 1]

    monkeypatch.setattr(command.sandbox, "run", run)
    return command.check(small, PROGRAMS["join"]), bundles


def test_check_runs_the_entry_point_with_the_environment_of_the_image(small, monkeypatch):
    result, (_, first, second) = check(small, monkeypatch, [done(), done(), done()])
    imports = PROGRAMS["join"].imports
    assert result == f"it starts and can import {imports}"
    assert first["process"]["args"] == ["/join/bin/program", "run", "--help"]
    assert second["process"]["args"] == ["/join/bin/python", "-c", f"import {imports}"]
    assert first["process"]["env"] == second["process"]["env"] == ["A=1", "B=2"]


def test_image_that_does_not_start_is_a_one_line_error(small, monkeypatch):
    failed = done(1, "Traceback (most recent call last):\nImportError: libz.so.1\n")
    with pytest.raises(SystemExit, match=r"^image: /join/bin/program run --help failed .*libz"):
        check(small, monkeypatch, [done(), failed])
    with pytest.raises(SystemExit, match=r"^image: /join/bin/python -c .* failed .*status 139$"):
        check(small, monkeypatch, [done(), done(), done(139)])


def test_image_is_not_run_if_the_machine_permits_no_container(small, monkeypatch):
    refused = done(127, "devicemanager: user namespaces are disabled\n")
    result, bundles = check(small, monkeypatch, [refused])
    assert result.startswith("not run, because ")
    assert result.endswith("user namespaces are disabled")
    assert len(bundles) == 1


# -- the command -------------------------------------------------------------------------


def test_command_writes_the_image_with_its_tag(tmp_path, monkeypatch, capsys):
    archive = tmp_path / "images/simulated-device-plugin.tar"

    def fill(root, recipe):
        assert recipe.entry_point[-1] == "simulate"
        (root / "file").touch()

    def check(path, program):
        assert (path, program) == (archive, PROGRAMS["simulate"])
        return "it starts"

    monkeypatch.setattr(command, "_ROOT", tmp_path)
    monkeypatch.setattr(command, "_IMAGES", archive.parent)
    monkeypatch.setattr(command, "fill", fill)
    monkeypatch.setattr(command, "check", check)
    for program in PROGRAMS.values():
        copy = tmp_path / program.dockerfile
        copy.parent.mkdir(exist_ok=True)
        copy.write_text((ROOT / program.dockerfile).read_text())
    for tag in ([], ["--tag", "registry.example.com:5000/a/plugin:v1"]):
        monkeypatch.setattr(sys, "argv", ["image", "--program", "simulate", *tag])
        assert command.main() == 0
        expected = tag[-1] if tag else "simulated-device-plugin:latest"
        with tarfile.open(archive) as tar:
            assert json.load(tar.extractfile("manifest.json"))[0]["RepoTags"] == [expected]
        line = capsys.readouterr().out
        assert line.startswith("image: ok: ")
        assert line.endswith(f"/simulated-device-plugin.tar with {expected}, 0 MB: it starts\n")


@pytest.mark.parametrize("tag", ["plugin", "Plugin:v1", "example.com:5000/plugin"])
def test_tags_need_a_name_and_a_version(tag, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["image", "--tag", tag])
    monkeypatch.delattr(command, "fill")  # nothing is built
    with pytest.raises(SystemExit):
        command.main()
    assert f"invalid --tag '{tag}': expected NAME:VERSION" in capsys.readouterr().err
