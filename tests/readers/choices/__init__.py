"""Readers of choices."""
