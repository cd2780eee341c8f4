// Calls every method of gabion.hpp and compares what comes back; a failure names its line.
//
// Usage: all DIRECTORY

#include <chrono>
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
    auto now = std::chrono::system_clock::now();
    EXPECT(own.expires_at("c") > now && !own.expires_at("a"));
    EXPECT(own.remove_expiry("c") && !own.remove_expiry("c") && !own.expires_at("c"));
    EXPECT(own.expire("c", std::chrono::hours(1)) && !own.expire("d", std::chrono::hours(1)));
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
    EXPECT(other.id() != own.id() && other.options() == "{}");
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
    batch.put_expiring(own, "e", "5", std::chrono::milliseconds(0));
    EXPECT(batch.size() == 7 && batch.bytes() > 7);
    store.write(batch);
    batch.clear();
    EXPECT(batch.size() == 0);
    gabion::Snapshot moment = store.snapshot();
    own.remove("b");
    EXPECT(moment.get(own, "b") == "b" && !moment.get(own, "d"));
    EXPECT(moment.contains(own, "b") && !moment.contains(own, "e") && !moment.expires_at(own, "b"));
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
    transaction.put_expiring(own, "x", "3", std::chrono::hours(1));
    EXPECT(transaction.contains(own, "x") && transaction.expires_at(own, "x"));
    transaction.remove_range(own, "x", {});
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

static void changes(gabion::Store &store) {
    gabion::Keyspace own = store.keyspace("changes", {{"merge", "append:+"}});
    gabion::Consumer consumer = store.consumer("mirror");
    std::string before = store.position();
    own.put_expiring("a", "1", std::chrono::hours(1));
    own.merge("b", "2");
    own.remove_range("x", {});
    gabion::Ingest ingest = own.ingest();
    ingest.put("m", "1");
    ingest.put("n", "2");
    EXPECT(fails([&] { own.ingest().finish(); }) == GABION_CODE_OK && ingest.finish() == 2);
    EXPECT(fails([&] { ingest.put("o", "3"); }) == GABION_CODE_INVALID_ARGUMENT);

    gabion::Changes changes = store.changes(before, {{"durable_only", "false"}});
    auto change = changes.next();
    EXPECT(change && change->size() == 1 && change->action(0) == GABION_ACTION_PUT);
    EXPECT(change->keyspace(0) == "changes" && change->keyspace_id(0) == own.id());
    EXPECT(change->key(0) == "a" && change->value(0) == "1" && change->expires_at(0));
    EXPECT(!change->end(0) && change->base(0) == 0 && change->operands(0).empty());
    change = changes.next(std::chrono::seconds(1));
    EXPECT(change && change->key(0) == "b");
    change = changes.next();
    EXPECT(change && change->action(0) == GABION_ACTION_DELETE_RANGE && !change->end(0));
    change = changes.next();
    EXPECT(change && change->action(0) == GABION_ACTION_INGESTED && change->pairs(0) == 2);
    EXPECT(change->position() == changes.position() && !changes.next());

    EXPECT(consumer.changes().next()->key(0) == "a");
    consumer.acknowledge(changes.position());
    EXPECT(consumer.position() == changes.position() && !consumer.changes().next());
    EXPECT(store.consumers().find("\"mirror\"") != std::string::npos);
    store.drop_consumer("mirror");
    EXPECT(fails([&] { consumer.changes(); }) == GABION_CODE_NO_SUCH_CONSUMER);
    EXPECT(!store.changes(store.snapshot().position_after(before)).next());
    try {
        store.changes("900.0.9000000").next();
        EXPECT(false);
    } catch (const gabion::Error &error) {
        EXPECT(error.code() == GABION_CODE_CHANGES_GONE);
        EXPECT(error.position() == store.oldest_position());
    }
}

static void backups(gabion::Store &store, const std::string &path) {
    gabion::Backups backups(path + ".backups");
    EXPECT(fails([&] { backups.list(); }) == GABION_CODE_NOT_A_REPOSITORY);
    int calls = 0;
    auto count = [&](std::uint64_t bytes, std::uint64_t total) {
        calls++;
        return bytes <= total;
    };
    EXPECT(store.backup(backups, {}, count).find("\"id\": 1") != std::string::npos && calls > 0);
    auto stop = [](std::uint64_t, std::uint64_t) { return false; };
    EXPECT(fails([&] { store.backup(backups, {}, stop); }) == GABION_CODE_CANCELLED);
    auto fail = [](std::uint64_t, std::uint64_t) -> bool { throw std::string("own"); };
    try {
        backups.verify(0, {}, fail);
        EXPECT(false);
    } catch (const std::string &thrown) {
        EXPECT(thrown == "own");
    }
    store.backup(backups, {{"bytes_per_second_max", "1GiB"}});
    EXPECT(backups.verify().find("\"problems\": []") != std::string::npos);
    backups.restore(2, path + ".restored", {}, count);
    EXPECT(gabion::Store(path + ".restored").default_keyspace().name() == "default");
    gabion::destroy(path + ".restored");
    EXPECT(backups.prune({{"newest", "1"}}).find("1\n") != std::string::npos);
    EXPECT(fails([&] { backups.verify(1); }) == GABION_CODE_NO_SUCH_BACKUP);
}

static void followers(gabion::Store &store, const std::string &path) {
    EXPECT(store.engine() == "wip");
    EXPECT(store.capabilities().find("\"followers\": true") != std::string::npos);
    gabion::Store follower(path, {{"follower", "true"}});
    store.default_keyspace().put("new", "1");
    EXPECT(!follower.default_keyspace().contains("new") && follower.catch_up());
    EXPECT(follower.default_keyspace().get("new") == "1" && !follower.catch_up());
    EXPECT(fails([&] { follower.default_keyspace().put("a", "1"); }) == GABION_CODE_READ_ONLY);
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
    changes(store);
    backups(store, path);
    followers(store, path);
    store.flush();
    store.persist();
    store.checkpoint(path + ".copy");
    EXPECT(gabion::Store(path + ".copy").stats().find("\"writes\"") != std::string::npos);
    EXPECT(gabion::check(path + ".copy").find("\"problems\": []") != std::string::npos);
    EXPECT(gabion::repair(path + ".copy", path + ".repaired").find("\"lost\": []") !=
           std::string::npos);
    gabion::Keyspace last = store.default_keyspace();
    store.close();
    EXPECT(fails([&] { last.get("a"); }) == GABION_CODE_CLOSED);
    return 0;
}
