"""Notes and hypotheses: kept whole or not at all, read back as written, never over what is foreign."""

import json
from importlib.resources import files

import jsonschema
import pytest

from detlab.comparison.journal import Hypothesis, Journal, Note, journal_path
from detlab.errors import InputError
from detlab.testing import Call, make_run, save_run

SCHEMA = json.loads(files("detlab").joinpath("schemas/notes.json").read_text("utf-8"))
SITE = "1/0/forward/lin/aten.mm.default#0"
RUNS = ("monday", "tuesday")


def compared(tmp_path=None, labels=RUNS):
    """Compare two equal runs of one call, in memory or saved into a folder."""
    import detlab as dl

    runs = [make_run({0: [Call("aten.mm.default", "lin", ["x"], ["y"])]}, label=label) for label in labels]
    if tmp_path is not None:
        runs = [save_run(run, tmp_path / label) for run, label in zip(runs, labels, strict=True)]
    return dl.compare(*runs)


def test_a_note_is_read_back_as_written(tmp_path):
    written = Journal(tmp_path / "n.json", RUNS).add_note("  looks like atomics\n", rank=3, site=SITE)
    assert written.text == "looks like atomics"
    assert Journal(tmp_path / "n.json").notes == (written,)
    assert (written.rank, written.site) == (3, SITE)


def test_a_note_without_a_call_is_about_the_comparison(tmp_path):
    note = Journal(tmp_path / "n.json", RUNS).add_note("rerun it")
    assert note == Note("rerun it", note.at, None, None)


def test_a_hypothesis_is_open_until_it_is_judged(tmp_path):
    journal = Journal(tmp_path / "n.json", RUNS)
    assert journal.add_hypothesis("the index has duplicates").state == "open"
    judged = journal.judge(0, "confirmed", "replay gives 41 results")
    assert judged.why == "replay gives 41 results"
    assert Journal(tmp_path / "n.json").hypotheses == (judged,)


def test_a_hypothesis_can_be_opened_again(tmp_path):
    journal = Journal(tmp_path / "n.json", RUNS)
    journal.add_hypothesis("a bad host")
    journal.judge(0, "falsified", "another host does it too")
    assert journal.judge(0, "open") == Hypothesis("a bad host", "open", "", journal.hypotheses[0].at)


def test_the_file_has_the_form_of_its_schema(tmp_path):
    journal = Journal(tmp_path / "n.json", RUNS)
    journal.add_note("one", rank=0, site=SITE)
    journal.add_note("two")
    journal.add_hypothesis("three")
    journal.judge(0, "falsified", "four")
    content = json.loads((tmp_path / "n.json").read_text("utf-8"))
    jsonschema.validate(content, SCHEMA)
    assert content["runs"] == ["monday", "tuesday"]


def test_two_notebooks_write_into_one_journal(tmp_path):
    mine, theirs = Journal(tmp_path / "n.json", RUNS), Journal(tmp_path / "n.json", RUNS)
    mine.add_note("mine")
    theirs.add_note("theirs")
    assert [note.text for note in theirs.notes] == ["mine", "theirs"]


def test_nothing_is_written_before_there_is_something_to_keep(tmp_path):
    Journal(tmp_path / "n.json", RUNS)
    assert list(tmp_path.iterdir()) == []


def good():
    """Give the content of a whole journal."""
    return {
        "schema": "detlab.notes/1",
        "runs": list(RUNS),
        "notes": [{"text": "t", "at": "now", "rank": 0, "site": SITE}],
        "hypotheses": [{"text": "h", "state": "open", "why": "", "at": "now"}],
    }


def damaged(change):
    content = good()
    change(content)
    return json.dumps(content)


DAMAGE = {
    "cut off": json.dumps(good())[:-20],
    "no JSON": "half a note",
    "a list": "[]",
    "another schema": damaged(lambda c: c.update(schema="detlab.notes/2")),
    "no runs": damaged(lambda c: c.pop("runs")),
    "three runs": damaged(lambda c: c.update(runs=["a", "b", "c"])),
    "a text that is a number": damaged(lambda c: c["notes"][0].update(text=7)),
    "a rank below zero": damaged(lambda c: c["notes"][0].update(rank=-1)),
    "a rank that is true": damaged(lambda c: c["notes"][0].update(rank=True)),
    "a state of its own": damaged(lambda c: c["hypotheses"][0].update(state="maybe")),
    "an entry too many in a note": damaged(lambda c: c["notes"][0].update(by="me")),
    "an entry too many": damaged(lambda c: c.update(more=[])),
    "notes that are a text": damaged(lambda c: c.update(notes="none")),
    "depth": "[" * 100_000,
}


