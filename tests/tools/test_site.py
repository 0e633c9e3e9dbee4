"""The documentation as a site: sections, links, and documentation of the code."""

from __future__ import annotations

import ast
import inspect
from itertools import pairwise
from pathlib import Path

import attrs
import pytest

from devicemanager.events import stream
from devicemanager.kubelet import settings
from tests.paths import ROOT
from tools.site import sources

HOW = "/".join(("docs", "how.md"))  # not a page of the repository


def test_each_page_is_in_one_section() -> None:
    listed = [page for pages in sources.sections(ROOT).values() for page in pages]
    existing = {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")}
    assert sorted(page for page in listed if page.startswith("docs/")) == sorted(
        existing - {sources.CONTENTS}
    )
    assert len(listed) == len(set(listed))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    docs = tmp_path / "docs"
    (docs / "images").mkdir(parents=True)
    (tmp_path / "README.md").write_text(f"# Front\n\n[how]({HOW}#steps), [code](src)\n")
    (tmp_path / "src").mkdir()
    (docs / "README.md").write_text("# Docs\n\n## How to\n\n- [How](how.md)\n")
    (docs / "images/a.svg").write_text("<svg/>")
    (docs / "how.md").write_text(
        "# How\n\n## Steps\n\n[front](../README.md#front) ![a](images/a.svg) [code](../src)\n"
        "```text\n[code](../src)\n```\n[web](https://example.org/x) [gone](gone.md)\n"
    )
    return tmp_path


def test_gather_keeps_links_within_the_site_only(checkout: Path) -> None:
    sources.gather(checkout, checkout / "out", {"How to": ["reference/made.md"]})
    how = (checkout / "out" / HOW).read_text()
    assert "[front](/index.md#front) ![a](images/a.svg) code\n" in how
    assert "```text\n[code](../src)\n```" in how
    assert "[web](https://example.org/x) [gone](gone.md)" in how  # Sphinx reports it
    assert (checkout / "out/docs/images/a.svg").read_text() == "<svg/>"
    index = (checkout / "out/index.md").read_text()
    assert f"[how]({HOW}#steps), code\n" in index
    assert f':caption: "How to"\n:hidden:\n\n/{HOW}\n/reference/made.md\n' in index


def documented(owner: type, source: str) -> set[str]:
    """Return the names in a class body that have a docstring below them."""
    (found,) = [
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and node.name == owner.__name__
    ]
    names = set()
    for statement, following in pairwise(found.body):
        match statement, following:
            case (
                (ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name))),
                ast.Expr(value=ast.Constant(value=str())),
            ):
                names.add(name)
    return names


def test_all_events_are_documented() -> None:
    assert documented(stream.EventKind, inspect.getsource(stream)) == set(
        stream.EventKind.__members__
    )


def test_all_settings_are_documented() -> None:
    names = {field.name for field in attrs.fields(settings.Settings) if field.init}
    assert names <= documented(settings.Settings, inspect.getsource(settings))
