"""A small simulated world: the real JobManager, workers, tasks and store in one thread, over simulated ports.

Only ports are simulated here: clock, executor, storage, wires, processes, and a log service with transactions. Whatever
decides is the code that runs in production; nothing here may decide in its place.

    scheduler     a heap of future events, the only clock; processes, which crash and pause
    swarm         which faults a seed has, and which job
    gate          calls to the outside whose answer is lost, late, or never comes
    storage, log_service, connectors, executor, wires, cluster, job_manager      the ports
    job           the program that runs, and its input
    chaos         who crashes whom, and the supervisor that starts JobManagers
    checkers      what must hold, seen from outside
    world         one seed from beginning to end
"""
