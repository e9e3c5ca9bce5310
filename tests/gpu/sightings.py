"""What replays saw on each device, as one small JSON file to keep, send and compare."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from detlab.captures.state import torch_state
from detlab.kernel import ReplayClass, ReplayReport
from detlab.kernel.statistics import ConditionResult


class Sightings:
    """The verdict of every kernel under every condition, by device.

    The file has no host name and no path: only what a device and its software are, and what they gave.
    """

    def __init__(self) -> None:
        self._kernels: dict[str, list[dict[str, Any]]] = {}

    def __bool__(self) -> bool:
        return bool(self._kernels)

    def add(self, device: str, kernel: str, report: ReplayReport) -> None:
        """Note one report."""
        found = report.to_json()
        kept = {name: found[name] for name in ("conditions", "outputs", "problems")}
        self._add(device, {"kernel": kernel, "verdict": found["class"]} | kept)

    def add_result(self, device: str, kernel: str, result: ConditionResult) -> None:
        """Note the trials of a call that another function than its op made."""
        verdict = ReplayClass.RACE if result.distinct > 1 else ReplayClass.NOT_SEEN
        self._add(device, {"kernel": kernel, "verdict": verdict.value, "conditions": [asdict(result)]})

    def _add(self, device: str, row: dict[str, Any]) -> None:
        self._kernels.setdefault(device, []).append(row)

    def to_json(self) -> dict[str, object]:
        """Give the document: devices in the order in which they were used, kernels by name."""
        devices = [
            _description(device) | {"kernels": sorted(rows, key=lambda row: str(row["kernel"]))}
            for device, rows in self._kernels.items()
        ]
        return {"schema": "detlab.gpu/1", "devices": devices}

    def write(self, path: Path) -> None:
        """Write the document; a file that is there is replaced."""
        path.write_text(json.dumps(self.to_json(), indent=1) + "\n", "utf-8")


def _description(device: str) -> dict[str, object]:
    state = torch_state(device)
    found: dict[str, object] = {"device": device, "name": state["device_name"], "versions": state["versions"]}
    if device == "cpu":
        return found | {"capability": state["cpu_capability"]}
    properties = torch.cuda.get_device_properties(device)
    driver = torch._C._cuda_getDriverVersion()  # type: ignore[attr-defined]  # 12080: CUDA 12.8
    return found | {
        "capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "driver_cuda": f"{driver // 1000}.{driver % 1000 // 10}",
        "cudnn": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
    }
