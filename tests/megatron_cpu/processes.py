"""Run one function in several processes that talk over gloo, each forked after the slow imports."""

from __future__ import annotations

import multiprocessing
import tempfile
import traceback
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["torch.distributed", "tests.megatron_cpu.imports"])


def run_on_ranks(world_size: int, work: Callable[..., Any], *args: Any, timeout_s: float = 120) -> list[Any]:
    """Run ``work(*args)`` on every rank of a new gloo world; give what each returned, by rank.

    Raises
    ------
    RuntimeError
        A rank raised (its traceback is the message), ended or did not end in time; no process is left.
    """
    with tempfile.TemporaryDirectory() as folder:
        pipes = [_context.Pipe(duplex=False) for _ in range(world_size)]
        meeting = str(Path(folder) / "meeting")
        processes: list[BaseProcess] = [
            _context.Process(target=_child, args=(rank, world_size, meeting, pipes[rank][1], work, args))
            for rank in range(world_size)
        ]
        for process, (_, sender) in zip(processes, pipes, strict=True):
            process.start()
            sender.close()  # so that the death of the process ends the pipe
        try:
            return _collect([receiver for receiver, _ in pipes], timeout_s)
        finally:
            for process in processes:
                process.kill() if process.exitcode is None and process.join(5) is None else None
                process.join()


def _collect(receivers: list[Connection], timeout_s: float) -> list[Any]:
    results: dict[int, Any] = {}
    left = dict(zip(receivers, range(len(receivers)), strict=True))
    while left:
        ready = wait(list(left), timeout_s)
        if not ready:
            raise RuntimeError(f"ranks {sorted(left.values())} have not ended after {timeout_s:.0f} s")
        for receiver in ready:
            rank = left.pop(receiver)  # type: ignore[call-overload]
            results[rank] = _receive(receiver, rank)  # type: ignore[arg-type]
    return [results[rank] for rank in sorted(results)]


def _receive(receiver: Connection, rank: int) -> Any:
    try:
        failure, result = receiver.recv()
    except EOFError:
        raise RuntimeError(f"rank {rank} ended without a word") from None
    if failure:
        raise RuntimeError(f"rank {rank} failed:\n{failure}")
    return result


def _child(
    rank: int,
    world_size: int,
    meeting: str,
    sender: Connection,
    work: Callable[..., Any],
    args: tuple[Any, ...],
) -> None:
    import torch.distributed as dist

    warnings.simplefilter("ignore")
    try:
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world_size)
        result = work(*args)
        dist.barrier()
        dist.destroy_process_group()
        sender.send(("", result))
    except BaseException:
        sender.send((traceback.format_exc(), None))
