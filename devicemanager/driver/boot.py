"""Identity of the current boot."""

from __future__ import annotations

from pathlib import Path

__all__ = ["boot_id"]

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Return the ID of the current boot; empty if unknown. It changes with each reboot."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""
