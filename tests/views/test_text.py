"""Text from files stays text, wherever it is shown."""

from hypothesis import given
from hypothesis import strategies as st

from detlab.views.text import html, label, shorten, visible


def test_markup_becomes_text():
    assert html('<img src=x onerror="boom()">') == "&lt;img src=x onerror=&quot;boom()&quot;&gt;"
    assert label("<b>bold</b>") == "&lt;b&gt;bold&lt;/b&gt;"


def test_a_formula_in_a_figure_stays_text():
    assert "$" not in label(r"$\href{javascript:boom()}{x}$")


def test_terminal_escapes_and_direction_marks_become_visible():
    assert visible("\x1b[31mred") == r"\x1b[31mred"
    assert visible("safe\u202egnp.exe") == r"safe\u202egnp.exe"


@given(st.text())
def test_no_text_keeps_a_character_that_steers_what_stands_beside_it(text):
    shown = html(text)
    assert not set(shown) & set("<>\"'\x1b\r\n\x00\u202e")


@given(st.text(), st.integers(3, 40))
def test_shortened_text_fits_and_keeps_its_end(text, size):
    short = shorten(text, size)
    assert len(short) <= max(size, 1)
    assert short == text or text.endswith(short.split("…")[-1])
