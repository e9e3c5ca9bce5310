"""Rank-local traces: each mode proves what it can, and damage is refused or named."""

import hashlib
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab import compare, load_run
from detlab.errors import NotComparable, TraceError
from detlab.schema import Callee, Coordinate, Evidence, Flag, Kind, Phase, Side
from tests.readers.streams import callees, metas, rows

SHAPE = (4, 8)


def record(event, name, **fields):
    plain = {
        "schema_version": 1, "rank": 0, "iteration": 1, "microbatch": None, "phase": "forward",
        "event": event, "name": name, "occurrence": 0,
    }  # fmt: skip
    return {**plain, **fields}


def sampled_places(count, size=32):
    return [n * (size - 1) // (count - 1) for n in range(count)]


def tensor(name, word="x", mode="full", *, tensor=(), **fields):
    """A tensor record; the word stands for its bits."""
    found = {
        "shape": list(SHAPE), "numel": 32, "dtype": "float32", "layout": "strided", "device_type": "cpu",
        "requires_grad": False, "stride": [8, 1], "mode": mode, "value_observed": mode != "metadata",
        "exact_value_certificate": mode == "full",
    }  # fmt: skip
    sha = {"sha256": hashlib.sha256(word.encode()).hexdigest(), "all_finite": True}
    found |= {
        "full": sha | {"captured_numel": 32},
        "sampled": sha | {"captured_numel": 5, "sample_indices": sampled_places(5)},
        "summary": {"summary": summary()},
        "metadata": {},
    }[mode]
    return record("tensor", name, tensor=found | dict(tensor), **{"metadata": {}, **fields})


def summary(**changed):
    plain = {"all_finite": True, "minimum": -1.5, "maximum": 2.0, "mean": 0.25, "l2_norm": 4.0}
    return {**plain, **changed}


def scalar(name, value, **fields):
    return record("event", name, fields={"value": value}, **fields)


def lines(records, rank=0):
    numbered = [{**each, "sequence": n, "rank": rank} for n, each in enumerate(records)]
    return [json.dumps(each, sort_keys=True).encode() + b"\n" for each in numbered]


def write(folder, rank, content):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"rank_{rank:06d}.jsonl"
    path.write_bytes(b"".join(content))
    return path


def one(folder, *records):
    write(folder, 0, lines(records))
    return load_run(folder)


def compared(folder, a, b):
    return compare(one(folder / "a", *a), one(folder / "b", *b))


def verdicts(folder, a, b):
    return compared(folder, a, b).sites(step=1, rank=0)["verdict"].to_list()


STORY = [
    record("event", "iteration.begin", phase="train", fields={"consumed_samples": 16}),
    tensor("batch.tokens", "t", microbatch=0),
    tensor("decoder.output", "d", "sampled", microbatch=0),
    tensor("logits", "l", "summary", microbatch=0),
    tensor("weight.grad", "g", phase="grad_reduce"),
    scalar("num_zeros", 3, phase="optimizer"),
]


def test_ranks_stand_on_the_data_axis_for_want_of_coordinates(tmp_path):
    for rank in (0, 11):
        write(tmp_path, rank, lines(STORY, rank))
    run = load_run(tmp_path)
    assert [rank.header.rank for rank in run.ranks] == [0, 11]
    assert [rank.header.coordinate for rank in run.ranks] == [Coordinate(dp=0), Coordinate(dp=11)]
    assert (run.manifest.world_size, run.problems) == (2, ())
    assert "dp=n" in run.manifest.recorder["note"]


@pytest.mark.parametrize(
    ("mode", "level", "algorithm"),
    [
        ("full", Evidence.EXACT, "sha256-full"),
        ("sampled", Evidence.PARTIAL, "sha256-sampled:5"),
        ("summary", Evidence.STATISTIC, "summary"),
        ("metadata", Evidence.STRUCTURE, "metadata"),
    ],
)
def test_each_mode_has_its_evidence_and_no_inputs(tmp_path, mode, level, algorithm):
    run = one(tmp_path, tensor("x", mode=mode))
    assert rows(run, "evidence", "n_in", "n_out", "kind") == [[int(level)], [0], [1], [Kind.STATE]]
    assert (metas(run)[0].algorithm, callees(run)) == (algorithm, [Callee("", "x")])
    assert metas(run)[0].outputs[0] == ("float32", SHAPE, (8, 1))


@pytest.mark.parametrize("mode", ["full", "sampled"])
def test_another_digest_is_unknown_and_never_an_origin(tmp_path, mode):
    cmp = compared(tmp_path, [tensor("x", "x", mode)], [tensor("x", "y", mode)])
    assert [(f.finding_class, f.op) for f in cmp.roots] == [("unknown", "x")]
    assert cmp.sites(step=1, rank=0)["verdict"].to_list() == ["unknown"]


def test_the_first_difference_of_a_story_is_its_gradient(tmp_path):
    other = [*STORY[:4], tensor("weight.grad", "G", phase="grad_reduce"), scalar("num_zeros", 4)]
    other[-1]["phase"] = "optimizer"
    cmp = compared(tmp_path, STORY, other)
    assert cmp.first["op"].to_list() == ["weight.grad"]
    assert [f.finding_class for f in cmp.roots] == ["unknown"]


def test_full_and_sampled_digests_are_not_compared(tmp_path):
    with pytest.raises(NotComparable, match="digests of different kinds"):
        verdicts(tmp_path, [tensor("x")], [tensor("x", mode="sampled")])


def test_samples_of_other_places_are_not_compared(tmp_path):
    seven = {"captured_numel": 7, "sample_indices": sampled_places(7)}
    a, b = tensor("x", mode="sampled"), tensor("x", mode="sampled", tensor=seven)
    with pytest.raises(NotComparable, match="sha256-sampled:5 and sha256-sampled:7"):
        verdicts(tmp_path, [a], [b])


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({"minimum": -1.25}, "unknown"),
        ({"maximum": 2.5}, "unknown"),
        ({"maximum": None}, "unknown"),
        ({"mean": 0.26}, "unknown"),
        ({"l2_norm": 4.01}, "unknown"),
        ({"all_finite": False}, "unknown"),
        ({"mean": math.nextafter(0.25, 1)}, "match"),
        ({"l2_norm": math.nextafter(4.0, 5)}, "match"),
    ],
)
def test_statistics_differ_only_beyond_what_an_order_of_additions_can_do(tmp_path, changed, verdict):
    a, b = (tensor("x", mode="summary", tensor={"summary": each}) for each in (summary(), summary(**changed)))
    assert verdicts(tmp_path, [a], [b]) == [verdict]


