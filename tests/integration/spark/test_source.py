"""The source `commitlog` in Spark: with all options, it gives the rows of the plain reader."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from commitlake import register
from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.reading.snapshots import Snapshot, StoreRange, take_snapshot
from commitlake.connectors.reading.stores import find_stores
from commitlake.connectors.sources.commitlog import PUSHDOWN_SETTING
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.rocketmq.sysflag import BodyCodec, compression_bits
from commitlake.schemas.tables.messages import SOURCE
from commitlake.schemas.tables.spark_schemas import spark_field, spark_schema
from tests.support.comparing import Row, intact, plain_rows, spark_rows
from tests.support.logs import START_MS, closed_segment, messages, new_message, open_segment, records, write_store

SIZE = 16384
TEXT = b"a body that repeats, a body that repeats " * 20
PLAIN_COLUMNS = [field.name for field in SOURCE if field.name not in ("body", "_corrupt_record")]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two brokers' stores, of three segments and of one, with every kind of field."""
    root = tmp_path_factory.mktemp("brokers")
    odd = [
        new_message(0, topic="订单", properties=(("KEYS", "订单-1 a"), ("ö", "😀"), ("UNIQ_KEY", "U"))),
        new_message(1, topic="%RETRY%" + "g" * 140, born_host=Host.of("2001:db8::1", 1), properties=()),
        new_message(2, body=zlib.compress(TEXT), sys_flag=compression_bits(BodyCodec.ZLIB)),
        new_message(3, body=b""),
    ]
    parts = [(SIZE * number, closed_segment(messages(30, seed=number), SIZE, SIZE * number)) for number in range(2)]
    write_store(root / "broker-a" / "store", [*parts, (2 * SIZE, open_segment(odd, SIZE, 2 * SIZE))])
    write_store(root / "broker-b" / "store", [(0, open_segment(messages(25, seed=9), SIZE))])
    return root


@pytest.fixture(scope="module")
def store(brokers: Path) -> Path:
    """The first broker's store."""
    return brokers / "broker-a" / "store"


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a flipped bit in a body, a lying size, and properties that are not UTF-8."""
    root = tmp_path_factory.mktemp("damaged") / "broker-d" / "store"
    sent = [new_message(number) for number in range(20)]
    data = bytearray(open_segment([*sent, new_message(20, properties=(("city", "Muenchen"),)), new_message(21)], SIZE))
    size = len(records(sent[:1])[0])
    data[3 * size + 88] ^= 1
    data[7 * size : 7 * size + 4] = b"\x7f\xff\xff\xff"
    return write_store(root, [(0, bytes(data.replace(b"Muenchen", b"M\xfcnchen1")))])


def read(spark: SparkSession, path: Path | str, **options: object) -> DataFrame:
    """Return a DataFrame of the source."""
    reader = spark.read.format("commitlog")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load(str(path))


@pytest.fixture(scope="module")
def all_rows(spark: SparkSession, store: Path) -> DataFrame:
    """The store's rows as a DataFrame that Spark holds itself: it filters them without the source."""
    return spark.createDataFrame(read(spark, store).toArrow())


def text_of(error: pytest.ExceptionInfo[PySparkException]) -> str:
    """Return the whole text of an error of Spark's."""
    return str(error.value)


# --- rows ---


@pytest.mark.parametrize("mode", ["FAILFAST", "PERMISSIVE", "DROPMALFORMED"])
def test_an_intact_store_reads_the_same_in_every_mode(spark: SparkSession, store: Path, mode: str) -> None:
    frame = read(spark, store, mode=mode)
    assert frame.columns == PLAIN_COLUMNS + (["_corrupt_record"] if mode == "PERMISSIVE" else [])
    rows = spark_rows(frame)
    assert [row.pop("_corrupt_record", None) for row in rows] == [None] * 64
    assert rows == plain_rows(store)


def test_the_schema_is_that_of_the_table(spark: SparkSession, store: Path) -> None:
    for field in read(spark, store, mode="PERMISSIVE", body="stored").schema:
        assert (field.dataType, field.nullable) == (spark_field(SOURCE[field.name]).dataType, True)


