"""Claims about calls on an accelerator; each runs on the CPU too where the call exists there."""
