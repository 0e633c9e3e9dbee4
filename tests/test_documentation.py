"""What README and docs show is so: Python runs, commands parse, output is what comes out."""

import argparse
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from devicemanager.cli import _parser, main, whole_parser
from devicemanager.kubelet.settings import QUIRKS, Settings
from tests.paths import ROOT
from tests.sessions import SPARE

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PACKAGES = ["devicemanager", "checkpoint", "podresources", "tests", "tools"]
COMMAND = Path(sys.executable).with_name("devicemanager")
# Programs that run until they are stopped: files with tests of their own, shown as they are.
PROGRAMS = {path.read_text() for path in (ROOT / "examples/python").glob("*.py")}


def blocks(page, language):
    text = page.read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def snippets(wanted):
    """Python blocks that are no programs: those that are test modules, or the others."""
    return [
        pytest.param(page, block, id=f"{page.stem}-{number}")
        for page in PAGES
        for number, block in enumerate(blocks(page, "python"))
        if block not in PROGRAMS and ("\ndef test_" in block) is wanted
    ]


def console_lines(page):
    """Commands: of a console, the lines with a prompt, which others print below."""
    lines = [line for block in blocks(page, "console") for line in block.splitlines()]
    return [line for line in lines if line.startswith("$ ")] + [
        line for block in blocks(page, "sh") for line in block.splitlines()
    ]


@pytest.fixture
def given(request, tmp_path):
    """What a page takes for granted in its snippets, by page."""

    def sysfs():
        device = tmp_path / "bus/pci/devices/0000:3b:00.0"
        device.mkdir(parents=True)
        (device / "vendor").write_text("0x8086\n")
        (device / "device").write_text("0x1572\n")
        return {"sysfs": tmp_path}

    def plugin():
        from devicemanager.plugin import ContainerSettings, Manager, Plugin, StaticLister

        class Gpus(Plugin):
            def devices(self):
                return ["gpu0"]

            def allocate(self, device_ids):
                return ContainerSettings()

        directory = request.getfixturevalue("mock_kubelet").plugin_dir
        return {
            "Gpus": Gpus,
            "Manager": Manager,
            "StaticLister": StaticLister,
            "directory": directory,
        }

    return {"typed-devices": sysfs, "plugin-author": plugin}


@pytest.mark.parametrize(("page", "snippet"), snippets(False))
def test_a_snippet_runs(page, snippet, given):
    names = given.get(page.stem, dict)()
    exec(compile(snippet, str(page), "exec"), {"__name__": "snippet", **names})


def test_the_test_modules_pass(tmp_path):
    modules = snippets(True)
    for module in modules:
        _, source = module.values
        (tmp_path / f"test_{module.id.replace('-', '_')}.py").write_text(source)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-Werror", *SPARE, "-rA", "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\nPASSED ") >= len(modules) > 5


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_are_what_the_command_takes(page):
    for line in console_lines(page):
        match shlex.split(line.removeprefix("$ ").partition(" | ")[0], comments=True):
            case ["devicemanager", *arguments]:
                _parser().parse_args(arguments)  # a mistake is a SystemExit
            case ["make", target]:
                assert f"\n{target}:" in (ROOT / "Makefile").read_text()
            case ["pip", "install", "."]:
                pass
            case _:
                assert not line.startswith("$"), f"{page.name}: nothing checks {line!r}"


# Options of curl, pytest and the plugins in examples; the benchmarks are a tool of their own.
OTHERS_OPTIONS = {
    "--data-binary",
    "--force",
    "--full-trace",
    "--socket-dir",
    "--unix-socket",
    "--verbose",
}


def options(parser):
    """All options of a command and its subcommands, those that are added late included."""
    late = getattr(parser, "complete", None)
    if late is not None:
        late(parser)
    for action in parser._actions:  # argparse tells them in no other way
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                yield from options(subparser)


def test_options_that_pages_name_are_there():
    named = {
        (page.name, option)
        for page in PAGES
        if page.stem not in ("benchmarks", "CONTRIBUTING")
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", page.read_text())
    }
    assert len(named) > 50
    there = {*options(whole_parser()), *OTHERS_OPTIONS}
    assert sorted(each for each in named if each[1] not in there) == []


LINKING = sorted({*PAGES, *ROOT.glob("*.md"), *(ROOT / "tests").rglob("*.md")})


