"""The tests, one folder per package of detlab."""
