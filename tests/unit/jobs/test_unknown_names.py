"""A warning shows a name that does not exist and the nearest one that does, even if other names match."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlake.jobs.dlq.command import main as dlq
from commitlake.jobs.query.command import main as query
from commitlake.jobs.replay.command import main as replay
from commitlake.jobs.tps.command import main as tps
from commitlake.schemas.errors import ExitCode
from tests.support.lakes import MIDNIGHT_MS, GrowingLake
from tests.support.logs import new_message

JOBS = {"query": query, "replay": replay, "tps": tps, "dlq": dlq}
ORDERS = "Did you mean 'orders'?"
CASES = (
    ("query --topic orders --topic paymnts", "no message of the topic 'paymnts'. Did you mean 'payments'?"),
    ("query --topic ordes --count", f"no message of the topic 'ordes'. {ORDERS}"),
    ("replay --topic ordes", f"no message of the topic 'ordes'. {ORDERS}"),
    ("replay --topic orders --topic paymnts", "no message of the topic 'paymnts'. Did you mean 'payments'?"),
    ("replay --topic ordes --all-copies", f"no message of the topic 'ordes'. {ORDERS}"),
    ("replay --dlq-of biling", "no dead letter of the group 'biling'. Did you mean 'billing'?"),
    ("replay --tag Paide", "no message with the tag 'Paide'. Did you mean 'Paid'?"),
    ("replay --topic orders --queue 0 --queue 999", "no message in queue 999 of 'orders'"),
    ("replay --store {store} --topic orders --topic ordes", f"no queue of a topic 'ordes'. {ORDERS}"),
    ("dlq --group biling", "no dead letter of the group 'biling'. Did you mean 'billing'?"),
    ("dlq --group billing --group nope", "no dead letter of the group 'nope'. There are: billing"),
    ("dlq --topic ordes", f"no dead letter of the topic 'ordes'. {ORDERS}"),
    ("dlq --tag Paide", "no dead letter with the tag 'Paide'. Did you mean 'Paid'?"),
    ("dlq export --group biling --out {out}", "no dead letter of the group 'biling'. Did you mean 'billing'?"),
    ("tps --tag Paide", "no message with the tag 'Paide'. Did you mean 'Paid'?"),
    ("tps --tag Paid --tag nope", "no message with the tag 'nope'. There are: Paid"),
    ("query --from 2030-01-01", "the lake has messages stored from 2023-"),
    ("tps --topic orders --queue 999", "no message in queue 999 of 'orders'; it has messages in queues 0"),
    ("tps --topic orders --topic paymnts", "no message of the topic 'paymnts'. Did you mean 'payments'?"),
)
KNOWN = (
    "query --topic orders --topic payments",
    "replay --topic orders --queue 0 --tag Paid --broker broker-a",
    "replay --dlq-of billing",
    "dlq --group billing --topic orders --tag Paid --broker broker-a",
    "tps --topic orders --topic payments --tag Paid --queue 0",
)
BROKERS = (
    "replay --broker brokr-a",
    "dlq --broker brokr-a",
    "replay --store {store} --broker brokr-a --broker broker-a",
)


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    """A lake with two topics, and a dead letter of one of them."""
    made = GrowingLake(tmp_path_factory.mktemp("names"))
    tags = (("TAGS", "Paid"),)
    dead = (*tags, ("RETRY_TOPIC", "orders"))
    made.write(
        [
            new_message(0, topic="orders", queue_id=0, born_timestamp=MIDNIGHT_MS, properties=tags),
            new_message(1, topic="payments", queue_id=0, born_timestamp=MIDNIGHT_MS, properties=tags),
            new_message(2, topic="%DLQ%billing", queue_id=0, born_timestamp=MIDNIGHT_MS, properties=dead),
        ]
    )
    made.archive()
    for topic in ("orders", "payments"):
        (made.store / "consumequeue" / topic / "0").mkdir(parents=True)
    return made


def run(growing: GrowingLake, command: str, out: Path) -> int:
    name, *words = command.format(store=growing.store, out=out / "letters.csv").split()
    action = [words.pop(0)] if words[0] == "export" else []
    words += ["--dry-run"] if name == "replay" else []
    return JOBS[name]([*action, "--lake", growing.lake.root, *words])


@pytest.mark.parametrize(("command", "warning"), CASES)
def test_an_unknown_name_is_named_by_a_warning(
    growing: GrowingLake, command: str, warning: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(growing, command, tmp_path) == ExitCode.OK
    error = capsys.readouterr().err
    assert warning in error
    assert error.count("warning: ") == 1


@pytest.mark.parametrize("command", KNOWN)
def test_known_names_need_no_warning(
    growing: GrowingLake, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(growing, command, tmp_path) == ExitCode.OK
    assert "warning" not in capsys.readouterr().err


@pytest.mark.parametrize("command", BROKERS)
def test_an_unknown_broker_is_refused(
    growing: GrowingLake, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(growing, command, tmp_path) == ExitCode.USAGE
    assert "has no store 'brokr-a'. Did you mean 'broker-a'?" in capsys.readouterr().err
