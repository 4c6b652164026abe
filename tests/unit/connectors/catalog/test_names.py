"""Tests of names of schemas, and of the locations that a catalog has for tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlake.connectors.catalog.names import CatalogError, is_catalog_location, lake_root_of_table, parse_schema_name


def test_a_name_has_a_catalog_and_a_schema() -> None:
    name = parse_schema_name("main.logs_2")
    assert (name.catalog, name.schema, str(name)) == ("main", "logs_2", "main.logs_2")


@pytest.mark.parametrize(
    "text",
    [
        "main",
        "",
        ".",
        "a.",
        ".b",
        "a.b/c",
        "a..b",
        "a.b.c.d",
        "a b.c",
        "a.b\n",
        "1a.b",
        "ä.b",
        "a.`b`",
        "a.%2e",
        "a" * 256 + ".b",
    ],
)
def test_other_texts_are_no_names(text: str) -> None:
    with pytest.raises(CatalogError, match=r"expected catalog\.schema, as in main\.logs"):
        parse_schema_name(text)


def test_the_name_of_a_table_is_no_name_of_a_lake() -> None:
    with pytest.raises(CatalogError, match="leave the table's name out"):
        parse_schema_name("main.logs.messages")


def test_a_folder_with_the_name_of_a_schema_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert is_catalog_location("main.logs")
    assert not is_catalog_location("./main.logs")
    (tmp_path / "main.logs").mkdir()
    assert not is_catalog_location("main.logs")


@pytest.mark.parametrize("variable", ["UNITY_CATALOG_URL", "DATABRICKS_HOST"])
def test_a_name_that_is_also_that_of_a_folder_is_refused_if_a_catalog_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(variable, "https://catalog.example")
    (tmp_path / "main.logs").symlink_to("nowhere")
    assert not is_catalog_location("./main.logs")
    with pytest.raises(CatalogError, match=rf"'main\.logs' may be a schema .*{variable}.*write \./main\.logs"):
        is_catalog_location("main.logs")


@pytest.mark.parametrize(
    ("location", "root"),
    [
        ("s3://bucket/lake/messages", "s3://bucket/lake"),
        ("s3://bucket/lake/messages/", "s3://bucket/lake"),
        ("s3a://bucket/messages", "s3://bucket"),
        ("S3://Bucket/lake/messages", None),  # no server gives such a scheme
        ("abfss://logs@account.dfs.core.windows.net/lake/messages", None),
        ("c:/lake/messages", None),  # it would be a folder
        ("s3://bucket/my lake/messages", "s3://bucket/my lake"),
        ("s3://[/messages", None),
        ("s3://\u2100/messages", None),
        ("s3://bucket/\u202elake/messages", None),
        ("s3://bucket/\ud800/messages", None),
        ("file:///data/lake/messages", "file:///data/lake"),
        ("file:/data/lake/messages", "file:///data/lake"),
        ("file://localhost/data/lake/messages", "file:///data/lake"),
        ("file:///data/a%20lake/messages", "file:///data/a%20lake"),
    ],
)
def test_the_root_is_the_folder_of_the_tables(location: str, root: str | None) -> None:
    if root is None:
        with pytest.raises(CatalogError):
            lake_root_of_table(location, "messages")
    else:
        assert lake_root_of_table(location, "messages") == root


@pytest.mark.parametrize(
    "location",
    [
        "",
        "messages",
        "/data/lake/messages",
        "s3://bucket/lake/edges",
        "s3://bucket/lake/xmessages",
        "s3://messages",
        "file:///messages",
        "file://server/data/messages",
        "file:///data/../etc/messages",
        "file:///data/%2e%2E/etc/messages",
        "s3://bucket/../messages",
        "s3://bucket/lake?x=/messages",
        "s3://bucket/lake#/messages",
        "s3://bucket/la\x1b[2Jke/messages",
        "s3://bucket\\lake/messages",
        "javascript:alert(1)/messages",
    ],
)
def test_other_locations_are_refused(location: str) -> None:
    with pytest.raises(CatalogError) as refused:
        lake_root_of_table(location, "messages")
    assert "\x1b" not in str(refused.value)
