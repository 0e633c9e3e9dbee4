"""``devicemanager run``: run a mock kubelet until SIGTERM or Ctrl-C."""

from __future__ import annotations

import argparse
import contextlib
import gc
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from devicemanager.cli import (
    api_server_option,
    claims_options,
    fault_options,
    grpc_engine,
    live,
    server_options,
    settings_options,
)
from devicemanager.cli.files import add_directory, add_file
from devicemanager.cli.kubelet_log import KubeletLog
from devicemanager.cli.options import CommandError, add_format, command
from devicemanager.cli.settings_options import (
    DEVICES_EXAMPLES,
    DEVICES_FORM,
    DEVICES_MEANING,
    DeviceOption,
)

if TYPE_CHECKING:
    from devicemanager.cli.live import Display
    from devicemanager.cli.options import Subparsers
    from devicemanager.cli.stopping import StopSignals
    from devicemanager.core.pods import Pod
    from devicemanager.driver.simulated import SimulatedDriver
    from devicemanager.events.calls.file import CallsFile
    from devicemanager.kubelet.mock import MockKubelet
    from devicemanager.kubelet.nri import NriRuntime
    from devicemanager.kubelet.settings import Settings
    from devicemanager.observe.view import NodeView
    from devicemanager.observe.web.site import Breakable
    from devicemanager.plugin.simulated import SimulatedPlugin, SimulationSettings
    from devicemanager.testing.api_node import ApiNode

_PLUGIN_TIMEOUT = 10.0
# Printed first, because users start plugins and clients with these paths.
_PATHS = (
    "plugin_socket",
    "pod_resources_socket",
    "pods_api_socket",
    "plugins_registry_dir",
    "checkpoint_path",
)


def add(subparsers: Subparsers) -> None:
    """Add the command ``devicemanager run`` and its options."""
    parser = command(
        subparsers,
        "run",
        _run,
        "run a mock kubelet",
        description="Run a mock kubelet until SIGTERM or Ctrl-C. On a terminal, show the node "
        "live; otherwise print its sockets and all events.",
    )
    add_directory(
        parser,
        "--root",
        "directory of the kubelet; keep it short, because the path of a socket can have at "
        "most 107 bytes (default: a temporary one under /tmp, removed at exit)",
    )
    add_directory(
        parser,
        "--manifests",
        "directory of pod manifests (*.yaml, *.yml, *.json): admit the pods, and follow "
        "changes, like static pods",
    )
    parser.add_argument(
        "--simulate",
        metavar=DEVICES_FORM,
        type=settings_options.device_option,
        action=settings_options.OnePerResource,
        default=[],
        help=f"also run a plugin with virtual devices: {DEVICES_EXAMPLES} ({DEVICES_MEANING}); "
        "can be repeated",
    )
    parser.add_argument(
        "--simulate-driver",
        metavar="NAME=COUNT",
        type=_driver_option,
        action="append",
        default=[],
        help="also run a DRA driver with virtual devices: gpu.example.com=8 for gpu-0 to gpu-7; "
        "can be repeated",
    )
    add_directory(
        parser,
        "--claims",
        "directory of structured claims: create the pools, classes, claims and configs in "
        "its files (*.yaml, *.yml, *.json), and follow changes",
    )
    claims_options.add_simulated(parser)
    api_server_option.add(parser)
    parser.add_argument(
        "--nri",
        action="store_true",
        help="also run a minimal NRI runtime, on nri/nri.sock in --root, for drivers that are NRI "
        "plugins; CDI files are read from /etc/cdi, /var/run/cdi, and cdi in --root",
    )
    add_file(
        parser,
        "--calls",
        "write all calls between the kubelet and plugins to this file, one JSON object per "
        "line; an existing file is overwritten",
    )
    parser.usage = "%(prog)s [options]"
    add_format(parser, "text", "json")
    live.add_live(parser)
    server_options.add_clock(server_options.add_control(parser))
    server_options.add_http(parser)
    settings_options.add_settings(parser, "topology", "version", "admission", "serving")
    fault_options.add_faults(parser)


