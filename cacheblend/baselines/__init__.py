"""What people did before caches were fused, to stand beside it: every chunk is asked alone (MapReduce, MapRerank)."""
