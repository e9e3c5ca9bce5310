"""Paths in the report: drawn from the origin to each receiver, named, escaped, and never too many."""

import dataclasses
import re
from itertools import pairwise

import pytest

from detlab.comparison import Comparison, compare
from detlab.schema import Flag, Kind, Phase
from detlab.testing import Call, make_run
from detlab.views.document import report_html
from detlab.views.path_svg import paths_html, says
from detlab.views.routes import MAX_RECEIVERS, MAX_ROUTES, MAX_STOPS, Routes, Stop, shorten_route
from tests.views.stories import one_origin
from tests.views.test_report import EVIL, Page

PUT = "aten.index_put.default"
ALL_REDUCE = "c10d.allreduce_.default"
ADAMW = "aten._fused_adamw_.default"


def reducing(label, word, num_ranks=2, scope="embedding", group="dp", num_between=0):
    """Each rank makes a gradient, reduces it and gives it to the optimizer; on rank 0 it is ``word``."""
    grads = [word if rank == 0 else "g" for rank in range(num_ranks)]
    total = "sum of " + word
    calls = {rank: _calls(grad, total, scope, group, num_between) for rank, grad in enumerate(grads)}
    return make_run(calls, groups={group: list(range(num_ranks))}, label=label)


def _calls(grad, total, scope, group, num_between):
    names = [grad, *(f"{grad} {number}" for number in range(num_between))]
    return [
        Call(PUT, scope, ["x"], [grad], phase=Phase.BACKWARD),
        *(
            Call("aten.mul.Tensor", scope, [before], [after], phase=Phase.BACKWARD)
            for before, after in pairwise(names)
        ),
        Call(
            ALL_REDUCE, "", [names[-1]], [total], kind=Kind.COLLECTIVE, group=group, phase=Phase.GRAD_REDUCE
        ),
        Call(ADAMW, "", [total], ["p of " + total], phase=Phase.OPTIMIZER),
    ]


def reduced(**options):
    """Compare two runs in which rank 0 alone makes another gradient."""
    return compare(reducing("a", "g", **options), reducing("b", "h", **options))


def drawn(cmp, number=0):
    """The page of the paths of one finding."""
    finding = cmp.roots[number]
    return Page(paths_html(finding, Routes(cmp).of(finding)))


def summaries(cmp):
    return re.findall(r"<summary>(To rank .*?)</summary>", report_html(cmp))


def test_the_report_draws_the_path_through_the_named_all_reduce():
    cmp = reduced()
    assert summaries(cmp) == [
        f"To rank 1: {PUT} on rank 0, through {ALL_REDUCE} in dp from rank 0 to rank 1 (3 calls)"
    ]
    text = drawn(cmp).text
    for part in ("rank 0", "rank 1", f"{ALL_REDUCE} in dp", "to rank 1", "from rank 0; first differing call"):
        assert part in text


def test_the_way_between_ranks_is_slanted_and_the_origin_is_the_diamond_on_top():
    page = paths_html(reduced().roots[0], Routes(reduced()).of(reduced().roots[0]))
    ((x1, y1, x2, y2),) = re.findall(
        r'<line x1="([\d.]+)" y1="([\d.]+)" x2="([\d.]+)" y2="([\d.]+)" class="way across">', page
    )
    assert float(x1) < float(x2) and float(y1) < float(y2)
    assert page.count('href="#diamond"') == 1
    heights = [float(y) for y in re.findall(r'<circle cx="[\d.]+" cy="([\d.]+)"', page)]
    assert float(re.findall(r'#diamond" x="[\d.]+" y="([\d.]+)"', page)[0]) < min(heights)


def test_markup_in_the_names_of_calls_and_groups_stays_text():
    cmp = reduced(scope="<script>boom()</script>", group=EVIL)
    page = drawn(cmp)
    assert not {"script", "img"} & set(page.tags)
    assert "<script>boom()</script>" in page.text
    assert "<script>boom" not in report_html(cmp) and "\x1b" not in report_html(cmp)


def test_a_finding_without_receivers_draws_nothing_and_says_nothing():
    cmp = one_origin()
    assert cmp.roots[0].receivers == ()
    assert paths_html(cmp.roots[0], Routes(cmp).of(cmp.roots[0])) == ""
    assert "How it reached" not in report_html(cmp)


def test_of_many_ranks_a_few_are_followed_and_the_others_are_counted(monkeypatch):
    cmp, asked = reduced(num_ranks=65), []
    follow = Comparison.path
    monkeypatch.setattr(Comparison, "path", lambda self, **call: asked.append(call) or follow(self, **call))
    assert len(summaries(cmp)) == len(asked) == MAX_RECEIVERS
    assert f"The paths to {64 - MAX_RECEIVERS} more receiving ranks are not drawn." in report_html(cmp)


def test_many_findings_share_the_room():
    cmp = reduced(num_ranks=20)
    many = [cmp.roots[0]] * MAX_ROUTES
    shared = Routes(_with_roots(cmp, many))
    assert [len(shared.of(finding).routes) for finding in many] == [1] * MAX_ROUTES
    assert shared.of(many[0]).num_more == 18


