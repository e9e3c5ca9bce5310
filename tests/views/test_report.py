"""The report: the answer first, everything escaped, one small file that asks the network for nothing."""

import dataclasses
import hashlib
import math
import re
import zlib
from base64 import b64encode
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from detlab.comparison import compare
from detlab.comparison.journal import Journal, journal_path
from detlab.errors import InputError
from detlab.schema import Verdict
from detlab.testing import Call, make_run
from detlab.views import document, report, sections
from detlab.views.document import report_html
from detlab.views.png import png
from detlab.views.pooling import ORIGIN
from detlab.widgets.verdict_bar import verdict_html
from tests.browser.stories import race
from tests.views.large import large_comparison
from tests.views.stories import (
    one_in_a_million,
    one_origin,
    set_aside,
    step_calls,
    story,
    with_metric,
    with_recipe,
)

EVIL = '</title><script>boom()</script><img src="http://evil.example/x" onerror="boom()">\x1b[31m'
VOID = {"meta", "img", "link", "input", "br", "wbr"}


class Page(HTMLParser):
    """What a browser would see: its elements, and the text of its sections."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.open, self.text = [], [], [], ""
        self.feed(text)
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def evil_comparison():
    runs = [
        with_recipe(
            with_metric(story(EVIL + label, {0: [word]}, scope=EVIL, op=EVIL), [1.0], EVIL),
            {EVIL: label, "env": {"A": EVIL + label}},
        )
        for label, word in (("a", "y"), ("b", "z"))
    ]
    damaged = dataclasses.replace(runs[1], problems=(EVIL,), source=EVIL)
    return compare(runs[0], damaged)


def test_the_verdict_stands_first_and_the_sections_in_the_order_of_questions():
    page = report_html(one_origin())
    titles = re.findall(r"<h2>(.*?)</h2>", page)
    assert page.index("DIVERGED".lower()) < page.index("<h2>")
    assert titles == [
        "Findings",
        "What to do next",
        "Map of ranks and calls",
        "Where each rank first differs",
        "Divergence by step",
        "Coverage",
        "Set aside",
        "Structure",
        "Problems",
        "Manifests and recipes",
    ]


def test_a_finding_says_where_how_strong_why_and_what_next():
    text = Page(report_html(one_origin())).text
    for part in ("kernel", "aten.mm.default", "lin, backward", "exact", "every recorded input", "Next:"):
        assert part in text


def stages():
    """Two pipeline stages, each with a layer of its own; the second one differs in an earlier step."""

    def calls(layer, words):
        op, scope = "aten.index_add.default", f"layers.{layer}.moe"
        return [Call(op, scope, ["x"], [word], step=step) for step, word in enumerate(words, start=1)]

    runs = [{0: calls(0, first), 1: calls(1, second)} for first, second in (("yy", "yy"), ("yz", "zy"))]
    return compare(*map(make_run, runs))


def test_a_finding_of_two_stages_leads_to_each_call_on_the_rank_that_makes_it():
    cmp = stages()
    assert len(cmp.roots) == 1
    named = set(re.findall(r'<code data-rank="(\d)" data-site="([^"]*)"', sections.findings(cmp)))
    assert named == {("1", cmp.roots[0].sites[0]), ("0", cmp.roots[0].sites[1])}
    assert "DIVERGED" in Page(report_html(cmp)).text.upper()


def test_a_call_of_run_b_alone_leads_to_no_call_of_run_a():
    one_run, other = ([Call("aten.mm.default", "lin", ["x"], ["y"])] * n for n in (1, 2))
    other[0] = Call("aten.mm.default", "lin", ["p"], ["q"])
    cmp = compare(make_run({0: one_run}), make_run({0: other}))
    assert cmp.first["verdict"].to_list() == ["only_b"]
    assert "data-site" not in sections.findings(cmp) + sections.firsts(cmp) + sections.structure(cmp)


def test_a_difference_that_comes_in_begins_nowhere():
    runs = [make_run({0: [Call("aten.index_add.default", "moe", [word], ["y"])]}) for word in "xX"]
    said = sections.findings(compare(*runs))
    assert "enters on" in said and "begins on" not in said
    assert "begins on" in sections.findings(one_origin())


def test_a_finding_that_is_accepted_says_why():
    cmp = one_origin()
    roots = tuple(dataclasses.replace(each, accepted="known since May") for each in cmp.roots)
    assert "known since May" in Page(report_html(dataclasses.replace(cmp, roots=roots))).text


def test_a_match_says_what_was_looked_at():
    run = story("a", {0: ["y"]})
    text = Page(report_html(compare(run, run))).text
    assert "nothing differs" in text and "Nothing differs in what was compared." in text and "1 of 1" in text


def test_without_a_finding_a_divergence_is_still_not_called_a_match():
    text = Page(report_html(dataclasses.replace(one_origin(), roots=()))).text
    assert "Calls differ, and where that began was not found." in text and "Nothing differs" not in text


def test_an_origin_is_a_shape_with_its_site_as_text():
    page = report_html(one_in_a_million(123_456))
    (place,) = re.findall(r'<use href="#diamond" x="([\d.]+)%" y="\d+"/></g>', page)
    assert float(place) == pytest.approx(12.35, abs=0.01)
    assert "origin: 1/0/forward/lin/aten.mm.default#123456</title>" in page


def test_what_was_not_recorded_is_hatched():
    run = make_run({0: step_calls(1)[:1], 1: step_calls(1)})
    page = report_html(compare(run, run))
    assert 'fill="url(#hatch)"' in page and "untraced: no call was recorded" in page
    whole = make_run({0: step_calls(1)})
    assert "untraced: no call was recorded" not in without(report_html(compare(whole, whole)), "script")


def test_what_is_set_aside_is_listed_with_its_reason():
    text = Page(report_html(set_aside())).text
    assert "pointers" in text and "Set aside and drawn as matches: 1." in text


@pytest.mark.parametrize("make", [one_origin, evil_comparison, set_aside])
def test_the_report_asks_the_network_for_nothing(make):
    page = Page(report_html(make()))
    assert not {"link", "iframe", "object", "embed", "base", "form"} & set(page.tags)
    assert [value for tag, name, value in page.attributes if tag == "script" and name != "id"] == [
        "application/json",
        "module",
    ]
    for tag, name, value in page.attributes:
        assert not name.startswith("on")
        if name in ("src", "href", "srcset", "xlink:href", "action", "data"):
            assert value.startswith(("#", "data:image/png;base64,")), (tag, name, value)
        if "url(" in value and name != "content":
            assert value == "url(#hatch)"


def policy_of(text):
    page = Page(text)
    (policy,) = [v for _, name, v in page.attributes if name == "content" and "src" in v]
    return dict(rule.strip().split(" ", 1) for rule in policy.split(";"))


def test_the_browser_is_told_to_refuse_every_request_and_every_script_but_the_pages_own():
    text = report_html(one_origin())
    (script,) = re.findall(r'<script type="module">(.*?)</script>', text, re.DOTALL)
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy_of(text) == {
        "default-src": "'none'",
        "script-src": f"'sha256-{digest}'",
        "img-src": "data:",
        "style-src": "'unsafe-inline'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def test_where_nothing_was_compared_no_script_is_written():
    cmp = one_origin()
    empty = dataclasses.replace(cmp, ranks=(), roots=())
    text = report_html(empty)
    assert "<script" not in text and "script-src" not in policy_of(text)


def without(text, *kinds):
    """Take elements of some kinds out, with what is in them."""
    return re.sub(rf"(?s)<({'|'.join(kinds)})\b.*?</\1>", "", text)


def test_styles_name_no_address():
    assert not re.search(r"url\((?!#)|@import|https?:", without(report_html(one_origin()), "script"))


def test_markup_from_a_trace_stays_text():
    text = report_html(evil_comparison())
    page = Page(text)
    assert page.tags.count("script") == 2 and "img" not in page.tags
    assert page.text.count("<script>boom()</script>") >= 6  # labels, op, scope, metric, recipe, problem
    assert "\x1b" not in text and r"\x1b[31m" in page.text


def test_pictures_and_tables_have_words_for_those_who_do_not_see_them():
    a, b = story("a", {0: ["y"]}), story("b", {0: ["z"]})
    page = Page(report_html(compare(with_metric(a, [1.0, 2.0]), with_metric(b, [1.0, 2.5]))))
    assert ("html", "lang", "en") in page.attributes
    named = [value for tag, name, value in page.attributes if tag == "svg" and name == "aria-label"]
    assert len(named) == page.attributes.count(("svg", "role", "img")) == 4
    assert all(named)
    assert page.tags.count("th") == sum(name == "scope" for _, name, _ in page.attributes)


def test_metrics_are_drawn_with_the_first_step_whose_bits_differ():
    a, b = story("a", {0: ["y"]}), story("b", {0: ["y"]})
    values = [1.0, 0.0, math.nan, 4.0], [1.0, -0.0, math.nan]
    page = report_html(compare(with_metric(a, values[0]), with_metric(b, values[1])))
    assert "bits first differ at step 2, then in 1 of 3 common steps" in page
    assert page.count('class="mark"') == 1  # |a - b| is zero throughout, so it has no chart
    assert page.count('class="middle odd"') == 2


def logged(label, **metrics):
    run = story(label, {0: ["y"]})
    frames = [with_metric(run, values, name).metrics for name, values in metrics.items()]
    return dataclasses.replace(run, metrics=pl.concat(frames))


def test_measurements_of_the_machine_stand_last_and_prove_nothing():
    timing = "elapsed time per iteration (ms)"
    runs = [logged(label, **{timing: [1.0 + n, 1.0], "loss": [1.0, 2.0]}) for n, label in enumerate("ab")]
    text = Page(sections.metrics(compare(*runs))).text
    assert text.index("loss: rank 0: the same bits") < text.index(f"{timing}: a measurement of the machine")
    assert "bits first differ" not in text and "by what its numbers prove" in text


def test_a_match_of_calls_says_where_metrics_differ():
    runs = [logged(label, loss=[1.0, 2.0 + n], norm=[3.0]) for n, label in enumerate("ab")]
    said = "This is about calls alone. The step metrics differ: loss from step"
    cmp = compare(*runs)
    assert cmp.verdict == "match" and said in sections.banner(cmp) and said in verdict_html(cmp)
    assert "about calls alone" not in sections.banner(compare(runs[0], runs[0]))


def test_a_metric_of_one_run_is_not_called_the_same():
    runs = [logged("a", loss=[1.0], norm=[1.0]), logged("b", loss=[1.0])]
    text = Page(sections.metrics(compare(*runs))).text
    assert "normrank 0: no step has a number in both runs; b lacks 1 step" in text


def test_only_what_differs_between_recipes_is_listed_and_versions_always():
    recipe = {"state": {"threads": 4, "versions": {"torch": "2.13.0"}}}
    other = {"state": {"threads": 8, "versions": {"torch": "2.13.0"}}}
    run = story("run", {0: ["y"]})
    text = Page(report_html(compare(with_recipe(run, recipe), with_recipe(run, other)))).text
    assert "torch.threadsbreaks the comparison48" in text and "version.torch2.13.0" in text
    same = Page(report_html(compare(with_recipe(run, recipe), with_recipe(run, recipe)))).text
    assert "manifests and recipes do not differ." in same and "torch.threads" not in same


def test_a_recipe_that_the_ranks_of_a_run_do_not_share_names_the_ranks():
    run = story("a", {0: ["y"], 1: ["y"]})
    odd = dataclasses.replace(run.ranks[1].header, recipe={"threads": 8})
    even = dataclasses.replace(run.ranks[0].header, recipe={"threads": 4})
    ranks = tuple(dataclasses.replace(t, header=h) for t, h in zip(run.ranks, (even, odd), strict=True))
    cmp = compare(dataclasses.replace(run, ranks=ranks), with_recipe(run, {"threads": 4}))
    text = Page(report_html(cmp)).text
    assert "4 (rank 0); 8 (rank 1)" in text


def test_the_report_is_one_small_file(tmp_path):
    path = report(race(), tmp_path / "deep" / "report.html")
    assert path.stat().st_size < 300_000
    assert [each.name for each in path.parent.iterdir()] == ["report.html"]


def test_a_report_that_cannot_be_written_leaves_what_was_there(tmp_path):
    (tmp_path / "report.html").mkdir()
    with pytest.raises(InputError, match="Hint:") as raised:
        report(one_origin(), tmp_path / "report.html")
    assert "Errno" not in str(raised.value) and "partial" not in str(raised.value)
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]


def test_a_report_on_2432_ranks_stays_below_a_megabyte():
    page = report_html(large_comparison(num_steps=2))
    assert len(page.encode()) < 1_000_000
    assert "To keep the file small" not in page  # every cell of every step is in it


def test_maps_without_any_order_are_pooled_until_the_report_is_small(monkeypatch):
    monkeypatch.setattr(document, "_LEAST_MAP_BYTES", 100)
    monkeypatch.setattr(document, "MAX_BYTES", 0)
    page = report_html(race())
    assert "step 1: " in page and "calls are one cell" in page
    assert "calls are one cell" not in report_html(one_origin())


def full_disk(path, content):
    with path.open("wb") as file:
        file.write(bytes(content)[:100])
    raise OSError(28, "No space left on device")


def interrupted(path, content):
    with path.open("wb") as file:
        file.write(bytes(content)[:100])
    raise KeyboardInterrupt


@pytest.mark.parametrize(("fails", "error"), [(full_disk, InputError), (interrupted, KeyboardInterrupt)])
@pytest.mark.parametrize("was_there", [True, False])
def test_a_report_that_cannot_be_finished_leaves_nothing_and_what_was_there(
    tmp_path, monkeypatch, fails, error, was_there
):
    target = tmp_path / "report.html"
    if was_there:
        target.write_text("before")
    cmp = one_origin()
    monkeypatch.setattr(Path, "write_bytes", fails)
    with pytest.raises(error):
        report(cmp, target)
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == (
        {"report.html": "before"} if was_there else {}
    )


def test_notes_and_hypotheses_are_shown_with_what_became_of_them(tmp_path):
    cmp = one_origin().with_note("from the command line")
    journal = Journal(tmp_path / "notes.json")
    journal.add_note("look <here>", rank=1, site=cmp.first["site"][0])
    for text in ("the kernel", "the data", "a flipped bit"):
        journal.add_hypothesis(text)
    journal.judge(0, "confirmed", "replayed: 41 of 1,000 differ")
    journal.judge(1, "falsified", "same digests")
    text = Page(report_html(cmp, journal)).text
    for part in (
        "from the command line",
        "look <here>",
        "replayed: 41 of 1,000 differ",
        "? open",
        "✗ falsified",
    ):
        assert part in text
    assert "✓ confirmed the kernel" in text
    assert "Notes and hypotheses" not in Page(report_html(one_origin())).text


def test_every_state_has_a_next_step():
    cmp, run = one_origin(), story("a", {0: ["y"]})
    accepted = tuple(dataclasses.replace(root, accepted="known") for root in cmp.roots)
    for each, expected in (
        (cmp, f"for kernel, aten.mm.default: {cmp.roots[0].next}"),
        (dataclasses.replace(cmp, roots=cmp.roots * 3), "aten.mm.default and 2 more"),
        (dataclasses.replace(cmp, roots=accepted), "Every finding was accepted"),
        (dataclasses.replace(cmp, roots=()), "cmp.sites(step=2, rank=1)"),
        (dataclasses.replace(cmp, problems=(("a", "cut"),)), "make whole what is listed under Problems"),
        (compare(run, run), "record what the coverage below leaves out"),
    ):
        assert expected in Page(report_html(each)).text


def test_the_picture_holds_one_pixel_per_cell():
    content = png(np.array([[0, 1], [ORIGIN, 1]], np.uint8))
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    start = content.index(b"IDAT") + 4
    size = int.from_bytes(content[start - 8 : start - 4], "big")
    assert zlib.decompress(content[start : start + size]) == bytes([0, 0, 1, 0, ORIGIN, 1])
    assert content[content.index(b"tRNS") + 4] == 0  # nothing is painted over what was not recorded
    assert 1 + Verdict.ORIGIN == ORIGIN


def test_notes_that_are_kept_beside_the_comparison_are_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cmp = one_origin()
    assert "Notes and hypotheses" not in Page(report_html(cmp)).text
    Journal(journal_path(cmp), (cmp.a.label, cmp.b.label)).add_note("kept here")
    assert "kept here" in Page(report_html(cmp)).text
    other = Journal(tmp_path / "other.json")
    assert "kept here" not in Page(report_html(cmp, other)).text
