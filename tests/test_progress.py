"""Bars: for long work, where somebody looks, gone without a trace when the work ends or is interrupted."""

import gzip
import io
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import nbformat
import pytest
from nbclient import NotebookClient

from detlab import compare, load_run, progress
from detlab.comparison import pairwise
from detlab.readers.json_lines import walk
from detlab.testing import Call, make_run, save_run


class Terminal(io.StringIO):
    """A terminal that keeps what is written, and can be closed."""

    gone = False

    def isatty(self):
        return True

    def write(self, text):
        if self.gone:
            raise OSError(5, "the terminal is gone")
        return super().write(text)

    @property
    def line(self):
        """What stands on the line at last: a carriage return begins it anew."""
        return self.getvalue().rsplit("\r", 1)[-1].strip()


def put_behind_stderr(monkeypatch, stream):
    """Let bars have this stream; pytest puts its own behind sys.stderr when a test begins."""
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=stream, modules=sys.modules))


@pytest.fixture
def terminal(monkeypatch):
    """A terminal, and work of any length counts as long."""
    shown = Terminal()
    put_behind_stderr(monkeypatch, shown)
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    monkeypatch.delenv(progress.SWITCH, raising=False)
    return shown


def run_of(num_ranks, word="y"):
    return make_run({rank: [Call("aten.mm.default", "lin", ["x"], [word])] for rank in range(num_ranks)})


def test_comparing_shows_how_many_ranks_are_done_and_the_time_left(terminal):
    compare(run_of(3), run_of(3))
    shown = terminal.getvalue()
    assert "comparing" in shown and "1/3" in shown
    assert "00:00<" in shown
    assert terminal.line == ""


def test_loading_shows_ranks(terminal, tmp_path):
    load_run(save_run(run_of(3), tmp_path / "monday"))
    assert "loading monday" in terminal.getvalue() and "1/3" in terminal.getvalue()
    assert terminal.line == ""


def test_short_work_shows_nothing(terminal, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE_S", 60.0)
    compare(run_of(3), run_of(3))
    assert terminal.getvalue() == ""


def test_the_time_left_is_reckoned_from_the_beginning_and_not_from_when_the_bar_appears(
    terminal, monkeypatch
):
    monkeypatch.setattr(progress, "PATIENCE_S", 10.0)
    with progress.bar("comparing", 100, "rank") as shown:
        shown._began, shown._started = shown._began - 25, shown._started - 25
        shown.add(50)
    assert "50/100 [00:25<00:2" in terminal.getvalue()


@pytest.mark.parametrize(("stream", "switch"), [(Terminal(), "0"), (io.StringIO(), "1"), (None, "1")])
def test_a_bar_is_off_when_it_is_turned_off_and_where_there_is_no_terminal(stream, switch, monkeypatch):
    put_behind_stderr(monkeypatch, stream)
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    monkeypatch.setenv(progress.SWITCH, switch)
    with progress.bar("comparing", 3, "rank") as shown:
        shown.add(1)
    assert stream is None or stream.getvalue() == ""


def test_an_imported_ipython_is_no_notebook(monkeypatch):
    import IPython

    put_behind_stderr(monkeypatch, io.StringIO())
    assert IPython.get_ipython() is None and not progress.is_watched()


def test_a_terminal_that_goes_away_ends_the_bar_and_not_the_work(terminal):
    with progress.bar("comparing", 3, "rank") as shown:
        shown.add(1)
        terminal.gone = True
        for _ in range(2):
            shown.add(1)


def test_threads_count_together(terminal):
    with progress.bar("comparing", 4000, "rank") as shown, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: shown.add(1), range(4000)))
        assert (shown._done, shown._drawn._bar.n) == (4000, 4000)
    assert terminal.line == ""


def test_a_name_from_a_file_steers_no_terminal(terminal):
    with progress.bar("reading \x1b[2J\x1b]0;owned\x07\u202e.log\n", 3, "rank") as shown:
        shown.add(1)
    assert r"reading \x1b[2J\x1b]0;owned\x07\u202e.log\n" in terminal.getvalue()
    assert not set(terminal.getvalue()) & set("\x07\u202e")


def test_an_interruption_takes_the_bar_away_before_it_is_reported(terminal):
    with pytest.raises(KeyboardInterrupt), progress.bar("comparing", 3, "rank") as shown:
        for number in shown.over(range(3)):
            if number == 1:
                raise KeyboardInterrupt
    assert "1/3" in terminal.getvalue() and terminal.line == ""


