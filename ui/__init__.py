"""The page: Gradio layout, handlers and the state of visitors.

Draws what `cacheblend` measured with what `visualizations` draws; torch is never imported here.
"""
