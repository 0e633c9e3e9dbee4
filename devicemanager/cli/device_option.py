"""``vendor.com/gpu=8@0,1``: how many devices of a resource, and on which NUMA nodes."""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

from devicemanager.cli import settings_options

FORM = "RESOURCE=COUNT[@NODE,…]"
EXAMPLES = "vendor.com/gpu=8, vendor.com/gpu=8@0,1 or vendor.com/gpu=2@0,6@1"


class DeviceOption(NamedTuple):
    """A resource and its devices: for each the NUMA node it is on, or None."""

    resource: str
    nodes: tuple[int | None, ...]


class OnePerResource(argparse.Action):
    """Appends, and rejects what could only fail once a kubelet serves."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, *_: Any
    ) -> None:
        try:
            resource = settings_options.device_resource(values.resource)
        except argparse.ArgumentTypeError as error:
            raise argparse.ArgumentError(self, str(error)) from None
        before = getattr(namespace, self.dest)
        if resource in {each.resource for each in before}:
            text = f"{resource} is given twice: all its devices go into one, as in {EXAMPLES}"
            raise argparse.ArgumentError(self, text)
        setattr(namespace, self.dest, [*before, values])


def device_option(text: str) -> DeviceOption:
    """Read one such option; ``places`` says what the numbers mean."""
    # Not for --help, which is to be quick.
    from devicemanager.kubelet.inmemory.devices import TooManyDevices, places

    resource, _, groups = text.rpartition("=")
    try:
        if not resource:
            raise ValueError
        return DeviceOption(resource, places(groups))
    except TooManyDevices as error:
        raise argparse.ArgumentTypeError(f"{text!r} has {error}") from None
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not like {EXAMPLES}") from None
