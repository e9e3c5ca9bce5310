"""Benchmarks: ratios measured in one run, printed as tables, never asserted."""
