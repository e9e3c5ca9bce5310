"""Trials in a process of their own: ``python -m detlab.kernel.worker`` reads and writes JSON."""
