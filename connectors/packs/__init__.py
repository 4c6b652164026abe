"""Body packs: the bodies of a lake's messages, in files of their own, so that they can expire before the metadata.

frames    what a pack is; references to it     stores    where packs lie: a local folder
names     names, and the check of names        kernel    compiled: copies bodies, compares their CRC
writer    bodies of a window to a pack         reader    references to bodies
errors    what can go wrong                    spark_reader   a column `body` for a DataFrame

Names and packs that come from a table or a folder are read as if an enemy had written them; what a writer is given by
its caller is an error of the caller's where it does not fit.
"""
