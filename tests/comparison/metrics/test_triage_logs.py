"""Triage of console logs as they are written: losses that vanish, messages of one rank, checkpoints."""

import json
from importlib.resources import files

import jsonschema
import pytest

import detlab as dl

SCHEMA = json.loads(files("detlab").joinpath("schemas/triage.json").read_text("utf-8"))


def record(step, loss="2.1", norm="0.300", scale="1.0", skipped=0):
    """One line of Megatron; a loss or norm of None is not printed."""
    fields = {
        "consumed samples": f"{step * 8:12d}",
        "elapsed time per iteration (ms)": f"{1000 + step % 7}.0",
        "learning rate": "3.000000E-04",
        "global batch size": "    8",
        "lm loss": None if loss is None else f"{float(loss):.6E}",
        "loss scale": scale,
        "grad norm": norm,
        "number of skipped iterations": f"{skipped:3d}",
        "number of nan iterations": "  0",
    }
    told = " | ".join(f"{name}: {value}" for name, value in fields.items() if value is not None)
    return f" iteration {step:8d}/  250000 | {told} |"


def quiet(first, last, every=1):
    return [
        record(step, 2.1 + 0.01 * (step % 5), f"0.{300 + step % 9}") for step in range(first, last + 1, every)
    ]


@pytest.fixture
def run_of(tmp_path):
    def load(*logs, label="a"):
        folder = tmp_path / label
        folder.mkdir()
        for number, lines in enumerate(logs):
            (folder / f"rank_{number}.log").write_text("\n".join(lines) + "\n")
        return dl.load_run(folder, label=label)

    return load


def checked(triage):
    jsonschema.validate(triage.to_json(), SCHEMA)
    return triage


class TestLossThatIsNotPrinted:
    """O37: the same missing field, three meanings."""

    def test_with_a_norm_of_nan_the_loss_is_nan_from_its_first_step(self, run_of):
        lines = [*quiet(1, 20), record(21, None, "nan"), record(22, None, "nan")]
        triage = checked(dl.triage(run_of(lines)))
        assert [each.kind for each in triage.spikes] == ["not finite"]
        assert (triage.main.onset, triage.main.recovery) == (21, None)
        assert set(triage.main.metrics) == {"lm loss", "grad norm"}

    def test_where_all_iterations_were_skipped_nothing_is_wrong(self, run_of):
        skipped = [record(step, None, None, "8388608.0", skipped=10) for step in (10, 20)]
        triage = checked(dl.triage(run_of([*skipped, *quiet(30, 300, 10)])))
        assert (triage.conclusion, triage.exit_code) == ("no spike", 0)

    def test_with_a_finite_norm_it_is_zero_or_not_positive_and_suspicious(self, run_of):
        lines = [*quiet(1, 20), record(21, None, "0.000")]
        triage = checked(dl.triage(run_of(lines)))
        assert (triage.main.kind, triage.main.onset) == ("not printed", 21)
        assert "zero, negative or NaN. Suspicious; look at the loss mask." in triage.main.says

    def test_a_loss_of_zero_that_is_printed_is_suspicious(self, run_of):
        """O26 since 2026-03: a loss of zero is printed."""
        falling = (record(step, loss) for step, loss in ((21, "0.4"), (22, "0.01"), (23, "0"), (24, "0")))
        lines = [*quiet(1, 20), *falling]
        triage = checked(dl.triage(run_of(lines)))
        assert (triage.main.kind, triage.main.onset) == ("zero", 23)

    def test_a_record_that_was_cut_is_no_loss_that_is_not_printed(self, run_of):
        lines = [*quiet(1, 20), record(21)[:120]]
        assert checked(dl.triage(run_of(lines))).conclusion == "no spike"


