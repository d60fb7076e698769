package tidegate.oracle;

/** A row of weather.csv. */
public class Weather {
    public long at;
    public String origin;

    /** Degrees Fahrenheit and miles per hour; null where it was not measured. */
    public Double temp;

    public Double wind;

    static Weather parse(String line) {
        String[] fields = line.split(",", -1);
        Weather weather = new Weather();
        weather.at = Long.parseLong(fields[0]);
        weather.origin = fields[1];
        weather.temp = fields[2].isEmpty() ? null : Double.valueOf(fields[2]);
        weather.wind = fields[3].isEmpty() ? null : Double.valueOf(fields[3]);
        return weather;
    }
}
