"""Tests of requests to a catalog: retries, hostile answers, and where the token goes."""

from __future__ import annotations

import json
import socket

import pytest

from commitlake.connectors.catalog import client as requests
from commitlake.connectors.catalog.client import CatalogClient
from commitlake.connectors.catalog.names import CatalogError, SchemaName
from commitlake.connectors.catalog.server import CatalogServer
from commitlake.schemas.errors import ExitCode
from tests.support.exit_codes import exits
from tests.support.unity_catalog import API, Answer, UnityCatalog, refusal

TOKEN = "dapi-secret-0123"
NAME = SchemaName("unity", "logs")


def client_of(catalog: UnityCatalog, token: str = TOKEN) -> CatalogClient:
    return CatalogClient(CatalogServer(catalog.url, token), sleep=lambda _: None)


def failure(catalog: UnityCatalog, *answers: Answer) -> str:
    """Return the message of a request that gets these answers."""
    catalog.answers += answers
    with pytest.raises(CatalogError) as failed:
        client_of(catalog).find_object("schemas", str(NAME))
    assert not failed.value.is_transient
    assert TOKEN not in str(failed.value)
    return str(failed.value)


def test_what_is_missing_is_none_and_what_is_there_is_not_created_again(catalog: UnityCatalog) -> None:
    catalog.token = TOKEN
    client = client_of(catalog)
    assert client.find_object("schemas", str(NAME)) is None
    assert list(client.list_tables(NAME)) == []
    schema = {"catalog_name": "unity", "name": "logs"}
    assert client.create_object("schemas", str(NAME), schema)
    assert not client.create_object("schemas", str(NAME), schema)
    assert client.find_object("schemas", str(NAME)) == schema
    assert {headers["Authorization"] for _, _, headers in catalog.requests} == {f"Bearer {TOKEN}"}


def test_without_a_token_there_is_no_header(catalog: UnityCatalog) -> None:
    client_of(catalog, "").find_object("catalogs", "unity")
    assert "Authorization" not in catalog.requests[0][2]


def test_tables_come_from_all_pages(catalog: UnityCatalog) -> None:
    catalog.kinds["schemas"][str(NAME)] = {}
    names = [f"table_{number:02}" for number in range(13)]
    catalog.kinds["tables"] = {f"{NAME}.{name}": {"name": name} for name in names}
    assert [table["name"] for table in client_of(catalog).list_tables(NAME)] == names


def test_a_schema_without_an_end_is_refused(catalog: UnityCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "_MAX_PAGES", 3)
    catalog.answers += [Answer(body=b'{"tables": [], "next_page_token": "again"}')] * 4
    with pytest.raises(CatalogError, match="lists more than 150 tables"):
        list(client_of(catalog).list_tables(NAME))


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_asked_again(catalog: UnityCatalog, status: int) -> None:
    catalog.answers += [refusal(status, "BUSY", "slow down"), Answer(status, b"<html>")]
    assert client_of(catalog).find_object("catalogs", "unity") == {"name": "unity"}
    assert len(catalog.requests) == 3


def test_a_server_that_stays_busy_is_unavailable(catalog: UnityCatalog) -> None:
    catalog.answers += [refusal(503, "BUSY", f"no\x1b[2J {TOKEN}")] * 3
    with pytest.raises(
        CatalogError, match=r"answered 503: no\\x1b\[2J \*\*\*\. Check its address", check=exits(ExitCode.FAILED)
    ):
        client_of(catalog).find_object("catalogs", "unity")
    assert not catalog.answers


def test_a_server_that_is_not_there_is_unavailable() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        client = CatalogClient(CatalogServer(f"http://127.0.0.1:{closed.getsockname()[1]}"), sleep=lambda _: None)
        with pytest.raises(CatalogError, match=r"cannot be reached: .*refused", check=exits(ExitCode.FAILED)):
            client.find_object("catalogs", "unity")


def test_no_redirect_takes_the_token_elsewhere(catalog: UnityCatalog) -> None:
    with UnityCatalog() as other:
        found = failure(catalog, Answer(302, b"", {"Location": f"{other.url}{API}/schemas/{NAME}"}))
        assert "302: a redirect, which is not followed" in found
        assert not other.requests


