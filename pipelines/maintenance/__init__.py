"""Care of a lake's tables without a JVM: fewer and larger files in the order that look-ups want, and nothing too old.

table_files   a table's data files as its log names them; the commit that exchanges some for others
bins          which files to merge
merging       sorted files into one sorted file, in bounded memory
compaction    OPTIMIZE: bins, merged, committed one by one
expiry        rows and packs that are older than they should be kept
log_care      VACUUM, checkpoints, and the end of old log entries
orphans       packs that no row names

Why this is not deltalake's own OPTIMIZE: that one appends files to one another, after which every row group holds every
topic, or orders them by the first bytes of a value. And two of them at the same time, or one beside this, leave every
row twice (deltalake 1.6.6 finds no conflict between removals that change no data).
"""
