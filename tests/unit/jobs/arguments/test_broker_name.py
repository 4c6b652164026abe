"""Tests of the name of a store in the lake, and of the note about it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from commitlake.connectors.formats.registry import COMMITLOGS, all_formats
from commitlake.connectors.reading.stores import find_stores
from commitlake.jobs.arguments.broker_name import BrokerName, choose_broker_name, find_named_stores
from commitlake.jobs.cli.command import JobError
from tests.support.logs import messages, open_segment, write_store


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store in a folder without a broker's name."""
    return write_store(tmp_path / "rocketmq" / "store", [(0, open_segment(messages(2), 1 << 14))])


def name_of(store: Path, *known: str, given: str | None = None, conf: Path | None = None) -> BrokerName:
    """Return the name of a store if the lake has these names."""
    return choose_broker_name(str(store), given, str(conf) if conf else None, known, all_formats())


def write_conf(file: Path, name: str) -> Path:
    """Write a broker.conf with a name."""
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"brokerClusterName=c\nbrokerName={name}\n")
    return file


def test_a_name_guessed_from_the_folder_is_noted_once(store: Path) -> None:
    guess = name_of(store)
    assert guess.name is None
    assert "is 'rocketmq' in the lake, after its folder, which is a guess" in guess.note
    assert name_of(store, "rocketmq") == BrokerName(None)


@pytest.mark.parametrize("place", ["../conf/broker.conf", "../broker.conf", "broker.conf", "conf/broker.conf"])
def test_a_broker_conf_near_the_store_names_it(store: Path, place: str) -> None:
    file = write_conf(store / place, "broker-a")
    found = name_of(store)
    assert found.name == "broker-a"
    assert "is 'broker-a' in the lake: brokerName in " in found.note
    assert file.resolve() == Path(found.note.rsplit(" ", 1)[1]).resolve()
    assert name_of(store, "broker-a") == BrokerName("broker-a")


def test_a_store_keeps_the_name_that_it_was_archived_under(store: Path) -> None:
    conf = write_conf(store / "broker.conf", "broker-a")
    assert name_of(store, "rocketmq", conf=conf) == BrokerName(None)


def test_a_given_file_takes_precedence_over_one_near_the_store(store: Path, tmp_path: Path) -> None:
    write_conf(store / "broker.conf", "broker-a")
    assert name_of(store, conf=write_conf(tmp_path / "mine.conf", "broker-b")).name == "broker-b"


def test_a_given_name_takes_precedence_over_all_files(store: Path) -> None:
    write_conf(store / "broker.conf", "broker-a")
    assert name_of(store, given="mine") == BrokerName("mine")


def test_a_path_with_a_broker_placeholder_names_the_stores(store: Path) -> None:
    assert choose_broker_name(f"{store.parent.parent}/{{broker}}/store", None, None, (), all_formats()) == BrokerName(
        None
    )


def test_a_missing_file_is_an_error(store: Path, tmp_path: Path) -> None:
    with pytest.raises(JobError, match="cannot be read"):
        name_of(store, conf=tmp_path / "none.conf")


HOSTILE = {
    "an escape": "evil\\u001b[2Jname",
    "a direction": "evil\\u202ename",
    "a surrogate": "evil\\ud800",
    "a NUL": "evil\\u0000",
    "a line": "evil\\nname",
    "a path": "../../evil",
    "5,000 characters": "e" * 5000,
    "characters that are long once escaped": "\\u8a02" * 60,
    "a space": "evil ",
}


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("place", ["../conf/broker.conf", "broker.conf"])
def test_an_invalid_name_near_the_store_is_skipped_with_a_printable_warning(
    store: Path, caplog: pytest.LogCaptureFixture, place: str, name: str
) -> None:
    write_conf(store / place, name)
    assert "is 'rocketmq' in the lake, after its folder" in name_of(store).note
    (warning,) = caplog.messages
    assert "is not used for the store's name: brokerName: expected a broker's name" in warning
    assert "--broker NAME" in warning
    assert warning.isascii()
    assert warning.isprintable()
    assert len(warning) < 1000


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_an_invalid_name_that_is_given_is_refused(store: Path, tmp_path: Path, name: str) -> None:
    conf = write_conf(tmp_path / "mine.conf", name)
    with pytest.raises(JobError, match=r"^--broker-conf .*: brokerName: expected a broker's name"):
        name_of(store, conf=conf)
    given = name.encode().decode("unicode_escape")
    with pytest.raises(JobError, match=r"^--broker: expected a broker's name"):
        name_of(store, given=given)
    assert name_of(store, given, given=given).name == given  # an archived name is kept


