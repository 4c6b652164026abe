"""`tests/unit` mirrors the tree: the tests of a module are at the same path.

A module `a/b/c.py` has its tests in `tests/unit/a/b/test_c.py`. It needs no such file if it has no code (constants,
errors, protocols), or if a test in `tests/unit/a/b` imports it, directly or through other modules of `a/b`, and so
tests it. The remaining modules are listed here, each with the test that covers it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.source_tree import FOLDERS, ROOT, has_code, imported, modules, python_files, reached

UNIT = Path("tests/unit")
OTHER_FOLDERS = {
    "benchmarks": "mirrors tests/benchmarks, which is a program of its own",
    "docs": "mirrors docs/generate, and tests statements of the documentation",
}
TESTED_BY: dict[str, tuple[str, ...]] = {
    "tests/integration/hbase/test_follower.py": ("connectors.hbase.table_update",),
    "tests/integration/hbase/test_jobs.py": ("pipelines.query.engines",),
    "tests/integration/hbase/test_lookups.py": ("connectors.hbase.lookups",),
    "tests/integration/spark/test_analysed_journeys.py": ("pipelines.journeys.spark_journeys",),
    "tests/integration/spark/test_query_engines.py": ("connectors.spark.plan_check", "connectors.lake.spark_reader"),
    "tests/unit/broker_lite/handlers/test_broker_resources.py": (
        "broker_lite.broker.statistics",
        "broker_lite.broker.topics",
    ),
    "tests/unit/broker_lite/handlers/test_groups_and_progress.py": ("broker_lite.broker.groups",),
    "tests/unit/broker_lite/handlers/test_long_requests.py": ("broker_lite.protocol.large_answer_bodies",),
    "tests/unit/broker_lite/handlers/test_pulling.py": ("broker_lite.broker.held_pulls",),
    "tests/unit/broker_lite/replication/test_role.py": ("broker_lite.broker.broker",),
    "tests/unit/broker_lite/shop/test_traffic.py": ("broker_lite.shop_traffic",),
    "tests/unit/broker_lite/stores/jmq/test_journal_recovery.py": ("schemas.layouts.jmq.checkpoint",),
    "tests/unit/broker_lite/stores/jmq_adapter/test_jmq_administration.py": ("broker_lite.broker.store_layouts",),
    "tests/unit/broker_lite/stores/rocketmq/test_batch_queues.py": ("broker_lite.stores.engine.queue_reader",),
    "tests/unit/broker_lite/stores/rocketmq/test_flushing.py": ("broker_lite.stores.engine.flushing",),
    "tests/unit/broker_lite/stores/rocketmq/test_light_queues.py": ("schemas.layouts.rocketmq.light_queues",),
    "tests/unit/broker_lite/stores/rocketmq/test_ownership.py": ("broker_lite.stores.engine.store_lock",),
    "tests/unit/broker_lite/stores/rocketmq/test_message_preparation.py": ("broker_lite.stores.engine.topic_names",),
    "tests/unit/broker_lite/stores/rocketmq/test_recovery.py": (
        "broker_lite.stores.engine.log_writer",
        "broker_lite.stores.engine.record_log",
    ),
    "tests/unit/broker_lite/stores/rocketmq/test_retention.py": ("broker_lite.stores.engine.retention",),
    "tests/unit/broker_lite/stores/rocketmq/test_timer_files.py": ("schemas.layouts.rocketmq.timers",),
    "tests/unit/broker_lite/stores/rocketmq/test_vectors.py": (
        "broker_lite.stores.engine.entry_queue",
        "broker_lite.stores.engine.queue_table",
    ),
    "tests/unit/connectors/reading/test_batches.py": (
        "connectors.reading.decoding.columns",
        "connectors.reading.decoding.decoder",
        "connectors.reading.decoding.row_batch",
        "connectors.reading.kernel.buffers",
        "connectors.reading.kernel.layouts",
        "connectors.formats.rocketmq.kernel.columns",
    ),
    "tests/unit/connectors/reading/test_boltmq_indexes.py": ("connectors.formats.rocketmq.dialects",),
    "tests/unit/connectors/reading/test_cuts.py": ("connectors.reading.kernel.record_starts",),
    "tests/unit/connectors/reading/test_key_index.py": ("connectors.formats.rocketmq.key_index",),
    "tests/unit/connectors/reading/test_live_store.py": (
        "connectors.reading.store_identity_check",
        "connectors.formats.rocketmq.compiled_loops",
        "jobs.cli.warm",
    ),
    "tests/unit/connectors/reading/test_pulled.py": (
        "connectors.formats.rocketmq.kernel.pulled_records",
        "connectors.formats.rocketmq.pulled_records",
    ),
    "tests/unit/connectors/reading/test_walk.py": (
        "connectors.reading.kernel.decode",
        "connectors.reading.kernel.record_walk",
    ),
    "tests/unit/connectors/formats/index_entries/test_index_rows.py": (
        "connectors.formats.queue_walking",
        "connectors.formats.rocketmq.indexes",
    ),
    "tests/unit/connectors/formats/index_entries/test_queue_rows.py": ("connectors.formats.rocketmq.record_rules",),
    "tests/unit/connectors/formats/jmq/test_consume_log_rows.py": ("connectors.formats.jmq.kernel.consumptions",),
    "tests/unit/connectors/formats/jmq/test_journal_batches.py": (
        "connectors.formats.jmq.kernel.columns",
        "connectors.formats.jmq.kernel.decimal_text",
        "connectors.formats.jmq.kernel.properties",
        "connectors.formats.jmq.kernel.records",
    ),
    "tests/unit/connectors/reading/test_newer_data.py": ("connectors.formats.rocketmq.log_folders",),
    "tests/unit/connectors/formats/test_toy_format.py": (
        "connectors.log_format.format",
        "connectors.log_format.indexes",
        "connectors.log_format.queues",
        "connectors.log_format.records",
        "connectors.log_format.checkpoint_and_config",
        "connectors.reading.uncompiled_records",
        "connectors.formats.rocketmq.format",
    ),
    "tests/unit/connectors/rocketmq/source/test_source_options.py": ("connectors.rocketmq.spark_options",),
    "tests/unit/connectors/shipping/test_folder_target.py": ("connectors.checksums",),
    "tests/unit/connectors/storage/test_hdfs_storage.py": ("connectors.shipping.storage_target",),
    "tests/unit/jobs/metrics/test_traffic_metrics.py": ("pipelines.archive_health.traffic",),
    "tests/unit/jobs/snapshot/test_command.py": ("connectors.lake.snapshot_tables",),
    "tests/unit/jobs/tps/test_compare.py": ("pipelines.tps.comparison",),
    "tests/unit/pipelines/snapshot/test_store_file_reader.py": ("connectors.formats.config_files",),
    "tests/unit/pipelines/repair/test_refill_from_stores.py": (
        "connectors.lake.lost_ranges",
        "jobs.cli.lost_range_warnings",
        "pipelines.audit.checksums_after_repair",
    ),
    "tests/unit/jobs/archive/test_follow_stores.py": (
        "connectors.lake.follower_progress",
        "connectors.lake.archive_run_completion",
    ),
    "tests/unit/jobs/audit/test_command.py": ("pipelines.audit.store_ranges", "pipelines.audit.verdicts"),
    "tests/unit/jobs/audit/test_local.py": ("pipelines.audit.comparisons",),
    "tests/unit/jobs/cli/test_main.py": ("jobs.cli.damaged_file_errors", "jobs.arguments.lake_location"),
    "tests/unit/jobs/cli/test_permissions.py": ("connectors.lake.committer",),
    "tests/unit/jobs/arguments/test_runner.py": ("jobs.arguments.unknown_lake_names",),
    "tests/unit/jobs/cli/test_terminal.py": ("connectors.printable", "jobs.arguments.store_queues"),
    "tests/unit/jobs/evidence/test_command.py": ("jobs.arguments.evidence_key", "pipelines.evidence.archive_evidence"),
    "tests/unit/jobs/maintain/test_command.py": ("connectors.lake.rows.data_files",),
    "tests/unit/jobs/publish/test_command.py": ("connectors.iceberg.named_table",),
    "tests/unit/jobs/query/test_bodies.py": ("connectors.lake.packs.body_reader",),
    "tests/unit/jobs/test_planted_stores.py": ("connectors.spark.session",),
    "tests/unit/pipelines/analysis/test_lake.py": ("pipelines.lineage.record_bodies",),
    "tests/unit/pipelines/analysis/test_rates_arguments.py": ("schemas.tables.rates",),
    "tests/unit/pipelines/archive/from_broker/test_pulled_archive.py": (
        "connectors.lake.store_progress",
        "connectors.rocketmq.log_reading",
    ),
    "tests/unit/pipelines/archive/test_hbase_follows.py": ("connectors.hbase.progress",),
    "tests/unit/pipelines/archive/test_profile_files.py": ("connectors.lake.manifest",),
    "tests/unit/pipelines/audit/test_table_checks.py": ("connectors.lake.rows.small_table_files",),
    "tests/unit/pipelines/audit/test_counts_by_window.py": ("schemas.tables.profile",),
    "tests/unit/jobs/maintain/test_typed_topics.py": ("pipelines.maintenance.topic_expiry",),
    "tests/unit/pipelines/maintenance/test_pack_merging.py": (
        "connectors.lake.archive_commits",
        "connectors.lake.delta_log.history",
    ),
    "tests/unit/pipelines/message_keys/test_message_keys.py": ("pipelines.query.key_conditions",),
    "tests/unit/jobs/tps/test_report.py": ("pipelines.tps.report",),
    "tests/unit/jobs/tps/test_other_questions.py": (
        "pipelines.tps.delayed_messages",
        "pipelines.tps.rate_tables_of_stores",
    ),
    "tests/unit/pipelines/topic_minutes/test_minute_counts.py": ("schemas.tables.topic_minutes",),
    "tests/unit/pipelines/rebuild/test_rebuilt_files.py": ("connectors.formats.rocketmq.queue_writer",),
    "tests/unit/pipelines/rebuild/test_topic_kinds.py": ("connectors.reading.index_data.topic_kinds",),
    "tests/unit/jobs/dlq/test_command.py": ("pipelines.replay.groups.outcomes",),
    "tests/unit/jobs/offsets/test_command.py": (
        "pipelines.offsets.past_offsets",
        "pipelines.offsets.offset_sources",
        "pipelines.offsets.live_queues",
        "pipelines.offsets.plan",
        "pipelines.offsets.group_offsets",
    ),
    "tests/unit/pipelines/restore/test_config_files.py": ("connectors.lake.store_config",),
    "tests/unit/pipelines/verify/test_rocketmq_damages.py": (
        "connectors.formats.rocketmq.index_data",
        "connectors.formats.rocketmq.kernel.index_data",
        "connectors.formats.rocketmq.queue_rules",
        "connectors.formats.rocketmq.checkpoint_and_config",
    ),
    "tests/unit/broker_lite/stores/engine/test_file_queue.py": ("broker_lite.errors",),
}
"""Modules by the tests that they are a part of: their own folder's tests do not reach them."""


