package tidegate.suite;

import java.io.Serializable;

/** What the jobs say of a user; {@code start} is that of the window, or {@link #NO_WINDOW}. */
public final class Total implements Serializable {
    static final long NO_WINDOW = Long.MIN_VALUE;

    public String user;
    public long start;
    public long total;
}
