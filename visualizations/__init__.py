"""Figures: pure functions from traces and arrays to Plotly figures. Knows nothing of models, pages or files."""