def _driver_option(text: str) -> tuple[str, int]:
    """Return the name of a driver and the number of its devices."""
    from devicemanager.core.api.names import is_dns1123_subdomain

    name, equals, count = text.partition("=")
    if not is_dns1123_subdomain(name) or not equals or not count.isdecimal() or int(count) < 1:
        raise argparse.ArgumentTypeError(
            f"invalid driver {text!r}: expected a name and a number of devices, as in "
            "gpu.example.com=8"
        )
    return name, int(count)


def _run(args: argparse.Namespace) -> int:
    from devicemanager.cli.stopping import Stopped, StopSignals

    failures: list[OSError] = []
    with StopSignals() as signals, contextlib.ExitStack() as stack:
        display = live.display_until(args, signals, failures, stack)
        try:
            with contextlib.suppress(Stopped):
                _serve(args, display, signals, stack)
                with signals.interruptible():
                    signals.wait()
        finally:
            display.close()
    # Raised after everything has stopped, so that a failing output does not shorten the stop.
    if failures:
        raise failures[0]
    return 0


def _serve(
    args: argparse.Namespace, display: Display, signals: StopSignals, stack: contextlib.ExitStack
) -> None:
    log = display.log
    # All flags are checked before anything starts, so that an error leaves no files behind.
    server_options.check_control(args)
    server_options.check_http(args)
    api_server_option.check(args)
    if args.nri and args.root is None:
        raise CommandError("--nri requires --root DIR: the NRI socket is nri/nri.sock in DIR")
    simulations = [(option, _simulation(option)) for option in args.simulate]
    if args.manifests is not None:
        _check_manifests(args.manifests)
    if args.claims is not None:
        _check_claims(args.claims)
    with _without_garbage_collection():
        grpc_engine.use_calling_threads()
        kubelet, node = _kubelet(args, log, stack)
        # Created before the kubelet starts, so that a wrong address is reported first.
        control = server_options.control_server(args, kubelet)
        running: dict[str, SimulatedPlugin] = {}
        http = server_options.http_server(args, kubelet, control, lambda: _breakable(running))
        # A signal during the imports is only recorded. It is noticed here, before the kubelet
        # starts.
        signals.check()
        # Opened before the kubelet starts, so that the first registration is recorded.
        if args.calls is not None:
            stack.enter_context(_calls_file(args.calls, kubelet, log))
        stack.enter_context(kubelet)
    for name in _PATHS:
        # Kubelets without the Pods API do not create this socket.
        if name == "pods_api_socket" and not kubelet.settings.behaviour.serves_pods:
            continue
        path = getattr(kubelet, name)
        log.say(name.replace("_", "-"), f"{name.replace('_', ' ')}: {path}", path=str(path))
    if node is not None and kubelet.settings.kubeconfig is not None:
        node.serve(kubelet)
        api_server_option.report(node, kubelet.settings.kubeconfig, log)
    # The HTTP server also serves the control API, on all addresses of both.
    server = http or control
    if server is not None:
        stack.enter_context(server)
    if control is not None:
        server_options.report_control(control, log)
    if http is not None:
        server_options.report_http(http, control, log)
    # Shown after the paths are printed, because the view hides later output.
    display.show(lambda: _look(kubelet))
    # Started before the pods are admitted, because the pods need the devices.
    for option, simulation in simulations:
        signals.check()
        plugin = stack.enter_context(_plugin(simulation, kubelet.plugin_dir))
        running[option.resource] = plugin
        with signals.interruptible(), display.waiting(f"for the plugin of {option.resource}"):
            _wait_for(kubelet, plugin, option)
    for name, count in args.simulate_driver:
        signals.check()
        with signals.interruptible(), display.waiting(f"for the driver {name}"):
            driver = _start_driver(kubelet, name, count, stack)
        if node is not None:
            api_server_option.publish(node, kubelet, driver, stack)
    if args.simulate_pools is not None or args.claims is not None:
        path = kubelet.claims_state_path
        log.say("claims-state-path", f"claims state path: {path}", path=str(path))
    if args.simulate_pools is not None:
        from devicemanager.claims.simulated import publish_hardware

        publish_hardware(kubelet.claims, args.simulate_pools)
    # Created before the pods are admitted, because the pods can refer to the claims.
    if args.claims is not None:
        _follow_claims(kubelet, args.claims, log, stack)
    if args.manifests is not None:
        with display.waiting(f"for the pods of {args.manifests}"):
            _follow_manifests(kubelet, args.manifests, log, signals, stack)
    signals.check()
    # All pods of the manifests are known, so the kubelet may free the devices of other pods.
    kubelet.sources_ready()
    fault_options.start_chaos(args, kubelet, log)
    # The last line of the start, because scripts and tests wait for it.
    log.say("ready", "ready; Ctrl-C stops")


