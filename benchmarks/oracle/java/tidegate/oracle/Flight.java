package tidegate.oracle;

/** A row of flights.csv. */
public class Flight {
    public long at;
    public String carrier;
    public int flight;
    public String origin;
    public String dest;

    /** Minutes; null when it was cancelled. */
    public Integer delay;

    static Flight parse(String line) {
        String[] fields = line.split(",", -1);
        Flight flight = new Flight();
        flight.at = Long.parseLong(fields[0]);
        flight.carrier = fields[1];
        flight.flight = Integer.parseInt(fields[2]);
        flight.origin = fields[3];
        flight.dest = fields[4];
        flight.delay = fields[5].isEmpty() ? null : Integer.valueOf(fields[5]);
        return flight;
    }

    String key(String kind) {
        return switch (kind) {
            case "carrier" -> carrier;
            case "origin" -> origin;
            case "dest" -> dest;
            case "route" -> origin + "-" + dest;
            default -> throw new IllegalArgumentException("flights have no key " + kind);
        };
    }

    String called() {
        return carrier + flight;
    }
}
