"""The sampling profiler behind `tidegate run --profile`: which operators, and which functions in them, take the time.

`sampler` looks at the threads of a process, `places` says what a thread is at, `recording` adds up and is handed over
as files, `speedscope` and `summary` show the sum, `run` holds all of it around a job. Nothing here changes what a job
does; without `--profile` nothing here is imported.
"""
