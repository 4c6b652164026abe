# Databricks notebook source
# MAGIC %md
# MAGIC # Health of the archive
# MAGIC How new the archive is, what of the brokers' logs it lacks, what its last runs did, and which expectations they
# MAGIC did not meet. Whether all tables agree, message by message, is what `commitlake audit` checks.
# MAGIC
# MAGIC Parameters are widgets on Databricks, and arguments elsewhere (`python notebooks/archive_health.py --help`).
# MAGIC The default is the lake of `./spark-submit.sh demo`.

# COMMAND ----------

import plotly.express as px
from pyspark.sql import functions as F

import commitlake
from commitlake.jobs.notebooks.notebook import LAKE, Parameter, open_notebook
from commitlake.schemas.quality.suites import FORMER_NAMES

notebook = open_notebook(
    "How new an archive is, and what it lacks.",
    globals(),
    LAKE,
    Parameter("late", "an archive whose last run is older is late, as in 26h", "26h"),
)
lake = commitlake.open(notebook.lake_location, notebook.spark)
runs = lake.table("archive_runs")
now = F.current_timestamp()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Is it on time?
# MAGIC The last run that found new messages, and the newest minute of each store that has messages, without times that
# MAGIC only wrong clocks have.

# COMMAND ----------

last_run, oldest = F.max("finished_at").alias("last_run"), now - notebook.duration_parameter("late")
notebook.display("The last run", runs.agg(last_run).withColumn("is_late", F.col("last_run") < oldest))
minutes = lake.table("topic_minutes").where(F.col("minute").between("2010-01-01", now + F.expr("INTERVAL 1 DAY")))
stores = minutes.groupBy("broker").agg(F.max("minute").alias("newest_minute"), F.sum("messages").alias("messages"))
stores = stores.withColumn("minutes_ago", F.timestamp_diff("MINUTE", "newest_minute", now))
notebook.display("Stores", stores.orderBy("newest_minute", "broker"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## What is missing
# MAGIC Ranges of the logs that could not be read, or that were deleted before they were archived.

# COMMAND ----------

damaged = lake.table("quarantine", or_empty=True).select("broker", "reason", "start_offset", "end_offset")
deleted = lake.table("gaps", or_empty=True).withColumn("reason", F.lit("deleted before it was archived"))
missing = damaged.unionByName(deleted.select(damaged.columns)).groupBy("broker", "reason")
size = F.sum(F.col("end_offset") - F.col("start_offset")).alias("bytes")
totals = missing.agg(F.count("*").alias("ranges"), size, F.min("start_offset").alias("first_offset"))
notebook.display("Ranges of logs that are not archived", totals.orderBy(F.desc("bytes"), "broker", "reason"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Expectations that the last run did not meet
# MAGIC Also those of a run that was stopped by them, and has archived nothing. Renamed ones have their present names.

# COMMAND ----------

results = lake.table("quality_results", or_empty=True)
last = results.orderBy(F.desc("judged_at")).limit(1).select("run_id")
unmet = results.join(last, "run_id", "left_semi").where("NOT success AND suite <> 'run'")
unmet = unmet.replace(FORMER_NAMES, subset=["expectation"])
columns = ["severity", "suite", "expectation", "observed_value", "unexpected_count", "judged_count"]
notebook.display("Expectations", unmet.select(columns).orderBy("severity", "suite", "expectation"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Runs

# COMMAND ----------

newest = runs.orderBy(F.desc("sequence")).limit(60)
notebook.display("The last runs", newest.drop("run_id", "parser_version"))
added = newest.orderBy("sequence").toPandas()
notebook.plot(px.bar(added, x="finished_at", y="messages", title="Messages added by each run"))
