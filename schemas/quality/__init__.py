"""Expectations of an archive run: suites over its profile, as data.

expectation   types of expectations and suites
soundness     suites rows, bodies, windows, run: checks of reading and counting
operation     suites queues, times, topics: checks for operators
suites        all of them
former_names  former names of expectations, for results in older lakes
"""
