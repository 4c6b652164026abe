# Databricks notebook source
# MAGIC %md
# MAGIC # Dead letters by cause
# MAGIC Which messages consumer groups gave up, and why, as far as the log tells: the group, the topic that the message
# MAGIC was sent to, its tag, how often it was tried, and what the client says in the property `EXCEPTION` or `ERROR`,
# MAGIC if it sets one. JMQ has no dead letters in its log. `commitlake dlq redrive` sends them again.
# MAGIC
# MAGIC Parameters are widgets on Databricks, and arguments elsewhere (`python notebooks/dead_letters.py --help`).
# MAGIC The default is the lake of `./spark-submit.sh demo`.

# COMMAND ----------

import plotly.express as px
from pyspark.sql import functions as F

import commitlake
from commitlake.jobs.notebooks.notebook import BROKER, FROM, GROUP, LAKE, TO, open_notebook

notebook = open_notebook(
    "Messages that consumer groups gave up, by group and cause.", globals(), LAKE, GROUP, BROKER, FROM, TO
)
lake = commitlake.open(notebook.lake_location, notebook.spark)
since, until = notebook.time_range()
wanted = {name: notebook.list_parameter(name) or None for name in ("group", "broker")}
letters = lake.dead_letters(since=since, until=until, **wanted)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Causes, the most frequent first
# MAGIC `failed_again` counts messages that a replay had sent again before.

# COMMAND ----------

causes = letters.groupBy("group", "origin_topic", "tags", "reconsume_times", "reason").agg(
    F.count("*").alias("messages"),
    F.count_if("replayed").alias("failed_again"),
    F.min("store_timestamp").alias("first"),
    F.max("store_timestamp").alias("last"),
)
notebook.display("Causes", causes.orderBy(F.desc("messages"), "group", "origin_topic", "reason"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Over time

# COMMAND ----------

hours = letters.groupBy(F.date_trunc("hour", "store_timestamp").alias("hour"), "group").count().orderBy("hour", "group")
notebook.plot(px.bar(hours.toPandas(), x="hour", y="count", color="group", title="Dead letters by hour"))
