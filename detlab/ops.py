"""What is known of ops by their name alone: for traces that do not say it, and for judging contradictions.

Names are those of torch's dispatcher with their overload (``aten.mul.Tensor``, ``c10d.allreduce_.default``)
or a library's own spelling (``all_reduce``). Everything here is data; each table says what it rests on.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from typing import Final

VIEWS: Final = frozenset(
    """
    _conj _neg_view _reshape_alias _unsafe_view alias as_strided chunk detach diagonal expand expand_as
    flatten hsplit imag lift lift_fresh movedim narrow permute ravel real reshape select set slice split
    split_with_sizes squeeze swapaxes t tensor_split transpose unbind unflatten unfold unsqueeze view
    view_as view_as_complex view_as_real vsplit wait_tensor
    """.split()
)
"""Ops that give their input's bytes under another shape; torch marks them as aliasing in their schema."""

FRESH: Final = frozenset(
    "empty empty_like empty_strided empty_permuted new_empty new_empty_strided resize resize_".split()
)
"""Ops that give memory which nobody has written."""

OVERWRITING: Final = frozenset(
    """
    bernoulli_ cauchy_ copy_ exponential_ fill_ geometric_ log_normal_ normal_ random_ uniform_ zero_
    _foreach_copy_ _foreach_zero_
    """.split()
)
"""In-place ops that write their target whole and never read it: the target is no input."""

SEEDED: Final = frozenset(
    """
    bernoulli bernoulli_ binomial cauchy_ dropout exponential_ feature_dropout geometric_ log_normal_
    multinomial native_dropout normal normal_ poisson rand rand_like randint randint_like randn
    randn_like random random_ randperm rrelu uniform uniform_ _fused_dropout _standard_gamma
    _scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention
    """.split()
)
"""Ops that draw from a generator; torch tags them ``nondeterministic_seeded``."""

HOST_SCALARS: Final = frozenset(
    """
    add add_ addcdiv addcdiv_ addcmul addcmul_ div div_ fill fill_ full full_like lerp lerp_ mul mul_
    narrow pow pow_ rsub slice split split_with_sizes sub sub_ true_divide _fused_adam _fused_adam_
    _fused_adamw _fused_adamw_ _fused_sgd _fused_sgd_ scalar_tensor clamp clamp_
    """.split()
)
"""Ops whose numeric arguments can carry state of the run: loss scale, clip coefficient, lr, offsets.

Where a trace lists no scalars, these calls are not closed. Ops of the ``_foreach_`` family belong here too.
"""

DETERMINISTIC: Final = frozenset(
    """
    _local_scalar_dense _to_copy abs abs_ add add_ addcdiv addcdiv_ addcmul addcmul_ bitwise_and
    bitwise_not bitwise_or cat ceil clamp clamp_ clone copy_ cos div div_ eq equal exp expand fill_
    floor ge gelu gt is_nonzero item le lerp lerp_ log logical_and logical_not lt masked_fill
    masked_fill_ maximum minimum mul mul_ ne neg ones_like pow reciprocal relu relu_ rsqrt rsub sigmoid
    sign silu sin sqrt stack sub sub_ tanh threshold_backward tril triu where zero_ zeros_like
    """.split()
)
"""Elementwise ops, copies and host reads: each result depends on one place of each input, in one way."""

CONSTANTS: Final = frozenset(
    """
    arange eye full full_like linspace logspace ones ones_like scalar_tensor tril_indices zeros zeros_like
    """.split()
)
"""Ops that make a tensor of their scalar arguments alone."""

LANES: Final = ("_foreach_", "_fused_adam", "_fused_adamw", "_fused_sgd")
"""Beginnings of list ops in which lane *i* of the output depends on lane *i* of the inputs alone."""


FROM_HOST: Final = frozenset("lift lift_fresh lift_fresh_copy".split())
"""Ops whose input is a tensor just made from Python numbers: it has no producer among the ops."""


class Dependence(Enum):
    """What the output of a call that communicates depends on."""

    EVERY_MEMBER = "every member"
    PIECES = "piece k on member k"
    SLICES = "a slice of every member"
    SOURCE = "the source"
    SEND = "the matching send"
    ROOT_ONLY = "every member, at the root alone"
    NOTHING = "nothing"


_DEPENDENCE: Final = (
    ("allreduce", Dependence.EVERY_MEMBER),
    ("reducescatter", Dependence.SLICES),
    ("alltoall", Dependence.SLICES),
    ("allgather", Dependence.PIECES),
    ("broadcast", Dependence.SOURCE),
    ("scatter", Dependence.SOURCE),
    ("gather", Dependence.ROOT_ONLY),
    ("reduce", Dependence.ROOT_ONLY),
    ("recv", Dependence.SEND),
    ("irecv", Dependence.SEND),
    ("send", Dependence.NOTHING),
    ("isend", Dependence.NOTHING),
    ("barrier", Dependence.NOTHING),
)


@lru_cache(maxsize=65_536)
def base_name(op: str) -> str:
    """Give the name without library and overload: ``mul`` for ``aten.mul.Tensor``."""
    parts = op.replace("::", ".").split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def is_view(op: str) -> bool:
    """Say whether the op only gives its input another shape."""
    return base_name(op) in VIEWS


def makes_fresh_memory(op: str) -> bool:
    """Say whether the op gives memory that nobody has written."""
    return base_name(op) in FRESH


def overwrites_target(op: str) -> bool:
    """Say whether the op writes its first argument whole without reading it."""
    return base_name(op) in OVERWRITING


def is_seeded(op: str) -> bool:
    """Say whether the op draws from a random generator."""
    return base_name(op) in SEEDED


def takes_host_scalar(op: str) -> bool:
    """Say whether a numeric argument of the op can carry state of the run."""
    name = base_name(op)
    return name in HOST_SCALARS or name.startswith("_foreach_")


def is_deterministic(op: str) -> bool:
    """Say whether the op cannot give other bits for the same bits on sound hardware."""
    name = base_name(op).removeprefix("_foreach_")
    return name in DETERMINISTIC or name in VIEWS


def comes_from_host(op: str) -> bool:
    """Say whether the op's input was made from Python numbers."""
    return base_name(op) in FROM_HOST


def is_constant(op: str) -> bool:
    """Say whether the op makes a tensor of its scalar arguments alone."""
    return base_name(op) in CONSTANTS


def is_lane_wise(op: str) -> bool:
    """Say whether the op works on lists, lane by lane."""
    return base_name(op).startswith(LANES)


LISTS_A_TENSOR_PER_MEMBER: Final = frozenset(
    """
    all_gather all_to_all allgather_ alltoall_ gather gather_ reduce_scatter reduce_scatter_ scatter scatter_
    """.split()
)
"""Collectives that take or give a list with one tensor for each member; the coalesced ones list buckets."""


def lists_a_tensor_per_member(op: str) -> bool:
    """Say whether pieces or slices of the collective are tensors of their own, one for each member."""
    return base_name(op) in LISTS_A_TENSOR_PER_MEMBER


@lru_cache(maxsize=4_096)
def dependence(op: str) -> Dependence:
    """Give what the output of a communicating call depends on; every member where the name is unknown."""
    name = base_name(op).replace("_", "").replace("base", "").replace("coalesced", "")
    return next((kind for start, kind in _DEPENDENCE if name.startswith(start)), Dependence.EVERY_MEMBER)
