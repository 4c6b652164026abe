"""Names of packs: one for each date, broker and range, and none outside the folder."""

from __future__ import annotations

import datetime
import pickle

import pytest

from commitlake.connectors.lake.packs.errors import PackError, PackNameError
from commitlake.connectors.lake.packs.names import PackName, new_token, pack_name, parse_pack_name
from tests.support.packs import TOKEN

DAY = datetime.date(2026, 11, 20)
BROKERS = [
    ("broker-a", "broker-a"),
    ("Broker-A", "Broker-A"),
    ("", ""),
    ("10.0.0.1~b_0", "10.0.0.1~b_0"),
    (".", "."),
    ("..", "%2E%2E"),
    ("a...b", "a%2E%2E%2Eb"),
    ("../../etc", "%2E%2E%2F%2E%2E%2Fetc"),
    ("/", "%2F"),
    ("\\", "%5C"),
    ("%", "%25"),
    ("%2F", "%252F"),
    ("a\0b\n", "a%00b%0A"),
    ("Zürich", "Z%C3%BCrich"),
    ("\udcff", "%ED%B3%BF"),  # from a folder whose name is not UTF-8
    ("a b=c&*?", "a%20b%3Dc%26%2A%3F"),
]
GOOD = "store_date=2026-11-20/broker=broker-a/00000000000000000000-00000000000134217728-5f0c3a9e77d2b164.zst"


def test_a_name_has_date_broker_and_range() -> None:
    assert pack_name(DAY, "broker-a", 0, 1 << 27, TOKEN) == GOOD


def test_a_missing_date_has_its_own_folder() -> None:
    assert pack_name(None, "a", 5, 5, TOKEN).startswith("store_date=__HIVE_DEFAULT_PARTITION__/broker=a/")


def test_a_datetime_gives_its_date_alone() -> None:
    noon = datetime.datetime(2026, 11, 20, 12, tzinfo=datetime.UTC)
    assert pack_name(noon, "broker-a", 0, 1 << 27, TOKEN) == GOOD


@pytest.mark.parametrize(("broker", "escaped"), BROKERS)
def test_a_brokers_name_is_escaped_and_round_trips(broker: str, escaped: str) -> None:
    name = pack_name(DAY, broker, 0, 1, TOKEN)
    assert name.split("/")[1:-1] == [f"broker={escaped}"]
    assert name.isascii()
    assert parse_pack_name(name) == PackName(DAY, broker, 0, 1, TOKEN)


def test_distinct_brokers_have_distinct_names() -> None:
    assert len({pack_name(DAY, broker, 0, 1, TOKEN) for broker, _ in BROKERS}) == len(BROKERS)


@pytest.mark.parametrize(("start", "end"), [(-1, 0), (2, 1), (0, 1 << 63)])
def test_an_invalid_range_is_refused(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="with 0 <= start <= end"):
        pack_name(DAY, "a", start, end, TOKEN)


@pytest.mark.parametrize("token", ["", "../../../../etc/x", TOKEN + "0", TOKEN + "\n", "G" * 16])
def test_a_token_of_another_shape_is_refused(token: str) -> None:
    with pytest.raises(ValueError, match="expected a pack's token of 16 hexadecimal digits"):
        pack_name(DAY, "a", 0, 1, token)


def test_no_token_is_given_twice() -> None:
    assert len({new_token() for _ in range(1000)}) == 1000


def test_a_broker_too_long_for_a_folder_is_refused() -> None:
    assert len(pack_name(DAY, "a" * 248, 0, 1, TOKEN).split("/")[1]) == 255
    with pytest.raises(ValueError, match="at most 255 bytes once it is escaped"):
        pack_name(DAY, "a" * 249, 0, 1, TOKEN)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/" + GOOD,
        "../" + GOOD,
        "./" + GOOD,
        GOOD + "\n",
        GOOD + "\0",
        GOOD + "/",
        GOOD.replace("/", "//", 1),
        GOOD.replace("/", "\\"),
        GOOD.replace("broker-a", ".."),  # escaped where `pack_name` writes it
        GOOD.replace("broker-a", "../.."),
        GOOD.replace("broker-a", "%2e%2E"),  # not the spelling of `pack_name`
        GOOD.replace("broker-a", "%41"),
        GOOD.replace("broker-a", "%4"),
        GOOD.replace("broker-a", "%FF"),  # not UTF-8
        GOOD.replace("broker-a", "a\0"),
        GOOD.replace("broker-a", "a" * 249),
        GOOD.replace("2026-11-20", "2026-11-31"),
        GOOD.replace("2026-11-20", "2026-11-2"),
        GOOD.replace("2026-11-20", "20261120"),
        GOOD.replace("2026", "٢٠٢٦"),  # digits, but not ours
        GOOD.replace("2026-11-20", "__hive_default_partition__"),
        GOOD.replace("134217728", "999999999", 1).replace("00000000000000000000-", "99999999999999999999-"),
        GOOD.replace("00000000000000000000-", "00000000000134217729-"),  # ends before it begins
        GOOD.removesuffix(".zst"),
        GOOD.removesuffix(".zst") + ".ZST",
        GOOD.replace(f"-{TOKEN}", ""),
        GOOD.replace(TOKEN, TOKEN.upper()),
        GOOD.replace(TOKEN, TOKEN[1:]),
        GOOD.replace("store_date=2026-11-20/", ""),
        "file:///" + GOOD,
        "s3://bucket/" + GOOD,
    ],
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(PackNameError, match="expected store_date=DATE/broker=NAME/START-END-TOKEN"):
        parse_pack_name(name)


def test_an_error_names_place_expected_found_and_remedy() -> None:
    error = PackError(GOOD, 7, "a frame", "zeros", "Restore it")
    assert str(error) == f"pack '{GOOD}', offset 7: expected a frame, found zeros. Restore it"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
