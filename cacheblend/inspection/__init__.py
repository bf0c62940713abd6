"""Looking inside a run: recording passes, and what figures are drawn from. Never timed."""

from cacheblend.inspection.record import inspect_plan, store_attention

__all__ = ["inspect_plan", "store_attention"]
