// Gabion for C++17: gabion.h with owners in place of handles, and exceptions in place of codes.
//
// Every class owns one handle, moves and does not copy. Objects may be destroyed in any order, as
// handles may be freed. What gabion.h says about threads holds here as well. Keys and values go in
// as std::string_view, which may hold any bytes. Positions in the changes of a store are text.

#ifndef GABION_HPP
#define GABION_HPP

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "gabion_base.hpp"
#include "gabion_changes.hpp"

namespace gabion {

// A value that is lent, without a copy.
class Pinned {
public:
    explicit Pinned(gabion_pinned *handle) : handle_(handle) {}

    std::string_view view() const {
        std::size_t len = 0;
        const std::uint8_t *data = gabion_pinned_data(handle_.get(), &len);
        return detail::view(data, len);
    }

private:
    detail::Owned<gabion_pinned, gabion_pinned_free> handle_;
};

class Keyspace;
class Store;

// Sorted pairs on their way into a keyspace: all of them are there once it is finished, and none if
// it is destroyed before.
class Ingest {
public:
    explicit Ingest(gabion_ingest *handle) : handle_(handle) {}

    // Adds a pair, whose key must be above the one before.
    void put(std::string_view key, std::string_view value) {
        detail::Check check;
        check(gabion_ingest_put(handle_.get(), detail::bytes(key), key.size(),
                                detail::bytes(value), value.size(), check));
    }

    // Adds all pairs to the keyspace, durably, and returns their number.
    std::uint64_t finish() {
        std::uint64_t pairs = 0;
        detail::Check check;
        check(gabion_ingest_finish(handle_.get(), &pairs, check));
        return pairs;
    }

private:
    detail::Owned<gabion_ingest, gabion_ingest_free> handle_;
};

// A view of all keyspaces as they were at one moment.
class Snapshot {
public:
    explicit Snapshot(gabion_snapshot *handle) : handle_(handle) {}

    std::optional<std::string> get(const Keyspace &keyspace, std::string_view key) const;

    bool contains(const Keyspace &keyspace, std::string_view key) const;

    std::optional<std::chrono::system_clock::time_point> expires_at(const Keyspace &keyspace,
                                                                    std::string_view key) const;

    // A position, but not in front of what the snapshot has: there changes are read on.
    std::string position_after(const std::string &position) const {
        return detail::text([&](auto after, auto error) {
            return gabion_position_after(position.c_str(), get(), after, error);
        });
    }

    const gabion_snapshot *get() const { return handle_.get(); }

private:
    detail::Owned<gabion_snapshot, gabion_snapshot_free> handle_;
};

// The pairs of a keyspace in a range. Stands at no pair before it is told where to go.
class Iterator {
public:
    explicit Iterator(gabion_iterator *handle) : handle_(handle) {}

    // Each move tells whether the iterator stands at a pair then.
    bool first() { return go(gabion_iterator_first); }
    bool last() { return go(gabion_iterator_last); }
    bool next() { return go(gabion_iterator_next); }
    bool prev() { return go(gabion_iterator_prev); }
    bool seek(std::string_view key) { return go(gabion_iterator_seek, key); }
    bool seek_back(std::string_view key) { return go(gabion_iterator_seek_back, key); }

    bool valid() const { return gabion_iterator_valid(handle_.get()); }

    // Valid until the iterator moves.
    std::string_view key() const {
        std::size_t len = 0;
        const std::uint8_t *data = gabion_iterator_key(handle_.get(), &len);
        return detail::view(data, len);
    }

    std::string_view value() const {
        std::size_t len = 0;
        const std::uint8_t *data = gabion_iterator_value(handle_.get(), &len);
        return detail::view(data, len);
    }

private:
    bool go(gabion_code (*move)(gabion_iterator *, gabion_error **)) {
        detail::Check check;
        check(move(handle_.get(), check));
        return valid();
    }

    bool go(gabion_code (*move)(gabion_iterator *, const std::uint8_t *, std::size_t,
                                gabion_error **),
            std::string_view key) {
        detail::Check check;
        check(move(handle_.get(), detail::bytes(key), key.size(), check));
        return valid();
    }