def _look(kubelet: MockKubelet) -> Callable[[], NodeView]:
    from devicemanager.observe.view import KubeletView

    return KubeletView(kubelet).refresh


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Turn off garbage collection in the with block, which imports modules. This makes the start a
    tenth faster.

    The objects that exist at the end are frozen, so that later collections do not scan them.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _kubelet(
    args: argparse.Namespace, log: KubeletLog, stack: contextlib.ExitStack
) -> tuple[MockKubelet, ApiNode | None]:
    """Create the kubelet, and start its API server if it has one."""
    from devicemanager.kubelet.mock import MockKubelet

    nodes = {node for option in args.simulate for node in option.nodes if node is not None}
    settings = settings_options.settings_from(args, nodes)
    clock = None
    if args.clock == "manual":
        from devicemanager.io.clock import ManualClock

        clock = ManualClock(time.time())
    _warn_if_only_read(settings)
    settings, node = api_server_option.apply(args, settings, stack)
    root = args.root and Path(args.root).absolute()
    runtime = _nri_runtime(root, log, stack) if args.nri else None
    kubelet = MockKubelet(root, settings, clock=clock, runtime=runtime)
    # Subscribed before the start, so that the log has the first events.
    kubelet.events.subscribe(log.event)
    fault_options.set_faults(args, kubelet)
    return kubelet, node


def _nri_runtime(root: Path, log: KubeletLog, stack: contextlib.ExitStack) -> NriRuntime:
    from devicemanager.kubelet.nri import NriRuntime

    path = root / "nri" / "nri.sock"
    directories = [Path("/etc/cdi"), Path("/var/run/cdi"), root / "cdi"]
    runtime = NriRuntime(path, directories, report=lambda line: log.say("nri", line))
    log.say("nri-socket", f"nri socket: {path}", path=str(path))
    return stack.enter_context(runtime)


def _warn_if_only_read(settings: Settings) -> None:
    from devicemanager.core.versions.changelog import warning

    # On standard error, because programs read the lines and JSON objects on standard output.
    if text := warning(settings.behaviour.version):
        print(f"devicemanager: warning: {text}", file=sys.stderr)


def _calls_file(path: str, kubelet: MockKubelet, log: KubeletLog) -> CallsFile:
    from devicemanager.events.calls.file import CallsFile

    def failed(error: OSError) -> None:
        log.warn("calls", f"{path}: {error.strerror}; further calls are not written")

    try:
        return CallsFile(Path(path), kubelet.calls, failed)
    except OSError as error:
        raise CommandError(f"--calls: cannot write {path}: {error.strerror}") from error


def _wait_for(kubelet: MockKubelet, plugin: SimulatedPlugin, option: DeviceOption) -> None:
    """Wait for the devices of a simulated plugin, so that the first pods can use them. Raises
    CommandError if it does not register in time."""
    if not plugin.wait_registered(_PLUGIN_TIMEOUT):
        raise CommandError(
            f"the simulated plugin of {option.resource} did not register within "
            f"{_PLUGIN_TIMEOUT:g} s: try again when the machine is less busy"
        )
    # The first device list arrives after the registration.
    kubelet.wait_for_resource(option.resource, len(option.nodes), timeout=_PLUGIN_TIMEOUT)


