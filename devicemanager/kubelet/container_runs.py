"""Run a command with the environment variables, mounts and devices of a container."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from devicemanager.kubelet.runtime.cdi import load
from devicemanager.kubelet.runtime.oci import render
from devicemanager.sandbox.bundling import Bundle, bundle
from devicemanager.sandbox.running import run

if TYPE_CHECKING:
    from devicemanager.core.runoptions import RunOptions

__all__ = ["bundle_of", "run_with_options"]


def bundle_of(
    options: RunOptions, command: Sequence[str], rootfs: Path, cdi: Path | None = None
) -> Bundle:
    """Return the OCI bundle of a container that runs ``command`` with the settings ``options``.

    ``rootfs`` is the directory of the root file system. ``cdi`` is the directory with CDI files;
    None selects the host's directories. Raises OciError and CdiError for settings that cannot be
    applied on this host.
    """
    # Notes, not errors: the command can be useful without these devices.
    interfaces = [
        f"network interface {each.host_name} is left out: only root can move it"
        for each in options.network_interfaces
    ]
    pci = [
        f"PCI device {each.vendor_id}:{each.product_id} is left out: OCI has no field for it"
        for each in options.pci_devices
    ]
    left = attrs.evolve(options, network_interfaces=(), pci_devices=())
    registry = None
    if left.cdi_devices:
        registry = load() if cdi is None else load([cdi])
    made = bundle(render(left, registry).config, command, rootfs)
    return attrs.evolve(made, notes=(*interfaces, *pci, *made.notes))


def run_with_options(
    options: RunOptions,
    command: Sequence[str],
    rootfs: Path,
    backend: str | None = None,
    timeout: float | None = None,
    cdi: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command with the settings of a container, and return the completed process.

    The ``stderr`` of the process begins with a line for each setting that could not be applied.
    """
    made = bundle_of(options, command, rootfs, cdi)
    done = run(made, backend, capture_output=True, text=True, timeout=timeout)
    notes = "".join(f"{note}\n" for note in made.notes)
    # The result has the caller's command, without the arguments of the backend that ran it.
    return subprocess.CompletedProcess(
        list(command), done.returncode, done.stdout, f"{notes}{done.stderr}"
    )
