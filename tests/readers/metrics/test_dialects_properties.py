"""What holds for every dialect: prefixes, pieces, cut ends, glued records, and none taken for another."""

import re
import string

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detlab import load_run
from detlab.errors import TraceError
from detlab.readers.metrics import CONSOLES, lines
from detlab.readers.metrics.console import detect, find_records, read_console
from detlab.readers.metrics.names import is_loss
from tests.readers.metrics import test_dialects as samples

MEGATRON = """\
 [2025-01-02 03:04:05] iteration       10/     500 | consumed samples:          640 | elapsed time per iteration (ms): 512.5 | lm loss: 9.125000E+00 | loss scale: 1.0 | grad norm: 2.500 | number of skipped iterations:   0 | number of nan iterations:   0 |
 validation loss at iteration 10 | lm loss value: 9.250000E+00 | lm loss PPL: 1.040457E+04 |
 [2025-01-02 03:04:15] iteration       20/     500 | consumed samples:         1280 | elapsed time per iteration (ms): 513.5 | lm loss: 9.000000E+00 | loss scale: 1.0 | grad norm: 2.250 | number of skipped iterations:   0 | number of nan iterations:   0 |
"""  # noqa: E501

SAMPLES = {
    "megatron": MEGATRON,
    "nemo": samples.NEMO,
    "torchtitan": samples.TORCHTITAN,
    "hf-trainer": samples.HF_TRAINER,
    "deepspeed": samples.DEEPSPEED,
    "maxtext": samples.MAXTEXT,
    "fairseq": samples.FAIRSEQ,
    "per-rank": samples.PER_RANK,
}

PREFIXES = (
    "0: ",
    "17: ",
    "[nodeA:3]: ",
    "10.0.0.9:  ",
    "job_mx/0  ",
    "ain_mx/0 ",
    "(Worker(train-1) pid=18, ip=10.0.0.7) ",
    "2025-01-02T03:04:05.678Z stdout F ",
    "I0102 03:04:05 x.py:1] ",
)
TAGS = ("[default2]:", "[rank2]: ", "29: [rank29]:   ", "i.pretrain/0 [default2]:[rank2]: ")

each_dialect = pytest.mark.parametrize("word", SAMPLES)


def told(text, folder):
    """Everything that is known of the numbers of a log, but where they stand."""
    (folder / "run.log").write_bytes(text if isinstance(text, bytes) else text.encode())
    metrics = load_run(folder / "run.log").metrics
    columns = [pl.col(name).cast(pl.String) for name in ("name", "unit", "state", "note")]
    numbers = ("step", "rank", "value", "width", "bits", "resolution", "segment")
    # NaN is not equal to itself; its state says what it is
    return metrics.select(*columns, *numbers).with_columns(pl.col("value").fill_nan(None)).rows()


def numbers(word, text, folder):
    """The numbers that a log read as one of this dialect has, as a set."""
    (folder / "run.log").write_bytes(text.encode())
    metrics = read_console(folder / "run.log", CONSOLES[word]).metrics
    there = metrics.filter(~pl.col("state").cast(pl.String).is_in(["absent", "skipped"]))
    texts = [pl.col(name).cast(pl.String) for name in ("name", "state")]
    return set(there.select("step", "rank", *texts, pl.col("value").fill_nan(None), "resolution").rows())


def test_every_console_has_a_sample():
    assert list(SAMPLES) == list(CONSOLES)


@each_dialect
def test_a_log_is_of_its_own_dialect_and_has_records_of_no_other(word, tmp_path):
    path = tmp_path / "run.log"
    path.write_text(SAMPLES[word])
    found = detect(path, list(CONSOLES.values()))
    assert found is not None
    assert found.dialect is CONSOLES[word]
    assert "also" not in found.why


@each_dialect
def test_no_line_is_a_record_of_another_dialect(word):
    text = pl.DataFrame(
        {"text": re.split(r"[\r\n]", SAMPLES[word] + samples.COLOURED * (word == "torchtitan"))}
    )
    assert len(find_records(text, CONSOLES[word].record, CONSOLES[word].besides))
    for other in SAMPLES.keys() - {word}:
        assert find_records(text, CONSOLES[other].record).is_empty(), other


_TOLD = {}


def plainly_told(word, folder):
    if word not in _TOLD:
        _TOLD[word] = told(SAMPLES[word], folder)
    return _TOLD[word]


def prefixed(text, prefix):
    return "".join(prefix + line for line in text.splitlines(keepends=True))


def stacks(word):
    # a tag says of which rank the numbers of one rank are, and so is no prefix without a meaning there
    known = PREFIXES if word == "per-rank" else PREFIXES + TAGS
    stacked = st.lists(st.sampled_from(known), min_size=1, max_size=2).map("".join)
    any_text = st.text(string.ascii_letters + string.digits + string.punctuation + " é", max_size=12)
    return st.one_of(stacked, any_text.map("{} ".format))


