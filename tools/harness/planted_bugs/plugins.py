"""Registration, device lists and Allocate responses of plugins."""

from __future__ import annotations

from tools.harness.planted import planted, replace


@planted("processes register without limit")
def _registrations() -> None:
    from devicemanager.kubelet.registration import registrar

    replace(registrar.Registrar._check_slots, lambda self, pid, replaces: None)
