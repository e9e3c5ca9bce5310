"""The worked alternatives do what their ops do, and in one order only."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from detlab.digest import tensor_digest
from detlab.kernel import fixed
from detlab.kernel.differences import ulp_distance

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
MAX_ROUNDS = 10


def distinct(call, trials):
    """Number of different results, by their bits."""
    return len({tensor_digest(call()) for _ in range(trials)})


def distinct_until(call, wanted, trials=20):
    """Most results seen in rounds of `trials`: a race shows by chance, so it gets several rounds."""
    rounds = (distinct(call, trials) for _ in range(MAX_ROUNDS))
    return next((found for found in rounds if found >= wanted), 0)


def relative_error(result, exact):
    """Distance from a float64 result in L2, as a share of it."""
    norm = exact.norm().clamp(min=1e-300)
    return float((result.double() - exact).norm() / norm)


def numbers(generator, *shape, dtype=torch.float32):
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


@pytest.fixture
def threads():
    """Set the number of threads for one test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def million():
    """A million float32 adds into a thousand places."""
    generator = torch.Generator().manual_seed(1)
    index = torch.randint(0, 1000, (1_000_000,), generator=generator)
    return index, torch.randn(1_000_000, generator=generator)


def test_the_op_races_on_four_threads_and_sorted_segments_do_not(threads, million):
    threads(4)
    index, values = million
    into = torch.zeros(1000)
    assert distinct_until(lambda: into.clone().index_put_((index,), values, accumulate=True), 2) >= 2
    assert distinct(lambda: fixed.index_put(into, [index], values, True), 20) == 1


def test_a_sum_of_sorted_segments_is_closer_to_the_exact_one_than_the_op_is(million):
    index, values = million
    exact = torch.zeros(1000).double().index_put_((index,), values.double(), accumulate=True)
    found = fixed.index_put(torch.zeros(1000), [index], values, True)
    op = torch.zeros(1000).index_put_((index,), values, accumulate=True)
    assert relative_error(found, exact) < 1e-6
    assert relative_error(found, exact) < relative_error(op, exact)


def test_sorted_segments_give_the_same_bits_on_any_number_of_threads(threads, million):
    index, values = million
    digests = set()
    for number in (1, 2, 4, 8):
        threads(number)
        digests.add(tensor_digest(fixed.index_put(torch.zeros(1000), [index], values, True)))
    assert len(digests) == 1


def test_integer_sums_are_those_of_the_op_to_the_bit(million):
    index, _ = million
    ones = torch.ones_like(index)
    op = torch.zeros(1000, dtype=torch.int64).index_put_((index,), ones, accumulate=True)
    found = fixed.index_put(torch.zeros(1000, dtype=torch.int64), [index], ones, True)
    assert tensor_digest(found) == tensor_digest(op)


@given(
    seed=st.integers(0, 2**31),
    num_places=st.integers(1, 9),
    num_rows=st.integers(0, 40),
    width=st.integers(0, 3),
    dtype=st.sampled_from(DTYPES),
)
def test_index_put_adds_rows_with_duplicates_and_negative_indices(seed, num_places, num_rows, width, dtype):
    generator = torch.Generator().manual_seed(seed)
    into = numbers(generator, num_places, width, dtype=dtype)
    index = torch.randint(-num_places, num_places, (num_rows,), generator=generator)
    values = numbers(generator, num_rows, width, dtype=dtype)
    exact = into.double().index_put((index,), values.double(), accumulate=True)
    found = fixed.index_put(into, [index], values, True)
    assert (found.dtype, found.shape) == (dtype, into.shape)
    largest = into.double().abs().sum() + values.double().abs().sum() + 1
    assert bool(((found.double() - exact).abs() <= 8 * torch.finfo(dtype).eps * largest).all())


