"""Results of RocketMQ's client with the real RocketMQ and with broker_lite, side by side.

    python -m tests.integration.broker.features [VERSION of the client and the real servers]

The same programs use each feature once against both; a row shows the two outcomes. The exit code is 1 if they differ in
any row.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.servers.broker_lite import QUICK_DELAYS, SMALL_FILES, BrokerLite
from tests.servers.java_programs import JavaProgramError, Row, run_java
from tests.servers.recording import RECORDING_OPTIONS
from tests.servers.rocketmq import VERSIONS, RocketMQ

Server = RocketMQ | BrokerLite
VOLUME = 1500
# Values that differ between runs: schedules of a broker, addresses, times.
_VARIES = frozenset({"runtime", "topics", "group configs"})


class Feature(NamedTuple):
    """Something that clients use.

    Attributes:
        name: shown to people.
        use: uses the feature, and returns the outcome.
    """

    name: str
    use: Callable[[str, Server], object]


def _kind(*kinds: str) -> Callable[[str, Server], object]:
    def use(version: str, server: Server) -> object:
        rows = run_java(version, "ProduceEveryKind", [server.name_server_address, *kinds])
        return sorted(Counter(row["kind"] for row in rows).items())

    return use


def _consume(way: str, expression: str, consumers: int, messages: int) -> Callable[[str, Server], object]:
    def use(version: str, server: Server) -> object:
        arguments = [server.name_server_address, way, "EveryVolume", f"{way}-{consumers}-{messages}", expression]
        rows = run_java(version, "Consumers", [*arguments, str(consumers), str(messages), "90"])
        return f"{len({row['unique_key'] for row in rows})} messages"

    return use


def _fail(version: str, server: Server) -> object:
    rows = run_java(version, "FailingConsumer", [server.name_server_address, "EveryFailing", "failing", "2", "120"])
    return sorted(Counter(str(row.get("reconsume_times", row["event"])) for row in rows).items())


def _look_up(version: str, server: Server) -> object:
    sent = run_java(version, "ProduceEveryKind", [server.name_server_address, "keys"])
    questions: list[str] = []
    for row in sent:
        questions += ["key", row["topic"], row["keys"][0], "unique", row["topic"], row["unique_key"]]
        questions += ["id", row["topic"], row["offset_msg_id"], "time", row["topic"], "0@0"]
    found = run_java(version, "Lookup", [server.name_server_address, *questions])
    # RocketMQ gives a message twice whose KEYS name a key twice; we give it once.
    distinct = {(row["verb"], row["value"], row.get("unique_key"), row["queue_offset"]) for row in found}
    return sorted(Counter(verb for verb, *_ in distinct).items())


def _administer(version: str, server: Server) -> object:
    arguments = [server.name_server_address, server.broker_address, "EveryVolume", f"concurrent-2-{VOLUME}", "-"]
    rows: list[Row] = run_java(version, "Administration", arguments)
    return [(row["asked"], row["answer"]) for row in rows if row["asked"] not in _VARIES]


FEATURES = (
    Feature(
        "send: sync, one way, ordered, tags, keys, properties",
        _kind("plain", "oneway", "ordered", "tags", "properties"),
    ),
    Feature("send: batches", _kind("batch")),
    Feature("send: compressed and large bodies", _kind("zlib", "big")),
    Feature("send: delay levels", _kind("delay")),
    Feature("send: transactions with check-back", _kind("transaction")),
    Feature("send: traced", _kind("traced")),
    Feature("send and reply", _kind("request")),
    Feature("send: a volume", _kind("volume")),
    Feature("consume: two share the queues", _consume("concurrent", "*", 2, VOLUME)),
    Feature("consume: in order", _consume("orderly", "*", 2, VOLUME)),
    Feature("consume: broadcast", _consume("broadcast", "*", 2, 2 * VOLUME)),
    Feature("consume: tags", _consume("concurrent", "Tag1 || Tag2", 1, 429)),
    Feature("consume: one of two goes", _consume("failover", "*", 2, VOLUME)),
    Feature("consume: lite pull", _consume("lite", "*", 1, VOLUME)),
    Feature(
        "consume: retries, dead letters",
        lambda version, server: (_kind("failing")(version, server), _fail(version, server)),
    ),
    Feature("find by key, unique key, id, time", _look_up),
    Feature("administer: topics, stats, progress, reset, settings", _administer),
)


def outcome(feature: Feature, version: str, server: Server) -> str:
    """Return the outcome of a feature, as text."""
    try:
        return str(feature.use(version, server))
    except JavaProgramError as error:
        return f"FAILED: {str(error).splitlines()[0]}"


def main(version: str) -> int:
    """Use everything against both, and print a table; 1 where they differ."""
    differing = 0
    with tempfile.TemporaryDirectory() as folder:
        real = RocketMQ(version, Path(folder) / "real", options=RECORDING_OPTIONS)
        ours = BrokerLite(Path(folder) / "ours", options=(*SMALL_FILES, *QUICK_DELAYS))
        with real, ours:
            for feature in FEATURES:
                theirs, mine = outcome(feature, version, real), outcome(feature, version, ours)
                same = theirs == mine and not mine.startswith("FAILED")
                differing += not same
                print(f"| {feature.name} | {'same' if same else 'DIFFERENT'} | {mine[:100]} |", flush=True)
                if not same:
                    print(f"  RocketMQ:    {theirs}\n  broker_lite: {mine}", flush=True)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else VERSIONS[0]))
