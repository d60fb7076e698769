package tidegate.suite;

/** What the jobs need of an order. A POJO in Flink's sense, and mutable: one object serves all records of a reader. */
public final class Order {
    public String user;
    public long amount;
    public long ts;
}
