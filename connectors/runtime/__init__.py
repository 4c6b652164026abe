"""Where code runs: in this process, in a pool of processes, or on Spark.

spark_session  a job's session          jvm, java, jars  what it needs         spark_noise  what it says to nobody
running        a function over many tasks
"""
