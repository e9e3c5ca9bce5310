"""A JupyterLab of its own for the tests, and notebooks that are written, opened and run in it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import nbformat

if TYPE_CHECKING:
    from playwright.sync_api import Page

LIMIT_MS: Final = 90_000
"""How long a condition is waited for on a busy machine."""

_SETTINGS: Final = {
    # without these two a popup asks to fetch news, and lies over the page
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "notebook-extension/tracker": {"windowingMode": "none"},  # every output is in the page
}
_IDLE: Final = (
    "() => window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
)
_RUN: Final = """() => {
  window.detlabRan = undefined;
  window.jupyterapp.commands.execute('notebook:run-all-cells').then(() => { window.detlabRan = true; });
}"""
_ERRORS: Final = """() => Array.from(window.jupyterapp.shell.currentWidget.content.model.cells)
  .flatMap(cell => cell.type === 'code' ? cell.outputs.toJSON() : [])
  .filter(output => output.output_type === 'error' || output.name === 'stderr')
  .map(output => output.output_type === 'error' ? output.ename + ': ' + output.evalue : output.text)"""
_ASK: Final = """code => new Promise(resolve => {
  const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
  const future = kernel.requestExecute({code});
  let text = '';
  future.onIOPub = message => {
    text += message.content.text || message.content.data?.['text/plain'] || message.content.evalue || ''; };
  future.done.then(() => resolve(text));
})"""


@dataclass(frozen=True)
class Lab:
    """A running server: its address, and the folder whose notebooks it shows."""

    address: str
    folder: Path

    def write(self, name: str, *cells: str) -> str:
        """Write a notebook of these code cells, and give its name."""
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
        nbformat.write(notebook, self.folder / name)
        return name

    def open(self, page: Page, name: str) -> None:
        """Open a notebook alone on its page, and wait for its kernel."""
        page.goto(f"{self.address}/doc/tree/{name}?reset")
        page.wait_for_function(_IDLE, timeout=LIMIT_MS)

    def run(self, page: Page, name: str) -> None:
        """Open a notebook, run every cell, and expect that none failed or complained."""
        self.open(page, name)
        page.evaluate(_RUN)
        page.wait_for_function("() => window.detlabRan", timeout=LIMIT_MS)
        assert not (errors := page.evaluate(_ERRORS)), errors


def ask(page: Page, code: str) -> str:
    """Run code in the kernel of the open notebook, and give what it printed."""
    return str(page.evaluate(_ASK, code)).strip()


def save(page: Page) -> None:
    """Save the open notebook."""
    page.evaluate("() => window.jupyterapp.shell.currentWidget.context.save().then(() => null)")


def shut_down(page: Page) -> None:
    """End the kernel of the open notebook."""
    page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.shutdown().then(() => null)")


def set_theme(page: Page, theme: str) -> None:
    """Show JupyterLab in its theme 'light' or 'dark'."""
    page.evaluate(
        "name => window.jupyterapp.commands.execute('apputils:change-theme', {theme: name}).then(() => null)",
        f"JupyterLab {theme.title()}",
    )
    light = "true" if theme == "light" else "false"
    page.wait_for_selector(f"body[data-jp-theme-light={light}]", state="attached", timeout=LIMIT_MS)
    page.wait_for_selector("#jupyterlab-splash", state="detached", timeout=LIMIT_MS)


@contextmanager
def running_lab(folder: Path) -> Iterator[Lab]:
    """Run a server with folders, settings and a log of its own below this folder."""
    notebooks = folder / "notebooks"
    notebooks.mkdir(parents=True)
    for name, settings in _SETTINGS.items():
        _write_settings(folder / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings", settings)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (folder / "lab.log").open("w") as log:
        server = subprocess.Popen(
            _command(port, notebooks), env=_environment(folder), stdout=log, stderr=subprocess.STDOUT
        )
    try:
        address = f"http://127.0.0.1:{port}"
        _wait(server, address, folder / "lab.log")
        yield Lab(address, notebooks)
    finally:
        server.terminate()
        server.wait(30)


def _write_settings(path: Path, settings: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(settings))


def _environment(folder: Path) -> dict[str, str]:
    own = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        "IPYTHONDIR": "ipython",
    }
    return {
        **{name: value for name, value in os.environ.items() if name != "CI"},
        **{name: str(folder / value) for name, value in own.items()},
        # notebooks lie in a folder of their own, and read what the tests plant
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }


def _command(port: int, notebooks: Path) -> Sequence[str]:
    return (
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--expose-app-in-browser"),
        *("--IdentityProvider.token=", "--ServerApp.password=", "--ServerApp.ip=127.0.0.1"),
        *(f"--port={port}", "--ServerApp.port_retries=0", f"--ServerApp.root_dir={notebooks}"),
        "--LabApp.news_url=",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    )


def _wait(server: subprocess.Popen[bytes], address: str, log: Path) -> None:
    limit = time.monotonic() + LIMIT_MS / 1000
    while server.poll() is None and time.monotonic() < limit:
        try:
            with urllib.request.urlopen(f"{address}/api/status", timeout=5):  # noqa: S310  this machine
                return
        except OSError:
            time.sleep(0.1)  # the one wait without a condition to subscribe to
    server.kill()
    raise RuntimeError(f"JupyterLab did not come up:\n{log.read_text()[-3000:]}")
