"""A redacted report names no host and no folder: not in its text, not in what its script reads."""

import dataclasses
import json
import re
import zlib
from base64 import b64decode

import pytest

from detlab.cli import main
from detlab.comparison import compare
from detlab.comparison.journal import Journal
from detlab.errors import InputError
from detlab.redaction import redacted, redacting
from detlab.schema import Coordinate
from detlab.testing import make_run, save_run
from detlab.views.document import report_html
from detlab.views.redact import Redactor, kinds_of
from detlab.views.text import html, shorten
from tests.views.stories import step_calls

HOSTS = ("gpu-node17.cluster.example", "gpu-node18.cluster.example", "login-03")
FOLDERS = ("/lustre/u12/runs", "/lustre/u12/my code", "/scratch/secret", "/home/u12")


def telling(label, word):
    """Make a run that names its hosts and folders wherever a run can name anything."""
    recipes = {
        rank: {
            "host": HOSTS[rank],
            "rack": "r1",
            "env": {
                "MASTER_ADDR": HOSTS[2 if label < "n" else 0],
                "HOSTNAME": HOSTS[rank],
                "HOME": "/home/u12",
            },
            "arguments": {
                "data_path": f"/lustre/u12/my code/corpus of {label}",
                "save": f"/scratch/secret/{label}/ckpt",
            },
            "command": f"python /lustre/u12/runs/train.py {label} --host {HOSTS[rank]} -o=/scratch/secret/x",
        }
        for rank in (0, 1)
    }
    scope, op = "/scratch/secret/model.py", "triton:/lustre/u12/runs/k.py:gpu-node17_kernel"
    calls = {rank: step_calls(1, word if rank else "y", scope=scope, op=op) for rank in (0, 1)}
    coordinates = {0: Coordinate(tp=0), 1: Coordinate(tp=1)}
    run = make_run(calls, label=f"{label} on {HOSTS[0]}", recipes=recipes, coordinates=coordinates)
    problems = (f"/scratch/secret/{label}/rank1 of {HOSTS[1]} was cut short",)
    manifest = dataclasses.replace(run.manifest, racks={HOSTS[0]: "r1", HOSTS[1]: "r1"})
    return dataclasses.replace(run, manifest=manifest, source=f"/lustre/u12/runs/{label}", problems=problems)


@pytest.fixture
def cmp():
    return compare(telling("monday", "y"), telling("tuesday", "z"))


@pytest.fixture
def journal(tmp_path, cmp):
    journal = Journal(tmp_path / "notes.json")
    journal.add_note(f"seen on {HOSTS[1]}, see /scratch/secret/x.log")
    journal.add_hypothesis("it is GPU-NODE18")
    return journal


def everything(page):
    """Give the text of a page and of everything that is packed into it."""
    (payload,) = re.findall(r'id="detlab-payload">(.*?)</script>', page, re.DOTALL)
    packed = json.loads(payload)
    texts = [packed["details"], packed["map"]["index"]]
    unpacked = [zlib.decompress(b64decode(text)).decode() for text in texts]
    return "\n".join([page, *unpacked, *map(json.dumps, map(json.loads, unpacked))])


def told(text):
    """List what a text gives away."""
    secrets = ("gpu-node", "login-03", "cluster.example", "lustre", "u12", "secret", "my code")
    return [secret for secret in secrets if secret in text.lower()]


def test_without_redaction_all_of_it_is_there(cmp, journal):
    assert len(told(everything(report_html(cmp, journal)))) == 7


def test_a_redacted_report_tells_neither_hosts_nor_folders(cmp, journal):
    assert told(everything(report_html(cmp, journal, redact=True))) == []


def test_hosts_are_found_in_lists_and_addresses(cmp):
    env = {
        "SLURM_JOB_NODELIST": "lynx1,lynx2",
        "SLURM_NODELIST": "puma-gpu[07-09,12],puma-cpu3",
        "MASTER_ADDR": "tcp://zebra5:29500",
        "RDZV_ENDPOINT": "lion6.cluster.example:29400",
    }
    runs = [make_run({0: step_calls(1, word)}, recipes={0: {"env": env}}) for word in "yz"]
    words = "lynx1 lynx2 puma-gpu[07-09,12] puma-gpu08 puma-gpu12 puma-cpu3 tcp://zebra5:29500 lion6"
    page = everything(report_html(compare(*runs).with_note(f"seen on {words} and puma-gpu77"), redact=True))
    told_of = ("lynx", "puma-cpu", "puma-gpu0", "puma-gpu1", "puma-gpu[", "zebra", "lion")
    assert [name for name in told_of if name in page] == []
    assert "puma-gpu77" in page and re.search(r"tcp://host \d+:29500 host \d+ and", page)


