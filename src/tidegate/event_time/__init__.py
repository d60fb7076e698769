"""Event time: what watermarks are made of and how they are merged. Pure: no clock, no I/O, no thread."""
