"""Megatron-Bridge streams are used as far as they are whole, and refused where they contradict each other."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab import load_run
from detlab.errors import TraceError
from detlab.readers import json_lines
from detlab.schema import Callee, Coordinate, Kind, Phase, Site
from tests.readers.streams import bridge_run, callees, header, lines, metas, record, rows, tensor, write

CHAIN = [record("aten.mm.default", [f"x{n}", "w"], [f"x{n + 1}"]) for n in range(6)]


def only_problem(run):
    (problem,) = run.problems
    assert not any(rank.complete and rank.problems for rank in run.ranks)
    return problem


def test_a_stream_gives_coordinate_rank_and_layout(tmp_path):
    config = {"world_size": 8, "tp": 2, "pp": 2, "cp": 1, "dp": 2, "ep": 2, "etp": 1}
    write(tmp_path, 0, lines(CHAIN, rank=5, tp=1, pp=1, dp=0, ep=1, config=config))
    run = load_run(tmp_path)
    assert run.ranks[0].header.coordinate == Coordinate(pp=1, tp=1, dp=0, ep=1)
    assert (run.ranks[0].header.rank, run.manifest.world_size) == (5, 8)
    assert run.manifest.layout == {"tp": 2, "pp": 2, "cp": 1, "dp": 2, "ep": 2, "etp": 1}
    assert (run.num_events, run.steps, run.problems) == (6, [1], ())


def test_gzip_is_read_as_the_plain_file_is(tmp_path):
    plain = load_run(write(tmp_path / "plain", 0, lines(CHAIN)))
    packed = load_run(write(tmp_path / "packed", 0, lines(CHAIN), compress=True))
    assert (plain.ranks[0].index == packed.ranks[0].index).all()


def test_a_label_is_taken_and_else_the_folder_gives_it(tmp_path):
    write(tmp_path / "monday", 0, lines(CHAIN))
    assert load_run(tmp_path / "monday").label == "monday"
    assert load_run(tmp_path / "monday", label="mine").label == "mine"


def test_coordinates_that_a_header_does_not_name_count_as_zero(tmp_path):
    for rank in range(2):
        start = json.dumps({"_header": True, "coords": {"dp": rank, "ep": None}, "config": {}})
        write(tmp_path, rank, [start.encode() + b"\n", *lines(CHAIN)[1:]])
    run = load_run(tmp_path)
    assert [rank.header.coordinate for rank in run.ranks] == [Coordinate(dp=0), Coordinate(dp=1)]
    assert [rank.header.rank for rank in run.ranks] == [0, 1]
    assert run.manifest.world_size == 2


def test_a_stream_of_another_configuration_is_refused(tmp_path):
    write(tmp_path, 0, lines(CHAIN))
    write(tmp_path, 1, lines(CHAIN, rank=1, config={"world_size": 2, "tp": 2}))
    with pytest.raises(TraceError, match=r"dp1\.fp says tp 2 and stream_pp0_tp0_cp0_dp0\.fp says 1"):
        load_run(tmp_path)


@pytest.mark.parametrize(
    ("place", "what"), [({"rank": 1, "dp": 0}, "coordinate tp0 dp0"), ({"rank": 0, "dp": 1}, "rank 0")]
)
def test_two_streams_of_one_place_are_refused(tmp_path, place, what):
    write(tmp_path, 0, lines(CHAIN))
    write(tmp_path, 1, lines(CHAIN, **place))
    with pytest.raises(TraceError, match=f"both claim the {what}"):
        load_run(tmp_path)


@pytest.mark.parametrize(
    ("first", "finding"),
    [
        (b"", "is missing"),
        (b'{"op": "aten.mm.default"}\n', "is no header"),
        (b'{"_header": true, "coords": {"tp": -1}}\n', "has a tp that is not between"),
        (b'{"_header": true, "coords": {"tp": true}}\n', "has tp True, which is no integer"),
        (b'{"_header": true, "coords": [0]}\n', "has coords that are no object"),
        (b'{"_header": true, "co', "is no JSON, and the file ends in it"),
    ],
)
def test_a_stream_without_a_header_is_left_out(tmp_path, first, finding):
    write(tmp_path, 0, lines(CHAIN))
    write(tmp_path, 1, [first])
    run = load_run(tmp_path)
    assert [rank.header.rank for rank in run.ranks] == [0]
    assert finding in only_problem(run)
    assert "left out" in only_problem(run)


def test_a_folder_without_any_header_is_refused(tmp_path):
    write(tmp_path, 0, [b"{}\n"])
    with pytest.raises(TraceError, match="no readable stream"):
        load_run(tmp_path)


def test_a_stream_of_a_header_alone_says_that_the_run_ended_early(tmp_path):
    run = bridge_run(tmp_path, CHAIN, [])
    assert [rank.num_events for rank in run.ranks] == [6, 0]
    assert "ended inside its first window" in only_problem(run)
    assert [rank.complete for rank in run.ranks] == [True, False]


@given(st.data())
def test_a_stream_cut_at_any_byte_keeps_every_whole_record(tmp_path_factory, data):
    content = lines(CHAIN)
    raw = b"".join(content)
    cut = data.draw(st.integers(len(content[0]), len(raw)))
    run = load_run(write(tmp_path_factory.mktemp("cut"), 0, [raw[:cut]]))
    num_whole = raw[:cut].count(b"\n") - 1
    ends_whole = raw[: cut + 1].endswith(b"}\n")  # a whole object needs no line end
    assert run.num_events == num_whole + (ends_whole and not raw[:cut].endswith(b"\n"))
    assert bool(run.problems) == (not (ends_whole or raw[:cut].endswith(b"\n")) or run.num_events == 0)


def test_a_cut_gzip_keeps_what_was_unpacked_and_names_the_line(tmp_path):
    many = [record("aten.mm.default", [f"x{n}"], [f"y{n}"]) for n in range(2000)]
    path = write(tmp_path, 0, lines(many), compress=True)
    path.write_bytes(path.read_bytes()[:-5000])
    run = load_run(tmp_path)
    assert 0 < run.num_events < 2000
    assert f"line {run.num_events + 2} cannot be read" in only_problem(run)


def test_a_file_that_only_claims_to_be_gzip_is_left_out(tmp_path):
    write(tmp_path, 0, lines(CHAIN))
    (tmp_path / "stream_pp0_tp0_cp0_dp1.fp.gz").write_bytes(b"".join(lines(CHAIN)))
    assert "dp1.fp.gz: line 1 cannot be read: Not a gzipped file" in only_problem(load_run(tmp_path))


def line(**changed):
    return json.dumps({"seq_id": 3, **record("aten.mm.default", ["x"], ["y"]), **changed}).encode() + b"\n"


HUGE = 10**400

DAMAGES = {
    "seq_id 2 after 2": line(seq_id=2),
    "seq_id 1 after 2": line(seq_id=1),
    "seq_id that is not between": line(seq_id=HUGE),
    "seq_id True": line(seq_id=True),
    "seq_id 3.0": line(seq_id=3.0),
    "window that is not between": line(window=HUGE),
    "window 'one'": line(window="one"),
    "is a second header": json.dumps(header()).encode() + b"\n",
    "is no JSON": b'{"seq_id": 3,\n',
    "holds a list, not an object": b"[1]\n",
    "the key 'op' twice": line().replace(b'"op":', b'"op": "aten.add.Tensor", "op":'),
    "the key 'dtype' twice": line().replace(b'"dtype":', b'"dtype": "x", "dtype":'),
    "is no UTF-8 at byte": line(op="a").replace(b'"a"', b'"\xff"'),
    "is no Unicode text": line(op="aten.\ud800.default"),
    "has op None, which is no text": line(op=None),
    "has scope 3, which is no text": line(scope=3),
    "has reduce_op": line(reduce_op=["SUM"]),
    "has no list of input tensors": line(input=None),
    "has no list of output tensors": line(output={}),
    "lists something that is no tensor": line(input=["x"]),
    "digest 'xyz' of no known kind": line(input=[tensor(16 * "0", digest="xyz")]),
    "digest 'DEADBEEFDEADBEEF' of no": line(input=[tensor(16 * "0", digest="DEADBEEFDEADBEEF")]),
    "has digest None": line(input=[{"shape": [], "dtype": "torch.int64", "numel": 1}]),
    "has shape 4, which is no list": line(input=[tensor("x", shape=()) | {"shape": 4}]),
    "length in a shape that is not": line(input=[tensor("x") | {"shape": [-1]}]),
    "number of elements that is not": line(input=[tensor("x") | {"shape": [1 << 40, 1 << 40]}]),
    "has a sum that is too large": line(input=[tensor("x", sum=HUGE, absmax=1.0)]),
    "has absmax 'big', which is no number": line(input=[tensor("x", sum=1.0, absmax="big")]),
    "Exceeds the limit": line(window=0).replace(b'"window": 0', b'"window": ' + 5000 * b"9"),
    "is no JSON: maximum recursion": line(caller=0).replace(b'"caller": 0', b'"caller": ' + 100_000 * b"["),
}


@pytest.mark.parametrize(("finding", "damage"), DAMAGES.items(), ids=DAMAGES)
def test_what_stands_before_a_damaged_line_is_used(tmp_path, finding, damage):
    write(tmp_path, 0, [*lines(CHAIN[:3]), damage, *lines(CHAIN)[4:]])
    run = load_run(tmp_path)
    assert rows(run, "seq") == [[0, 1, 2]]
    assert finding in only_problem(run)
    assert "dp0.fp: line 5" in only_problem(run)


def test_an_endless_line_is_damage(tmp_path, monkeypatch):
    monkeypatch.setattr(json_lines, "MAX_LINE_BYTES", 2000)
    write(tmp_path, 0, [*lines(CHAIN[:2]), b" " * 3000, b"\n"])
    run = load_run(tmp_path)
    assert run.num_events == 2
    assert "line 4 is longer than 2,000 bytes" in only_problem(run)


def test_more_tensors_than_a_row_can_count_are_damage(tmp_path):
    many = record("aten._foreach_norm.Scalar", [tensor("x", ())] * 65_536, ["y"])
    run = bridge_run(tmp_path, [CHAIN[0], many])
    assert run.num_events == 1
    assert "line 3 lists 65,536 tensors" in only_problem(run)


def test_gaps_in_the_order_and_blank_lines_are_no_damage(tmp_path):
    write(tmp_path, 0, [*lines(CHAIN[:1]), b"\n", line(seq_id=70)])
    run = load_run(tmp_path)
    assert (rows(run, "seq"), run.problems) == ([[0, 70]], ())


def test_call_numbers_are_counted_anew(tmp_path):
    calls = [record("aten.mm.default", ["x"], ["y"], align_idx=9, **place) for place in (
        {}, {}, {"scope": "mlp"}, {"phase": "post"}, {}, {"window": 2},
    )]  # fmt: skip
    assert rows(bridge_run(tmp_path, calls), "call", "step") == [[0, 1, 0, 0, 2, 0], [1, 1, 1, 1, 1, 2]]


@pytest.mark.parametrize(
    "name", ["<script>alert(1)</script>", "a/b#c@d%e", "päck.日本", '"; DROP', "$(x)`y`", "{0!r}"]
)
def test_names_pass_as_they_are(tmp_path, name):
    run = bridge_run(tmp_path, [record(name, ["x"], ["y"], scope=name, group=name, caller=name)])
    (callee,) = callees(run)
    assert callee == Callee(name, name, name)
    assert metas(run)[0].call_site == name
    site = Site(1, -1, Phase.FORWARD, callee, 0)
    assert Site.parse(str(site)) == site


@pytest.mark.parametrize(
    ("phase", "scope", "expected"),
    [
        ("fwd", "mlp", ("mlp", Phase.FORWARD)),
        ("bwd", "mlp", ("mlp", Phase.BACKWARD)),
        ("post", None, ("", Phase.UNSPECIFIED)),
        (None, "mlp", ("mlp", Phase.UNSPECIFIED)),
        ("fwd", "mlp[bwd]", ("mlp", Phase.BACKWARD)),
        ("warmup", "mlp", ("mlp", Phase.UNSPECIFIED)),
    ],
)
def test_phases_and_backward_scopes(tmp_path, phase, scope, expected):
    run = bridge_run(tmp_path, [record("aten.mm.default", ["x"], ["y"], phase=phase, scope=scope)])
    assert (callees(run)[0].scope, Phase(rows(run, "phase")[0][0])) == expected
    assert dict(metas(run)[0].attributes) == ({"phase": "warmup"} if phase == "warmup" else {})


def test_a_stream_of_an_older_version_lacks_phase_and_reduce_op(tmp_path):
    old = record("all_reduce", ["x"], ["y"], group="dp")
    del old["phase"], old["reduce_op"]
    run = bridge_run(tmp_path, [old])
    assert (rows(run, "phase"), run.problems) == ([[Phase.UNSPECIFIED]], ())


@pytest.mark.parametrize(
    ("op", "group", "kind", "label"),
    [
        ("aten.mm.default", "aten", Kind.OP, ""),
        ("aten._local_scalar_dense.default", "aten", Kind.HOST_READ, ""),
        ("expert_gemm_out", "moe", Kind.MODULE, ""),
        ("all_reduce", "dp_cp", Kind.COLLECTIVE, "dp_cp"),
        ("all_gather_into_tensor", "grp_sz8_0", Kind.COLLECTIVE, "grp_sz8_0"),
    ],
)
def test_kinds_follow_from_group_and_op(tmp_path, op, group, kind, label):
    run = bridge_run(tmp_path, [record(op, ["x"], ["y"], group=group)])
    assert (rows(run, "kind")[0], callees(run)[0].group) == ([kind], label)


@pytest.mark.parametrize("given", ["SUM", "ReduceOp.SUM", "RedOpType.sum"])
def test_a_reduce_op_has_one_spelling(tmp_path, given):
    run = bridge_run(tmp_path, [record("all_reduce", ["x"], ["y"], group="dp", reduce_op=given)])
    assert metas(run)[0].attributes == (("reduce_op", "sum"),)


def test_gzip_bombs_of_one_line_are_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(json_lines, "MAX_LINE_BYTES", 1000)
    path = write(tmp_path, 0, lines(CHAIN[:1]), compress=True)
    path.write_bytes(path.read_bytes() + gzip.compress(b"0" * 10_000_000))
    assert "line 3 is longer" in only_problem(load_run(tmp_path))
