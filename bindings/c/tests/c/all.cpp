// Calls every method of gabion.hpp and compares what comes back; a failure names its line.
//
// Usage: all DIRECTORY

#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gabion.hpp>

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            std::cerr << "line " << __LINE__ << ": " #condition "\n";                              \
            std::exit(1);                                                                          \
        }                                                                                          \
    } while (0)

// The code of the error that a body throws.
template <typename Body> gabion_code fails(Body &&body) {
    try {
        body();
    } catch (const gabion::Error &error) {
        EXPECT(std::string(error.what()).size() > 10);
        return error.code();
    }
    return GABION_CODE_OK;
}

static std::string keys(gabion::Iterator iterator) {
    std::string keys;
    for (bool is_there = iterator.first(); is_there; is_there = iterator.next()) {
        keys += iterator.key();
    }
    return keys;
}

static void keyspaces(gabion::Store &store) {
    using namespace std::string_view_literals;
    gabion::Keyspace own = store.default_keyspace();
    EXPECT(own.name() == "default");
    own.put("a", "1");
    own.put("zero\0inside"sv, "\0"sv, "sync");
    own.put("", "");
    EXPECT(own.get("zero\0inside"sv) == std::string("\0", 1) && own.get("") == "");
    EXPECT(!own.get("b") && own.contains("") && !own.contains("b"));
    EXPECT(own.get_pinned("a")->view() == "1" && !own.get_pinned("b"));
    own.put_expiring("c", "3", std::chrono::hours(1));
    own.put_expiring("d", "4", std::chrono::milliseconds(0));
    EXPECT(own.contains("c") && !own.contains("d"));
    EXPECT(own.multi_get({"a", "b"})[0] == "1" && !own.multi_get({"a", "b"})[1]);
    EXPECT(own.compare_and_swap("b", {}, "") && !own.compare_and_swap("b", {}, "2"));
    EXPECT(own.compare_and_swap("b", "", {}) && !own.contains("b"));
    own.remove("a");
    own.remove_range({}, "zero");
    EXPECT(keys(own.iterator()) == "zero\0inside"sv);
    own.compact();
    own.remove_range("", {});
    EXPECT(keys(own.iterator()).empty());

    gabion::Keyspace other = store.keyspace("other");
    EXPECT(store.keyspace_names() == (std::vector<std::string>{"default", "other"}));
    EXPECT(store.existing_keyspace("other").name() == "other");
    store.drop_keyspace("other");
    EXPECT(fails([&] { other.put("a", "1"); }) == GABION_CODE_KEYSPACE_DROPPED);
    EXPECT(fails([&] { store.keyspace("k", {{"engine", "wip"}}); }) == GABION_CODE_INVALID_OPTION);
}

static void merges(gabion::Store &store) {
    gabion::Keyspace own = store.keyspace("sums", {{"merge", "append:+"}});
    own.merge("a", "1");
    gabion::Batch batch;
    batch.merge(own, "a", "2");
    store.write(batch);
    store.transact([&](gabion::Transaction &one) { one.merge(own, "a", "3"); });
    EXPECT(own.get("a") == "1+2+3");
}

static void iterators(gabion::Store &store) {
    gabion::Keyspace own = store.keyspace("iterators");
    gabion::Batch batch;
    for (const char *key : {"a", "b", "c", "d"}) {
        batch.put(own, key, key);
    }
    batch.remove(own, "d");
    batch.remove_range(own, "x", {});
    EXPECT(batch.size() == 6);
    store.write(batch);
    batch.clear();
    EXPECT(batch.size() == 0);
    gabion::Snapshot moment = store.snapshot();
    own.remove("b");
    EXPECT(moment.get(own, "b") == "b" && !moment.get(own, "d"));
    EXPECT(keys(own.iterator({}, {}, &moment)) == "abc" && keys(own.iterator("b")) == "c");
    gabion::Iterator iterator = own.iterator({}, "c", &moment);
    EXPECT(!iterator.valid() && iterator.last() && iterator.key() == "b");
    EXPECT(iterator.prev() && iterator.value() == "a" && !iterator.prev() && !iterator.valid());
    EXPECT(iterator.seek("aa") && iterator.key() == "b" && !iterator.seek("c"));
    EXPECT(iterator.seek_back("aa") && iterator.key() == "a");
    gabion::Iterator moved = std::move(iterator);
    EXPECT(moved.next() && moved.key() == "b");
}

static void transactions(gabion::Store &store) {
    gabion::Keyspace own = store.keyspace("transactions");
    {
        gabion::Transaction transaction = store.begin();
        transaction.put(own, "lost", "1");
    }
    EXPECT(!own.contains("lost"));
    gabion::Transaction transaction = store.begin({{"isolation", "snapshot"}});
    EXPECT(!transaction.get_for_update(own, "a"));
    transaction.put(own, "a", "1");
    std::uint64_t savepoint = transaction.savepoint();
    transaction.put(own, "b", "2");
    transaction.remove(own, "a");
    EXPECT(keys(transaction.iterator(own)) == "b");
    transaction.rollback_to(savepoint);
    EXPECT(transaction.get(own, "a") == "1");
    transaction.commit("sync");
    EXPECT(own.get("a") == "1" && fails([&] { transaction.commit(); }) == GABION_CODE_ENDED);
    gabion::Transaction other = store.begin();
    other.rollback();
    EXPECT(fails([&] { other.get(own, "a"); }) == GABION_CODE_ENDED);

    own.put("count", "0");
    std::vector<std::thread> threads;
    for (int number = 0; number < 4; number++) {
        threads.emplace_back([&] {
            for (int round = 0; round < 25; round++) {
                auto count = [&](gabion::Transaction &one) {
                    int next = std::stoi(*one.get(own, "count")) + 1;
                    one.put(own, "count", std::to_string(next));
                    return next;
                };
                EXPECT(store.transact(count, 10000) > 0);
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    EXPECT(own.get("count") == "100");
}

int main(int argc, char **argv) {
    EXPECT(argc == 2);
    std::string path = argv[1];
    EXPECT(fails([&] { gabion::Store(path, {{"colour", "grey"}}); }) == GABION_CODE_INVALID_OPTION);
    gabion::Store store(path, gabion::Options().set("memory_bytes_max", "64MiB"));
    EXPECT(fails([&] { gabion::Store second(path); }) == GABION_CODE_LOCKED);
    keyspaces(store);
    merges(store);
    iterators(store);
    transactions(store);
    store.flush();
    store.persist();
    store.checkpoint(path + ".copy");
    EXPECT(gabion::Store(path + ".copy").stats().find("\"writes\"") != std::string::npos);
    gabion::Keyspace last = store.default_keyspace();
    store.close();
    EXPECT(fails([&] { last.get("a"); }) == GABION_CODE_CLOSED);
    return 0;
}