@pytest.mark.parametrize("size", [400, 5000, 1 << 20])
def test_rows_do_not_depend_on_how_the_log_is_divided(spark: SparkSession, store: Path, size: int) -> None:
    frame = read(spark, store, maxPartitionBytes=size, maxBatchBytes=max(8, size // 3))
    assert frame.rdd.getNumPartitions() == len(plan_of(store, size))
    assert spark_rows(frame) == plain_rows(store)


def plan_of(store: Path, size: int) -> list[object]:
    """Return the splits of a store."""
    from commitlake.connectors.reading.snapshots import plan_splits

    (found,) = find_stores(str(store), formats=COMMITLOGS)
    return [*plan_splits(found, take_snapshot([found]).ranges[found.broker], size)]


def test_permissive_gives_every_intact_record_and_a_row_for_each_fault(spark: SparkSession, damaged: Path) -> None:
    rows = spark_rows(read(spark, damaged, mode="PERMISSIVE"))
    readable = [row for row in rows if not row["_corrupt_record"]]
    assert intact(readable) == [row for row in plain_rows(damaged) if row["keys"]]
    assert len(readable) == 19
    notes = [row["_corrupt_record"] for row in rows if row["_corrupt_record"]]
    assert [note["reason"] for note in notes] == ["body_crc", "total_size", "properties_encoding"]
    for note in notes:
        assert note["segment"].endswith("/commitlog/" + "0" * 20)
        assert note["start"] < note["end"]
        assert note["expected"]
        assert note["found"]
        assert note["first_bytes"]
    ranges = [row for row in rows if row["_corrupt_record"] and row["size"] is None]
    assert [row["physical_offset"] for row in ranges] == [note["start"] for note in notes[:2]]
    assert {row["topic"] for row in ranges} == {None}


def test_dropmalformed_drops_the_rows_that_permissive_marks(spark: SparkSession, damaged: Path) -> None:
    rows = spark_rows(read(spark, damaged, mode="DROPMALFORMED"))
    assert rows == [row for row in plain_rows(damaged) if row["keys"]]


def test_failfast_names_file_and_place(spark: SparkSession, damaged: Path) -> None:
    with pytest.raises(PySparkException) as error:
        read(spark, damaged).collect()
    assert re.search("(body_crc|total_size|properties_encoding): expected", text_of(error))
    assert "commitlog/" + "0" * 20 in text_of(error)
    assert "physical offset" in text_of(error)


def test_a_torn_end_is_not_damage(spark: SparkSession, tmp_path: Path) -> None:
    *whole, last = records(messages(6))
    write_store(tmp_path / "b" / "store", [(0, (b"".join(whole) + last[:60]).ljust(SIZE, b"\0"))])
    assert len(spark_rows(read(spark, tmp_path / "b" / "store"))) == 5
    rows = spark_rows(read(spark, tmp_path / "b" / "store", mode="PERMISSIVE"))
    assert [row["_corrupt_record"] for row in rows] == [None] * 5


def test_a_missing_segment_is_a_bad_range(spark: SparkSession, tmp_path: Path) -> None:
    root = write_store(
        tmp_path / "b" / "store",
        [
            (0, closed_segment(messages(5), SIZE)),
            (2 * SIZE, closed_segment(messages(5), SIZE, 2 * SIZE)),
            (3 * SIZE, open_segment(messages(5), SIZE, 3 * SIZE)),
        ],
    )
    rows = spark_rows(read(spark, root, mode="PERMISSIVE"))
    assert intact(rows) == plain_rows(root)
    (note,) = [row["_corrupt_record"] for row in rows if row["_corrupt_record"]]
    assert (note["reason"], note["start"], note["end"]) == ("missing_segment", SIZE, 2 * SIZE)
    with pytest.raises(PySparkException, match="missing_segment"):
        read(spark, root).collect()


def test_a_store_of_zeros_has_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    root = write_store(tmp_path / "b" / "store", [(0, bytes(SIZE))])
    assert read(spark, root).count() == 0
    assert read(spark, root, mode="PERMISSIVE").count() == 0


# --- several stores ---


@pytest.mark.parametrize(
    "path", ["{root}/*/store", "{root}/{broker}/store", "{root}/broker-a/store,{root}/broker-b/store"]
)
def test_many_brokers_are_read_at_once(spark: SparkSession, brokers: Path, path: str) -> None:
    rows = spark_rows(read(spark, path.replace("{root}", str(brokers))))
    assert rows == plain_rows(f"{brokers}/*/store")
    assert {row["broker"] for row in rows} == {"broker-a", "broker-b"}


def test_a_broker_can_be_named(spark: SparkSession, brokers: Path) -> None:
    frame = read(spark, brokers / "broker-b" / "store", broker="mine", columns="broker")
    assert {row["broker"] for row in frame.collect()} == {"mine"}


# --- columns and bodies ---


def test_a_schema_chooses_and_orders_columns(spark: SparkSession, store: Path) -> None:
    schema = spark_schema(SOURCE.select_columns(["tags", "physical_offset"]))
    frame = spark.read.format("commitlog").schema(schema).load(str(store))
    assert frame.columns == ["tags", "physical_offset"]
    expected = {(row["tags"], row["physical_offset"]) for row in plain_rows(store)}
    assert {(row[0], row[1]) for row in frame.collect()} == expected


def test_a_schema_as_text_is_accepted(spark: SparkSession, store: Path) -> None:
    frame = spark.read.format("commitlog").schema("topic string, keys array<string>").load(str(store))
    assert frame.count() == 64


def test_columns_choose_columns(spark: SparkSession, store: Path) -> None:
    frame = read(spark, store, columns="queue_id, topic")
    assert frame.columns == ["queue_id", "topic"]
    assert frame.groupBy("topic").count().where("topic = 'topic-0'").first()[1] == 20  # type: ignore[index]


def test_counting_needs_no_column(spark: SparkSession, brokers: Path) -> None:
    assert read(spark, brokers / "*" / "store").count() == 89


@pytest.mark.parametrize(("form", "expected"), [("stored", zlib.compress(TEXT)), ("decompressed", TEXT)])
def test_bodies_are_read_on_request(spark: SparkSession, store: Path, form: str, expected: bytes) -> None:
    frame = read(spark, store, body=form)
    assert frame.columns == [*PLAIN_COLUMNS, "body"]
    (row,) = frame.where("body_codec = 'zlib'").select("body", "body_size").collect()
    assert bytes(row["body"]) == expected
    assert row["body_size"] == len(zlib.compress(TEXT))


def test_a_body_over_its_limit_is_marked(spark: SparkSession, store: Path) -> None:
    frame = read(spark, store, body="decompressed", maxBodyBytes=len(TEXT) - 1, mode="PERMISSIVE")
    (row,) = frame.where("_corrupt_record is not null").collect()
    assert (row["body"], row["_corrupt_record"]["reason"]) == (None, "body_compression")


# --- options that filter ---


@pytest.mark.parametrize(
    ("options", "condition"),
    [
        ({"topics": "topic-1,订单"}, "topic in ('topic-1', '订单')"),
        ({"queueIds": "0, 2"}, "queue_id in (0, 2)"),
        ({"startingTimestamp": START_MS + 1010}, f"store_timestamp >= timestamp_millis({START_MS + 1010})"),
        ({"endingTimestamp": START_MS + 1010}, f"store_timestamp < timestamp_millis({START_MS + 1010})"),
        ({"startingOffset": 900, "endingOffset": SIZE + 1}, f"physical_offset >= 900 and physical_offset < {SIZE + 1}"),
        ({"topics": "topic-1", "queueIds": "1", "startingOffset": SIZE},
         f"topic = 'topic-1' and queue_id = 1 and physical_offset >= {SIZE}"),
        ({"topics": "nothing"}, "false"),
        ({"startingOffset": 1 << 40}, "false"),
    ],
)  # fmt: skip
def test_an_option_filters_as_where_does(
    spark: SparkSession, store: Path, all_rows: DataFrame, options: dict[str, object], condition: str
) -> None:
    filtered = spark_rows(read(spark, store, **options))
    assert filtered == spark_rows(all_rows.where(condition))
    assert bool(filtered) == (condition != "false")


def test_a_read_of_a_snapshot_gives_exactly_its_records(spark: SparkSession, tmp_path: Path) -> None:
    root = write_store(tmp_path / "b" / "store", [(0, open_segment(messages(6), SIZE))])
    snapshot = take_snapshot(find_stores(str(root), formats=COMMITLOGS)).to_json()
    before = plain_rows(root)
    write_store(root, [(0, open_segment(messages(12), SIZE))])
    assert spark_rows(read(spark, root, snapshot=snapshot)) == before
    assert len(spark_rows(read(spark, root))) == 12
    part = Snapshot({"b": StoreRange(before[2]["physical_offset"], before[5]["physical_offset"])}).to_json()
    assert spark_rows(read(spark, root, snapshot=part)) == before[2:5]


# --- what is refused ---


@pytest.mark.some_cases(2)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mod": "PERMISSIVE"}, "there is no option 'mod'"),
        ({"mode": "LENIENT"}, "option mode: expected one of FAILFAST, PERMISSIVE, DROPMALFORMED, found 'LENIENT'"),
        ({"body": "text"}, "option body: expected one of none, stored, decompressed, found 'text'"),
        ({"queueIds": "a"}, "option queueIds: expected whole numbers with commas between them, found 'a'"),
        ({"maxPartitionBytes": 0}, "option maxPartitionBytes: expected at least 1 byte, found 0"),
        ({"columns": "topic,nothing"}, "option columns: expected some of broker, physical_offset, size"),
        ({"columns": "topic", "mode": "PERMISSIVE"}, "mode PERMISSIVE needs the column _corrupt_record"),
        ({"snapshot": "{"}, "option snapshot: expected the JSON"),
        ({"snapshot": Snapshot({"x": StoreRange(0, 1)}).to_json()}, "the snapshot contains the store 'x'"),
    ],
)
def test_a_wrong_option_is_refused_with_its_reason(
    spark: SparkSession, store: Path, options: dict[str, object], words: str
) -> None:
    with pytest.raises(PySparkException) as error:
        read(spark, store, **options).collect()
    assert words in text_of(error)


