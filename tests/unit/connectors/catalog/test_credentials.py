"""Tests of temporary credentials, in the form of `credential_process`."""

from __future__ import annotations

from typing import Any

import pytest

from commitlake.connectors.catalog.client import CatalogClient
from commitlake.connectors.catalog.credentials import credential_process_output
from commitlake.connectors.catalog.names import CatalogError
from commitlake.connectors.catalog.server import CatalogServer
from tests.support.unity_catalog import UnityCatalog

GIVEN = {"access_key_id": "AKIA", "secret_access_key": "secret", "session_token": "token"}


def credentials_of(catalog: UnityCatalog) -> dict[str, Any]:
    return credential_process_output(CatalogClient(CatalogServer(catalog.url)), "s3://bucket/lake")


@pytest.mark.parametrize(
    ("expires", "expected"),
    [
        (1_795_773_425_000, {"Expiration": "2026-11-27T09:57:05+00:00"}),
        (None, {}),  # as the open source server answers with a fixed session token
        (10**30, {}),
        ("soon", {}),
        (-1, {}),
    ],
)
def test_credentials_have_the_names_of_aws(catalog: UnityCatalog, expires: Any, expected: dict[str, str]) -> None:
    catalog.credentials = {"aws_temp_credentials": GIVEN, "expiration_time": expires}
    keys = {"AccessKeyId": "AKIA", "SecretAccessKey": "secret", "SessionToken": "token"}
    assert credentials_of(catalog) == {"Version": 1, **keys, **expected}


@pytest.mark.parametrize(
    "given",
    [
        None,
        [],
        "x",
        {},
        {**GIVEN, "secret_access_key": None},
        {**GIVEN, "access_key_id": 5},
        {**GIVEN, "session_token": "é"},
    ],
)
def test_a_catalog_without_credentials_for_the_place_is_an_error(catalog: UnityCatalog, given: Any) -> None:
    catalog.credentials = {"aws_temp_credentials": given}
    with pytest.raises(CatalogError, match="gives no AWS credentials for s3://bucket/lake") as refused:
        credentials_of(catalog)
    assert "secret" not in str(refused.value)


def test_keys_may_lack_a_session_token(catalog: UnityCatalog) -> None:
    catalog.credentials = {"aws_temp_credentials": {**GIVEN, "session_token": None}}
    assert credentials_of(catalog) == {"Version": 1, "AccessKeyId": "AKIA", "SecretAccessKey": "secret"}
