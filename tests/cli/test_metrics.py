"""``detlab metrics``: what it prints and how it exits."""

import json
from importlib.resources import files

import jsonschema
import pytest

from detlab.cli import main

SCHEMA = json.loads(files("detlab").joinpath("schemas/metrics.json").read_text("utf-8"))


def line(step, loss, norm="1.000", name="lm loss"):
    return (
        f" iteration {step:8}/ 100 | consumed samples: {step * 8} | elapsed time per iteration (ms): 12.3 |"
        f" {name}: {loss:.6E} | loss scale: 1.0 | grad norm: {norm} |"
        " number of skipped iterations:   0 | number of nan iterations:   0 |\n"
    )


def log(path, losses, **options):
    path.write_text("".join(line(step, loss, **options) for step, loss in losses.items()))
    return str(path)


LOSSES = {step: 10.0 / step for step in range(1, 11)}


def printed(capsys):
    return " ".join(capsys.readouterr().out.split())


def document(capsys):
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, SCHEMA)
    return found


def test_one_log_is_described(tmp_path, capsys):
    path = log(tmp_path / "a.log", LOSSES)
    assert main(["metrics", path]) == 0
    text = printed(capsys)
    assert text.startswith("a: 7 metrics, steps 1-10. a.log: Megatron-LM, 10 records (line 1 is a record")
    assert "lm loss 10 steps 1 to 10 as printed, 7 significant digits" in text
    assert main(["metrics", path, "--json", "--metric", "lm loss"]) == 0
    found = document(capsys)
    assert [row["name"] for row in found["metrics"]] == ["lm loss"]
    assert found["files"][0]["num_records"] == 10


def test_one_log_with_a_restart_shows_its_replay(tmp_path, capsys):
    path = tmp_path / "a.log"
    path.write_text("".join(line(step, 10.0 / step) for step in (1, 2, 3, 2, 3, 4)))
    assert main(["metrics", str(path)]) == 0
    text = printed(capsys)
    assert "segment 1: steps 2 to 4 (a.log; steps go back from 3 to 2)" in text
    assert "restart replay in a, segment 1 against 0, 2 steps: no difference visible" in text


def test_equal_logs_exit_with_0_and_prove_nothing(tmp_path, capsys):
    a, b = log(tmp_path / "a.log", LOSSES), log(tmp_path / "b.log", LOSSES)
    assert main(["metrics", a, b]) == 0
    assert printed(capsys).startswith(
        "MATCH between a and b at steps 1-10: no difference visible at the printed precision; this proves"
    )
    assert main(["metrics", a, b, "--json"]) == 0
    assert document(capsys)["evidence"] == "printed"


def test_a_difference_exits_with_1_and_says_where_first(tmp_path, capsys):
    a, b = log(tmp_path / "a.log", LOSSES), log(tmp_path / "b.log", LOSSES | {7: 1.5})
    assert main(["metrics", a, b]) == 1
    assert printed(capsys).startswith("DIVERGED: a and b differ first at step 7, in lm loss.")
    assert main(["metrics", a, b, "--json"]) == 1
    assert document(capsys)["first"] == {"step": 7, "metrics": ["lm loss"]}
    assert main(["metrics", a, b, "--metric", "grad norm", "--metric", "loss scale"]) == 0


def test_steps_that_one_log_lacks_exit_with_2_unless_they_were_not_asked_for(tmp_path, capsys):
    a, b = log(tmp_path / "a.log", LOSSES), log(tmp_path / "b.log", {k: LOSSES[k] for k in range(5, 11)})
    assert main(["metrics", a, b]) == 2
    assert "problem: b has no steps 1-4" in printed(capsys)
    assert main(["metrics", a, b, "--steps", "5-10"]) == 0


def test_metrics_of_two_names_are_paired(tmp_path, capsys):
    a, b = log(tmp_path / "a.log", LOSSES), log(tmp_path / "b.log", LOSSES, name="loss")
    assert main(["metrics", a, b]) == 2
    assert main(["metrics", a, b, "--pair", "lm loss=loss"]) == 0
    assert "note: lm loss of a was compared with loss of b" in printed(capsys)


def test_measurements_are_compared_on_request_and_never_decide(tmp_path, capsys):
    a, b = log(tmp_path / "a.log", LOSSES), log(tmp_path / "b.log", LOSSES)
    (tmp_path / "b.log").write_text((tmp_path / "b.log").read_text().replace("12.3", "12.4"))
    assert main(["metrics", a, b, "--measurements", "--json"]) == 0
    rows = {row["name"]: row for row in document(capsys)["metrics"]}
    assert rows["elapsed time per iteration (ms)"]["steps_different"] == 10
    assert main(["metrics", a, b, "--json"]) == 0
    rows = {row["name"]: row for row in document(capsys)["metrics"]}
    assert rows["elapsed time per iteration (ms)"]["steps_different"] is None


