"""The code on the pages runs and gives what stands below it, and the page of verdicts names every noun.

A block marked ``python`` and nothing more is run, in one namespace a page. Where a ``text`` block
follows, that is the value of its last expression. A block marked ``toml title="name"`` is a file in the
working directory.
"""

import ast
import json
import re
import shlex
from importlib.resources import files
from pathlib import Path

import pytest
import torch

from detlab.checks.trace.invariants import page
from detlab.cli import build_parser
from detlab.cli import check as checks
from detlab.comparison.ignored import WHY
from detlab.comparison.reasons import REASONS
from detlab.schema import Evidence, Verdict

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
VERDICTS = (ROOT / "docs" / "verdicts.md").read_text("utf-8")
SCHEMA = json.loads(files("detlab").joinpath("schemas/comparison.json").read_text("utf-8"))

CODE = re.compile(r"^```python\n(.*?)^```$(?:\n\n^```text\n(.*?)\n```$)?", re.DOTALL | re.MULTILINE)
FILE = re.compile(r'^```toml title="([\w.]+)"\n(.*?)^```$', re.DOTALL | re.MULTILINE)
SHELL = re.compile(r"^```bash\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def evaluate(source, namespace):
    """Run one block and give the text of its last expression; None where it ends with none."""
    body = ast.parse(source).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "page", "exec"), namespace)  # noqa: S102 - our own page
    if last is None:
        return None
    return repr(eval(compile(ast.Expression(last.value), "page", "eval"), namespace))  # noqa: S307 - as above


def wrong_answers(page, namespace):
    """Run every block of a page; give what those give whose stated text is another."""
    for name, content in FILE.findall(page):
        Path(name).write_text(content, "utf-8")
    wrong = {}
    for source, stated in CODE.findall(page):
        found = evaluate(source, namespace)
        if stated and found != stated:
            wrong[source] = {"found": found, "stated": stated}
    return wrong


def training():
    """What a reader has: a model, its optimizer, and a loop of a step."""

    def train(model, optimizer):
        model(torch.ones(4, 3)).sum().backward()
        optimizer.step()

    model = torch.nn.Linear(3, 2)
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters()), "train": train}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_code_on_a_page_gives_what_stands_below_it(path, tmp_path, monkeypatch):
    (tmp_path / "sample_traces").symlink_to(ROOT / "sample_traces")
    monkeypatch.chdir(tmp_path)
    assert wrong_answers(path.read_text("utf-8"), training()) == {}


@pytest.mark.parametrize(
    ("page", "is_right"),
    [
        ("```python\nx = 1\nx + 1\n```\n\n```text\n2\n```\n", True),
        ("```python\nx = 1\nx + 1\n```\n\n```text\n3\n```\n", False),
        ("```python\nx = 1\n```\n\n```text\n1\n```\n", False),
        ('```python title="not run"\n1 / 0\n```\n', True),
    ],
)
def test_a_page_that_states_another_answer_is_found(page, is_right):
    assert (wrong_answers(page, {}) == {}) is is_right


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_commands_on_a_page_are_ones_that_detlab_takes(path):
    for line in "".join(SHELL.findall(path.read_text("utf-8"))).splitlines():
        program, *arguments = shlex.split(line, comments=True)
        if program == "detlab":
            build_parser().parse_args(arguments)


def parts(text, mark):
    """Text below each heading of one level, by heading."""
    titled = re.split(rf"^{mark} (.+)\n", text, flags=re.MULTILINE)[1:]
    return dict(zip(titled[::2], titled[1::2], strict=True))


FINDING_CLASSES = SCHEMA["$defs"]["finding"]["properties"]["class"]["enum"]
SHOWN_BY = {"invalid": "different parallel layouts", "observer": "waited for"}
"""What the answer of an example says that does not name what it is an example of."""


@pytest.mark.parametrize(
    ("section", "names"),
    [
        ("The verdict on a comparison", ("match", "diverged", "incomplete", "invalid")),
        ("The verdict on a call", [verdict.name.lower() for verdict in Verdict]),
        ("The class of a finding", FINDING_CLASSES),
        ("What is set aside", WHY),
    ],
)
def test_everything_that_detlab_says_has_an_example_and_nothing_else_has(section, names):
    examples = parts(parts(VERDICTS, "##")[section], "###")
    assert examples.keys() == set(names)
    for name, text in examples.items():
        answers = [stated for _, stated in CODE.findall(text) if stated]
        assert len(answers) == 1, name
        assert SHOWN_BY.get(name, name) in answers[0].lower(), name


def test_every_level_of_evidence_is_explained():
    rows = re.findall(r"^\| `(\w+)` \|", parts(VERDICTS, "##")["What the evidence proves"], re.MULTILINE)
    assert rows == [level.name.lower() for level in reversed(Evidence)]


def test_no_finding_has_a_class_that_the_page_does_not_know():
    assert {reason.finding_class for reason in REASONS.values()} <= set(FINDING_CLASSES)


CHECKS = (ROOT / "docs" / "checks.md").read_text("utf-8")


def test_the_page_of_checks_lists_every_invariant_of_a_trace():
    assert page().strip() in CHECKS


def test_the_commands_of_the_workflow_are_ones_that_detlab_takes():
    commands = re.findall(r"- run: (detlab .*)", CHECKS)
    assert len(commands) == 2
    for command in commands:
        build_parser().parse_args(shlex.split(command)[1:])


def test_every_check_of_the_command_line_stands_on_the_page():
    rows = re.findall(r"^\| `detlab (check \w+|certify)", CHECKS, re.MULTILINE)
    assert set(rows) == {f"check {name}" for name in checks.CHECKS} | {"certify"}
