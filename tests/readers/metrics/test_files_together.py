"""Files of several formats in one folder are one run, seen several times, and no restart."""

from detlab import load_run
from tests.readers.metrics.events import losses, write_events
from tests.readers.metrics.logs import record, write

STEPS = range(1, 9)


def test_a_log_beside_event_files_is_no_restart_and_exact_numbers_come_first(tmp_path):
    write(tmp_path, *(record(step, lm_loss=f"{2 + step / 64:.4f}") for step in STEPS))
    write_events(tmp_path, *losses(STEPS[:6], tag="lm loss"))
    run = load_run(tmp_path)
    rows = run.metrics.filter(name="lm loss").sort("step").select("step", "width", "segment").rows()
    assert rows == [(step, 32 if step <= 6 else 0, 0) for step in STEPS]
    assert run.problems == ()
    assert run.metrics.filter(name="grad norm")["step"].to_list() == list(STEPS)
    assert "TensorBoard events have 6 of its numbers as well" in " ".join(run.log.files["why"])


def test_restarts_are_counted_for_each_format(tmp_path):
    for part, steps in enumerate((range(1, 5), range(3, 9))):
        write(tmp_path, *(record(step) for step in steps), name=f"log_{part}.log")
        time = 1_700_000_000.0 + 100 * part
        write_events(tmp_path, *losses(steps, time, tag="lm loss"), time=time)
    metrics = load_run(tmp_path).metrics
    assert metrics["segment"].unique().sort().to_list() == [0, 1]
    exact = metrics.filter(metrics["width"] == 32).select("segment", "step").rows()
    assert exact == [(0, 1), (0, 2), (0, 3), (0, 4), *((1, step) for step in range(3, 9))]
