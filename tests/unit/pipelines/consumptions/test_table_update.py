"""`consumptions` has each record of a consume log once, and `edges` a step for each, for any sequence of runs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from commitlake.broker_lite.stores.jmq import RetryStatus
from commitlake.connectors.lake.committer import commit_with_transaction
from commitlake.jobs.erase.command import main as erase
from commitlake.jobs.lineage.command import main as lineage
from commitlake.jobs.maintain.command import main as maintain
from commitlake.pipelines.consumptions import table_update
from commitlake.pipelines.consumptions.table_update import follow_consume_logs, read_consume_log_progress
from commitlake.pipelines.edges import table_update as edges_follow
from commitlake.pipelines.edges.progress import followed_consumptions_version
from commitlake.pipelines.edges.table_update import follow_edges
from commitlake.pipelines.message_keys.table_update import catch_up_keys
from commitlake.pipelines.repair.plan import plan_repair
from commitlake.pipelines.repair.run import repair_lake
from commitlake.schemas.errors import ExitCode
from tests.support.archived import rows_added
from tests.support.jmq_consumers import JmqShop
from tests.support.journal_stores import CLIENT, fill
from tests.support.small_stores import Clock
from tests.support.table_damages import damage

CONSUMED = "consumer_group, from_queue_offset, attempt, outcome, absent_reason"
DELIVERED = "kind = 'consumed'"
STATUSES = {RetryStatus.SUCCEEDED: "success", RetryStatus.RETRYING: "failed", RetryStatus.DEAD: "dead"}
ORDER = "consumer_group, from_queue_offset, attempt, from_physical_offset"


@pytest.fixture
def shop(tmp_path: Path) -> JmqShop:
    """Twenty messages in two queues, not yet archived."""
    shop = JmqShop(tmp_path, Clock())
    shop.send(0, 20)
    return shop


def steps(shop: JmqShop) -> list[tuple[object, ...]]:
    return shop.rows("edges", CONSUMED, ORDER, DELIVERED)


def consumptions(shop: JmqShop) -> list[tuple[object, ...]]:
    return shop.rows("consumptions", "consumer_group, queue_offset, attempt, outcome", "consume_offset")


def test_a_message_has_a_step_for_each_application_and_attempt(shop: JmqShop) -> None:
    shop.consume("mail", 3, fails=lambda offset: offset == 1)
    shop.consume("stock", 2)
    shop.retry("mail", succeeds=False)
    shop.retry("mail", succeeds=True)
    result = shop.archive()
    assert (rows_added(result, "consumptions"), result.problems) == (7, [])
    assert steps(shop) == [
        ("mail", 0, 0, "success", None),
        ("mail", 1, 0, "failed", None),
        ("mail", 1, 1, "failed", None),
        ("mail", 1, 2, "success", None),
        ("mail", 2, 0, "success", None),
        ("stock", 0, 0, "success", None),
        ("stock", 1, 0, "success", None),
    ]
    assert shop.rows("edges", "DISTINCT kind, side, from_broker, from_topic, client_host", "kind") == [
        ("consumed", "both", "broker-a", "orders", "192.168.1.10:50123")
    ]
    linked = "from_physical_offset, unique_key"
    sent = shop.rows("messages", "physical_offset, unique_key", "physical_offset")
    assert set(shop.rows("edges", linked, linked)) <= set(sent)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long("other messages of the same kind"))])
def test_every_delivery_has_one_step_and_no_other_is_found(shop: JmqShop, seed: int) -> None:
    chance, sent = random.Random(seed), 20
    expected: list[tuple[object, ...]] = []
    for _ in range(40):
        with shop.open() as (store, consuming):
            for _ in range(chance.randrange(4)):
                app, queue_id = chance.choice(["mail", "stock", "audit"]), chance.randrange(2)
                batch = consuming.take_batch("orders", app, queue_id, CLIENT, chance.randint(1, 5))
                if batch is not None:
                    failed = {one.queue_offset for one in batch.messages if chance.random() < 0.3}
                    consuming.finish_batch(batch, dict.fromkeys(failed, "failed"))
                    expected += [
                        (app, queue_id, one.queue_offset, 0, "failed" if one.queue_offset in failed else "success")
                        for one in batch.messages
                    ]
            shop.clock.now_ms += chance.randrange(5000)
            for app in ("mail", "stock"):
                for retry in consuming.take_retries("orders", app, 3):
                    status = consuming.finish_retry(retry, CLIENT, chance.choice([None, "failed"]))
                    place = (app, retry.message.queue_id, retry.message.queue_offset, retry.attempt - 1)
                    expected.append((*place, STATUSES[status]))
            if chance.random() < 0.5:
                fill(store, 3, sent)
                sent += 3
        if chance.random() < 0.4:
            shop.archive()
    shop.archive()
    columns = "consumer_group, from_queue_id, from_queue_offset, attempt, outcome"
    assert len(expected) > 100
    assert sorted(shop.rows("edges", columns, columns, DELIVERED)) == sorted(expected)
    assert shop.rows("edges", "DISTINCT absent_reason", "absent_reason", DELIVERED) == [(None,)]
    columns = "consumer_group, from_queue_id, from_queue_offset, kind, absent_reason"
    assert sorted(shop.rows("edges", columns, columns, f"NOT {DELIVERED}")) == in_retry_store(expected)


def in_retry_store(delivered: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Return the messages whose last delivery to an application failed, as steps to its entry in the retry store."""
    last = {row[:3]: row[4] for row in delivered}
    kinds = {"failed": "retried", "dead": "dead"}
    return sorted((*place, kinds[str(end)], "retry_store") for place, end in last.items() if end != "success")


