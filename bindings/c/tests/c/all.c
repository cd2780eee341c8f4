// Calls every function of gabion.h, in the order in which a program would, and compares what comes
// back. Prints nothing; a failure names its line.
//
// Usage: all DIRECTORY

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gabion.h>

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

// The call goes well.
#define OK(call)                                                                                   \
    do {                                                                                           \
        gabion_code code_ = (call);                                                                \
        if (code_ != GABION_CODE_OK) {                                                             \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #call, gabion_error_message(error));     \
            exit(1);                                                                               \
        }                                                                                          \
        EXPECT(error == NULL);                                                                     \
    } while (0)

// The call fails, with a sentence that has a part.
#define FAILS(call, expected, part)                                                                \
    do {                                                                                           \
        EXPECT((call) == (expected));                                                              \
        EXPECT(gabion_error_code(error) == (expected));                                            \
        EXPECT(strlen(gabion_error_name(error)) > 0);                                              \
        if (strstr(gabion_error_message(error), (part)) == NULL) {                                 \
            fprintf(stderr, "line %d: %s\n", __LINE__, gabion_error_message(error));               \
            exit(1);                                                                               \
        }                                                                                          \
        gabion_error_free(&error);                                                                 \
        EXPECT(error == NULL);                                                                     \
    } while (0)

// A string literal as bytes and a length.
#define B(text) (const uint8_t *)(text), sizeof(text) - 1

// Whether a call that puts a length into `len` returns a text.
#define IS(call, text) (found_ = (call), is(found_, len, (text)))

static gabion_error *error;
static const uint8_t *found_;

static bool is(const uint8_t *data, size_t len, const char *text) {
    return data != NULL && len == strlen(text) && memcmp(data, text, len) == 0;
}

// Compares the value of a key with a text, NULL for none.
static void expect_value(gabion_keyspace *keyspace, const char *key, const char *text) {
    uint8_t *value = NULL;
    size_t len = 77;
    OK(gabion_get(keyspace, (const uint8_t *)key, strlen(key), &value, &len, &error));
    EXPECT(text == NULL ? value == NULL && len == 0 : is(value, len, text) && value[len] == 0);
    gabion_free(value);
}

