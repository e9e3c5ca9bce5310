"""The Triton kernels compute what torch computes, under the interpreter, in a process of its own."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")

SCRIPT = """
import json
import torch
from detlab.kernel.fixed import in_triton

def far(found, exact):
    return float((found.double() - exact).norm() / exact.norm().clamp(min=1e-300))

generator = torch.Generator().manual_seed(1)
found = {}
for rows, width in [(0, 5), (1, 1), (40, 5), (30, 70)]:
    into, source = (torch.randn(n, width, generator=generator) for n in (6, rows))
    index = torch.randint(0, 6, (rows,), generator=generator)
    exact = into.double().index_add(0, index, source.double())
    for name in ("index_add_", "index_add_atomic_"):
        found[f"{name} {rows} {width}"] = far(getattr(in_triton, name)(into.clone(), 0, index, source), exact)
for shape in [(3, 5, 2), (20, 40, 17), (16, 7, 16)]:
    a, b = (torch.randn(*s, generator=generator) for s in (shape[:2], shape[1:]))
    for name in ("split_k_mm", "split_k_mm_atomic"):
        for parts in (1, 3, 9):
            product = getattr(in_triton, name)(a, b, num_splits=parts)
            found[f"{name} {shape} {parts}"] = far(product, a.double() @ b.double())
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def errors():
    """Relative errors of every kernel at several shapes, by name."""
    env = os.environ | {"TRITON_INTERPRET": "1"}
    run = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@needs_triton
@pytest.mark.parametrize("name", ["index_add_", "index_add_atomic_", "split_k_mm", "split_k_mm_atomic"])
def test_a_kernel_computes_what_torch_computes_in_float64(errors, name):
    mine = {key: error for key, error in errors.items() if key.split()[0] == name}
    assert len(mine) >= 4
    assert max(mine.values()) < 1e-6, mine


def test_no_import_of_the_package_loads_triton():
    code = "import sys, detlab.kernel.fixed.in_triton; print('triton' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
