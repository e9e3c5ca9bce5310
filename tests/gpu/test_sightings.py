"""The file that `make gpu` leaves: devices, versions, a verdict a kernel, and nothing about the host."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from pathlib import Path

import torch

from detlab.captures import Capture
from detlab.kernel import replay
from detlab.kernel.statistics import summarize
from tests.gpu.sightings import Sightings


def test_file_names_device_versions_and_the_verdict_of_every_kernel(
    tmp_path: Path, device: str, captured_there: Callable[..., Capture]
) -> None:
    sightings = Sightings()
    sightings.add(device, "neg", replay(captured_there(torch.ops.aten.neg.default, torch.ones(3)), trials=3))
    sightings.add_result(device, "atomics", summarize(device, [1, 2, 2]))
    sightings.write(tmp_path / "seen.json")
    content = json.loads((tmp_path / "seen.json").read_text("utf-8"))
    (found,) = content["devices"]
    assert content["schema"] == "detlab.gpu/1"
    assert (found["device"], found["versions"]["torch"]) == (device, torch.__version__)
    assert found["name"] and found["capability"]
    verdicts = {row["kernel"]: (row["verdict"], row["conditions"][0]["distinct"]) for row in found["kernels"]}
    assert verdicts == {"atomics": ("race", 2), "neg": ("not_seen", 1)}
    assert list(verdicts) == ["atomics", "neg"]  # by name: two files can be compared line by line


def test_file_tells_nothing_about_the_host(device: str, captured_there: Callable[..., Capture]) -> None:
    sightings = Sightings()
    sightings.add(device, "neg", replay(captured_there(torch.ops.aten.neg.default, torch.ones(3)), trials=3))
    text = json.dumps(sightings.to_json())
    assert platform.node() not in text
    assert "/" not in text.replace("detlab.gpu/1", "").replace("1/0/backward/embedding", "")