static void reads_and_writes(gabion_keyspace *own) {
    OK(gabion_put(own, B("a"), B("1"), &error));
    OK(gabion_put_with(own, B("b"), B("2"), "sync", &error));
    OK(gabion_put_with(own, B("c"), NULL, 0, NULL, &error));
    FAILS(gabion_put_with(own, B("c"), B("3"), "soon", &error), GABION_CODE_INVALID_OPTION, "soon");
    expect_value(own, "a", "1");
    expect_value(own, "c", "");
    expect_value(own, "d", NULL);

    uint8_t buffer[4] = "xxxx";
    size_t len = 0;
    OK(gabion_get_into(own, B("a"), buffer, sizeof buffer, &len, &error));
    EXPECT(len == 1 && buffer[0] == '1' && buffer[1] == 'x');
    OK(gabion_get_into(own, B("a"), NULL, 0, &len, &error));
    EXPECT(len == 1);
    OK(gabion_get_into(own, B("d"), buffer, sizeof buffer, &len, &error));
    EXPECT(len == SIZE_MAX);

    gabion_pinned *pinned = NULL;
    OK(gabion_get_pinned(own, B("b"), &pinned, &error));
    EXPECT(IS(gabion_pinned_data(pinned, &len), "2"));
    gabion_pinned_free(&pinned);
    EXPECT(pinned == NULL);
    gabion_pinned_free(&pinned);
    OK(gabion_get_pinned(own, B("d"), &pinned, &error));
    EXPECT(pinned == NULL && gabion_pinned_data(pinned, &len) == NULL);

    bool is_there = false;
    OK(gabion_contains(own, B("c"), &is_there, &error));
    EXPECT(is_there);

    const uint8_t *keys[] = {(const uint8_t *)"b", (const uint8_t *)"d", (const uint8_t *)"c"};
    const size_t lens[] = {1, 1, 1};
    gabion_values *values = NULL;
    OK(gabion_multi_get(own, NULL, keys, lens, 3, &values, &error));
    EXPECT(gabion_values_count(values) == 3);
    EXPECT(IS(gabion_values_at(values, 0, &len), "2"));
    EXPECT(gabion_values_at(values, 1, &len) == NULL);
    EXPECT(IS(gabion_values_at(values, 2, &len), ""));
    EXPECT(gabion_values_at(values, 3, &len) == NULL);
    gabion_values_free(&values);

    int64_t moment = 0;
    OK(gabion_put_expiring(own, B("e"), B("5"), 3600000, &error));
    OK(gabion_expires_at(own, B("e"), &moment, &error));
    EXPECT(moment > 1600000000000);
    OK(gabion_put_expiring_at(own, B("e"), B("5"), 4102444800000u, &error));
    OK(gabion_expires_at(own, B("e"), &moment, &error));
    EXPECT(moment == 4102444800000);
    OK(gabion_put_expiring_at(own, B("e"), B("5"), 1000, &error));
    expect_value(own, "e", NULL);
    OK(gabion_expires_at(own, B("a"), &moment, &error));
    EXPECT(moment == -1);

    bool is_changed = true;
    OK(gabion_compare_and_swap(own, B("a"), B("2"), B("3"), &is_changed, &error));
    EXPECT(!is_changed);
    OK(gabion_compare_and_swap(own, B("a"), B("1"), B("3"), &is_changed, &error));
    EXPECT(is_changed);
    OK(gabion_compare_and_swap(own, B("d"), NULL, 0, B("4"), &is_changed, &error));
    EXPECT(is_changed);
    OK(gabion_compare_and_swap(own, B("d"), B("4"), NULL, 0, &is_changed, &error));
    EXPECT(is_changed);
    expect_value(own, "a", "3");
    expect_value(own, "d", NULL);

    OK(gabion_delete(own, B("a"), &error));
    OK(gabion_delete_range(own, B("b"), B("c"), &error));
    expect_value(own, "b", NULL);
    expect_value(own, "c", "");
    OK(gabion_delete_range(own, NULL, 0, NULL, 0, &error));
    expect_value(own, "c", NULL);
    OK(gabion_compact(own, NULL, 0, NULL, 0, &error));
}

static void batches(gabion_store *store, gabion_keyspace *own, gabion_keyspace *other) {
    gabion_batch *batch = gabion_batch_new();
    OK(gabion_batch_put(batch, own, B("a"), B("1"), &error));
    OK(gabion_batch_put(batch, other, B("b"), B("2"), &error));
    OK(gabion_batch_put_expiring(batch, own, B("c"), B("3"), 3600000, &error));
    OK(gabion_batch_put(batch, own, B("d"), B("4"), &error));
    OK(gabion_batch_delete(batch, own, B("d"), &error));
    OK(gabion_batch_delete_range(batch, own, B("x"), NULL, 0, &error));
    EXPECT(gabion_batch_count(batch) == 6);
    OK(gabion_batch_write(store, batch, "sync", &error));
    expect_value(own, "a", "1");
    expect_value(other, "b", "2");
    expect_value(own, "c", "3");
    expect_value(own, "d", NULL);
    OK(gabion_batch_clear(batch, &error));
    EXPECT(gabion_batch_count(batch) == 0);
    OK(gabion_batch_write(store, batch, NULL, &error));
    gabion_batch_free(&batch);
}

static void expect_at(gabion_iterator *iterator, const char *key) {
    size_t len = 0;
    EXPECT(gabion_iterator_valid(iterator) == (key != NULL));
    const uint8_t *found = gabion_iterator_key(iterator, &len);
    EXPECT(key == NULL ? found == NULL : is(found, len, key));
    found = gabion_iterator_value(iterator, &len);
    EXPECT((key == NULL) == (found == NULL));
}

