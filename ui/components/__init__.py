"""The page's own widgets: layer × token maps, attention maps and the prompt's text, linked in the browser.

Each widget is a pure function from a comparison to a JSON payload, and a gr.HTML that carries it. Document text travels
as data and reaches the page through textContent alone.
"""