def test_a_whole_file_is_taken(tmp_path):
    (tmp_path / "n.json").write_text(json.dumps(good()))
    journal = Journal(tmp_path / "n.json", RUNS)
    assert (len(journal.notes), len(journal.hypotheses)) == (1, 1)


@pytest.mark.parametrize("text", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_refused_and_stays_as_it_is(text, tmp_path):
    (tmp_path / "n.json").write_text(text)
    with pytest.raises(InputError, match=r"n\.json is damaged or holds no notes of detlab") as refused:
        Journal(tmp_path / "n.json", RUNS)
    assert "journal=" in refused.value.hint
    assert (tmp_path / "n.json").read_text() == text


def test_a_file_that_was_damaged_in_between_is_not_written_over(tmp_path):
    journal = Journal(tmp_path / "n.json", RUNS)
    journal.add_note("one")
    (tmp_path / "n.json").write_text("half")
    with pytest.raises(InputError, match="damaged"):
        journal.add_note("two")
    assert (tmp_path / "n.json").read_text() == "half"


def test_the_notes_on_other_runs_are_refused(tmp_path):
    Journal(tmp_path / "n.json", ("a", "b")).add_note("one")
    with pytest.raises(InputError, match="holds notes on a and b, not on monday and tuesday"):
        Journal(tmp_path / "n.json", RUNS)


def test_a_journal_opened_by_its_path_alone_says_whose_it_is(tmp_path):
    Journal(tmp_path / "n.json", RUNS).add_note("one")
    assert Journal(tmp_path / "n.json").runs == RUNS


def test_a_folder_is_no_journal(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        Journal(tmp_path, RUNS)


def test_what_cannot_be_written_is_not_remembered(tmp_path):
    journal = Journal(tmp_path / "gone" / "n.json", RUNS)
    with pytest.raises(InputError, match="cannot be written"):
        journal.add_note("one")
    assert journal.notes == ()


def test_an_empty_note_and_an_empty_hypothesis_are_refused(tmp_path):
    journal = Journal(tmp_path / "n.json", RUNS)
    for write in (journal.add_note, journal.add_hypothesis):
        with pytest.raises(InputError, match="says nothing"):
            write(" \n")
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_state_and_an_unknown_hypothesis_are_refused(tmp_path):
    journal = Journal(tmp_path / "n.json", RUNS)
    journal.add_hypothesis("h")
    with pytest.raises(InputError, match="'done' is no state"):
        journal.judge(0, "done")
    with pytest.raises(InputError, match="there is no hypothesis 1"):
        journal.judge(1, "confirmed")
    with pytest.raises(InputError, match="there is no hypothesis -1"):
        journal.judge(-1, "confirmed")


def test_notes_are_kept_beside_the_folder_of_run_b(tmp_path):
    assert journal_path(compared(tmp_path)) == tmp_path / "monday-against-tuesday.notes.json"


def test_notes_are_kept_beside_the_saved_comparison(tmp_path):
    (tmp_path / "runs").mkdir()
    found = journal_path(compared(tmp_path / "runs"), tmp_path / "night.cmp")
    assert found == tmp_path / "night.notes.json"


def test_notes_that_are_there_already_are_gone_on_with(tmp_path):
    cmp = compared(tmp_path)
    Journal(journal_path(cmp), RUNS).add_note("before it was saved")
    assert journal_path(cmp, tmp_path / "elsewhere" / "night.cmp").name == "monday-against-tuesday.notes.json"


def test_runs_of_memory_have_their_notes_in_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = journal_path(compared())
    Journal(path, RUNS).add_note("one")
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


def test_a_label_never_leaves_the_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = journal_path(compared(labels=("../../etc/x", "\x1b[31m<script>")))
    assert path.parent == type(path)()
    assert set(path.name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_.-[]m1")


def test_words_that_no_locale_can_write_are_kept(tmp_path):
    Journal(tmp_path / "n.json", RUNS).add_note("é 雪 \u202e <script>")
    assert Journal(tmp_path / "n.json").notes[0].text == "é 雪 \u202e <script>"


def test_half_a_character_is_refused_and_leaves_the_notes_as_they_were(tmp_path):
    journal = Journal(tmp_path / "n.json", RUNS)
    journal.add_note("one")
    with pytest.raises(InputError, match="half a character"):
        journal.add_note("\ud800")
    assert Journal(tmp_path / "n.json").notes == journal.notes
    assert len(journal.notes) == 1
