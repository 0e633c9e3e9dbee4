"""YAML text into plain Python values, whatever the text is.

A manifest may come from anyone: neither deep nesting, nor aliases that unfold into
gigabytes, nor PyYAML's own slips on odd scalars may do more than raise ManifestError.
"""

from __future__ import annotations

from typing import Any

import attrs

from devicemanager.objects.manifests.errors import ManifestError, shown

MAX_SIZE = 1_572_864
"""Bytes of the largest manifest: what etcd stores of one object by default."""
TOO_LARGE = f"larger than {MAX_SIZE} bytes; a manifest describes one pod"
_MAX_DEPTH = 100
_MAX_NODES = 200_000
"""Nodes once all aliases are unfolded; the largest manifests have some thousands."""


def load_documents(
    text: str,
    max_size: int = MAX_SIZE,
    max_nodes: int = _MAX_NODES,
    too_large: str = TOO_LARGE,
    max_items: int | None = None,
) -> list[object]:
    """The documents of a YAML (or JSON) text, without empty ones. Raises ManifestError.

    ``max_size`` is in characters; ``too_large`` is said of a longer text. ``max_nodes`` counts
    every value once all aliases are unfolded, ``max_items`` those of one list.
    """
    if len(text) > max_size:
        raise ManifestError(too_large)
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check_shape(yaml.parse(text, loader), _Shape(max_nodes, max_items))
        documents = list(yaml.load_all(text, loader))
    except ManifestError:
        raise
    except yaml.MarkedYAMLError as error:
        raise ManifestError(f"not YAML: {_located(error)}") from None
    # PyYAML lets KeyError, AttributeError and more out on scalars like `!!timestamp x`.
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
    """Reject what the composer could not bear: it recurses in C and unfolds merge keys.

    Parser events come one by one from a state machine, so counting them is safe.
    """
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
    """A list or mapping that is still open."""

    anchor: str | None
    nodes_before: int
    keys: set[str] | None
    expects_key: bool
    items: int = 0


@attrs.define
class _Shape:
    """Depth, unfolded size and keys of what went by."""

    max_nodes: int
    max_items: int | None = None
    nodes: int = 0
    open_collections: list[_Collection] = attrs.field(factory=list)
    sizes: dict[str, int | None] = attrs.field(factory=dict)
    """Nodes by anchor; None while the anchor's own value is still open."""

    def scalar(self, event: Any) -> None:
        keys = self._enter(event)
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
        # An unknown anchor is left to the loader, which says where it is.
        size = self.sizes.get(event.anchor, 0)
        if size is None:
            raise ManifestError(f"the alias *{event.anchor} stands inside of what it names")
        self._grow(size)

    def _enter(self, event: Any) -> set[str] | None:
        """A node begins: the keys so far if it is a mapping's next key, else None."""
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
            raise ManifestError(f"line {line}: a list of more than {self.max_items} items")

    def _grow(self, nodes: int) -> None:
        self.nodes += nodes
        if self.nodes > self.max_nodes:
            raise ManifestError(f"more than {self.max_nodes} values once aliases are unfolded")