def test_statistics_of_a_summary_are_in_its_detail_row(tmp_path):
    found = one(tmp_path, tensor("x", mode="summary")).ranks[0].details_of(0)
    assert found[["has_stats", "absmax", "total"]].tolist() == [(1, 2.0, 8.0)]


@pytest.mark.parametrize(
    ("a", "b"),
    [(0.0, -0.0), (1, 1.0), (1, True), (0.1, math.nextafter(0.1, 1)), (None, 0), (2**70, 2**70 + 1)],
)
def test_scalars_are_equal_only_in_every_bit(tmp_path, a, b):
    assert verdicts(tmp_path, [scalar("s", a)], [scalar("s", b)]) == ["unknown"]


def test_the_order_of_fields_says_nothing(tmp_path):
    a, b = (record("event", "e", fields=fields) for fields in ({"x": 1, "y": 2}, {"y": 2, "x": 1}))
    assert verdicts(tmp_path, [a], [b]) == ["match"]


def test_a_scalar_is_exact_and_has_a_detail_row(tmp_path):
    run = one(tmp_path, scalar("s", 0.5))
    assert rows(run, "evidence") == [[int(Evidence.EXACT)]]
    assert run.ranks[0].details_of(0)[["side", "index"]].tolist() == [(Side.SCALARS, 1)]


@pytest.mark.parametrize(("text", "flag"), [("nan", Flag.NAN), ("+inf", Flag.INF), ("-inf", Flag.INF)])
def test_scalars_that_are_not_finite_are_flagged(tmp_path, text, flag):
    fields = {"value": None, "finite": False, "nonfinite": text}
    assert rows(one(tmp_path, record("event", "loss", fields=fields)), "flags") == [[flag]]


def test_numbers_of_a_whole_step_are_metrics(tmp_path):
    run = one(
        tmp_path,
        scalar("loss", 2.5),
        scalar("zeros", 3, iteration=2),
        scalar("inner", 1.0, microbatch=0),
        scalar("text", "a"),
        scalar("before", 1.0, iteration=None),
        scalar("huge", 10**400),
    )
    assert run.metrics.select("step", "rank", "name", "value").rows() == [
        (1, 0, "loss", 2.5),
        (2, 0, "zeros", 3.0),
    ]
    assert (run.num_events, run.problems) == (6, ())


