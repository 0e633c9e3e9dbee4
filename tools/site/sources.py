"""Copy the repository's pages for the site, and adapt their links."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

CONTENTS = "docs/README.md"
"""Page that lists all other pages. Its headings are the sections of the site."""

_FENCE = re.compile(r"^(```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
_LISTED = re.compile(r"^- \[[^\]]+\]\(([^)]+)\)(?:$|: )", re.MULTILINE)
_INDEX = "index.md"
_FRONT = ("README.md", "docs/README.md")
"""Pages that become the front page: a link to one of them leads there. The site shows the contents
beside each page."""
_TREE = '\n```{{toctree}}\n:caption: "{caption}"\n:hidden:\n\n{entries}\n```\n'


def sections(root: Path) -> dict[str, list[str]]:
    """Return the pages of each section as paths relative to ``root``, by heading of the contents
    page."""
    text = (root / CONTENTS).read_text()
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)[1:]
    found = {}
    for heading, body in zip(parts[::2], parts[1::2], strict=True):
        paths = [(root / "docs" / link).resolve() for link in _LISTED.findall(body)]
        found[heading] = [str(path.relative_to(root.resolve())) for path in paths]
    return found


def gather(root: Path, target: Path, generated: Mapping[str, Sequence[str]]) -> None:
    """Write the sources of the site into ``target``.

    ``generated`` has the pages in ``target`` that were generated from code, by section. Pages keep
    their paths, so that links between them work. A link to any other file becomes plain text.
    """
    contents = sections(root)
    pages = {page for listed in contents.values() for page in listed}
    pages.update(str(path.relative_to(root)) for path in (root / "docs").rglob("*.md"))
    for page in sorted(pages - {CONTENTS}):
        _copy(root, page, target / page, pages)
    _copy(root, "README.md", target / _INDEX, pages)
    with (target / _INDEX).open("a") as index:
        for heading, listed in contents.items():
            entries = "\n".join(["/" + page for page in (*listed, *generated.get(heading, ()))])
            index.write(_TREE.format(caption=heading, entries=entries))


def _copy(root: Path, page: str, target: Path, pages: set[str]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    text = (root / page).read_text()
    # Do not change code blocks: they can contain text that looks like a link.
    parts = [
        part if part.startswith("```") else _LINK.sub(lambda m: _link(root, page, m, pages), part)
        for part in _FENCE.split(text)
    ]
    target.write_text("".join(parts))
    for image in _images(root, page, text):
        place = target.parent / image
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile((root / page).parent / image, place)


def _images(root: Path, page: str, text: str) -> Iterator[str]:
    for bang, _, link in _LINK.findall(text):
        if bang and not link.startswith("https://"):
            yield link


def _link(root: Path, page: str, match: re.Match[str], pages: set[str]) -> str:
    bang, label, link = match.groups()
    if bang or link.startswith(("https://", "#")):
        return match[0]
    path, _, anchor = link.partition("#")
    found = (root / page).parent.joinpath(path).resolve()
    name = str(found.relative_to(root.resolve())) if found.exists() else ""
    if name in _FRONT:
        return f"[{label}](/{_INDEX}{'#' + anchor if anchor else ''})"
    return match[0] if name in pages or not found.exists() else str(label)
