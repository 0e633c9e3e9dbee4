"""What a browser is told with everything that the page consists of.

Nothing that a plugin or a manifest says may become script, style or a request: scripts and
styles come from files of ours only, text cannot become markup (Trusted Types), and no other
site may show the page in a frame and have its buttons clicked.
"""

from __future__ import annotations

from typing import Final

__all__ = ["HEADERS", "POLICY"]

POLICY: Final = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
)

HEADERS: Final = {
    "content-security-policy": POLICY,
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
