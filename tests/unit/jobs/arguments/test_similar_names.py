"""Tests of unknown names of settings, topics and brokers, and of options without an effect."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

from commitlake.connectors.lake.erasures import MARKER
from commitlake.connectors.rocketmq.options import (
    ACCESS_KEY_VARIABLE,
    SECRET_KEY_VARIABLE,
)
from commitlake.jobs.arguments.similar_names import known_names_hint, suggest_similar_name
from commitlake.jobs.cli.command import job_parser, run_job
from commitlake.jobs.cli.settings_check import OTHER_VARIABLES, VARIABLES, environment_variables_of_jobs
from commitlake.jobs.dump import command as dump
from commitlake.jobs.erase import command as erase
from commitlake.jobs.explain import command as explain
from commitlake.jobs.guard import command as guard
from commitlake.jobs.lag import command as lag
from commitlake.jobs.query import command as query
from commitlake.jobs.rebuild import command as rebuild
from commitlake.jobs.tps import command as tps
from commitlake.jobs.verify import command as verify
from commitlake.pipelines.masking.masks import KEY_VARIABLE as MASK_KEY_VARIABLE
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.rocketmq.sysflag import INNER_BATCH
from commitlake.schemas.remoting.tls_properties import CLIENT_PASSWORD_VARIABLE
from tests.support.jmq_stores import write_jmq_store
from tests.support.logs import messages, new_message, open_segment, write_store

pytestmark = pytest.mark.usefixtures("own_folder")
ROOT = Path(__file__).parents[4]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with a folder of queues."""
    root = write_store(tmp_path / "store", [(0, open_segment(messages(5), 1 << 16))])
    (root / "consumequeue" / "orders" / "0").mkdir(parents=True)
    return root


def run(*arguments: str) -> int:
    """Return the exit code of a job with two options."""
    parser = job_parser("archive", "Archive.", [])
    parser.add_argument("--store")
    parser.add_argument("--max-rows")
    return run_job(parser, lambda _: ExitCode.OK, arguments)


def test_the_nearest_name_is_suggested() -> None:
    assert suggest_similar_name("ordes", ["payments", "orders"]) == " Did you mean 'orders'?"
    assert suggest_similar_name("zzz", ["payments", "orders"]) == ""
    assert known_names_hint([]) == "there are none"
    assert known_names_hint(f"t{number}" for number in range(10)).endswith("t7 and 2 more")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "[archvie]\nstore = 'x'\n",
            "no job has the name 'archvie', so its table is not read. Did you mean 'archive'?",
        ),
        ("store = 'x'\n", "no job has the name 'store', so its key is not read"),
        ("[archive]\nstoer = 'x'\n", "key 'stoer', which is not an option of this job. Did you mean 'store'?"),
        ("archive = 1\n", "expected 'archive' as the table [archive], found a value"),
    ],
)
def test_a_file_of_settings_with_a_wrong_name_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(SystemExit) as ended:
        run("--config", str(file))
    assert ended.value.code == 2
    assert words in " ".join(capsys.readouterr().err.split())


def test_settings_of_other_jobs_are_accepted(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[archive]\nstore = 'x'\n[query]\nlake = 'y'\n")
    assert run("--config", str(file)) == 0


@pytest.mark.parametrize(
    ("variable", "warns"),
    [("COMMITLAKE_STORRE", True), ("COMMITLAKE_STORE", False), ("COMMITLAKE_JARS", False), ("COMMITLAKE_LIMIT", False)],
)
def test_a_variable_that_no_job_reads_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], variable: str, warns: bool
) -> None:
    monkeypatch.setenv(variable, "1")
    assert run() == 0
    error = capsys.readouterr().err
    assert ("Did you mean 'COMMITLAKE_STORE'?" in error) == warns
    assert bool(error) == warns


def test_variables_named_in_the_code_are_known() -> None:
    folders = [ROOT / name for name in ("connectors", "jobs", "pipelines", "schemas", "broker_lite")]
    sources = [path.read_text() for folder in folders for path in folder.rglob("*.py")]
    named = {name for source in sources for name in re.findall(r"\bCOMMITLAKE_[A-Z]\w+", source)}
    named -= {MARKER, "COMMITLAKE_MASKED"}  # properties of messages
    assert {ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE, CLIENT_PASSWORD_VARIABLE, MASK_KEY_VARIABLE} <= named
    assert named - OTHER_VARIABLES <= environment_variables_of_jobs()


