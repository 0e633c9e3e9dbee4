"""The differences between kubelet versions, as data: behavior, feature gates and defects.

Theory of operation. ``table.STEPS`` lists the values of each behavior, with the version from
which each value applies. When the settings of a mock kubelet are created, ``behaviour.resolve``
evaluates the table once and returns a ``Behaviour`` object. The rest of the program reads the
fields of this object. No module outside of this package compares versions. Therefore only one table
changes when a version is added or a value is corrected.

In:   a version such as ``1.28`` or ``1.28.2``, and chosen feature gates.
Out:  ``Behaviour``; the quirks that the version has (``quirks``); sentences that say in which
      version a behavior changed (``changelog``).

Most steps of the table name their evidence: a pull request, the version whose source was read, or
an observation. ``python -m tools.versions_page`` writes docs/kubelet-versions.md from these
tables.
"""
