"""Language models: where weights come from, and running a decoder layer by layer."""