    detail::Owned<gabion_iterator, gabion_iterator_free> handle_;
};

// A named part of a store with its own keys.
class Keyspace {
public:
    explicit Keyspace(gabion_keyspace *handle) : handle_(handle) {}

    gabion_keyspace *get() const { return handle_.get(); }

    std::string name() const {
        std::size_t len = 0;
        const char *name = gabion_keyspace_name(get(), &len);
        return std::string(name, len);
    }

    // The number by which changes name it.
    std::uint32_t id() const { return gabion_keyspace_id(get()); }

    // The options that it has of its own, as a JSON object.
    std::string options() const {
        return detail::text(
            [&](auto json, auto error) { return gabion_keyspace_options(get(), json, error); });
    }

    // The durability is "sync", "interval:MILLISECONDS" or "buffered"; empty for the store's.
    void put(std::string_view key, std::string_view value, const std::string &durability = {}) {
        detail::Check check;
        check(gabion_put_with(get(), detail::bytes(key), key.size(), detail::bytes(value),
                              value.size(), detail::word(durability), check));
    }

    void put_expiring(std::string_view key, std::string_view value,
                      std::chrono::milliseconds after) {
        detail::Check check;
        check(gabion_put_expiring(get(), detail::bytes(key), key.size(), detail::bytes(value),
                                  value.size(), detail::millis(after), check));
    }

    // Lets the value of a key expire after some time; whether it is there.
    bool expire(std::string_view key, std::chrono::milliseconds after) {
        bool is_there = false;
        detail::Check check;
        check(gabion_expire(get(), detail::bytes(key), key.size(), detail::millis(after), &is_there,
                            check));
        return is_there;
    }

    // Lets the value of a key stay for good; whether it is there and did expire.
    bool remove_expiry(std::string_view key) {
        bool is_changed = false;
        detail::Check check;
        check(gabion_remove_expiry(get(), detail::bytes(key), key.size(), &is_changed, check));
        return is_changed;
    }

    // When the value of a key expires, if it does.
    std::optional<std::chrono::system_clock::time_point> expires_at(std::string_view key) const {
        std::int64_t unix_ms = -1;
        detail::Check check;
        check(gabion_expires_at(get(), detail::bytes(key), key.size(), &unix_ms, check));
        return detail::moment(unix_ms);
    }

    // As the operator says that the keyspace was given by its option merge.
    void merge(std::string_view key, std::string_view operand) {
        detail::Check check;
        check(gabion_merge(get(), detail::bytes(key), key.size(), detail::bytes(operand),
                           operand.size(), check));
    }

    void remove(std::string_view key) {
        detail::Check check;
        check(gabion_delete(get(), detail::bytes(key), key.size(), check));
    }

    void remove_range(const Bound &lower, const Bound &upper) {
        detail::Check check;
        check(gabion_delete_range(get(), detail::end(lower), detail::size(lower),
                                  detail::end(upper), detail::size(upper), check));
    }

    void compact(const Bound &lower = {}, const Bound &upper = {}) {
        detail::Check check;
        check(gabion_compact(get(), detail::end(lower), detail::size(lower), detail::end(upper),
                             detail::size(upper), check));
    }

    std::optional<std::string> get(std::string_view key) const {
        return detail::copied([&](auto value, auto len, auto error) {
            return gabion_get(get(), detail::bytes(key), key.size(), value, len, error);
        });
    }

    std::optional<Pinned> get_pinned(std::string_view key) const {
        gabion_pinned *pinned = nullptr;
        detail::Check check;
        check(gabion_get_pinned(get(), detail::bytes(key), key.size(), &pinned, check));
        if (pinned == nullptr) {
            return std::nullopt;
        }
        return Pinned(pinned);
    }

    bool contains(std::string_view key) const {
        bool is_there = false;
        detail::Check check;
        check(gabion_contains(get(), detail::bytes(key), key.size(), &is_there, check));
        return is_there;
    }