def test_variables_listed_without_a_parser_belong_to_options() -> None:
    assert environment_variables_of_jobs() >= VARIABLES


@pytest.mark.parametrize(
    ("job", "given", "name"),
    [
        ("dlq", ["--group", "\udcff"], "--group"),
        ("replay", ["--topic", "orders", "--topic", "a\udcffb"], "--topic"),
        ("replay", ["show", "\udcff"], "ID"),
        ("erase", ["--key", "\udcff", "--reason", "x"], "--key"),
        ("offsets", ["--group", "g", "--at", "now", "--topic", "\udcff"], "--topic"),
        ("tps", ["--tag", "\udcff"], "--tag"),
        ("query", ["--where", "topic = '\udcff'"], "--where"),
    ],
)
def test_arguments_that_are_not_utf_8_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], job: str, given: list[str], name: str
) -> None:
    command = importlib.import_module(f"commitlake.jobs.{job}.command")
    with pytest.raises(SystemExit) as ended:
        command.main([*given, "--lake", str(tmp_path)])
    assert ended.value.code == ExitCode.USAGE
    assert f"error: {name}: expected text in UTF-8, found " in capsys.readouterr().err


def test_the_name_of_a_file_need_not_be_utf_8(capsys: pytest.CaptureFixture[str]) -> None:
    parser = job_parser("demo", "", [])
    parser.add_argument("--out", metavar="FILE")
    assert run_job(parser, lambda given: ExitCode(given.out != "\udcff"), ["--out", "\udcff"]) == ExitCode.OK
    assert capsys.readouterr().err == ""