class TestOneRankSaysNan:
    """O33: sixteen logs; the last rank prints the steps, and rank 11 alone met NaN."""

    def message(self, rank, step=-1):
        return (
            f"RuntimeError: Rank {rank}, node nodeB, device {rank % 8}, iteration {step}: Unexpected result "
            "nan (message='found NaN in local grad norm for bucket #0 in backward pass before data-parallel "
            "communication collective')"
        )

    def logs(self, rank=None, last=3, step=-1):
        logs = [[f"rank {each} is up"] for each in range(15)] + [quiet(1, last)]
        if rank is not None:
            logs[rank].append(self.message(rank, step))
        return logs

    @pytest.mark.parametrize("step", [-1, 4])
    def test_its_birthplace_is_the_rank_and_the_step(self, run_of, step):
        triage = checked(dl.triage(run_of(*self.logs(11, step=step))))
        event = triage.main
        assert (event.kind, event.rank, event.onset) == ("not finite", 11, 4)
        assert event.says.startswith("rank 11 on nodeB, device 3, met NaN or Inf at step 4: ")
        assert ("names no step" in event.says) == (step == -1)
        assert triage.conclusion == "not enough evidence"

    def test_again_on_the_same_rank_and_step_it_is_data_or_software(self, run_of):
        a, b = run_of(*self.logs(11)), run_of(*self.logs(11), label="b")
        triage = checked(dl.triage(a, reruns=[b]))
        assert triage.conclusion == "deterministic"
        assert "data or software" in triage.why
        assert "b has it again at step 4 on rank 11" in triage.why
        assert "if rank 11 had the same device each time, run it on another one" in triage.next

    def test_gone_in_a_rerun_it_is_a_race_or_hardware(self, run_of):
        a, b = run_of(*self.logs(11)), run_of(*self.logs(last=9), label="b")
        triage = checked(dl.triage(a, reruns=[b]))
        assert triage.conclusion == "not reproduced"
        assert "suspect a race or hardware" in triage.why

    def test_on_another_rank_it_is_not_the_same(self, run_of):
        a, b = run_of(*self.logs(11)), run_of(*self.logs(3), label="b")
        triage = checked(dl.triage(a, reruns=[b]))
        assert triage.conclusion == "recurs"
        assert "on rank 3" in triage.why

    def test_two_ranks_of_one_step_are_one_event(self, run_of):
        logs = self.logs(11)
        logs[12].append(self.message(12))
        triage = checked(dl.triage(run_of(*logs)))
        assert len(triage.spikes) == 1
        assert triage.main.rank is None
        assert triage.main.says.startswith("ranks 11-12 on nodeB")

    def test_where_no_step_is_named_it_may_be_any_of_the_log_interval(self, run_of):
        def run(rank=None, last=20, label="a"):
            return run_of(*self.logs(rank)[:15], quiet(10, last, every=10), label=label)

        a = run(11)
        triage = checked(dl.triage(a, reruns=[run(last=20, label="b")]))
        assert "met NaN or Inf at steps 21 to 30: " in triage.main.says
        assert "it is one of the 10 after the last record" in triage.main.says
        assert 'steps="10-30"' in triage.next
        assert triage.conclusion == "not enough evidence"
        assert dl.triage(a, reruns=[run(last=30, label="c")]).conclusion == "not reproduced"

    def test_o36_what_the_reruns_of_a_failed_validation_show_is_told(self, run_of):
        form = (
            "ts=2026-03-02 08:15:00.25 node={} device={} jobID={} rank=0 iteration=15 "
            "status=RerunValidationStatus.{} result={} message='loss is NaN'"
        )
        tracker = [
            form.format("nodeA", 3, 1, "INITIAL_RUN", "nan"),
            form.format("nodeA", 3, 1, "FIRST_RERUN_REPRODUCIBLE", "nan"),
            form.format("nodeB", 1, 2, "SECOND_RERUN_NOT_REPRODUCIBLE", "2.31"),
        ]
        triage = checked(dl.triage(run_of(tracker)))
        assert [(each.kind, each.rank, each.onset) for each in triage.spikes] == [("not finite", 0, 15)]
        assert triage.notes[0].startswith(
            "failed validation at step 15 on rank 0 (loss is NaN): persistent: nodeA device 3 gave nan"
        )
        same_device = [*tracker[:2], form.format("nodeA", 3, 2, "SECOND_RERUN_NOT_REPRODUCIBLE", "2.31")]
        assert ": insufficient evidence: " in dl.triage(run_of(same_device, label="b")).notes[0]

    def test_what_log_and_tracker_file_both_tell_is_one_event(self, run_of):
        tracked = (
            "ts=2026-03-02 08:15:00.25 node=nodeB device=3 jobID=1 rank=11 iteration=4 "
            "status=RerunValidationStatus.INITIAL_RUN result=nan message='x'"
        )
        triage = checked(dl.triage(run_of(*self.logs(11, step=4), [tracked])))
        assert [(each.rank, each.onset) for each in triage.spikes] == [(11, 4)]
        assert triage.notes == ()

    def test_an_unexpected_result_that_is_a_number_is_no_nan(self, run_of):
        logs = self.logs()
        logs[11].append(
            self.message(11, 4).replace("result nan", "result 9.25").replace("NaN in", "spike in")
        )
        assert checked(dl.triage(run_of(*logs))).conclusion == "no spike"