def _start_driver(
    kubelet: MockKubelet, name: str, devices: int, stack: contextlib.ExitStack
) -> SimulatedDriver:
    """Start a simulated driver, and wait until the kubelet is connected to it. Raises CommandError
    if it does not register in time."""
    from devicemanager.driver.simulated import SimulatedDriver
    from devicemanager.kubelet.mock import WaitTimeout

    # Marked before the driver starts, so that an early registration is not missed.
    mark = kubelet.mark()
    driver = stack.enter_context(SimulatedDriver(name, devices, kubelet))
    endpoint = str(driver.sockets.service_socket)
    try:
        kubelet.wait_for_event(
            "driver-connected", text=endpoint, since=mark, timeout=_PLUGIN_TIMEOUT
        )
    except WaitTimeout as error:
        raise CommandError(
            f"the simulated driver {name} did not register within {_PLUGIN_TIMEOUT:g} s: "
            "try again when the machine is less busy"
        ) from error
    return driver


def _check_claims(directory: str) -> None:
    from devicemanager.claims.directory import check_directory

    check_directory(Path(directory))


def _follow_claims(
    kubelet: MockKubelet, directory: str, log: KubeletLog, stack: contextlib.ExitStack
) -> None:
    from devicemanager.claims.directory import ClaimsDirectory

    stack.enter_context(
        ClaimsDirectory(Path(directory), kubelet.claims, lambda line: log.warn("claims", line))
    )


def _check_manifests(directory: str) -> None:
    from devicemanager.kubelet.pods.static_pods import check_directory

    check_directory(Path(directory))


def _follow_manifests(
    kubelet: MockKubelet,
    directory: str,
    log: KubeletLog,
    signals: StopSignals,
    stack: contextlib.ExitStack,
) -> None:
    from devicemanager.kubelet.pods.static_pods import StaticPods

    pods = StaticPods(directory, _Pods(kubelet, log), lambda line: log.warn("manifest", line))
    stack.callback(pods.stop)
    with signals.interruptible():  # the first admissions can block in a plugin
        pods.start()


def _simulation(option: DeviceOption) -> SimulationSettings:
    from devicemanager.plugin.simulated import SimulationSettings

    # A simulated plugin has either NUMA nodes for all devices or for none.
    numa = tuple(node for node in option.nodes if node is not None)
    if numa and len(numa) < len(option.nodes):
        raise CommandError(
            f"invalid --simulate {option.resource}: set a NUMA node for all devices or for none"
        )
    name = option.resource.rpartition("/")[2]
    return SimulationSettings(
        resource_name=option.resource,
        number_devices=len(option.nodes),
        numa=numa,
        plugin_name=name,
        device_id_prefix=name,
        # A fixed name, so that device IDs are the same on every host.
        node_name="mock",
        env_prefix=name.upper().replace("-", "_").replace(".", "_"),
    )


def _plugin(simulation: SimulationSettings, directory: Path) -> SimulatedPlugin:
    from devicemanager.plugin.simulated import SimulatedPlugin

    return SimulatedPlugin(simulation, directory)


def _breakable(running: Mapping[str, SimulatedPlugin]) -> dict[str, Breakable]:
    return {resource: plugin.set_health for resource, plugin in running.items()}


class _Pods:
    """The receiver of static pods: it admits them in the kubelet and prints the results."""

    def __init__(self, kubelet: MockKubelet, log: KubeletLog) -> None:
        self._kubelet = kubelet
        self._log = log

    def admit(self, pod: Pod, path: Path) -> bool:
        # A kubelet rejects static pods with ResourceClaims before their admission.
        self._kubelet.check_static(pod)
        admission = self._kubelet.admit(pod)
        self._log.admission(pod, admission)
        return admission.admitted

    def terminate(self, uid: str) -> None:
        self._kubelet.terminate(uid)