def test_names_of_files_and_the_number_of_each_host_stay(cmp, journal):
    page = report_html(cmp, journal, redact=True)
    assert "PATH/monday" in page and "PATH/train.py" in page and "PATH/x.log" in page
    assert "monday on host 1" in page and "it is host 3" in page and "seen on host 3" in page


def test_hosts_alone_and_paths_alone_can_be_taken_out(cmp):
    hosts, paths = (everything(report_html(cmp, redact=[kind])) for kind in ("hosts", "paths"))
    assert told(hosts) == ["lustre", "u12", "secret", "my code"]
    assert told(paths) == ["gpu-node", "login-03", "cluster.example"]


def test_what_cannot_be_taken_out_is_refused(cmp):
    with pytest.raises(InputError, match="'users' cannot be taken out of a report"):
        report_html(cmp, redact={"users", "hosts"})
    assert kinds_of("hosts") == {"hosts"} and kinds_of(False) == frozenset()


def test_redaction_ends_with_the_page(cmp):
    report_html(cmp, redact=True)
    assert redacted(HOSTS[0]) == HOSTS[0]


def test_a_second_time_changes_nothing(cmp):
    clean = Redactor(cmp, kinds_of(True))
    once = clean(f"{HOSTS[0]}: /lustre/u12/my code/corpus of monday, /home/u12, gpu-node17_x")
    assert once == clean(once) == "host 1: PATH/corpus of monday, PATH, host 1_x"


def test_a_name_is_taken_out_before_its_middle_is_cut(cmp):
    with redacting(Redactor(cmp, kinds_of(True))):
        assert told(shorten(f"load /scratch/secret/{'x' * 60} of {HOSTS[0]} and {HOSTS[1]}", 40)) == []


def test_a_long_name_in_the_details_of_a_call_is_taken_out_before_it_is_cut():
    runs = []
    for label, word in (("a", "y"), ("b", "z")):
        run = telling(label, word)
        long = f"/scratch/secret/{'deep/' * 40}of/u12/k.py"
        calls = {rank: step_calls(1, word if rank else "y", scope=long, op=long) for rank in (0, 1)}
        recipes = {trace.header.rank: trace.header.recipe for trace in run.ranks}
        runs.append(make_run(calls, label=label, recipes=recipes))
    assert told(everything(report_html(compare(*runs), redact=True))) == []


def test_parts_of_words_and_numbers_are_no_hosts(cmp):
    clean = Redactor(cmp, kinds_of(True))
    for text in ("gpu-node170", "mygpu-node17", "1/0/backward/lin/aten.mm.default#17", "dp=1, node of 3"):
        assert clean(text) == text


def test_markup_is_escaped_all_the_same(cmp):
    with redacting(Redactor(cmp, kinds_of(True))):
        assert html(f"<b>{HOSTS[0]}") == "&lt;b&gt;host 1"


def test_the_command_line_redacts_on_request(tmp_path, capsys):
    runs = [str(save_run(telling(label, word), tmp_path / label)) for label, word in (("a", "y"), ("b", "z"))]
    target = tmp_path / "report.html"
    assert main(["report", *runs, "-o", str(target), "--redact"]) == 0
    assert told(everything(target.read_text("utf-8"))) == []
    assert str(tmp_path) not in everything(target.read_text("utf-8"))
    assert capsys.readouterr().out.strip() == str(target)


def test_a_place_given_relative_to_the_working_folder_is_taken_out_too():
    runs = (telling("monday", "y"), telling("tuesday", "z"))
    near = compare(*(dataclasses.replace(run, source=f"../u12/{n}") for n, run in enumerate(runs)))
    text = report_html(near, redact="paths")
    assert "../u12" not in text and "PATH/0" in text and "PATH/1" in text
