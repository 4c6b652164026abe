"""Masks for rows and bodies before they are archived, and the rules stored in a lake.

Everything written into a lake with masks is masked: packs, `messages`, and the data derived from it: `message_keys`,
HBase, `topic_minutes` (its tags are masked) and the profile that an audit compares with. The checksums of an audit are
therefore those of the masked rows, and `audit --store` applies the same rules to the records of the store.

    keys         the column, and the property KEYS. Bodies of trace messages, which contain keys, are left out
    tags         the column, and the property TAGS
    property.X   the property; for UNIQ_KEY the column unique_key as well
    body         the body, compressed as before; body_size and body_crc are those of the masked body

The body of an inner batch (5.x) holds messages with keys, tags and properties of their own, and each is masked like
another. A body that cannot be masked (not JSON, not text, damaged) is left out: it becomes empty, and the message gets
the property COMMITLAKE_MASKED. A lake has one set of rules and one key from its first message on. Each commit contains
the rules and a number derived from the key, from which the key cannot be computed.

Columns are masked as a whole, with the results of `Mask.mask_value` for each distinct value.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.decoding.bodies import decompress_as
from commitlake.connectors.reading.errors import BodyError
from commitlake.pipelines.masking.erased_rows import KEPT_PROPERTIES
from commitlake.pipelines.masking.masks import (
    BODY,
    KEY_VARIABLE,
    KEYS,
    PROPERTY,
    TAGS,
    Mask,
    MaskableMessage,
    MaskError,
    apply_masks,
    check_hash_key,
    parse_mask,
)
from commitlake.schemas.errors import CommitLakeError, ExitCode, UsageError
from commitlake.schemas.layouts.errors import LayoutError, UnserializableError
from commitlake.schemas.layouts.rocketmq.batchconsumequeue import INNER_NUM
from commitlake.schemas.layouts.rocketmq.commitlog import body_crc
from commitlake.schemas.layouts.rocketmq.properties import (
    KEY_SEPARATOR,
    UNIQ_KEY,
    parse_properties,
    serialize_properties,
    split_keys,
)
from commitlake.schemas.layouts.rocketmq.properties import KEYS as KEYS_PROPERTY
from commitlake.schemas.layouts.rocketmq.properties import TAGS as TAGS_PROPERTY
from commitlake.schemas.layouts.rocketmq.sysflag import INNER_BATCH, ZLIB_LEVEL, BodyCodec
from commitlake.schemas.layouts.rocketmq.topics import Kind
from commitlake.schemas.remoting.batch import BatchItem, parse_batch, serialize_batch

MASKED = "COMMITLAKE_MASKED"
"""Property of a message whose body was left out because it could not be masked; its value is `body`."""
_UNMASKED_KINDS = (str(Kind.OP),)  # internal messages of a broker, which contain only offsets
_SALT = b"commitlake masks"
_OWN = {KEYS_PROPERTY: KEYS, TAGS_PROPERTY: TAGS}
_INT32 = np.int32


@dataclass(frozen=True)
class ArchiveMasks:
    """Masking rules of a lake, with the key of their hashes; can be pickled.

    Attributes:
        masks: the rules.
        key: key of the hashes; empty if no rule needs one.
    """

    masks: tuple[Mask, ...]
    key: bytes = b""

    @property
    def changes_bodies(self) -> bool:
        """True if there are any rules, as each can apply to messages inside the body of an inner batch."""
        return bool(self.masks)

    def serialize_rules(self) -> str:
        """Return the masking rules and an id of their hash key as the text that archive commits record."""
        return json.dumps({"rules": [str(mask) for mask in self.masks], "key": _hash_key_id(self.key)}, sort_keys=True)

    def mask_rows(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
        """Mask a batch of rows before it is archived.

        Args:
            rows: rows with the columns of `messages` except `body_ref`, and with `body` if `changes_bodies`.

        Returns:
            The masked rows, and the number of bodies that were left out.
        """
        for mask in self.masks:
            rows = self._mask_columns(rows, mask)
        return self._mask_bodies(rows) if self.changes_bodies else (rows, 0)

    def _mask_columns(self, rows: pa.RecordBatch, mask: Mask) -> pa.RecordBatch:
        properties = rows.column("properties")
        if mask.field == KEYS:
            keys = mask_lists(rows.column("keys"), mask, self.key)
            joined = join_lists(keys, KEY_SEPARATOR)
            return _replace_columns(rows, keys=keys, properties=set_entries(properties, KEYS_PROPERTY, joined))
        if mask.field == TAGS:
            tags = mask_texts(rows.column("tags"), mask, self.key)
            return _replace_columns(rows, tags=tags, properties=mask_entries(properties, TAGS_PROPERTY, mask, self.key))
        if mask.field == PROPERTY:
            (name,) = mask.path
            changed = {"properties": mask_entries(properties, name, mask, self.key)}
            if name == UNIQ_KEY:
                changed["unique_key"] = mask_texts(rows.column("unique_key"), mask, self.key)
            return _replace_columns(rows, **changed)
        return rows

    def _mask_bodies(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
        numbers = np.flatnonzero(self._has_body_to_mask(rows))
        if not len(numbers):
            return rows, 0
        found = rows.select(["kind", "body_codec", "body"]).take(pa.array(numbers))
        is_batch = _is_inner_batch(rows)[numbers]
        kinds, codecs = (pc.cast(found.column(name), pa.string()).to_pylist() for name in ("kind", "body_codec"))
        bodies: list[bytes] = []
        marks: list[str | None] = []
        plain = found.column("body").to_pylist()
        for kind, codec, body, holds_messages in zip(kinds, codecs, plain, is_batch.tolist(), strict=True):
            try:
                bodies.append(self._mask_body(kind, codec, body, holds_messages=holds_messages))
                marks.append(None)
            except (MaskError, BodyError):
                bodies.append(_compress_body(b"", _to_codec(codec)))
                marks.append("body")
        is_masked: Array = np.zeros(rows.num_rows, bool)
        is_masked[numbers] = True
        sizes, crcs = [len(body) for body in bodies], [body_crc(body) for body in bodies]
        values: dict[str, Sequence[object]] = {"body": bodies, "body_size": sizes, "body_crc": crcs}
        columns = {name: _replace_values(rows.column(name), is_masked, new) for name, new in values.items()}
        left_out = len(marks) - marks.count(None)
        if left_out:
            texts: list[str | None] = [None] * rows.num_rows
            for number, mark in zip(numbers.tolist(), marks, strict=True):
                texts[number] = mark
            columns["properties"] = add_entries(rows.column("properties"), MASKED, pa.array(texts, pa.string()))
        return _replace_columns(rows, **columns), left_out

    def _has_body_to_mask(self, rows: pa.RecordBatch) -> Array:
        kinds = pc.cast(rows.column("kind"), pa.string())
        if any(mask.field == BODY for mask in self.masks):
            is_wanted = pc.invert(pc.is_in(kinds, pa.array(_UNMASKED_KINDS)))
        else:
            is_wanted = pc.equal(kinds, str(Kind.TRACE)).fill_null(False)
        is_wanted = pc.or_(is_wanted, pa.array(_is_inner_batch(rows)))
        is_wanted = pc.and_(is_wanted, pc.greater(pc.binary_length(rows.column("body")), 0).fill_null(False))
        return np.asarray(is_wanted.to_numpy(zero_copy_only=False), bool)

    def _mask_body(self, kind: str, codec: str, body: bytes, *, holds_messages: bool) -> bytes:
        """Return a stored body with its fields masked, compressed as before.

        A body without changes is returned as it is.
        """
        if kind == Kind.TRACE and any(mask.field == KEYS for mask in self.masks):
            raise MaskError(
                "body: the message is a trace, which has keys of other messages in its body, and cannot be masked"
            )
        masks = [mask for mask in self.masks if mask.field == BODY]
        if not masks and not holds_messages:
            return body
        plain = decompress_as(body, _to_codec(codec))
        if holds_messages:
            masked = self._mask_inner_batch(plain)
        else:
            masked = apply_masks(MaskableMessage(plain, (), None, {}), masks, self.key).body
        return body if masked == plain else _compress_body(masked, _to_codec(codec))

    def _mask_inner_batch(self, body: bytes) -> bytes:
        """Return the body of an inner batch with each of its messages masked."""
        try:
            return serialize_batch([self._mask_batch_item(item) for item in parse_batch(body)])
        except (LayoutError, UnserializableError) as error:
            raise MaskError(f"body: {error}") from None

    def _mask_batch_item(self, item: BatchItem) -> BatchItem:
        others = dict(parse_properties(item.properties))
        keys, tags = split_keys(others.pop(KEYS_PROPERTY, "")), others.pop(TAGS_PROPERTY, None)
        message = MaskableMessage(item.body, keys, tags, others)
        masked = apply_masks(message, self.masks, self.key)
        if masked == message:
            return item
        own = {KEYS_PROPERTY: KEY_SEPARATOR.join(masked.keys), TAGS_PROPERTY: masked.tags or ""}
        pairs = {**masked.properties, **{name: text for name, text in own.items() if text}}
        return BatchItem(item.flag, masked.body, serialize_properties(pairs.items()))


def _is_inner_batch(rows: pa.RecordBatch) -> Array:
    """Return a mask of the rows whose record is an inner batch of several messages."""
    flags = np.asarray(pc.fill_null(rows.column("sys_flag"), 0).to_numpy(zero_copy_only=False))
    found: Array = flags & INNER_BATCH != 0
    properties = rows.column("properties")
    for row in np.flatnonzero(found).tolist():
        # The bit alone proves nothing: a client can set it in any message.
        found[row] = INNER_NUM in dict(properties[row].as_py() or ())
    return found


@lru_cache(maxsize=8)
# Cached, because scrypt is slow on purpose and every commit needs the number.
def _hash_key_id(key: bytes) -> str | None:
    """Return a text that identifies a hash key without revealing it; None if there is no key."""
    return hashlib.scrypt(key, salt=_SALT, n=1 << 14, r=8, p=1, dklen=16).hex() if key else None


def _replace_values(column: pa.Array, is_masked: Array, values: Sequence[object]) -> pa.Array:
    return pc.replace_with_mask(column, pa.array(is_masked), pa.array(values, column.type))


def _to_codec(name: str) -> BodyCodec:
    return BodyCodec(name) if name in set(BodyCodec) else BodyCodec.UNKNOWN


def _compress_body(body: bytes, codec: BodyCodec) -> bytes:
    if codec in {BodyCodec.NONE, BodyCodec.UNKNOWN}:
        return body
    return zlib.compress(body, ZLIB_LEVEL) if codec is BodyCodec.ZLIB else pa.compress(body, str(codec), asbytes=True)


def _replace_columns(rows: pa.RecordBatch, **columns: pa.Array) -> pa.RecordBatch:
    for name, column in columns.items():
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, rows.schema.field(name), column)
    return rows


def parse_archive_masks(texts: Sequence[str], environment: Mapping[str, str]) -> ArchiveMasks | None:
    """Parse masking rules from a command line; return None if there are none.

    Args:
        texts: rules for `parse_mask`.
        environment: environment variables; `COMMITLAKE_MASK_KEY` is the key.

    Raises:
        UsageError: if a rule is invalid, lacks its key, or masks a property from which tables are derived.
    """
    if not texts:
        return None
    masks = tuple(parse_mask(text) for text in texts)
    for mask in masks:
        name = mask.path[0] if mask.field == PROPERTY else None
        if name in _OWN:
            raise UsageError(
                f"mask {str(mask)!r}: a column has the same values as this property: use {_OWN[name]}={mask.rule}"
            )
        if name in KEPT_PROPERTIES:
            raise UsageError(
                f"mask {str(mask)!r}: the property {name} cannot be masked, because brokers set it and columns are "
                "derived from it"
            )
    key = environment.get(KEY_VARIABLE, "").encode("utf-8", "surrogateescape")
    check_hash_key(masks, key)
    needs_key = any(mask.rule == "hash" for mask in masks)
    # A key that no rule uses must not become part of the lake's rules.
    return ArchiveMasks(masks, key if needs_key else b"")


def describe_rules(stored_rules: str) -> str:
    """Return a lake's masking rules in words, for use in a sentence.

    Raises:
        UsageError: if the rules cannot be read.
    """
    return ", ".join(_parse_rules(stored_rules))


def check_masks(stored_rules: str | None, masks: ArchiveMasks | None, *, is_new: bool) -> None:
    """Raise an error if a run would archive with masking rules other than the lake's own.

    Args:
        stored_rules: rules in the newest commit.
        masks: rules of this run.
        is_new: true if the lake has no messages yet.

    Raises:
        CommitLakeError: if the rules differ from the lake's.
    """
    given = None if masks is None else masks.serialize_rules()
    if is_new or given == stored_rules:
        return
    rules, own = _parse_rules(stored_rules), _parse_rules(given)
    if rules == own:
        raise CommitLakeError(
            f"the key in {KEY_VARIABLE} is not the one with which this lake was masked: nothing was archived. Set the "
            "first key again",
            exit_code=ExitCode.REFUSED,
        )
    expected = " ".join(f"--mask {rule}" for rule in rules) or "no --mask"
    found = " ".join(f"--mask {rule}" for rule in own) or "none"
    raise CommitLakeError(
        f"this lake's messages were archived with {expected}, but this run has {found}: nothing was archived. A lake "
        "keeps its masks from its first message on; use another lake for other masks",
        exit_code=ExitCode.REFUSED,
    )


def parse_lake_masks(stored_rules: str | None, environment: Mapping[str, str]) -> ArchiveMasks | None:
    """Return the masking rules under which a lake was archived, with their hash key; None if it has none.

    Raises:
        UsageError: if the key is missing, or is a different one.
    """
    if stored_rules is None:
        return None
    masks = parse_archive_masks(_parse_rules(stored_rules), environment)
    if masks is None or masks.serialize_rules() != stored_rules:
        raise UsageError(
            f"the lake's messages were masked with a different key than the one in {KEY_VARIABLE}: set the key that "
            "'archive' used"
        )
    return masks


def masks_change_bodies(stored_rules: str | None) -> bool:
    """Return whether a lake's masking rules change bodies, so that bodies that cannot be masked are left out.

    >>> masks_change_bodies('{"rules": ["body.email=hash"], "key": 1}'), masks_change_bodies('{"rules": ["tags=null"]}')
    (True, False)
    """
    return any(rule.partition("=")[0].partition(".")[0] in {BODY, KEYS} for rule in _parse_rules(stored_rules))


def _parse_rules(stored_rules: str | None) -> list[str]:
    if stored_rules is None:
        return []
    try:
        return [str(rule) for rule in json.loads(stored_rules)["rules"]]
    except (ValueError, KeyError, TypeError):
        found = repr(stored_rules[:60])
        raise UsageError(f"the lake's masks cannot be read: expected JSON with their rules, found {found}") from None


def mask_texts(values: pa.Array, mask: Mask, key: bytes) -> pa.Array:
    """Mask an array of strings, plain or as a dictionary; each distinct string is hashed once."""
    if pa.types.is_dictionary(values.type):
        masked = mask_texts(values.dictionary, mask, key).take(values.indices)
        return masked.dictionary_encode().cast(values.type)  # encoded again: two texts may have become one
    if mask.rule == "null":
        return pa.nulls(len(values), values.type)
    if mask.rule == "hash":
        distinct = values.dictionary_encode()
        digests = [mask.mask_value(text, key) for text in distinct.dictionary.to_pylist()]
        return pa.array(digests, values.type).take(distinct.indices)
    return _shorten_texts(values, mask)


def _shorten_texts(values: pa.Array, mask: Mask) -> pa.Array:
    if mask.rule == "text":
        return pc.if_else(pc.is_valid(values), pa.scalar(mask.argument, values.type), pa.scalar(None, values.type))
    shown = int(mask.argument)
    if mask.rule == "truncate":
        return pc.utf8_slice_codeunits(values, 0, shown)
    hidden = pc.max_element_wise(pc.subtract(pc.utf8_length(values), shown), 0)
    hidden = pc.if_else(pc.is_valid(values), hidden, None)  # the maximum of null and 0 would be 0
    stars = pc.binary_repeat(pa.scalar("*", values.type), hidden)
    # An end of -0 characters would be the whole text.
    last = pc.utf8_slice_codeunits(values, -shown, None) if shown else pc.utf8_slice_codeunits(values, 0, 0)
    return pc.binary_join_element_wise(stars, last, pa.scalar("", values.type))


def mask_lists(lists: pa.Array, mask: Mask, key: bytes) -> pa.Array:
    """Mask the texts in an array of lists; empty results are removed, and a list that becomes empty is null."""
    lists = pa.concat_arrays([lists])
    offsets = lists.offsets.to_numpy().astype(np.int64)
    values = lists.values.slice(offsets[0], offsets[-1] - offsets[0])
    masked = mask_texts(values, mask, key)
    kept = _are_nonempty_texts(masked)
    lengths = np.bincount(_list_index_by_element(offsets)[kept], minlength=len(lists))
    is_valid = _to_booleans(pc.is_valid(lists)) & (lengths > 0)
    new = np.zeros(len(lists) + 1, _INT32)
    np.cumsum(lengths, out=new[1:])
    buffers = [_validity_buffer(is_valid), pa.py_buffer(new)]
    return pa.Array.from_buffers(lists.type, len(lists), buffers, children=[masked.filter(pa.array(kept))])


def join_lists(lists: pa.Array, separator: str) -> pa.Array:
    """Join the texts of each list into one text; null stays null."""
    return pc.binary_join(lists.cast(pa.list_(lists.type.value_type)), separator)  # it needs lists of nullable texts


def mask_entries(maps: pa.MapArray, entry_name: str, mask: Mask, key: bytes) -> pa.MapArray:
    """Mask the values of entries with a given name in an array of maps; entries with an empty result are removed."""
    names, items, offsets = _map_entries(maps)
    chosen = _to_booleans(pc.equal(names, entry_name).fill_null(False))
    return _replace_map_items(
        maps, offsets, names, items, chosen, mask_texts(items.filter(pa.array(chosen)), mask, key)
    )


def set_entries(maps: pa.MapArray, entry_name: str, entry_texts: pa.Array) -> pa.MapArray:
    """In each map, replace the entry of a given name by one text; remove it if the text is null or empty."""
    names, items, offsets = _map_entries(maps)
    chosen = _to_booleans(pc.equal(names, entry_name).fill_null(False))
    texts = entry_texts.cast(pa.string()).take(pa.array(_list_index_by_element(offsets)[chosen]))
    is_empty = pc.equal(texts, "").fill_null(True)
    texts = pc.if_else(is_empty, pa.scalar(None, pa.string()), texts)
    return _replace_map_items(maps, offsets, names, items, chosen, texts)


def add_entries(maps: pa.MapArray, entry_name: str, entry_texts: pa.Array) -> pa.MapArray:
    """Add an entry with the given name and text to each map; a map whose text is null stays unchanged."""
    pairs = [
        found if value is None else [*(found or []), (entry_name, value)]
        for found, value in zip(maps.to_pylist(), entry_texts.to_pylist(), strict=True)
    ]
    return pa.array(pairs, maps.type)


def _map_entries(maps: pa.MapArray) -> tuple[pa.Array, pa.Array, Array]:
    """Return the names and values of all entries of an array of maps, and where each map's entries start."""
    offsets = maps.offsets.to_numpy().astype(np.int64)
    first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    return maps.keys.slice(first, count), maps.items.slice(first, count), offsets - first


