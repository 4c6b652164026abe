"""Tests of broker.conf, which is read as by a broker, except that a wrong value is an error."""

from __future__ import annotations

import pytest

from commitlake.schemas.layouts.rocketmq.broker_conf import (
    BrokerConf,
    BrokerConfError,
    parse_broker_conf,
    parse_properties,
)


def test_an_empty_file_gives_the_brokers_defaults() -> None:
    assert parse_broker_conf("") == BrokerConf(72, (4,), 75, 85, 90, True, 10, None)


def test_known_settings_are_read_among_others() -> None:
    text = """
# a comment
brokerClusterName = DefaultCluster
fileReservedTime=48
deleteWhen=04;16
diskMaxUsedSpaceRatio : 88
diskSpaceCleanForciblyRatio 80
diskSpaceWarningLevelRatio=85
cleanFileForciblyEnable=FALSE
deleteFileBatchMax=3
storePathRootDir=/data/store
someKeyOfNobody=42
"""
    assert parse_broker_conf(text) == BrokerConf(48, (4, 16), 88, 80, 85, False, 3, "/data/store")


@pytest.mark.parametrize(("text", "percent"), [("5", 10), ("99", 95), ("-1", 10), ("+80", 80)])
def test_the_disk_ratio_is_limited_to_the_brokers_bounds(text: str, percent: int) -> None:
    assert parse_broker_conf(f"diskMaxUsedSpaceRatio={text}").disk_max_used_percent == percent


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("key=value", {"key": "value"}),
        ("  key  =  value  ", {"key": "value  "}),  # white space after a value is part of it
        ("key value", {"key": "value"}),
        ("key:value", {"key": "value"}),
        ("key\tvalue", {"key": "value"}),
        ("key", {"key": ""}),
        ("key=", {"key": ""}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("! no=1\n  # no=2\nyes=3", {"yes": "3"}),
        ("long=one \\\n   two", {"long": "one two"}),
        ("path=C:\\\\data", {"path": "C:\\data"}),
        ("path=one\\\\\nother=2", {"path": "one\\", "other": "2"}),
        ("a\\ b=1", {"a b": "1"}),
        ("a\\=b=1", {"a=b": "1"}),
        ("a=\\u00fc\\t\\q", {"a": "ü\tq"}),
        ("a=b=c", {"a": "b=c"}),
        ("a= #1", {"a": "#1"}),
        ("last=1\\", {"last": "1"}),
        ("", {}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, found: dict[str, str]) -> None:
    assert parse_properties(text) == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fileReservedTime=48h", "fileReservedTime: expected a number of at least 0, found '48h'"),
        ("fileReservedTime=72 ", "found '72 '"),  # Java takes no such number either: the broker would use its default
        ("fileReservedTime=-1", "found '-1'"),
        ("fileReservedTime=2147483648", "found '2147483648'"),
        ("deleteWhen=4am", "deleteWhen: expected hours from 00 to 23 separated by semicolons"),
        ("deleteWhen=24", "found '24'"),
        ("deleteWhen=04,16", "found '04,16'"),
        ("deleteWhen=", "found ''"),
        ("diskMaxUsedSpaceRatio=0.75", "diskMaxUsedSpaceRatio: expected a number, found '0.75'"),
        ("cleanFileForciblyEnable=yes", "expected true or false, found 'yes'"),
        ("deleteFileBatchMax=0", "expected a number of at least 1"),
        ("storePathCommitLog=/a,/b", "expected one folder, found 2"),
        ("enableDLegerCommitLog=true", "DLedger deletes segments by rules that are not known"),
        ("replicasPerDiskPartition=2", "expected 1"),
    ],
)
def test_a_wrong_value_is_an_error_with_found_and_expected(text: str, message: str) -> None:
    with pytest.raises(BrokerConfError) as caught:
        parse_broker_conf(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(("text", "hours"), [("4", (4,)), ("16;04", (4, 16)), ("04;", (4,)), ("00;23;00", (0, 23))])
def test_hours_are_sorted_and_unique(text: str, hours: tuple[int, ...]) -> None:
    assert parse_broker_conf(f"deleteWhen={text}").delete_hours == hours
