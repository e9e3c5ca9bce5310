"""A small reader of shell scripts: words, what they expand to, and which program they start. Runs nothing."""
