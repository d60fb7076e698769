package tidegate.oracle;

import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import java.util.stream.Collectors;

/** One program with its parameters, as the list of cases has it: a name, then name=value, separated by tabs. */
record Case(String name, Map<String, String> parameters) {

    static Case parse(String line) {
        String[] fields = line.split("\t");
        Map<String, String> parameters =
                Arrays.stream(fields)
                        .skip(1)
                        .map(field -> field.split("=", 2))
                        .collect(Collectors.toMap(pair -> pair[0], pair -> pair[1]));
        return new Case(fields[0], parameters);
    }

    boolean has(String parameter) {
        return parameters.containsKey(parameter);
    }

    String text(String parameter) {
        if (!has(parameter)) {
            throw new IllegalArgumentException("case " + name + " has no parameter " + parameter);
        }
        return parameters.get(parameter);
    }

    int number(String parameter) {
        return Integer.parseInt(text(parameter));
    }

    /** Parameters are whole milliseconds; one that is missing is 0. */
    Duration duration(String parameter) {
        return Duration.ofMillis(has(parameter) ? Long.parseLong(text(parameter)) : 0);
    }
}
