"""What ``devicemanager ctl`` does with pods."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from devicemanager.cli.ctl_client import content, pods_named, show
from devicemanager.cli.files import check_one_standard_input
from devicemanager.cli.options import CommandError
from devicemanager.cli.output import clean

if TYPE_CHECKING:
    from devicemanager.control.client import MockKubeletClient
    from devicemanager.control.shapes import Admission


def admit(client: MockKubeletClient, args: argparse.Namespace) -> int:
    """``ctl admit``."""
    from devicemanager.core.errors import RequestError

    check_one_standard_input(args.files)
    rejected = False
    for file in args.files:
        # The server reads and checks it.
        query = {"start": not args.no_start}
        try:
            answer: Admission = client.ask("admitPod", query=query, body=content(file))
        except RequestError as error:
            raise CommandError(f"{file}: {error}") from error
        rejected = rejected or not answer.admitted
        if args.output == "text":
            _print_admission(answer)
        else:
            show(answer, args.output)
    return 1 if rejected else 0


def _print_admission(answer: Admission) -> None:
    name = f"{answer.pod.namespace}/{answer.pod.name}"
    if not answer.admitted:
        for line in answer.explanation_text.splitlines():
            print(clean(line))
        return
    print(clean(f"pod {name} admitted ({answer.pod.uid})"))
    for container, given in answer.containers.items():
        parts = [f"{resource} {','.join(ids)}" for resource, ids in given.devices.items()]
        parts += [f"claim {claim} {','.join(held)}" for claim, held in given.claims.items()]
        print(clean(f"  {container}: {'; '.join(parts) or 'no devices'}"))
        if given.start_error:
            print(clean(f"  {container} did not start: {given.start_error}"))


def delete(client: MockKubeletClient, args: argparse.Namespace) -> int:
    """``ctl delete``."""
    pods = pods_named(client, args.pods)
    if args.grace_period is not None:
        for pod in pods:
            client.delete(pod.uid, args.grace_period)
            print(clean(f"pod {pod.namespace}/{pod.name} is to be deleted"))
        return 0
    client.terminate(*dict.fromkeys(pod.uid for pod in pods))
    for pod in pods:
        print(clean(f"pod {pod.namespace}/{pod.name} deleted"))
    return 0


def finish(client: MockKubeletClient, args: argparse.Namespace) -> int:
    """``ctl finish``."""
    (pod,) = pods_named(client, [args.pod])
    phase = client.finish(pod.uid, _exit_codes(args.exit_code))
    print(clean(f"pod {pod.namespace}/{pod.name} {phase.value}"))
    return 0


def _exit_codes(given: list[str]) -> int | dict[str, int]:
    codes: dict[str, int] = {}
    for text in given:
        container, _, number = text.rpartition("=")
        try:
            code = int(number)
        except ValueError:
            raise CommandError(f"--exit-code {text}: {number!r} is no number") from None
        if not container:
            if len(given) > 1:
                raise CommandError(f"--exit-code {text} is for all containers: give it alone")
            return code
        codes[container] = code
    return codes or 0


def start_container(client: MockKubeletClient, args: argparse.Namespace) -> int:
    """``ctl start-container``."""
    (pod,) = pods_named(client, [args.pod])
    show(client.start_container(pod.uid, args.container), args.output)
    return 0


def restart_container(client: MockKubeletClient, args: argparse.Namespace) -> int:
    """``ctl restart-container``."""
    (pod,) = pods_named(client, [args.pod])
    show(client.restart_container(pod.uid, args.container), args.output)
    return 0


def exit_container(client: MockKubeletClient, args: argparse.Namespace) -> int:
    """``ctl exit-container``."""
    from devicemanager.control.podlife import ExitContainer

    (pod,) = pods_named(client, [args.pod])
    body = ExitContainer(exit_code=args.exit_code, reason=args.reason)
    show(client.ask("exitContainer", pod.uid, args.container, body=body), args.output)
    return 0


def container_statuses(client: MockKubeletClient, args: argparse.Namespace) -> int:
    """``ctl container-statuses``."""
    (pod,) = pods_named(client, [args.pod])
    show(client.ask("getContainerStatuses", pod.uid), args.output)
    return 0
