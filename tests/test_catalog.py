"""The catalogue: every op exists, every fact has a source, and the page is the table."""

import re
from pathlib import Path

import pytest
import torch

from detlab.catalog import CATALOG, known
from detlab.catalog.page import page
from detlab.cli import build_parser
from detlab.kernel import fixed

DOCS = Path(__file__).parent.parent / "docs"
ENTRIES = pytest.mark.parametrize("entry", CATALOG, ids=lambda entry: entry.anchor)


def test_the_page_is_made_from_the_table():
    """If it fails: ``python -m detlab.catalog.page > docs/op_catalog.md``."""
    assert (DOCS / "op_catalog.md").read_text("utf-8") == page()


def test_each_anchor_stands_once_and_is_a_heading_that_links_reach():
    anchors = [entry.anchor for entry in CATALOG]
    assert len(set(anchors)) == len(anchors)
    assert all(re.fullmatch("[a-z0-9-]+", anchor) for anchor in anchors)
    assert re.findall(r"^### (.+)$", page(), re.MULTILINE) == anchors


@ENTRIES
def test_an_entry_has_sources_that_are_addresses_or_files_of_the_repository(entry):
    assert entry.sources
    for source in entry.sources:
        assert source.url.startswith("https://") or (DOCS / source.url).is_file(), source


@ENTRIES
def test_the_ops_of_an_entry_exist(entry):
    for op in entry.ops:
        library, _, name = op.partition(".")
        if library == "aten":
            assert torch._C._jit_get_schemas_for_operator(f"aten::{name}"), op


def test_an_op_has_one_entry():
    ops = [op for entry in CATALOG for op in entry.ops]
    assert len(set(ops)) == len(ops)


@ENTRIES
def test_the_command_of_an_entry_is_one_of_detlab(entry):
    program, *words = entry.check.split()
    assert program == "detlab"
    assert build_parser().parse_args(words).command == words[0]


@ENTRIES
def test_no_sentence_of_an_entry_ends_twice(entry):
    assert not any(text.endswith(".") for text in (entry.calls, entry.cause, entry.fix))


def test_the_alternatives_that_an_entry_names_exist():
    named = set(re.findall(r"detlab\.kernel\.fixed\.(\w+)", page()))
    assert named
    assert named <= set(fixed.__all__)


@pytest.mark.parametrize(
    ("op", "anchor"),
    [
        ("aten.index_put_.default", "index-put"),
        ("aten::mm", "gemm"),
        ("c10d.allreduce_.default", "all-reduce"),
        ("all_reduce", "all-reduce"),
    ],
)
def test_an_op_is_known_by_its_name_in_a_trace(op, anchor):
    assert known(op).anchor == anchor


@pytest.mark.parametrize("op", ["aten.add.Tensor", "c10d.scatter_.default", "scatter_", "moe.topk", ""])
def test_an_op_of_another_library_or_without_an_entry_is_not_known(op):
    assert known(op) is None
