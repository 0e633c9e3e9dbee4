"""Decide whether a program is a device plugin or a DRA driver."""

from __future__ import annotations

from devicemanager.conformance.check_run import CheckRun
from devicemanager.conformance.drivers.driver_under_test import PLACEHOLDERS, DriverUnderTest
from devicemanager.conformance.drivers.limits import DriverLimits
from devicemanager.conformance.drivers.stage import DriverStage
from devicemanager.conformance.outcomes import CheckError
from devicemanager.conformance.plugin_under_test import PluginUnderTest
from devicemanager.conformance.runner import why_unregistered
from devicemanager.conformance.stage import OnWait, Stage, Stages
from devicemanager.kubelet.settings import Settings

__all__ = ["is_driver"]


def is_driver(
    plugin: PluginUnderTest,
    *,
    limits: DriverLimits,
    settings: Settings,
    on_wait: OnWait | None = None,
    stages: Stages | None = None,
) -> bool:
    """True if the program is a DRA driver.

    The first case that applies decides:
    1. The command or environment has a placeholder that only drivers have: True.
    2. ``plugin`` has resources, NUMA nodes or a CDI directory: False. These options are only for
       plugins.
    3. All other programs are started once: True if the program registers as a driver, False if it
       registers as a plugin or exits.

    Raises CheckError if the program neither registers nor exits within ``start_seconds``.
    """
    words = [*plugin.command, *plugin.env.values()]
    if any(f"{{{name}}}" in word for name in PLACEHOLDERS for word in words):
        return True
    hardware = plugin.hardware
    if plugin.resources or hardware.numa is not None or hardware.cdi is not None:
        return False
    stage = (stages or Stages()).open(
        lambda: DriverStage(_as_driver(plugin), limits, settings, on_wait)
    )
    try:
        return _registers_as_driver(plugin, stage, limits)
    finally:
        stage.close()


def _as_driver(plugin: PluginUnderTest) -> DriverUnderTest:
    return DriverUnderTest(
        command=plugin.command,
        env=plugin.env,
        cwd=plugin.cwd,
        private_root=plugin.at_node_paths,
        hardware=plugin.hardware,
        restart=plugin.restart,
        hooks=plugin.hooks,
    )


def _registers_as_driver(plugin: PluginUnderTest, stage: Stage, limits: DriverLimits) -> bool:
    # A run of plugin checks on a stage for drivers, because the program can be either.
    run = CheckRun(stage, (), "recognition")
    run.start_kubelet()
    since = run.kubelet.mark()
    run.launch()
    # A program that registers nothing gets the advice for plugins.
    run.plugin.under_test = plugin

    def has_driver() -> bool:
        return bool(run.kubelet.events.recent("driver-registered"))

    took = run.until_registered(
        lambda: has_driver() or bool(run.registered_names(since)) or run.plugin.has_exited,
        limits.start_seconds,
    )
    if took is None:
        raise CheckError(why_unregistered(run))
    return has_driver()
