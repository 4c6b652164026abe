"""A lake as an object, for analysts, support tools and notebooks.

    import commitlake

    lake = commitlake.open("/data/lake")                  # Arrow tables, without Spark or a JVM
    lake.messages(topic="orders", since="2026-11-20")

    lake = commitlake.open("/data/lake", spark)           # the same as DataFrames
    lake.messages(topic="orders", since="2026-11-20").groupBy("tags").count()

    story = lake.lineage(key="order-4711")
    for outcome in story.outcomes:
        print(outcome.text)
    for record in lake.records(key="order-4711"):
        print(record.stored_at, record.topic, lake.body(record))

It keeps nothing open. Each call reads the lake's current state. Errors of a question or a lake are
`commitlake.schemas.errors.CommitLakeError`.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, Literal, Protocol, TypeVar, Unpack, cast, overload

from commitlake.connectors.catalog.names import SchemaName, is_catalog_location, parse_schema_name
from commitlake.connectors.lake.lake import Lake, NoTableError
from commitlake.connectors.lake.packs.location import PackLocation
from commitlake.connectors.lake.paths import LakeError
from commitlake.connectors.storage.uris import absolute_path_or_uri
from commitlake.pipelines.analysis.selection_arguments import (
    SelectionArguments,
    Texts,
    Time,
    make_selection,
    parse_text_arguments,
    parse_time_argument,
    with_selection_signature,
)
from commitlake.pipelines.lineage.history_masking import mask_story
from commitlake.pipelines.lineage.history_reader import read_matching_records, read_matching_rows, read_story_and_rows
from commitlake.pipelines.lineage.message_history import MAX_RECORDS, Question, Record, Story
from commitlake.pipelines.lineage.topic_graph import TopicGraph, build_topic_graph
from commitlake.schemas.errors import UsageError
from commitlake.schemas.selection import Selection
from commitlake.schemas.tables.columns import Columns
from commitlake.schemas.tables.lake_tables import LAKE_TABLES, LakeTable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from commitlake.connectors.lake.packs.body_batches import BodyForm
    from commitlake.pipelines.analysis.lag_arguments import LagQuestion
    from commitlake.pipelines.journeys.journeys_query import JourneysQuestion
    from commitlake.pipelines.replay.named_replay import ReplayResult
    from commitlake.pipelines.tps.rates_query import RatesQuestion

Frame = TypeVar("Frame")
"""`pyarrow.Table`, or with Spark `DataFrame`."""
_Frame_co = TypeVar("_Frame_co", covariant=True)
Body = Literal["text", "bytes", "json"]
LagBy = Literal["queue", "group"]


class _TableReader(Protocol[_Frame_co]):
    """Interface of a reader of a lake's tables, by Arrow or by Spark."""

    def table(self, table: LakeTable) -> _Frame_co: ...

    def empty(self, table: LakeTable) -> _Frame_co: ...

    def messages(self, selection: Selection, columns: Columns, body_form: BodyForm | None) -> _Frame_co: ...

    def dead_letters(self, selection: Selection, body_form: BodyForm | None) -> _Frame_co: ...

    def rates(self, question: RatesQuestion, groups: Sequence[str]) -> _Frame_co: ...

    def lag(self, question: LagQuestion) -> _Frame_co: ...

    def journeys(self, question: JourneysQuestion) -> _Frame_co: ...

    def hops(self, question: JourneysQuestion, window_us: int | None) -> _Frame_co: ...

    def lineage(self, keys: object, question: Question) -> _Frame_co: ...


