"""The shipped samples show what their READMEs say."""

from detlab.captures import load_capture
from tests.megatron_cpu.record_samples import SAMPLES, SITE, check_clean, check_race, first_differences


def test_the_race_shows_first_on_the_ranks_that_have_it():
    check_race(first_differences(SAMPLES / "race"))


def test_the_clean_pair_is_bitwise_the_same():
    check_clean(first_differences(SAMPLES / "clean"))


def test_the_race_is_captured():
    (folder,) = (SAMPLES / "race" / "a" / "captures").iterdir()
    capture = load_capture(folder)
    assert (capture.site, capture.rank) == (str(SITE), 0)


def test_the_samples_are_small():
    assert sum(path.stat().st_size for path in SAMPLES.rglob("*") if path.is_file()) < 6_000_000
