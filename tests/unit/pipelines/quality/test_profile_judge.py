"""Suites on profiles: critical failures, warnings, and usual cases without either."""

from __future__ import annotations

import dataclasses
import datetime
import json
import logging
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from commitlake.pipelines.quality.compiled_profiling import MAX_MISSING
from commitlake.pipelines.quality.expectation_input import BrokerFacts, RunFacts
from commitlake.pipelines.quality.great_expectations_loading import start_loading_thread
from commitlake.pipelines.quality.pandas_frames import build_topic_frame, build_window_frame
from commitlake.pipelines.quality.profile_columns import ProfileError, QualityError
from commitlake.pipelines.quality.profile_merging import merge_profiles
from commitlake.pipelines.quality.report import (
    Losses,
    QualityReport,
    brokers_with_failures,
    expectation_sentences,
    to_quality_results,
)
from commitlake.schemas.layouts.rocketmq.sysflag import INNER_BATCH
from commitlake.schemas.layouts.rocketmq.topics import HALF_TOPIC, Kind
from commitlake.schemas.quality.expectation import Expectation, Grain, Severity, Suite
from commitlake.schemas.quality.suites import QUEUES, SUITES
from tests.support.judged_profiles import judge_profile
from tests.support.profiles import NOON, Row, message, messages, profile_of
from tests.support.reports import figures_of
from tests.support.shown_runs import page_of_run

NUL = "\0"
LATER = NOON + datetime.timedelta(hours=8)
FACTS = RunFacts(now=LATER)


@pytest.fixture(scope="module", autouse=True)
def _loaded() -> None:
    start_loading_thread().join()


def judged(rows: list[Row], facts: RunFacts = FACTS) -> QualityReport:
    """Return the suites' report on rows."""
    return judge_profile(profile_of(rows), run_facts=facts)


def suite_with(name: str) -> list[Suite]:
    """Return the only suite with an expectation of this name; judging by all suites takes longer."""
    return [suite for suite in SUITES if name in {each.name for each in suite.expectations}]


def unmet(report: QualityReport) -> set[str]:
    """Return the names of unmet expectations."""
    return {found.expectation.name for found in report.judgements if not found.success}


# --- healthy ---


def test_healthy_messages_meet_all_expectations() -> None:
    report = judged(messages(range(2000)))
    assert unmet(report) == set()
    assert report.has_passed
    assert len(report.judgements) == sum(len(suite.expectations) for suite in SUITES) >= 30
    assert expectation_sentences(report) == []


@pytest.mark.some_cases(3)
@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(messages(range(500, 600)), id="a first archive in the middle of a queue"),
        pytest.param([message(0), message(1, broker="b", topic="x")], id="several brokers"),
        pytest.param(
            [message(n, topic=HALF_TOPIC, kind="half", queue_offset=q) for n, q in enumerate([0, 5, 2, 9])],
            id="half messages",
        ),
        pytest.param(
            [
                message(n, topic="SCHEDULE_TOPIC_XXXX", kind="delay", queue_id=n % 18, queue_offset=n // 18)
                for n in range(50)
            ],
            id="delays",
        ),
        pytest.param(
            [
                message(0, sys_flag=INNER_BATCH, properties=[("INNER_NUM", "32")]),
                message(1, queue_offset=32, sys_flag=INNER_BATCH, properties=[("INNER_NUM", "7")]),
                message(2, queue_offset=39),
            ],
            id="batch topics",
        ),
        pytest.param([message(0, unique_key=None, kind="op", topic="RMQ_SYS_TRANS_OP_HALF_TOPIC")], id="op messages"),
        pytest.param(
            [message(0), message(1, store_timestamp=NOON - datetime.timedelta(seconds=30)), message(2)],
            id="a clock that steps back a little, over a window's border",
        ),
        pytest.param([message(0, body_size=0, body_ref=None)], id="an empty body"),
        pytest.param(
            [
                message(n, topic=topic, queue_offset=n // 4 + first, body_crc=n)
                for n in range(40)
                for topic, first in [(f"orders{NUL * (n % 4)}", 7 * (n % 4))]
            ],
            id="topics that differ only after a NUL",
        ),
    ],
)
def test_usual_rows_meet_all_expectations(rows: list[Row]) -> None:
    assert unmet(judged(rows)) == set()


def test_topics_that_differ_only_after_a_nul_have_their_own_figures() -> None:
    topics = {HALF_TOPIC: "half", f"{HALF_TOPIC}{NUL}": "normal", NUL: "normal", f"{NUL}{NUL}": "normal"}
    rows = [message(n, topic=topic, kind=topics[topic], queue_offset=n * 5) for n in range(3) for topic in topics]
    windows = build_window_frame(profile_of(rows), FACTS)
    found = build_topic_frame(windows).set_index("topic")
    assert found["messages"].to_dict() == dict.fromkeys(topics, 3)
    assert found["lost_offsets"].to_dict() == {HALF_TOPIC: 0} | dict.fromkeys([*topics][1:], 8)
    assert found["kind"].to_dict() == {topic: Kind(kind) for topic, kind in topics.items()}
    assert not windows["unnamed"].any()


