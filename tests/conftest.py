"""Settings of the whole suite: which libraries it runs on, and how hypothesis behaves."""

import os
from importlib.metadata import version

import hypothesis

# CI machines are shared: how long an example takes says nothing about the code.
_PATIENT = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("dev", **_PATIENT)
hypothesis.settings.register_profile("ci", derandomize=True, print_blob=True, **_PATIENT)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "dev")


def pytest_report_header():
    """Which wire libraries this run is on: older ones are laid over the environment."""
    import google.protobuf

    return f"wire: protobuf {google.protobuf.__version__}, grpcio {version('grpcio')}"
