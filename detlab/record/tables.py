"""What the schemas of torch's ops do not say and only a recorder needs; `detlab.ops` has the rest."""

from typing import Final

PARTIAL_WRITERS: Final = frozenset(
    (
        "index_put_ _index_put_impl_ index_copy_ index_fill_ put_ scatter_ masked_fill_ masked_scatter_ "
        "fill_diagonal_"
    ).split()
)
"""In-place ops that write some elements and leave the others as they are, without computing from them."""

ALIASING: Final = frozenset("_unsafe_view set_ resize_ resize_as_".split())
"""Ops that give a tensor other bounds over bytes they do not compute, though their schema is no view's."""

SCALED_SELF: Final = frozenset(
    "addmm addmm_ addmv addmv_ addbmm addbmm_ baddbmm baddbmm_ addr addr_ _addmm_activation".split()
)
"""Ops that do not read their first argument when ``beta`` is zero."""

COMMUNICATION_SETTINGS: Final = frozenset(
    "process_group group_name async_op timeout device_ids reduce_op root_tensor".split()
)
"""Arguments of collectives that are no part of what is computed, or are told by an attribute."""
