"""Access to the files of stores: segments, queues and indexes, local or remote.

segment_files  segments on disks and other filesystems   windows  mapped or read, in order; ahead (read_ahead)
log_folders    folders of a log, which may be several
store_files    queues and indexes by their paths: on a disk (index_files) or in a copy (shipped, shipped_files)
"""