def test_lineage_reports_a_dead_letter(shop: JmqShop, capsys: pytest.CaptureFixture[str]) -> None:
    shop.consume("mail", 1, fails=lambda _: True)
    for _ in range(12):
        shop.retry("mail", succeeds=False)
    shop.archive()
    assert steps(shop)[-1][3:] == ("dead", None)
    assert lineage(["--lake", shop.lake.root, "--key", "order-0"]) == ExitCode.OK
    told = " ".join(capsys.readouterr().out.split())
    assert "dead letter of mail since Fri 2023-11-17 22:13:20, after 4 tries, in the retry store" in told
    assert "dead letter of mail: in the retry store since Fri 2023-11-17 22:13:20" in told
    assert "given up by mail" in told
    assert lineage(["--lake", shop.lake.root, "--key", "order-0", "--format", "mermaid"]) == ExitCode.OK
    assert '[["2023-11-17 22:13:20 dead letter of mail"]]:::bad' in capsys.readouterr().out


def story_of_order(shop: JmqShop, capsys: pytest.CaptureFixture[str]) -> str:
    assert lineage(["--lake", shop.lake.root, "--key", "order-0"]) == ExitCode.OK
    return " ".join(capsys.readouterr().out.split())


def test_lineage_shows_when_the_next_try_is_due(shop: JmqShop, capsys: pytest.CaptureFixture[str]) -> None:
    shop.consume("mail", 1, fails=lambda _: True)
    shop.consume("stock", 1, fails=lambda _: True)
    shop.archive()
    told = story_of_order(shop, capsys)
    assert "in the retry store, the second try of mail due 22:13:21" in told
    assert "in the retry store, the second try of stock due 22:13:21" in told
    shop.retry("mail", succeeds=False)
    assert rows_added(shop.archive(), "edges")
    told = story_of_order(shop, capsys)
    assert "in the retry store, the third try of mail due Wed 2023-11-15 22:13:23" in told
    shop.retry("mail", succeeds=True)
    shop.archive()
    told = story_of_order(shop, capsys)
    assert "consumed by mail at the third try" in told
    assert "try of mail due" not in told


def test_the_retry_store_is_written_again_only_if_it_changed(shop: JmqShop) -> None:
    shop.consume("mail", 2, fails=lambda _: True)
    shop.archive()
    version, found = shop.lake.table("edges").version(), shop.rows("edges", "*", ORDER)
    assert rows_added(shop.archive(), "edges") == 0
    assert shop.lake.table("edges").version() == version
    shop.send(20, 2)
    shop.archive()
    assert shop.rows("edges", "*", ORDER) == found
    database = shop.store / "retry" / "retry.db"
    database.write_bytes(b"damaged" * 999)
    result = shop.archive()
    assert "cannot read the retry store" in result.problems[0]
    assert shop.rows("edges", "*", ORDER) == found
    database.unlink()
    shop.archive()
    assert shop.rows("edges", "kind", ORDER) == [("consumed",)] * 2


