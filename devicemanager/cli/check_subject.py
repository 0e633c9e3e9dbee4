"""The program that ``devicemanager check`` tests, and its checks. The program is a device plugin or
a DRA driver."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from devicemanager.cli import settings_options
from devicemanager.cli.checking import report_or_end, run_until_signal
from devicemanager.cli.options import CommandError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from devicemanager.conformance import Check, Hardware, Limits, PluginUnderTest
    from devicemanager.conformance.drivers import DriverLimits, DriverUnderTest
    from devicemanager.conformance.suite import Suite

__all__ = ["chosen_checks", "known_ids", "program_of", "report_one_instance", "report_unused_hooks"]


def chosen_checks(args: argparse.Namespace, suite: Suite | None = None) -> Sequence[Check]:
    """Return the checks of ``suite`` that ``--only`` and ``--skip`` select.

    If ``suite`` is None, the options determine the suite: that of drivers or that of plugins.
    Raises CheckError for an unknown name.
    """
    from devicemanager.conformance.registry import selected
    from devicemanager.conformance.suite import PLUGINS

    if suite is None:
        suite = _driver_suite() if _names_driver(args) else PLUGINS
    return selected(suite.checks(), suite.families, args.only, args.skip)


def known_ids() -> Sequence[str]:
    """Return the IDs of all checks of plugins and drivers."""
    from devicemanager.conformance.suite import PLUGINS

    return [each.id for suite in (PLUGINS, _driver_suite()) for each in suite.checks()]


def _driver_suite() -> Suite:
    from devicemanager.conformance.drivers import DRIVERS

    return DRIVERS


def _names_driver(args: argparse.Namespace) -> bool:
    """True if the options say that the program is a driver. The IDs of all checks of drivers begin
    with D."""
    names = (*args.only, *args.skip)
    given = (args.rootfs, args.previous)
    has_options = any(
        (args.private_root, args.nri, args.reboot, *(each is not None for each in given))
    )
    return args.driver or has_options or any(name.startswith("D") for name in names)


def program_of(args: argparse.Namespace) -> tuple[PluginUnderTest, Limits, Suite]:
    """Return the program to test, the timeouts and other limits of its checks, and the suite of
    its checks.

    If the options do not say whether the program is a plugin or a driver, start it once to see what
    it registers.

    Raises CommandError for options that do not apply to the program, and CheckError for invalid
    values.
    """
    from devicemanager.conformance import Limits, PluginUnderTest
    from devicemanager.conformance.drivers import DriverLimits
    from devicemanager.conformance.suite import PLUGINS

    # --limit overrides --thorough in any order.
    driver_limits = DriverLimits.thorough() if args.thorough else DriverLimits()
    if _names_driver(args):
        return _driver(args), driver_limits.overridden(args.limit), _driver_suite()
    plugin = PluginUnderTest(
        command=args.command,
        env=dict(args.env),
        at_node_paths=args.at_node_paths,
        hardware=_hardware_of_plugin(args),
        restart=args.restart,
        hooks=dict(args.hook),
        resources=tuple(args.resource),
    )
    # The names of checks also say what the program is.
    is_open = not (args.only or args.skip)
    if is_open and _is_driver(args, plugin, driver_limits.overridden(args.limit)):
        return _driver(args), driver_limits.overridden(args.limit), _driver_suite()
    limits = Limits.thorough() if args.thorough else Limits()
    return plugin, limits.overridden(args.limit), PLUGINS


def _is_driver(args: argparse.Namespace, plugin: PluginUnderTest, limits: DriverLimits) -> bool:
    from devicemanager.conformance import Stages
    from devicemanager.conformance.drivers import is_driver
    from devicemanager.kubelet.settings import Settings
    from devicemanager.observe.terminal.progress import Work

    stages = Stages()
    with Work("first start of the program", 1) as work:
        found = run_until_signal(
            partial(
                is_driver,
                plugin,
                limits=limits,
                settings=Settings(durability="process"),
                on_wait=work.note,
                stages=stages,
            ),
            stages.close,
        )
    return report_or_end(found)


def _driver(args: argparse.Namespace) -> DriverUnderTest:
    from devicemanager.conformance.drivers import DriverUnderTest

    for name in ("resource", "numa", "cdi"):
        if getattr(args, name):
            raise CommandError(f"--{name} is for plugins: omit it for a DRA driver")
    if args.kubelet_version == "all":
        raise CommandError("--kubelet-version all is for plugins: use one version")
    settings = settings_options.version_settings(args, durability="process")
    if not settings.behaviour.dra_enabled:
        raise CommandError(
            f"kubelet {settings.kubelet_version} has no Dynamic Resource Allocation by default: "
            "use --kubelet-version 1.34 or later"
        )
    return DriverUnderTest(
        command=args.command,
        env=dict(args.env),
        hardware=_hardware(args),
        restart=args.restart,
        hooks=dict(args.hook),
        private_root=args.private_root or args.at_node_paths,
        rootfs=args.rootfs,
        previous=args.previous,
        nri=args.nri,
        reboot=args.reboot,
    )


def _hardware_of_plugin(args: argparse.Namespace) -> Hardware:
    hardware = _hardware(args)
    # Checked here, so that a mistake is reported before the plugin is started.
    hardware.check()
    return hardware


def _hardware(args: argparse.Namespace) -> Hardware:
    from devicemanager.conformance import Hardware
    from devicemanager.kubelet.host.numa import read_numa

    for name in ("dev", "sys", "cdi"):
        directory = getattr(args, name)
        if directory is not None and not Path(directory).is_dir():
            raise CommandError(
                f"--{name}: {directory} is not a directory: create it with the files that the "
                "program should find"
            )
    if args.dev is not None and not os.access(args.dev, os.W_OK):
        print(
            f"check: warning: --dev: {args.dev} is not writable, so the program gets a copy and "
            "does not see later changes",
            file=sys.stderr,
        )
    numa = None if args.numa is None else read_numa(args.numa).topology
    return Hardware(numa=numa, dev=args.dev, sys=args.sys, cdi=args.cdi)


def report_one_instance(args: argparse.Namespace, program: PluginUnderTest) -> None:
    """Print a line if ``--jobs`` allows several instances of the program under test, but only one
    can run at a time."""
    if args.jobs > 1 and program.needs_one_instance:
        print(
            "check: one instance at a time, because the hooks prepare and cleanup may change the "
            "directories of --dev, --sys or --cdi, which all instances share. If they change only "
            "one instance, name its directory {root} in them",
            file=sys.stderr,
        )


def report_unused_hooks(program: PluginUnderTest, suite: Suite, chosen: Sequence[Check]) -> None:
    """Print a warning for each hook of ``program`` that no check in ``chosen`` uses.

    A hook is a command of the user that changes the program or its devices during a check. The
    hooks ``prepare`` and ``cleanup`` run with every check, so they count as used.
    """
    from devicemanager.conformance.plugin_under_test import HOOKS_OF_STARTS

    for hook in program.hooks:
        if hook in HOOKS_OF_STARTS or any(each.may_use(hook) for each in chosen):
            continue
        users = ", ".join(each.id for each in suite.checks() if each.may_use(hook))
        print(
            f"check: warning: no selected check uses the hook {hook}; these do: {users}",
            file=sys.stderr,
        )
