"""Names from files stay text: in every text form, page, figure and JSON document, and on the terminal.

Whatever a trace, a log or a capture calls its ops, modules, communicators, hosts, runs, files and metrics,
nothing of it runs in a page, steers a terminal, begins a line of its own or floods the screen.
"""

import json
import re
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser

import pytest

import detlab as dl
from detlab import views
from detlab.cli import main
from detlab.comparison.many import compare_many
from detlab.comparison.metrics import describe_metrics
from detlab.errors import DetlabError
from detlab.readers.metrics.log import MESSAGE_SCHEMA
from detlab.schema import Evidence, Kind
from detlab.testing import Call, make_metrics_run, make_run, save_run
from detlab.text import LONGEST_WORD, bounded, visible

HOSTILE = {
    "script": "<script>alert(1)</script>",
    "onerror": "<img src=x onerror=alert(1)>",
    "attribute": '" onmouseover="alert(1)" x="',
    "attribute in single quotes": "' onmouseover='alert(1)' x='",
    "colours": "\x1b[31;5mred\x1b[0m",
    "cursor": "\x1b[2J\x1b[1;1H\x1b[5A",
    "C1": "\x9b2J\x9d0;owned\x9c",
    "link": "\x1b]8;;https://evil.example\x07click\x1b]8;;\x07",
    "title": "\x1b]0;owned\x07",
    "carriage": "good\rMATCH: nothing differs",
    "newline": "x\nMATCH: nothing differs",
    "separators": "x\u2028MATCH:\u2029nothing\x85differs\x0b\x0c",
    "NUL": "a\x00b",
    "bidi": "safe\u202egnp.exe\u2066x\u2069",
    "invisible": "ad\u200bam\ufeff\u00ad",
    "formula": '=cmd()|"/c calc"!A1',
    "maths": r"$\href{javascript:alert(1)}{x}$",
    "braces": "{{7*7}}{% raw %}${7*7}",
    "entity": "&lt;script&gt;alert(1)&lt;/script&gt;",
    "endless": "A" * 100_000,
    "endless words": "A B " * 25_000,
    "plotly": '<a href="javascript:alert(1)">x</a><b>',
}
NAMES = pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
FORGED = "MATCH: nothing differs"
MOST = 40_000
"""Characters of the longest text form of one hostile run; a page may hold a few times as many."""


def check_text(text):
    """Hold a text form against what it must not do to a terminal, and to who reads it."""
    lines = text.split("\n")
    assert lines == [visible(line) for line in lines]
    assert not any(line.startswith(FORGED) for line in lines)
    assert len(text) < MOST


class Page(HTMLParser):
    """What is alive in a piece of HTML."""

    def __init__(self, text):
        super().__init__()
        self.alive = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        if tag in ("script", "iframe", "object", "embed", "base", "link", "meta"):
            self.alive.append(tag)
        for key, value in attributes:
            if key.startswith("on") or (value or "").strip().lower().startswith("javascript:"):
                self.alive.append(f"{tag} {key}")


def check_html(text, *, allowed=(), most=8 * MOST):
    """Hold a piece of HTML against markup that came from a name, and against what nobody sees."""
    assert sorted(set(Page(text).alive) - set(allowed)) == []
    assert "".join(text.split("\n")) == visible("".join(text.split("\n")))
    assert len(text) < most


def check_json(text):
    """Hold a printed JSON document against raw characters that steer; give what it says."""
    assert all(line == visible(line) for line in text.split("\n"))
    return json.loads(text)


def test_the_checks_can_fail():
    for name in ("colours", "C1", "NUL", "bidi", "invisible", "separators"):
        with pytest.raises(AssertionError):
            check_text(HOSTILE[name])
        with pytest.raises(AssertionError):
            check_html(HOSTILE[name])
    for name in ("script", "onerror", "plotly"):
        with pytest.raises(AssertionError):
            check_html(f"<p>{HOSTILE[name]}</p>")
    for name in ("newline", "endless"):
        with pytest.raises(AssertionError):
            check_text(HOSTILE[name])
    with pytest.raises(AssertionError):
        check_html(f'<p title="{HOSTILE["attribute"]}">x</p>')
    with pytest.raises(AssertionError):
        check_html(f"<p title='{HOSTILE['attribute in single quotes']}'>x</p>")


def run_of(name, word, label):
    """Two ranks that call an op of this name in a module of this name, sum over a group of this name."""
    calls = [
        Call(name, name, ["x"], ["y"]),
        Call("aten.mm.default", name, ["y"], [word], attributes={name: name, "algo": word}),
        Call("all_reduce", name, [word], [f"sum {word}"], group=name, kind=Kind.COLLECTIVE),
        Call(name, name, [word], [f"{word}!"]),
        Call("aten.add.Tensor", "", ["w"], ["v"], evidence=Evidence.SCREEN),
    ]
    recipes = {rank: {"host": f"{name}{rank}", "env": {name: word}} for rank in range(2)}
    return make_run(
        {0: calls, 1: calls}, label=label, groups={name: [0, 1]}, recipes=recipes, layout={"dp": 2}
    )