static void iterators(gabion_store *store, gabion_keyspace *own) {
    OK(gabion_delete_range(own, NULL, 0, NULL, 0, &error));
    for (char key = 'a'; key <= 'e'; key++) {
        OK(gabion_put(own, (const uint8_t *)&key, 1, B("v"), &error));
    }
    gabion_snapshot *snapshot = NULL;
    OK(gabion_snapshot_new(store, &snapshot, &error));
    OK(gabion_delete(own, B("c"), &error));

    gabion_iterator *iterator = NULL;
    OK(gabion_iterator_new(own, snapshot, B("b"), B("e"), &iterator, &error));
    expect_at(iterator, NULL);
    OK(gabion_iterator_first(iterator, &error));
    expect_at(iterator, "b");
    OK(gabion_iterator_next(iterator, &error));
    expect_at(iterator, "c");
    OK(gabion_iterator_prev(iterator, &error));
    expect_at(iterator, "b");
    OK(gabion_iterator_last(iterator, &error));
    expect_at(iterator, "d");
    OK(gabion_iterator_next(iterator, &error));
    expect_at(iterator, NULL);
    OK(gabion_iterator_seek(iterator, B("a"), &error));
    expect_at(iterator, "b");
    OK(gabion_iterator_seek_back(iterator, B("cc"), &error));
    expect_at(iterator, "c");

    uint8_t *value = NULL;
    size_t len = 0;
    OK(gabion_snapshot_get(snapshot, own, B("c"), &value, &len, &error));
    EXPECT(is(value, len, "v"));
    gabion_free(value);
    gabion_pinned *pinned = NULL;
    OK(gabion_snapshot_get_pinned(snapshot, own, B("c"), &pinned, &error));
    EXPECT(pinned != NULL);
    const uint8_t *keys[] = {(const uint8_t *)"c"};
    const size_t lens[] = {1};
    gabion_values *values = NULL;
    OK(gabion_multi_get(own, snapshot, keys, lens, 1, &values, &error));
    EXPECT(IS(gabion_values_at(values, 0, &len), "v"));
    gabion_values_free(&values);

    // The iterator and the value outlive the snapshot.
    gabion_snapshot_free(&snapshot);
    OK(gabion_iterator_next(iterator, &error));
    expect_at(iterator, "d");
    EXPECT(IS(gabion_pinned_data(pinned, &len), "v"));
    gabion_pinned_free(&pinned);
    gabion_iterator_free(&iterator);
}

static void transactions(gabion_store *store, gabion_keyspace *own) {
    uint8_t *value = NULL;
    size_t len = 0;
    gabion_options *options = gabion_options_new();
    OK(gabion_options_set(options, "isolation", "snapshot", &error));
    gabion_transaction *transaction = NULL;
    OK(gabion_transaction_begin(store, options, &transaction, &error));
    gabion_options_free(&options);
    OK(gabion_transaction_get_for_update(transaction, own, B("a"), &value, &len, &error));
    EXPECT(is(value, len, "v"));
    gabion_free(value);
    OK(gabion_transaction_put(transaction, own, B("a"), B("w"), &error));
    uint64_t savepoint = 0;
    OK(gabion_transaction_savepoint(transaction, &savepoint, &error));
    OK(gabion_transaction_delete_range(transaction, own, NULL, 0, B("c"), &error));
    OK(gabion_transaction_put_expiring(transaction, own, B("f"), B("6"), 3600000, &error));
    OK(gabion_transaction_get(transaction, own, B("a"), &value, &len, &error));
    EXPECT(value == NULL);

    gabion_iterator *iterator = NULL;
    OK(gabion_transaction_iterator(transaction, own, NULL, 0, NULL, 0, &iterator, &error));
    OK(gabion_iterator_first(iterator, &error));
    expect_at(iterator, "d");
    OK(gabion_transaction_rollback_to(transaction, savepoint, &error));
    OK(gabion_iterator_prev(iterator, &error));
    expect_at(iterator, "b");
    FAILS(gabion_transaction_rollback_to(transaction, savepoint + 1, &error),
          GABION_CODE_NO_SUCH_SAVEPOINT, "savepoint");
    OK(gabion_transaction_delete(transaction, own, B("b"), &error));
    OK(gabion_transaction_commit(transaction, "sync", &error));
    FAILS(gabion_iterator_next(iterator, &error), GABION_CODE_ENDED, "begin another");
    gabion_iterator_free(&iterator);
    FAILS(gabion_transaction_commit(transaction, NULL, &error), GABION_CODE_ENDED, "committed");
    gabion_transaction_free(&transaction);
    expect_value(own, "a", "w");
    expect_value(own, "b", NULL);

    OK(gabion_transaction_begin(store, NULL, &transaction, &error));
    OK(gabion_transaction_get(transaction, own, B("a"), &value, &len, &error));
    gabion_free(value);
    OK(gabion_transaction_put(transaction, own, B("b"), B("1"), &error));
    OK(gabion_put(own, B("a"), B("between"), &error));
    FAILS(gabion_transaction_commit(transaction, NULL, &error), GABION_CODE_CONFLICT, "\"a\"");
    gabion_transaction_free(&transaction);
    expect_value(own, "b", NULL);

    OK(gabion_transaction_begin(store, NULL, &transaction, &error));
    OK(gabion_transaction_rollback(transaction, &error));
    FAILS(gabion_transaction_rollback(transaction, &error), GABION_CODE_ENDED, "rolled back");
    gabion_transaction_free(&transaction);
}

