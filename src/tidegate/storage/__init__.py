"""Where checkpoints are kept: the storage port, and one module per kind of storage that passes its conformance kit."""