class TestWindow:
    def saved(self, step):
        return f"  successfully saved checkpoint at iteration {step:7d} to /ckpt"

    def spiky(self, every=1):
        lines = quiet(100, 400, every)
        at = next(index for index, line in enumerate(lines) if " 300/" in line)
        lines[at : at + 3] = [record(300 + every * each, 6 - each) for each in range(3)]
        return lines, at

    def test_it_resumes_from_the_last_checkpoint_before_the_window(self, run_of):
        lines, at = self.spiky()
        lines[at - 20 : at - 20] = [self.saved(279)]
        lines[at:at] = [self.saved(299)]
        triage = checked(dl.triage(run_of(lines)))
        assert 'steps="298-300"' in triage.next
        assert "resume from the checkpoint of step 279 (rank_0.log, line 181)" in triage.next

    def test_it_begins_one_log_interval_and_one_step_before(self, run_of):
        lines, _ = self.spiky(every=10)
        assert 'steps="289-300"' in checked(dl.triage(run_of(lines))).next

    def test_without_a_checkpoint_in_the_log_it_names_none(self, run_of):
        assert "resume" not in checked(dl.triage(run_of(self.spiky()[0]))).next

    def test_it_does_not_begin_before_the_first_step(self, run_of):
        lines = [record(1), record(2, "9"), record(3, "9"), record(4)]
        advice = checked(dl.triage(run_of(lines))).next
        assert 'steps="1-2"' in advice
        assert advice.startswith("run it again from the start, with the same data")