class AnalysisLake(Generic[Frame]):
    """A lake whose messages, rates, lag and message histories can be read from Python.

    Args:
        place: A folder, or `s3://bucket/prefix`, or `catalog.schema`. Without Spark, credentials come from the
            environment, as for any AWS tool, and `catalog.schema` is a lake in Unity Catalog.
        spark: A session with Delta Lake, also one of Spark Connect; tables are then DataFrames. The session opens them
            with its own credentials, and `catalog.schema` by its own catalogs.
        bodies: Root folder of the packs; by default `bodies` in the lake.

    Raises:
        LakeError: The place is not a valid location.
        CatalogError: A name in a catalog is not valid, or not that of a lake.
    """

    @overload
    def __init__(self: AnalysisLake[pa.Table], place: str, *, bodies: str | None = None) -> None: ...

    @overload
    def __init__(
        self: AnalysisLake[DataFrame], place: str, spark: SparkSession, *, bodies: str | None = None
    ) -> None: ...

    @overload
    def __init__(self, place: str, spark: SparkSession | None = None, *, bodies: str | None = None) -> None: ...

    def __init__(self, place: str, spark: SparkSession | None = None, *, bodies: str | None = None) -> None:
        is_named = is_catalog_location(place)
        if spark is not None and not is_named:  # executors have other working folders
            place = absolute_path_or_uri(place)
        self._packs = PackLocation(absolute_path_or_uri(bodies) if bodies and spark is not None else bodies or "")
        is_in_session = spark is not None and is_named
        self._place: Lake | SchemaName = parse_schema_name(place) if is_in_session else Lake(place, packs=self._packs)
        self._spark = spark

    def __repr__(self) -> str:
        spark = "" if self._spark is None else ", spark"
        place = self._place
        return f"commitlake.open({str(place) if isinstance(place, SchemaName) else place.root!r}{spark})"

    @property
    def paths(self) -> Lake:
        """Folders or URIs of the lake's tables and of its packs, which hold the bodies.

        Raises:
            CatalogError: The lake is named in a catalog of the Spark session, and the environment names no catalog.
        """
        return Lake(str(self._place), packs=self._packs) if isinstance(self._place, SchemaName) else self._place

    @property
    def bodies(self) -> str:
        """Root folder of the packs, which hold the bodies of messages."""
        return self._packs.root or self.paths.bodies_root

    @property
    def _tables(self) -> _TableReader[Frame]:
        if self._spark is None:
            from commitlake.pipelines.analysis.arrow_tables import ArrowTables

            return cast("_TableReader[Frame]", ArrowTables(self.paths))
        from commitlake.pipelines.analysis.spark_tables import SparkTables

        return cast("_TableReader[Frame]", SparkTables(self._spark, self._place, self._packs))

    def table(self, name: str, *, or_empty: bool = False) -> Frame:
        """Return a table of the lake, with all documented columns in their documented order.

        Columns that an older lake lacks are null. Without Spark, the whole table is read into memory.

        Args:
            name: Name of the table, such as `messages` or `topic_minutes`.
            or_empty: Return no rows, instead of an error, if the lake does not have the table yet: a lake without a
                damaged log, for example, has no `quarantine`.

        Raises:
            LakeError: There is no lake, or no table has such a name.
            NoTableError: The lake does not have the table yet: nothing was written to it.
        """
        if name not in LAKE_TABLES:
            raise LakeError(f"there is no table {name!r}: expected one of {', '.join(LAKE_TABLES)}")
        try:
            return self._tables.table(LAKE_TABLES[name])
        except NoTableError:
            if not or_empty:
                raise
            return self._tables.empty(LAKE_TABLES[name])

    @with_selection_signature
    def messages(
        self, *, columns: Texts | None = None, body: Body | None = None, **chosen: Unpack[SelectionArguments]
    ) -> Frame:
        """Return messages: one row for each record of a broker's log, in no particular order.

        A message must meet all conditions that are given; of several values in one, it must have any.

        Args:
            columns: Columns of `messages`; all by default.
            body: Add the columns `body` and `body_error`. A body is `bytes` as the producer sent it, `text` in UTF-8,
                or `json`: the text of a JSON document. A body that does not have this form, or that cannot be
                decompressed, is null, and `body_error` says why; both are null if the lake does not have the body.
                Bodies are read from the packs: with Spark by the executors, which need CommitLake and access to the
                packs; a task reads a pack, and each part of it once. Without Spark, they must fit into memory.
            **chosen: Conditions, see `SelectionArguments`.

        Raises:
            LakeError: There is no lake, or a column does not exist.
            UsageError: A condition is not valid, or a column is given twice.
            QueryError: The predicate `where` is not valid; Spark raises its own `AnalysisException`.
            PackError: A body is not available; with Spark, this error fails the query.
        """
        from commitlake.connectors.lake.packs.body_batches import BodyForm

        declared = LAKE_TABLES["messages"].columns
        asked = parse_text_arguments("columns", columns) or declared.names
        for name in asked:
            if name not in declared.names:
                raise LakeError(
                    f"the table messages has no column {name!r}: expected some of {', '.join(declared.names)}"
                )
        if len(set(asked)) < len(asked):
            raise UsageError(f"columns: expected each column once, found {', '.join(asked)}")
        wanted = declared.select_columns(asked)
        form = BodyForm.from_name(body)
        return self._tables.messages(make_selection(**chosen), wanted, form)

    @with_selection_signature
    def tps(
        self,
        *,
        by: Texts = "topic",
        window: datetime.timedelta | str = "5 minutes",
        **chosen: Unpack[SelectionArguments],
    ) -> Frame:
        """Return messages per second: one row for each group and time window with messages, in no particular order.

        Times are exact: of a window that begins before `since`, or ends after `until`, only the messages between them
        are counted, and rates are for the seconds between them. Without `since`, times begin in 1970. Whole minutes are
        counted from `topic_minutes` where it has what is asked; other questions, and lakes without this table, are
        counted from `messages`. While a run is archived, `topic_minutes` has its messages a little later.

        Args:
            by: Columns of groups: `broker`, `topic`, `queue`, `tag`, `kind`, `producer_host`, `producer_group` or
                `origin_topic`; an empty list counts all messages together.
            window: Length of the windows, in whole seconds: a `timedelta`, or a text such as `5 minutes` or `30s`. They
                begin at multiples of their length since 1970, UTC.
            **chosen: Conditions, see `SelectionArguments`.

        Returns:
            The columns `commitlake.schemas.tables.rates.rate_columns`: the groups, which may be null, `window_start`,
            the counts, which are never null, `seconds`, `messages_per_s` and `bytes_per_s`.

        Raises:
            LakeError: There is no lake.
            UsageError: A group, a window or a condition is not valid.
            LogDamagedError: `topic_minutes` has lost rows of finished runs.
            QueryError: The predicate `where` is not valid; Spark raises its own `AnalysisException`.
        """
        from commitlake.pipelines.analysis.rates_arguments import make_rates_question

        question = make_rates_question(by, window, make_selection(**chosen))
        return self._tables.rates(question, [name.replace("-", "_") for name in question.by])

    @with_selection_signature
    def dead_letters(
        self, *, group: Texts | None = None, body: Body | None = None, **chosen: Unpack[SelectionArguments]
    ) -> Frame:
        """Return dead letters: one row for each message that a consumer group gave up, in no particular order.

        Topics are those that the messages were sent to, and times those at which they were stored as dead letters. All
        have the kind `dlq`, so that `kind` cannot be given.

        Args:
            group: Names of consumer groups; all by default.
            body: Add the columns `body` and `body_error`, as `messages` does.
            **chosen: Conditions, see `SelectionArguments`.

        Returns:
            The columns `commitlake.schemas.tables.dead_letters.DEAD_LETTERS`: `group`, `reason`, `replayed`, and those
            of `messages`, of which `origin_topic` is the topic that the message was sent to.

        Raises:
            LakeError: There is no lake.
            UsageError: A condition is not valid, or `kind` is given.
            QueryError: The predicate `where` is not valid; Spark raises its own `AnalysisException`.
            PackError: A body is not available; with Spark, this error fails the query.
        """
        from commitlake.connectors.lake.packs.body_batches import BodyForm

        selection = make_selection(**chosen)
        selection.refuse_conditions("dead_letters", "kinds")
        wanted = replace(selection, groups=parse_text_arguments("group", group))
        return self._tables.dead_letters(wanted, BodyForm.from_name(body))

    def lag(
        self,
        *,
        at: Time | None = None,
        by: LagBy = "queue",
        broker: Texts | None = None,
        group: Texts | None = None,
        topic: Texts | None = None,
    ) -> Frame:
        """Return how far consumer groups are behind: one row for each group and queue, in no particular order.

        The figures are those of `commitlake lag`. At a snapshot they are exact. Between two snapshots, and for groups
        whose filter is not known, they have a lower and an upper bound. Messages that a group's filter (tags or SQL92)
        leaves out do not count. Stores without a snapshot at or before the time have no row.

        Only the command has lost messages, rates, verdicts and notes, and what brokers hold back for delays, timers and
        transactions.

        Args:
            at: The time: a `datetime` or ISO 8601, UTC without a time zone; by default that of each store's last
                snapshot.
            by: `queue`, or `group` for one row for each group, summed over its stores, topics and queues.
            broker: Names of stores; all by default.
            group: Names of consumer groups; all by default.
            topic: Topics; all by default.

        Returns:
            The columns `commitlake.schemas.tables.lag.QUEUE_LAG`, or `GROUP_LAG` by group.

        Raises:
            LakeError: There is no lake.
            NoTableError: The lake has no snapshots of consumer groups.
            UsageError: An argument is not valid.
        """
        from commitlake.pipelines.analysis.lag_arguments import make_lag_question

        return self._tables.lag(make_lag_question(by, at, broker, group, topic))

    def lag_history(
        self,
        *,
        window: datetime.timedelta | str = "1 minute",
        since: Time | None = None,
        until: Time | None = None,
        by: LagBy = "queue",
        broker: Texts | None = None,
        group: Texts | None = None,
        topic: Texts | None = None,
    ) -> Frame:
        """Return how far consumer groups were behind at the end of each window: one row for each queue and window.

        The figures are those of `lag(at=…)` at that time, which is `as_of`. There is one exception: where a topic was
        deleted and created again while the broker's clock was set back, the end of a window may lie between messages
        that show it and others; with Spark, what later messages show then counts, too.

        Whole minutes are read from the table `lag_minutes` where it has them (see `commitlake archive --backfill
        lag_minutes`); the minutes that it had before an erasure still count what was erased since. Without Spark, any
        other window takes as long as `lag` does. With Spark, the table is used if also this process can read the lake,
        by its path; a lake that is named in a catalog of the session is computed.

        Args:
            window: Length of the windows, in whole seconds: a `timedelta`, or a text such as `5 minutes` or `30s`. They
                end at multiples of their length since 1970, UTC.
            since: Windows end after this time: a `datetime` or ISO 8601, UTC without a time zone; by default a day
                before `until`.
            until: Windows end at or before this time; by default the last snapshot of all stores.
            by: `queue`, or `group` for one row for each group and window.
            broker: Names of stores; all by default.
            group: Names of consumer groups; all by default.
            topic: Topics; all by default.

        Returns:
            The columns `commitlake.schemas.tables.lag.QUEUE_LAG`, or `GROUP_LAG` by group.

        Raises:
            LakeError: There is no lake.
            NoTableError: The lake has no snapshots of consumer groups.
            UsageError: An argument is not valid.
        """
        from commitlake.pipelines.analysis.lag_arguments import make_lag_history_question

        return self._tables.lag(make_lag_history_question(by, window, since, until, broker, group, topic))

    def journeys(
        self,
        *,
        since: Time,
        until: Time,
        margin: datetime.timedelta | str = "1 day",
        max_steps: int = 1_000,
        broker: Texts | None = None,
        topic: Texts | None = None,
        key: Texts | None = None,
        tag: Texts | None = None,
        where: str | None = None,
    ) -> Frame:
        """Return the path over topics, and the outcome, of each business key that has a record in a time window.

        All records of one message are one step: half message and commit, delay and delivery, retries, dead letters, and
        what a replay sent again. Records of one topic with one client message id are one message, even if its producer
        sent them twice. Steps are in the order in which the messages were sent, by the brokers' clocks.

        Also records of these keys from `margin` before the window to `margin` after it are read, and nothing else: what
        was delivered, decided or sent again later counts as open. `began_before` and `went_on_after` say which keys the
        window cuts.

        Args:
            since: Start of the window of store time: a `datetime` or ISO 8601, UTC without a time zone.
            until: End of the window, exclusive.
            margin: Time before and after the window: a `timedelta`, or a text such as `2 hours`.
            max_steps: Largest number of steps in `path` and `steps`; a journey with more has `is_cut`, and all its
                other columns are of all steps.
            broker: Names of stores; all by default.
            topic: Topics that messages were sent to; all by default. Others are no steps.
            key: Business keys; all by default.
            tag: Tags; all by default.
            where: SQL predicate on a row of `messages`, in the dialect of the engine.

        Returns:
            The columns `commitlake.schemas.tables.journeys.JOURNEYS`.

        Raises:
            LakeError: There is no lake.
            NoTableError: The lake has no table `edges`.
            UsageError: An argument is not valid.
            QueryError: The predicate `where` is not valid; Spark raises its own `AnalysisException`.
        """
        from commitlake.pipelines.analysis.journeys_arguments import make_journeys_question

        question = make_journeys_question(
            since, until, margin, max_steps, broker=broker, topic=topic, key=key, tag=tag, where=where
        )
        return self._tables.journeys(question)

    def topic_flow(
        self,
        *,
        since: Time,
        until: Time,
        window: datetime.timedelta | str | None = "1 hour",
        margin: datetime.timedelta | str = "1 day",
        broker: Texts | None = None,
        topic: Texts | None = None,
        key: Texts | None = None,
        tag: Texts | None = None,
        where: str | None = None,
    ) -> Frame:
        """Return how often, and how fast, business keys go from one topic to the next one, for each time window.

        A hop is a step of a journey and the next one, at most `margin` later; it counts where the later message was
        sent. Messages whose first record is not in the lake are left out. So a day has the sums of its hours. Times are
        rounded up to two digits, in `delays`, which can be added over rows; percentiles are those of `delays`.

        Args:
            since: Start of the time: a `datetime` or ISO 8601, UTC without a time zone.
            until: End of the time, exclusive.
            window: Length of the windows, in whole seconds: a `timedelta`, or a text such as `5 minutes`. They begin at
                multiples of their length since 1970, UTC. None for one window for all the time.
            margin: Longest time of a hop: a `timedelta`, or a text such as `2 hours`.
            broker: Names of stores; all by default.
            topic: Topics that messages were sent to; all by default. Others are no steps.
            key: Business keys; all by default.
            tag: Tags; all by default.
            where: SQL predicate on a row of `messages`, in the dialect of the engine.

        Returns:
            The columns `commitlake.schemas.tables.journeys.HOPS`, none of which is null.

        Raises:
            LakeError: There is no lake.
            NoTableError: The lake has no table `edges`.
            UsageError: An argument is not valid.
            QueryError: The predicate `where` is not valid; Spark raises its own `AnalysisException`.
        """
        from commitlake.pipelines.analysis.journeys_arguments import make_journeys_question
        from commitlake.pipelines.analysis.rates_arguments import make_window

        question = make_journeys_question(
            since, until, margin, broker=broker, topic=topic, key=key, tag=tag, where=where
        )
        window_us = None if window is None else make_window(window) // datetime.timedelta(microseconds=1)
        return self._tables.hops(question, window_us)

    def replay(
        self,
        frame: Frame,
        *,
        name: str,
        namesrv: str | None = None,
        to_topic: str | None = None,
        queues: Literal["same", "key", "sharding-key"] = "same",
        rate: float | None = None,
        speed: float | None = None,
        pause_if_lag: tuple[str, int] | None = None,
        target_timeout: datetime.timedelta | str = "10 minutes",
        include_replayed: bool = False,
        again: bool = False,
        verify: bool = True,
        dry_run: bool = True,
    ) -> ReplayResult:
        """Send the messages listed in a table into topics of a running cluster, each exactly once.

        Rows are identified by `broker` and `physical_offset`, which `messages` and `dead_letters` return; other columns
        are not read. What is sent are the messages as the lake has them, in the order of their logs, with all that the
        command does: properties with their origin, the ledger, and the comparison with the target at the end.

        The name makes it safe to call this again. If a call was stopped or killed, the same call continues, and sends
        nothing twice; if it had finished, the call returns its result. A name cannot be used for other messages.
        `commitlake replay list`, `show`, `stop` and `throttle` take it as an id.

        With Spark, tasks send, each to its own queues of the target, and the executors need CommitLake, access to the
        lake's files, and to the brokers. The lake must be accessible for this process, too: it writes the copies of the
        messages, and the ledger.

        Args:
            frame: A DataFrame, or an Arrow table.
            name: Name of the replay: 1 to 64 letters, digits, `-` and `_`.
            namesrv: Name server of the target, `host:port`, or several separated by `;`.
            to_topic: Topic for all messages; by default that of each, or the original one of a retry or dead letter.
            queues: Queue of a message: that of the same number, or by a hash of its first key, or of its sharding key.
            rate: At most so many messages per second. A call that continues a replay keeps its limits by default, also
                those that `commitlake replay throttle` has set.
            speed: At a multiple of the pace at which the messages were stored; not with Spark.
            pause_if_lag: Pause while this group of the target is more than so many messages behind.
            target_timeout: How long to wait for an unreachable target: a `timedelta`, or a text such as `10 minutes`.
            include_replayed: True to send messages that an earlier replay has sent, too; they are left out by default.
            again: True to send messages of another replay to the same target that has not finished.
            verify: True to read the messages back from the target, and compare them with the lake.
            dry_run: True to return what would be sent, and send nothing.

        Returns:
            The state and the counts, see `commitlake.pipelines.replay.named_replay.ReplayResult`.

        Raises:
            LakeError: There is no lake.
            UsageError: An argument is not valid, or the table lacks one of the two columns, or has a message twice.
            ReplayError: A message is not in the lake, or cannot be sent; or the name is that of other messages.
            RocketMQError: The target does not answer.
        """
        from commitlake.pipelines.analysis.chosen_messages import read_chosen_places
        from commitlake.pipelines.analysis.replay_arguments import make_named_replay, open_sending_runner
        from commitlake.pipelines.replay.named_replay import send_named_replay

        request = make_named_replay(
            name, namesrv, to_topic, queues, rate, speed, pause_if_lag, target_timeout,
            include_replayed=include_replayed, again=again, verify=verify, dry_run=dry_run,
        )  # fmt: skip
        runner = None if self._spark is None or dry_run else open_sending_runner(self._spark, request)
        places = read_chosen_places(frame)
        return send_named_replay(self.paths, places, request, runner, is_dry_run=dry_run)

    @overload
    def lineage(
        self,
        *,
        key: str | None = None,
        id: str | None = None,
        place: tuple[str, int] | None = None,
        since: Time | None = None,
        until: Time | None = None,
        depth: int | None = None,
        related_by: str | None = None,
        limit: int = MAX_RECORDS,
        bodies: bool = False,
        masks: Sequence[str] = (),
        mask_key: bytes = b"",
    ) -> Story: ...

    @overload
    def lineage(
        self,
        *,
        keys: Texts | Frame,
        since: Time | None = None,
        until: Time | None = None,
        depth: int | None = None,
        related_by: str | None = None,
        limit: int = MAX_RECORDS,
    ) -> Frame: ...

    def lineage(
        self,
        *,
        key: str | None = None,
        id: str | None = None,  # noqa: A002 (as in `SelectionArguments`)
        place: tuple[str, int] | None = None,
        keys: Texts | Frame | None = None,
        since: Time | None = None,
        until: Time | None = None,
        depth: int | None = None,
        related_by: str | None = None,
        limit: int = MAX_RECORDS,
        bodies: bool = False,
        masks: Sequence[str] = (),
        mask_key: bytes = b"",
    ) -> Story | Frame:
        """Return the history of the messages with a key or id, of the record at a place, or of many keys.

        For one key, id or place, it is an object, which has no steps if there are no such messages. For `keys`, it is a
        table with a row for each step. With Spark, tasks read the histories of some keys each. All tables are read at
        the versions that they have now, whenever the DataFrame is used; the executors need CommitLake and access to the
        files of the lake.

        Args:
            key: A business key.
            id: An offset message id, or a client's message id.
            place: Broker and physical offset of a record.
            keys: Business keys: texts, or a table with one column, or with a column `key` among others. A key that is
                there twice counts once; null is no key.
            since: Earliest store time: a `datetime` or ISO 8601, UTC without a time zone.
            until: Latest store time, exclusive.
            depth: Number of edges to follow from these records; None for all.
            related_by: A property; records with the same value of it are included.
            limit: Largest number of matching records, of each key; if there are more, the newest are taken, and
                `not_shown` has the number of the rest.
            bodies: True to read the bodies of records; not with `keys`, whose rows can be joined with `messages`.
            masks: Rules such as `body.email=hash`, as for `commitlake lineage --mask`; not with `keys`.
            mask_key: Key for hashes of the masks.

        Returns:
            For `keys`, the columns `commitlake.schemas.tables.lineage.LINEAGE`. A key without messages has one row, in
            which `number` is null.

        Raises:
            LakeError: There is no lake.
            UsageError: Not exactly one of key, id, place and keys is given.
            UsageError: A time is not valid, or a mask is invalid, or needs a key.
        """
        if keys is not None:
            given = {"key": key, "id": id, "place": place, "bodies": bodies, "masks": masks}
            for name, value in given.items():
                if value:
                    raise UsageError(f"{name}: expected none with keys, found {value!r:.50}")
            wanted = keys if hasattr(keys, "columns") else parse_text_arguments("keys", cast("Texts", keys))
            return self._tables.lineage(wanted, _question_of_many_keys(since, until, depth, related_by, limit))
        start, end = parse_time_argument("since", since), parse_time_argument("until", until)
        question = Question(key, id, place, start, end, depth, related_by, limit)
        story, rows = read_story_and_rows(self.paths, question)
        if bodies:
            from commitlake.connectors.lake.packs.pack_stores import open_pack_store
            from commitlake.pipelines.lineage.record_bodies import add_bodies_to_story

            story = add_bodies_to_story(story, rows, open_pack_store(self.paths.packs))
        if masks:
            from commitlake.pipelines.masking.masks import check_hash_key, parse_mask

            rules = [parse_mask(text) for text in masks]
            check_hash_key(rules, mask_key)
            story = mask_story(story, rules, mask_key)
        return story

    def stories(
        self,
        keys: Iterable[str],
        *,
        since: Time | None = None,
        until: Time | None = None,
        depth: int | None = None,
        related_by: str | None = None,
        limit: int = MAX_RECORDS,
    ) -> Iterator[Story]:
        """Yield, for each key, the history of its messages: records, consumptions, and what became of them.

        The tables are read for many keys at a time.

        Arguments and errors are those of `lineage`; the limit is for each key. All stories are of the lake as it is
        when the first one is read.
        """
        from commitlake.pipelines.lineage.history_reader import read_stories

        question = _question_of_many_keys(since, until, depth, related_by, limit)
        wanted = parse_text_arguments("keys", keys)
        return (story for story, _ in read_stories(self.paths, wanted, question))

    def records(
        self,
        *,
        key: str | None = None,
        id: str | None = None,  # noqa: A002 (as in `SelectionArguments`)
        place: tuple[str, int] | None = None,
        since: Time | None = None,
        until: Time | None = None,
        limit: int = MAX_RECORDS,
    ) -> list[Record]:
        """Return only the records with a key or an id, or at a log position, in time order.

        Records linked to them are not included.

        Arguments and errors are those of `lineage`. If there are more records than the limit, the newest are taken.
        """
        start, end = parse_time_argument("since", since), parse_time_argument("until", until)
        return read_matching_records(self.paths, Question(key, id, place, start, end, limit=limit))

    def body(self, record: Record | tuple[str, int] | str) -> bytes | None:
        """Return the decompressed body of a message; None if the lake does not have it.

        Args:
            record: A record, its broker and physical offset, or a message id that only one record has.

        Raises:
            UsageError: There is no such record, or more than one.
            PackError: The body cannot be read, or is a different one.
            BodyError: It cannot be decompressed.
        """
        from commitlake.connectors.lake.packs.body_reader import fetch_body
        from commitlake.connectors.lake.packs.pack_stores import open_pack_store

        place = (record.broker, record.physical_offset) if isinstance(record, Record) else record
        question = Question(message_id=place) if isinstance(place, str) else Question(place=place)
        rows = read_matching_rows(self.paths, question)
        if len(rows) != 1:
            raise UsageError(f"expected one message with {question.question_text} in the lake, found {len(rows)}")
        return fetch_body(open_pack_store(self.paths.packs), rows[0])

    def topics(self, since: Time, until: Time) -> TopicGraph:
        """Return the topics in a time range, and which pairs of them the same business keys pass through.

        Args:
            since: Earliest store time: a `datetime` or ISO 8601, UTC without a time zone.
            until: Latest store time, exclusive.

        Raises:
            UsageError: A time is missing or not valid.
        """
        start, end = parse_time_argument("since", since), parse_time_argument("until", until)
        if start is None or end is None:
            raise UsageError("topics: expected a time for each of since and until, found None")
        return build_topic_graph(self.paths, start, end)


def _question_of_many_keys(
    since: Time | None, until: Time | None, depth: int | None, related_by: str | None, limit: int
) -> Question:
    """Return a question whose values hold for each of many keys."""
    start, end = parse_time_argument("since", since), parse_time_argument("until", until)
    return Question("", None, None, start, end, depth, related_by, limit)
