r"""Send messages again: to a topic, in order, at a chosen pace, each exactly once.

    commitlake replay --lake /data/lake --topic orders --from 2026-11-17T14:00 --to 2026-11-17T14:20 \
        --namesrv 127.0.0.1:9876

Shows the selected messages and the groups that will get them, asks for confirmation, and sends. The lake's tables
`replays` and `replay_messages` record the sent messages. `replay resume ID` continues after any interruption, and sends
no message twice. It starts no JVM without `--spark` or `--transform`. Exit codes: 0 if all messages were sent; 1 if the
target was unreachable for too long; 2 for a wrong lake or option; 3 if messages could not be sent, differ in the
target, or are lost in the lake; 4 if the target cannot accept them, or another process is sending the replay; 130 if it
was stopped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from commitlake.jobs.arguments.lake_location import open_lake_argument
from commitlake.jobs.cli.damaged_file_errors import explain_damaged_files
from commitlake.jobs.replay.arguments import LIST, RESUME, SEND, SHOW, STOP, THROTTLE, UNDO, VERIFY, ReplayOptions
from commitlake.schemas.errors import ExitCode

if TYPE_CHECKING:
    from commitlake.connectors.lake.lake import Lake

DESCRIPTION = (
    "Send messages again, to their original topics or to another one: archived messages, or with --store or "
    "--from-broker those of a store's log or of live topics. Before sending, the job shows which messages "
    "match and which groups will receive them, and asks for confirmation. The order of each queue is kept. Each "
    "message carries its origin in properties (REPLAY_ID, ORIGIN_MSG_ID, ORIGIN_TOPIC, ORIGIN_QUEUE_ID, "
    "ORIGIN_STORE_TIMESTAMP, ORIGIN_BORN_TIMESTAMP). A replay that was stopped or killed continues with 'replay resume "
    "ID', and no message is sent twice. At the end, the target is read back and compared with the lake."
)
EXAMPLES = (
    (("replay --lake lake --topic orders --from 2026-11-17T14:00 --to 2026-11-17T14:20 "
     "--dry-run"), "show what would be sent"),
    ("replay --lake lake --topic orders --from -2h --namesrv 127.0.0.1:9876", "the last two hours, back into orders"),
    ("replay --lake lake --topic orders --from -2h --namesrv 127.0.0.1:9876 --to-topic orders_again --rate 500/s",
     "into another topic, at most 500 messages per second"),
    ("replay --lake lake --key order-4711 --namesrv 127.0.0.1:9876 --yes", "all messages of an order, without asking"),
    ("replay --lake lake --dlq-of billing --namesrv 127.0.0.1:9876", "the dead letters of a group, to their topics"),
    ("replay --lake lake --topic orders --not-consumed-by billing --offsets-at 2026-11-17 --namesrv 127.0.0.1:9876",
     "messages that a group had not consumed at that time"),
    ("replay --lake lake --topic orders --from -2h --namesrv 127.0.0.1:9876 --to-topic test --mask body.email=hash",
     "into a test topic, without e-mail addresses; COMMITLAKE_MASK_KEY holds the key of the hashes"),
    ("replay --lake lake --store /data/rocketmq/store --topic orders --from -2h --namesrv 127.0.0.1:9876",
     "from a store's log; the lake stores the progress"),
    ("replay --lake lake --from-broker 127.0.0.1:9876 --topic orders --from -2h --namesrv 10.0.0.7:9876",
     "from a live topic to another cluster"),
    ("replay --lake lake --topic orders --from -2h --transform ./change.py:change --dry-run",
     "show how a function changes the first messages"),
    ("replay --lake s3://bucket/lake --topic orders --from -2d --namesrv 10.0.0.7:9876 --rate 50000/s --spark",
     "by tasks on Spark's workers, each to its own queues; together at most 50,000 messages per second"),
    ("replay list --lake lake", "all replays, with their progress"),
    ("replay resume 20261117-142003-5f2a1c --lake lake", "continue a replay"),
    ("replay verify 20261117-142003-5f2a1c --lake lake", "read it back from the target, and compare it with the lake"),
    ("replay throttle 20261117-142003-5f2a1c --lake lake --rate 100", "slow one down while it sends"),
    ("replay undo 20261117-142003-5f2a1c --lake lake", "show which offsets make groups skip what it sent"),
    (("replay undo 20261117-142003-5f2a1c --lake lake --group billing "
     "--apply"), "set the offsets of one group; asks first"),
)  # fmt: skip
_READ = ("messages", "replays", "replay_messages", "replay_rows", "consumer_offsets", "subscriptions")


@dataclass(frozen=True, kw_only=True)
class Replay(ReplayOptions):
    """The command `replay`, which sends messages of a lake, a store or live topics again."""

    NAME = "replay"
    DESCRIPTION = DESCRIPTION
    EXAMPLES = EXAMPLES

    def run(self) -> ExitCode:
        """Run the chosen action, such as sending, listing, stopping or verifying a replay."""
        lake = open_lake_argument(self)
        with explain_damaged_files(lake, _READ):
            return self._run_action(lake)

    def _run_action(self, lake: Lake) -> ExitCode:
        from commitlake.jobs.replay.replay_management import (
            list_replays,
            request_rate_change,
            request_stop,
            show_replay,
            verify_replay_by_id,
        )
        from commitlake.jobs.replay.send import resume_replay, send_new_replay
        from commitlake.jobs.replay.undo import undo_replay

        acts = {
            SEND: send_new_replay,
            RESUME: resume_replay,
            LIST: list_replays,
            SHOW: show_replay,
            STOP: request_stop,
            THROTTLE: request_rate_change,
            VERIFY: verify_replay_by_id,
            UNDO: undo_replay,
        }
        return acts[self.action](self, lake)


build_parser, main = Replay.parser, Replay.main
