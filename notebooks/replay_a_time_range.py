# Databricks notebook source
# MAGIC %md
# MAGIC # Replay a time range
# MAGIC Messages of a lake that were stored in a time range, sent to their topics again, or to another one: which they
# MAGIC are, when they were stored, what was sent, and what consumer groups have done with it.
# MAGIC
# MAGIC Without `namesrv` it is a dry run, and nothing is sent. What one run has sent, the next one does not send again.
# MAGIC For more (a pace like the first time, pauses, a stop, dead letters) there are `commitlake replay` and `dlq`.
# MAGIC
# MAGIC Parameters are widgets on Databricks, and arguments elsewhere
# MAGIC (`python notebooks/replay_a_time_range.py --help`). The default is the lake of `./spark-submit.sh demo`.
# MAGIC

# COMMAND ----------

from commitlake.jobs.arguments.unknown_lake_names import check_archived_brokers
from commitlake.jobs.notebooks.notebook import BROKER, FROM, LAKE, TO, Parameter, open_notebook
from commitlake.jobs.notebooks.notebook_replay import replay_once, replay_outcome_report, selected_messages_report
from commitlake.pipelines.replay.planning import count_messages_by_queue, count_over_time
from commitlake.pipelines.replay.selection import selection_condition
from commitlake.schemas.selection import Selection

notebook = open_notebook(
    "Messages of a time range, sent again.",
    globals(),
    LAKE,
    FROM,
    TO,
    Parameter("topic", "only these topics, with commas between; all where it is empty", "orders"),
    Parameter("key", "only messages with one of these business keys, with commas between"),
    Parameter("tag", "only messages with one of these tags, with commas between"),
    BROKER,
    Parameter("namesrv", "name server of the target, host:port; nothing is sent where it is empty"),
    Parameter("to_topic", "into this topic; into the topic of each message where it is empty"),
    Parameter("rate", "messages per second, at most"),
    Parameter("again", "yes: send also what an earlier run has sent"),
)
lake, brokers, rate = notebook.lake, notebook.list_parameter("broker"), notebook.number_parameter("rate")
check_archived_brokers(lake, brokers)
table = lake.table("messages")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Selection
# MAGIC Of a message that is in the log several times (delayed, half, retried), only the one in its own topic is chosen,
# MAGIC and nothing that a replay has sent.

# COMMAND ----------

asked = Selection(
    topics=notebook.list_parameter("topic"),
    keys=notebook.list_parameter("key"),
    tags=notebook.list_parameter("tag"),
    brokers=brokers,
    start=notebook.time_parameter("from"),
    end=notebook.time_parameter("to"),
)
chosen = selection_condition(asked)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Dry run

# COMMAND ----------

queues = count_messages_by_queue(table, chosen)
over_time = count_over_time(table, chosen, queues)
report = selected_messages_report(queues, over_time, rate)
notebook.print_sentences(report.verdict.sentence)
notebook.show_sections(report.find_section("selected"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Run

# COMMAND ----------

replayed = replay_once(
    lake,
    table,
    chosen,
    queues,
    name_servers=notebook.values["namesrv"],
    target_topic=notebook.values["to_topic"] or None,
    rate=rate,
    includes_replayed=notebook.values["again"] == "yes",
)
sent = replay_outcome_report(replayed)
notebook.print_sentences("", sent.verdict.sentence)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Outcome
# MAGIC What each group that consumes the target's topics has done with the messages by now. Run this cell's notebook
# MAGIC again to see more: nothing is sent twice.

# COMMAND ----------

notebook.show_sections(sent.find_section("groups"))