def _with_roots(cmp, roots):
    return dataclasses.replace(cmp, roots=tuple(roots))


def test_a_finding_that_is_not_on_the_path_of_a_receiver_says_so_and_draws_none():
    cmp = reduced()
    other = dataclasses.replace(cmp.roots[0], sites=("1/0/backward/elsewhere/aten.mm.default#0",))
    found = Routes(_with_roots(cmp, [other])).of(other)
    assert found.routes == () and found.unreached == (1,)
    text = Page(paths_html(other, found)).text
    assert "No recorded path was found from here to the first differing call of rank 1." in text
    assert "slanted" not in text


def test_calls_amid_many_on_one_rank_are_counted_not_drawn():
    text = drawn(reduced(num_between=40)).text
    assert "… 38 calls …" in text and "(43 calls)" in text
    assert text.count("aten.mul.Tensorembedding") == 2


def test_a_few_calls_in_a_row_are_all_drawn():
    assert "calls …" not in drawn(reduced(num_between=4)).text


def test_a_message_is_drawn_from_its_send_to_its_receive():
    def run(label, word):
        message = {"kind": Kind.COLLECTIVE, "group": "pp", "attributes": {"src": "0", "dst": "1", "tag": "0"}}
        made = Call(PUT, "emb", ["x"], [word])
        send, receive = (
            Call("c10d.send.default", "", [word], **message),
            Call("c10d.recv_.default", "", [], [word], **message),
        )
        return make_run({0: [made, send], 1: [receive]}, groups={"pp": [0, 1]}, label=label)

    cmp = compare(run("a", "g"), run("b", "h"))
    assert summaries(cmp) == [
        f"To rank 1: {PUT} on rank 0, through c10d.recv_.default in pp from rank 0 to rank 1 (3 calls)"
    ]
    assert "c10d.send.default in ppto rank 1" in drawn(cmp).text


def stop(rank, group="dp", **more):
    place = {"coordinate": f"tp0 dp{rank}", "step": 1, "phase": "forward", "scope": "", "op": ALL_REDUCE}
    rest = {"verdict": "receiver", "site": f"1/0/forward//{ALL_REDUCE}#0", "via": "", "aside": ""}
    return Stop(rank=rank, group=group, **{**place, **rest, **more})


def test_the_middle_of_a_route_over_hundreds_of_ranks_is_left_out_and_every_call_is_counted():
    route = tuple(stop(rank) for rank in range(300))
    short = shorten_route(route)
    assert len(short) == MAX_STOPS and (short[0].rank, short[-1].rank) == (0, 299)
    assert len(short) + sum(each.skipped for each in short) == 300
    assert "and 295 more (300 calls)" in says(route)


def test_what_was_set_aside_stands_in_the_drawing_and_is_marked():
    cmp = _hashed_too_early()
    page = drawn(cmp)
    assert "set aside, not waited for: hashed before it was complete" in page.text
    assert "a dashed ring is a call that is set aside" in page.text
    assert ("circle", "class", "box aside") in page.attributes
    assert "set aside" not in drawn(reduced()).text


def _hashed_too_early():
    """Compare runs whose all_reduce was hashed before it was complete; the optimizer reads what it gave."""

    def run(label, grad, total):
        flags = Flag.NOT_WAITED_FOR
        more = {"kind": Kind.COLLECTIVE, "group": "dp", "phase": Phase.GRAD_REDUCE, "flags": flags}
        places = {grad: ("buffer", 0, 8), "g": ("buffer", 0, 8), total: ("buffer", 0, 8)}
        calls = {
            rank: [
                Call(PUT, "emb", ["x"], [word], phase=Phase.BACKWARD, places=places),
                Call(ALL_REDUCE, "", [word], [word], places=places, **more),
                Call(ADAMW, "", [total], ["p" + total], phase=Phase.OPTIMIZER, places=places),
            ]
            for rank, word in ((0, grad), (1, "g"))
        }
        return make_run(calls, groups={"dp": [0, 1]}, label=label)

    return compare(run("a", "g", "s"), run("b", "h", "S"))


@pytest.mark.parametrize(("accepted", "num_open"), [("", 2), ("a known race", 0)])
def test_the_first_paths_are_unfolded_unless_the_finding_is_accepted(accepted, num_open):
    cmp = reduced(num_ranks=5)
    finding = dataclasses.replace(cmp.roots[0], accepted=accepted)
    page = drawn(_with_roots(cmp, [finding]))
    assert page.tags.count("details") == 4
    assert page.attributes.count(("details", "open", "")) == num_open


def test_each_path_has_words_for_those_who_do_not_see_it():
    page = drawn(reduced(num_ranks=5))
    words = [value for tag, name, value in page.attributes if (tag, name) == ("svg", "aria-label")]
    assert len(words) == page.tags.count("svg") == 4
    assert all(ALL_REDUCE in each for each in words)
