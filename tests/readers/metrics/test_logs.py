"""Log files as they come: cut, coloured, overwritten, damaged, restarted, copied by every rank, and huge."""

import bz2
import gzip
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab import DetlabError, load_run
from detlab.readers.metrics import lines
from tests.readers.metrics.logs import numbers, record, write

LOSSES = [(step, 2.0 + step / 64) for step in range(1, 21)]


def log_of(steps, *, shift=0.0, **fields):
    return [record(step, lm_loss=f"{2.0 + step / 64 + shift:.6E}", **fields) for step in steps]


def losses(path, **options):
    return numbers(path, "lm loss", **options)


# ---------------------------------------------------------------- bytes


def test_bytes_that_are_not_utf8_spoil_nothing(tmp_path):
    rows = log_of(range(1, 21))
    path = write(tmp_path, b"\xff\xfe\x80 bad\n", *rows[:9], b"caf\xe9 | lm loss \xff\n", *rows[9:])
    assert losses(path) == LOSSES


def test_colours_are_taken_out(tmp_path):
    rows = [
        row.replace("lm loss: ", "lm loss: \x1b[38;2;180;60;0m").replace(
            " | loss scale", "\x1b[39m | loss scale"
        )
        for row in log_of(range(1, 21))
    ]
    assert losses(write(tmp_path, *rows)) == LOSSES


def test_windows_line_ends_and_a_missing_last_one_change_nothing(tmp_path):
    text = "".join(log_of(range(1, 21))).replace("\n", "\r\n")
    assert losses(write(tmp_path, text)) == LOSSES
    assert losses(write(tmp_path, text.rstrip(), name="cut.log")) == LOSSES


def test_a_progress_bar_that_is_overwritten_before_a_record_spoils_nothing_and_counts_no_lines(tmp_path):
    bars = "".join(f" {n}%|####| {n}/100 [00:0{n}<00:09,  1.1it/s]\r" for n in range(9))
    path = write(tmp_path, "first\n", *(bars + row for row in log_of(range(1, 21))))
    assert losses(path) == LOSSES
    assert load_run(path).metrics["line"].unique().sort().to_list() == list(range(2, 22))


@pytest.mark.parametrize("size", [1, 7, 64, 1000, 4096])
def test_the_size_of_the_pieces_it_is_read_in_changes_nothing(size, tmp_path, monkeypatch):
    rows = log_of(range(1, 21))
    path = write(tmp_path, b"\xc3\xa9t\xc3\xa9\r\n", *rows[:9], "\x1b[31mred\x1b[0m\n", *rows[9:])
    whole = load_run(path).metrics
    monkeypatch.setattr(lines, "CHUNK_BYTES", size)
    assert load_run(path).metrics.equals(whole)


@given(st.binary(max_size=400))
def test_whatever_bytes_stand_between_two_records_both_are_read(junk):
    """But for line ends of its own, a glued print is as far as other ranks spoil a record."""
    text = record(1).encode() + junk.replace(b"\x00", b"") + b"\n" + record(2).encode()
    frame = lines._frame(text, 1)
    assert {*frame["text"].str.strip_chars_end("\n")} >= {record(1).rstrip("\n"), record(2).rstrip("\n")}


def test_a_compressed_log_is_read_like_a_plain_one(tmp_path):
    path = tmp_path / "train.log.gz"
    path.write_bytes(gzip.compress("".join(log_of(range(1, 21))).encode()))
    assert losses(path) == LOSSES


@pytest.mark.parametrize(("suffix", "pack"), [("gz", gzip.compress), ("bz2", bz2.compress)])
def test_of_a_compressed_log_that_is_cut_what_is_whole_is_read_and_that_it_is_cut_said(
    suffix, pack, tmp_path, monkeypatch
):
    data = b"".join(pack("".join(log_of(range(first, first + 20))).encode()) for first in (1, 21, 41))
    path = tmp_path / f"train.log.{suffix}"
    path.write_bytes(data)
    assert load_run(path).problems == ()
    path.write_bytes(data[:-8])
    run = load_run(path)
    assert run.metrics["step"].max() >= 40
    assert len(run.problems) == 1
    assert run.problems[0].startswith(f"train.log.{suffix} is cut or damaged, and read up to there: ")


def test_a_compressed_log_of_nothing_but_damage_is_one_sentence(tmp_path):
    for suffix in ("gz", "bz2", "zst"):
        path = tmp_path / f"train.log.{suffix}"
        path.write_bytes(b"this is no compressed file at all")
        with pytest.raises(DetlabError, match=rf"train\.log\.{suffix} is cut or damaged"):
            load_run(path)


# ---------------------------------------------------------------- nothing to read


@pytest.mark.parametrize(
    "text", ["", "\n\n", "no record\n", " validation loss at iteration 7 | lm loss value: 7.1 |\n"]
)
def test_a_log_without_a_record_is_said_to_have_none(text, tmp_path):
    path = write(tmp_path, text)
    with pytest.raises(DetlabError, match=r"train\.log holds no trace .* and no record of step metrics"):
        load_run(path)