@each_dialect
@settings(max_examples=20)
@given(data=st.data())
def test_any_prefix_may_stand_before_a_record(word, tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("log")
    prefix = data.draw(stacks(word))
    assert told(prefixed(SAMPLES[word], prefix), folder) == plainly_told(word, folder)


@each_dialect
@pytest.mark.parametrize("size", [7, 64, 301])
def test_a_log_read_in_small_pieces_is_the_same(word, size, tmp_path, monkeypatch):
    text = SAMPLES[word] + "one line\r\nand another\n" + SAMPLES[word]
    at_once = told(text, tmp_path)
    monkeypatch.setattr(lines, "CHUNK_BYTES", size)
    assert told(text, tmp_path) == at_once


@each_dialect
def test_a_log_cut_anywhere_has_no_number_that_the_whole_one_has_not(word, tmp_path):
    whole = numbers(word, SAMPLES[word], tmp_path)
    start = SAMPLES[word].rstrip("\n").rfind("\n") + 1
    digits = re.compile(r"[\d.]").finditer(SAMPLES[word], start)
    for end in [digit.end() for digit in digits]:
        assert numbers(word, SAMPLES[word][:end], tmp_path) <= whole, SAMPLES[word][start:end]


@each_dialect
def test_a_record_that_a_number_ends_keeps_the_others_where_it_is_cut(word, tmp_path):
    complete = told(SAMPLES[word], tmp_path)
    cut = told(SAMPLES[word].rstrip("\n"), tmp_path)
    assert len(complete) - len(cut) in {0, 1}


@each_dialect
def test_windows_line_ends_and_bad_bytes_change_nothing(word, tmp_path):
    text = SAMPLES[word].replace("\n", "\r\n").encode()
    assert told(b"\xff\xfe broken \xff\r\n" + text, tmp_path) == told(SAMPLES[word], tmp_path)


@each_dialect
def test_colours_change_nothing(word, tmp_path):
    coloured = SAMPLES[word].replace("loss", "\x1b[38;2;180;60;0mloss").replace("\n", "\x1b[0m\n")
    assert told(coloured, tmp_path) == told(SAMPLES[word], tmp_path)


GLUED = sorted(SAMPLES.keys() - {"megatron", "hf-trainer"})
"""Dialects whose records nothing ends."""


@pytest.mark.parametrize("word", GLUED)
@pytest.mark.parametrize("between", ["", "0: ", "[Rank 3] memory: 5 "])
def test_records_glued_on_one_line_are_read_apart(word, between, tmp_path):
    dialect = CONSOLES[word]
    text = pl.DataFrame({"text": SAMPLES[word].splitlines()})
    records = find_records(text, dialect.record, dialect.besides)["text"].to_list()
    if len(records) == 1:
        records.append(records[0].replace("20", "30"))
    apart = told("\n".join(records) + "\n", tmp_path)
    glued = told(between.join(records) + "\n", tmp_path)
    assert set(glued) <= set(apart)
    assert len(apart) - len(glued) < len(records) + 1  # the last number of each may have grown


@pytest.mark.parametrize(("word", "loss", "scale"), [
    ("megatron", "| lm loss: 9.125000E+00 | loss scale: 1.0 |", "| loss scale: 77.0 |"),
    ("nemo", "| reduced_train_loss: 10.87", "| loss_scale: 77"),
    ("torchtitan", "  grad_norm:  1.2500", "  loss_scale: 77.0"),
    ("deepspeed", " lm loss: 6.1000 moe loss: 0.0250", " loss scale: 77.0"),
    ("maxtext", "loss: 11.250", "loss_scale: 77.0"),
    ("fairseq", "loss=8.5,", "loss_scale=77,"),
])  # fmt: skip
def test_a_loss_scale_is_never_a_loss(word, loss, scale, tmp_path):
    assert loss in SAMPLES[word]
    (tmp_path / "run.log").write_text(SAMPLES[word].replace(loss, scale))
    metrics = load_run(tmp_path / "run.log").metrics.filter(pl.col("value") == 77)
    assert metrics["name"].to_list() in (["loss scale"], ["loss_scale"])
    assert not metrics.select(is_loss(pl.col("name"))).to_series().any()


def test_records_with_a_loss_say_what_a_log_is_and_not_a_library_that_prints_between_them(tmp_path):
    rates = "".join(
        f"[Rank 0] step={step}, skipped=0, lr=[0.1], mom=[(0.9, 0.95)]\n" for step in range(1, 21)
    )
    path = tmp_path / "run.log"
    path.write_text(rates + MEGATRON)
    found = detect(path, list(CONSOLES.values()))
    assert found is not None
    assert found.dialect.name == "Megatron-LM"
    assert found.why.endswith("it also has records like 20 of DeepSpeed")


def test_a_log_without_a_record_of_any_dialect_is_refused(tmp_path):
    (tmp_path / "run.log").write_text("validate step: 20  loss:  3.1046\nval_loss=0.00-step=18\nstep: 3\n")
    with pytest.raises(TraceError, match="no record"):
        load_run(tmp_path / "run.log")
