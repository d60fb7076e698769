"""Placeholder; see docs."""
