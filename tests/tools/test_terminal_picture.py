"""The picture of the terminal view."""

from __future__ import annotations

from xml.etree import ElementTree

from tests.terminal import pictures
from tools.terminal_picture import svg


def test_it_is_an_svg_that_fetches_nothing():
    drawing = svg(pictures.small())
    ElementTree.fromstring(drawing)
    assert "NUMA" in drawing
    assert "url(http" not in drawing and "@font-face" not in drawing
