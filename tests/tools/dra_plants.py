"""Wrong behaviours to plant in ``devicemanager.core.dra`` and the state file, one at a time: the
differential must notice them.

The list was written before anything was tried. A plant must stay wrong in the way that its name
says.
"""

from __future__ import annotations

from typing import Final

from tests.tools.plants import Plant

_CORE: Final = "devicemanager.core.dra"

PLANTS: Final = (
    # Prepare
    Plant(
        "a claim that is not reserved for the pod is prepared",
        f"{_CORE}.prepare",
        "if not _is_reserved(claim, pod, rules):",
        "if False:",
    ),
    Plant(
        "a claim of a template may belong to another pod",
        f"{_CORE}.prepare",
        "if name.owned and claim.owner != pod.uid:",
        "if name.owned and claim.owner is None:",
    ),
    Plant(
        "a claim with another uid takes the place of the old one",
        f"{_CORE}.prepare",
        "and held.uid != new.uid:",
        "and not held.uid:",
    ),
    Plant(
        "a claim that is prepared is prepared again",
        f"{_CORE}.prepare",
        "if info.prepared or (info.key",
        "if (info.key",
    ),
    Plant(
        "the state file is not written before the drivers are called",
        f"{_CORE}.prepare",
        "    yield from write_state(cache, rules.wording.write_before)\n",
        "",
    ),
    Plant(
        "the state file is not written after the drivers were called",
        f"{_CORE}.prepare",
        "    yield from write_state(cache, wording.write_after)\n",
        "",
    ),
    Plant(
        "devices of an earlier answer are lost when the claim is prepared again",
        f"{_CORE}.prepare",
        'if "Q35" in rules.quirks:',
        "if False:",
    ),
    Plant(
        "a claim that is being unprepared can be prepared",
        f"{_CORE}.prepare",
        "if held is not None and held.unpreparing:",
        "if False:",
    ),
    Plant(
        "an operation is skipped if one device does not need it",
        f"{_CORE}.prepare",
        'if all(operation in each or "*" in each for each in skips)',
        'if any(operation in each or "*" in each for each in skips)',
    ),
    # Answers
    Plant(
        "an answer may leave out claims",
        f"{_CORE}.calls",
        "    if missing:\n",
        "    if missing < 0:\n",
    ),
    Plant(
        "an answer may name claims that were not asked for",
        f"{_CORE}.calls",
        "        if ref is None:\n",
        "        if ref is None and not answer:\n",
    ),
    Plant(
        "an error in an entry is ignored",
        f"{_CORE}.calls",
        "        if answer[uid].error:\n",
        "        if not uid:\n",
    ),
    # Unprepare
    Plant(
        "a claim that another pod holds is unprepared",
        f"{_CORE}.unprepare",
        "    if len(info.pods) > 1:\n",
        "    if len(info.pods) > 2:\n",
    ),
    Plant(
        "unprepare takes the names of claims from the pod only",
        f"{_CORE}.unprepare",
        "        if held:\n            return held\n",
        "",
    ),
    Plant(
        "a pod can unprepare a claim that it does not hold",
        f"{_CORE}.unprepare",
        "if rules.behaviour.dra_unprepares_own and uid not in info.pods:",
        "if not info.pods:",
    ),
    Plant(
        "the mark of a claim that is being unprepared goes with a failure",
        f"{_CORE}.unprepare",
        'if "Q36" not in rules.quirks:',
        "if True:",
    ),
    Plant(
        "the reconcile loop unprepares the claims of active pods, too",
        f"{_CORE}.unprepare",
        "            if uid not in active:\n",
        "            if True:\n",
    ),
    # Drivers
    Plant(
        "the oldest instance of a driver is called",
        f"{_CORE}.drivers",
        "return (connected or instances)[-1]",
        "return (connected or instances)[0]",
    ),
    Plant(
        "an instance that is not connected is called",
        f"{_CORE}.drivers",
        "return (connected or instances)[-1]",
        "return instances[-1]",
    ),
    Plant(
        "an endpoint can be registered twice",
        f"{_CORE}.drivers",
        "if any(each.endpoint == endpoint for each in instances):",
        "if any(each.endpoint == driver for each in instances):",
    ),
    Plant(
        "the newest service is called, not the one that the driver lists first",
        f"{_CORE}.drivers",
        "        for each in services:\n            if each in known:\n",
        "        for each in known:\n            if each in services:\n",
    ),
    Plant(
        "the clock of the wiping starts again with each change",
        f"{_CORE}.drivers",
        "self._wipe_at.setdefault(driver, now + delay)",
        "self._wipe_at[driver] = now + delay",
    ),
    # Containers
    Plant(
        "a container gets the devices of all requests",
        f"{_CORE}.containers",
        "if use.request is not None and device.serves(use.request):",
        "if use.request is not None:",
    ),
    Plant(
        "PodResources lists each device with its own CDI devices",
        f"{_CORE}.containers",
        'grown = cdi if "Q26" in rules.quirks and driver == last else ()',
        "grown = ()",
    ),
    # Health
    Plant(
        "a device that a report leaves out is forgotten at once",
        f"{_CORE}.health",
        "            if key in seen or not _is_stale(old, now):\n",
        "            if key in seen:\n",
    ),
    Plant(
        "a long message is cut to 1024 bytes without an ellipsis",
        f"{_CORE}.health",
        'return encoded[: MAX_MESSAGE - 3].decode(errors="replace") + "..."',
        'return encoded[:MAX_MESSAGE].decode(errors="replace")',
    ),
    # The state file
    Plant(
        "the text of the state file has spaces",
        "checkpoint.dra.text",
        '"null" if strings is None else f"[{\',\'.join(map(quote, strings))}]"',
        '"null" if strings is None else f"[{\', \'.join(map(quote, strings))}]"',
    ),
    Plant(
        "a file without data is corrupt",
        "checkpoint.dra.reading",
        "        text = NULL_TEXT\n",
        '        text = ""\n',
    ),
)