def test_interrupted_comparing_starts_on_no_further_rank(monkeypatch, terminal):
    compared = []

    def compare_slowly(rank, *others):
        compared.append(rank.header.rank)
        time.sleep(0.01)
        return compare_one(rank, *others)

    def interrupt(self, number=1):
        raise KeyboardInterrupt

    compare_one = pairwise._compare_renamed
    monkeypatch.setattr(pairwise, "_compare_renamed", compare_slowly)
    monkeypatch.setattr(pairwise.os, "cpu_count", lambda: 1)
    monkeypatch.setattr(progress.Bar, "add", interrupt)
    with pytest.raises(KeyboardInterrupt):
        compare(run_of(200), run_of(200))
    assert len(compared) < 200


def test_a_rank_that_fails_by_our_mistake_ends_the_comparison_at_once(monkeypatch):
    compared = []

    def fail(rank, *others):
        compared.append(rank.header.rank)
        time.sleep(0.01)
        raise ZeroDivisionError

    monkeypatch.setattr(pairwise, "_compare_renamed", fail)
    monkeypatch.setattr(pairwise.os, "cpu_count", lambda: 1)
    with pytest.raises(ZeroDivisionError):
        compare(run_of(200), run_of(200))
    assert len(compared) < 200


# ---------------------------------------------------------------- bytes


def bar_counts(monkeypatch):
    told = []
    monkeypatch.setattr(progress.Bar, "add", lambda self, number=1: told.append(number))
    return told


@pytest.mark.parametrize("name", ["rank_000000.jsonl", "rank_000000.jsonl.gz"])
def test_reading_records_counts_every_byte_of_the_file_and_no_more(name, tmp_path):
    text = b"".join(b'{"at": %d}\n' % number for number in range(5000))
    path = tmp_path / name
    path.write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    told, records = [], []
    assert walk(path, records.append, told=told.append) == ""
    assert (len(records), sum(told)) == (5000, path.stat().st_size)
    assert len(told) > 1 and min(told) >= 0


def test_what_a_reader_leaves_of_a_damaged_file_counts_as_read(tmp_path, monkeypatch):
    counts = bar_counts(monkeypatch)
    files = []
    for number in range(3):
        files.append(tmp_path / f"{number}.jsonl")
        files[-1].write_bytes(b"{}\n" * (100 + number))
    with progress.reading_files(files, "rank") as counted:
        for _, told in counted:
            told(7)
    assert sum(counts) == sum(file.stat().st_size for file in files)


def test_reading_names_the_file_and_which_of_how_many(terminal, tmp_path):
    for rank in range(2):
        record = {
            "schema_version": 1, "rank": rank, "sequence": 0, "occurrence": 0, "iteration": 1,
            "microbatch": None, "phase": "forward",
            "event": "event", "name": "loss", "fields": {"value": 1.5},
        }  # fmt: skip
        (tmp_path / f"rank_00000{rank}.jsonl").write_text(json.dumps(record) + "\n")
    load_run(tmp_path)
    assert "reading rank_000000.jsonl, rank 1 of 2:  50%" in terminal.getvalue()


# ---------------------------------------------------------------- notebooks


def run_cell(tmp_path, source):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=60, kernel_name="python3", resources=resources).execute()
    return notebook.cells[0].outputs


CELL = """
import warnings
warnings.simplefilter("error")
from detlab import progress
progress.PATIENCE_S = 0.0
seen = []
with progress.bar("reading <b>x</b>", 3, "rank") as shown:
    for number in shown.over(range(3)):
        seen.append(shown._drawn and [child.value for child in shown._drawn._bar.container.children])
print(seen[1])
"""


def test_a_notebook_shows_a_widget_and_keeps_no_trace_of_it(tmp_path):
    outputs = run_cell(tmp_path, CELL)
    printed = "".join(each["text"] for each in outputs if each.output_type == "stream")
    assert "33%" in printed and "&lt;b&gt;" in printed and "<b>" not in printed
    shown = [each.data for each in outputs if each.output_type == "display_data"]
    assert shown == [{"text/plain": ""}]


def test_a_notebook_without_widgets_gets_a_line_of_text_and_no_warning(tmp_path):
    hidden = "import sys\nsys.modules['ipywidgets'] = None\n"
    cell = CELL.replace(
        "[child.value for child in shown._drawn._bar.container.children]", "str(shown._drawn._bar)"
    )
    outputs = run_cell(tmp_path, hidden + cell)
    assert {each.output_type for each in outputs} == {"stream"}
    assert "1/3" in "".join(each["text"] for each in outputs if each["name"] == "stdout")


# ---------------------------------------------------------------- pipes


def test_no_bar_gets_into_json_or_a_pipe(tmp_path):
    a, b = (str(save_run(run_of(2, word), tmp_path / word)) for word in "yz")
    code = "import sys; from detlab import progress, cli; progress.PATIENCE_S = 0.0; sys.exit(cli.main())"
    done = subprocess.run(
        [sys.executable, "-c", code, "compare", a, b, "--json"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert json.loads(done.stdout)["verdict"] == "diverged"
