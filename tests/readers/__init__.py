"""Fixtures and claims of the readers of foreign traces."""
