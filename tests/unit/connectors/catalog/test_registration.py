"""Tests of the registration of lakes, and of finding them again; nothing of a lake is opened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from commitlake.connectors.catalog import lake_root_lookup
from commitlake.connectors.catalog.client import CatalogClient
from commitlake.connectors.catalog.lake_root_lookup import find_lake_root
from commitlake.connectors.catalog.names import CatalogError, SchemaName
from commitlake.connectors.catalog.registration import Registration, register_lake
from commitlake.connectors.catalog.server import CatalogServer
from commitlake.connectors.catalog.tables import CatalogTable
from commitlake.schemas.errors import ExitCode
from tests.support.exit_codes import exits
from tests.support.unity_catalog import UnityCatalog

NAME = SchemaName("unity", "logs")
ROOT = "s3://bucket/lake"
COLUMN = {"name": "broker", "type_text": "string", "type_name": "STRING", "type_json": "{}", "position": 0}
NAMES = ("messages", "quarantine", "message_keys", "edges", "profiles", "topic_minutes", "archive_runs", "evidence")
TABLES = [CatalogTable(name, f"what {name} has", [COLUMN]) for name in NAMES]
STEPS = 1 + 1 + len(NAMES)  # schema, volume, tables
USAGE, REFUSED = ExitCode.USAGE, ExitCode.REFUSED


@pytest.fixture(autouse=True)
def named(catalog: UnityCatalog, no_catalog: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Name the catalog in the environment."""
    monkeypatch.setenv("UNITY_CATALOG_URL", catalog.url)


def client_of(catalog: UnityCatalog) -> CatalogClient:
    return CatalogClient(CatalogServer(catalog.url), sleep=lambda _: None)


def register(catalog: UnityCatalog, tables: list[CatalogTable] = TABLES, root: str = ROOT) -> Registration:
    return register_lake(client_of(catalog), NAME, root, tables)


def test_a_registered_lake_is_found_by_its_name(catalog: UnityCatalog) -> None:
    done = register(catalog)
    assert (set(done.created), done.found, done.outdated) == ({*NAMES, "bodies"}, (), ())
    assert done.created[-1] == "messages"
    assert find_lake_root("unity.logs") == ROOT
    table = catalog.kinds["tables"]["unity.logs.edges"]
    assert (table["table_type"], table["data_source_format"]) == ("EXTERNAL", "DELTA")
    assert (table["storage_location"], table["comment"]) == (f"{ROOT}/edges", "what edges has")
    volume = catalog.kinds["volumes"]["unity.logs.bodies"]
    assert (volume["volume_type"], volume["storage_location"]) == ("EXTERNAL", f"{ROOT}/bodies")


def test_a_second_registration_adds_only_what_is_new(catalog: UnityCatalog) -> None:
    register(catalog, TABLES[:3])
    before = {kind: dict(found) for kind, found in catalog.kinds.items()}
    done = register(catalog)
    assert set(done.created) == set(NAMES[3:])
    assert set(done.found) == {*NAMES[:3], "bodies"}
    for kind, found in before.items():
        assert found.items() <= catalog.kinds[kind].items()
    assert register(catalog).created == ()


