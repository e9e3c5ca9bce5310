"""Ask the offline map, in the JavaScript that the page runs, what a test asks the notebook's map too."""

import json
import shutil
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from detlab.views.document_script import offline_code


@cache
def node():
    """Give a Node: that of the machine, else the one that comes with Playwright."""
    found = shutil.which("node")
    if not found and find_spec("playwright"):
        from playwright._impl._driver import compute_driver_executable

        found = compute_driver_executable()[0]
    assert found, "install node (apt-get install nodejs), or playwright (make setup)"
    return found


def ask(payload, questions):
    """Give the answer to each question [method of OfflineSource, arguments…]."""
    given = {"script": offline_code(), "payload": payload, "questions": questions}
    script = Path(__file__).with_name("ask_offline.mjs")
    done = subprocess.run(
        [node(), str(script)],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
