"""Targets of `commitlake ship`, to which a broker's store is copied: a folder, or a prefix in an object store.

ship_target     interface of a target, and its errors
folder_target   a local or mounted folder, which is itself a store
storage_target  a prefix in an object store, or a folder in HDFS

An agent runs beside a broker: nothing here imports Spark, Arrow or numpy, and memory is bounded by the size of a part.
"""