def test_three_logs_are_put_into_classes(tmp_path, capsys):
    a, b = log(tmp_path / "a.log", LOSSES), log(tmp_path / "b.log", LOSSES)
    c = log(tmp_path / "c.log", LOSSES | {7: 1.5})
    assert main(["metrics", a, b, c]) == 1
    assert "{a, b} {c}" in printed(capsys)


@pytest.mark.parametrize(
    ("num", "option"),
    [
        (1, ["--pair", "a=b"]),
        (1, ["--offset", "1"]),
        (3, ["--measurements"]),
        (3, ["--metric", "lm loss"]),
        (2, ["--hosts", "hosts.toml"]),
        (2, ["--restart", "a", "b"]),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(tmp_path, capsys, num, option):
    paths = [log(tmp_path / f"{name}.log", LOSSES) for name in "abc"[:num]]
    assert main(["metrics", *paths, *option]) == 2
    what = {1: "one run", 2: "two runs", 3: "three runs or more"}[num]
    assert f"{option[0]} does nothing for {what}." in capsys.readouterr().err


def test_hosts_and_facts_of_runs_come_from_files(tmp_path, capsys):
    paths = [
        log(tmp_path / f"{name}.log", {1: loss}) for name, loss in (("a", 1), ("b", 1), ("c", 2), ("d", 2))
    ]
    facts = tmp_path / "facts.toml"
    facts.write_text("".join(f"[{name}]\nracks = {1 + (name in 'cd')}\n" for name in "abcd"))
    assert main(["metrics", *paths, "--facts", str(facts)]) == 1
    assert "2 reproducible classes; they differ by topology (racks)" in printed(capsys)


def test_a_deliberate_change_is_held_against_the_variation_from_run_to_run(tmp_path, capsys):
    old = [log(tmp_path / f"old{n}.log", LOSSES) for n in range(2)]
    new = [log(tmp_path / f"new{n}.log", LOSSES | {7: 1.5}) for n in range(2)]
    resumed = log(tmp_path / "resumed.log", {step: LOSSES[step] for step in range(5, 11)})
    assert main(["metrics", *old, "--changed", *new, "--restart", resumed, old[0], "--json"]) == 1
    gates = {gate["gate"]: gate["verdict"] for gate in document(capsys)["gates"]}
    assert gates == {
        "fixed-environment repeatability": "pass",
        "baseline equivalence": "fail",
        "restart replay": "pass",
    }


def broken(path):
    """Give files that cannot be used, each with the start of what is said about it."""
    good = log(path / "good.log", LOSSES)
    (path / "empty.log").write_text("nothing of the kind\n")
    (path / "binary.log").write_bytes(b"\x00\x01" * 100)
    (path / "twice.log").write_text(line(1, 1.0) + line(1, 2.0))
    late = log(path / "late.log", {step + 1000: loss for step, loss in LOSSES.items()})
    return {
        "no record": ([good, str(path / "empty.log")], "no record of step metrics"),
        "binary": ([good, str(path / "binary.log")], "is not text"),
        "two values": ([good, str(path / "twice.log")], "twice has two values of one number"),
        "no common step": ([good, late], "good and late have no step in common"),
        "no such pair": ([good, good, "--pair", "lm loss"], "'lm loss' pairs no metrics"),
        "nowhere": ([good, str(path / "nowhere.log")], "does not exist"),
    }


@pytest.mark.parametrize(
    "what", ["no record", "binary", "two values", "no common step", "no such pair", "nowhere"]
)
@pytest.mark.parametrize("flag", [[], ["--json"]])
def test_bad_input_exits_with_2_and_one_sentence(tmp_path, capsys, what, flag):
    arguments, said = broken(tmp_path)[what]
    assert main(["metrics", *arguments, *flag]) == 2
    out, err = capsys.readouterr()
    assert err.startswith("detlab metrics: ")
    assert said in err
    assert err.count("\n") == 2
    assert err.splitlines()[1].startswith("Hint: ")
    if flag:
        found = json.loads(out)
        jsonschema.validate(found, SCHEMA)
        assert (found["schema"], found["verdict"]) == ("detlab.metrics/1", "invalid")


def test_one_log_with_two_values_of_a_step_is_shown_and_exits_with_2(tmp_path, capsys):
    (tmp_path / "twice.log").write_text(line(1, 1.0) + line(1, 2.0))
    assert main(["metrics", str(tmp_path / "twice.log")]) == 2
    assert "lm loss of step 1 is both 1.0 and 2.0" in printed(capsys)
