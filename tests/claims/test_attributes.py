"""Semantic versions: the text stays, the order is that of precedence."""

import itertools

import pytest

from devicemanager.claims.attributes import SemVer

# The example of clause 11 of semver.org and others; each one is lower than the next.
ASCENDING = [
    "0.0.0", "0.0.9", "0.0.10", "1.0.0-0", "1.0.0-2", "1.0.0-10", "1.0.0-A", "1.0.0-alpha",
    "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2", "1.0.0-beta.11",
    "1.0.0-rc.1", "1.0.0", "1.2.0", "1.10.0", "2.0.0",
]  # fmt: skip


def test_versions_are_ordered_by_precedence():
    for (i, one), (j, other) in itertools.product(enumerate(ASCENDING), repeat=2):
        left, right = SemVer.parse(one), SemVer.parse(other)
        assert (left < right, left == right, left > right) == (i < j, i == j, i > j), (one, other)


def test_build_metadata_stays_in_the_text_and_does_not_count():
    one, other = SemVer.parse("1.0.0+a"), SemVer.parse("1.0.0+b.1")
    assert one == other and hash(one) == hash(other)
    assert (str(one), str(other)) == ("1.0.0+a", "1.0.0+b.1")


def test_parts_of_a_version():
    version = SemVer.parse("1.22.333-rc.1+x")
    assert (version.major, version.minor, version.patch) == (1, 22, 333)


@pytest.mark.parametrize(
    "text",
    ["", "1", "1.2", "1.2.3.4", "v1.2.3", "01.2.3", "1.2.3-", "1.2.3-01", "1.2.3+", "1.2.3-a..b",
     "1.2.3 ", "1.2.3\n", "-1.2.3", "1.2.x", "\u0661.2.3", "1.2." + "3" * 300],
)  # fmt: skip
def test_parse_rejects_invalid_versions(text):
    with pytest.raises(ValueError, match=r"^not a semantic version"):
        SemVer.parse(text)
