"""The tabs, a file each: `build(page)` adds one to the page."""