@pytest.fixture(scope="module")
def imports() -> dict[str, frozenset[str]]:
    """The imports of each module."""
    return {name: imported(path) for name, path in modules().items()}


@pytest.fixture(scope="module")
def tests_of() -> dict[Path, set[str]]:
    """The imports of each folder's tests."""
    found: dict[Path, set[str]] = {}
    for path in python_files(str(UNIT)):
        if path.name.startswith("test_"):
            found.setdefault(path.parent, set()).update(imported(path))
    return found


@pytest.fixture(scope="module")
def without_tests(imports: dict[str, frozenset[str]], tests_of: dict[Path, set[str]]) -> list[str]:
    """Modules with code that are tested neither by a file of their own nor by their folder's tests."""
    found = []
    for name, path in modules().items():
        if path.name in {"__init__.py", "__main__.py"} or (ROOT / UNIT / path.parent / f"test_{path.name}").exists():
            continue
        package = name.rpartition(".")[0]
        inside = {other: imports[other] for other in imports if package in {other, other.rpartition(".")[0]}}
        if name not in reached(tests_of.get(UNIT / path.parent, set()), inside) and has_code(path):
            found.append(name.removeprefix("commitlake."))
    return found


def test_every_module_has_its_tests(without_tests: list[str]) -> None:
    listed = {name for names in TESTED_BY.values() for name in names}
    lacking = [
        f"{name}: expected {UNIT / name.replace('.', '/')} as test_*.py" for name in without_tests if name not in listed
    ]
    assert lacking == []


