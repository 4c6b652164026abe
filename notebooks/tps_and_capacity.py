# Databricks notebook source
# MAGIC %md
# MAGIC # Messages per second, and capacity
# MAGIC How much the brokers stored, when most, of which topics, and how much log a day has. A window without messages
# MAGIC has no row, also where its time is not archived. The figures are those of `commitlake tps`.
# MAGIC
# MAGIC Parameters are widgets on Databricks, and arguments elsewhere (`python notebooks/tps_and_capacity.py --help`).
# MAGIC The default is the lake of `./spark-submit.sh demo`.

# COMMAND ----------

import plotly.express as px
from pyspark.sql import functions as F

import commitlake
from commitlake.jobs.notebooks.notebook import BROKER, FROM, LAKE, TO, TOPIC, Parameter, open_notebook

notebook = open_notebook(
    "Messages per second of any past time, by topic, and how much log a day has.",
    globals(),
    LAKE,
    FROM,
    TO,
    TOPIC,
    BROKER,
    Parameter("window", "length of a window, as in 5m or 1h", "1h"),
    Parameter("disk", "size of a broker's disk for the log, in GiB", "100"),
)
lake = commitlake.open(notebook.lake_location, notebook.spark)
since, until = notebook.time_range()
wanted = {name: notebook.list_parameter(name) or None for name in ("topic", "broker")}

# COMMAND ----------

# MAGIC %md
# MAGIC ## Topics, the busiest first

# COMMAND ----------

rates = lake.tps(by="topic", window=notebook.values["window"], since=since, until=until, **wanted)
topics = rates.groupBy("topic").agg(
    *(F.sum(name).alias(name) for name in ("messages", "sent", "retries", "dead_letters", "bytes")),
    F.max("messages_per_s").alias("peak_per_s"),
)
notebook.display("Topics", topics.orderBy(F.desc("messages"), "topic"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Over time
# MAGIC The eight topics with the most messages.

# COMMAND ----------

busiest = topics.orderBy(F.desc("messages"), "topic").limit(8).select("topic")
points = rates.join(busiest, "topic", "left_semi").orderBy("window_start", "topic").toPandas()
notebook.plot(px.bar(points, x="window_start", y="messages_per_s", color="topic", title="Messages per second"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Capacity
# MAGIC The log that each store wrote on each day, and for how many such days its disk has room.

# COMMAND ----------

days = lake.tps(by="broker", window="1 day", since=since, until=until, **wanted)
days = days.select("broker", "window_start", (F.col("bytes") / F.lit(1 << 30)).alias("gib"))
days = days.withColumn("days_on_disk", notebook.number_parameter("disk") / F.col("gib"))
notebook.display("Log by day", days.orderBy(F.desc("window_start"), "broker"))
