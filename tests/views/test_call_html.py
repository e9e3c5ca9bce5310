"""One call in both runs as HTML."""

from detlab import compare
from detlab.testing import Call, make_run
from detlab.views.call_html import call_html


def test_a_script_tag_as_an_op_stays_text():
    evil = "<script>alert(1)</script>"
    one, other = (make_run({0: [Call(evil, evil, ["x"], [word])]}) for word in "oO")
    cmp = compare(one, other)
    written = call_html(cmp.call(rank=0, site=cmp.first["site"][0]), links=True)
    assert "<script" not in written
    assert "&lt;script&gt;" in written
