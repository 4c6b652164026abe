"""Expectations of an archive run: suites over its profile, as data.

expectation   types of expectations and suites
suites        all suites, and former names of expectations, for results in older lakes
"""