    // The values of several keys at one moment, in the order of the keys.
    std::vector<std::optional<std::string>>
    multi_get(const std::vector<std::string_view> &keys) const {
        std::vector<const std::uint8_t *> data;
        std::vector<std::size_t> lens;
        for (std::string_view key : keys) {
            data.push_back(detail::bytes(key));
            lens.push_back(key.size());
        }
        gabion_values *values = nullptr;
        detail::Check check;
        check(gabion_multi_get(get(), nullptr, data.data(), lens.data(), keys.size(), &values,
                               check));
        detail::Owned<gabion_values, gabion_values_free> owned(values);
        std::vector<std::optional<std::string>> found;
        for (std::size_t index = 0; index < gabion_values_count(values); index++) {
            std::size_t len = 0;
            const std::uint8_t *value = gabion_values_at(values, index, &len);
            if (value == nullptr) {
                found.emplace_back();
            } else {
                found.emplace_back(std::string(detail::view(value, len)));
            }
        }
        return found;
    }

    // Changes the value of a key, where nothing stands for no value; whether it had the expected
    // one.
    bool compare_and_swap(std::string_view key, const Bound &expected, const Bound &value) {
        bool is_changed = false;
        detail::Check check;
        check(gabion_compare_and_swap(get(), detail::bytes(key), key.size(), detail::end(expected),
                                      detail::size(expected), detail::end(value),
                                      detail::size(value), &is_changed, check));
        return is_changed;
    }

    // Begins to add sorted pairs, for large loads.
    Ingest ingest() {
        gabion_ingest *ingest = nullptr;
        detail::Check check;
        check(gabion_ingest_begin(get(), &ingest, check));
        return Ingest(ingest);
    }

    Iterator iterator(const Bound &lower = {}, const Bound &upper = {},
                      const Snapshot *snapshot = nullptr) const {
        gabion_iterator *iterator = nullptr;
        detail::Check check;
        check(gabion_iterator_new(get(), snapshot == nullptr ? nullptr : snapshot->get(),
                                  detail::end(lower), detail::size(lower), detail::end(upper),
                                  detail::size(upper), &iterator, check));
        return Iterator(iterator);
    }

private:
    detail::Owned<gabion_keyspace, gabion_keyspace_free> handle_;
};

inline std::optional<std::string> Snapshot::get(const Keyspace &keyspace,
                                                std::string_view key) const {
    return detail::copied([&](auto value, auto len, auto error) {
        return gabion_snapshot_get(get(), keyspace.get(), detail::bytes(key), key.size(), value,
                                   len, error);
    });
}

inline bool Snapshot::contains(const Keyspace &keyspace, std::string_view key) const {
    bool is_there = false;
    detail::Check check;
    check(gabion_snapshot_contains(get(), keyspace.get(), detail::bytes(key), key.size(), &is_there,
                                   check));
    return is_there;
}

inline std::optional<std::chrono::system_clock::time_point>
Snapshot::expires_at(const Keyspace &keyspace, std::string_view key) const {
    std::int64_t unix_ms = -1;
    detail::Check check;
    check(gabion_snapshot_expires_at(get(), keyspace.get(), detail::bytes(key), key.size(),
                                     &unix_ms, check));
    return detail::moment(unix_ms);
}

// Writes that take effect together.
class Batch {
public:
    Batch() : handle_(gabion_batch_new()) {}

    void put(const Keyspace &keyspace, std::string_view key, std::string_view value) {
        detail::Check check;
        check(gabion_batch_put(handle_.get(), keyspace.get(), detail::bytes(key), key.size(),
                               detail::bytes(value), value.size(), check));
    }

    void put_expiring(const Keyspace &keyspace, std::string_view key, std::string_view value,
                      std::chrono::milliseconds after) {
        detail::Check check;
        check(gabion_batch_put_expiring(handle_.get(), keyspace.get(), detail::bytes(key),
                                        key.size(), detail::bytes(value), value.size(),
                                        detail::millis(after), check));
    }

    void merge(const Keyspace &keyspace, std::string_view key, std::string_view operand) {
        detail::Check check;
        check(gabion_batch_merge(handle_.get(), keyspace.get(), detail::bytes(key), key.size(),
                                 detail::bytes(operand), operand.size(), check));
    }

