# Databricks notebook source
# MAGIC %md
# MAGIC # Orders that got stuck
# MAGIC Business keys of a day that came through one topic and never reached another: paid, and never shipped. How long
# MAGIC they have been waiting, what holds them back, and where the others went.
# MAGIC
# MAGIC Parameters are widgets on Databricks, and arguments elsewhere
# MAGIC (`python notebooks/orders_that_got_stuck.py --help`). The default is the lake of `./spark-submit.sh demo`.

# COMMAND ----------

import plotly.express as px
from pyspark.sql import functions as F

import commitlake
from commitlake.jobs.notebooks.notebook import FROM, LAKE, TO, Parameter, flow_figure, open_notebook

notebook = open_notebook(
    "Keys that came through one topic, and never reached another.",
    globals(),
    LAKE,
    FROM,
    TO,
    Parameter("through", "the topic that keys came through", "payments"),
    Parameter("missing", "the topic that they never reached", "shipments"),
)
lake = commitlake.open(notebook.lake_location, notebook.spark)
since, until = notebook.time_range_or_last_day(lake)
through, missing = notebook.values["through"], notebook.values["missing"]

# COMMAND ----------

# MAGIC %md
# MAGIC ## How many, and why
# MAGIC `outcome` says what holds a key back: `dead` (a consumer group gave a message up), `prepared` (a transaction is
# MAGIC open), `waiting` (a delay, or a retry), or that its last message was `delivered`, and nothing followed. Keys
# MAGIC that began before this time are left out.

# COMMAND ----------

journeys = lake.journeys(since=since, until=until).where("NOT began_before")
reached = journeys.where(F.array_contains("path", through))
stuck = reached.where(~F.array_contains("path", missing))
keys = F.count("*").alias("keys")
notebook.display("Keys by outcome", stuck.groupBy("last_topic", "outcome").agg(keys).orderBy(F.desc("keys"), "outcome"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## The keys, the longest wait first
# MAGIC The wait is the time from the last message of a key to the end of the archived time.

# COMMAND ----------

waited = F.timestamp_diff("MINUTE", "last_sent_at", F.lit(until)).alias("minutes")
columns = ["key", "path", "outcome", "last_sent_at", waited, "due_at", "retries", "dead_letters"]
notebook.display("Stuck keys", stuck.select(columns).orderBy("last_sent_at", "key"))
minutes = stuck.select("outcome", waited).toPandas()
notebook.plot(px.histogram(minutes, x="minutes", color="outcome", nbins=24, title="Minutes since the last message"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Where all keys went

# COMMAND ----------

hops = lake.topic_flow(since=since, until=until, window=None).toPandas()
notebook.plot(flow_figure(hops, "Flow of keys"))
