"""`commitlake offsets`: show the offsets that a group had at a time, or needs to consume from a time, and set them.

command     the command line
gather      from arguments to offsets
rows        offsets as they are printed
apply       sets them
"""