def test_a_topic_without_queues_is_named_by_a_warning(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dump.main([str(store), "--consumequeue", "--topic", "ordes"]) == 0
    assert "no queue of a topic 'ordes'. Did you mean 'orders'?" in capsys.readouterr().err


def test_a_queue_that_a_topic_does_not_have_is_named_by_a_warning(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dump.main([str(store), "--consumequeue", "--topic", "orders", "--queue", "7"]) == 0
    assert "the store has no queue 7 of 'orders'; there are 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "warning"),
    [
        (["--topic", "ordes"], "there is no queue of a topic 'ordes'. Did you mean 'orders'?"),
        (["--topic", "orders", "--queue", "7"], "there is no queue 7 of 'orders'; there are 0"),
        (["--queue", "7"], "there is no queue 7 of any topic; there are 0"),
        (["--topic", "orders", "--queue", "0"], ""),
    ],
)
def test_explain_warns_of_topics_and_queues_that_no_store_has(
    store: Path, capsys: pytest.CaptureFixture[str], options: list[str], warning: str
) -> None:
    assert explain.main([str(store), *options]) == 0
    error = capsys.readouterr().err
    assert warning in error
    assert bool(error) == bool(warning)


def test_explain_does_not_warn_of_topics_if_a_store_has_no_queue_folders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_store(tmp_path / "bare", [(0, open_segment(messages(5), 1 << 16))])
    assert explain.main([str(root), "--topic", "ordes"]) == 0
    assert capsys.readouterr().err == ""


def test_a_rebuild_of_an_unknown_topic_is_refused(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(store), "--out", str(tmp_path / "out"), "--local", "--quiet", "--topic"]
    assert rebuild.main([*arguments, "ordes"]) == 2
    assert "contain a topic 'ordes'. Did you mean 'orders'?" in capsys.readouterr().err


def test_a_refused_rebuild_of_some_topics_leaves_the_folder_empty(store: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    topic = messages(1)[0].topic
    arguments = [str(store), "--out", str(out), "--local", "--quiet", "--topic", topic]
    assert rebuild.main([*arguments, "--topic", "nowhere"]) == 2
    assert list(out.iterdir()) == []
    assert rebuild.main(arguments) == 0


def test_a_topic_with_batch_queues_only_is_rebuilt(tmp_path: Path) -> None:
    batch = new_message(queue_id=2, sys_flag=INNER_BATCH, properties=(("INNER_NUM", "3"),))
    root = write_store(tmp_path / "store", [(0, open_segment([batch], 1 << 16))])
    out = tmp_path / "out"
    assert rebuild.main([str(root), "--out", str(out), "--local", "--quiet", "--topic", batch.topic]) == 0
    assert (out / "batchconsumequeue" / batch.topic / "2").is_dir()


def test_guard_warns_of_a_store_that_is_not_in_the_lake(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "_read_progress", lambda _: {"broker-a": None})
    guard.main(["--store", str(store), "--lake", str(tmp_path / "lake"), "--broker", "broker-aa"])
    assert "the lake has no store 'broker-aa'; none of its messages is archived. Did you mean 'broker-a'?" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("main", "options", "words"),
    [
        (verify.main, ["--s3-region", "x", "--local"], "--s3-region has no effect without --lake"),
        (dump.main, ["--index", "--body-as", "text"], "--body-as and --index cannot be used together"),
    ],
)
def test_an_option_without_an_effect_is_refused(
    store: Path, capsys: pytest.CaptureFixture[str], main: object, options: list[str], words: str
) -> None:
    assert main([str(store), *options]) == 2  # type: ignore[operator]
    assert words in capsys.readouterr().err


def test_index_options_are_refused_for_a_jmq_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write_jmq_store(tmp_path / "jmq", 20)
    assert rebuild.main([str(root), "--out", str(tmp_path / "out"), "--local", "--index-slots", "5"]) == 2
    assert "--index-slots has no effect: a JMQ store has no IndexFiles" in capsys.readouterr().err


def test_an_option_without_an_effect_is_accepted_from_the_environment(
    store: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COMMITLAKE_PROCESSES", "2")
    monkeypatch.setattr("commitlake.connectors.spark.session.get_session", lambda *_: next(iter(())))
    command = verify.Verify.parse(str(store), "--spark")
    with pytest.raises(StopIteration):  # the job got as far as opening a session
        command.run()


@pytest.mark.parametrize(
    ("job", "one", "other"),
    [
        (dump, ["s", "--body-as", "text"], ["s", "--body", "text"]),
        (erase, ["--lake", "l", "--vacuum-after", "2d"], ["--lake", "l", "--retention", "2d"]),
        (query, ["--lake", "l", "--engine", "spark"], ["--lake", "l", "--spark"]),
        (tps, ["--lake", "l", "--engine", "spark"], ["--lake", "l", "--spark"]),
    ],
    ids=["dump", "erase", "query", "tps"],
)
def test_two_names_of_an_option_mean_the_same(job: ModuleType, one: list[str], other: list[str]) -> None:
    assert job.build_parser().parse_args(one) == job.build_parser().parse_args(other)


def test_a_variable_of_another_jobs_option_is_not_read_as_an_older_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMMITLAKE_BODY", "true")  # a flag of query, and an older name of dump's --body-as
    assert dump.build_parser().parse_args(["s"]).body == "none"
    assert query.build_parser().parse_args(["--lake", "l"]).body
    monkeypatch.setenv("COMMITLAKE_BODY", "text")
    assert dump.build_parser().parse_args(["s"]).body == "text"


@pytest.mark.parametrize(
    ("job", "given", "error"),
    [
        (query, "--lak", "required: --lake; --lak is not an option. Did you mean '--lake'?"),
        (
            query,
            "--keep",
            "required: --lake; --keep is not an option. 'commitlake query --help' shows",
        ),  # four of six characters are as in --lake
        (query, "--lak=x", "required: --lake; --lak is not an option. Did you mean '--lake'?"),
        (lag, "--stroe", "one of the arguments --lake --store is required; --stroe is not an option. Did you mean"),
        (query, "--body", "the following arguments are required: --lake. 'commitlake query --help' shows all options"),
    ],
)
def test_a_missing_option_is_reported_with_an_unknown_one(
    job: ModuleType, given: str, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        job.main([given])
    assert ended.value.code == ExitCode.USAGE
    printed = capsys.readouterr().err
    assert error in printed
    assert printed.count("\n") == 1, "the usage is not printed"
