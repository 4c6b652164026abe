"""Proposes a schema for a topic from a sample of its documents.

A field is a column if all of its values have one type: a time or a date only if each text is one, and a number if some
numbers are not whole. A field with values of several types, or an object with very many names, is kept as JSON text. No
field is required, because a sample cannot show that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.packs.body_batches import batches_with_bodies, decompress_bodies
from commitlake.connectors.lake.packs.pack_stores import open_pack_store
from commitlake.connectors.lake.packs.reader import FrameCache
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import text_literal
from commitlake.connectors.reading.decoding.bodies import DEFAULT_MAX_BYTES
from commitlake.pipelines.topics.document_check import JsonObject, kind_of_value, parse_document
from commitlake.pipelines.topics.json_schema import JsonKind, is_column_name

_MAX_NAMES = 500
"""Largest number of names of an object; in one with more, names are data."""
_MAX_VALUES = 12
_MAX_VALUE_CHARACTERS = 24
_MAX_LISTED = 1_000


@dataclass
class LearnedType:
    """Kinds of the values that a place in documents has.

    Attributes:
        values: number of values, with nulls.
        nulls: number of nulls.
        kinds: numbers of values by kind.
        fields: types of the fields of objects, by name.
        element: type of the elements of lists; None if there was no list with elements.
    """

    values: int = 0
    nulls: int = 0
    kinds: Counter[JsonKind] = field(default_factory=Counter)
    fields: dict[str, LearnedType] = field(default_factory=dict)
    element: LearnedType | None = None

    def add(self, value: object) -> None:
        """Add a value."""
        self.values += 1
        if value is None:
            self.nulls += 1
            return
        self.kinds[kind_of_value(value)] += 1
        if isinstance(value, JsonObject):
            for name, each in value:
                self.fields.setdefault(name, LearnedType()).add(each)
        elif isinstance(value, list):
            for each in value:
                self.element = self.element or LearnedType()
                self.element.add(each)

    def to_json_schema(self) -> dict[str, Any]:
        """Return the type as JSON Schema, with the share of objects that have each field as `x-share`."""
        kind = _common_kind(set(self.kinds))
        names = self._column_names()
        if kind is JsonKind.OBJECT and 0 < len(names) <= _MAX_NAMES:
            total = self.kinds[JsonKind.OBJECT]
            shares = {name: round((self.fields[name].values - self.fields[name].nulls) / total, 4) for name in names}
            properties = {name: {**self.fields[name].to_json_schema(), "x-share": shares[name]} for name in names}
            return {"type": self._type_name("object"), "properties": properties}
        if kind is JsonKind.LIST and self.element is not None:
            return {"type": self._type_name("array"), "items": self.element.to_json_schema()}
        if kind in {JsonKind.TIME, JsonKind.DATE}:
            return {"type": self._type_name("string"), "format": str(kind)}
        if kind in {None, JsonKind.ANY, JsonKind.OBJECT, JsonKind.LIST}:
            return {}
        return {"type": self._type_name(str(kind))}

    def _type_name(self, name: str) -> str | list[str]:
        return [name, "null"] if self.nulls else name

    def _column_names(self) -> list[str]:
        """Return the names that columns can have, the first of those that differ in case only."""
        kept: dict[str, str] = {}
        for name in self.fields:
            if is_column_name(name):
                kept.setdefault(name.lower(), name)
        return list(kept.values())


def _common_kind(kinds: set[JsonKind]) -> JsonKind | None:
    """Return the kind of all values; None if they have several, or there is none."""
    if kinds == {JsonKind.INTEGER, JsonKind.NUMBER}:
        return JsonKind.NUMBER
    if len(kinds) > 1 and kinds <= {JsonKind.STRING, JsonKind.TIME, JsonKind.DATE}:
        return JsonKind.STRING
    return next(iter(kinds)) if len(kinds) == 1 else None


@dataclass(frozen=True, slots=True)
class LearnedSchema:
    """Schema that was learned from a sample.

    Attributes:
        type: the type of the documents.
        documents: number of documents in the sample.
        others: number of bodies that are no JSON documents with an object.
    """

    type: LearnedType
    documents: int
    others: int

    def to_json_schema(self) -> dict[str, Any]:
        """Return the schema as a JSON Schema; empty if no document was found."""
        return self.type.to_json_schema()


def learn_schema(bodies: Iterable[bytes | None]) -> LearnedSchema:
    """Learn a schema from the bodies of messages."""
    learned, others = LearnedType(), 0
    for body in bodies:
        document = None if body is None else parse_document(body)
        if document is None:
            others += 1
        else:
            learned.add(document)
    return LearnedSchema(learned, learned.values, others)


def add_new_fields(schema: Mapping[str, Any], learned: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return a JSON Schema with the fields that only a learned one has, and the paths of these fields.

    Args:
        schema: the present schema, whose fields keep their types.
        learned: the learned schema.
    """
    added: list[str] = []
    return _add_new_fields(schema, learned, "", added), added


def _add_new_fields(
    schema: Mapping[str, Any], learned: Mapping[str, Any], place: str, added: list[str]
) -> dict[str, Any]:
    result = dict(schema)
    if "properties" in schema and "properties" in learned:
        properties = dict(schema["properties"])
        lower = {name.lower() for name in properties}
        for name, each in learned["properties"].items():
            if name in properties:
                properties[name] = _add_new_fields(properties[name], each, f"{place}{name}.", added)
            elif name.lower() not in lower:
                properties[name] = each
                added.append(f"{place}{name}")
        result["properties"] = properties
    elif "items" in schema and "items" in learned:
        result["items"] = _add_new_fields(schema["items"], learned["items"], place.rstrip(".") + "[].", added)
    return result


def sample_bodies(lake: Lake, topic: str, size: int) -> Iterator[bytes | None]:
    """Yield bodies of a topic, from all of its time and of all of its producers.

    Every n-th message of each queue is read, and the first one of each producer's host.

    Args:
        lake: the lake.
        topic: the topic.
        size: number of bodies, about.

    Raises:
        LakeError: if there is no lake.
        PackError: if a body is not available.
    """
    table, where = lake.table("messages"), f"topic = {text_literal(topic)}"
    counted = run_sql(table, "messages", f"SELECT count(*) AS n FROM messages WHERE {where}").read_all()
    step = max(1, counted.column("n")[0].as_py() // max(size, 1))
    grouped = f"{where} GROUP BY broker, born_host LIMIT {_MAX_LISTED}"
    first = f"SELECT min(physical_offset) AS o FROM messages WHERE {grouped}"
    chosen = f"{where} AND (queue_offset % {step} = 0 OR physical_offset IN ({first}))"
    sql = (
        f"SELECT body_ref, body_crc, body_codec FROM messages WHERE {chosen} "
        "ORDER BY body_ref['pack'], body_ref['frame_offset'], body_ref['offset']"
    )
    store, cache = open_pack_store(lake.packs), FrameCache()
    for batch in run_sql(table, "messages", sql).read_all().to_batches():
        for stored in batches_with_bodies(batch, store, cache):
            for bodies in decompress_bodies(stored, DEFAULT_MAX_BYTES):
                yield from bodies.column("body").to_pylist()
