"""What all tests share: hypothesis judges what is computed, never how long a busy machine takes for it."""

from hypothesis import settings

settings.register_profile("detlab", deadline=None, max_examples=50)
settings.load_profile("detlab")
