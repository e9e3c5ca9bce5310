"""The shipped runs give the answers that their READMEs state."""

import json

import pytest

from detlab import compare
from detlab.cli import main
from detlab.samples import sample_path


@pytest.fixture(scope="module")
def race():
    return compare(sample_path("race") / "a", sample_path("race") / "b")


def test_the_race_has_a_single_finding_the_embedding_backward(race, capsys):
    pair = [str(sample_path("race") / name) for name in "ab"]
    assert main(["compare", *pair, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    (finding,) = document["findings"]
    assert document["verdict"] == "diverged"
    assert (finding["class"], finding["op"], finding["phase"]) == (
        "kernel",
        "aten.index_put.default",
        "backward",
    )
    assert (finding["scopes"], finding["steps"]) == (["embedding.word_embeddings"], [1])
    assert (finding["ranks"], finding["receivers"]) == ([0, 2], [1, 3])
    assert finding["evidence"] == "exact"
    assert finding["next"].startswith("detlab replay ")


def test_every_receiver_is_led_back_to_the_embedding_backward(race):
    for first in race.first.filter(verdict="receiver").to_dicts():
        path = race.path(rank=first["rank"], site=first["site"])
        origins = path.filter(verdict="origin")
        assert set(origins["op"]) == {"aten.index_put.default"}
        assert path.filter(path["op"].str.starts_with("c10d."))["rank"].n_unique() > 1


def test_the_clean_pair_matches(capsys):
    pair = [str(sample_path("clean") / name) for name in "ab"]
    assert main(["compare", *pair, "--verify"]) == 0
    assert capsys.readouterr().out.startswith("MATCH")
