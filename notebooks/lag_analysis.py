# Databricks notebook source
# MAGIC %md
# MAGIC # Lag of consumer groups
# MAGIC Which group is behind, by how much, since when, and whether it catches up. Messages that a group's filter leaves
# MAGIC out do not count. The figures are those of `commitlake lag`.
# MAGIC
# MAGIC Parameters are widgets on Databricks, and arguments elsewhere (`python notebooks/lag_analysis.py --help`).
# MAGIC The default is the lake of `./spark-submit.sh demo`.

# COMMAND ----------

from commitlake.jobs.arguments.lake_names import check_archived_brokers
from commitlake.jobs.lag.arguments import LagGroupArguments
from commitlake.jobs.lag.report import LagSource, lag_report
from commitlake.jobs.lag.source import unknown_name_sentences
from commitlake.jobs.notebooks.notebook import BROKER, LAKE, Parameter, open_notebook
from commitlake.pipelines.lag.groups import find_stalled_since, summarize_by_group
from commitlake.pipelines.lag.history import lag_history
from commitlake.pipelines.lag.store_lag import lag_of_lake
from commitlake.schemas.selection import Selection

notebook = open_notebook(
    "Lag of consumer groups, now or at a past time, and how it came about.",
    globals(),
    LAKE,
    Parameter("at", "a past time: 2026-11-20T14:05, or -2h; the last snapshot where it is empty"),
    Parameter("group", "only these groups, with commas between"),
    Parameter("topic", "only these topics, with commas between"),
    BROKER,
)
lake, brokers = notebook.lake, notebook.list_parameter("broker")
wanted = Selection(brokers=brokers, groups=notebook.list_parameter("group"), topics=notebook.list_parameter("topic"))
check_archived_brokers(lake, brokers)

# COMMAND ----------

# MAGIC %md
# MAGIC ## The answer

# COMMAND ----------

lag = lag_of_lake(lake, notebook.time_parameter("at"), wanted)
groups = summarize_by_group(lag.rows)
since = find_stalled_since(lake, groups[0].worst_row) if groups else None
unknown = unknown_name_sentences(LagGroupArguments(group=tuple(wanted.groups), topic=tuple(wanted.topics)), lag)
names, until = [group.group for group in groups], max((row.as_of for row in lag.rows), default=None)
history = lag_history(lake, names, until, brokers, topics=wanted.topics) if until else None
report = lag_report(lag, history, LagSource(("--lake", lake.root), notebook.time_parameter("at")), unknown, since)
notebook.say(report.verdict.sentence)
notebook.show(report.section("summary"), report.section("do"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Groups, the worst first

# COMMAND ----------

notebook.show(report.section("groups"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Queues, and what brokers hold back

# COMMAND ----------

notebook.show(report.section("queues"), report.section("held"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## How it came about
# MAGIC The last snapshot of each window. A window without one has no figure, unless snapshots around it are near.

# COMMAND ----------

notebook.show(report.section("history"))
