"""Damaged files of numbers: whatever is cut or flipped, a file is read, or refused in one sentence."""

import contextlib
import json

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detlab import DetlabError, load_run
from tests.readers.metrics.events import event, header, losses, simple

VALUES = {str(step): float(np.float32(2 + step / 7)) for step in range(1, 6)}
HISTORY = [{"loss": value, "grad_norm": float("nan"), "step": int(step)} for step, value in VALUES.items()]

FILES = {
    "golden.json": json.dumps(
        {"lm loss": {"start_step": 1, "step_interval": 1, "values": VALUES | {"6": "nan"}}}
    ),
    "trainer_state.json": json.dumps({"global_step": 5, "log_history": HISTORY}),
    "losses.txt": "".join(f"{step} {value}\n" for step, value in VALUES.items()),
    "table.csv": "step,loss,eval\n" + "".join(f"{step},{value},\n" for step, value in VALUES.items()),
    "long.tsv": "key\tvalue\tstep\n" + "".join(f"loss\t{value}\t{step}\n" for step, value in VALUES.items()),
    "history.jsonl": "".join(f"{json.dumps(row)}\n" for row in HISTORY),
}
CONTENTS = {name: text.encode() for name, text in FILES.items()} | {
    "events.out.tfevents.1.a": header() + b"".join(losses(range(6))) + event(7, simple("norm", 0.5))
}


@pytest.fixture(scope="module")
def parquet(tmp_path_factory):
    path = tmp_path_factory.mktemp("parquet") / "history.parquet"
    pl.DataFrame({"step": [1, 2, 3], "loss": [2.5, 2.25, None]}).write_parquet(path)
    return path.read_bytes()


@pytest.mark.parametrize("name", [*CONTENTS, "history.parquet"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused_in_one_sentence(name, data, tmp_path, parquet):
    content = bytearray(CONTENTS.get(name, parquet))
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    for at in data.draw(st.lists(st.integers(0, max(0, len(content) - 1)), max_size=3)) if content else []:
        content[at] = data.draw(st.integers(0, 255))
    (tmp_path / name).write_bytes(content)
    with contextlib.suppress(DetlabError):
        run = load_run(tmp_path / name)
        assert len(run.metrics)


def finite(path):
    metrics = load_run(path).metrics
    return metrics.filter(metrics["value"].is_finite()).select("step", "name", "value").rows()


@pytest.mark.parametrize("name", [*CONTENTS, "history.parquet"])
def test_a_cut_file_never_gives_a_number_that_was_not_written(name, tmp_path, parquet):
    content = CONTENTS.get(name, parquet)
    path = tmp_path / name
    path.write_bytes(content)
    written = set(finite(path))
    for end in [*range(0, len(content), 11), *range(len(content) - 40, len(content))]:
        path.write_bytes(content[:end])
        with contextlib.suppress(DetlabError):
            assert set(finite(path)) <= written