def test_a_binary_file_is_said_to_be_no_text(tmp_path):
    path = write(tmp_path, b"\x7fELF\x02\x01\x01\x00\x00\x00")
    with pytest.raises(DetlabError, match=r"train\.log is not text: byte 7 is zero"):
        load_run(path)


def test_a_format_that_does_not_exist_is_refused_with_those_that_do(tmp_path):
    with pytest.raises(DetlabError, match=r"'wandb2' is no format\.\nHint: choose one of: megatron"):
        load_run(write(tmp_path, record(1)), format="wandb2")


def test_what_showed_the_format_is_kept(tmp_path):
    files = load_run(write(tmp_path, "hello\n", record(1))).log.files
    assert files.rows() == [("train.log", "Megatron-LM", 1, "line 2 is a record of Megatron-LM")]


# ---------------------------------------------------------------- restarts and copies


def spans(run):
    return run.log.segments.select("first_step", "last_step").rows()


def test_steps_that_go_back_begin_a_segment_and_both_values_are_kept(tmp_path):
    path = write(tmp_path, *log_of(range(1, 11)), *log_of(range(6, 21), shift=1.0))
    run = load_run(path)
    assert spans(run) == [(1, 10), (6, 20)]
    assert run.log.segments["why"].to_list() == ["the first record", "steps go back from 10 to 6"]
    at_seven = run.metrics.filter((run.metrics["step"] == 7) & (run.metrics["name"] == "lm loss"))
    assert at_seven.select("segment", "value").rows() == [(0, 2 + 7 / 64), (1, 3 + 7 / 64)]
    assert not run.log.conflicts


def test_a_resume_from_the_very_last_step_is_found_by_the_line_that_announces_it(tmp_path):
    start = "[before the start of training step] datetime: 2026-04-13 23:41:00\n"
    path = write(tmp_path, start, *log_of(range(1, 11)), start, *log_of(range(11, 21)))
    assert spans(load_run(path)) == [(1, 10), (11, 20)]


def test_a_checkpoint_that_is_only_saved_begins_nothing(tmp_path):
    saved = "  successfully saved checkpoint at iteration      10 to /ckpt\n"
    assert spans(load_run(write(tmp_path, *log_of(range(1, 11)), saved, *log_of(range(11, 21))))) == [(1, 20)]


def test_two_files_of_one_run_overlap_in_a_hundred_steps(tmp_path):
    write(tmp_path, *log_of(range(1, 301)), name="out_9.log")
    write(tmp_path, *log_of(range(201, 401)), name="out_10.log")
    run = load_run(tmp_path)
    assert spans(run) == [(1, 300), (201, 400)]
    assert run.log.segments["source"].to_list() == ["out_9.log", "out_10.log"]
    assert run.log.segments["why"][1] == "another file; steps go back from 300 to 201"


def test_files_can_be_named_one_by_one(tmp_path):
    first = write(tmp_path, *log_of(range(1, 11)), name="b.log")
    second = write(tmp_path, *log_of(range(11, 21)), name="a.log")
    assert spans(load_run([first, second])) == [(1, 10), (11, 20)]


def test_logs_of_ranks_that_print_no_metrics_are_listed_and_no_problem(tmp_path):
    write(tmp_path, "loading data\n", name="rank0.log")
    write(tmp_path, *log_of(range(1, 21)), name="rank7.log")
    run = load_run(tmp_path)
    assert run.problems == ()
    assert run.log.files.select("source", "num_records", "why").rows() == [
        ("rank0.log", 0, "no record"),
        ("rank7.log", 20, "line 1 is a record of Megatron-LM"),
    ]


def test_equal_logs_of_two_ranks_are_one_run_without_a_restart(tmp_path):
    write(tmp_path, *log_of(range(1, 21), elapsed_time_per_iteration_="1.0"), name="rank0.log")
    write(tmp_path, *log_of(range(1, 21), elapsed_time_per_iteration_="1.5"), name="rank1.log")
    run = load_run(tmp_path)
    assert spans(run) == [(1, 20)]
    assert run.log.files["why"][1] == "line 1 is a record of Megatron-LM; a copy of rank0.log"
    assert not run.log.conflicts


def stamped(steps, *, minute=0, shift=0.0):
    """Log steps, one a second."""
    return [
        f" [2026-03-01 10:{minute:02d}:{step:02d}]{line}"
        for step, line in zip(steps, log_of(steps, shift=shift), strict=True)
    ]


def test_logs_follow_each_other_by_the_times_of_their_records_and_not_by_their_names(tmp_path):
    write(tmp_path, *stamped(range(8, 15), minute=5, shift=1.0), name="a_resumed.log")
    write(tmp_path, *stamped(range(1, 11)), name="b_first.log")
    run = load_run(tmp_path)
    assert spans(run) == [(1, 10), (8, 14)]
    assert run.log.files["source"].to_list() == ["b_first.log", "a_resumed.log"]