@pytest.mark.parametrize("offsets", [(0, (1 << 62) - 1) * 8, (0, (1 << 62) - 1, 0, (1 << 62) - 1, -1, 2**63 - 1)])
def test_offsets_that_skip_more_than_numbers_hold_are_counted_as_missing(offsets: Sequence[int]) -> None:
    rows = [message(n, queue_offset=offset) for n, offset in enumerate(offsets)]
    (found,) = (
        each
        for each in judge_profile(profile_of(rows), [QUEUES], FACTS).judgements
        if "by_damage" in each.expectation.name
    )
    assert found.observed == MAX_MISSING
    assert not found.success


def test_no_messages_meet_all_expectations() -> None:
    report = judge_profile(profile_of([message()]).slice(0, 0), run_facts=FACTS)
    assert unmet(report) == set()


def test_a_recreated_topic_is_a_warning() -> None:
    again = [message(2000 + n, queue_offset=n) for n in range(10)]
    report = judged([*messages(range(1000, 1010)), *again])
    assert unmet(report) == {"queue_offsets_do_not_restart"}
    assert report.has_passed


# --- damage, and failures that stop a commit ---


@pytest.mark.parametrize(
    "lost", [1, 599, *(pytest.param(lost, marks=pytest.mark.long("within a window, too")) for lost in (600, 1198))]
)
def test_a_lost_message_is_damage_within_a_window_and_between_two(lost: int) -> None:
    rows = messages(range(1200))
    report = judged(rows[:lost] + rows[lost + 1 :])
    assert report.has_passed
    (found,) = report.damage_judgements
    assert (found.expectation.name, found.observed, found.unexpected) == ("no_message_is_lost", 1, 1)
    (example,) = found.examples
    assert (example["topic"], example["queue_id"], example["unexplained_offsets"]) == ("orders", 0, 1)
    assert (
        example["window_start"]
        == (NOON + datetime.timedelta(minutes=10 * (lost // 600 if lost != 599 else 1))).isoformat()
    )


def test_damage_names_each_queue_once() -> None:
    rows = [message(n * 600, topic=f"orders{NUL * topic}", queue_offset=2 * n) for topic in range(20) for n in range(4)]
    (found,) = judge_profile(profile_of(rows), [QUEUES], FACTS).damage_judgements
    assert (found.unexpected, found.observed) == (60, 60)
    assert [example["topic"] for example in found.examples] == [f"orders{NUL * topic}" for topic in range(20)]
    text = Losses().verdict(judge_profile(profile_of(rows), [QUEUES], FACTS)).text
    assert text.endswith("messages of 20 queues are missing in a log without damage (table quality_results)")


def test_a_lost_message_of_a_damaged_broker_is_a_warning() -> None:
    rows = [*messages([0, 1, 5]), *messages([0, 1], broker="b")]
    damaged = RunFacts({"a": BrokerFacts(bad_ranges=2), "b": BrokerFacts()}, now=LATER)
    report = judged(rows, damaged)
    assert not report.damage_judgements
    assert unmet(report) == {"no_message_is_lost_by_damage", "logs_are_intact"}
    gap = RunFacts({"a": BrokerFacts(missing_ranges=1)}, now=LATER)
    assert unmet(judged(rows, gap)) == {"no_message_is_lost_by_damage", "logs_have_no_gaps"}
    for other in ({"b": BrokerFacts(bad_ranges=2)}, {"a": BrokerFacts(marked_rows=2)}):
        assert judged(rows, RunFacts(other, now=LATER)).damage_judgements


@pytest.mark.parametrize(
    "flag", [0xC, *(pytest.param(flag, marks=pytest.mark.long("a part of the same flag")) for flag in (0x4, 0x84))]
)
def test_a_message_with_a_prepared_flag_of_its_client_passes(flag: int) -> None:
    prepared = message(2, queue_offset=0, sys_flag=flag, physical_offset=1500)  # brokers store it in no queue
    report = judged([*messages([0, 1]), prepared, *messages([2, 3])], FACTS)
    assert report.has_passed
    assert not unmet(report) & {"queue_offsets_do_not_restart", "queue_offsets_are_unique"}


@pytest.mark.some_cases(3)
@pytest.mark.parametrize(
    ("rows", "name"),
    [
        ([message(0), message(0)], "rows_are_there_once"),
        ([message(0, size=71)], "sizes_are_valid_for_records"),
        ([message(0, body_ref=None)], "bodies_have_a_place"),
        ([message(0, body_ref={**message()["body_ref"], "length": 1})], "body_places_match_the_messages"),
        ([message(0, kind="odd")], "kinds_are_known"),
        ([message(0, msg_id=None)], "every_message_has_an_id"),
        ([message(0), message(1, physical_offset=100)], "records_fit_into_their_range"),
        ([message(0, broker=None)], "brokers_are_named"),
    ],
)
def test_rows_that_no_broker_writes_are_critical(rows: list[Row], name: str) -> None:
    report = judge_profile(profile_of(rows), suite_with(name), FACTS)
    assert name in {found.expectation.name for found in report.critical_failures}
    assert any("critical: " in line and name in line for line in expectation_sentences(report))


@pytest.mark.some_cases(5)
@pytest.mark.parametrize(
    ("rows", "name"),
    [
        ([message(0, reconsume_times=-1)], "numbers_are_not_negative"),  # a client may send it
        ([message(0, queue_id=-1)], "numbers_are_not_negative"),
        ([message(0, queue_offset=-1)], "numbers_are_not_negative"),
        ([message(0, store_timestamp=None)], "messages_have_a_time"),
        ([message(0, topic="")], "topics_are_named"),
        ([message(0, body_codec="unknown")], "codecs_are_known"),
        ([message(0, born_timestamp=LATER)], "messages_are_born_before_they_are_stored"),
        ([message(0, topic="%DLQ%g", kind="dlq")], "no_dead_letters"),
        ([message(0, unique_key=None)], "clients_give_message_ids"),
        ([message(0, size=5 << 20)], "records_are_not_huge"),
        ([message(0, store_timestamp=LATER + datetime.timedelta(hours=1))], "no_message_is_from_the_future"),
        (
            [message(0, store_timestamp=datetime.datetime(1999, 1, 1, tzinfo=datetime.UTC))],
            "no_message_is_from_before_2010",
        ),
        ([message(2000), message(2001, store_timestamp=NOON)], "clocks_do_not_step_back"),
    ],
)
def test_unusual_rows_are_a_warning(rows: list[Row], name: str) -> None:
    report = judge_profile(profile_of(rows), suite_with(name), FACTS)
    assert report.has_passed
    assert name in {found.expectation.name for found in report.warnings}


@pytest.mark.parametrize(
    "year",
    [1, 9999, *(pytest.param(year, marks=pytest.mark.long("nearer to the bounds")) for year in (1677, 2263))],
)
def test_a_time_beyond_nanoseconds_is_judged(year: int) -> None:
    last = datetime.datetime(year, 12, 31, 23, 59, 59, 999_000, tzinfo=datetime.UTC)
    rows = [message(0), message(1, store_timestamp=last)]
    windows = build_window_frame(profile_of(rows), FACTS)
    assert sorted(windows["stored_s"]) == sorted(row["store_timestamp"].timestamp() for row in rows)
    assert "<svg" in page_of_run(judged(rows), figures_of(profile_of(rows)))


def test_a_queue_with_nearly_all_messages_is_a_warning() -> None:
    rows = [message(n, queue_offset=n) for n in range(3000)]
    rows += [message(4000 + n, queue_id=1 + n, queue_offset=0) for n in range(3)]
    assert unmet(judged(rows)) == {"queues_share_the_load"}
    assert unmet(judged(rows[:900])) == set()


def test_files_and_logs_are_compared_with_the_profile() -> None:
    rows = messages(range(10))
    assert unmet(judged(rows, RunFacts({"a": BrokerFacts(log_bytes=2000)}, written=10, now=LATER))) == set()
    assert unmet(judged(rows, RunFacts(written=11, now=LATER))) == {"profile_and_files_agree"}
    short = RunFacts({"a": BrokerFacts(log_bytes=1999)}, now=LATER)
    assert unmet(judged(rows, short)) == {"messages_fit_into_the_log"}
    assert unmet(judged(rows, RunFacts({"a": BrokerFacts(marked_rows=3)}, now=LATER))) == {"values_fit_their_columns"}
    quiet = RunFacts({"quiet": BrokerFacts(bad_ranges=1)}, now=LATER)
    assert unmet(judged(rows, quiet)) == {"logs_are_intact"}


def test_a_profile_that_was_not_merged_is_critical() -> None:
    twice = pa.concat_tables([profile_of(messages(range(5))), profile_of(messages(range(5, 9)))])
    assert "windows_are_unique" in {
        one.expectation.name for one in judge_profile(twice, run_facts=FACTS).critical_failures
    }
    assert judge_profile(merge_profiles([twice]), run_facts=FACTS).has_passed


def test_examples_are_the_first_few() -> None:
    rows = [message(n * 600, kind="odd", queue_offset=n) for n in range(50)]
    (found,) = judged(rows).critical_failures
    assert (found.unexpected, found.judged, len(found.examples)) == (50, 50, 10)


def test_a_sentence_names_the_place_and_the_brokers() -> None:
    rows = [message(1, kind="odd"), *messages(range(5), broker="b"), message(0, broker="c", topic="x\x1b[2J", kind="")]
    report = judge_profile(profile_of(rows), suite_with("kinds_are_known"), FACTS)
    (line,) = (line for line in expectation_sentences(report) if line.endswith(" (expectation rows.kinds_are_known)"))
    assert "broker 'a', topic 'orders', queue 0, from 2026-11-20T12:00:00+00:00 on; " in line
    assert "broker 'c', topic 'x\\x1b[2J', queue 0" in line
    assert brokers_with_failures(report) == ["a", "c"]
    many = [message(0, broker=f"b{n:02d}", kind="odd") for n in range(20)]
    assert brokers_with_failures(judge_profile(profile_of(many), suite_with("kinds_are_known"), FACTS)) is None
    unnamed = judge_profile(profile_of([message(0, broker=None, kind="odd")]), suite_with("kinds_are_known"), FACTS)
    assert brokers_with_failures(unnamed) is None


# --- neither good nor bad ---


def suite_of(kind: str, grain: Grain = Grain.WINDOW, **kwargs: object) -> Suite:
    """Return a suite of one expectation."""
    return Suite("own", grain, "", (Expectation("one", kind, kwargs, Severity.CRITICAL, "why", "what"),))


def test_a_missing_column_is_an_error() -> None:
    with pytest.raises(QualityError, match="the columns nope, which a window does not have; it has broker, topic"):
        judge_profile(profile_of([message()]), [suite_of("ExpectColumnMaxToBeBetween", column="nope", max_value=1)])


@pytest.mark.parametrize(
    ("suite", "words"),
    [
        (suite_of("ExpectNothing", column="topic"), "has no expectation ExpectNothing"),
        (suite_of("ExpectColumnMaxToBeBetween", column="topic", max_value=1), "could not be checked"),
        (suite_of("ExpectColumnMaxToBeBetween", column="bytes", no_argument=1), "could not be checked"),
        (suite_of("ExpectColumnValuesToMatchRegex", column="messages", regex="("), "could not be checked"),
    ],
)
def test_an_error_within_is_an_error_and_not_bad_data(suite: Suite, words: str) -> None:
    with pytest.raises(QualityError, match=words):
        judge_profile(profile_of([message()]), [suite])


def test_a_table_that_is_not_a_profile_is_an_error() -> None:
    with pytest.raises(ProfileError):
        judge_profile(pa.table({"messages": [1]}))


# --- the results' rows, and what is left of it all ---


def test_results_are_rows_of_their_table() -> None:
    report = judged([message(0), message(5, queue_offset=5)])
    table = to_quality_results(report, run_id="r")
    assert table.num_rows == len(report.judgements)
    (row,) = [row for row in table.to_pylist() if not row["success"] and row["severity"] == "damage"]
    assert (row["run_id"], row["suite"], row["observed_value"]) == ("r", "queues", "4")
    assert json.loads(row["examples"][0])["topic"] == "orders"
    assert row["judged_at"] == LATER
    assert dataclasses.replace(report, judgements=()).has_passed


@pytest.mark.long("imports and expectations change only with great_expectations")
def test_judging_uses_no_network_and_leaves_no_files(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            """
            import socket, sys, warnings
            warnings.simplefilter("error")
            def refuse(*arguments, **options):
                sys.stderr.write(f"reached for {arguments}")
                raise OSError("no network here")
            socket.socket.connect = socket.socket.connect_ex = socket.socket.sendto = refuse
            socket.getaddrinfo = socket.create_connection = socket.gethostbyname = refuse
            from tests.support.judged_profiles import judge_profile
            from commitlake.pipelines.quality.great_expectations_loading import start_loading_thread
            from tests.support.profiles import messages, profile_of
            start_loading_thread()
            report = judge_profile(profile_of(messages(range(20))))
            print(len(report.judgements), report.has_passed)
            """
        )
    )
    home = tmp_path / "home"
    home.mkdir()
    root = Path(__file__).parents[4]
    environment = {"HOME": str(home), "PYTHONPATH": str(root), "GX_ANALYTICS_ENABLED": "true", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, str(program)],
        env=environment,
        cwd=home,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.stdout.split(), done.stderr, done.returncode) == (
        [str(sum(len(suite.expectations) for suite in SUITES)), "True"],
        "",
        0,
    )
    assert list(home.rglob("*")) == []


def test_great_expectations_does_not_log_its_folders(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        judge_profile(profile_of(messages(range(10))))
    assert not [record for record in caplog.records if record.name.startswith("great_expectations")]