def selections():
    """Ways to name places of a tensor of shape (4, 5, 6), as index_put takes them."""
    mask = torch.arange(20).view(4, 5) % 3 == 0
    pair = torch.tensor([[0, 1], [1, -1]])
    return {
        "one": [torch.tensor([0, 3, 3, 1])],
        "two": [torch.tensor([0, 3, 3]), torch.tensor([1, 4, 4])],
        "broadcast": [torch.tensor([[0], [2]]), torch.tensor([1, 1, 4])],
        "mask": [mask],
        "mask and list": [torch.tensor([True, False, True, True]), torch.tensor([1, 1, 1])],
        "second only": [None, pair],
        "first and third": [pair, None, pair],
        "last": [None, None, torch.tensor([5, 5, 0])],
        "trailing none": [torch.tensor([2, 2]), None],
        "int32": [torch.tensor([1, 1, 2], dtype=torch.int32)],
        "empty": [torch.tensor([], dtype=torch.int64)],
    }


@pytest.mark.parametrize("name", selections())
@pytest.mark.parametrize("accumulate", [True, False])
def test_every_way_to_name_places_means_what_it_means_to_the_op(name, accumulate):
    chosen = selections()[name]
    into = torch.arange(120.0).view(4, 5, 6)
    shape = torch.ops.aten.index.Tensor(into, chosen).shape
    values = torch.arange(float(shape.numel())).view(shape)  # whole numbers: exact in any order
    op = torch.ops.aten.index_put(into.clone(), chosen, values, accumulate)
    assert tensor_digest(fixed.index_put(into, chosen, values, accumulate)) == tensor_digest(op)


def test_one_value_is_added_at_every_place():
    index = torch.tensor([0, 1, 1])
    assert fixed.index_put(torch.zeros(3, 2), [index], torch.tensor(1.0), True).tolist() == [
        [1, 1],
        [2, 2],
        [0, 0],
    ]


def test_a_transposed_target_is_written_in_place():
    into = torch.zeros(2, 3)
    assert fixed.index_put_(into.t(), [torch.tensor([2, 2])], torch.ones(2, 2), True).shape == (3, 2)
    assert into.tolist() == [[0, 0, 2], [0, 0, 2]]


def test_a_place_without_rows_and_a_lone_negative_zero_keep_their_bits():
    into = torch.tensor([-0.0, 5.0])
    found = fixed.index_put(into, [torch.tensor([0])], torch.tensor([-0.0]), True)
    assert tensor_digest(found) == tensor_digest(into)


def test_an_index_out_of_range_is_refused_as_by_the_op():
    with pytest.raises(IndexError):
        fixed.index_put(torch.zeros(3), [torch.tensor([3])], torch.ones(1), True)
    with pytest.raises(IndexError, match="the places are 0 to 2"):
        fixed.index_add(torch.zeros(3), 0, torch.tensor([-1]), torch.ones(1))


@given(
    seed=st.integers(0, 2**31),
    dim=st.sampled_from([0, 1, -1]),
    num_rows=st.integers(0, 12),
    dtype=st.sampled_from(DTYPES),
    alpha=st.sampled_from([1, -2]),
)
def test_index_add_adds_slices(seed, dim, num_rows, dtype, alpha):
    generator = torch.Generator().manual_seed(seed)
    into = numbers(generator, 4, 5, 3, dtype=dtype)
    shape = list(into.shape)
    shape[dim] = num_rows
    index = torch.randint(0, into.shape[dim], (num_rows,), generator=generator)
    source = numbers(generator, *shape, dtype=dtype)
    exact = into.double().index_add(dim, index, source.double(), alpha=alpha)
    found = fixed.index_add(into, dim, index, source, alpha)
    assert found.dtype == dtype
    largest = into.double().abs().max() + 2 * source.double().abs().sum() + 1
    assert bool(((found.double() - exact).abs() <= 8 * torch.finfo(dtype).eps * largest).all())


