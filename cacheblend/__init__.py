"""CacheBlend: fuse the KV caches of retrieved chunks, and measure what that does.

Dimensions, everywhere: layers · tokens (length of a prompt or chunk) · rows (the tokens still being computed) · heads ·
kv_heads · head_dim · d_model · vocab. K and V are (tokens, kv_heads, head_dim); batch is 1 and not a dimension.
"""
