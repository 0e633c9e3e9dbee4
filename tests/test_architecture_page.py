"""docs/architecture.md agrees with the code."""

import re

import pytest

from tests.paths import ROOT
from tools.architecture_page import PAGE, page

TEXT = PAGE.read_text()
PATHS = sorted(set(re.findall(r"`([a-z0-9_]+/[a-z0-9_/]*(?:\.py)?)`", TEXT)))


def test_generated_parts_are_up_to_date():
    assert page(TEXT) == TEXT, "run python -m tools.architecture_page"


def test_page_names_files():
    assert len(PATHS) > 30


@pytest.mark.parametrize("path", PATHS)
def test_named_file_exists(path):
    assert (ROOT / path).exists() or (ROOT / "devicemanager" / path).exists()


@pytest.mark.parametrize("part", ["diagram", "wings", "rooms"])
def test_outdated_part_is_replaced(part):
    outdated = re.sub(
        rf"(<!-- generated: {part} -->\n).*?(<!-- end)", r"\1outdated\n\2", TEXT, flags=re.DOTALL
    )
    assert outdated != TEXT
    assert page(outdated) == TEXT