def test_every_listed_module_lacks_its_own_test(without_tests: list[str]) -> None:
    assert {name for names in TESTED_BY.values() for name in names} - set(without_tests) == set()


def test_every_listed_test_reaches_its_modules(imports: dict[str, frozenset[str]]) -> None:
    known, unreached = {**imports, **imports_of_helpers()}, []
    for test, names in TESTED_BY.items():
        assert (ROOT / test).exists(), f"{test} is gone: name the test that has taken its place"
        found = reached(imported(Path(test)), known)
        unreached += [f"{test} does not reach {name}" for name in names if f"commitlake.{name}" not in found]
    assert unreached == []


def test_every_folder_of_tests_mirrors_a_package(tests_of: dict[Path, set[str]]) -> None:
    packages = {Path(*path.parent.parts) for path in modules().values()}
    folders = {folder.relative_to(UNIT) for folder in tests_of} - {Path()}
    assert {folder for folder in folders if folder not in packages and folder.parts[0] not in OTHER_FOLDERS} == set()


def test_a_test_imports_the_module_that_it_is_named_after(imports: dict[str, frozenset[str]]) -> None:
    """Only files with a module's name are checked; an import through helpers counts."""
    paths, known = {path: name for name, path in modules().items()}, {**imports, **imports_of_helpers()}
    strangers = []
    for path in (path for folder in FOLDERS for path in python_files(f"{UNIT}/{folder}")):
        module = paths.get(path.relative_to(UNIT).with_name(path.name.removeprefix("test_")))
        if path.name.startswith("test_") and module and module not in reached(imported(path), known):
            strangers.append(f"{path} does not import {module}")
    assert strangers == []


def imports_of_helpers() -> dict[str, frozenset[str]]:
    """Return the imports of each helper of the tests."""
    return {".".join(path.with_suffix("").parts): imported(path) for path in python_files("tests/support")}