    void remove(const Keyspace &keyspace, std::string_view key) {
        detail::Check check;
        check(gabion_batch_delete(handle_.get(), keyspace.get(), detail::bytes(key), key.size(),
                                  check));
    }

    void remove_range(const Keyspace &keyspace, const Bound &lower, const Bound &upper) {
        detail::Check check;
        check(gabion_batch_delete_range(handle_.get(), keyspace.get(), detail::end(lower),
                                        detail::size(lower), detail::end(upper),
                                        detail::size(upper), check));
    }

    std::size_t size() const { return gabion_batch_count(handle_.get()); }

    std::uint64_t bytes() const { return gabion_batch_bytes(handle_.get()); }

    void clear() {
        detail::Check check;
        check(gabion_batch_clear(handle_.get(), check));
    }

    const gabion_batch *get() const { return handle_.get(); }

private:
    detail::Owned<gabion_batch, gabion_batch_free> handle_;
};

// Reads of one moment and writes that take effect together. Destroying one that was not committed
// rolls it back.
class Transaction {
public:
    explicit Transaction(gabion_transaction *handle) : handle_(handle) {}

    std::optional<std::string> get(const Keyspace &keyspace, std::string_view key) {
        return detail::copied([&](auto value, auto len, auto error) {
            return gabion_transaction_get(handle_.get(), keyspace.get(), detail::bytes(key),
                                          key.size(), value, len, error);
        });
    }

    std::optional<std::string> get_for_update(const Keyspace &keyspace, std::string_view key) {
        return detail::copied([&](auto value, auto len, auto error) {
            return gabion_transaction_get_for_update(handle_.get(), keyspace.get(),
                                                     detail::bytes(key), key.size(), value, len,
                                                     error);
        });
    }

    void put(const Keyspace &keyspace, std::string_view key, std::string_view value) {
        detail::Check check;
        check(gabion_transaction_put(handle_.get(), keyspace.get(), detail::bytes(key), key.size(),
                                     detail::bytes(value), value.size(), check));
    }

    void put_expiring(const Keyspace &keyspace, std::string_view key, std::string_view value,
                      std::chrono::milliseconds after) {
        detail::Check check;
        check(gabion_transaction_put_expiring(handle_.get(), keyspace.get(), detail::bytes(key),
                                              key.size(), detail::bytes(value), value.size(),
                                              detail::millis(after), check));
    }

    bool contains(const Keyspace &keyspace, std::string_view key) {
        bool is_there = false;
        detail::Check check;
        check(gabion_transaction_contains(handle_.get(), keyspace.get(), detail::bytes(key),
                                          key.size(), &is_there, check));
        return is_there;
    }

    std::optional<std::chrono::system_clock::time_point> expires_at(const Keyspace &keyspace,
                                                                    std::string_view key) {
        std::int64_t unix_ms = -1;
        detail::Check check;
        check(gabion_transaction_expires_at(handle_.get(), keyspace.get(), detail::bytes(key),
                                            key.size(), &unix_ms, check));
        return detail::moment(unix_ms);
    }

    void merge(const Keyspace &keyspace, std::string_view key, std::string_view operand) {
        detail::Check check;
        check(gabion_transaction_merge(handle_.get(), keyspace.get(), detail::bytes(key),
                                       key.size(), detail::bytes(operand), operand.size(), check));
    }

    void remove(const Keyspace &keyspace, std::string_view key) {
        detail::Check check;
        check(gabion_transaction_delete(handle_.get(), keyspace.get(), detail::bytes(key),
                                        key.size(), check));
    }

    void remove_range(const Keyspace &keyspace, const Bound &lower, const Bound &upper) {
        detail::Check check;
        check(gabion_transaction_delete_range(handle_.get(), keyspace.get(), detail::end(lower),
                                              detail::size(lower), detail::end(upper),
                                              detail::size(upper), check));
    }

    Iterator iterator(const Keyspace &keyspace, const Bound &lower = {}, const Bound &upper = {}) {
        gabion_iterator *iterator = nullptr;
        detail::Check check;
        check(gabion_transaction_iterator(handle_.get(), keyspace.get(), detail::end(lower),
                                          detail::size(lower), detail::end(upper),
                                          detail::size(upper), &iterator, check));
        return Iterator(iterator);
    }

