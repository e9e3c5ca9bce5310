"""Readers of profiles."""
