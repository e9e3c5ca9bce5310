"""A comparison saved and opened again is the same; what the user says about names and known differences."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from detlab import compare, load_comparison, load_run
from detlab.errors import InputError, TraceError
from detlab.testing import Call, make_run, save_run
from tests.comparison.test_properties import pairs, run_of


def calls(word="y", scope="layers.1"):
    return [
        Call("aten.mm.default", "layers.0", ["w", "x"], ["h"]),
        Call("aten.index_add.default", scope, ["h"], [word]),
        Call("aten.mm.default", "layers.2", [word], [word + "2"]),
    ]


@pytest.fixture
def pair(tmp_path):
    return [
        save_run(make_run({0: calls(w), 1: calls()}, label=n), tmp_path / n)
        for n, w in (("a", "y"), ("b", "Y"))
    ]


def whole(cmp):
    """Everything that a comparison answers."""
    sites = [cmp.sites(step=step, rank=rank.rank).rows() for rank in cmp.ranks for step in cmp.steps]
    paths = [cmp.path(rank=row["rank"], site=row["site"]).rows() for row in cmp.first.to_dicts()]
    tables = [cmp.discriminate(n).rows() for n in range(len(cmp.roots))]
    return cmp.to_json(), repr(cmp), cmp.findings.rows(), sites, paths, tables


def test_saving_and_opening_changes_nothing(pair, tmp_path):
    cmp = compare(*pair).with_note("seen on the second node too")
    opened = load_comparison(cmp.save(tmp_path / "cmp.detlab"))
    assert whole(opened) == whole(cmp)
    assert opened.notes == ("seen on the second node too",)
    assert "note: seen on the second node too" in repr(opened)


@given(pairs())
def test_saving_and_opening_any_comparison_changes_nothing(tmp_path_factory, pair):
    folder = tmp_path_factory.mktemp("saved")
    cmp = compare(*map(run_of, pair))
    opened = load_comparison(cmp.save(folder / "cmp"), a=cmp.a, b=cmp.b)
    assert whole(opened) == whole(cmp)


def test_labels_that_were_given_are_kept(pair, tmp_path):
    runs = [load_run(path, label=label) for path, label in zip(pair, ("monday", "tuesday"), strict=True)]
    opened = load_comparison(compare(*runs).save(tmp_path / "cmp"))
    assert (opened.a.label, opened.b.label) == ("monday", "tuesday")


def test_a_run_that_changed_since_is_refused(pair, tmp_path):
    saved = compare(*pair).save(tmp_path / "cmp")
    other = make_run({0: calls("Z"), 1: calls()}, label="b")
    with pytest.raises(TraceError, match="b is not the run that was compared"):
        load_comparison(saved, b=other)


def test_a_run_that_was_moved_can_be_named(pair, tmp_path):
    cmp = compare(*pair)
    saved = cmp.save(tmp_path / "cmp")
    pair[1].rename(tmp_path / "moved")
    with pytest.raises(TraceError, match="does not exist"):
        load_comparison(saved)
    opened = load_comparison(saved, b=tmp_path / "moved")
    assert opened.to_json() == cmp.to_json()


@pytest.mark.parametrize("content", [b"", b"PK\3\4 no archive", None])
def test_what_is_no_saved_comparison_is_refused(tmp_path, content):
    path = tmp_path / "cmp"
    if content is None:
        with path.open("wb") as file:
            np.savez(file, document=np.frombuffer(json.dumps({"format": "other/1"}).encode(), np.uint8))
    else:
        path.write_bytes(content)
    with pytest.raises(TraceError, match="is no saved comparison"):
        load_comparison(path)


def test_an_object_in_a_saved_comparison_is_not_loaded(tmp_path):
    with (tmp_path / "cmp").open("wb") as file:
        np.savez(file, document=np.array([{"format": "detlab.saved-comparison/1"}], object))
    with pytest.raises(TraceError, match="is no saved comparison"):
        load_comparison(tmp_path / "cmp")


NAMES = '[scopes]\n"feed_forward" = "layers.1"\n'


def test_names_that_mean_the_same_are_paired_by_the_user(tmp_path):
    (tmp_path / "pairs.toml").write_text(NAMES)
    a, b = make_run({0: calls()}), make_run({0: calls(scope="feed_forward")})
    assert compare(a, b).verdict == "diverged"
    cmp = compare(a, b, pairs=tmp_path / "pairs.toml")
    assert cmp.verdict == "match"
    assert cmp.sites(step=1, rank=0)["how"].to_list() == ["site", "override", "site"]


def test_a_comparison_with_renamed_scopes_is_opened_as_it_was_saved(tmp_path):
    (tmp_path / "pairs.toml").write_text(NAMES)
    a = save_run(make_run({0: calls()}, label="a"), tmp_path / "a")
    b = save_run(make_run({0: calls("Y", scope="feed_forward")}, label="b"), tmp_path / "b")
    cmp = compare(a, b, pairs=tmp_path / "pairs.toml")
    assert [finding.finding_class for finding in cmp.roots] == ["kernel"]
    assert whole(load_comparison(cmp.save(tmp_path / "cmp"))) == whole(cmp)


def test_renaming_never_hides_damage(tmp_path):
    runs = [save_run(make_run({0: calls()}, label=name), tmp_path / name) for name in "ab"]
    digest = load_run(runs[1]).ranks[0].columns(1, 2, ["out_digest"])["out_digest"].tobytes()
    stream = runs[1] / "rank00000.events.arrows"
    stream.write_bytes(stream.read_bytes().replace(digest, bytes(8)))
    with pytest.raises(TraceError, match="recorded digest"):
        compare(*runs, pairs={"scopes": {"x": "y"}})


@pytest.mark.parametrize("text", ["[scope]\nx = 'y'", "scopes = 3", "[scopes]\nx = 3", "]"])
def test_pairs_that_are_none_are_refused(tmp_path, text):
    (tmp_path / "pairs.toml").write_text(text)
    with pytest.raises(InputError):
        compare(make_run({0: calls()}), make_run({0: calls()}), pairs=tmp_path / "pairs.toml")


KNOWN = """
[[accept]]
class = "kernel"
op = "aten.index_add.*"
scope = "layers.*"
reason = "atomics, replaced in the next release"
"""


def test_an_accepted_difference_stays_visible_and_lets_ci_pass(pair, tmp_path):
    (tmp_path / "known.toml").write_text(KNOWN)
    cmp = compare(*pair, accepted=tmp_path / "known.toml")
    assert (cmp.verdict, cmp.exit_code) == ("diverged", 0)
    assert [finding.accepted for finding in cmp.roots] == ["atomics, replaced in the next release"]
    assert "accepted: atomics" in repr(cmp)


def test_accepting_hides_nothing_that_is_not_listed(pair, tmp_path):
    (tmp_path / "known.toml").write_text(KNOWN)
    more = [*calls("Y"), Call("aten.index_put.default", "emb", ["g"], ["G"])]
    base = [*calls(), Call("aten.index_put.default", "emb", ["g"], ["h"])]
    cmp = compare(make_run({0: base}), make_run({0: more}), accepted=tmp_path / "known.toml")
    assert cmp.exit_code == 1
    assert [(finding.op, bool(finding.accepted)) for finding in cmp.roots] == [
        ("aten.index_add.default", True),
        ("aten.index_put.default", False),
    ]


def test_an_incomplete_comparison_is_never_accepted(pair, tmp_path):
    (tmp_path / "known.toml").write_text(KNOWN)
    cmp = compare(*pair, accepted=tmp_path / "known.toml")
    assert replace(cmp, problems=(("b", "is cut"),)).exit_code == 1


@pytest.mark.parametrize(
    "text",
    ["[[accept]]\nop = 'x'", "[[accept]]\nreason = 'all'", "[[accept]]\nop = 'x'\nreason = ''",
     "[[accept]]\nrank = '1'\nreason = 'x'", "accept = ["],
)  # fmt: skip
def test_an_entry_without_reason_or_aim_is_refused(pair, tmp_path, text):
    (tmp_path / "known.toml").write_text(text)
    with pytest.raises(InputError):
        compare(*pair, accepted=tmp_path / "known.toml")
