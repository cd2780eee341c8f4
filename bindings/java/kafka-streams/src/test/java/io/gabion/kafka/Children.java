package io.gabion.kafka;

import java.io.File;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** Processes of their own, with the classes of the tests. */
final class Children {
    private Children() {}

    /** Runs a class; what it prints is appended to a file. */
    static Process start(Path log, Class<?> main, String... arguments) throws IOException {
        return start(log, main.getName(), arguments);
    }

    static Process start(Path log, String main, String... arguments) throws IOException {
        List<String> command = new ArrayList<>(List.of(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "-Xmx512m", "-cp", System.getProperty("java.class.path"), main));
        command.addAll(List.of(arguments));
        File file = log.toFile();
        return new ProcessBuilder(command)
                .redirectErrorStream(true)
                .redirectOutput(ProcessBuilder.Redirect.appendTo(file))
                .start();
    }
}