@cache
def compared(name):
    return dl.compare(run_of(name, "z", name), run_of(name, "w", f"{name}."))


# ---------------------------------------------------------------- text


@NAMES
def test_the_text_of_a_comparison_of_hostile_runs_is_harmless(name):
    cmp = compared(name)
    assert cmp.verdict == "diverged"
    for shown in (cmp, cmp.a, cmp.with_note(name), *cmp.ranks, *cmp.a.ranks):
        check_text(repr(shown))


@NAMES
def test_the_text_of_one_hostile_call_is_harmless(name):
    cmp = compared(name)
    for row in cmp.first.to_dicts():
        check_text(repr(cmp.call(rank=row["rank"], site=row["site"])))


@NAMES
def test_the_text_of_many_hostile_runs_is_harmless(name):
    runs = [run_of(name, word, f"{name}{word}") for word in "zzww"]
    check_text(repr(compare_many(runs)))


def metrics_of(name, label, shift=0.0):
    numbers = {step: 2.0 + shift * (step > 2) for step in range(1, 40)}
    return make_metrics_run({name: numbers, "lm loss": numbers}, label=label)


@NAMES
def test_the_text_of_hostile_metrics_is_harmless(name):
    a, b = metrics_of(name, name), metrics_of(name, f"{name}.", 0.5)
    for shown in (dl.compare_metrics(a, b), describe_metrics(a), dl.triage(a, reruns=[b]), a):
        check_text(repr(shown))
        html = getattr(shown, "_repr_html_", None)
        check_html(html() if html else "")
    check_text(repr(dl.compare_change([a, metrics_of(name, "c")], [b, metrics_of(name, "d", 0.5)])))


@NAMES
def test_a_hostile_line_of_a_log_is_harmless(name, tmp_path):
    lines = [
        f" iteration {step:8d}/ 40 | consumed samples: {step} | lm loss: {2 + (step == 30) * 5:.6E} |"
        for step in range(1, 41)
    ]
    lines[30] = f"[rank0]: RuntimeError: NCCL error {name}\n[rank0]: CUDA error: {name}\n{lines[30]}"
    (tmp_path / "train.log").write_text("\n".join(lines) + "\n", "utf-8", "surrogateescape")
    try:
        run = dl.load_run(tmp_path / "train.log")
    except DetlabError as error:
        assert "is not text" in str(error) and "\x00" in name
        return check_text(str(error))
    assert set(run.log.messages.columns) >= set(MESSAGE_SCHEMA) - {"source"}
    for shown in (run, dl.triage(run), describe_metrics(run)):
        check_text(repr(shown))


# ---------------------------------------------------------------- pages and figures


@NAMES
def test_the_pages_of_hostile_runs_hold_no_live_markup(name, tmp_path):
    cmp = compared(name).with_note(name)
    check_html(cmp._repr_html_())
    written = dl.report(cmp, tmp_path / "report.html").read_text("utf-8")
    assert re.search('http-equiv="Content-Security-Policy" content="default-src', written)
    allowed = ("meta", "script")  # its own, which its policy knows by their hashes
    check_html(written, allowed=allowed, most=3_000_000)
    bodies = re.findall(r"<script[^>]*>(.*?)</script>", written, re.DOTALL)
    assert not any("alert(1)" in body for body in bodies if not body.lstrip().startswith("{"))


@NAMES
def test_a_figure_of_hostile_runs_takes_no_markup_and_no_formula_from_them(name):
    cmp = compared(name)
    a, b = metrics_of(name, name), metrics_of(name, f"{name}.", 0.5)
    figures = [views.heatmap(cmp), views.heatmap(cmp, rows="op"), views.divergence_by_step(cmp)]
    for fig in (*figures, views.curves(a, b, name), views.curves(a, name)):
        shown = json.dumps(_texts_of(fig.to_plotly_json()), ensure_ascii=False)
        assert not re.search(r"<(?!br>)", shown)
        assert "$" not in shown
        assert visible(shown) == shown
        check_html(fig.static_html())
        check_text(fig._repr_mimebundle_()["text/plain"])


def _texts_of(part):
    """Every text of a figure that plotly may read markup in, without the words of plotly itself."""
    if isinstance(part, dict):
        return [_texts_of(value) for key, value in part.items() if key not in ("template", "hovertemplate")]
    if hasattr(part, "tolist"):
        part = part.tolist()
    return [_texts_of(each) for each in part] if isinstance(part, list | tuple) else str(part)


@NAMES
def test_the_widgets_of_hostile_runs_stand_still_without_live_markup(name):
    explorer = dl.explore(compared(name), journal=None)
    bundle = explorer.twin().bundle()
    check_html(bundle["text/html"], most=2_000_000)
    check_text(bundle["text/plain"])


# ---------------------------------------------------------------- the command line


def said(capsys, *args):
    """Run a command; give its exit code, what it printed and what it complained of."""
    code = main(args)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@NAMES