    std::uint64_t savepoint() {
        std::uint64_t savepoint = 0;
        detail::Check check;
        check(gabion_transaction_savepoint(handle_.get(), &savepoint, check));
        return savepoint;
    }

    void rollback_to(std::uint64_t savepoint) {
        detail::Check check;
        check(gabion_transaction_rollback_to(handle_.get(), savepoint, check));
    }

    void commit(const std::string &durability = {}) {
        detail::Check check;
        check(gabion_transaction_commit(handle_.get(), detail::word(durability), check));
    }

    void rollback() {
        detail::Check check;
        check(gabion_transaction_rollback(handle_.get(), check));
    }

private:
    detail::Owned<gabion_transaction, gabion_transaction_free> handle_;
};

// An open store. Destroying it closes it when nothing else that was made from it is left; close
// closes it at once, and tells what failed.
class Store {
public:
    explicit Store(const std::string &path) : Store(path, Options()) {}

    Store(const std::string &path, const Options &options) {
        if (gabion_abi_version() != GABION_ABI_VERSION) {
            throw Error(GABION_CODE_INVALID_ARGUMENT,
                        "the library libgabion is of another version than the header");
        }
        gabion_store *store = nullptr;
        detail::Check check;
        check(gabion_open(path.c_str(), options.get(), &store, check));
        handle_.reset(store);
    }

    Keyspace default_keyspace() const {
        gabion_keyspace *keyspace = nullptr;
        detail::Check check;
        check(gabion_keyspace_default(handle_.get(), &keyspace, check));
        return Keyspace(keyspace);
    }

    // The keyspace of a name, made if it does not exist.
    Keyspace keyspace(const std::string &name) const { return open(name, nullptr); }

    Keyspace keyspace(const std::string &name, const Options &options) const {
        return open(name, options.get());
    }

    Keyspace existing_keyspace(const std::string &name) const {
        gabion_keyspace *keyspace = nullptr;
        detail::Check check;
        check(gabion_keyspace_existing(handle_.get(), name.c_str(), &keyspace, check));
        return Keyspace(keyspace);
    }

    std::vector<std::string> keyspace_names() const {
        gabion_values *names = nullptr;
        detail::Check check;
        check(gabion_keyspace_names(handle_.get(), &names, check));
        detail::Owned<gabion_values, gabion_values_free> owned(names);
        std::vector<std::string> found;
        for (std::size_t index = 0; index < gabion_values_count(names); index++) {
            std::size_t len = 0;
            const std::uint8_t *name = gabion_values_at(names, index, &len);
            found.emplace_back(detail::view(name, len));
        }
        return found;
    }

    void drop_keyspace(const std::string &name) {
        detail::Check check;
        check(gabion_keyspace_drop(handle_.get(), name.c_str(), check));
    }

    Snapshot snapshot() const {
        gabion_snapshot *snapshot = nullptr;
        detail::Check check;
        check(gabion_snapshot_new(handle_.get(), &snapshot, check));
        return Snapshot(snapshot);
    }

    Transaction begin(const Options &options = {}) {
        gabion_transaction *transaction = nullptr;
        detail::Check check;
        check(gabion_transaction_begin(handle_.get(), options.get(), &transaction, check));
        return Transaction(transaction);
    }

    // Runs body with a transaction until it is committed without a conflict.
    template <typename Body> auto transact(Body &&body, int attempts_max = 100) {
        for (int attempt = 1;; attempt++) {
            try {
                Transaction transaction = begin();
                if constexpr (std::is_void_v<decltype(body(transaction))>) {
                    body(transaction);
                    transaction.commit();
                    return;
                } else {
                    auto result = body(transaction);
                    transaction.commit();
                    return result;
                }
            } catch (const Error &error) {
                if (!error.is_conflict() || attempt == attempts_max) {
                    throw;
                }
            }
        }
    }