static void merges(gabion_store *store, gabion_keyspace *other) {
    gabion_keyspace *own = NULL;
    gabion_options *options = gabion_options_new();
    OK(gabion_options_set(options, "merge", "append:+", &error));
    OK(gabion_keyspace_open(store, "sums", options, &own, &error));
    gabion_options_free(&options);
    OK(gabion_merge(own, B("a"), B("1"), &error));
    gabion_batch *batch = gabion_batch_new();
    OK(gabion_batch_merge(batch, own, B("a"), B("2"), &error));
    OK(gabion_batch_write(store, batch, NULL, &error));
    gabion_batch_free(&batch);
    gabion_transaction *transaction = NULL;
    OK(gabion_transaction_begin(store, NULL, &transaction, &error));
    OK(gabion_transaction_merge(transaction, own, B("a"), B("4"), &error));
    OK(gabion_merge(own, B("a"), B("3"), &error));
    OK(gabion_transaction_commit(transaction, NULL, &error));
    gabion_transaction_free(&transaction);
    expect_value(own, "a", "1+2+3+4");
    FAILS(gabion_merge(other, B("a"), B("1"), &error), GABION_CODE_OTHER_MERGE_OPERATOR, "no merge operator");
    gabion_keyspace_free(&own);
    OK(gabion_keyspace_drop(store, "sums", &error));
}

static void keyspaces(gabion_store *store) {
    gabion_keyspace *keyspace = NULL;
    gabion_options *options = gabion_options_new();
    OK(gabion_options_set(options, "default_expiry", "24h", &error));
    OK(gabion_keyspace_open(store, "sessions", options, &keyspace, &error));
    gabion_options_free(&options);
    int64_t moment = 0;
    OK(gabion_put(keyspace, B("a"), B("1"), &error));
    OK(gabion_expires_at(keyspace, B("a"), &moment, &error));
    EXPECT(moment > 0);
    gabion_keyspace_free(&keyspace);

    OK(gabion_keyspace_existing(store, "sessions", &keyspace, &error));
    size_t len = 0;
    EXPECT(IS((const uint8_t *)gabion_keyspace_name(keyspace, &len), "sessions"));
    gabion_values *names = NULL;
    OK(gabion_keyspace_names(store, &names, &error));
    EXPECT(gabion_values_count(names) == 3);
    EXPECT(IS(gabion_values_at(names, 0, &len), "default"));
    gabion_values_free(&names);
    OK(gabion_keyspace_drop(store, "sessions", &error));
    FAILS(gabion_put(keyspace, B("a"), B("1"), &error), GABION_CODE_KEYSPACE_DROPPED, "dropped");
    gabion_keyspace_free(&keyspace);
    FAILS(gabion_keyspace_existing(store, "sessions", &keyspace, &error),
          GABION_CODE_NO_SUCH_KEYSPACE, "sessions");
    EXPECT(keyspace == NULL);
}

