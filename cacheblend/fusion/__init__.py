"""Fusing cached chunk KV into one prompt: the loop, its attention, its sources and its policies."""
