"""A badge with the profile that was reached."""

from __future__ import annotations

from devicemanager.conformance.outcomes import Profile
from devicemanager.conformance.report import Report

__all__ = ["render"]

_COLOURS = {
    None: "#b3261e",
    Profile.CORE: "#8a6d00",
    Profile.RESILIENT: "#2f6f3e",
    Profile.COMPLETE: "#14683a",
}
_SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{text}">
<title>{text}</title>
<rect width="90" height="20" fill="#444"/>
<rect x="90" width="{right}" height="20" fill="{colour}"/>
<g fill="#fff" font-family="Verdana,Geneva,sans-serif" font-size="11">
<text x="6" y="14">device plugin</text>
<text x="97" y="14">{name}</text>
</g>
</svg>
"""


def render(report: Report) -> str:
    """An SVG image: ``core``, ``resilient``, ``complete`` or ``failing``."""
    name = "failing" if report.profile is None else report.profile.value
    right = 14 + 7 * len(name)
    return _SVG.format(
        width=90 + right,
        right=right,
        colour=_COLOURS[report.profile],
        name=name,
        text=f"device plugin: {name}",
    )
