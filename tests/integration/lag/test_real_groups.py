"""Lag of the groups of a real RocketMQ, compared with the sent messages, and with RocketMQ's own tools.

`mqadmin consumerProgress` and the admin client subtract offsets. That is correct for a group without a filter, and too
much for one with a filter, whose lag is counted here from the sent messages.
"""

from __future__ import annotations

import datetime
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from commitlake.connectors.rocketmq import Admin, ClientOptions, OutgoingMessage, Producer, Puller
from commitlake.connectors.rocketmq.network import Network
from commitlake.jobs.archive.command import main as archive
from commitlake.jobs.lag.command import main as lag
from commitlake.jobs.metrics.command import main as metrics
from commitlake.jobs.replay.command import main as replay
from commitlake.jobs.snapshot.command import main as snapshot
from commitlake.pipelines.lag.group_lag import NO_OFFSET
from commitlake.pipelines.restore.config_files import parse_offsets
from commitlake.schemas.errors import UsageError
from commitlake.schemas.remoting.codes import RequestCode
from commitlake.schemas.remoting.heartbeats import ConsumerData, Heartbeat, SubscriptionData
from commitlake.schemas.remoting.json_fields import serialize_body
from commitlake.schemas.remoting.topic_and_group_configs import SubscriptionGroupConfig
from commitlake.schemas.times import epoch_ms
from tests.servers.jars import java_command
from tests.servers.java_programs import CLIENT, JVM, programs_class_path, run_java
from tests.servers.mqadmin import mqadmin
from tests.servers.process import ServerProcess
from tests.servers.recording import has_pop
from tests.servers.rocketmq import VERSIONS, BrokerOptions, RocketMQ
from tests.support.topic_reading import make_topic, wait_for

BROKER, TOPIC, QUEUES = "broker-a", "Orders", 2
TAGS = ("paid", "open", "sent")
OPTIONS = BrokerOptions(extra={"enablePropertyFilter": True, "flushConsumerOffsetInterval": 500})
SQL92 = "price > 50 AND TAGS = 'open'"

HAD_CLIENTS = ("Behind", "Partly", "Priced", "Tagged")
"""Groups with a retry topic: without one, 4.9's admin client refuses."""


class Sent(NamedTuple):
    """A message that was sent."""

    queue_id: int
    queue_offset: int
    tag: str
    price: int


