"""What differs between kubelet versions, as data: behaviour, feature gates and defects.

Theory of operation. ``table.STEPS`` lists, for each behaviour, its values and the versions from
which they apply. ``behaviour.resolve`` evaluates the table once, when ``Settings`` are created,
into one ``Behaviour`` object; its fields are what the rest of the program reads. No module
outside of this package compares versions, so adding a version or correcting a step is a change
of one table.

In:   a version such as ``1.28`` or ``1.28.2``, and chosen feature gates.
Out:  ``Behaviour``; the quirks that the version has (``quirks``); sentences about when a
      behaviour changed (``changelog``).

Every step has evidence: a pull request, the version whose source was read, or how it was
observed. ``python -m tools.versions_page`` writes docs/kubelet-versions.md from these tables.
"""
