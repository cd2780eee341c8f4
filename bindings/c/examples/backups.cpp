// Loads sorted pairs, backs the store up while it is open, and looks into what was restored.
//
// Usage: backups DIRECTORY

#include <iostream>
#include <string>

#include <gabion.hpp>

static int run(const std::string &path) {
    gabion::Store store(path, {{"memory_bytes_max", "64MiB"}});
    gabion::Keyspace stones = store.keyspace("stones");
    gabion::Ingest ingest = stones.ingest();
    for (const char *stone : {"basalt", "chalk", "granite", "slate"}) {
        ingest.put(stone, "there");
    }
    std::cout << ingest.finish() << " loaded\n";

    gabion::Backups backups(path + ".backups");
    std::uint64_t done = 0;
    store.backup(backups, {{"bytes_per_second_max", "100MiB"}},
                 [&](std::uint64_t bytes, std::uint64_t) {
                     done = bytes;
                     return true;
                 });
    stones.remove("chalk");
    store.backup(backups);
    std::cout << (done > 0 ? "backed up\n" : "?\n");

    backups.restore(1, path + ".restored");
    gabion::Store restored(path + ".restored");
    std::cout << "chalk was " << restored.existing_keyspace("stones").get("chalk").value_or("gone")
              << ", and is " << stones.get("chalk").value_or("gone") << '\n';
    backups.prune({{"newest", "1"}});
    try {
        backups.restore(1, path + ".again");
    } catch (const gabion::Error &error) {
        std::cout << error.what() << '\n';
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        std::cerr << "usage: backups DIRECTORY\n";
        return 2;
    }
    try {
        return run(argv[1]);
    } catch (const gabion::Error &error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
}
