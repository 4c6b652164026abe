# Databricks notebook source
# MAGIC %md
# MAGIC # Look into a lake
# MAGIC What lies in a CommitLake archive, and what happened to one business key. Set `lake` and `key` below; the demo's
# MAGIC (`./spark-submit.sh demo`) are the defaults.

# COMMAND ----------

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

try:
    spark, display, dbutils  # there already, on Databricks
except NameError:
    from commitlake.connectors.runtime.spark_session import get_session

    spark, dbutils = get_session("notebook"), None

    def display(frame: DataFrame) -> None:
        """Show a table outside Databricks."""
        frame.show(truncate=False)


# COMMAND ----------

lake = "commitlake-demo/lake"
key = "order-4711"
if dbutils is not None:
    dbutils.widgets.text("lake", lake)
    dbutils.widgets.text("key", key)
    lake, key = dbutils.widgets.get("lake"), dbutils.widgets.get("key")

# COMMAND ----------

messages = spark.read.format("delta").load(f"{lake}/messages")
display(messages.groupBy("store_date", "topic", "kind").count().orderBy("store_date", "topic"))

# COMMAND ----------

history = messages.where(F.array_contains("keys", key))
display(
    history.select("store_timestamp", "topic", "kind", "tags", "reconsume_times", "msg_id").orderBy(
        "store_timestamp", "physical_offset"
    )
)
