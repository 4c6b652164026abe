"""`commitlake offsets`: show the offsets that a group had at a time, or needs to consume from a time, and set them.

command     the command line
compute_offsets      computes offsets from the arguments
formatting  formats offsets for printing
apply       sets offsets
"""