def test_iteration_and_microbatch_may_be_null(tmp_path):
    run = one(tmp_path, scalar("a", 1, iteration=None), scalar("b", 1, microbatch=3))
    assert rows(run, "step", "microbatch") == [[-1, 1], [-1, 3]]


@pytest.mark.parametrize("phase", [phase.name.lower() for phase in Phase])
def test_known_phases_are_taken(tmp_path, phase):
    run = one(tmp_path, scalar("a", 1, phase=phase))
    assert (rows(run, "phase"), metas(run)[0].attributes) == ([[Phase[phase.upper()]]], ())


def test_an_unknown_phase_is_unspecified_and_kept_as_it_was(tmp_path):
    run = one(tmp_path, scalar("a", 1, phase="train/<eval>"))
    assert rows(run, "phase") == [[Phase.UNSPECIFIED]]
    assert metas(run)[0].attributes == (("phase", "train/<eval>"),)


def test_remarks_on_a_tensor_are_kept_for_people(tmp_path):
    odd = tensor("x", metadata={"owner": {"b": 1}}, tensor={"all_finite": False})
    assert dict(metas(one(tmp_path, odd))[0].attributes) == {"all_finite": "false", "owner": '{"b": 1}'}


def test_call_numbers_are_counted_anew(tmp_path):
    run = one(tmp_path, *(scalar("a", 1, occurrence=n) for n in (4, 6, 7)))
    assert (rows(run, "call"), run.problems) == ([[0, 1, 2]], ())


@pytest.mark.parametrize("name", ["<b>&amp;</b>", "a/b#c@d%e", "größe.日本", "{x!r}"])
def test_names_pass_as_they_are(tmp_path, name):
    assert callees(one(tmp_path, scalar(name, 1))) == [Callee("", name)]


# Damage


def test_a_single_file_may_have_any_name(tmp_path):
    path = tmp_path / "from_cluster.jsonl"
    path.write_bytes(b"".join(lines(STORY, rank=7)))
    assert [rank.header.rank for rank in load_run(path).ranks] == [7]


def test_two_files_of_one_rank_are_refused(tmp_path):
    write(tmp_path, 1, lines(STORY, rank=1))
    (tmp_path / "rank_1.jsonl").write_bytes(b"".join(lines(STORY, rank=1)))
    with pytest.raises(TraceError, match="are both of rank 1"):
        load_run(tmp_path)


def test_a_file_named_like_a_rank_without_a_number_is_refused(tmp_path):
    write(tmp_path, 0, lines(STORY))
    (tmp_path / "rank_old.jsonl").write_bytes(b"")
    with pytest.raises(TraceError, match=r"rank_old\.jsonl is named like a rank"):
        load_run(tmp_path)


def test_an_empty_file_is_a_rank_without_events(tmp_path):
    write(tmp_path, 0, lines(STORY))
    write(tmp_path, 1, [])
    run = load_run(tmp_path)
    assert run.problems == ("rank_000001.jsonl: holds no record",)
    assert [rank.complete for rank in run.ranks] == [True, False]


@pytest.mark.parametrize(
    "records",
    [[scalar("a", 1) | {"schema_version": 2}], [scalar("a", 1, occurrence="x")]],
)
def test_a_folder_without_one_usable_record_is_refused(tmp_path, records):
    write(tmp_path, 0, lines(records))
    with pytest.raises(TraceError, match="no record that can be used"):
        load_run(tmp_path)


def test_records_of_another_format_are_not_taken_for_these(tmp_path):
    write(tmp_path, 0, [b'{"schema_version": 1, "kind": "op", "name": "x", "payload": {}}\n'])
    with pytest.raises(TraceError, match="no trace that detlab knows"):
        load_run(tmp_path)


def line(plain=None, **changed):
    plain = plain or scalar("z", 1)
    return json.dumps({**plain, "sequence": 3, "rank": 0, **changed}).encode() + b"\n"


def odd(mode="full", **changed):
    return line(tensor("z", mode=mode, tensor=changed))