@given(seed=st.integers(0, 2**31), dim=st.sampled_from([0, 1, -1]), rows=st.integers(0, 4))
def test_scatter_add_adds_single_elements(seed, dim, rows):
    generator = torch.Generator().manual_seed(seed)
    into, source = numbers(generator, 4, 4), numbers(generator, 4, 5)
    index = torch.randint(0, 4, (rows, 3), generator=generator)
    exact = into.double().scatter_add(dim, index, source.double())
    assert relative_error(fixed.scatter_add(into, dim, index, source), exact) < 1e-6


@given(
    seed=st.integers(0, 2**31),
    padding=st.sampled_from([-1, 0, 3]),
    scale=st.booleans(),
    num_tokens=st.integers(0, 30),
)
def test_the_gradient_of_an_embedding_is_that_of_the_op(seed, padding, scale, num_tokens):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 5, (num_tokens,), generator=generator)
    grads = numbers(generator, num_tokens, 4)
    backward = torch.ops.aten.embedding_dense_backward
    exact = backward(grads.double(), tokens, 5, padding, scale)
    found = fixed.embedding_dense_backward(grads, tokens, 5, padding, scale)
    assert relative_error(found, exact) < 1e-6


@given(
    size=st.integers(1, 9),
    k=st.integers(0, 9),
    largest=st.booleans(),
    values=st.lists(st.sampled_from([0.0, -0.0, 1.0, float("nan"), float("inf")]), min_size=18, max_size=18),
)
def test_topk_takes_what_the_op_takes_and_breaks_ties_by_the_lowest_index(size, k, largest, values):
    k = min(k, size)
    scores = torch.tensor(values).view(2, 9)[:, :size]
    found, where = fixed.topk(scores, k, largest=largest)
    op = torch.topk(scores, k, largest=largest).values
    assert tensor_digest((found + 0.0).nan_to_num(7.0)) == tensor_digest((op + 0.0).nan_to_num(7.0))
    assert tensor_digest(found) == tensor_digest(scores.gather(1, where))
    keys = found.nan_to_num(7.0).tolist()
    for row, places in zip(keys, where.tolist(), strict=True):
        tied = [(a, b) for x, y, a, b in zip(row, row[1:], places, places[1:], strict=False) if x == y]
        assert all(a < b for a, b in tied)


def test_topk_takes_the_first_of_equal_elements():
    assert fixed.topk(torch.ones(2, 1000), 3)[1].tolist() == [[0, 1, 2], [0, 1, 2]]
    assert fixed.topk(torch.tensor(4.0), 1)[1].tolist() == 0


def test_topk_refuses_more_than_there_is():
    with pytest.raises(IndexError, match="k is 4"):
        fixed.topk(torch.zeros(3), 4)


def arrival_order_mm(a, b, pool, num_splits):
    """Split-K as with atomics: each part is added when it is done, whichever that is."""
    total, lock = torch.zeros(a.shape[0], b.shape[1]), Lock()

    def add(part):
        product = a[:, part::num_splits] @ b[part::num_splits]
        with lock:
            total.add_(product)

    list(pool.map(add, range(num_splits)))
    return total


def test_parts_added_on_arrival_differ_and_parts_added_by_number_do_not():
    generator = torch.Generator().manual_seed(1)
    a, b = numbers(generator, 48, 4096), numbers(generator, 4096, 48)
    with ThreadPoolExecutor(8) as pool:
        assert distinct_until(lambda: arrival_order_mm(a, b, pool, 16), 2) >= 2
        found = set(pool.map(lambda _: tensor_digest(fixed.split_k_mm(a, b, num_splits=16)), range(20)))
    assert len(found) == 1


@given(
    seed=st.integers(0, 2**31),
    shape=st.tuples(st.integers(0, 5), st.integers(0, 40), st.integers(0, 5)),
    num_splits=st.integers(1, 9),
    dtype=st.sampled_from(DTYPES),
)
def test_a_product_in_parts_is_the_product(seed, shape, num_splits, dtype):
    generator = torch.Generator().manual_seed(seed)
    a, b = numbers(generator, *shape[:2], dtype=dtype), numbers(generator, *shape[1:], dtype=dtype)
    found = fixed.split_k_mm(a, b, num_splits=num_splits)
    assert (found.dtype, found.shape) == (dtype, (shape[0], shape[2]))
    bound = 8 * torch.finfo(dtype).eps * ((a.double().abs() @ b.double().abs()) + 1)
    assert bool(((found.double() - a.double() @ b.double()).abs() <= bound).all())


