"""README and docs are correct: Python blocks run, commands parse, and output matches."""

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
from tests.sessions import NO_SUITE_PLUGINS

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PACKAGES = ["devicemanager", "checkpoint", "podresources", "tests", "tools"]
COMMAND = Path(sys.executable).with_name("devicemanager")
# The pages show these files unchanged. They have separate tests, because some run until stopped.
PROGRAMS = {path.read_text() for path in (ROOT / "examples/python").glob("*.py")}


def blocks(page, language):
    text = page.read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def snippets(*, tests):
    """Return the Python blocks that are test modules, or the others, without the programs."""
    return [
        pytest.param(page, block, id=f"{page.stem}-{number}")
        for page in PAGES
        for number, block in enumerate(blocks(page, "python"))
        if block not in PROGRAMS and ("\ndef test_" in block) is tests
    ]


def console_lines(page):
    """Return the commands of a page: all lines of scripts, and console lines with a prompt."""
    lines = [line for block in blocks(page, "console") for line in block.splitlines()]
    return [line for line in lines if line.startswith("$ ")] + [
        line for block in blocks(page, "sh") for line in block.splitlines()
    ]


@pytest.fixture
def assumed_names(request, tmp_path):
    """Functions that return the names that a page's snippets do not define, by page."""

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


@pytest.mark.parametrize(("page", "snippet"), snippets(tests=False))
def test_snippet_runs(page, snippet, assumed_names):
    names = assumed_names.get(page.stem, dict)()
    exec(compile(snippet, str(page), "exec"), {"__name__": "snippet", **names})


# A session of its own with dozens of tests: on a busy machine it exceeds the usual limit.
@pytest.mark.timeout(200)
def test_test_modules_of_pages_pass(tmp_path):
    modules = snippets(tests=True)
    for module in modules:
        _, source = module.values
        (tmp_path / f"test_{module.id.replace('-', '_')}.py").write_text(source)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-Werror", *NO_SUITE_PLUGINS, "-rA", "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\nPASSED ") >= len(modules) > 5


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_of_page_parse(page):
    for line in console_lines(page):
        match shlex.split(line.removeprefix("$ ").partition(" | ")[0], comments=True):
            case ["devicemanager", *arguments]:
                _parser(arguments).parse_args(arguments)  # raises SystemExit if they are invalid
            case ["make", target]:
                assert f"\n{target}:" in (ROOT / "Makefile").read_text()
            case ["pip", "install", "."]:
                pass
            case _:
                assert not line.startswith("$"), f"{page.name}: no test for {line!r}"


# Options of curl, kubectl, pytest, `make image` and the plugins in examples.
OTHER_OPTIONS = {
    "--cpu-percent",
    "--data-binary",
    "--field-selector",
    "--force",
    "--full-trace",
    "--max",
    "--overwrite",
    "--program",
    "--raw",
    "--socket-dir",
    "--tag",
    "--unix-socket",
    "--verbose",
}


def options(parser):
    """Return all options of a command and its subcommands, including those added on demand."""
    complete = getattr(parser, "complete", None)
    if complete is not None:
        complete(parser)
    for action in parser._actions:  # argparse has no public attribute for them
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                yield from options(subparser)


def test_options_on_pages_exist():
    named = {
        (page.name, option)
        for page in PAGES
        # These two describe tools, which have separate parsers.
        if page.stem not in ("benchmarks", "CONTRIBUTING")
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", page.read_text())
    }
    assert len(named) > 50
    existing = {*options(whole_parser()), *OTHER_OPTIONS}
    assert sorted(each for each in named if each[1] not in existing) == []


PAGES_WITH_LINKS = sorted({*PAGES, *ROOT.glob("*.md"), *(ROOT / "tests").rglob("*.md")})


@pytest.mark.parametrize("page", PAGES_WITH_LINKS, ids=lambda page: str(page.relative_to(ROOT)))
def test_link_targets_exist(page):
    for link in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
            assert anchor in [heading.lower().replace(" ", "-") for heading in headings], link


