"""Parse YAML and JSON text into Python values, safely for untrusted text."""

# A manifest is untrusted, so three cases must raise ManifestError: nesting so deep that it
# overflows the C stack, aliases that expand into gigabytes, and scalars for which PyYAML raises
# unexpected exceptions. Therefore a text is parsed twice: first into single events, which can be
# counted safely (``_check_shape``), then into values.

from __future__ import annotations

from typing import Any

import attrs

from devicemanager.objects.manifests.errors import ManifestError, shown

MAX_SIZE = 1_572_864
"""Maximum size of a manifest in bytes: etcd's default limit for one object."""
TOO_LARGE = f"larger than {MAX_SIZE} bytes: use a manifest of one pod"
_MAX_DEPTH = 100
_MAX_NODES = 200_000
"""Maximum number of YAML nodes after aliases are expanded; large manifests have some thousands."""


def load_documents(
    text: str,
    max_size: int = MAX_SIZE,
    max_nodes: int = _MAX_NODES,
    too_large: str = TOO_LARGE,
    max_items: int | None = None,
) -> list[object]:
    """Parse the documents of a YAML or JSON text; omit empty documents.

    Raises ManifestError for invalid YAML. Also raises ManifestError for a text with more than
    ``max_nodes`` values after aliases are expanded, or with more than ``max_items`` items in one
    list. If the text has more than ``max_size`` characters, the error has the text ``too_large``.
    """
    if len(text) > max_size:
        raise ManifestError(too_large)
    import yaml

    # The loader in C is much faster than the other, but some builds of PyYAML lack it.
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check_shape(yaml.parse(text, loader), _Shape(max_nodes, max_items))
        documents = list(yaml.load_all(text, loader))
    # Raised by ``_check_shape``. The last handler would replace its text.
    except ManifestError:
        raise
    except yaml.MarkedYAMLError as error:
        raise ManifestError(f"not YAML: {_located(error)}") from None
    # PyYAML raises KeyError, AttributeError and others for scalars such as `!!timestamp x`.
    except Exception as error:
        raise ManifestError(f"not YAML: a value cannot be read: {_one_line(str(error))}") from None
    return [document for document in documents if document is not None]


def _located(error: Any) -> str:
    mark = error.problem_mark or error.context_mark
    text = _one_line(error.problem or error.context or "syntax error")
    return f"line {mark.line + 1}, column {mark.column + 1}: {text}" if mark else text


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _check_shape(events: Any, shape: _Shape) -> None:
    """Raise ManifestError for a text that is too deep, too large or has duplicate keys.

    Such a text could crash PyYAML's composer, which recurses in C and expands merge keys.
    """
    # A state machine without recursion creates the events, so this check is safe for any text.
    import yaml

    for event in events:
        if isinstance(event, yaml.ScalarEvent):
            shape.scalar(event)
        elif isinstance(event, yaml.CollectionStartEvent):
            shape.open(event, isinstance(event, yaml.MappingStartEvent))
        elif isinstance(event, yaml.CollectionEndEvent):
            shape.close()
        elif isinstance(event, yaml.AliasEvent):
            shape.alias(event)


@attrs.define
class _Collection:
    """List or mapping of the text whose end event has not been read yet."""

    anchor: str | None
    nodes_before: int
    keys: set[str] | None
    expects_key: bool
    items: int = 0


@attrs.define
class _Shape:
    """Depth, expanded size and keys of the YAML text, up to the event that was read last."""

    max_nodes: int
    max_items: int | None = None
    nodes: int = 0
    open_collections: list[_Collection] = attrs.field(factory=list)
    sizes: dict[str, int | None] = attrs.field(factory=dict)
    """Anchor → number of YAML nodes in its value; None until the end of the value is read."""

    def scalar(self, event: Any) -> None:
        keys = self._enter(event)
        # PyYAML accepts several merge keys in one mapping, so they are not duplicates.
        if keys is not None and event.value != "<<":
            if event.value in keys:
                line = event.start_mark.line + 1
                raise ManifestError(f"line {line}: key {shown(event.value)} already set in map")
            keys.add(event.value)
        if event.anchor:
            self.sizes[event.anchor] = 1
        self._grow(1)

    def open(self, event: Any, is_mapping: bool) -> None:
        self._enter(event)
        keys: set[str] | None = set() if is_mapping else None
        self.open_collections.append(_Collection(event.anchor, self.nodes, keys, is_mapping))
        if len(self.open_collections) > _MAX_DEPTH:
            raise ManifestError(f"nested more than {_MAX_DEPTH} levels deep")
        if event.anchor:
            self.sizes[event.anchor] = None
        self._grow(1)

    def close(self) -> None:
        closed = self.open_collections.pop()
        if closed.anchor:
            self.sizes[closed.anchor] = self.nodes - closed.nodes_before

    def alias(self, event: Any) -> None:
        self._enter(event)
        # The loader reports an unknown anchor, with its position.
        size = self.sizes.get(event.anchor, 0)
        if size is None:
            raise ManifestError(f"the alias *{event.anchor} is inside the value of its own anchor")
        self._grow(size)

    def _enter(self, event: Any) -> set[str] | None:
        """Begin a YAML node. If the node is a key, return the earlier keys of its mapping.

        Return None for any other node.
        """
        if not self.open_collections:
            return None
        parent = self.open_collections[-1]
        if parent.keys is None:
            self._count_item(parent, event)
            return None
        is_key = parent.expects_key
        parent.expects_key = not is_key
        return parent.keys if is_key else None

    def _count_item(self, parent: _Collection, event: Any) -> None:
        parent.items += 1
        if self.max_items is not None and parent.items > self.max_items:
            line = event.start_mark.line + 1
            raise ManifestError(f"line {line}: the list has more than {self.max_items} items")

    def _grow(self, nodes: int) -> None:
        self.nodes += nodes
        if self.nodes > self.max_nodes:
            raise ManifestError(f"more than {self.max_nodes} values after aliases are expanded")
