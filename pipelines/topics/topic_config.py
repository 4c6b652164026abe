"""The file that says which topics are kept as typed tables.

    [topics.orders]
    schema = "orders.schema.json"
    drop = ["card_number"]
    rename = {id = "order_id"}

    [topics.payments]
    schema = "payments.schema.json"
    table = "paid"
    on_misfit = "fail"

    [topics.cdc_customers]
    format = "canal-json"
    schema = "customers.schema.json"
    source_table = "shop.customers"
    key = ["id"]
    utc_offset = "+08:00"

Paths of schemas are relative to the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from commitlake.connectors.lake.lake import TOPIC_TABLES
from commitlake.pipelines.topics.changes.change_event import ChangeFormat
from commitlake.pipelines.topics.changes.change_reader import CHANGE_FORMATS, ChangeReader
from commitlake.pipelines.topics.json_schema import JsonKind, JsonType
from commitlake.schemas.errors import CommitLakeError, ExitCode
from commitlake.schemas.tables.topics import (
    BEFORE,
    CHANGE,
    CHANGE_NUMBER,
    IS_DELETED,
    PLACE,
    SCHEMA_NUMBER,
    UNKNOWN_FIELDS,
)
from commitlake.schemas.toml_text import TomlError, parse_toml

_TABLE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
_COLUMN_NAME = re.compile(r"[A-Za-z0-9_]{1,255}")
_CURRENT_SUFFIX = "_current"
_UTC_OFFSET = re.compile(r"Z|[+-](?:0\d|1[0-7]):[0-5]\d", re.ASCII)
_DOCUMENTS = "json"
"""The format of bodies that are documents, each of which is a row."""
_OWN_COLUMNS = frozenset({*PLACE.names, UNKNOWN_FIELDS.name, SCHEMA_NUMBER.name})
_CHANGE_COLUMNS = frozenset({*CHANGE.names, CHANGE_NUMBER.name, IS_DELETED.name})
_KEY_KINDS = frozenset({JsonKind.STRING, JsonKind.INTEGER, JsonKind.BOOLEAN, JsonKind.DATE, JsonKind.TIME})


class TopicConfigError(CommitLakeError):
    """Error for a wrong file of topics; it names the file, the topic, the option, what was found and expected."""

    exit_code = ExitCode.USAGE


class OnMisfit(StrEnum):
    """Effect of messages that do not fit the schema of their topic."""

    QUARANTINE = "quarantine"
    """The message is a row of `topic_misfits`."""
    FAIL = "fail"
    """Nothing is added to the table."""


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """How one topic is kept as a typed table.

    Attributes:
        topic: the topic.
        table: name of its table, in the folder `topics` of the lake.
        schema_file: file with the JSON Schema.
        drop: fields of the document that are not kept.
        rename: names of columns, by the names of their fields.
        on_misfit: what happens with messages that do not fit; None for QUARANTINE, with exit code 3.
        changes: form of the bodies, if they are change events; None if they are documents.
        source_table: pattern of `database.table`, whose changes are read; empty for documents.
        key: fields of the rows' primary key; empty if it is the one that the events say.
        utc_offset: offset of times that change events have without one.
    """

    topic: str
    table: str
    schema_file: Path
    drop: frozenset[str] = frozenset()
    rename: Mapping[str, str] = field(default_factory=dict)
    on_misfit: OnMisfit | None = None
    changes: ChangeFormat | None = None
    source_table: str = ""
    key: tuple[str, ...] = ()
    utc_offset: str | None = None

    @property
    def lake_table(self) -> str:
        """Path of the table in the lake."""
        return f"{TOPIC_TABLES}/{self.table}"

    @property
    def current_table(self) -> str:
        """Path of the table of current rows in the lake."""
        return f"{self.lake_table}{_CURRENT_SUFFIX}"

    def change_reader(self, schema: JsonType) -> ChangeReader | None:
        """Return the reader of the topic's change events, whose rows have a type; None if the bodies are documents."""
        if self.changes is None:
            return None
        return ChangeReader(self.changes, schema, self.source_table, self.key, self.utc_offset, self.drop)

    def check_columns(self, schema: JsonType) -> None:
        """Refuse a schema whose columns would have the same name, or that of one of CommitLake's own columns.

        Raises:
            TopicConfigError: if it is so, or an option names a field that the schema lacks.
        """
        names = [each.name for each in schema.fields]
        for option, given in (("drop", self.drop), ("rename", self.rename)):
            for name in sorted(given):
                if option == "rename" and name not in names:
                    raise TopicConfigError(
                        f"topic {self.topic}: {option}: expected fields of the schema, found {name!a}; it has "
                        f"{', '.join(names[:8])}"
                    )
        self._check_key(schema)
        own_columns = {own.lower() for own in _OWN_COLUMNS | (_CHANGE_COLUMNS if self.source_table else frozenset())}
        seen = set[str]()
        for name in names:
            column = self.rename.get(name, name)
            is_before = bool(self.source_table) and column.lower().startswith(BEFORE)
            if is_before or column.lower() in own_columns | seen:
                raise TopicConfigError(
                    f"topic {self.topic}: expected one column of each name, found two named {column!a}. Give the field "
                    f"{name!a} another name with rename"
                )
            seen.add(column.lower())

    def _check_key(self, schema: JsonType) -> None:
        kinds = {each.name: each.type.kind for each in schema.fields if each.name not in self.drop}
        for name in self.key:
            if kinds.get(name) not in _KEY_KINDS:
                found = f"the {kinds[name]} {name!a}" if name in kinds else f"{name!a}; it has {', '.join(kinds)}"
                raise TopicConfigError(
                    f"topic {self.topic}: key: expected fields of the schema that are kept, with a value of one of the "
                    f"types {', '.join(sorted(_KEY_KINDS))}, found {found[:200]}"
                )

    def select_fields(self, schema: JsonType) -> JsonType:
        """Return a schema without the fields that are not kept."""
        kept = tuple(each for each in schema.fields if each.name not in self.drop)
        return JsonType(JsonKind.OBJECT, fields=kept)


