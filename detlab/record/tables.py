"""What the schemas of torch's ops do not say: names of ops and arguments that are treated specially."""

from typing import Final

OVERWRITERS: Final = frozenset(
    (
        "copy_",
        "fill_",
        "zero_",
        "normal_",
        "uniform_",
        "bernoulli_",
        "random_",
        "exponential_",
        "log_normal_",
        "cauchy_",
        "geometric_",
        "set_",
        "_foreach_copy_",
        "_foreach_zero_",
    )
)
"""In-place ops that never read what they write to; each writes all of its first argument."""

PARTIAL_WRITERS: Final = frozenset(
    (
        "index_put_",
        "_index_put_impl_",
        "index_copy_",
        "index_fill_",
        "put_",
        "scatter_",
        "masked_fill_",
        "masked_scatter_",
        "fill_diagonal_",
    )
)
"""In-place ops that write some elements and leave the others as they are, without computing from them."""

FRESH: Final = frozenset(
    (
        "empty",
        "empty_like",
        "empty_strided",
        "empty_permuted",
        "new_empty",
        "new_empty_strided",
    )
)
"""Ops that return memory without writing to it."""

ALIASING: Final = frozenset(
    (
        "_unsafe_view",
        "set_",
        "resize_",
        "resize_as_",
    )
)
"""Ops that give a tensor other bounds over bytes they do not compute, though their schema is no view's."""

SCALED_SELF: Final = frozenset(
    (
        "addmm",
        "addmm_",
        "addmv",
        "addmv_",
        "addbmm",
        "addbmm_",
        "baddbmm",
        "baddbmm_",
        "addr",
        "addr_",
        "_addmm_activation",
    )
)
"""Ops that do not read their first argument when ``beta`` is zero."""

COMMUNICATION_SETTINGS: Final = frozenset(
    (
        "process_group",
        "group_name",
        "async_op",
        "timeout",
        "device_ids",
        "reduce_op",
        "root_tensor",
    )
)
"""Arguments of collectives that are no part of what is computed, or are told by an attribute."""
