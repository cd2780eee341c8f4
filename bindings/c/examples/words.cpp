// Counts words: a batch for each line, a scan over what was counted, and a snapshot beside it.
//
// Usage: words DIRECTORY

#include <iostream>
#include <sstream>
#include <string>

#include <gabion.hpp>

static int run(const std::string &path) {
    gabion::Store store(path, {{"durability", "buffered"}, {"memory_bytes_max", "64MiB"}});
    gabion::Keyspace words = store.keyspace("words", {{"compression", "lz4"}});
    gabion::Snapshot before = store.snapshot();

    for (const char *line : {"stone by stone", "a basket of stone", "wire and willow"}) {
        store.transact([&](gabion::Transaction &transaction) {
            std::istringstream text(line);
            for (std::string word; text >> word;) {
                auto count = transaction.get(words, word);
                transaction.put(words, word, std::to_string(count ? std::stoi(*count) + 1 : 1));
            }
        });
    }

    gabion::Iterator iterator = words.iterator("b", "t");
    for (bool is_there = iterator.first(); is_there; is_there = iterator.next()) {
        std::cout << iterator.key() << ' ' << iterator.value() << '\n';
    }
    std::cout << "before: " << before.get(words, "stone").value_or("none") << '\n';

    gabion::Batch batch;
    batch.remove_range(words, {}, "s");
    batch.put(words, "done", "1");
    store.write(batch, "sync");
    if (auto stone = words.get_pinned("stone")) {
        std::cout << "stone: " << stone->view() << '\n';
    }
    auto found = words.multi_get({"and", "done"});
    std::cout << found[0].value_or("none") << ' ' << found[1].value_or("none") << '\n';

    try {
        store.existing_keyspace("sentences");
    } catch (const gabion::Error &error) {
        std::cout << (error.code() == GABION_CODE_NO_SUCH_KEYSPACE ? error.what() : "?") << '\n';
    }
    store.close();
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        std::cerr << "usage: words DIRECTORY\n";
        return 2;
    }
    try {
        return run(argv[1]);
    } catch (const gabion::Error &error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
}
