"""Structured claims: drivers publish pools, administrators define classes, users claim devices."""
