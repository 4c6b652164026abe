"""Rows of `messages` without what must not be in the lake.

erased_rows   messages that were erased: what is taken out of their rows, and what stays
tombstones    rows of `erasures`: the proof of what a row was before, and is afterwards
"""
