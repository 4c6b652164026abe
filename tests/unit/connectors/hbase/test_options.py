"""Options: the error for a wrong value names the expected one."""

from __future__ import annotations

import pytest

from commitlake.connectors.hbase.options import HBaseOptions
from commitlake.schemas.errors import UsageError


def test_an_address_may_have_a_port() -> None:
    assert HBaseOptions.of_address("hbase").address == "hbase:9090"
    assert HBaseOptions.of_address("hbase:19090", table="t").address == "hbase:19090"


def test_names_are_accepted_in_any_case() -> None:
    options = HBaseOptions.parse({"BATCHROWS": "5", "compression": "gz", "columns": "topic, size"})
    assert (options.batch_rows, options.compression, options.columns) == (5, "GZ", ("topic", "size"))


def test_missing_options_have_their_defaults() -> None:
    assert HBaseOptions.parse({}) == HBaseOptions()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"batchrow": "1"},
            r"there is no option 'batchrow' \(did you mean 'batchRows'\?\): expected some of host, port",
        ),
        ({"port": "x"}, "option port: expected a whole number, found 'x'"),
        ({"port": "70000"}, "option port: expected 1 to 65535, found 70000"),
        ({"salts": "251"}, "option salts: expected 1 to 250, found 251"),
        ({"salts": "4", "regions": "5"}, "option regions: expected 1 to 4, the number of salts, found 5"),
        ({"batchRows": "0"}, "option batchRows: expected at least 1, found 0"),
        ({"compression": "brotli"}, "option compression: expected one of NONE, GZ, .*, found 'brotli'"),
        ({"transport": "http"}, "option transport: expected one of buffered, framed, found 'http'"),
        ({"columns": "topic,body"}, "option columns: expected columns of messages, .* found 'body'"),
        ({"columns": ","}, "option columns: expected the name of at least one column"),
        ({"table": " "}, "option table: expected the name of a host or table, found nothing"),
    ],
)
def test_a_wrong_option_is_an_error(given: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        HBaseOptions.parse(given)
