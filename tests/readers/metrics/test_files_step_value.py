"""Text files of a step and a number a line: exact where they were written to the last bit."""

import numpy as np
import pytest

from detlab import DetlabError, load_run
from tests.readers.metrics.logs import numbers

LOSSES = np.float32([8.2968, 7.7256, 6.2956])
LINES = [f"{step} {float(loss)}" for step, loss in enumerate(LOSSES, 1)]


def write(folder, *lines, end="\n"):
    path = folder / "losses.txt"
    path.write_text("\n".join(lines) + end)
    return path


def test_numbers_of_full_precision_have_their_bits(tmp_path):
    path = write(tmp_path, *LINES)
    assert numbers(path) == [
        (step, "loss", float(loss), None, "value") for step, loss in enumerate(LOSSES, 1)
    ]
    metrics = load_run(path).metrics
    assert metrics["bits"].to_list() == LOSSES.view(np.uint32).tolist()
    assert metrics["width"].to_list() == [32] * 3
    assert metrics["line"].to_list() == [1, 2, 3]


def test_64_bit_numbers_are_64_bits_wide(tmp_path):
    metrics = load_run(write(tmp_path, "1 0.30000000000000004", "2 0.25", "3 NaN")).metrics
    assert metrics["width"].to_list() == [64, 64, 0]
    assert metrics["state"].to_list() == ["value", "value", "nan"]


def test_rounded_numbers_are_as_printed(tmp_path):
    assert numbers(write(tmp_path, "1 8.2968", "2 7.72")) == [
        (1, "loss", 8.2968, 1e-4, "value"),
        (2, "loss", 7.72, 1e-4, "value"),
    ]


def test_a_comment_and_windows_line_ends_change_nothing(tmp_path):
    path = write(tmp_path, "# step loss\r", *(line + "\r" for line in LINES))
    assert numbers(path, "loss") == [(step, float(loss)) for step, loss in enumerate(LOSSES, 1)]


def test_steps_that_go_back_begin_a_segment(tmp_path):
    metrics = load_run(write(tmp_path, "1 8.5", "2 8.25", "2 8.125", "3 8.5")).metrics
    assert metrics["segment"].to_list() == [0, 0, 0]
    metrics = load_run(write(tmp_path, "1 8.5", "2 8.25", "1 8.125", "2 8.75")).metrics
    assert metrics["segment"].to_list() == [0, 0, 1, 1]


def test_a_last_number_that_was_cut_is_left_out(tmp_path):
    cut = write(tmp_path, *LINES, LINES[0][:-6].replace("1", "4", 1), end="")
    run = load_run(cut)
    assert run.metrics["step"].to_list() == [1, 2, 3]
    assert run.problems == ("losses.txt, line 4: the last number may have been cut; it is left out",)
    whole = load_run(write(tmp_path, *LINES, end=""))
    assert whole.metrics["step"].to_list() == [1, 2, 3]
    assert whole.problems == ()


def test_a_last_printed_number_that_was_cut_is_left_out(tmp_path):
    assert numbers(write(tmp_path, "1 8.2968", "2 8.2951", "3 8.2", end=""), "loss") == [
        (1, 8.2968),
        (2, 8.2951),
    ]


def test_lines_that_are_something_else_are_problems(tmp_path):
    run = load_run(write(tmp_path, *LINES * 10, *(f"what {n}" for n in range(5))), format="step-value")
    assert run.problems == (
        *(f"losses.txt, line {line}: no step and number" for line in (31, 32, 33)),
        "losses.txt: and 2 more lines without a step and a number",
    )


@pytest.mark.parametrize("text", ["", "\n", "words only\n"])
def test_a_file_without_such_a_line_is_refused(text, tmp_path):
    (tmp_path / "losses.txt").write_text(text)
    with pytest.raises(DetlabError, match=r"losses\.txt has no line with a step and a number"):
        load_run(tmp_path / "losses.txt", format="step-value")
