"""What the bad runs have in common: hosts from lists, files and traces, with an exact test."""

import json
from dataclasses import replace
from fractions import Fraction

import pytest

from detlab.comparison.association import associate
from detlab.comparison.stated import as_hosts
from detlab.errors import InputError, NotComparable
from detlab.testing import Call, make_run

BAD, GOOD = ["r1", "r2", "r3"], ["r4", "r5", "r6", "r7"]


def seven_runs():
    """Seven runs on 16 hosts each: n55 in each bad one and no good one, n12 in all but one good one."""
    special = {label: ["n55", "n12"] for label in BAD} | {label: ["n12"] for label in GOOD} | {GOOD[3]: []}
    return {
        label: special[label] + [f"n{100 + 50 * (run % 2) + at}" for at in range(16 - len(special[label]))]
        for run, label in enumerate([*BAD, *GOOD])
    }


def test_the_node_in_every_bad_run_and_no_good_one_comes_first_with_its_counts():
    """O34: the common factor of the bad runs is a host."""
    hosts = seven_runs()
    assert {len(each) for each in hosts.values()} == {16}
    found = associate(BAD, GOOD, hosts=hosts)
    first = found.facts.row(0, named=True)
    assert first["fact"] == "host n55 is in the run"
    assert (first["num_bad"], first["of_bad"], first["num_good"], first["of_good"]) == (3, 3, 0, 4)
    assert first["p"] == pytest.approx(1 / 35)
    n12 = found.facts.filter(fact="host n12 is in the run").row(0, named=True)
    assert (n12["num_bad"], n12["num_good"], n12["p"]) == (3, 3, 1.0)
    assert found.suspects == ("n55",)
    text = " ".join(repr(found).split())
    assert "host n55 in 3 of 3 bad runs and in 0 of 4 good ones: p = 1/35 = 0.029" in text
    assert "association, not proof" in text.lower()
    assert "3 bad of 7 runs can show no p below 1/35" in text
    assert "next: replay the suspect step on n55 and on another host" in text


def test_chance_counts_every_pattern_of_hosts_that_was_tested():
    alone = {label: ["n55"] for label in BAD} | {label: ["n1"] for label in GOOD}
    found = associate(BAD, GOOD, hosts=alone)  # one pattern: n55 is where n1 is not
    assert found.facts["chance"].to_list() == pytest.approx([1 / 35, 1 / 35])
    first = associate(BAD, GOOD, hosts=seven_runs()).facts.row(0, named=True)
    assert first["chance"] > 3 / 35 - 1e-9  # n55, n12, and the rest in every second run
    assert first["note"] == "association, not proof; chance explains it as well"


def test_a_host_of_the_good_runs_alone_is_no_suspect():
    hosts = {label: ["n1"] for label in BAD} | {label: ["n1", "n2"] for label in GOOD}
    found = associate(BAD, GOOD, hosts=hosts)
    assert found.suspects == ()
    assert "nothing that is stated" in found.next


def test_a_host_of_some_bad_runs_comes_before_one_of_all_good_runs():
    hosts = {"r1": ["n55"], "r2": ["n55"], "r3": ["n9"]} | {label: ["n1"] for label in GOOD}
    found = associate(BAD, GOOD, hosts=hosts)
    assert found.suspects == ("n55",)
    assert [fact.name.split()[1] for fact in found.found_facts] == ["n55", "n9", "n1"]


def test_hosts_in_the_same_runs_are_not_told_apart():
    hosts = {label: ["n55", "n56"] for label in BAD} | {label: ["n1"] for label in GOOD}
    found = associate(BAD, GOOD, hosts=hosts)
    assert found.suspects == ("n55", "n56")
    assert "n55 and n56 are in the same runs" in repr(found)


def test_other_facts_stand_beside_the_hosts():
    facts = {label: {"driver": "570"} for label in BAD} | {label: {"driver": "580"} for label in GOOD}
    found = associate(BAD, GOOD, facts=facts)
    assert found.facts.select("fact", "value", "num_bad", "num_good").rows() == [
        ("driver", '"570"', 3, 0), ("driver", '"580"', 0, 4),
    ]  # fmt: skip


def test_traces_bring_their_own_hosts():
    def on_hosts(label, *hosts):
        ranks = {rank: [Call("aten.mm.default", "lin", ["w"], ["y"])] for rank in range(len(hosts))}
        return make_run(ranks, label=label, recipes={rank: {"host": host} for rank, host in enumerate(hosts)})

    bad = [on_hosts("b1", "n55", "n12"), on_hosts("b2", "n55", "n3")]
    good = [on_hosts("g1", "n12", "n3"), "g2"]
    found = associate(bad, good, hosts={"g2": ["n12"]})
    assert found.suspects == ("n55",)
    assert found.found_facts[0].exact == Fraction(1, 3)
    names = {f"host {host} is in the run" for host in ("n55", "n12", "n3")}
    assert {fact.name for fact in found.found_facts} == names  # and no second fact of the same hosts
    assert found.bad == ("b1", "b2")
    assert replace(found, bad=()).good == ("g1", "g2")


@pytest.mark.parametrize("suffix", [".toml", ".json", ".csv"])
def test_hosts_are_read_from_a_small_file(tmp_path, suffix):
    text = {
        ".toml": 'A1 = ["n1", "n2"]\nB1 = ["n3"]\n',
        ".json": json.dumps({"A1": ["n1", "n2"], "B1": ["n3"]}),
        ".csv": "label,host\nA1,n1\nA1, n2\n\nB1,n3\n",
    }[suffix]
    path = tmp_path / f"hosts{suffix}"
    path.write_text(text)
    assert as_hosts(path) == as_hosts(str(path)) == {"A1": ("n1", "n2"), "B1": ("n3",)}


@pytest.mark.parametrize(
    ("name", "text", "finding"),
    [
        ("hosts.toml", "A1 = [", "cannot be read"),
        ("hosts.json", "[1, 2]", "holds no labels"),
        ("hosts.toml", 'A1 = "n1"', "has no list of hosts"),
        ("hosts.toml", "A1 = [1]", "has no list of hosts"),
    ],
)
def test_a_host_list_that_is_none_is_refused(tmp_path, name, text, finding):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=finding):
        as_hosts(tmp_path / name)


def test_what_cannot_be_associated_is_refused():
    with pytest.raises(InputError, match="cannot be read"):
        as_hosts("no/such/file.toml")
    with pytest.raises(NotComparable, match="no good run"):
        associate(["a"], [], hosts={"a": ["n1"]})
    with pytest.raises(InputError, match="a stands for more than one run"):
        associate(["a"], ["a"], hosts={"a": ["n1"]})
    with pytest.raises(InputError, match="name c, and there is no such run"):
        associate(["a"], ["b"], hosts={"a": ["n1"], "b": ["n2"], "c": ["n3"]})
    with pytest.raises(InputError, match="have no names"):
        associate(["a"], ["b"], facts={"a": 1, "b": 2})
    plain = make_run({0: []}, label="plain")
    with pytest.raises(NotComparable, match="Nothing is stated"):
        associate([plain], [replace(plain, label="other")])
