"""What is expected of an archive run: suites of expectations over its profile, as data.

expectation   what an expectation is
soundness     the suites rows, bodies, windows, run: what was read and counted is right
operation     the suites queues, times, topics: what operators want to know
suites        all of them
"""
