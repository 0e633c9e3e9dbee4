"""DRA rules of one kubelet version with its enabled quirks."""

from __future__ import annotations

import attrs

from devicemanager.core.dra.messages import WORDINGS, Wording
from devicemanager.core.versions.behaviour import Behaviour


@attrs.frozen(eq=False, repr=False)
class DraRules:
    """Rules of the DRA manager in one kubelet version, and the enabled quirks."""

    behaviour: Behaviour
    """Rules of the kubelet version. The DRA manager reads only the fields whose names begin with
    ``dra_``."""
    quirks: frozenset[str] = frozenset()
    """Enabled quirks: kubelet defects to reproduce, such as ``Q34``."""

    @property
    def wording(self) -> Wording:
        """The DRA manager's messages in this kubelet version."""
        return WORDINGS[self.behaviour.dra_wording]

    @property
    def enabled(self) -> bool:
        """True if the kubelet prepares ResourceClaims (since v1.32)."""
        return self.behaviour.dra_enabled
