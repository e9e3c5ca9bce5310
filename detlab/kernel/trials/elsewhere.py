"""Make the trials of a condition through an executor: on a worker that has the device."""

from __future__ import annotations

import json
import time
from concurrent.futures import Executor, Future
from threading import Event
from typing import Final

from detlab.errors import InputError
from detlab.kernel.isolated import DEFAULT_LIMIT_S
from detlab.kernel.worker.protocol import Made, Request, made_from_json

_GRACE_S: Final = 60.0
"""How much longer than its time limit an executor may take to begin and to answer."""

_POLL_S: Final = 0.05


def run_elsewhere(
    executor: Executor,
    request: Request,
    isolate: bool,
    time_limit_s: float | None,
    function: str | None,
    cancel: Event | None = None,
) -> Made:
    """Submit one condition and wait for it; a lost worker or no answer is a row of the report.

    With `isolate` the worker starts a process of its own, so that a crash or a hang of the call does not end
    the worker. Without it only the wait for the answer has a limit. Once `cancel` is set the answer is no
    longer waited for; trials that the worker has begun go on there.
    """
    from detlab.kernel.worker.__main__ import run_request  # which makes trials itself

    future = executor.submit(run_request, json.dumps(request.to_json()), isolate, time_limit_s, function)
    limit = (DEFAULT_LIMIT_S if time_limit_s is None else time_limit_s) + _GRACE_S
    name = request.condition.name
    try:
        made = made_from_json(json.loads(_answer(future, limit, cancel)))
    except TimeoutError:
        future.cancel()
        return Made(name, status="timed out", note=f"the executor gave no answer within {limit:,.0f} s")
    except KeyboardInterrupt:
        future.cancel()
        return Made(name, problems=["stopped by the user before the executor answered"])
    except InputError as error:
        return Made(name, status="refused", note=error.finding)
    except Exception as error:
        note = f"the worker was lost: {type(error).__name__}: {error}"
        return Made(name, status="crashed", note=note[:300])
    made.is_isolated = True  # two conditions may have met two workers
    if made.status == "done":
        made.note = made.note or "in a process of the executor"
    return made


def _answer(future: Future[str], limit_s: float, cancel: Event | None) -> str:
    """Wait for the answer, looking up now and then whether the user still wants it."""
    if cancel is None:
        return future.result(timeout=limit_s)
    deadline = time.monotonic() + limit_s
    while not future.done() and time.monotonic() < deadline:
        if cancel.wait(_POLL_S):
            raise KeyboardInterrupt  # it is the same wish
    return future.result(timeout=0)
