"""Cost against context length, drawn from rows."""

from __future__ import annotations

from visualizations.length import length_figure


def test_each_mode_is_a_line_through_its_rows():
    rows = [{"tokens": n, "full": 4.0 * n, "reuse": 10.0, "blend": 1.0 * n} for n in (512, 1024)]
    figure = length_figure(rows)
    assert [list(t.y) for t in figure.data] == [[2048.0, 4096.0], [10.0, 10.0], [512.0, 1024.0]]
    assert "4.0 to 4.0 ×" in figure.layout.title.text


def test_nothing_measured_says_so():
    assert "Nothing was measured" in length_figure([]).to_json()
