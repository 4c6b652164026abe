"""`commitlake offsets`: the offsets that a group had at a time, or needs to consume from a time; and setting them.

command     the command line
gather      from arguments to offsets
rows        offsets as they are printed
apply       sets them
"""