@pytest.mark.parametrize("steps", range(STEPS))
def test_a_registration_that_is_killed_anywhere_leads_to_no_half_lake(
    catalog: UnityCatalog, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = CatalogClient.create_object
    done: list[str] = []

    def create_some(client: CatalogClient, kind: str, name: str, body: Mapping[str, Any]) -> bool:
        if len(done) == steps:
            raise KeyboardInterrupt
        done.append(name)
        return create(client, kind, name, body)

    with monkeypatch.context() as killed:
        killed.setattr(CatalogClient, "create_object", create_some)
        with pytest.raises(KeyboardInterrupt):
            register(catalog)
    with pytest.raises(CatalogError, match=r"has no lake unity\.logs: expected a table unity\.logs\.messages"):
        find_lake_root("unity.logs")
    register(catalog)
    assert find_lake_root("unity.logs") == ROOT
    assert set(catalog.kinds["tables"]) == {f"unity.logs.{name}" for name in NAMES}


def test_a_table_that_another_registration_creates_at_the_same_time_is_found(
    catalog: UnityCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = CatalogClient.list_tables

    def then_another(client: CatalogClient, name: SchemaName) -> list[dict[str, Any]]:
        found = list(tables(client, name))
        with monkeypatch.context() as other:
            other.setattr(CatalogClient, "list_tables", tables)
            register(catalog)
        return found

    monkeypatch.setattr(CatalogClient, "list_tables", then_another)
    assert register(catalog).created == ()


@pytest.mark.parametrize("kind", ["tables", "volumes"])
def test_a_schema_of_another_lake_is_left_alone(catalog: UnityCatalog, kind: str) -> None:
    register(catalog, TABLES, "s3://bucket/other")
    if kind == "volumes":
        catalog.kinds["tables"].clear()
    before = str(catalog.kinds)
    with pytest.raises(CatalogError, match="name another schema", check=exits(REFUSED)):
        register(catalog)
    assert str(catalog.kinds) == before


def test_the_catalog_must_be_there(catalog: UnityCatalog) -> None:
    with pytest.raises(CatalogError, match="has no catalog 'nowhere': create it"):
        register_lake(client_of(catalog), SchemaName("nowhere", "logs"), ROOT, TABLES)
    assert not catalog.kinds["schemas"]


def test_other_columns_in_the_catalog_are_reported(catalog: UnityCatalog) -> None:
    register(catalog)
    catalog.kinds["tables"]["unity.logs.edges"]["columns"] = None
    catalog.kinds["tables"]["unity.logs.messages"]["columns"] = [{**COLUMN, "name": "x"}]
    assert set(register(catalog).outdated) == {"edges", "messages"}


@pytest.mark.parametrize(
    ("change", "message", "code"),
    [
        ({"storage_location": "s3://elsewhere/lake/edges"}, "of two lakes: 'messages' is in s3://bucket/lake", REFUSED),
        ({"storage_location": "s3://bucket/lake/secrets"}, "expected a URI that ends with /edges", USAGE),
        ({"storage_location": None}, "expected s3://bucket/prefix/edges", USAGE),
        ({"storage_location": ["s3://bucket/lake/edges"]}, "expected s3://bucket/prefix/edges", USAGE),
        ({"table_type": "MANAGED"}, "expected an external Delta table", REFUSED),
        ({"data_source_format": "ICEBERG"}, "expected an external Delta table", REFUSED),
        ({"table_type": "\x1b" * 999}, "expected an external Delta table", REFUSED),
    ],
)
def test_a_lake_that_is_not_one_is_refused(
    catalog: UnityCatalog, change: dict[str, Any], message: str, code: ExitCode
) -> None:
    register(catalog)
    catalog.kinds["tables"]["unity.logs.edges"].update(change)
    with pytest.raises(CatalogError, match=message, check=exits(code)) as refused:
        find_lake_root("unity.logs")
    assert "\x1b" not in str(refused.value)
    assert len(str(refused.value)) < 400


def test_tables_of_other_people_are_ignored(catalog: UnityCatalog) -> None:
    register(catalog)
    for name in ("a_view", "zzz"):
        catalog.kinds["tables"][f"unity.logs.{name}"] = {"name": name, "table_type": "VIEW", "storage_location": None}
    assert find_lake_root("unity.logs") == ROOT


def test_a_process_asks_once_for_each_name(catalog: UnityCatalog) -> None:
    register(catalog)
    find_lake_root("unity.logs")
    asked = len(catalog.requests)
    catalog.kinds["tables"].clear()  # a run must not change its lake
    assert find_lake_root("unity.logs") == ROOT
    assert len(catalog.requests) == asked


def test_a_folder_is_not_taken_from_another_machine(catalog: UnityCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    register(catalog, TABLES, "file:///data/lake")
    assert find_lake_root("unity.logs") == "file:///data/lake"
    monkeypatch.setattr(CatalogServer, "is_local", False)
    lake_root_lookup._find_root_in_catalog.cache_clear()
    for ask in (lambda: register(catalog, TABLES, "file:///data/lake"), lambda: find_lake_root("unity.logs")):
        with pytest.raises(CatalogError, match=r"the catalog .* is on another machine, but the lake"):
            ask()


def test_a_volume_that_another_registration_made_meanwhile_is_refused_before_the_lake_has_a_name(
    catalog: UnityCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = CatalogClient.create_object

    def be_second(client: CatalogClient, kind: str, name: str, body: Mapping[str, Any]) -> bool:
        if kind == "volumes":
            catalog.kinds["volumes"][name] = {**body, "storage_location": "s3://bucket/other/bodies"}
        return create(client, kind, name, body)

    monkeypatch.setattr(CatalogClient, "create_object", be_second)
    with pytest.raises(
        CatalogError, match=r"the volume unity\.logs\.bodies belongs to another lake", check=exits(REFUSED)
    ):
        register(catalog)
    assert "unity.logs.messages" not in catalog.kinds["tables"]


def test_a_name_without_a_catalog_says_how_to_set_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNITY_CATALOG_URL")
    with pytest.raises(CatalogError, match=r"no catalog is set: set UNITY_CATALOG_URL, .* write \./main\.logs"):
        find_lake_root("main.logs")
