"""Train a small Megatron-Core GPT on the CPU, in several processes."""
