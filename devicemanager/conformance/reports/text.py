"""A verdict as lines of text, for a terminal and for pytest."""

from __future__ import annotations

from devicemanager.conformance.model import Verdict

__all__ = ["told"]


def told(verdict: Verdict) -> str:
    """A verdict with its reasons, for people; a line each."""
    check = verdict.check
    lines = [
        f"{check.id} {check.title}: {verdict.outcome.value}",
        f"  done:      {check.does}",
        f"  seen:      {verdict.seen}",
        f"  expected:  {check.expects}",
        f"  on a node: {check.production}",
        *(f"  see:       {link}" for link in check.links),
    ]
    if verdict.reproduce:
        lines.append(f"  again:     {verdict.reproduce}")
    if verdict.timeline:
        lines.append("  timeline:")
        lines += [
            f"    {line.time:8.3f} s {line.source:8} {line.text}" for line in verdict.timeline
        ]
    if verdict.output:
        lines.append("  the plugin printed:")
        lines += [f"    | {line}" for line in verdict.output]
    return "\n".join(lines)
