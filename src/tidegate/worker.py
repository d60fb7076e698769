"""The entry of a worker process: `python -m tidegate.worker`. Started by the JobManager, never by a person."""

from tidegate.deploy.garbage import put_off_collecting

if __name__ == "__main__":
    put_off_collecting()
    from tidegate.deploy.worker_process import main

    main()