@pytest.mark.parametrize("page", LINKING, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
            assert anchor in [heading.lower().replace(" ", "-") for heading in headings], link


def test_code_names_pages_that_exist():
    """Comments, docstrings, messages and scripts do, by their paths."""
    where = ["Makefile", "pyproject.toml", *(f"{each}/**/*.py" for each in PACKAGES)]
    texts = [path.read_text() for each in where for path in ROOT.glob(each)]
    named = {name for text in texts for name in re.findall(r"\bdocs/[\w-]+\.md\b", text)}
    assert named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def sessions(page):
    """Each command of the console blocks with the output shown below it."""
    for block in blocks(page, "console"):
        for session in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = session.partition("\n")
            yield command, output


def any_checksum(text):
    """Maps have no order in protobuf, so what a plugin answers differs from run to run."""
    return re.sub(r"checksum \d+", "checksum …", text)


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_commands_print_what_a_page_shows(page, make_mock_kubelet, monkeypatch, capsys):
    shown = [each for each in sessions(ROOT / page) if each[0].startswith("devicemanager")]
    (run, _), *reading = shown
    root = str(make_mock_kubelet(start=False).root / "r")

    def argv(command):
        return shlex.split(command.replace("./node", root))[1:]

    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("DEVICEMANAGER_CONTROL", root)
    with subprocess.Popen(
        [str(COMMAND), *argv(run)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as kubelet:
        try:
            assert any("ready" in line for line in kubelet.stdout)
            for command, output in reading:
                assert main(argv(command)) == (1 if " rejected: " in output else 0)
                printed = capsys.readouterr().out.replace(root, "./node")
                assert any_checksum(printed) == any_checksum(output)
        finally:
            kubelet.terminate()
            kubelet.stdout.read()
    assert len(reading) >= 3


def rows(page):
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in page.read_text().splitlines()
        if line.startswith("|")
    ]


def test_the_tutorials_plugin_is_certified_as_the_tutorial_says(tmp_path, monkeypatch, capsys):
    [plugin] = [block for block in blocks(ROOT / "docs/tutorial.md", "python") if "Leds" in block]
    (tmp_path / "leds.py").write_text(plugin)
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/tutorial.md").read_text()
    [command] = re.findall("^devicemanager check .*leds.py$", page, re.MULTILINE)
    words = [sys.executable if word == "python" else word for word in shlex.split(command)[2:]]
    assert main(["check", "--only", "R01", "--only", "A13", *words]) == 0, capsys.readouterr()


def test_the_list_of_quirks_is_complete():
    page = ROOT / "docs/kubelet-behaviour.md"
    listed = {row[0]: row[1] for row in rows(page) if re.fullmatch(r"Q\d+", row[0])}
    assert listed == dict(QUIRKS)


def test_settings_that_pages_name_are_there():
    text = (ROOT / "docs/kubelet-behaviour.md").read_text()
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", text)) - {"plugins_registry"}
    assert len(named) > 5
    assert named <= set(Settings.__annotations__)


def test_the_changelog_has_this_version():
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert f"## [{version[1]}]" in (ROOT / "CHANGELOG.md").read_text()


def test_contributing_tells_of_every_target():
    makefile = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[1].split()
    told = {
        name
        for row in rows(ROOT / "CONTRIBUTING.md")
        for name in re.findall(r"`make ([\w-]+)`", row[0])
    }
    assert told == set(phony) - {"setup", "test-lines"}


def test_contributing_names_files_and_modules_that_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    for path in re.findall(r"`((?:devicemanager|tests|constraints)/[\w./-]+)`", text):
        assert (ROOT / path).exists(), path
    for module in re.findall(r"python -m (tools\.\w+)", text):
        path = ROOT / module.replace(".", "/")
        assert path.is_dir() or path.with_suffix(".py").exists(), module


def test_the_workflows_use_targets_that_exist():
    makefile = (ROOT / "Makefile").read_text()
    for workflow in (ROOT / ".github/workflows").glob("*.yml"):
        jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
        for step in (step for job in jobs for step in job.get("steps", [])):
            command = shlex.split(step.get("run", ""))
            if command[:1] == ["make"]:
                assert f"\n{command[1]}:" in makefile
            elif command and command[0].startswith("."):
                assert (ROOT / command[0]).exists()
