"""The entry of a worker process: `python -m tidegate.worker`. Started by the JobManager, never by a person."""

from tidegate.deploy.worker_process import main

if __name__ == "__main__":
    main()
