package tidegate.suite;

import java.util.HashMap;
import java.util.Map;
import java.util.Properties;

/** The command line: each argument is {@code name=value}; names that begin with flink., consumer. or producer. are settings. */
final class Options {
    private final Map<String, String> values = new HashMap<>();

    Options(String[] arguments) {
        for (String argument : arguments) {
            int split = argument.indexOf('=');
            if (split < 0) {
                throw new IllegalArgumentException("not name=value: " + argument);
            }
            values.put(argument.substring(0, split), argument.substring(split + 1));
        }
    }

    String get(String name) {
        String value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException("missing: " + name);
        }
        return value;
    }

    /** The settings under {@code prefix}, without it. */
    Map<String, String> under(String prefix) {
        Map<String, String> found = new HashMap<>();
        values.forEach((name, value) -> {
            if (name.startsWith(prefix)) {
                found.put(name.substring(prefix.length()), value);
            }
        });
        return found;
    }

    Properties properties(String prefix) {
        Properties properties = new Properties();
        properties.putAll(under(prefix));
        return properties;
    }
}
