"""The architecture, kept by reading the syntax tree: who may import whom."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FORBIDDEN = {
    "cacheblend": {"gradio", "plotly", "visualizations", "ui", "app"},
    "visualizations": {"torch", "transformers", "faiss", "gradio", "ui", "app"},
    "ui": {"torch", "transformers", "faiss", "app"},
    "benchmarks": {"gradio", "ui", "app"},
}


def imported(path: Path) -> set[str]:
    """Top-level names of the packages a file imports, at any depth of its code."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("package", FORBIDDEN)
def test_imports_point_one_way(package):
    files = list((ROOT / package).rglob("*.py"))
    assert files
    wrong = {str(f.relative_to(ROOT)): imported(f) & FORBIDDEN[package] for f in files}
    assert not {name: bad for name, bad in wrong.items() if bad}


@pytest.mark.parametrize(
    "module",
    [
        "cacheblend.trace",
        "cacheblend.recording",
        "cacheblend.analysis",
        "cacheblend.loading",
        "cacheblend.controller",
        "cacheblend.meeting",
        "visualizations",
    ],
)
def test_facts_and_figures_need_no_torch(module):
    code = f"import sys, {module}; print(sorted({{'torch', 'transformers', 'faiss', 'gradio'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