def test_a_path_without_a_store_is_refused_with_its_reason(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for path, words in ((tmp_path / "nowhere", "does not exist"), (tmp_path / "folder", "is not a store")):
        with pytest.raises(PySparkException) as error:
            read(spark, path).collect()
        assert words in text_of(error)
    with pytest.raises(PySparkException, match="the option 'path' is missing"):
        spark.read.format("commitlog").load().collect()


def test_a_schema_that_does_not_fit_is_refused(spark: SparkSession, store: Path) -> None:
    for field, words in (
        (StructField("nothing", StringType()), "the schema has a column 'nothing'"),
        (StructField("topic", LongType()), "column topic: expected the type string, found bigint"),
    ):
        with pytest.raises(PySparkException) as error:
            spark.read.format("commitlog").schema(StructType([field])).load(str(store)).collect()
        assert words in text_of(error)


# --- queries on one DataFrame ---


def keys_where(rows: list[Row], **wanted: object) -> list[object]:
    """Return the keys of the rows that have these values."""
    return [row["keys"] for row in rows if all(row[name] == value for name, value in wanted.items())]


def test_one_dataframe_answers_many_queries(spark: SparkSession, brokers: Path) -> None:
    path = f"{brokers}/*/store"
    frame, rows = read(spark, path), plain_rows(path)
    for topic in ("topic-0", "topic-1", "topic-2"):
        assert [row["keys"] for row in spark_rows(frame.where(F.col("topic") == topic))] == keys_where(
            rows, topic=topic
        )
    assert frame.count() == len(rows)
    assert frame.where("queue_id = 1").count() == len(keys_where(rows, queue_id=1))
    assert frame.where("broker = 'broker-b'").count() == 25


def test_branches_of_a_union_and_a_join_do_not_disturb_each_other(spark: SparkSession, store: Path) -> None:
    frame, rows = read(spark, store), plain_rows(store)
    both = frame.where("topic = 'topic-0'").unionByName(frame.where("topic = 'topic-1'"))
    expected = [row for row in rows if row["topic"] in ("topic-0", "topic-1")]
    assert spark_rows(both) == expected
    first = frame.where("queue_id = 0").select("physical_offset")
    joined = frame.join(first, on="physical_offset", how="left_anti")
    assert joined.count() == len([row for row in rows if row["queue_id"] != 0])


# --- pushdown on request ---


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[SparkSession]:
    """The session with Spark's own pushdown."""
    with pytest.warns(UserWarning, match=r"call load\(\) again for each"):
        register(spark, pushdown=True)
    yield spark
    spark.conf.unset(PUSHDOWN_SETTING)
    register(spark)


@pytest.mark.some_cases(3)
@pytest.mark.parametrize(
    "condition",
    [
        "topic in ('topic-1', '订单') and queue_id = 1",
        f"store_timestamp between timestamp_millis({START_MS + 1010}) and timestamp_millis({START_MS + 1015})",
        f"store_timestamp > timestamp_millis({START_MS + 1010}) or topic = 'topic-2'",
        f"physical_offset > {SIZE} and physical_offset <= {2 * SIZE}",
        "broker = 'nobody'",
        "not (topic = 'topic-1')",
        "queue_id > 2 and tags = 'Tag1'",
        *(
            pytest.param(condition, marks=pytest.mark.long("predicates of each kind are pushed down each time"))
            for condition in (
                "topic = 'topic-1'",
                f"store_timestamp = timestamp_millis({START_MS + 1010})",
                f"{SIZE} < physical_offset",
                "broker = 'broker-a'",
                "topic is null",
                "topic <=> 'topic-1'",
                "queue_id = 0 and queue_id = 1",
            )
        ),
    ],
)
def test_pushed_predicates_give_the_same_rows(
    pushing: SparkSession, store: Path, all_rows: DataFrame, condition: str
) -> None:
    pushed = spark_rows(read(pushing, store, maxPartitionBytes=8000).where(condition))
    assert pushed == spark_rows(all_rows.where(condition))


@pytest.mark.long("predicates are tested each time")
def test_pushed_predicates_lose_no_rows_if_each_query_and_branch_loads_again(
    pushing: SparkSession, store: Path, all_rows: DataFrame
) -> None:
    def where(condition: str = "true") -> DataFrame:
        return read(pushing, store).where(condition)

    first, second = "topic = 'topic-1'", "topic = 'topic-2'"
    assert where(first).count() == all_rows.where(first).count()
    assert where().count() == all_rows.count()
    assert where(first).unionByName(where(second)).count() == all_rows.where(f"{first} or {second}").count()
    joined = where(first).join(where(second).select("queue_id").distinct(), "queue_id", "left_semi")
    queues = [row["queue_id"] for row in all_rows.where(second).select("queue_id").distinct().collect()]
    assert joined.count() == all_rows.where(first).where(F.col("queue_id").isin(queues)).count()
    cached = where().cache()
    assert [cached.where(one).count() for one in (first, second, "true")] == [
        all_rows.where(one).count() for one in (first, second, "true")
    ]
    cached.unpersist()


def test_pushed_offsets_leave_out_splits(pushing: SparkSession, store: Path) -> None:
    whole = read(pushing, store, maxPartitionBytes=4000).rdd.getNumPartitions()
    part = read(pushing, store, maxPartitionBytes=4000).where(f"physical_offset >= {2 * SIZE}")
    assert part.rdd.getNumPartitions() < whole


def test_pushed_offsets_keep_the_bad_ranges_that_they_select(pushing: SparkSession, damaged: Path) -> None:
    notes = [row for row in spark_rows(read(pushing, damaged, mode="PERMISSIVE")) if row["_corrupt_record"]]
    start = notes[1]["physical_offset"]
    rows = spark_rows(read(pushing, damaged, mode="PERMISSIVE").where(f"physical_offset >= {start}"))
    assert [row["_corrupt_record"]["reason"] for row in rows if row["_corrupt_record"]] == [
        "total_size",
        "properties_encoding",
    ]