class World:
    """A broker, its groups, and a lake of it."""

    def __init__(self, servers: RocketMQ, folder: Path) -> None:
        self.servers = servers
        self.lake = folder / "lake"
        self.sent: list[Sent] = []
        self.options = ClientOptions(servers.name_server_address)

    def send(self, count: int) -> None:
        """Send messages of all tags and prices, to all queues in turn."""
        with Producer("LagProducer", self.options) as producer:
            queues = sorted(producer.queues(TOPIC))
            for _ in range(count):
                number = len(self.sent)
                tag, price = TAGS[number // 2 % len(TAGS)], number * 7 % 100
                message = OutgoingMessage(TOPIC, b"x", tags=tag, properties={"price": str(price)})
                done = producer.send(message, queue=queues[number % QUEUES])
                self.sent.append(Sent(done.queue.queue_id, done.queue_offset, tag, price))

    def commit(self, group: str, offset: int) -> None:
        """Set a group's offset in each queue."""
        with Puller(group, self.options) as puller:
            for queue in puller.queues(TOPIC):
                puller.commit_offset(queue, offset)

    def offsets(self, owner: str) -> dict[int, int]:
        """Return the offsets of a group whose client commits them every few seconds."""
        with Admin(self.options) as admin:
            return admin.all_group_offsets(BROKER).offset_table.get(f"{TOPIC}@{owner}", {})

    def wait_for_offsets(self, owner: str) -> None:
        """Wait until a group has offsets in all queues, also in the broker's file, from which an archive takes them."""
        wait_for(lambda: self.offsets(owner), _are_all_stored)
        wait_for(lambda: self.offsets_in_file(owner), _are_all_stored)

    def offsets_in_file(self, owner: str) -> dict[int, int]:
        """Return the offsets of a group in the file that the broker writes every half second."""
        path = self.servers.store / "config" / "consumerOffset.json"
        try:
            return parse_offsets(path.read_bytes(), str(path)).get(f"{TOPIC}@{owner}", {})
        except (FileNotFoundError, UsageError):  # the broker moves the old file away before it writes the new one
            return {}

    def keep(self) -> None:
        """Archive the log, then ask the broker for offsets and subscriptions."""
        quick = ["--no-quality", "--no-keys", "--local", "--quiet"]
        assert archive(["--store", str(self.servers.store), "--broker", BROKER, "--lake", str(self.lake), *quick]) == 0
        assert snapshot(["--lake", str(self.lake), "--namesrv", self.servers.name_server_address, "--quiet"]) == 0
        assert archive(["--store", str(self.servers.store), "--broker", BROKER, "--lake", str(self.lake), *quick]) == 0

    def expected(self, offsets: dict[int, int], wanted: Callable[[Sent], bool]) -> dict[int, int]:
        """Return the number of messages of each queue that a group wants and has not consumed."""
        behind = Counter(
            one.queue_id for one in self.sent if one.queue_offset >= offsets.get(one.queue_id, 0) and wanted(one)
        )
        return {queue_id: behind[queue_id] for queue_id in range(QUEUES)}


@pytest.fixture(
    scope="module",
    params=[
        VERSIONS[0],
        pytest.param(VERSIONS[1], marks=pytest.mark.long("all kinds of groups with RocketMQ 4.9, too")),
    ],
)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def world(version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Groups at the end, with a lag, filtered by tag and by SQL92, stopped, reset, and with an offset in one queue."""
    folder = tmp_path_factory.mktemp("lag-")
    with RocketMQ(version, folder / "rocketmq", options=OPTIONS) as servers:
        world = World(servers, folder)
        with Admin(world.options) as admin:
            make_topic(admin, TOPIC, QUEUES)
            for group in WANTED:
                admin.create_group(SubscriptionGroupConfig(group))
        world.send(60)
        for group, offset in (("Current", 30), ("Behind", 10), ("Priced", 3), ("Stopped", 5), ("Reset", 30)):
            world.commit(group, offset)
        with Puller("Partly", world.options) as puller:
            puller.commit_offset(min(puller.queues(TOPIC)), 4)
        client = Network(world.options)
        radio = _java_consumer(servers, folder, "Radio", "*", "broadcast") if has_pop(version) else None
        try:
            consumer = _java_consumer(servers, folder, "Tagged", "paid")
            try:
                paid = sum(one.tag == "paid" for one in world.sent)
                consumer.wait_until(lambda: consumer.output().count('"queue_id"') == paid, 60)
                world.wait_for_offsets("Tagged")
                if radio is not None:
                    world.wait_for_offsets("Radio@broadcast")
                _subscribe_all(client, servers)
                world.keep()
            finally:
                consumer.kill()
            world.send(60)
            world.commit("Current", 60)
            world.commit("Behind", 40)
            world.commit("Reset", 2)
            _subscribe_all(client, servers)
            world.keep()
        finally:
            client.close()
            if radio is not None:
                radio.kill()
        yield world


def _are_all_stored(offsets: dict[int, int]) -> bool:
    return len(offsets) == QUEUES and min(offsets.values()) > 0


def _subscribe_all(client: Network, servers: RocketMQ) -> None:
    """Send the heartbeats of three groups; a broker forgets a client that has sent none for two minutes."""
    _subscribe(client, servers, "Priced", SubscriptionData(TOPIC, SQL92, expression_type="SQL92"))
    for group in ("Behind", "Partly"):
        _subscribe(client, servers, group, SubscriptionData(TOPIC))


def _subscribe(client: Network, servers: RocketMQ, group: str, wanted: SubscriptionData) -> None:
    """Act as a client of a group: a broker takes subscriptions from heartbeats."""
    beat = Heartbeat(f"{client.client_id}-{group}", (), (ConsumerData(group, subscription_data_set=(wanted,)),))
    client.send_and_wait(servers.broker_address, RequestCode.HEART_BEAT, None, serialize_body(beat))


def _java_consumer(servers: RocketMQ, folder: Path, group: str, tags: str, way: str = "forever") -> ServerProcess:
    """Start RocketMQ's own push consumer."""
    command = [java_command(), *JVM, *CLIENT, f"-Duser.home={folder}", "-cp", programs_class_path(servers.version)]
    command += ["Consumers", servers.name_server_address, way, TOPIC, group, tags, "1", "1000000", "3600"]
    return ServerProcess("consumer", command, folder / f"{group}.log")


@pytest.fixture(scope="module")
def offsets(world: World) -> dict[str, dict[int, int]]:
    """Each group's offsets, as the broker reports them."""
    with Admin(world.options) as admin:
        table = admin.all_group_offsets(BROKER).offset_table
    return {key.partition("@")[2]: queues for key, queues in table.items() if key.startswith(f"{TOPIC}@")}


def rows_of(
    capsys: pytest.CaptureFixture[str], *arguments: str, codes: tuple[int, ...] = (0,)
) -> dict[tuple[str, int], dict[str, Any]]:
    capsys.readouterr()
    assert lag([*arguments, "--topic", TOPIC, "--all", "--output", "jsonl", "--quiet"]) in codes
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return {(row["group"], row["queue_id"]): row for row in rows}


WANTED: dict[str, Callable[[Sent], bool]] = {
    "Current": lambda _: True,
    "Behind": lambda _: True,
    "Stopped": lambda _: True,
    "Reset": lambda _: True,
    "Partly": lambda _: True,
    "Tagged": lambda one: one.tag == "paid",
    "Priced": lambda one: one.price > 50 and one.tag == "open",
}


def test_lag_equals_the_count_of_sent_messages(
    world: World, offsets: dict[str, dict[int, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = rows_of(capsys, "--lake", str(world.lake))
    found = {group: {queue_id: rows[group, queue_id]["messages_max"] for queue_id in range(QUEUES)} for group in WANTED}
    assert found == {group: world.expected(offsets[group], wanted) for group, wanted in WANTED.items()}
    of_wanted = [row for (group, _), row in rows.items() if group in WANTED]
    assert all(row["messages_min"] == (row["messages_max"] if row["filter"] else 0) for row in of_wanted)
    assert min(found["Tagged"].values()) >= 10  # none of the second part; of the first, what was not committed


def test_verdicts_match_the_state_of_each_group(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of(capsys, "--lake", str(world.lake))
    told = {group: rows[group, 0]["verdict"] for group in WANTED}
    assert told["Current"] == told["Behind"] == "ok"
    assert told["Reset"] == "rewound"
    assert told["Stopped"] == told["Tagged"] == "stopped"
    assert told["Priced"] == "stalled"
    assert rows["Tagged", 0]["filter"] == "paid"
    assert rows["Priced", 0]["filter"] == f"sql: {SQL92}"
    assert (rows["Priced", 0]["members"], rows["Tagged", 0]["members"]) == (1, 0)


def test_a_broadcasting_group_has_its_clients(world: World, version: str, capsys: pytest.CaptureFixture[str]) -> None:
    if not has_pop(version):
        pytest.skip("only brokers 5.x store the offsets of clients that broadcast")
    rows = rows_of(capsys, "--lake", str(world.lake))
    for queue_id in range(QUEUES):
        row = rows["Radio", queue_id]
        assert row["members"] == 1, row
        assert row["verdict"] in {"ok", "slow"}, json.dumps(row)  # its client stores its offset every five seconds
        assert row["messages_max"] <= 30, row
        assert "broadcasts" in str(row["notes"]), row
    assert {group for group, _ in rows} == {*WANTED, "Radio"}


def test_rocketmqs_own_tools_agree_for_groups_without_a_filter(
    world: World, version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = rows_of(capsys, "--lake", str(world.lake))
    ours = {group: rows[group, 0]["messages_max"] + rows[group, 1]["messages_max"] for group in WANTED}
    with Admin(world.options) as admin:
        stats = {group: admin.consume_stats(group, TOPIC) for group in WANTED}
    theirs = {group: sum(queue.lag for queue in queues.values()) for group, queues in stats.items()}
    for group in ("Current", "Behind", "Stopped", "Reset", "Partly"):
        assert ours[group] == theirs[group]
    for group in ("Tagged", "Priced"):
        assert 0 < ours[group] < theirs[group]
    asked = ("Behind", "Tagged", "Partly")
    server = ("-n", world.servers.name_server_address)
    printed = mqadmin(version, tmp_path, *(("consumerProgress", "-g", group, *server) for group in asked))
    totals = [int(re.findall(r"Diff Total: (\d+)", text)[-1]) for text in printed]
    assert totals == [theirs[group] for group in asked]


def test_each_queue_equals_the_answer_of_rocketmqs_admin_client(
    world: World, version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The broker's end, the group's offset, and the store time of the message that the group consumed last."""
    servers = world.servers
    place = [servers.name_server_address, servers.broker_address, TOPIC]
    groups = WANTED if version == VERSIONS[0] else HAD_CLIENTS
    asked = run_java(servers, "ConsumerProgress", [*place, *groups])
    theirs = {
        (row["group"], row["queue_id"]): (row["broker_offset"], row["consumer_offset"], row["last_timestamp"])
        for row in asked
    }
    assert set(theirs) == {(group, queue_id) for group in groups for queue_id in range(QUEUES)}
    of_groups = [argument for group in groups for argument in ("--group", group)]
    assert _progress_of(rows_of(capsys, "--lake", str(world.lake), *of_groups)) == theirs
    store = ["--store", str(servers.store), "--filter", f"Tagged@{TOPIC}=paid", *of_groups]

    def of_store() -> object:
        return _progress_of(rows_of(capsys, *store, codes=(0, 3)))

    assert wait_for(of_store, lambda found: found == theirs, 60) == theirs
    for row in asked:
        # A group that does not pull has no offset of its pulls: RocketMQ then gives the consumed one.
        assert row["pull_offset"] in {None, row["consumer_offset"]} or row["group"] == "Tagged"


def _progress_of(rows: dict[tuple[str, int], dict[str, Any]]) -> dict[tuple[str, int], tuple[int, int, int]]:
    """Return end, offset and time of the last consumed message in RocketMQ's form: 0 for no time."""
    found = {}
    for place, row in rows.items():
        time = row["last_consumed_time"]
        last = 0 if time is None else epoch_ms(datetime.datetime.fromisoformat(time))
        found[place] = (row["end"], row["offset_min"], last)
    return found


def test_queues_without_an_offset_are_in_all_answers(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = (rows_of(capsys, "--lake", str(world.lake))["Partly", queue_id] for queue_id in range(QUEUES))
    assert NO_OFFSET not in first["notes"]
    assert (second["messages_min"], second["messages_max"], NO_OFFSET in second["notes"]) == (60, 60, True)
    written = tmp_path / "commitlake.prom"
    assert metrics(["--lake", str(world.lake), "--textfile", str(written), "--quiet"]) == 0
    families = {family.name: family.samples for family in text_string_to_metric_families(written.read_text())}
    behind = [one.value for one in families["rocketmq_group_diff"] if one.labels["group"] == "Partly"]
    ends = [one.value for one in families["rocketmq_producer_offset"] if one.labels["topic"] == TOPIC]
    assert (behind, ends) == ([len(world.sent) - 4], [len(world.sent)])
    server = world.servers.name_server_address
    chosen = ["--topic", TOPIC, "--not-consumed-by", "Partly", "--dry-run", "--json", "--quiet"]
    for source in ([], ["--from-broker", server]):
        capsys.readouterr()
        assert replay(["--lake", str(world.lake), *source, *chosen]) == 0
        found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert sum(row["messages"] for row in found) == len(world.sent) - 4


def test_a_time_before_the_first_snapshot_is_refused(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of(capsys, "--lake", str(world.lake))
    first = min(row["next_message_time"] for row in rows.values() if row["next_message_time"])
    capsys.readouterr()
    assert lag(["--lake", str(world.lake), "--at", first, "--quiet"]) == 3
    assert "has no snapshot of its groups at or before" in capsys.readouterr().err


def test_a_store_that_is_not_archived_gives_the_same_lag(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    def of_wanted(rows: dict[tuple[str, int], dict[str, Any]]) -> dict[tuple[str, int], Any]:
        return {place: row["messages_max"] for place, row in rows.items() if place[0] in WANTED}  # Radio goes on

    expected = of_wanted(rows_of(capsys, "--lake", str(world.lake)))
    filters = ["--filter", f"Tagged@{TOPIC}=paid"]  # no file of a broker has a tag
    arguments = ["--store", str(world.servers.store), *filters]

    def found() -> dict[tuple[str, int], Any]:
        # A broker writes its offsets every five seconds: until then its files know nothing of the topic.
        return of_wanted(rows_of(capsys, *arguments, codes=(0, 3)))

    assert wait_for(found, lambda rows: rows == expected, 60) == expected