def test_each_run_adds_new_consumptions(shop: JmqShop) -> None:
    shop.archive()
    for number in range(3):
        shop.consume("mail", 2)
        assert rows_added(shop.archive(), "consumptions") == 2
        assert rows_added(shop.archive(), "consumptions") == 0
        assert len(steps(shop)) == 2 * (number + 1)
    assert [row[1] for row in consumptions(shop)] == [0, 1, 2, 3, 4, 5]
    assert read_consume_log_progress(shop.lake, "broker-a") == read_end(shop)
    assert followed_consumptions_version(shop.lake) == shop.lake.table("consumptions").version()


def killed(*_: object, **__: object) -> None:
    """Replace a step at which a run is killed."""
    raise KeyboardInterrupt


def read_end(shop: JmqShop) -> int:
    with shop.open() as (store, _):
        return store.read_consumptions(0, 1000)[1]


def test_a_consumption_is_linked_once_its_message_is_archived(shop: JmqShop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.archive()
    before = shop.folder / "before"
    (shop.store / "journal").rename(before)
    (shop.store / "journal").mkdir()
    for path in before.iterdir():
        (shop.store / "journal" / path.name).write_bytes(path.read_bytes())
    shop.send(20, 4)
    shop.consume("mail", 12)
    after = shop.folder / "after"
    (shop.store / "journal").rename(after)
    before.rename(shop.store / "journal")  # as if the run had seen the log's end before these messages were stored
    assert rows_added(shop.archive(), "consumptions") == 12
    assert [row[-1] for row in steps(shop)] == [None] * 10 + ["not_yet"] * 2
    (shop.store / "journal").rename(before)
    after.rename(shop.store / "journal")
    assert shop.archive().messages == 4
    assert steps(shop) == [("mail", number, 0, "success", None) for number in range(12)]


def test_a_run_that_is_killed_between_its_commits_is_completed(shop: JmqShop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.consume("mail", 5)
    for module in ("follow_consume_logs", "catch_up_edges"):
        with monkeypatch.context() as patched:
            patched.setattr(f"commitlake.pipelines.archive.derived_table_updates.{module}", killed)
            with pytest.raises(KeyboardInterrupt):
                shop.archive()
    with monkeypatch.context() as patched:
        patched.setattr(table_update, "commit_with_transaction", killed)
        shop.consume("mail", 1)
        with pytest.raises(KeyboardInterrupt):
            shop.archive()
    shop.archive()
    assert [row[1] for row in consumptions(shop)] == [0, 1, 2, 3, 4, 5]
    assert [row[1] for row in steps(shop)] == [0, 1, 2, 3, 4, 5]


def test_only_one_of_two_concurrent_runs_adds_the_records(shop: JmqShop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.archive()
    shop.consume("mail", 5)

    def after_another(*arguments: Any, **more: Any) -> bool:
        monkeypatch.setattr(table_update, "commit_with_transaction", commit_with_transaction)
        shop.archive()
        return commit_with_transaction(*arguments, **more)

    monkeypatch.setattr(table_update, "commit_with_transaction", after_another)
    result = shop.archive()
    assert (rows_added(result, "consumptions"), result.unfinished_tables) == (0, ["consumptions"])
    assert len(consumptions(shop)) == 5
    assert len(steps(shop)) == 5


def test_only_one_of_two_runs_that_link_the_same_records_adds_the_steps(
    shop: JmqShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.archive()
    shop.consume("mail", 5)

    def another_meanwhile(*_: Any) -> None:
        monkeypatch.setattr(edges_follow, "catch_up_keys", catch_up_keys)
        follow_edges(shop.lake)

    monkeypatch.setattr(edges_follow, "catch_up_keys", another_meanwhile)
    shop.archive()
    assert len(steps(shop)) == 5


def test_a_version_without_new_records_is_also_followed(shop: JmqShop) -> None:
    for _ in range(3):
        shop.consume("mail", 1)
        shop.archive()
    assert maintain(["--lake", shop.lake.root, "--quiet"]) == ExitCode.OK
    shop.lake.table("consumptions").alter.set_table_description("a version without files")
    assert followed_consumptions_version(shop.lake) < shop.lake.table("consumptions").version()
    assert shop.archive().unfinished_tables == []
    assert followed_consumptions_version(shop.lake) == shop.lake.table("consumptions").version()
    assert len(steps(shop)) == 3


def test_records_that_do_not_match_their_message_are_not_linked(shop: JmqShop) -> None:
    shop.consume("mail", 2)
    with shop.open() as (store, _):
        real = store.read_consumptions(0, 1)[0][0]
        store.log_consumption([
            replace(real, queue_offset=7), replace(real, topic="other"), replace(real, journal_offset=1),
            replace(real, journal_offset=2**63),
        ])  # fmt: skip
    shop.archive()
    found = shop.rows("edges", "absent_reason, from_queue_offset", "evidence_physical_offset DESC")
    assert found == [(None, 0), (None, 1), *[("lost", None)] * 3, ("before_archive", None)]


def test_a_table_without_its_log_entries_is_linked_again(shop: JmqShop) -> None:
    shop.consume("mail", 4)
    shop.archive()
    linked = steps(shop)
    shop.consume("mail", 1)
    follow_consume_logs(shop.lake, [])
    shop.archive()
    assert steps(shop) == [*linked, ("mail", 4, 0, "success", None)]
    log = Path(shop.lake.uri("consumptions")) / "_delta_log"
    shop.consume("mail", 1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("commitlake.pipelines.archive.derived_table_updates.catch_up_edges", killed)
        with pytest.raises(KeyboardInterrupt):
            shop.archive()
    shop.lake.table("consumptions").create_checkpoint()
    newest = max(log.glob("*.json"))
    for path in log.glob("*.json"):
        if path != newest:
            path.unlink()
    newest.unlink()
    follow_edges(shop.lake)
    assert steps(shop) == [*linked, *[("mail", number, 0, "success", None) for number in (4, 5)]]


def test_consumptions_of_an_erased_message_are_not_linked(shop: JmqShop) -> None:
    shop.consume("mail", 2)
    shop.archive()
    assert erase(["--lake", shop.lake.root, "--key", "order-0", "--reason", "asked for", "--yes"]) == ExitCode.OK
    assert steps(shop) == [("mail", 1, 0, "success", None)]
    shop.consume("stock", 2)
    shop.archive()
    assert steps(shop) == [("mail", 1, 0, "success", None), ("stock", 1, 0, "success", None)]
    assert len(consumptions(shop)) == 4


def test_entries_of_an_erased_message_are_not_added_again(shop: JmqShop) -> None:
    shop.consume("mail", 2, fails=lambda _: True)
    shop.archive()
    assert erase(["--lake", shop.lake.root, "--key", "order-0", "--reason", "asked for", "--yes"]) == ExitCode.OK
    left = [("consumed", 1), ("retried", 1)]
    shop.archive()
    assert shop.rows("edges", "kind, from_queue_offset", "kind") == left
    version = shop.lake.table("edges").version()
    shop.archive()
    assert shop.lake.table("edges").version() == version
    shop.retry("mail", succeeds=False)
    shop.archive()
    assert shop.rows("edges", "kind, from_queue_offset", "kind") == [left[0], *left]


@pytest.mark.parametrize(
    "how",
    [
        pytest.param("deleted", marks=pytest.mark.long("every table is repaired after each damage each time")),
        pytest.param("cut", marks=pytest.mark.long("a file that is gone, and one that is wrong, each time")),
        "flipped",
    ],
)
@pytest.mark.parametrize("part", ["*.parquet", "_delta_log/*.json"])
@pytest.mark.parametrize("chosen", [min, pytest.param(max, marks=pytest.mark.long("the newest file, too"))])
def test_a_damaged_table_is_read_again_from_the_stores(
    shop: JmqShop, how: str, part: str, chosen: Callable[[Iterable[Path]], Path]
) -> None:
    for count in (3, 2):
        shop.consume("mail", count)
        shop.archive()
    linked, found = steps(shop), consumptions(shop)
    damage(chosen(Path(shop.lake.uri("consumptions")).glob(part)), how)
    repair_lake(shop.lake, plan_repair(shop.lake), "")
    assert plan_repair(shop.lake).is_empty
    shop.archive()
    assert (steps(shop), consumptions(shop)) == (linked, found)
    shop.consume("mail", 1)
    shop.archive()
    assert len(steps(shop)) == len(consumptions(shop)) == 6


def test_problems_of_a_consume_log_are_in_the_summary(shop: JmqShop) -> None:
    shop.consume("mail", 10)
    first = min((shop.store / "consume").iterdir())
    data = bytearray(first.read_bytes())
    data[20] ^= 1
    first.write_bytes(data)
    result = shop.archive()
    assert rows_added(result, "consumptions") == 9
    assert len(result.problems) == 1
    assert f"{first}: bytes 0 to" in result.problems[0]
    assert shop.archive().notes == []
