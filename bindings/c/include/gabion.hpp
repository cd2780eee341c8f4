// Gabion for C++17: gabion.h with owners in place of handles, and exceptions in place of codes.
//
// Every class owns one handle, moves and does not copy. Objects may be destroyed in any order, as
// handles may be freed. What gabion.h says about threads holds here as well. Keys and values go in
// as std::string_view, which may hold any bytes.

#ifndef GABION_HPP
#define GABION_HPP

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "gabion.h"

namespace gabion {

// What went wrong: a code, and a sentence.
class Error : public std::runtime_error {
public:
    Error(gabion_code code, const std::string &message)
        : std::runtime_error(message), code_(code) {}

    gabion_code code() const noexcept { return code_; }

    // Whether a transaction is to be run again.
    bool is_conflict() const noexcept {
        return code_ == GABION_CODE_CONFLICT || code_ == GABION_CODE_TRANSACTION_TOO_OLD;
    }

private:
    gabion_code code_;
};

namespace detail {

// Takes the error object of a call, and throws where there is one.
class Check {
public:
    Check() = default;
    Check(const Check &) = delete;
    Check &operator=(const Check &) = delete;
    ~Check() { gabion_error_free(&error_); }

    operator gabion_error **() { return &error_; }

    void operator()(gabion_code code) const {
        if (code != GABION_CODE_OK) {
            throw Error(code, gabion_error_message(error_));
        }
    }

private:
    gabion_error *error_ = nullptr;
};

template <auto Free> struct Freer {
    template <typename Handle> void operator()(Handle *handle) const noexcept { Free(&handle); }
};

template <typename Handle, auto Free> using Owned = std::unique_ptr<Handle, Freer<Free>>;

struct FreeBytes {
    void operator()(void *memory) const noexcept { gabion_free(memory); }
};

inline const std::uint8_t *bytes(std::string_view text) {
    return reinterpret_cast<const std::uint8_t *>(text.data());
}

inline std::string_view view(const std::uint8_t *data, std::size_t len) {
    return {reinterpret_cast<const char *>(data), len};
}

// An end of a range: NULL stands for none, so that an empty key needs a place.
inline const std::uint8_t *end(const std::optional<std::string_view> &key) {
    if (!key) {
        return nullptr;
    }
    return key->data() == nullptr ? bytes("") : bytes(*key);
}

inline std::size_t size(const std::optional<std::string_view> &key) {
    return key ? key->size() : 0;
}

inline const char *word(const std::string &durability) {
    return durability.empty() ? nullptr : durability.c_str();
}

// The value that a function hands out as a copy.
template <typename Get> std::optional<std::string> copied(Get &&get) {
    std::uint8_t *value = nullptr;
    std::size_t len = 0;
    Check check;
    gabion_error **error = check;
    check(get(&value, &len, error));
    std::unique_ptr<std::uint8_t, FreeBytes> owned(value);
    if (value == nullptr) {
        return std::nullopt;
    }
    return std::string(view(value, len));
}

} // namespace detail

// An end of a range of keys, or none.
using Bound = std::optional<std::string_view>;

// Options by name and value, such as {"memory_bytes_max", "256MiB"}.
class Options {
public:
    Options() : handle_(gabion_options_new()) {}

    Options(std::initializer_list<std::pair<const char *, const char *>> pairs) : Options() {
        for (const auto &[name, value] : pairs) {
            set(name, value);
        }
    }

    Options &set(const char *name, const char *value) {
        detail::Check check;
        check(gabion_options_set(handle_.get(), name, value, check));
        return *this;
    }

    const gabion_options *get() const { return handle_.get(); }

private:
    detail::Owned<gabion_options, gabion_options_free> handle_;
};

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

// A view of all keyspaces as they were at one moment.
class Snapshot {
public:
    explicit Snapshot(gabion_snapshot *handle) : handle_(handle) {}

    std::optional<std::string> get(const Keyspace &keyspace, std::string_view key) const;

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

    // The durability is "sync", "interval:MILLISECONDS" or "buffered"; empty for the store's.
    void put(std::string_view key, std::string_view value, const std::string &durability = {}) {
        detail::Check check;
        check(gabion_put_with(get(), detail::bytes(key), key.size(), detail::bytes(value),
                              value.size(), detail::word(durability), check));
    }

    void put_expiring(std::string_view key, std::string_view value,
                      std::chrono::milliseconds after) {
        detail::Check check;
        auto ms = static_cast<std::uint64_t>(after.count() < 0 ? 0 : after.count());
        check(gabion_put_expiring(get(), detail::bytes(key), key.size(), detail::bytes(value),
                                  value.size(), ms, check));
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

// Writes that take effect together.
class Batch {
public:
    Batch() : handle_(gabion_batch_new()) {}

    void put(const Keyspace &keyspace, std::string_view key, std::string_view value) {
        detail::Check check;
        check(gabion_batch_put(handle_.get(), keyspace.get(), detail::bytes(key), key.size(),
                               detail::bytes(value), value.size(), check));
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

    // Counts and sizes as a JSON object.
    std::string stats() const {
        char *json = nullptr;
        detail::Check check;
        check(gabion_stats(handle_.get(), &json, check));
        std::unique_ptr<char, detail::FreeBytes> owned(json);
        return json;
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

} // namespace gabion

#endif // GABION_HPP
