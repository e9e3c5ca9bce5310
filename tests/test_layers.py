"""The floor plan: who may import whom, held against the code's imports."""

import ast
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "detlab"

LAYER = {
    "errors": 0, "schema": 0, "text": 0,
    "redaction": 0,
    "progress": 1,
    "ops": 1, "catalog": 1, "digest": 1, "store": 1, "run": 1, "captures": 1,
    "readers": 2, "record": 2,
    "comparison": 3, "kernel": 3,
    "checks": 4,
    "views": 5,
    "cli": 6, "widgets": 6,
}  # fmt: skip
BESIDE = {"testing": 4, "samples": 2, "__init__": 6, "__main__": 6}
STRANGERS = [("comparison", "kernel"), ("kernel", "comparison"), ("readers", "record"), ("record", "readers")]

ALLOWED = {
    "errors": set(), "schema": {"numpy"}, "text": set(), "progress": set(),
    "redaction": set(),
    "ops": set(), "catalog": set(), "digest": {"xxhash"}, "store": {"numpy", "pyarrow", "xxhash"},
    "run": set(), "captures": set(),
    "readers": {"numpy", "polars", "pyarrow"},
    "record": {"numpy", "torch", "xxhash", "megatron"},
    "comparison": {"numpy", "polars", "pyarrow", "xxhash"}, "kernel": {"numpy", "torch", "polars", "triton"},
    "checks": {"numpy", "polars"},
    "views": {"numpy", "polars", "plotly"},
    "cli": set(), "samples": set(),
    "widgets": {"numpy", "polars", "ipywidgets", "anywidget", "traitlets"},
    "testing": {"numpy", "polars", "xxhash", "torch", "pytest"}, "__init__": set(), "__main__": set(),
}  # fmt: skip
INSIDE_FUNCTIONS = {
    "progress": {"tqdm", "IPython"}, "digest": {"torch"}, "captures": {"torch"},
    "checks": {"torch", "yaml"}, "views": {"IPython"}, "widgets": {"plotly", "IPython"},
}  # fmt: skip


def part_of(path):
    """The room a file belongs to: the package below detlab, or the module's own name."""
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imports(tree, *, inside_functions):
    """Names imported by a module, without those behind TYPE_CHECKING."""
    skipped, nested = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            skipped.update(ast.walk(node))
        if isinstance(node, ast.FunctionDef):
            nested.update(ast.walk(node))
    for node in ast.walk(tree):
        if node in skipped or (node in nested) != inside_functions:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from [node.module] if node.module != "detlab" else [f"detlab.{a.name}" for a in node.names]


def violations(path, source):
    """Every import of a file that the floor plan does not allow, as sentences."""
    part, tree = part_of(path), ast.parse(source)
    layer = {**LAYER, **BESIDE}
    for inside in (False, True):
        allowed = ALLOWED[part] | (INSIDE_FUNCTIONS.get(part, set()) if inside else set())
        for name in imports(tree, inside_functions=inside):
            top, _, rest = name.partition(".")
            other = rest.split(".")[0]
            if top == "detlab" and other and other != part:
                upwards = layer[other] > layer[part] or other in ("testing",)
                if upwards or (part, other) in STRANGERS:
                    yield f"{part} imports {name}"
            elif top != "detlab" and top not in sys.stdlib_module_names and top not in allowed:
                yield f"{part} imports {name}"
            elif top == "megatron" and path.name != "megatron.py":
                yield f"{path.name} imports megatron"
            elif top == "triton" and path.name != "triton_kernels.py":
                yield f"{path.name} imports triton"


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_module_imports_downwards_only(path):
    assert list(violations(path, path.read_text("utf-8"))) == []


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("readers/native.py", "import torch"),
        ("readers/native.py", "import detlab.comparison"),
        ("comparison/pairwise.py", "from detlab.kernel import replay"),
        ("comparison/pairwise.py", "from detlab import testing"),
        ("record/recorder.py", "from megatron import core"),
        ("digest.py", "import torch"),
        ("kernel/restore.py", "import triton"),
        ("views/heatmap.py", "import ipywidgets"),
    ],
)
def test_the_floor_plan_can_fail(place, line):
    assert list(violations(PACKAGE / place, line)) != []