class TestOtherLogInterval:
    """Megatron prints the mean of the loss since the last record, and the grad norm of the last step."""

    LAST = 120

    def curve(self, spike=range(0)):
        return {
            step: (9.0 if step in spike else 2.1 + 0.01 * (step * 7 % 5), 0.3 + 0.001 * (step % 9))
            for step in range(1, self.LAST + 1)
        }

    def every(self, curve, num):
        means = {step: sum(curve[step - i][0] for i in range(num)) / num for step in curve if step % num == 0}
        return [record(step, loss, f"{curve[step][1]:.3f}") for step, loss in means.items()]

    def test_the_same_run_printed_less_often_has_not_parted(self, run_of):
        curve = self.curve(range(81, 101))
        often, seldom = (run_of(self.every(curve, num), label=f"every {num}") for num in (1, 10))
        triage = checked(dl.triage(often, reruns=[seldom]))
        assert triage.conclusion == "recurs"
        assert triage.outcomes[0].first.step is None
        assert "means over other steps were not compared" in triage.why

    def test_a_run_without_the_spike_that_prints_less_often_has_not_parted_long_before(self, run_of):
        spiky, other = self.curve(range(81, 101)), self.curve()
        triage = dl.triage(
            run_of(self.every(spiky, 1), label="a"), reruns=[run_of(self.every(other, 10), label="b")]
        )
        assert triage.conclusion == "not reproduced"
        assert triage.outcomes[0].first.step is None

    def test_records_that_step_over_a_spike_do_not_say_that_it_is_gone(self, run_of):
        spiky, other = self.curve([85]), self.curve()
        triage = dl.triage(
            run_of(self.every(spiky, 1), label="a"), reruns=[run_of(self.every(other, 10), label="b")]
        )
        assert triage.conclusion == "not enough evidence"
        assert triage.outcomes[0].recurs == "not covered"

    def test_equal_intervals_are_compared_in_every_loss(self, run_of):
        spiky, other = self.curve(range(81, 101)), self.curve()
        other[40] = 2.5, other[40][1]
        triage = dl.triage(
            run_of(self.every(spiky, 10), label="a"), reruns=[run_of(self.every(other, 10), label="b")]
        )
        assert triage.conclusion == "diverged before onset"
        assert (triage.outcomes[0].first.step, triage.outcomes[0].first.num_averages) == (40, 0)

    def test_the_first_record_after_a_resume_is_a_mean_over_other_steps(self, run_of):
        curve = self.curve(range(81, 101))
        resumed = self.every(curve, 10)[4:]
        resumed[0] = record(50, 2.3, f"{curve[50][1]:.3f}")  # of the steps from 47 on
        whole, again = run_of(self.every(curve, 10), label="a"), run_of(resumed, label="b")
        triage = dl.triage(whole, reruns=[again])
        assert triage.conclusion == "deterministic"
        assert triage.outcomes[0].first.num_averages == 1

    def test_a_program_that_prints_the_loss_of_the_step_itself_is_compared_at_any_interval(self, tmp_path):
        form = "[titan] - root - INFO - step: {:2d}  loss: {:8.5f}  grad_norm: 1.0000  tps: 1"
        runs = []
        for num, shift in ((1, 0.0), (10, 1e-5)):
            lines = [
                form.format(step, loss + shift)
                for step, (loss, _) in self.curve([90]).items()
                if step % num == 0
            ]
            path = tmp_path / f"every_{num}.log"
            path.write_text("\n".join(lines) + "\n")
            runs.append(path)
        triage = dl.triage(runs[0], reruns=[runs[1]])
        assert triage.outcomes[0].first.step == 10


def test_a_curve_that_goes_on_rising_is_told_to_its_last_record(run_of):
    lines = [*quiet(1, 100), *(record(step, 2.1 + 0.05 * (step - 100)) for step in range(101, 301))]
    triage = checked(dl.triage(run_of(lines)))
    assert len(triage.spikes) == 1
    assert "It did not recover: lm loss is 12.1 at step 300, the last." in triage.main.says


def test_a_record_of_a_skipped_step_is_no_stretch_without_records(run_of):
    lines = [
        *quiet(1, 20),
        *(record(step, None, None, "65536.0", 1) for step in (21, 22, 23)),
        record(24, None, "nan"),
    ]
    says = checked(dl.triage(run_of(lines))).main.says
    assert "It began between iterations 20 and 24." in says
    assert "No record" not in says


def test_where_only_the_other_run_went_wrong_or_differs_that_is_told(run_of):
    calm, spiky = quiet(1, 60), [*quiet(1, 40), record(41, 9.0, "30.0"), *quiet(42, 60)]
    differs = [*quiet(1, 30), record(31, 2.115, "0.304"), *quiet(32, 60)]
    a, b, c = (run_of(lines, label=label) for label, lines in zip("abc", (calm, spiky, differs), strict=True))
    notes = checked(dl.triage(a, reruns=[b, c])).notes
    assert notes[0].startswith("b has one: lm loss rose from 2.12 to 9 at step 41")
    assert notes[0].endswith("Triage that run, with a as a rerun")
    assert notes[1:] == ("c differs from a from step 31 on (lm loss): compare the metrics",)
    assert checked(dl.triage(a, reruns=[a])).notes == ()


def test_a_loss_that_no_record_has_is_not_said_to_have_been_looked_at(tmp_path):
    form = "[rank0]:[titan] - root - INFO - step: {:2d}  loss: -1.00000{}  tps: 1\n"
    path = tmp_path / "rank0.log"
    path.write_text("".join(form.format(step, f"  grad_norm:  {3 + step % 5}.6855") for step in range(1, 30)))
    triage = checked(dl.triage(path))
    assert triage.coverage["metrics"] == ["grad_norm"]
    assert triage.notes == ("loss has no number in any record: give the log of the rank that has it",)
    path.write_text("".join(form.format(step, "") for step in range(1, 30)))
    with pytest.raises(dl.DetlabError, match="rank0 has no loss and no norm"):
        dl.triage(path)


