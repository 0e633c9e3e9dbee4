"""A real control plane on this machine, from published Go modules: for tests that a stub could
flatter."""
