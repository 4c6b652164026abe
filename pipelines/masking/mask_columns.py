"""Masks for columns: the results of `Mask.value`, computed for many rows at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays import Array
from commitlake.pipelines.masking.masks import Mask

_INT32 = np.int32


def mask_texts(values: pa.Array, mask: Mask, key: bytes) -> pa.Array:
    """Mask an array of strings or a dictionary array of them; each distinct text is hashed once."""
    if pa.types.is_dictionary(values.type):
        masked = mask_texts(values.dictionary, mask, key).take(values.indices)
        return masked.dictionary_encode().cast(values.type)  # encoded again: two texts may have become one
    if mask.rule == "null":
        return pa.nulls(len(values), values.type)
    if mask.rule == "hash":
        distinct = values.dictionary_encode()
        digests = [mask.value(text, key) for text in distinct.dictionary.to_pylist()]
        return pa.array(digests, values.type).take(distinct.indices)
    return _shortened(values, mask)


def _shortened(values: pa.Array, mask: Mask) -> pa.Array:
    if mask.rule == "text":
        return pc.if_else(pc.is_valid(values), pa.scalar(mask.argument, values.type), pa.scalar(None, values.type))
    shown = int(mask.argument)
    if mask.rule == "truncate":
        return pc.utf8_slice_codeunits(values, 0, shown)
    hidden = pc.max_element_wise(pc.subtract(pc.utf8_length(values), shown), 0)
    hidden = pc.if_else(pc.is_valid(values), hidden, None)  # the maximum of null and 0 would be 0
    stars = pc.binary_repeat(pa.scalar("*", values.type), hidden)
    last = pc.utf8_slice_codeunits(values, -shown, None) if shown else pc.utf8_slice_codeunits(values, 0, 0)
    return pc.binary_join_element_wise(stars, last, pa.scalar("", values.type))


def mask_lists(lists: pa.Array, mask: Mask, key: bytes) -> pa.Array:
    """Mask the texts in an array of lists. Empty results are removed from their list; an empty list becomes null."""
    lists = pa.concat_arrays([lists])
    offsets = lists.offsets.to_numpy().astype(np.int64)
    values = lists.values.slice(offsets[0], offsets[-1] - offsets[0])
    masked = mask_texts(values, mask, key)
    kept = _is_some(masked)
    lengths = np.bincount(_parents(offsets)[kept], minlength=len(lists))
    is_valid = _booleans(pc.is_valid(lists)) & (lengths > 0)
    new = np.zeros(len(lists) + 1, _INT32)
    np.cumsum(lengths, out=new[1:])
    buffers = [_bits(is_valid), pa.py_buffer(new)]
    return pa.Array.from_buffers(lists.type, len(lists), buffers, children=[masked.filter(pa.array(kept))])


def join_lists(lists: pa.Array, separator: str) -> pa.Array:
    """Join the texts of each list into one text; null stays null."""
    return pc.binary_join(lists.cast(pa.list_(lists.type.value_type)), separator)  # it needs lists of nullable texts


def mask_entries(maps: pa.MapArray, name: str, mask: Mask, key: bytes) -> pa.MapArray:
    """Mask the values of a name in an array of maps; entries with an empty result are removed."""
    names, items, offsets = _entries(maps)
    chosen = _booleans(pc.equal(names, name).fill_null(False))
    return _with_items(maps, offsets, names, items, chosen, mask_texts(items.filter(pa.array(chosen)), mask, key))


def set_entries(maps: pa.MapArray, name: str, values: pa.Array) -> pa.MapArray:
    """Replace the values of a name by one text per row; entries are removed if the text is null or empty."""
    names, items, offsets = _entries(maps)
    chosen = _booleans(pc.equal(names, name).fill_null(False))
    texts = values.cast(pa.string()).take(pa.array(_parents(offsets)[chosen]))
    is_empty = pc.equal(texts, "").fill_null(True)
    texts = pc.if_else(is_empty, pa.scalar(None, pa.string()), texts)
    return _with_items(maps, offsets, names, items, chosen, texts)


def add_entries(maps: pa.MapArray, name: str, values: pa.Array) -> pa.MapArray:
    """Add an entry to each map whose text is not null."""
    pairs = [
        found if value is None else [*(found or []), (name, value)]
        for found, value in zip(maps.to_pylist(), values.to_pylist(), strict=True)
    ]
    return pa.array(pairs, maps.type)


def _entries(maps: pa.MapArray) -> tuple[pa.Array, pa.Array, Array]:
    """Return the names, the values and the start of each map in them, of this slice only."""
    offsets = maps.offsets.to_numpy().astype(np.int64)
    first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    return maps.keys.slice(first, count), maps.items.slice(first, count), offsets - first


def _with_items(
    maps: pa.MapArray, offsets: Array, names: pa.Array, items: pa.Array, chosen: Array, texts: pa.Array
) -> pa.MapArray:
    if not chosen.any():
        return maps
    changed = pc.replace_with_mask(items, pa.array(chosen), texts.cast(items.type))
    kept = ~chosen
    kept[chosen] = _booleans(pc.is_valid(texts))
    lengths = np.bincount(_parents(offsets)[kept], minlength=len(maps))
    new = np.zeros(len(maps) + 1, _INT32)
    np.cumsum(lengths, out=new[1:])
    mask = pa.array(kept)
    fields = [maps.type.key_field, maps.type.item_field]
    entries = pa.StructArray.from_arrays([names.filter(mask), changed.filter(mask)], fields=fields)
    buffers = [_bits(_booleans(pc.is_valid(maps))), pa.py_buffer(new)]
    return pa.Array.from_buffers(maps.type, len(maps), buffers, children=[entries])


def _parents(offsets: Array) -> Array:
    """Return, for each element of the lists, the number of its list."""
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def _is_some(texts: pa.Array) -> Array:
    """Return which texts are neither null nor empty."""
    return _booleans(pc.greater(pc.binary_length(texts), 0).fill_null(False))


def _booleans(values: pa.Array) -> Array:
    return np.asarray(values.to_numpy(zero_copy_only=False), bool)


def _bits(is_valid: Array) -> pa.Buffer | None:
    return None if is_valid.all() else pa.py_buffer(np.packbits(is_valid, bitorder="little"))