class TestRerunFromACheckpoint:
    LINES = (
        *quiet(1, 99),
        record(100, 9.0, "30.0"),
        record(101, 7.0, "20.0"),
        record(102, 5.0, "9.0"),
        *quiet(103, 150),
    )

    def test_one_that_begins_inside_the_spike_says_nothing(self, run_of):
        a, b = run_of(self.LINES), run_of(self.LINES[100:], label="b")
        triage = checked(dl.triage(a, reruns=[b]))
        assert (triage.conclusion, triage.outcomes[0].recurs) == ("not enough evidence", "not covered")

    def test_one_that_begins_before_it_may_bring_back_a_fault_of_before_its_checkpoint(self, run_of):
        a, b, c = (run_of(self.LINES[at:], label=label) for label, at in (("a", 0), ("b", 50), ("c", 0)))
        warning = "b begins at step 51: a fault before that step, if it is in the checkpoint, would come back"
        triage = checked(dl.triage(a, reruns=[b]))
        assert triage.conclusion == "deterministic"
        assert warning in triage.why
        assert warning not in dl.triage(a, reruns=[b, c]).why

    def test_runs_that_were_never_equal_may_be_of_another_recipe(self, run_of):
        other = [record(step, 2.2 + 0.01 * (step % 5)) for step in range(1, 151)]
        a = run_of(self.LINES)
        assert "never equal" in checked(dl.triage(a, reruns=[run_of(other, label="b")])).why
        later = [*quiet(1, 1), *other[1:]]
        assert "never equal" not in checked(dl.triage(a, reruns=[run_of(later, label="c")])).why


def test_no_spike_in_a_log_with_two_values_of_one_step_is_incomplete(run_of):
    triage = checked(dl.triage(run_of([*quiet(1, 20), record(20, 3.3)])))
    assert (triage.conclusion, triage.exit_code) == ("no spike", 2)
    assert repr(triage).startswith("NO SPIKE in a, as far as it could be read.")
    assert dl.triage(run_of(quiet(1, 20), label="b")).exit_code == 0


@pytest.mark.parametrize("num", [8, 9])
def test_of_too_few_records_for_a_band_it_is_said_that_only_jumps_show(num, run_of):
    notes = checked(dl.triage(run_of(quiet(1, num)))).notes
    assert [note.startswith("8 records make no band: only a loss that jumps") for note in notes] == [True] * (
        num == 8
    )


def test_an_auxiliary_loss_that_is_no_longer_printed_is_told(run_of):
    def run(last, label, every=1):
        lines = quiet(1, 60)
        for at in range(0, last, every):
            lines[at] = lines[at].replace(
                "| loss scale", f"| mtp_1 loss: {2.6 + 0.01 * (at % 5):.6E} | loss scale"
            )
        return run_of(lines, label=label)

    triage = checked(dl.triage(run(40, "a")))
    assert triage.notes == (
        "mtp_1 loss is not printed after step 40, and records go on to 60: it may be NaN",
    )
    assert "all that are printed are finite" in triage.why
    assert checked(dl.triage(run(60, "b"))).notes == checked(dl.triage(run(51, "c", every=10))).notes == ()


def test_a_rerun_that_is_nan_where_the_run_spikes_goes_wrong_at_the_same_step(run_of):
    a = run_of([*quiet(1, 40), record(41, 9.0, "30.0"), *quiet(42, 60)])
    b = run_of([*quiet(1, 40), *(record(step, None, "nan") for step in range(41, 46))], label="b")
    for one, other in ((a, b), (b, a)):
        triage = checked(dl.triage(one, reruns=[other]))
        assert (triage.conclusion, triage.outcomes[0].recurs) == ("recurs", "other values")
        assert "goes wrong at the same step, if in another way" in triage.why
