"""A simulated Kafka cluster as pure state machines: what brokers keep and answer, as measured on real ones.

Nothing here fails, waits or draws lots: requests are methods, errors are codes, time is asked for, and what brokers do
by themselves (writing markers) is a step that somebody else lets happen. Faults are the part of who calls.

    codes         Kafka's error codes
    partition     one partition's log: batches, producers, markers, what readers may see
    coordinator   transactions by id: states, epochs, decisions and what of them is not written yet
    cluster       all of it together: topics, transaction verification, groups, restarts
"""
