"""Tests of the file of topics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commitlake.pipelines.topics.changes.change_reader import CHANGE_FORMATS
from commitlake.pipelines.topics.json_schema import parse_json_schema
from commitlake.pipelines.topics.topic_config import (
    OnMisfit,
    TopicConfig,
    TopicConfigError,
    choose_topics,
    read_topic_configs,
)


def read(folder: Path, text: str) -> list[TopicConfig]:
    """Write a file of topics, and read it."""
    path = folder / "topics.toml"
    path.write_text(text)
    return read_topic_configs(path)


def test_options_of_a_topic(tmp_path: Path) -> None:
    text = """
[topics.orders]
format = "json"
schema = "orders.json"
drop = ["card"]
rename = {id = "order_id"}
on_misfit = "fail"
[topics."%RETRY%billing"]
schema = "/etc/billing.json"
"""
    orders, billing = read(tmp_path, text)
    assert orders == TopicConfig(
        "orders", "orders", tmp_path / "orders.json", frozenset({"card"}), {"id": "order_id"}, OnMisfit.FAIL
    )
    assert billing == TopicConfig("%RETRY%billing", "_RETRY_billing", Path("/etc/billing.json"))
    assert billing.lake_table == "topics/_RETRY_billing"


@pytest.mark.parametrize("name", CHANGE_FORMATS)
def test_options_of_a_topic_with_changes(tmp_path: Path, name: str) -> None:
    text = f'[topics.a]\nschema = "f"\nformat = "{name}"\nsource_table = "shop.a"\nkey = ["id"]\nutc_offset = "Z"'
    (config,) = read(tmp_path, text)
    assert (config.changes, config.source_table, config.key) == (CHANGE_FORMATS[name], "shop.a", ("id",))
    schema = parse_json_schema(json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}}), "f")
    reader = config.change_reader(schema)
    assert reader is not None
    assert (reader.format, reader.row, reader.key, reader.utc_offset) == (CHANGE_FORMATS[name], schema, ("id",), "Z")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected tables [topics.NAME], found none"),
        ("[topic.orders]", "expected tables [topics.NAME], found [topic]"),
        ("topics = 1", "expected tables [topics.NAME], found none"),
        ("[topics]\norders = 1", "topics.orders: expected options, found 1"),
        ("[topics.orders]", "topics.orders.schema: expected a file"),
        ('[topics.orders]\nschema = ""', "topics.orders.schema: expected a file"),
        ('[topics.orders]\nschema = "f"\nkey = ["id"]', "topics.orders.key: expected a format of change"),
        ('[topics.orders]\nschema = "f"\nkeys = ["id"]', "topics.orders.keys: expected one of drop, format,"),
        ('[topics.orders]\nschema = "f"\nformat = "canal-json"', "topics.orders.source_table: expected database.table"),
        ('[topics.orders]\nschema = "f"\nformat = "avro"', "topics.orders.format: expected json or canal-json or "),
        ('[topics.orders]\nschema = "f"\ntable = "a/b"', "topics.orders.table: expected a name of letters"),
        ('[topics.orders]\nschema = "f"\non_misfit = "skip"', "topics.orders.on_misfit: expected quarantine or fail"),
        ('[topics.orders]\nschema = "f"\nrename = {a = "b c"}', "topics.orders.rename: expected names of columns"),
        ('[topics.orders]\nschema = "f"\ndrop = ["a"]\nrename = {a = "b"}', "topics.orders.rename: expected fields"),
        ('[topics.a]\nschema = "f"\ntable = "x"\n[topics.b]\nschema = "f"\ntable = "X"', "which is that of a, too"),
        (
            '[topics.a]\nschema = "f"\nformat = "maxwell-json"\nsource_table = "s.a"\n[topics.a_current]\nschema = "f"',
            "topics.a_current.table: expected a table of its own, found 'a_current', which is that of a, too",
        ),
        ("[topics", "expected TOML"),
    ],
)
def test_wrong_files_are_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(TopicConfigError) as raised:
        read(tmp_path, text)
    assert str(raised.value).startswith(f"{tmp_path / 'topics.toml'}: ")
    assert message in str(raised.value)


def test_topics_that_are_not_configured_are_refused(tmp_path: Path) -> None:
    configs = read(tmp_path, '[topics.a]\nschema = "f"\n[topics.b]\nschema = "f"')
    assert [config.topic for config in choose_topics(configs, ["b"], tmp_path)] == ["b"]
    assert choose_topics(configs, [], tmp_path) == configs
    with pytest.raises(TopicConfigError, match=r"expected a table \[topics.c\], found a, b"):
        choose_topics(configs, ["c"], tmp_path)


@pytest.mark.parametrize(
    ("rename", "message"),
    [
        ({"x": "y"}, "rename: expected fields of the schema, found 'x'; it has a, b"),
        ({"a": "B"}, "found two named 'b'"),
        ({"a": "_broker"}, "found two named '_broker'"),
    ],
)
def test_columns_of_the_same_name_are_refused(rename: dict[str, str], message: str) -> None:
    schema = parse_json_schema(json.dumps({"type": "object", "properties": {"a": {}, "b": {}}}), "f")
    with pytest.raises(TopicConfigError, match=message):
        TopicConfig("orders", "orders", Path("f"), rename=rename).check_columns(schema)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TopicConfigError, match=r"none\.toml: expected a file of topics: No such file"):
        read_topic_configs(tmp_path / "none.toml")