def test_pages_named_in_code_exist():
    """Covers comments, docstrings and messages that contain a path such as docs/api.md."""
    patterns = ["Makefile", "pyproject.toml", *(f"{package}/**/*.py" for package in PACKAGES)]
    texts = [path.read_text() for pattern in patterns for path in ROOT.glob(pattern)]
    named = {name for text in texts for name in re.findall(r"\bdocs/[\w-]+\.md\b", text)}
    assert named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def sessions(page):
    """Return each command of the console blocks with the output shown below it."""
    for block in blocks(page, "console"):
        for session in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = session.partition("\n")
            yield command, output


def any_checksum(text):
    """Hide checksums, which differ between runs: protobuf serializes maps in any order."""
    return re.sub(r"checksum \d+", "checksum …", text)


@pytest.mark.parametrize("page", ["docs/commands.md", "docs/tutorial.md"])
def test_commands_print_output_shown_on_page(page, make_mock_kubelet, monkeypatch, capsys):
    shown = [each for each in sessions(ROOT / page) if each[0].startswith("devicemanager")]
    # The first command starts the kubelet and keeps running; the others query it.
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


def test_tutorial_plugin_passes_its_checks(tmp_path, monkeypatch, capsys):
    [plugin] = [block for block in blocks(ROOT / "docs/tutorial.md", "python") if "Leds" in block]
    (tmp_path / "leds.py").write_text(plugin)
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/tutorial.md").read_text()
    [command] = re.findall("^devicemanager check .*leds.py$", page, re.MULTILINE)
    words = [sys.executable if word == "python" else word for word in shlex.split(command)[2:]]
    assert main(["check", "--only", "R01", "--only", "A13", *words]) == 0, capsys.readouterr()


_FIXED_PATHS = """
from pathlib import Path
from devicemanager.plugin import ContainerSettings, Device, Plugin, serve

class Gpus(Plugin):
    def devices(self):
        while True:
            yield [Device(path.name, numa=numa(path.name)) for path in Path("/dev").glob("gpu*")]
            if self.stopping.wait(0.05):
                return

    def allocate(self, device_ids):
        return ContainerSettings(devices=[f"/dev/{name}" for name in device_ids])

def numa(name):
    return int(Path(f"/sys/class/gpu/{name}/numa_node").read_text())

serve(Gpus(), "vendor.com/gpu")
"""
"""A plugin as in the example of the page about conformance."""


