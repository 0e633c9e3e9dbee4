"""Words that mark a sentence to rewrite, each with better words."""

import re
from collections.abc import Mapping

__all__ = ["MARKERS"]

MARKERS: Mapping[str, tuple[re.Pattern[str], str]] = {
    name: (re.compile(pattern, re.IGNORECASE), instead)
    for name, pattern, instead in [
        ("tell", r"\b(?:tells?|told)\b(?! apart)", "report, return, show, expose"),
        ("nobody", r"\b(?:nobody|somebody|anybody|whoever)\b", "name the actor"),
        ("anew", r"\b(?:anew|afresh)\b", "again, or a verb with re-"),
        ("besides", r"\bbesides\b", "also, other than"),
        ("is-no", r"(?<!there )\b(?:is|are|was) no (?!longer|more|less)", "is not a valid X"),
        ("there-is-not", r"\bthere (?:is|are) not\b|\b(?:is|are) not like\b", "unknown, expected"),
        ("so-many", r"\bso (?:many|long|much) (?!as|that)", "N, up to N, a timeout"),
        ("look-at", r"\blook(?:s|ed)? at\b|\blooks? once\b|\b(?:a|two) looks?\b", "read, check"),
        ("mend", r"\b(?:mend(?:s|ed)?|steer(?:s|ed|ing)?)\b", "repair, recover; control"),
        (
            "idiom",
            r"\b(?:at hand|for want of|in vain|for ever|other way round)\b",
            "say it plainly",
        ),
        ("bear", r"\b(?:bears|spares|owes) ", "tolerates, avoids, must"),
        ("whatever", r"\bwhatever\b", "any, or name the cases"),
        ("under-way", r"\bunder way\b", "in progress, in flight"),
    ]
}