def test_the_terminal_is_safe_from_hostile_runs(name, tmp_path, capsys):
    a, b = (str(save_run(run_of(name, word, f"{name}{word}"), tmp_path / word)) for word in "zw")
    code, out, err = said(capsys, "compare", a, b)
    assert (code, err) == (1, "")
    check_text(out)
    code, out, _ = said(capsys, "compare", a, b, "--json")
    assert (code, check_json(out)["first"][0]["scope"]) == (1, name)


@NAMES
def test_an_error_about_a_hostile_path_is_harmless(name, tmp_path, capsys):
    path = str(tmp_path / name)
    for args in (("compare", path, path), ("metrics", path), ("triage", path), ("record-info", path)):
        code, out, err = said(capsys, *args)
        assert (code, out) == (2, "")
        check_text(err)


@NAMES
def test_an_error_repeats_no_hostile_name_as_it_is(name):
    error = DetlabError(f"{name} is odd.", f"leave {name} out")
    check_text(str(error))
    assert str(error).count("\n") == 1


@pytest.mark.parametrize("name", ["\x1b[2J", "\u202ex", "\x9b2J"])
def test_what_cannot_be_parsed_is_not_repeated_raw(name, capsys):
    with pytest.raises(SystemExit):
        main(["compare", "a", "b", f"--{name}", name])
    captured = capsys.readouterr()
    check_text(captured.err)
    assert "unrecognized arguments" in captured.err


def test_our_own_mistake_about_a_hostile_name_is_reported_safely(monkeypatch, capsys):
    def fail(*_, **__):
        raise ZeroDivisionError("\x1b[2J\u202e")

    monkeypatch.setattr("detlab.cli.compare.runs_of", fail)
    assert main(["compare", "a", "b"]) == 2
    captured = capsys.readouterr()
    check_text(captured.err)
    assert r"ZeroDivisionError: \x1b[2J\u202e" in captured.err


NAMES_OF_FILES = {
    key: name for key, name in HOSTILE.items() if len(name) < 200 and not set(name) & set("/\x00")
}


@pytest.mark.parametrize("name", NAMES_OF_FILES.values(), ids=NAMES_OF_FILES)
def test_hostile_names_of_files_are_harmless(name, tmp_path, capsys):
    log = tmp_path / f"{name}.log"
    log.write_text("".join(f" iteration {n}/ 9 | lm loss: {n:.6E} | grad norm: 1.0 |\n" for n in range(1, 9)))
    for args in (("metrics", str(log)), ("triage", str(log)), ("metrics", str(log), str(log))):
        _, out, err = said(capsys, *args)
        check_text(out + err)
    folder = tmp_path / "ranks"
    folder.mkdir()
    (folder / f"rank_{name}.jsonl").write_text('{"occurrence": 0}\n')
    code, out, err = said(capsys, "compare", str(folder), str(folder))
    assert code == 2
    check_text(out + err)


@NAMES
def test_a_hostile_record_is_refused_in_harmless_words(name, tmp_path, capsys):
    record = {
        "schema_version": 1, "rank": 0, "sequence": 0, "occurrence": 0, "iteration": 1, "microbatch": None,
        "phase": name, "event": name, "name": name, "fields": {name: name},
    }  # fmt: skip
    (tmp_path / "rank_000000.jsonl").write_text(json.dumps(record) + "\n")
    code, out, err = said(capsys, "compare", str(tmp_path), str(tmp_path))
    assert code == 2
    check_text(out + err)


@NAMES
def test_a_capture_of_a_hostile_op_is_refused_or_harmless(name, tmp_path, capsys):
    torch = pytest.importorskip("torch")
    dl.capture(torch.ops.aten.neg.default, torch.ones(2), path=tmp_path / "it")
    path = tmp_path / "it" / "capture.json"
    content = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps(content | {"op": name, "site": f"1/0/forward/{name}/{name}/0"}), "utf-8")
    code, out, err = said(capsys, "replay", str(tmp_path / "it"), "--trials", "2")
    assert code == 2
    check_text(out + err)


def test_a_whole_process_keeps_the_terminal_clean(tmp_path):
    name = HOSTILE["title"] + HOSTILE["bidi"] + HOSTILE["newline"]
    a, b = (str(save_run(run_of(name, word, name), tmp_path / word)) for word in "zw")
    done = subprocess.run(
        [sys.executable, "-m", "detlab", "compare", a, b], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    check_text(done.stdout + done.stderr)


# ---------------------------------------------------------------- the rule itself


def test_usual_text_is_shown_as_it_is():
    for text in ("aten.index_put_.default", "Größe µ → ∞ 漢字 🙂", "a b", "100\u00a0%"):
        assert visible(text) == text


def test_text_that_nobody_can_read_is_cut_in_the_middle():
    assert bounded("x" * 100_000 + "end").endswith("end") and len(bounded("x" * 100_000)) == LONGEST_WORD
    assert bounded("short words " * 10) == "short words " * 10
