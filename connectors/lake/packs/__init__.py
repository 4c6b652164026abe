"""Packs: files with the bodies of a lake's messages, separate so that bodies can expire before the metadata.

frames    format of a pack, references to it    stores    the place of packs, by their names
names     names of packs, and their check
writer    bodies of a window to a pack          location  root of the packs, for workers
reader    references to bodies                  body      the body of one row, decompressed
errors    errors of packs and references        kernel    compiled: copies bodies, compares their CRC

body_batches  the bodies of Arrow batches       spark_reader  a column `body` for a DataFrame

Names and packs that come from a table or a folder are treated as hostile input. Wrong arguments from a writer's own
caller are errors of the caller.
"""
