"""A simulated world: the real JobManager, workers, tasks and store in one thread, over simulated ports.

Only ports are simulated here: clocks, executor, storage, wires, processes, and what is read and written: a log service
with transactions, or brokers behind the Kafka connector. Whatever decides is the code that runs in production; nothing
here may decide in its place. `docs/simulation.md` says what a world can show.

    scheduler     a heap of future events, by which everything happens; processes, which crash, pause, and are slow
    clocks        what processes take for the time
    swarm         which faults a seed has, and which job
    gate          calls to the outside whose answer is lost, late, or never comes
    storage, executor, wires, cluster, job_manager      the ports
    outside       what is read and written, as all see it; log_service and connectors, or broker and kafka, are it
    job           the program that runs, and its input
    people        who wants savepoints and ends
    chaos         who crashes whom, and the supervisor that starts JobManagers
    checkers, cuts, savepoints      what must hold, seen from outside
    world         one seed from beginning to end
    pool          many seeds in several processes
"""
