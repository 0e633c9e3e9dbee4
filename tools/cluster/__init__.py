"""Run a real Kubernetes control plane on this machine, built from published Go modules.

``build`` builds the programs, ``peer`` runs them, and ``measure`` measures nodes that joined the
control plane. Tests run with the control plane and with the fake API server, to find differences.
"""
