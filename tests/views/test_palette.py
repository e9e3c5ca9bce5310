"""The palette keeps verdicts apart for every kind of colour vision, and text readable."""

from itertools import combinations

import numpy as np
import pytest

from detlab.schema import Verdict
from detlab.views.palette import DARK, LIGHT, NEUTRAL, VERDICT_COLOURS, ink_on

# Machado, Oliveira, Fernandes 2009, severity 1.0, for linear RGB.
VISION = {
    "normal": np.eye(3),
    "protan": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deutan": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritan": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
TO_XYZ = [
    [0.4124564, 0.3575761, 0.1804375],
    [0.2126729, 0.7151522, 0.0721750],
    [0.0193339, 0.1191920, 0.9503041],
]
MIN_DISTANCE = 18.0  # CIE76; neighbours below about 10 are easily mixed up in small cells


def channels(text):
    return np.array([int(text[at : at + 2], 16) for at in (1, 3, 5)]) / 255


def on_page(colour, page):
    *rgb, alpha = colour
    return np.array(rgb) / 255 * (alpha / 255) + channels(page) * (1 - alpha / 255)


def linear(rgb):
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def lab(rgb, vision):
    seen = np.clip(np.array(VISION[vision]) @ linear(rgb), 0, 1)
    x, y, z = np.array(TO_XYZ) @ seen / (0.95047, 1.0, 1.08883)
    fx, fy, fz = (np.cbrt(v) if v > 216 / 24389 else (24389 / 27 * v + 16) / 116 for v in (x, y, z))
    return np.array([116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)])


def contrast(one, other):
    light, dark = sorted((float(linear(c) @ (0.2126, 0.7152, 0.0722)) for c in (one, other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_any_two_verdicts_are_told_apart(theme, vision):
    seen = {verdict: lab(on_page(colour, theme.page), vision) for verdict, colour in VERDICT_COLOURS.items()}
    apart = {(a, b): np.linalg.norm(seen[a] - seen[b]) for a, b in combinations(Verdict, 2)}
    assert min(apart.values()) >= MIN_DISTANCE, min(apart, key=apart.get)


def test_the_check_would_see_two_colours_that_deutans_mix_up():
    orange, green = channels("#d95f02"), channels("#7f7f00")
    assert np.linalg.norm(lab(orange, "normal") - lab(green, "normal")) > MIN_DISTANCE
    assert np.linalg.norm(lab(orange, "deutan") - lab(green, "deutan")) < MIN_DISTANCE


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_text_and_curves_are_readable_on_every_ground(theme):
    for ground in (theme.page, theme.panel):
        for ink in (theme.text, theme.muted, theme.curve_a, theme.curve_b):
            assert contrast(channels(ink), channels(ground)) >= 4.5


@pytest.mark.parametrize("verdict", [v for v in Verdict if VERDICT_COLOURS[v][3] == 255])
def test_the_sign_on_a_verdict_is_readable(verdict):
    ink = {"#000": "#000000", "#fff": "#ffffff"}[ink_on(VERDICT_COLOURS[verdict])]
    assert contrast(channels(ink), on_page(VERDICT_COLOURS[verdict], "#000000")) >= 4.5


def test_the_text_of_figures_shows_on_light_and_dark_pages():
    for theme in (LIGHT, DARK):
        assert contrast(channels(NEUTRAL), channels(theme.page)) >= 3.9


def test_matches_recede_and_origins_stand_out():
    for theme in (LIGHT, DARK):
        strength = {
            v: contrast(on_page(c, theme.page), channels(theme.page)) for v, c in VERDICT_COLOURS.items()
        }
        assert min(strength, key=strength.get) == Verdict.MATCH
        assert strength[Verdict.ORIGIN] > 3
