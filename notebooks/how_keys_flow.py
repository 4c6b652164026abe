# Databricks notebook source
# MAGIC %md
# MAGIC # How keys flow
# MAGIC Which topics follow which on a day, by business keys that go from one topic to the next: how often, how fast.
# MAGIC `commitlake lineage --topics` draws a page of it, and `commitlake journeys` prints paths and times.
# MAGIC
# MAGIC Parameters are widgets on Databricks, and arguments elsewhere (`python notebooks/how_keys_flow.py --help`).
# MAGIC The default is the lake of `./spark-submit.sh demo`.

# COMMAND ----------

import plotly.express as px
from pyspark.sql import functions as F

import commitlake
from commitlake.jobs.notebooks.notebook import FROM, LAKE, TO, TOPIC, flow_figure, open_notebook

notebook = open_notebook("Which topics follow which, by keys that pass.", globals(), LAKE, FROM, TO, TOPIC)
lake = commitlake.open(notebook.lake_location, notebook.spark)
since, until = notebook.time_range_or_last_day(lake)
topic = notebook.list_parameter("topic") or None

# COMMAND ----------

# MAGIC %md
# MAGIC ## Hops from topic to topic, the most frequent first
# MAGIC Of the last day that is archived, where no time is given. Times are at most 10 % too long.

# COMMAND ----------

hops = lake.topic_flow(since=since, until=until, window=None, topic=topic).drop("hour", "delays")
notebook.display("Hops", hops.orderBy(F.desc("hops"), "source", "target"))
notebook.plot(flow_figure(hops.toPandas(), "Flow of keys"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## How fast, over time
# MAGIC Time that 95 % of the hops of an hour took at most, in seconds.

# COMMAND ----------

name, seconds = F.concat_ws(" > ", "source", "target").alias("hop"), (F.col("p95_ms") / 1000).alias("seconds")
hours = lake.topic_flow(since=since, until=until, topic=topic).select("hour", name, seconds).orderBy("hour", "hop")
notebook.plot(px.line(hours.toPandas(), x="hour", y="seconds", color="hop", markers=True, title="95 % within"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Paths of keys, the most frequent first

# COMMAND ----------

journeys = lake.journeys(since=since, until=until, topic=topic).where("NOT began_before")
paths = journeys.groupBy("path").agg(F.count("*").alias("keys"), F.count_if(F.col("outcome") == "dead").alias("dead"))
notebook.display("Paths", paths.orderBy(F.desc("keys"), "path"))
