"""A real control plane on this machine, built from published Go modules.

``build`` builds the programs, ``peer`` runs them, ``measure`` measures nodes on them. Tests run on
it as well as on the fake API server, so that the fake cannot hide a difference.
"""
