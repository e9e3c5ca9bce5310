"""Pieces of a tensor: together they are all of it, once."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from detlab.record.pieces import cut, cuts_inputs, cuts_outputs


@given(st.integers(1, 5), st.lists(st.integers(0, 4), min_size=1, max_size=3))
def test_pieces_are_the_tensor(num_pieces, shape):
    tensor = torch.arange(torch.Size(shape).numel()).view(shape)
    pieces = cut([tensor], num_pieces)
    assert len(pieces) in (1, num_pieces)
    assert [x for piece in pieces for x in piece.reshape(-1).tolist()] == list(range(tensor.numel()))


@given(st.lists(st.integers(0, 4), min_size=1, max_size=4))
def test_pieces_of_given_sizes_have_them(sizes):
    tensor = torch.ones(sum(sizes), 2)
    assert [len(piece) for piece in cut([tensor], len(sizes), sizes)] == sizes


def test_what_cannot_be_cut_stays_whole():
    tensor = torch.ones(3, 3).t()
    assert [piece.shape for piece in cut([tensor], 2)] == [(3, 3)]
    assert [piece.shape for piece in cut([torch.ones(3)], 2, [1, 1])] == [(3,)]


def test_only_ops_that_take_one_tensor_are_cut():
    assert cuts_inputs("c10d._reduce_scatter_base_.default")
    assert cuts_inputs("c10d.reduce_scatter_tensor_coalesced_.default")
    assert cuts_inputs("c10d.alltoall_base_.default")
    assert cuts_inputs("_c10d_functional.reduce_scatter_tensor.default")
    assert not cuts_inputs("c10d.reduce_scatter_.default")
    assert not cuts_inputs("c10d.allreduce_.default")
    assert cuts_outputs("c10d._allgather_base_.default")
    assert cuts_outputs("c10d.allgather_into_tensor_coalesced_.default")
    assert not cuts_outputs("c10d.allgather_.default")
