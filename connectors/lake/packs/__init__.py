"""Body packs: the bodies of a lake's messages, in files of their own, so that they can expire before the metadata.

frames    what a pack is; references to it     stores    where packs lie: an interface, a local folder
names     names, and the check of names        s3_store  the same in an object store
writer    bodies of a window to a pack         location  which place is meant, for workers
reader    references to bodies                 body      the body of one row, decompressed
errors    what can go wrong                    kernel    compiled: copies bodies, compares their CRC

body_batches  the bodies of Arrow batches      spark_reader  a column `body` for a DataFrame
body_check    the same, measured, for audits   spark_check   the same for a DataFrame

Names and packs that come from a table or a folder are read as if an enemy had written them; what a writer is given by
its caller is an error of the caller's where it does not fit.
"""