def test_logs_of_one_time_are_those_of_several_ranks_and_no_restart(tmp_path):
    write(tmp_path, *stamped(range(1, 11)), name="rank0.log")
    write(tmp_path, *stamped(range(1, 9)), name="rank1.log")
    run = load_run(tmp_path)
    assert (spans(run), run.problems) == ([(1, 10)], ())
    write(tmp_path, *stamped(range(1, 9), shift=1.0), name="rank1.log")
    conflict = load_run(tmp_path).problems[0]
    assert conflict.startswith("rank1.log, line 1, and rank0.log, line 1: lm loss of step 1 is both ")


def test_the_same_steps_at_a_later_time_are_no_copy(tmp_path):
    write(tmp_path, *stamped(range(1, 11)), name="1.log")
    write(tmp_path, *stamped(range(1, 11), minute=5), name="2.log")
    assert spans(load_run(tmp_path)) == [(1, 10), (1, 10)]


def test_a_rank_that_has_no_loss_hides_not_that_of_another(tmp_path):
    form = "[titan] 2026-03-01 10:00:{:02d},100 - root - INFO - step: {:2d}  loss: {:8.5f}  tps: 1\n"
    write(tmp_path, *(form.format(step, step, -1) for step in (1, 2, 3)), name="rank0.log")
    write(tmp_path, *(form.format(step, step, step) for step in (1, 2, 3)), name="rank7.log")
    assert numbers(tmp_path, "loss") == [(1, 1.0), (2, 2.0), (3, 3.0)]


@pytest.mark.parametrize("late", [0, 1])
def test_eight_copies_of_every_record_are_one_record(late, tmp_path):
    rows = log_of(range(1, 21))
    copies = [(step + late * (copy > 4), step, copy) for step in range(20) for copy in range(8)]
    path = write(tmp_path, *(rows[step] for _, step, _ in sorted(copies)))
    run = load_run(path)
    assert losses(path) == LOSSES
    assert spans(run) == [(1, 20)]
    assert not run.log.conflicts


def test_one_copy_with_another_value_is_a_conflict_that_names_both_values_and_lines(tmp_path):
    rows = [row for row in log_of(range(1, 21)) for _ in range(8)]
    rows[35] = rows[35].replace("2.078125E+00", "2.078126E+00")
    run = load_run(write(tmp_path, *rows))
    assert run.log.conflicts == (
        "train.log, lines 33 and 36: lm loss of step 5 is both 2.078125 and 2.078126",
    )
    assert run.problems == run.log.conflicts


def test_copies_may_differ_in_what_they_measured(tmp_path):
    rows = [record(1, elapsed_time_per_iteration_="7.0"), record(1, elapsed_time_per_iteration_="8.0")]
    assert load_run(write(tmp_path, *rows)).log.conflicts == ()


def test_a_run_of_logs_can_be_cut_to_some_steps(tmp_path):
    path = write(tmp_path, *log_of(range(1, 21)))
    assert losses(path, steps="3-4,9") == [LOSSES[2], LOSSES[3], LOSSES[8]]
    with pytest.raises(DetlabError, match="has none of steps='99'"):
        load_run(path, steps=99)


# ---------------------------------------------------------------- size

PEAK = """
import resource, sys
from detlab import load_run
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
run = load_run(sys.argv[1])
print(len(run.metrics), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def peak_of(path):
    """Read a log in a process of its own: number of rows, and kilobytes that it needed at most."""
    done = subprocess.run([sys.executable, "-c", PEAK, path], capture_output=True, text=True, check=True)
    return tuple(map(int, done.stdout.split()))


def test_memory_does_not_grow_with_the_lines_between_the_records(tmp_path):
    noise = "[rank3]:W1130 12:00:00.000000 123 some/library.py:766] nothing to see here, as on every line\n"
    few = write(tmp_path, *(noise * 5_000 + row for row in log_of(range(1, 21))), name="few.log")
    many = write(tmp_path, *(noise * 50_000 + row for row in log_of(range(1, 21))), name="many.log")
    assert many.stat().st_size > 90_000_000
    (rows_few, kb_few), (rows_many, kb_many) = peak_of(few), peak_of(many)
    assert rows_few == rows_many
    assert kb_many < kb_few + 60_000  # of ten times as many lines, 85 MB more


def test_a_file_that_is_one_endless_line_is_said_to_be_no_log(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "_LONGEST_LINE_BYTES", 1000)
    monkeypatch.setattr(lines, "CHUNK_BYTES", 400)
    with pytest.raises(DetlabError, match=r"train\.log is no log: it has a line of 1,200 bytes"):
        load_run(write(tmp_path, "x" * 5000))


@pytest.mark.parametrize("name", ["train.log", "train.log.gz"])
def test_progress_is_told_of_every_byte_of_the_file_and_no_more(name, tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "CHUNK_BYTES", 256)
    data = "".join(log_of(range(1, 21))).encode()
    path = write(tmp_path, gzip.compress(data) if name.endswith("gz") else data, name=name)
    told = []
    assert sum(map(len, lines.line_frames(path, told.append))) == 20
    assert sum(told) == path.stat().st_size
