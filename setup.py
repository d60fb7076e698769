"""Builds the compiled part, `tidegate._native`, where there is a C compiler. All else is in pyproject.toml.

Without one the package is installed all the same and does the same in Python. One wheel serves all versions of Python:
the part keeps to what they have in common.
"""

from setuptools import Extension, setup

NATIVE = Extension("tidegate._native", ["src/tidegate/_native.c"], py_limited_api=True, optional=True)

setup(ext_modules=[NATIVE], options={"bdist_wheel": {"py_limited_api": "cp311"}})