@pytest.mark.parametrize(
    "body", [b"", b"<html>login</html>", b"[]", b"[" * 100_000, b"1" * 5000, b"\xff", b'{"a": NaN']
)
def test_an_answer_that_is_no_json_object_is_an_error(catalog: UnityCatalog, body: bytes) -> None:
    assert "does not answer like a Unity Catalog" in failure(catalog, Answer(body=body))


@pytest.mark.parametrize("tables", [5, "x", [1], {"a": 1}])
def test_a_list_of_something_else_is_an_error(catalog: UnityCatalog, tables: object) -> None:
    catalog.answers.append(Answer(body=json.dumps({"tables": tables}).encode()))
    with pytest.raises(CatalogError, match="expected a list of tables"):
        list(client_of(catalog).list_tables(NAME))


def test_a_huge_answer_is_not_read(catalog: UnityCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "_MAX_BYTES", 1 << 20)
    assert "answered with more than 1048576 bytes" in failure(catalog, Answer(body=b" " * (3 << 20)))


def test_an_endless_answer_is_given_up(catalog: UnityCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "_ANSWER_SECONDS", 0)
    catalog.answers += [Answer(body=b" " * 100, part=1)] * 3
    with pytest.raises(CatalogError, match="expected a complete answer within 0 s", check=exits(ExitCode.FAILED)):
        client_of(catalog).find_object("catalogs", "unity")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (refusal(401, "UNAUTHENTICATED", f"no {TOKEN}"), r": 401 UNAUTHENTICATED: no ***. Check the token"),
        (refusal(403, "PERMISSION_DENIED", "a\n\x1b[31mb"), r": 403 PERMISSION_DENIED: a \x1b[31mb. Ask for"),
        (Answer(404, b"<html>"), "404: Not Found. Check the address: it does not answer like a Unity Catalog"),
        (refusal(400, "INVALID_ARGUMENT", "x" * 10_000), "400 INVALID_ARGUMENT: " + "x" * 300),
        (refusal(400, "\x1b" * 10, ""), "400 " + r"\x1b" * 10),
    ],
)
def test_refusals_are_explained(catalog: UnityCatalog, answer: Answer, expected: str) -> None:
    found = failure(catalog, answer)
    assert expected in found
    assert len(found) < 600
    assert "\x1b" not in found


@pytest.mark.parametrize("location", ["http://[x", "http://127.0.0.1:1/", "\\"])
def test_the_address_of_a_redirect_is_not_looked_at(catalog: UnityCatalog, location: str) -> None:
    assert "a redirect, which is not followed" in failure(catalog, Answer(302, b"", {"Location": location}))


def test_an_answer_that_was_cut_off_is_asked_for_again(catalog: UnityCatalog) -> None:
    catalog.answers += [Answer(body=b'{"name":', headers={"Content-Length": "500"})]
    assert client_of(catalog).find_object("catalogs", "unity") == {"name": "unity"}
    assert len(catalog.requests) == 2


@pytest.mark.parametrize("token", ['"\\ud800"', "7", '"\\u00fc"'])
def test_an_odd_token_of_a_page_is_refused(catalog: UnityCatalog, token: str) -> None:
    catalog.answers += [Answer(body=b'{"tables": [], "next_page_token": %s}' % token.encode())]
    with pytest.raises(CatalogError, match="expected a text as the token of the next page"):
        list(client_of(catalog).list_tables(NAME))


def test_a_proxy_of_the_environment_gets_no_unencrypted_request(
    catalog: UnityCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    with UnityCatalog() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        assert client_of(catalog).find_object("catalogs", "unity") == {"name": "unity"}
        assert proxy.requests == []


def test_a_token_in_a_long_code_of_an_error_is_not_shown(catalog: UnityCatalog) -> None:
    code = "C" * (300 - len(TOKEN) + 1) + TOKEN
    assert TOKEN[:-1] not in failure(catalog, refusal(403, code, "no"))
