"""Logs as Megatron writes them, and what a test expects to be read from them."""

from detlab import load_run

FIELDS = {
    "consumed samples": "{samples:12d}",
    "elapsed time per iteration (ms)": "1523.4",
    "learning rate": "1.500000E-04",
    "global batch size": "   16",
    "lm loss": "2.345000E+00",
    "loss scale": "1.0",
    "grad norm": "1.250",
    "number of skipped iterations": "  0",
    "number of nan iterations": "  0",
}
"""A usual record of a run in bf16."""


def record(step, *, total=500, **changed):
    """Write one record; ``lm_loss=None`` leaves a field out, and an underscore stands for a blank."""
    fields = dict(FIELDS) | {name.replace("_", " "): text for name, text in changed.items()}
    fields["consumed samples"] = f"{16 * step:12d}"
    told = [f"{name}: {text} |" for name, text in fields.items() if text is not None]
    return f" iteration {step:8d}/{total:8d} | {' '.join(told)}\n"


def write(folder, *lines, name="train.log"):
    """Write lines of text or bytes into a log."""
    path = folder / name
    path.write_bytes(b"".join(line if isinstance(line, bytes) else line.encode() for line in lines))
    return path


def numbers(path, name=None, **options):
    """Read a log: (step, name, value, resolution, state), or (step, value) of one metric."""
    metrics = load_run(path, **options).metrics
    if name is None:
        rows = metrics.select("step", "name", "value", "resolution", "state")
    else:
        rows = metrics.filter(metrics["name"] == name).select("step", "value")
    return rows.rows()


def states(path, name, **options):
    """Read a log: the state of one metric at each step."""
    metrics = load_run(path, **options).metrics
    return metrics.filter(metrics["name"] == name).select("step", "state").rows()
