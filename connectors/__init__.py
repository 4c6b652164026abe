"""Adapters to the outside world, without business rules.

    formats   reads broker stores, without Spark
    sources   Spark data sources over broker stores
    lake      Delta tables, the commit protocol, body packs
    hbase     tables, look-ups, and a Spark data source
    storage   places for files: S3, Azure, Google, HDFS
    rocketmq  live brokers: producer, puller, administration
    runtime   Spark sessions, the JVM, jars, and functions over many tasks

    numpy_arrays   the type of numpy arrays in signatures
    atomic_files   local files that exist completely or not at all
    worker_errors  errors of Spark's worker processes, raised in the driver with their own type

An import contract in `pyproject.toml` states the order among these packages.
"""
