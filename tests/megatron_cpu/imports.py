"""Import all of Megatron-Core that training needs, once, in the process that the ranks are forked from."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import megatron.core.distributed
    import megatron.core.models.gpt
    import megatron.core.optimizer
    import megatron.core.pipeline_parallel  # noqa: F401 - imported to be there after the fork
