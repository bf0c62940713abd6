"""Parts of a tab: components, and the events between them."""