def read_topic_configs(path: Path) -> list[TopicConfig]:
    """Read the file of topics.

    Raises:
        TopicConfigError: if it cannot be read, or is wrong.
    """
    try:
        document = parse_toml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TopicConfigError(f"{path}: expected a file of topics: {error.strerror}") from None
    except (UnicodeDecodeError, TomlError) as error:
        raise TopicConfigError(f"{path}: expected TOML: {error}") from None
    others = sorted(document.keys() - {"topics"})
    topics = document.get("topics")
    if others or not isinstance(topics, dict) or not topics:
        found = f"[{others[0]}]" if others else "none"
        raise TopicConfigError(f"{path}: expected tables [topics.NAME], found {found}")
    configs = [_parse_topic(path, name, options) for name, options in topics.items()]
    topic_by_table: dict[str, str] = {}
    for config in configs:
        for table in (config.table, *([f"{config.table}{_CURRENT_SUFFIX}"] if config.changes else [])):
            other = topic_by_table.setdefault(table.lower(), config.topic)
            if other != config.topic:
                raise TopicConfigError(
                    f"{path}: topics.{config.topic}.table: expected a table of its own, found {table!a}, which is "
                    f"that of {other}, too"
                )
    return configs


def _parse_topic(path: Path, topic: str, options: object) -> TopicConfig:
    reader = _OptionReader(path, topic, options if isinstance(options, dict) else {})
    if not isinstance(options, dict):
        raise reader.make_error("", "options", options)
    unknown = sorted(options.keys() - _OPTIONS)
    if unknown:
        raise reader.make_error(unknown[0], f"one of {', '.join(sorted(_OPTIONS))}", "an option that does not exist")
    formats = [_DOCUMENTS, *CHANGE_FORMATS]
    form = reader.read("format", _DOCUMENTS, " or ".join(formats), lambda value: value in formats)
    is_changes = form in CHANGE_FORMATS
    for name in sorted(_CHANGE_OPTIONS & options.keys() if not is_changes else ()):
        raise reader.make_error(name, f"a format of change events: {', '.join(CHANGE_FORMATS)}", form)
    source_table = reader.read(
        "source_table", None if is_changes else "", "database.table, whose changes are read; may have * and ?",
        lambda value: not is_changes or (isinstance(value, str) and "." in value),
    )  # fmt: skip
    key = reader.read("key", [], "a list of different names", _is_list_of_names)
    utc_offset = reader.read(
        "utc_offset", "", "an offset such as +08:00, or Z",
        lambda value: value == "" or (isinstance(value, str) and _UTC_OFFSET.fullmatch(value) is not None),
    )  # fmt: skip
    schema = reader.read("schema", None, "a file", lambda value: isinstance(value, str) and bool(value))
    default = re.sub(r"[^A-Za-z0-9_.-]", "_", topic).lstrip(".-") or "_"
    table = reader.read(
        "table", default, "a name of letters, digits, and _ . -",
        lambda value: isinstance(value, str) and _TABLE_NAME.fullmatch(value) is not None,
    )  # fmt: skip
    drop = reader.read("drop", [], "a list of different names", _is_list_of_names)
    rename = reader.read("rename", {}, "names of columns of letters, digits and _, by field", _are_column_names)
    given = reader.read("on_misfit", "", " or ".join(OnMisfit), lambda value: value in {"", *OnMisfit})
    both = sorted(set(drop) & rename.keys())
    if both:
        raise reader.make_error("rename", "fields that are kept", both[0])
    return TopicConfig(
        topic, table, path.parent / schema, frozenset(drop), rename, OnMisfit(given) if given else None,
        CHANGE_FORMATS.get(form), source_table, tuple(key), utc_offset or None,
    )  # fmt: skip


