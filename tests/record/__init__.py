"""What the recorder claims."""
