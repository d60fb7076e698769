"""The simulated cluster as a medium of simulated worlds: the ports of the Kafka connector over it, through gates.

What decides is the connector that runs in production: its sink writer, its recovery, its reader, its discovery. Nothing
here may decide in their place; it carries requests, loses them, and lets time pass.

    line        how one process asks the cluster
    producer    client.Producer: keeps records back, sends them when it likes, and again
    admin       client.TransactionAdmin
    reading     client.Consumer and questions about topics
    connector   source and sink
    medium      the cluster in a world: markers that come later, mishaps, what readers see
"""