    void write(const Batch &batch, const std::string &durability = {}) {
        detail::Check check;
        check(gabion_batch_write(handle_.get(), batch.get(), detail::word(durability), check));
    }

    void flush() {
        detail::Check check;
        check(gabion_flush(handle_.get(), check));
    }

    void persist(const std::string &durability = "sync") {
        detail::Check check;
        check(gabion_persist(handle_.get(), durability.c_str(), check));
    }

    void checkpoint(const std::string &path) {
        detail::Check check;
        check(gabion_checkpoint(handle_.get(), path.c_str(), check));
    }

    // Adds the store as it is now to a repository, and tells as a JSON object what was made.
    std::string backup(const Backups &repository, const Options &options = {},
                       const Progress &progress = {}) {
        detail::Listener listener(progress);
        return detail::text([&](auto json, auto error) {
            gabion_code code = gabion_backup(handle_.get(), repository.path().c_str(),
                                             options.get(), listener.function(),
                                             listener.context(), json, error);
            listener.rethrow();
            return code;
        });
    }

    // Reads what another process has written since, where the store was opened with the option
    // follower; whether there was anything.
    bool catch_up() {
        bool is_new = false;
        detail::Check check;
        check(gabion_catch_up(handle_.get(), &is_new, check));
        return is_new;
    }

    // Where the store is now in its changes.
    std::string position() const {
        return detail::text([&](auto position, auto error) {
            return gabion_position(handle_.get(), position, error);
        });
    }

    // The position behind which all changes are there.
    std::string oldest_position() const {
        return detail::text([&](auto position, auto error) {
            return gabion_oldest_position(handle_.get(), position, error);
        });
    }

    // The changes behind a position.
    Changes changes(const std::string &since, const Options &options = {}) const {
        gabion_changes *changes = nullptr;
        detail::Check check;
        check(gabion_changes_new(handle_.get(), since.c_str(), options.get(), &changes, check));
        return Changes(changes);
    }

    // The consumer of a name, made if it does not exist.
    Consumer consumer(const std::string &name) {
        gabion_consumer *consumer = nullptr;
        detail::Check check;
        check(gabion_consumer_open(handle_.get(), name.c_str(), &consumer, check));
        return Consumer(consumer);
    }

    // All consumers as a JSON list.
    std::string consumers() const {
        return detail::text(
            [&](auto json, auto error) { return gabion_consumers(handle_.get(), json, error); });
    }

    void drop_consumer(const std::string &name) {
        detail::Check check;
        check(gabion_consumer_drop(handle_.get(), name.c_str(), check));
    }

    std::string engine() const { return gabion_engine(handle_.get()); }

    // What the engine can do, as a JSON object.
    std::string capabilities() const {
        return detail::text(
            [&](auto json, auto error) { return gabion_capabilities(handle_.get(), json, error); });
    }

    // Counts and sizes as a JSON object.
    std::string stats() const {
        return detail::text(
            [&](auto json, auto error) { return gabion_stats(handle_.get(), json, error); });
    }

    void close() {
        detail::Check check;
        check(gabion_close(handle_.get(), check));
    }

private:
    Keyspace open(const std::string &name, const gabion_options *options) const {
        gabion_keyspace *keyspace = nullptr;
        detail::Check check;
        check(gabion_keyspace_open(handle_.get(), name.c_str(), options, &keyspace, check));
        return Keyspace(keyspace);
    }

    detail::Owned<gabion_store, gabion_store_free> handle_;
};

// Reads every byte of the store in a directory, and tells as a JSON object what is damaged.
inline std::string check(const std::string &path) {
    return detail::text(
        [&](auto json, auto error) { return gabion_check(path.c_str(), json, error); });
}

// Writes what can be read of a damaged store to a new one, and tells as a JSON object what is lost.
inline std::string repair(const std::string &from, const std::string &to) {
    return detail::text([&](auto json, auto error) {
        return gabion_repair(from.c_str(), to.c_str(), json, error);
    });
}

// Removes the store in a directory.
inline void destroy(const std::string &path) {
    detail::Check check;
    check(gabion_destroy(path.c_str(), check));
}

} // namespace gabion

#endif // GABION_HPP