def test_unreadable_files_near_the_store_are_skipped(
    store: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    outside = write_conf(tmp_path / "outside.conf", "secret")
    (store / "broker.conf").symlink_to(outside)
    (store / "conf").mkdir()
    os.mkfifo(store / "conf" / "broker.conf")
    (store.parent / "broker.conf").write_text("[broker]\n[[[[")
    assert name_of(store).name is None
    assert len(caplog.messages) == 3
    assert not any("--broker-conf" in each or "secret" in each for each in caplog.messages)


def test_only_the_name_is_read_from_a_file_near_the_store(store: Path) -> None:
    file = write_conf(store / "broker.conf", "broker-a")
    file.write_text(file.read_text() + "messageDelayLevel=never\nmaxIndexNum=-1\n")
    assert name_of(store).name == "broker-a"


def test_the_settings_folder_of_a_store_may_be_a_link(store: Path, tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    write_conf(tmp_path / "etc" / "broker.conf", "broker-a")
    (store.parent / "conf").symlink_to(tmp_path / "etc")
    assert name_of(store).name == "broker-a"


def test_a_folders_name_that_is_too_long_for_the_lake_is_refused(tmp_path: Path) -> None:
    store = write_store(tmp_path / ("\u8a02" * 60) / "store", [(0, open_segment(messages(2), 1 << 14))])
    with pytest.raises(JobError, match="too long for the name of a store in a lake"):
        name_of(store)


def test_each_of_several_stores_has_the_name_in_its_broker_conf(store: Path, tmp_path: Path) -> None:
    other = write_store(tmp_path / "copy" / "store", [(0, open_segment(messages(3), 1 << 14))])
    unnamed = write_store(tmp_path / "plain" / "store", [(0, open_segment(messages(4), 1 << 14))])
    write_conf(store / ".." / "broker.conf", "broker-a")
    write_conf(other / ".." / "broker.conf", "broker-b")
    path = f"{store},{other},{unnamed}"

    def names(*known: str) -> list[str]:
        found = choose_broker_name(path, None, None, known, all_formats())
        return [one.broker for one in find_stores(path, found.name, formats=COMMITLOGS)]

    assert names() == ["broker-a", "broker-b", "plain"]
    assert names("copy", "plain") == ["broker-a", "copy", "plain"]  # archived under the name of its folder
    assert names("rocketmq", "copy", "plain") == ["copy", "plain", "rocketmq"]
    assert (
        choose_broker_name(str(tmp_path / "*" / "store"), None, None, (), all_formats()).note.count("is 'broker-") == 2
    )


def test_commands_without_a_lake_name_a_store_as_a_new_lake_would(store: Path, tmp_path: Path) -> None:
    write_conf(store / "broker.conf", "broker-a")
    other = write_store(tmp_path / "other" / "store", [(0, open_segment(messages(2), 1 << 14))])
    both = f"{store},{other}"
    assert [each.broker for each in find_named_stores(both, None, None, all_formats())] == ["broker-a", "other"]
    conf = str(write_conf(tmp_path / "mine.conf", "broker-b"))
    assert [each.broker for each in find_named_stores(str(store), None, conf, all_formats())] == ["broker-b"]
    assert [each.broker for each in find_named_stores(str(store), "given", conf, all_formats())] == ["given"]


def test_two_copies_of_a_store_keep_the_names_of_their_folders(store: Path, tmp_path: Path) -> None:
    write_conf(store / "broker.conf", "broker-a")
    other = write_store(tmp_path / "other" / "store", [(0, open_segment(messages(2), 1 << 14))])
    write_conf(other / "broker.conf", "broker-a")
    assert [each.broker for each in find_named_stores(f"{store},{other}", None, None, all_formats())] == [
        "other",
        "rocketmq",
    ]