def _replace_map_items(
    maps: pa.MapArray, offsets: Array, names: pa.Array, items: pa.Array, is_replaced: Array, new_texts: pa.Array
) -> pa.MapArray:
    if not is_replaced.any():
        return maps
    changed = pc.replace_with_mask(items, pa.array(is_replaced), new_texts.cast(items.type))
    kept = ~is_replaced
    kept[is_replaced] = _to_booleans(pc.is_valid(new_texts))
    lengths = np.bincount(_list_index_by_element(offsets)[kept], minlength=len(maps))
    new = np.zeros(len(maps) + 1, _INT32)
    np.cumsum(lengths, out=new[1:])
    mask = pa.array(kept)
    fields = [maps.type.key_field, maps.type.item_field]
    entries = pa.StructArray.from_arrays([names.filter(mask), changed.filter(mask)], fields=fields)
    buffers = [_validity_buffer(_to_booleans(pc.is_valid(maps))), pa.py_buffer(new)]
    return pa.Array.from_buffers(maps.type, len(maps), buffers, children=[entries])


def _list_index_by_element(offsets: Array) -> Array:
    """Return, for each element of an array of lists, the index of the list that it belongs to."""
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def _are_nonempty_texts(texts: pa.Array) -> Array:
    """Return a mask of the texts that are neither null nor empty."""
    return _to_booleans(pc.greater(pc.binary_length(texts), 0).fill_null(False))


def _to_booleans(values: pa.Array) -> Array:
    return np.asarray(values.to_numpy(zero_copy_only=False), bool)


def _validity_buffer(is_valid: Array) -> pa.Buffer | None:
    return None if is_valid.all() else pa.py_buffer(np.packbits(is_valid, bitorder="little"))
