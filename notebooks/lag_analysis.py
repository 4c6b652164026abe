# Databricks notebook source
# MAGIC %md
# MAGIC # Lag of consumer groups
# MAGIC Which group is behind, by how much, since when, and whether it catches up. Messages that a group's filter leaves
# MAGIC out do not count. The figures are those of `commitlake lag`, which also gives a verdict on each group.
# MAGIC
# MAGIC Parameters are widgets on Databricks, and arguments elsewhere (`python notebooks/lag_analysis.py --help`).
# MAGIC The default is the lake of `./spark-submit.sh demo`.

# COMMAND ----------

import plotly.express as px
from pyspark.sql import functions as F

import commitlake
from commitlake.jobs.notebooks.notebook import BROKER, FROM, GROUP, LAKE, TOPIC, Parameter, open_notebook

notebook = open_notebook(
    "Lag of consumer groups, now or at a past time, and how it came about.",
    globals(),
    LAKE,
    Parameter("at", "a past time: 2026-11-20T14:05, or -2h; the last snapshot where it is empty"),
    FROM,
    GROUP,
    TOPIC,
    BROKER,
    Parameter("window", "length of the picture's windows, as in 5m or 1h", "1h"),
)
lake = commitlake.open(notebook.lake_location, notebook.spark)
at = notebook.time_parameter("at")
wanted = {name: notebook.list_parameter(name) or None for name in ("group", "topic", "broker")}

# COMMAND ----------

# MAGIC %md
# MAGIC ## Groups, the worst first

# COMMAND ----------

groups = lake.lag(at=at, by="group", **wanted)
notebook.display("Groups", groups.orderBy(F.desc_nulls_first("messages_max"), F.desc("time_lag_s_max"), "group"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Queues in which messages wait, or may wait

# COMMAND ----------

queues = lake.lag(at=at, **wanted).where("messages_max > 0 OR messages_max IS NULL")
notebook.display("Queues", queues.orderBy(F.desc("time_lag_s_max"), "group", "topic", "queue_id"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## How it came about
# MAGIC At the end of each window of a day, or of the time from `from` on: messages that a group has at most still to
# MAGIC consume.

# COMMAND ----------

window, since = notebook.values["window"], notebook.time_parameter("from")
history = lake.lag_history(window=window, since=since, until=at, by="group", **wanted).orderBy("as_of", "group")
behind = px.line(history.toPandas(), x="as_of", y="messages_max", color="group", title="Messages behind")
notebook.plot(behind)