DAMAGES = {
    "schema_version 2": line(schema_version=2),
    "schema_version True": line(schema_version=True),
    "is of rank 1, and the file of rank 0": line(rank=1),
    "is of rank False": line(rank=False),
    "sequence 2 after 2": line(sequence=2),
    "sequence that is not between": line(sequence=10**400),
    "has no microbatch": line().replace(b'"microbatch"', b'"microbatches"'),
    "iteration that is not between": line(iteration=1 << 31),
    "microbatch that is not between": line(microbatch=1 << 15),
    "iteration '-1', which is no integer": line(iteration="-1"),
    "has a name that is empty": line(name=""),
    "has a name that is empty, too long": line(name="x" * 513),
    "control characters": line(phase="a\nb"),
    "is no Unicode text": line(name="\ud800"),
    "unknown event type 'collective'": line(event="collective"),
    "repeats occurrence 0 of 'batch.tokens'": line(STORY[1]),
    "has no fields": line(fields=None),
    "has no tensor": line(tensor("z"), tensor=None),
    "has no metadata": line(tensor("z"), metadata=[]),
    "holds NaN": line(fields={"value": 0}).replace(b'"value": 0', b'"value": NaN'),
    "the key 'name' twice": line().replace(b'"name":', b'"name": "a", "name":'),
    "is no UTF-8": line(name="a").replace(b'"a"', b'"\xff"'),
    "is no JSON, and the file ends in it": line()[:-9],
    "unknown mode 'all'": line(tensor("z"), tensor={"mode": "all"}),
    "value_observed False": odd(value_observed=False),
    "exact_value_certificate True": odd("sampled", exact_value_certificate=True),
    "exact_value_certificate 1": odd(exact_value_certificate=1),
    "numel 31 and shape": odd(numel=31),
    "numel 32.0 and shape": odd(numel=32.0),
    "has shape None": odd(shape=None),
    "1 strides for 2 dimensions": odd(stride=[1]),
    "did not capture them": odd(captured_numel=31),
    "has sha256 'abc'": odd(sha256="abc"),
    "has sha256 None": odd(sha256=None),
    "not evenly spaced": odd("sampled", sample_indices=[0, 1, 2, 3, 4]),
    "captured_numel that is not between": odd("sampled", captured_numel=33),
    "sample_indices that are not": odd("sampled", captured_numel=0, sample_indices=[]),
    "has no summary": odd("summary", summary=None),
    "has mean 'high'": odd("summary", summary=summary(mean="high")),
    "l2_norm that is too large": odd("summary", summary=summary(l2_norm=10**400)),
}


@pytest.mark.parametrize(("finding", "damage"), DAMAGES.items(), ids=DAMAGES)
def test_what_stands_before_a_damaged_line_is_used(tmp_path, finding, damage):
    write(tmp_path, 0, [*lines(STORY[:3]), damage, *lines(STORY)[4:]] if damage.endswith(b"\n") else
          [*lines(STORY[:3]), damage])  # fmt: skip
    run = load_run(tmp_path)
    assert rows(run, "seq") == [[0, 1, 2]]
    (problem,) = run.problems
    assert finding in problem
    assert problem.startswith("rank_000000.jsonl: line 4 ")
    assert compare(run, run).verdict == "incomplete"


@given(st.data())
def test_a_file_cut_at_any_byte_keeps_every_whole_record(tmp_path_factory, data):
    raw = b"".join(lines(STORY))
    first = raw.index(b"\n") + 1
    cut = data.draw(st.integers(first, len(raw)))
    folder = tmp_path_factory.mktemp("cut")
    run = load_run(write(folder, 0, [raw[:cut]]).parent)
    ends_whole = raw[cut : cut + 1] == b"\n"  # a whole object needs no line end
    assert run.num_events == raw[:cut].count(b"\n") + ends_whole
    assert bool(run.problems) == (not ends_whole and not raw[:cut].endswith(b"\n"))


@given(st.integers(1, 40), st.integers(1, 2000))
def test_evenly_spaced_samples_of_any_size_are_accepted(tmp_path_factory, count, size):
    count = min(count, size)
    places = [0] if count == 1 else [n * (size - 1) // (count - 1) for n in range(count)]
    spaced = {"captured_numel": count, "sample_indices": places}
    flat = {"shape": [size], "numel": size, "stride": [1], **spaced}
    run = one(tmp_path_factory.mktemp("places"), tensor("x", mode="sampled", tensor=flat))
    assert (metas(run)[0].algorithm, run.problems) == (f"sha256-sampled:{count}", ())
