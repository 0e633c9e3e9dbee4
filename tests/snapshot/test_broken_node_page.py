"""docs/broken-node.md: every command prints what the page shows, on a node with that problem."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from devicemanager.cli import main
from devicemanager.snapshot.rules import ADVICE
from tests.paths import ROOT
from tests.snapshot.broken_nodes import STORIES, BrokenNode

PAGE = (ROOT / "docs/broken-node.md").read_text()
SECTIONS = dict(re.findall(r"^## (.*)\n((?:(?!^## ).*\n)*)", PAGE, re.M))
BLOCK = re.compile(r"^```(text|console)\n(.*?)^```$", re.M | re.S)
KUBELET = "/var/lib/kubelet"
SKIP = "…"


@pytest.fixture
def host(directory: Path, monkeypatch: Any) -> Path:
    monkeypatch.chdir(directory)
    (manifest,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.M | re.S)
    Path("pod.yaml").write_text(manifest)
    (directory / "h").mkdir()
    return directory / "h"


def test_each_section_has_a_story() -> None:
    assert list(SECTIONS) == list(STORIES)


@pytest.mark.parametrize("title", STORIES)
def test_commands_print_what_the_page_shows(title: str, host: Path, capsys: Any) -> None:
    node = BrokenNode(host)
    steps = STORIES[title](node)
    try:
        for kind, block in BLOCK.findall(SECTIONS[title]):
            if kind == "text":
                next(steps)
                continue
            for session in re.split(r"^\$ ", block, flags=re.M)[1:]:
                command, _, expected = session.partition("\n")
                printed = run(command, host, capsys)
                assert fits(printed.splitlines(), expected.splitlines()), printed
    finally:
        node.close()
    assert next(steps, "no more") == "no more"


def run(command: str, host: Path, capsys: Any) -> str:
    _, *argv = shlex.split(command)
    if argv[0] == "snapshot" and argv[1] != "show":
        argv += ["--host", str(host)]
    status = main([word.replace(KUBELET, f"{host}{KUBELET}") for word in argv])
    printed = capsys.readouterr()
    assert (status in (0, 1), printed.err) == (True, "")
    out: str = printed.out
    return out.replace(str(host), "")


def fits(printed: list[str], expected: list[str]) -> bool:
    """True if the lines match, where an ellipsis matches any lines."""
    if not expected:
        return not printed
    if expected[0] == SKIP:
        return any(fits(printed[at:], expected[1:]) for at in range(len(printed) + 1))
    return bool(printed) and printed[0] == expected[0] and fits(printed[1:], expected[1:])


def test_advice_links_to_existing_sections_and_upstream_issues() -> None:
    headings = {heading.lower().replace(" ", "-") for heading in SECTIONS}
    for advice in ADVICE.values():
        if advice.page:
            assert advice.page.removeprefix("docs/broken-node.md#") in headings
        assert all(re.fullmatch(r"https://github\.com/\S+/\d+", link) for link in advice.links)
