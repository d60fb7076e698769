"""A module that cannot be imported, as a key's class may come to live in one."""

raise RuntimeError("this module raises whatever it likes")
