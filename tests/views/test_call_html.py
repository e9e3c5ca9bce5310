"""One call in both runs as HTML: the words of the text form, side by side, and every text escaped."""

from html import escape
from html.parser import HTMLParser

import polars as pl
import pytest
from hypothesis import given

from detlab import compare
from detlab.comparison.call import call_details
from detlab.comparison.call.part_words import (
    pair_words,
    peers_words,
    tensor_name,
)
from detlab.comparison.call.words import (
    place,
    sentences,
)
from detlab.testing import Call, make_run
from detlab.views.call_html import call_html, verdict_badge
from tests.comparison.call_stories import STORIES, op, run, story
from tests.comparison.stories import MM, mm, site
from tests.comparison.test_properties import pairs, run_of

VOID = {"img", "br", "use", "input"}


class Parsed(HTMLParser):
    """The elements of a page in order, with attributes and text; unbalanced tags are an error."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.text, self._open = [], "", []
        self.feed(text)
        self.close()
        assert not self._open, f"{self._open} are not closed"

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.text += data

    def having(self, tag, name=None):
        return [found for kind, found in self.elements if kind == tag and (name is None or name in found)]

    def classed(self, name):
        return [found for _, found in self.elements if name in found.get("class", "").split()]


@pytest.mark.parametrize("links", [False, True])
@pytest.mark.parametrize("name", STORIES)
def test_the_html_has_the_words_of_the_text_form(name, links):
    details = story(name)
    text = Parsed(call_html(details, links=links)).text
    for words in (place(details), *sentences(details), peers_words(details.peers), details.next):
        assert words.lower() in text.lower()
    for pair in details.tensors:
        assert tensor_name(pair) in text
        assert pair_words(pair) in text
    assert details.call.verdict in text


def test_nothing_is_a_button_unless_calls_can_be_opened():
    details = story("receiver from a member")
    assert "<button" not in call_html(details)
    assert "<button" in call_html(details, links=True)


def test_every_call_that_is_named_is_a_button_that_says_which():
    cmp = compare(
        *(make_run({n: [mm("x", "h"), op(["h"], [w]), mm(w, "z" + w)] for n in (0, 1)}) for w in "oO")
    )
    details = call_details(cmp, 0, 1)
    buttons = Parsed(call_html(details, cmp.path(rank=0, site=details.call.site), links=True)).having(
        "button"
    )
    assert all(each["type"] == "button" for each in buttons)
    around = [*details.before, *details.after, *(link.call for link in details.links.makers)]
    named = {(each["data-rank"], each["data-site"]) for each in buttons}
    assert named == {("0", each.site) for each in around} | {("1", details.call.site)}
    assert {each["data-position"] for each in buttons if "data-position" in each} == {"0", "2"}


def test_what_is_equal_is_grey_and_what_differs_is_strong():
    page = Parsed(call_html(story("receiver")))
    assert len(page.classed("odd")) == 2 + 4  # two statements, two digests in each of two runs
    assert not Parsed(call_html(story("match"))).classed("odd")


def test_the_same_on_a_screen_looks_otherwise_than_the_same_exactly():
    exact, screen = (Parsed(call_html(story(name))) for name in ("match", "match screen"))
    assert (len(exact.classed("exact")), len(exact.classed("screen"))) == (2, 0)
    assert (len(screen.classed("exact")), len(screen.classed("screen"))) == (0, 2)


def test_a_digest_is_short_and_whole_on_demand():
    digests = [each["title"] for each in Parsed(call_html(story("origin"))).classed("digest")]
    assert [len(each) for each in digests] == [16] * 4


def test_strides_are_shown_only_where_they_differ():
    def shown(strides):
        calls = [op(shape=(2, 3)), op(shape=(2, 3), strides=strides)]
        return call_html(call_details(compare(*(run([call]) for call in calls)), 0, 0))

    assert "stride (3, 1)" in shown({"i": (1, 2)})
    assert "stride (" not in shown({})


def test_a_list_of_hundreds_of_tensors_is_bounded_and_counted():
    def adamw(odd):
        words = [f"g{n}{'!' if n in odd else ''}" for n in range(200)]
        return run([Call("aten._fused_adamw_.default", "", [*PARAMETERS, *words], PARAMETERS)])

    details = call_details(compare(adamw(()), adamw({7, 190})), 0, 0)
    page = Parsed(call_html(details))
    listed = [row for row in page.text.split("(lane") if row.startswith((" 7)", " 190)"))]
    assert len(listed) == 6  # two parameters, two gradients, two results
    assert "… and 594 more." in page.text


PARAMETERS = [f"p{n}" for n in range(200)]


def path_of(length):
    row = {
        "hop": 0, "from_hop": None, "via": "input 0", "rank": 0, "op": MM, "scope": "lin",
        "verdict": "receiver", "site": site("lin", MM), "set_aside": True, "step": 1,
    }  # fmt: skip
    return pl.DataFrame([row | {"hop": n, "from_hop": n - 1 if n else None} for n in range(length)])


def test_a_call_on_the_path_says_its_step_where_that_is_another_one():
    path = path_of(3).with_columns(step=pl.Series([1, 1, 0]))
    text = Parsed(call_html(story("receiver"), path)).text
    assert text.count("rank 0, step 0") == 1 and "step 1 " not in text.partition("How the difference")[2]


def test_no_path_of_a_call_that_matches_or_is_the_origin_looks_unexplained():
    assert "How the difference" not in call_html(story("match"), path_of(1))
    assert "It begins here." in call_html(story("origin"), path_of(1))


def test_the_path_is_listed_when_it_is_given_and_is_bounded():
    details = story("receiver")
    assert "How the difference got here" not in call_html(details)
    text = Parsed(call_html(details, path_of(50))).text
    assert "… and 30 more." in text
    assert "set aside" in text
    assert "No recorded call before it explains it." in call_html(details, path_of(1))
    assert "No recorded call before it explains it." not in call_html(details, path_of(2))


@pytest.mark.parametrize(
    "name",
    [
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(2)>',
        "\x1b[2J\x1b]0;owned\x07\u202egnp.exe",
        "' onmouseover='alert(3)",
        "x" * 5_000,
    ],
)
def test_any_text_from_files_stays_text(name):
    call = Call(name, name, ["x"], ["o"], group=name, attributes={name: name}, algorithm=name, dtype=name)
    other = Call(name, name, ["x"], ["O"], group=name, attributes={name: "b"}, algorithm=name, dtype=name)
    runs = [make_run({0: [mm("q", "r"), each], 1: [call]}, label=name) for each in (call, other)]
    for each in runs:
        metas = each.ranks[0].names.metas
        metas[:] = [meta._replace(call_site=name) for meta in metas]
    cmp = compare(*runs)
    for position in (0, 1):
        details = call_details(cmp, 0, position)
        written = call_html(details, cmp.path(rank=0, site=details.call.site), links=True)
        page = Parsed(written)
        assert {tag for tag, _ in page.elements} <= TAGS
        assert not any(key.startswith("on") for _, found in page.elements for key in found)
        assert all(character.isprintable() for character in written)
        assert len(written) < 150_000


TAGS = {
    "div", "p", "span", "code", "ul", "li", "table", "caption", "thead", "tbody", "tr", "th", "td", "h4", "b",
    "button", "details", "summary",
}  # fmt: skip


def test_a_verdict_has_its_sign_and_its_word_beside_its_colour():
    page = Parsed(verdict_badge("origin"))
    assert page.text.split() == ["◆", "origin"]
    assert page.classed("sign")[0]["aria-hidden"] == "true"


@given(pairs())
def test_the_details_of_any_call_are_whole_html(pair):
    cmp = compare(*map(run_of, pair))
    for number, rank in enumerate(cmp.ranks):
        for position in range(len(rank.verdicts)):
            details = call_details(cmp, number, position)
            assert Parsed(call_html(details, links=True)).text
            assert escape(details.next) in call_html(details)
