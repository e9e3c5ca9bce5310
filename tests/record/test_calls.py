"""What one event says of a call: its inputs, its outputs and the numbers folded into them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from detlab.digest import fold, signature, tensor_digest
from detlab.schema import Evidence, Flag, Kind, Side
from tests.record.traces import different, named, only, record


def folded(*tensors, scalars=()):
    parts = [
        (tensor_digest(t), signature(str(t.dtype).removeprefix("torch."), tuple(t.shape))) for t in tensors
    ]
    return fold(parts, scalars)


def test_an_event_holds_the_folds_of_what_went_in_and_what_came_out():
    a, b = torch.randn(3, 4), torch.randn(4, 2)
    event = only(record(lambda rec: torch.mm(a, b)), "aten.mm.default")
    assert event.in_digest == folded(a, b)
    assert event.out_digest == folded(torch.mm(a, b))
    assert (event.inputs, event.outputs) == (Evidence.EXACT, Evidence.EXACT)
    assert (event.num_in, event.num_out, event.flags) == (2, 1, Flag(0))
    assert event.meta.inputs[1].shape == (4, 2)


def test_a_changed_bit_is_seen_where_it_enters_and_from_there_on():
    def work(bias):
        def run(rec):
            x = torch.arange(6.0).view(2, 3)
            y = x * 2
            z = y + torch.full((3,), bias)
            return z.sum()

        return run

    changed = different(record(work(0.0)), record(work(-0.0)))
    assert [event.op for event in changed] == ["aten.full.default", "aten.add.Tensor"]
    # a zero of the other sign is absorbed by the addition, so the sum sees nothing of it


def test_a_scalar_argument_is_an_input():
    x = torch.ones(3)
    one, other = (only(record(lambda rec, k=k: x + k), "aten.add.Tensor") for k in (1, 1.0))
    assert one.in_digest != other.in_digest
    assert one.flags == Flag.HOST_SCALAR


def test_the_place_of_none_is_an_input():
    x = torch.tensor([1.0])
    low = record(lambda rec: torch.clamp(x, 2.0, None))
    high = record(lambda rec: torch.clamp(x, None, 2.0))
    assert [a.in_digest for a in low] != [b.in_digest for b in high]


def test_a_boolean_is_folded_and_is_no_host_number():
    x = torch.ones(2, 3)
    event = only(record(lambda rec: torch.argmax(x, 1, keepdim=True)), "aten.argmax.default")
    plain = only(record(lambda rec: torch.argsort(x > 0, stable=True)), "aten.sort.stable")
    assert event.flags & Flag.HOST_SCALAR
    assert event.in_digest == folded(x, scalars=[1, True])
    assert plain.num_in == 1


def test_a_device_is_folded_by_its_type_only():
    event = only(record(lambda rec: torch.zeros(2, device="cpu:0")), "aten.zeros.default")
    assert event.in_digest == folded(scalars=[[2], "device", "cpu", "pin_memory", False])


def test_an_in_place_op_has_its_argument_on_both_sides_with_different_bits():
    x = torch.ones(4)
    before = folded(x, scalars=[2])
    event = only(record(lambda rec: x.mul_(2)), "aten.mul_.Tensor")
    assert event.in_digest == before
    assert event.out_digest == folded(torch.full((4,), 2.0))
    assert (event.num_in, event.num_out) == (1, 1)


def test_lists_are_mutated_arguments_too():
    xs = [torch.ones(2), torch.ones(3)]
    event = only(record(lambda rec: torch._foreach_add_(xs, 1)), "aten._foreach_add_.Scalar")
    assert (event.num_in, event.num_out) == (2, 2)
    assert event.out_digest == folded(torch.full((2,), 2.0), torch.full((3,), 2.0))


@pytest.mark.parametrize(
    ("work", "op", "num_in"),
    [
        (lambda x: torch.add(x, x, out=torch.rand(3)), "aten.add.out", 2),
        (lambda x: torch.rand(3).copy_(x), "aten.copy_.default", 1),
        (lambda x: torch.rand(3).zero_(), "aten.zero_.default", 0),
        (lambda x: torch._foreach_copy_([torch.rand(3)], [x]), "aten._foreach_copy_.default", 1),
        (lambda x: torch.addmv(torch.rand(2), torch.ones(2, 3), x, beta=0), "aten.addmv.default", 2),
        (lambda x: torch.rand(2).addmv_(torch.ones(2, 3), x, beta=0), "aten.addmv_.default", 2),
    ],
)
def test_what_is_only_overwritten_is_no_input(work, op, num_in):
    x = torch.ones(3)
    a, b = (only(record(lambda rec: work(x)), op) for _ in range(2))
    assert a.num_in == num_in
    assert a.values == b.values  # the old bytes were random


def test_what_is_scaled_by_something_is_an_input():
    x = torch.ones(3)
    event = only(
        record(lambda rec: torch.addmv(torch.rand(2), torch.ones(2, 3), x, beta=1)), "aten.addmv.default"
    )
    assert event.num_in == 3


def test_a_seeded_op_sees_the_generator():
    def draw(seed):
        torch.manual_seed(seed)
        return only(record(lambda rec: torch.rand(2)), "aten.rand.default")

    assert draw(1).values == draw(1).values
    assert draw(1).in_digest != draw(2).in_digest
    assert draw(1).flags & Flag.SEEDED
    assert Side.GENERATOR in draw(1).details["side"]


def test_a_generator_that_is_passed_is_the_one_that_is_seen():
    own = torch.Generator().manual_seed(5)
    state = own.get_state()
    torch.manual_seed(1)
    event = only(record(lambda rec: torch.rand(2, generator=own)), "aten.rand.generator")
    assert event.details["digest"][event.details["side"] == Side.GENERATOR] == tensor_digest(state)


def test_reading_a_number_from_a_tensor_is_a_host_read():
    event = only(record(lambda rec: torch.tensor(2.5).item()), "aten._local_scalar_dense.default")
    assert event.kind is Kind.HOST_READ
    assert event.out_digest == fold((), [2.5])
    assert (event.num_out, event.outputs) == (0, Evidence.EXACT)


def test_a_view_has_its_flag_and_is_left_out_on_demand():
    x = torch.ones(2, 3)

    def work(rec):
        return x.t().contiguous()

    assert only(record(work), "aten.t.default").flags & Flag.VIEW
    assert [event.op for event in record(work, views=False)] == ["aten.clone.default"]


def test_a_reshape_has_the_bytes_of_its_input_and_another_fold():
    x = torch.randn(2, 3)
    event = only(record(lambda rec: x.view(3, 2)), "aten.view.default")
    assert event.out_digest == folded(x.view(3, 2))
    digests = dict(zip(event.details["side"].tolist(), event.details["digest"].tolist(), strict=True))
    assert digests[Side.INPUT] == digests[Side.OUTPUT]


def test_without_inputs_only_outputs_have_evidence():
    x = torch.ones(3)
    event = only(record(lambda rec: x * 2, inputs=False), "aten.mul.Tensor")
    assert (event.inputs, event.outputs, event.in_digest) == (Evidence.NONE, Evidence.EXACT, 0)
    assert event.num_in == 1
    assert set(event.details["side"]) == {Side.OUTPUT}


def test_details_say_where_in_its_storage_each_tensor_lies():
    x = torch.ones(10)
    event = only(record(lambda rec: x[4:6] * 2), "aten.mul.Tensor")
    row = event.details[event.details["side"] == Side.INPUT][0]
    assert (row["storage"], row["start"], row["stop"]) == (x.data_ptr(), 16, 24)


def test_details_can_be_left_out():
    assert len(only(record(lambda rec: torch.ones(3), details=False), "aten.ones.default").details) == 0


def test_statistics_count_what_is_not_a_number():
    x = torch.tensor([3.0, -4.0, float("nan"), float("inf")])
    event = only(record(lambda rec: x * 1, stats=True), "aten.mul.Tensor")
    row = event.details[event.details["side"] == Side.OUTPUT][0]
    assert (row["has_stats"], row["absmax"], row["total"], row["nans"], row["infs"]) == (1, 4.0, -1.0, 1, 1)
    assert event.flags & Flag.NAN
    assert event.flags & Flag.INF


@given(
    st.sampled_from(
        [torch.bool, torch.uint8, torch.int64, torch.bfloat16, torch.float8_e4m3fn, torch.complex64]
    )
)
@settings(max_examples=12, deadline=None)
def test_every_dtype_can_be_summarised(dtype):
    x = torch.tensor([1, 0, 1]).to(dtype)
    row = only(record(lambda rec: x.clone(), stats=True), "aten.clone.default").details[0]
    assert (row["absmax"], row["total"]) == (1.0, 2.0)


def test_a_tensor_without_bytes_leaves_the_inputs_open_and_nothing_crashes():
    sparse = torch.eye(3).to_sparse()
    event = record(lambda rec: torch.sparse.mm(sparse, torch.ones(3, 1)))[-1]
    assert event.flags & Flag.OPEN_INPUTS
    assert event.outputs is Evidence.EXACT


def test_a_meta_tensor_has_no_evidence():
    event = only(record(lambda rec: torch.ones(3, device="meta") + 1), "aten.add.Tensor")
    assert (event.inputs, event.outputs) == (Evidence.NONE, Evidence.NONE)
    assert event.flags & Flag.OPEN_INPUTS


def test_an_empty_tensor_is_evidence_as_any_other():
    event = only(record(lambda rec: torch.ones(0) + 1), "aten.add.Tensor")
    assert (event.inputs, event.outputs) == (Evidence.EXACT, Evidence.EXACT)


def test_the_work_of_the_recorder_itself_is_never_recorded():
    x = torch.ones(3, 4).t()  # not contiguous: hashing copies it
    assert [event.op for event in record(lambda rec: x.abs(), stats=True)] == ["aten.abs.default"]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested", "ignore:Sparse CSR")
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(1)]),
        lambda: torch.ones(2, 2).to_mkldnn(),
        lambda: torch.eye(2).to_sparse(),
        lambda: torch.eye(2).to_sparse_csr(),
    ],
)
def test_tensors_of_other_layouts_have_no_evidence_and_stop_nothing(make):
    tensor = make()
    event = record(lambda rec: tensor.neg() if tensor.is_nested else tensor.clone(), stats=True)[-1]
    assert (event.inputs, event.outputs) == (Evidence.NONE, Evidence.NONE)
    assert event.flags & Flag.OPEN_INPUTS


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_a_quantised_tensor_is_hashed():
    x = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
    event = only(record(lambda rec: x.dequantize(), stats=True), "aten.dequantize.self")
    assert (event.inputs, event.outputs) == (Evidence.EXACT, Evidence.EXACT)


def test_a_conjugate_has_the_bytes_of_its_input_and_other_values():
    x = torch.tensor([1 + 2j])
    event = only(record(lambda rec: x.conj()), "aten._conj.default")
    assert (event.in_digest, event.out_digest) == (folded(x), folded(x.conj()))
    assert event.in_digest != event.out_digest


def test_tracing_a_graph_is_not_recorded():
    def work(rec):
        torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),))

    assert not named(record(work), "aten.addmm.default")


def test_a_custom_op_is_one_event_with_its_mutated_argument_as_output():
    with torch.library._scoped_library("detlab_test", "DEF") as library:
        library.define("double(Tensor(a!) x) -> ()")
        library.impl("double", lambda x: x.mul_(2) and None, "CPU")
        x = torch.ones(1)
        event = only(record(lambda rec: torch.ops.detlab_test.double(x)), "detlab_test.double.default")
    assert event.out_digest == folded(torch.full((1,), 2.0))


def test_a_subclass_is_recorded_by_its_plain_parts():
    from torch.testing._internal.two_tensor import TwoTensor

    pair = TwoTensor(torch.ones(2), torch.zeros(2))
    events = named(record(lambda rec: pair + 1), "aten.add.Tensor")
    assert [event.in_digest for event in events] == [
        folded(torch.ones(2), scalars=[1]),
        folded(torch.zeros(2), scalars=[1]),
    ]


def test_a_call_that_raises_leaves_no_event_and_the_next_ones_are_whole():
    def work(rec):
        with pytest.raises(RuntimeError):
            torch.ones(2).dot(torch.ones(3))
        torch.ones(2).dot(torch.ones(2))

    assert str(only(record(work), "aten.dot.default").site) == "1/-1/data//aten.dot.default#0"


def test_calls_of_the_same_callee_are_counted():
    events = named(record(lambda rec: [torch.ones(2) + 1 for _ in range(3)]), "aten.add.Tensor")
    assert [event.site.call for event in events] == [0, 1, 2]


def test_the_call_site_is_the_line_outside_of_torch():
    event = only(record(lambda rec: torch.nn.functional.relu(torch.ones(1))), "aten.relu.default")
    line = test_the_call_site_is_the_line_outside_of_torch.__code__.co_firstlineno + 1
    assert event.meta.call_site == f"tests/record/test_calls.py:{line}"


def test_the_ops_of_a_torch_function_mode_are_not_doubled():
    from torch.overrides import TorchFunctionMode

    class Mode(TorchFunctionMode):
        calls = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):
            Mode.calls += 1
            return func(*args, **(kwargs or {}))

    def work(rec):
        with Mode():
            torch.ones(1)

    assert [event.op for event in record(work)] == ["aten.ones.default"]
    assert Mode.calls == 1
