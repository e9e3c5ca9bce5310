"""Claims about the text of a check: what decides it is read first."""

from detlab.checks.result import CheckResult, NotChecked, Problem, Verified, findings_frame

ERROR = {"code": "X1", "severity": "error", "found": "off", "expected": "on"}
NOTE = {"code": "X2", "severity": "note", "found": "unset", "expected": "a number"}


def text(*rows: dict[str, str]) -> str:
    return repr(
        CheckResult(
            "recipe",
            ("a",),
            findings_frame(rows),
            (Verified("w", "holds"),),
            tuple(NotChecked(f"rule {number}", "not said") for number in range(30)),
            (Problem("a", "cut"),),
        )
    )


def test_what_makes_a_check_invalid_is_read_before_everything_else() -> None:
    said = text(NOTE)
    assert said.startswith("INVALID")
    assert said.index("problem: a: cut") < said.index("note X2") < said.index("verified: w")


def test_a_problem_beside_an_error_follows_the_error_and_precedes_what_holds() -> None:
    said = text(ERROR)
    assert said.startswith("FAIL")
    assert said.index("error X1") < said.index("problem: a: cut") < said.index("verified: w")
    assert said.count("problem:") == 1
