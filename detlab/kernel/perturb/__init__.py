"""What a condition does to the machine while trials are made: load, memory and caches, settings."""