_CHANGE_OPTIONS = frozenset({"source_table", "key", "utc_offset"})
_OPTIONS = frozenset({"format", "schema", "table", "drop", "rename", "on_misfit", *_CHANGE_OPTIONS})


@dataclass(frozen=True, slots=True)
class _OptionReader:
    """Reader of the options of one topic."""

    path: Path
    topic: str
    options: Mapping[str, Any]

    def read(self, name: str, default: Any, expected: str, is_valid: Callable[[Any], bool]) -> Any:
        """Return an option, or its default; None as the default means that it is required."""
        value = self.options.get(name, default)
        if value is None:
            raise self.make_error(name, expected, "nothing")
        if not is_valid(value):
            raise self.make_error(name, expected, repr(value))
        return value

    def make_error(self, name: str, expected: str, found: object) -> TopicConfigError:
        place = f"topics.{self.topic}" + (f".{name}" if name else "")
        return TopicConfigError(f"{self.path}: {place}: expected {expected}, found {str(found)[:80]}")


def _is_list_of_names(value: object) -> bool:
    return (
        isinstance(value, list)
        and all(isinstance(name, str) and name for name in value)
        and len({*value}) == len(value)
    )


def _are_column_names(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(name, str) and _COLUMN_NAME.fullmatch(name) is not None for name in value.values()
    )


def choose_topics(configs: Sequence[TopicConfig], topics: Sequence[str], path: Path) -> list[TopicConfig]:
    """Return the configured topics with the given names; all of them if no name is given.

    Raises:
        TopicConfigError: if a topic is not configured.
    """
    known = {config.topic: config for config in configs}
    for topic in topics:
        if topic not in known:
            raise TopicConfigError(f"{path}: expected a table [topics.{topic}], found {', '.join(list(known)[:8])}")
    return [known[topic] for topic in topics] or list(configs)
