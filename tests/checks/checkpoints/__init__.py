"""Tests of reading and comparing checkpoints, with files that torch itself wrote."""