def test_no_parts_are_refused():
    with pytest.raises(ValueError, match="num_splits=1"):
        fixed.split_k_mm(torch.ones(1, 1), torch.ones(1, 1), num_splits=0)


def grouped(generator, num_groups, num_rows, width=16, num_tokens=64, dtype=torch.float32):
    """Rows sorted by group, one matrix a group, and the token of each row."""
    cuts = torch.randint(0, num_rows + 1, (num_groups - 1,), generator=generator).sort().values
    ends = torch.cat([cuts, torch.tensor([num_rows])])
    rows = torch.randint(0, num_tokens, (num_rows,), generator=generator)
    weights = numbers(generator, num_groups, width, width, dtype=dtype)
    return numbers(generator, num_rows, width, dtype=dtype), weights, ends, rows, num_tokens


def by_hand(x, weights, ends, rows, num_tokens):
    """The same in float64, row by row."""
    out = torch.zeros(num_tokens, weights.shape[2], dtype=torch.float64)
    start = 0
    for end, weight in zip(ends.tolist(), weights.double(), strict=True):
        for row in range(start, end):
            out[rows[row]] += x[row].double() @ weight
        start = end
    return out


@given(seed=st.integers(0, 2**31), num_groups=st.integers(1, 5), num_rows=st.integers(0, 30))
def test_grouped_products_are_added_to_their_rows(seed, num_groups, num_rows):
    call = grouped(torch.Generator().manual_seed(seed), num_groups, num_rows, width=3, num_tokens=6)
    assert relative_error(fixed.grouped_mm_add(*call), by_hand(*call)) < 1e-5


def test_padding_behind_the_last_group_is_never_read():
    x, weights, ends, rows, num_tokens = grouped(torch.Generator().manual_seed(1), 3, 20)
    padded = torch.cat([x, torch.full((5, 16), float("nan"))])
    more = torch.cat([rows, torch.full((5,), 10**9)])
    found = fixed.grouped_mm_add(padded, weights, ends, more, num_tokens)
    assert tensor_digest(found) == tensor_digest(fixed.grouped_mm_add(x, weights, ends, rows, num_tokens))


def test_experts_that_add_as_they_come_race_and_private_slots_do_not(threads):
    threads(4)
    x, weights, ends, rows, num_tokens = grouped(torch.Generator().manual_seed(1), 8, 40_000)
    starts = [0, *ends.tolist()[:-1]]

    def unordered():
        parts = [x[s:e] @ w for s, e, w in zip(starts, ends.tolist(), weights, strict=True)]
        return torch.zeros(num_tokens, 16).index_put_((rows,), torch.cat(parts), accumulate=True)

    assert distinct_until(unordered, 2) >= 2
    assert distinct(lambda: fixed.grouped_mm_add(x, weights, ends, rows, num_tokens), 20) == 1


def test_the_tree_of_a_run_follows_from_its_length_alone():
    """A run gives the same bits wherever it stands, and those of adding pairs by hand."""
    run = torch.tensor([1e8, 1.0, -1e8, 1.0, 3.0])
    alone = fixed.segment_sum(run, torch.tensor([5]))
    beside = fixed.segment_sum(torch.cat([torch.ones(3), run, torch.ones(2)]), torch.tensor([3, 5, 2]))
    by_hand = ((run[0] + run[1]) + (run[2] + run[3])) + run[4]
    assert int(ulp_distance(alone, beside[1:2])[0]) == 0
    assert int(ulp_distance(alone, by_hand.view(1))[0]) == 0
