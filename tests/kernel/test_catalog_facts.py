"""Facts of the catalogue that a CPU shows and that no other test does."""

import pytest
import torch

from detlab.digest import tensor_digest

MAX_TRIES = 20


def total(generator):
    values = torch.randn(1_000_003, generator=generator)
    return lambda: values.sum()


def gradient_of_layer_norm(generator):
    x, grad = (torch.randn(4096, 63, generator=generator) for _ in range(2))
    mean, rstd = torch.zeros(4096, 1), torch.ones(4096, 1)
    weight, bias = torch.ones(63), torch.zeros(63)
    backward = torch.ops.aten.native_layer_norm_backward
    return lambda: backward(grad, x, [63], mean, rstd, weight, bias, [False, True, False])[1]


def results(call, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return {tensor_digest(call()) for _ in range(10)}
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("kernel", [total, gradient_of_layer_norm])
def test_the_number_of_threads_decides_the_bits_of_a_sum_and_nothing_else_does(kernel):
    generator = torch.Generator().manual_seed(1)
    for _ in range(MAX_TRIES):  # another order often rounds to the same bits
        call = kernel(generator)
        one, four = results(call, 1), results(call, 4)
        assert len(one) == len(four) == 1
        if one != four:
            return
    raise AssertionError("1 and 4 threads gave the same bits every time")
