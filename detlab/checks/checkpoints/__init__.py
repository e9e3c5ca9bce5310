"""Checkpoints of any format, read as named leaves and compared byte by byte."""
