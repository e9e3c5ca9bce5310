"""What counts as an absolute path, wherever it stands, and what does not."""

import pytest

from detlab.redaction import last_part, replace_paths, whole_word


def marked(text):
    return replace_paths(text, lambda path: f"<{path}>")


@pytest.mark.parametrize(
    "path",
    [
        "/home/u12/runs/monday",
        "~/runs/monday",
        "~u12/runs",
        "file:///scratch/x",
        r"C:\Users\u12\x",
        r"\\server\share\x",
        "/data/v1.2/@old/~tmp",
        "%2Fhome%2Fu12%2Fx.py",
    ],
)
@pytest.mark.parametrize("around", ["{}", "'{}'", "in ({})", "a={}", "read {}, then"])
def test_an_absolute_path_is_found_whole(path, around):
    assert marked(around.format(path)) == around.format(f"<{path}>")


@pytest.mark.parametrize(
    "text",
    [
        "1/0/backward//aten.mm.default#0",
        "-1/0/data/embedding/load#3",
        "3/4 of 5",
        "a/b/c.py",
        "./a/b and ../a/b",
        "~/a",
        "and/or",
        "</p></div>",
        "50%2",
    ],
)
def test_a_site_a_fraction_or_a_relative_path_is_none(text):
    assert marked(text) == text


def test_the_name_of_a_file_stays_and_that_of_a_user_does_not():
    assert last_part("/data/runs/monday/") == "monday"
    assert last_part(r"C:\Users\u12\x.py") == "x.py"
    assert last_part("%2Fdata%2Fx.py") == "x.py"
    assert last_part("/home/u12") == "" and last_part("/Users/u12/") == "" and last_part("~u12") == ""


def test_a_name_is_found_in_either_case_but_not_inside_a_word():
    assert whole_word("n1").sub("-", "n1 N1 an1 n12 (n1)") == "- - an1 n12 (-)"
