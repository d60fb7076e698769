"""Connectors: where records come from and go to. The engine knows their contracts and never imports one of them."""
