"""Erases keys inside text columns of `quarantine` and `replays`, whose rows do not refer to a message.

quarantine   bytes of a damaged range may have a key: `first_bytes` and `found` of such a row are erased
replays      the plan of a replay has its selection: the key in it becomes "[erased]"

This is done before an erasure becomes valid, because keys are not stored afterwards. If it is repeated, it finds
nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from commitlake.connectors.lake.delta_log.file_actions import TableFile, read_table_files
from commitlake.connectors.lake.delta_log.versions import ERASURE_KEY
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.erasure.data_file_rewriting import TableErasureCounts
from commitlake.pipelines.maintenance.compaction import rewrite_file
from commitlake.pipelines.maintenance.file_replacement import ConcurrentMaintenanceError, replace_table_files
from commitlake.schemas.errors import ConcurrentRunError

ERASED = "[erased]"
_MAX_TRIES = 50
_WORD = r"[\w-]"


def measure_text_erasure(lake: Lake, table: str, texts: Collection[str]) -> TableErasureCounts | None:
    """Return how many rows and files have the texts to erase in a table; None if the lake lacks the table."""
    opened = lake.find(table)
    if opened is None:
        return None
    hits = list(_files_with_texts(lake, table, opened, texts))
    return TableErasureCounts(table, sum(rows for _, rows in hits), len(hits), sum(file.size for file, _ in hits))


def erase_texts(lake: Lake, table: str, texts: Collection[str]) -> TableErasureCounts | None:
    """Remove keys and ids of erased messages from the texts of a table, in one commit.

    Args:
        table: one of `TABLES`.
        texts: keys and ids.

    Returns:
        The work; None if the lake has no such table.
    """
    uri = lake.uri(table)
    for _ in range(_MAX_TRIES):
        opened = lake.find(table)
        if opened is None:
            return None
        hits = list(_files_with_texts(lake, table, opened, texts))
        if not hits:
            return TableErasureCounts(table)
        removed = [file for file, _ in hits]
        try:
            added = [
                rewrite_file(lake, table, file, partial(_erase_texts_in_batches, table, texts)) for file in removed
            ]
            replace_table_files(
                lake, table, removed, added, changes_data=True, note={"texts": True}, note_key=ERASURE_KEY,
                expected_version=opened.version(),
            )  # fmt: skip
        except (ConcurrentMaintenanceError, FileNotFoundError):
            continue
        sizes = (sum(file.size for file in removed), sum(file.size for file in added))
        return TableErasureCounts(table, sum(rows for _, rows in hits), len(hits), *sizes)
    raise ConcurrentRunError(
        f"{uri}: another writer committed first at each of {_MAX_TRIES} attempts. Run the command again"
    )


def _files_with_texts(
    lake: Lake, table: str, delta_table: DeltaTable, texts: Collection[str]
) -> Iterator[tuple[TableFile, int]]:
    folder = lake.open_folder(table)
    columns = _COLUMNS[table]
    for file in read_table_files(delta_table):
        with folder.open_input_file(unquote(file.path)) as source:
            rows = pq.read_table(source, columns=list(columns), page_checksum_verification=True)
        count = int(_rows_with_texts_mask(rows, table, texts).sum())
        if count:
            yield file, count


def _erase_texts_in_batches(table: str, texts: Collection[str], batches: Iterator[pa.Table]) -> Iterator[pa.Table]:
    for batch in batches:
        hits = _rows_with_texts_mask(batch, table, texts)
        if not hits.any():
            yield batch
            continue
        for name, change in _COLUMNS[table].items():
            place, field = batch.schema.get_field_index(name), batch.schema.field(name)
            values = batch.column(name).to_pylist()
            new = [change(value, texts) if hit else value for value, hit in zip(values, hits, strict=True)]
            batch = batch.set_column(place, field, pa.array(new, field.type))  # noqa: PLW2901 (column by column)
        yield batch


def _rows_with_texts_mask(rows: pa.Table, table: str, texts: Collection[str]) -> Array:
    """Return whether a column of each row contains one of the texts as a word."""
    found: Array = np.zeros(rows.num_rows, bool)
    for name in _COLUMNS[table]:
        column = rows.column(name)
        may: Array = np.zeros(rows.num_rows, bool)
        for text in texts:
            for form in _quoted_forms(text) | {json.dumps(text, ensure_ascii=False)[1:-1]}:
                pattern = form.encode() if pa.types.is_binary(column.type) else form
                may |= pc.match_substring(column, pattern).fill_null(False).to_numpy().astype(bool)
        numbers = np.flatnonzero(may)
        values = column.take(pa.array(numbers)).to_pylist()
        found[numbers] = [_contains_any_text(value, texts) for value in values]
    return found


def _quoted_forms(text: str) -> set[str]:
    """Return a text in the two forms in which it may be stored: as it is, and as an SQL literal."""
    return {text, text.replace("'", "''")}


def _contains_any_text(value: str | bytes, texts: Collection[str]) -> bool:
    shown = value.decode("latin-1") if isinstance(value, bytes) else value
    wanted = [text.encode().decode("latin-1") for text in texts] if isinstance(value, bytes) else texts
    if _replace_whole_words(shown, wanted) != shown:
        return True
    return isinstance(value, str) and _replace_texts(value, texts) != value


def _always_null(_text: str | None, _texts: Collection[str]) -> None:
    return None


def _null_if_text_found(value: str | None, texts: Collection[str]) -> str | None:
    return ERASED if value is not None and _contains_any_text(value, texts) else value


def _replace_texts(value: str | None, texts: Collection[str]) -> str | None:
    """Return a text with the given words replaced; in JSON, only words inside strings."""
    if value is None:
        return None
    try:
        document = json.loads(value)
    except (ValueError, RecursionError):
        return _replace_whole_words(value, texts)
    changed = _replace_texts_in_value(document, texts)
    return value if changed == document else json.dumps(changed, ensure_ascii=False)


def _replace_texts_in_value(value: object, texts: Collection[str]) -> object:
    if isinstance(value, str):
        return _replace_whole_words(value, texts)
    if isinstance(value, list):
        return [_replace_texts_in_value(each, texts) for each in value]
    if isinstance(value, dict):
        return {name: _replace_texts_in_value(each, texts) for name, each in value.items()}
    return value


def _replace_whole_words(value: str, texts: Collection[str]) -> str:
    for text in sorted(texts, key=len, reverse=True):
        for form in _quoted_forms(text):
            if form in value:
                value = re.sub(f"(?<!{_WORD}){re.escape(form)}(?!{_WORD})", ERASED, value)
    return value


_COLUMNS: Mapping[str, Mapping[str, Callable[[str | None, Collection[str]], str | None]]] = {
    "quarantine": {"first_bytes": _always_null, "found": _null_if_text_found, "expected": _null_if_text_found},
    "replays": {"plan": _replace_texts, "detail": _replace_texts},
}
TABLES = tuple(_COLUMNS)
"""Tables with such texts."""