def test_plugin_with_fixed_paths_passes_its_checks(tmp_path, monkeypatch, capsys):
    page = ROOT / "docs/conformance.md"
    (tmp_path / "plugin").write_text(f"#!{sys.executable}{_FIXED_PATHS}")
    (tmp_path / "plugin").chmod(0o755)
    [files] = [block for block in blocks(page, "sh") if "hw/dev" in block]
    subprocess.run(["sh", "-ec", files], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    [command] = [each for each in console_lines(page) if "hw/dev" in each and each[0] == "$"]
    checks = [
        word for id_ in ("W07", "W08", "W14", "T01", "A11", "A19") for word in ("--only", id_)
    ]
    assert main(["check", *checks, *shlex.split(command)[3:]]) == 0, capsys.readouterr()
    assert "6 passed in" in capsys.readouterr().out
    # The mount points are gone.
    assert {path.name for path in Path("hw/dev").iterdir()} <= {"gpu0", "gpu1", "gpu2"}


def test_list_of_quirks_is_complete():
    page = ROOT / "docs/kubelet-behaviour.md"
    listed = {row[0]: row[1] for row in rows(page) if re.fullmatch(r"Q\d+", row[0])}
    assert listed == dict(QUIRKS)


def test_settings_on_pages_exist():
    text = (ROOT / "docs/kubelet-behaviour.md").read_text()
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", text)) - {"plugins_registry"}
    assert len(named) > 5
    assert named <= set(Settings.__annotations__)


def test_readme_fits_two_screens_and_names_size():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 80
    assert "210 MB" in text


def without_figures(line):
    return re.sub(r"\d+(\.\d+)? s\b", "N s", line)


def test_check_prints_lines_of_readme(tmp_path, monkeypatch, capsys):
    """The plugin has two bugs: it accepts unknown devices and registers only once."""
    [(command, shown)] = sessions(ROOT / "README.md")
    assert command == "devicemanager check -- ./plugin"
    breakable = [sys.executable, str(ROOT / "tests/conformance/breakable.py")]
    switches = ["--switch", "accept-unknown", "--switch", "never-back"]
    plugin = [*breakable, "--dir", "{plugin_dir}", *switches]
    only = [word for line in shown.splitlines() for word in ("--only", line.split()[0])]
    monkeypatch.chdir(tmp_path)
    assert main(["check", *only, "--limit", "recover_seconds=2", "--", *plugin]) == 1
    printed = [without_figures(line) for line in capsys.readouterr().out.splitlines()]
    assert set(printed) > {without_figures(line) for line in shown.splitlines()}


def words(page):
    """Return the text of a page, lower case, without links and marks of Markdown."""
    text = re.sub(r"\]\([^)]*\)", "", page.read_text())
    return " ".join(re.sub(r"[`*\[\]]", "", text).lower().split())


def test_glossary_terms_are_used():
    """At most twenty terms, sorted; each is used outside the glossary and has a link."""
    page = ROOT / "docs" / "glossary.md"
    [_, _, *entries] = [row for row in rows(page) if len(row) == 3]
    terms = [re.sub(r"\(.*\)", "", row[0]).strip("` ") for row in entries]
    assert 10 <= len(terms) <= 20
    assert terms == sorted(terms, key=str.lower)
    pages = [each for each in PAGES if each != page]
    texts = [words(each) for each in pages]
    texts += [path.read_text().lower() for path in (ROOT / "devicemanager").rglob("*.py")]
    unused = [term for term in terms if not any(term.lower() in text for text in texts)]
    assert unused == []
    assert [row[0] for row in entries if "](" not in row[2]] == []


def test_decisions_are_all_listed():
    page = ROOT / "docs/decisions/README.md"
    listed = re.findall(r"\]\(([\w-]+\.md)\)", page.read_text())
    records = {path.name for path in page.parent.glob("*.md")} - {page.name}
    assert sorted(listed) == sorted(records)


def test_changelog_has_this_version():
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert f"## [{version[1]}]" in (ROOT / "CHANGELOG.md").read_text()


def test_contributing_lists_every_make_target():
    makefile = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[1].split()
    listed = {
        name
        for row in rows(ROOT / "CONTRIBUTING.md")
        for name in re.findall(r"`make ([\w-]+)`", row[0])
    }
    assert listed == set(phony) - {"setup", "test-lines"}


def test_files_and_modules_named_in_contributing_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    for path in re.findall(r"`((?:devicemanager|tests|constraints|tools|docs)/[\w./-]+)`", text):
        assert (ROOT / path).exists(), path
    for module in re.findall(r"python -m (tools\.\w+)", text):
        path = ROOT / module.replace(".", "/")
        assert path.is_dir() or path.with_suffix(".py").exists(), module


def test_make_targets_and_scripts_of_workflows_exist():
    makefile = (ROOT / "Makefile").read_text()
    for workflow in (ROOT / ".github/workflows").glob("*.yml"):
        jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
        for step in (step for job in jobs for step in job.get("steps", [])):
            command = shlex.split(step.get("run", ""))
            if command[:1] == ["make"]:
                assert f"\n{command[1]}:" in makefile
            elif command and command[0].startswith("."):
                assert (ROOT / command[0]).exists()
