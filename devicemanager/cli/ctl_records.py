"""Events and calls, as ``devicemanager ctl`` prints them: a line each."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from devicemanager.cli.ctl_client import data
from devicemanager.cli.output import clean

if TYPE_CHECKING:
    from devicemanager.control.client import MockKubeletClient


def events(client: MockKubeletClient, args: argparse.Namespace) -> int:
    """``ctl events``."""
    query = {"since": args.since, "follow": args.follow, "kind": args.kind}
    return _print_lines(client, "getEvents", query, args.output)


def calls(client: MockKubeletClient, args: argparse.Namespace) -> int:
    """``ctl calls``."""
    if args.pending:
        for each in client.ask("getPendingCalls").items:
            _print(each, args.output)
        return 0
    query = {
        "since": args.since,
        "follow": args.follow,
        "resource": args.resource,
        "rpc": args.rpc,
        "code": args.code,
        # Text is made of the messages here.
        "bytes": args.output == "text",
    }
    return _print_lines(client, "getCalls", query, args.output)


def _print_lines(
    client: MockKubeletClient, name: str, query: Mapping[str, object], form: str
) -> int:
    for shape in client.read(name, query):
        _print(shape, form)
    return 0


def _print(shape: Any, form: str) -> None:
    line = json.dumps(data(shape)) if form == "json" else _text(shape)
    print(line, flush=True)


def _text(shape: Any) -> str:
    from devicemanager.control import convert, shapes

    if isinstance(shape, shapes.Event):
        mark = "warning: " if shape.warning else ""
        return _stamped(shape.time, f"{shape.number} {mark}{shape.kind}: {shape.message}")
    if isinstance(shape, shapes.PendingCall):
        what = f"{shape.rpc} {shape.resource or '-'} ({shape.plugin}): {shape.messages} messages"
        return _stamped(shape.time, what)
    if shape.rpc == convert.CALLS_DROPPED:
        return _stamped(shape.time, shape.message)
    return _stamped(shape.time, str(convert.call_from(shape)))


def _stamped(when: float, text: str) -> str:
    clock = time.strftime("%H:%M:%S", time.localtime(when))
    return clean(f"{clock}.{int(when % 1 * 1000):03} {text}")
