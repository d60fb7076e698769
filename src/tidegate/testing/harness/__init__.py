"""Harnesses with which users test their jobs: a whole job, or one operator, on the real engine, in one thread, in
memory, with time that moves only when a test says so.

`elements` is what a scripted source brings and the markers between, `feed` the source and `sink` the sink that stand in
for a job's own, `engine` what steps the real JobManager and the real workers. Public names are in `tidegate.testing`.
"""