static void refusals(gabion_store *store, gabion_keyspace *own) {
    gabion_snapshot *snapshot = NULL;
    OK(gabion_snapshot_new(store, &snapshot, &error));
    FAILS(gabion_put((gabion_keyspace *)snapshot, B("a"), B("1"), &error),
          GABION_CODE_INVALID_ARGUMENT, "no keyspace");
    FAILS(gabion_put(NULL, B("a"), B("1"), &error), GABION_CODE_INVALID_ARGUMENT, "NULL");
    FAILS(gabion_put(own, NULL, 1, B("1"), &error), GABION_CODE_INVALID_ARGUMENT, "NULL");
    FAILS(gabion_put(own, (const uint8_t *)"a", SIZE_MAX, B("1"), &error), GABION_CODE_LIMIT,
          "65535");
    EXPECT(gabion_put(NULL, B("a"), B("1"), NULL) == GABION_CODE_INVALID_ARGUMENT);
    FAILS(gabion_get(own, B("a"), NULL, NULL, &error), GABION_CODE_INVALID_ARGUMENT, "value");
    FAILS(gabion_flush((gabion_store *)own, &error), GABION_CODE_INVALID_ARGUMENT, "no store");
    gabion_snapshot_free(&snapshot);
    gabion_snapshot_free(&snapshot);
    gabion_snapshot_free(NULL);
}

int main(int argc, char **argv) {
    EXPECT(argc == 2);
    EXPECT(gabion_abi_version() == GABION_ABI_VERSION && strlen(gabion_version()) >= 5);
    EXPECT(gabion_error_code(NULL) == GABION_CODE_OK);
    size_t options_count = 0;
    while (gabion_option_name(options_count) != NULL) {
        options_count++;
    }
    EXPECT(options_count > 20);

    gabion_options *options = gabion_options_new();
    gabion_store *store = NULL;
    OK(gabion_options_set(options, "colour", "grey", &error));
    FAILS(gabion_open(argv[1], options, &store, &error), GABION_CODE_INVALID_OPTION, "colour");
    gabion_options_free(&options);
    options = gabion_options_new();
    OK(gabion_options_set(options, "memory_bytes_max", "64MiB", &error));
    OK(gabion_open(argv[1], options, &store, &error));
    gabion_options_free(&options);
    gabion_store *second = NULL;
    FAILS(gabion_open(argv[1], NULL, &second, &error), GABION_CODE_LOCKED, "open");
    EXPECT(second == NULL);

    gabion_keyspace *own = NULL;
    gabion_keyspace *other = NULL;
    OK(gabion_keyspace_default(store, &own, &error));
    OK(gabion_keyspace_open(store, "other", NULL, &other, &error));
    reads_and_writes(own);
    batches(store, own, other);
    iterators(store, own);
    transactions(store, own);
    merges(store, other);
    keyspaces(store);
    refusals(store, own);

    OK(gabion_flush(store, &error));
    OK(gabion_persist(store, "sync", &error));
    OK(gabion_wait_idle(store, &error));
    char copy[4096];
    EXPECT(snprintf(copy, sizeof copy, "%s.copy", argv[1]) < (int)sizeof copy);
    OK(gabion_checkpoint(store, copy, &error));
    char *json = NULL;
    OK(gabion_stats(store, &json, &error));
    EXPECT(strstr(json, "\"user_bytes\"") != NULL);
    gabion_free(json);
    OK(gabion_check(copy, &json, &error));
    EXPECT(strstr(json, "\"problems\": []") != NULL);
    gabion_free(json);
    OK(gabion_destroy(copy, &error));
    FAILS(gabion_check(copy, &json, &error), GABION_CODE_NOT_A_STORE, "not a Gabion store");

    OK(gabion_close(store, &error));
    FAILS(gabion_flush(store, &error), GABION_CODE_CLOSED, "closed");
    FAILS(gabion_put(own, B("a"), B("1"), &error), GABION_CODE_CLOSED, "closed");
    gabion_store_free(&store);
    FAILS(gabion_put(other, B("a"), B("1"), &error), GABION_CODE_CLOSED, "closed");
    gabion_keyspace_free(&own);
    gabion_keyspace_free(&other);
    return 0;
}
