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
    OK(gabion_remove_expiry(own, B("e"), &is_there, &error));
    EXPECT(is_there);
    OK(gabion_remove_expiry(own, B("e"), &is_there, &error));
    EXPECT(!is_there);
    OK(gabion_expire(own, B("e"), 3600000, &is_there, &error));
    EXPECT(is_there);
    OK(gabion_expires_at(own, B("e"), &moment, &error));
    EXPECT(moment > 1600000000000 && moment < 4102444800000);
    OK(gabion_expire_at(own, B("e"), 4102444800000u, &is_there, &error));
    EXPECT(is_there);
    OK(gabion_expires_at(own, B("e"), &moment, &error));
    EXPECT(moment == 4102444800000);
    OK(gabion_expire(own, B("d"), 1, &is_there, &error));
    EXPECT(!is_there);
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
    OK(gabion_batch_put_expiring_at(batch, own, B("e"), B("5"), 4102444800000u, &error));
    EXPECT(gabion_batch_count(batch) == 7 && gabion_batch_bytes(batch) > 10);
    OK(gabion_batch_write(store, batch, "sync", &error));
    expect_value(own, "a", "1");
    expect_value(other, "b", "2");
    expect_value(own, "c", "3");
    expect_value(own, "d", NULL);
    int64_t moment = 0;
    OK(gabion_expires_at(own, B("e"), &moment, &error));
    EXPECT(moment == 4102444800000);
    OK(gabion_batch_clear(batch, &error));
    EXPECT(gabion_batch_count(batch) == 0 && gabion_batch_bytes(batch) == 0);
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
    bool is_there = false;
    OK(gabion_snapshot_contains(snapshot, own, B("c"), &is_there, &error));
    EXPECT(is_there);
    int64_t moment = 0;
    OK(gabion_put_expiring(own, B("c"), B("v"), 3600000, &error));
    OK(gabion_snapshot_expires_at(snapshot, own, B("c"), &moment, &error));
    EXPECT(moment == -1);
    OK(gabion_delete(own, B("c"), &error));

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
    OK(gabion_transaction_put_expiring_at(transaction, own, B("g"), B("7"), 4102444800000u,
                                          &error));
    int64_t moment = 0;
    OK(gabion_transaction_expires_at(transaction, own, B("g"), &moment, &error));
    EXPECT(moment == 4102444800000);
    bool is_there = false;
    OK(gabion_transaction_contains(transaction, own, B("g"), &is_there, &error));
    EXPECT(is_there);
    OK(gabion_transaction_contains(transaction, own, B("a"), &is_there, &error));
    EXPECT(!is_there);
    const uint8_t *keys[] = {(const uint8_t *)"g", (const uint8_t *)"a"};
    const size_t lens[] = {1, 1};
    gabion_values *values = NULL;
    OK(gabion_transaction_multi_get(transaction, own, keys, lens, 2, &values, &error));
    EXPECT(IS(gabion_values_at(values, 0, &len), "7"));
    EXPECT(gabion_values_at(values, 1, &len) == NULL);
    gabion_values_free(&values);
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
    FAILS(gabion_merge(other, B("a"), B("1"), &error), GABION_CODE_OTHER_MERGE_OPERATOR,
          "no merge operator");
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
    EXPECT(moment > 0 && gabion_keyspace_id(keyspace) > 0);
    char *json = NULL;
    OK(gabion_keyspace_options(keyspace, &json, &error));
    EXPECT(strstr(json, "\"default_expiry\": \"86400000ms\"") != NULL);
    gabion_free(json);
    gabion_keyspace_free(&keyspace);
    OK(gabion_keyspace_hidden(store, "notes", &keyspace, &error));
    OK(gabion_put(keyspace, B("a"), B("1"), &error));
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

static void ingests(gabion_keyspace *own) {
    OK(gabion_delete_range(own, NULL, 0, NULL, 0, &error));
    gabion_ingest *ingest = NULL;
    uint64_t pairs = 0;
    OK(gabion_ingest_begin(own, &ingest, &error));
    OK(gabion_ingest_put(ingest, B("a"), B("1"), &error));
    OK(gabion_ingest_put(ingest, B("b"), NULL, 0, &error));
    expect_value(own, "a", NULL);
    OK(gabion_ingest_finish(ingest, &pairs, &error));
    EXPECT(pairs == 2);
    expect_value(own, "a", "1");
    FAILS(gabion_ingest_put(ingest, B("c"), B("3"), &error), GABION_CODE_INVALID_ARGUMENT,
          "finished");
    gabion_ingest_free(&ingest);
    OK(gabion_ingest_begin(own, &ingest, &error));
    OK(gabion_ingest_put(ingest, B("d"), B("4"), &error));
    FAILS(gabion_ingest_put(ingest, B("c"), B("3"), &error), GABION_CODE_OUT_OF_ORDER,
          "above the key before");
    FAILS(gabion_ingest_finish(ingest, &pairs, &error), GABION_CODE_OUT_OF_ORDER,
          "above the key before");
    EXPECT(pairs == 0);
    gabion_ingest_free(&ingest);
    EXPECT(ingest == NULL);
    expect_value(own, "d", NULL);
}

// The next change, which has one operation of a kind.
static gabion_change *next_change(gabion_changes *changes, gabion_action action) {
    gabion_change *change = NULL;
    OK(gabion_changes_next(changes, 1000, &change, &error));
    EXPECT(change != NULL && gabion_change_count(change) == 1);
    EXPECT(gabion_change_action(change, 0) == action);
    EXPECT(gabion_change_action(change, 1) == GABION_ACTION_NONE);
    return change;
}

static void changes(gabion_store *store, gabion_keyspace *own) {
    char *before = NULL;
    OK(gabion_position(store, &before, &error));
    gabion_consumer *consumer = NULL;
    OK(gabion_consumer_open(store, "mirror", &consumer, &error));
    OK(gabion_put_expiring_at(own, B("a"), B("1"), 4102444800000u, &error));
    OK(gabion_delete(own, B("a"), &error));
    OK(gabion_delete_range(own, B("b"), B("c"), &error));
    gabion_keyspace *sums = NULL;
    gabion_options *options = gabion_options_new();
    OK(gabion_options_set(options, "merge", "append:+", &error));
    OK(gabion_keyspace_open(store, "told", options, &sums, &error));
    gabion_options_free(&options);
    OK(gabion_put(sums, B("k"), B("1"), &error));
    OK(gabion_flush(store, &error));
    OK(gabion_merge(sums, B("k"), B("2"), &error));
    uint32_t id = gabion_keyspace_id(sums);
    gabion_ingest *ingest = NULL;
    uint64_t pairs = 0;
    OK(gabion_ingest_begin(sums, &ingest, &error));
    OK(gabion_ingest_put(ingest, B("x"), B("1"), &error));
    OK(gabion_ingest_put(ingest, B("y"), B("2"), &error));
    OK(gabion_ingest_finish(ingest, &pairs, &error));
    gabion_ingest_free(&ingest);
    gabion_keyspace_free(&sums);
    OK(gabion_keyspace_drop(store, "told", &error));

    options = gabion_options_new();
    OK(gabion_options_set(options, "durable_only", "false", &error));
    gabion_changes *changes = NULL;
    OK(gabion_changes_new(store, before, options, &changes, &error));
    gabion_options_free(&options);
    size_t len = 0;
    gabion_change *change = next_change(changes, GABION_ACTION_PUT);
    EXPECT(IS((const uint8_t *)gabion_change_keyspace(change, 0, &len), "default"));
    EXPECT(gabion_change_keyspace_id(change, 0) == gabion_keyspace_id(own));
    EXPECT(IS(gabion_change_key(change, 0, &len), "a"));
    EXPECT(IS(gabion_change_value(change, 0, &len), "1"));
    EXPECT(gabion_change_expires_at(change, 0) == 4102444800000);
    EXPECT(gabion_change_end(change, 0, &len) == NULL && len == 0);
    gabion_change_free(&change);
    change = next_change(changes, GABION_ACTION_DELETE);
    EXPECT(gabion_change_value(change, 0, &len) == NULL);
    gabion_change_free(&change);
    change = next_change(changes, GABION_ACTION_DELETE_RANGE);
    EXPECT(IS(gabion_change_key(change, 0, &len), "b"));
    EXPECT(IS(gabion_change_end(change, 0, &len), "c"));
    OK(gabion_consumer_acknowledge(consumer, gabion_change_position(change), &error));
    gabion_change_free(&change);
    EXPECT(change == NULL && gabion_change_position(change) == NULL);
    change = next_change(changes, GABION_ACTION_KEYSPACE_CREATED);
    EXPECT(gabion_change_keyspace_id(change, 0) == id);
    EXPECT(gabion_change_key(change, 0, &len) == NULL);
    gabion_change_free(&change);
    change = next_change(changes, GABION_ACTION_PUT);
    EXPECT(gabion_change_expires_at(change, 0) == -1);
    gabion_change_free(&change);
    change = next_change(changes, GABION_ACTION_MERGE);
    EXPECT(gabion_change_base(change, 0) > 0);
    EXPECT(gabion_change_operand_count(change, 0) == 1);
    EXPECT(IS(gabion_change_operand(change, 0, 0, &len), "2"));
    EXPECT(gabion_change_operand(change, 0, 1, &len) == NULL);
    gabion_change_free(&change);
    change = next_change(changes, GABION_ACTION_INGESTED);
    EXPECT(gabion_change_pairs(change, 0) == 2);
    EXPECT(IS(gabion_change_end(change, 0, &len), "y"));
    gabion_change_free(&change);
    change = next_change(changes, GABION_ACTION_KEYSPACE_DROPPED);
    gabion_change_free(&change);
    OK(gabion_changes_next(changes, 1, &change, &error));
    EXPECT(change == NULL);
    char *position = NULL;
    OK(gabion_changes_position(changes, &position, &error));
    gabion_changes_free(&changes);

    // A consumer goes on behind what it has acknowledged.
    OK(gabion_consumer_changes(consumer, NULL, &changes, &error));
    change = next_change(changes, GABION_ACTION_KEYSPACE_CREATED);
    gabion_change_free(&change);
    gabion_changes_free(&changes);
    OK(gabion_consumer_acknowledge(consumer, position, &error));
    char *acknowledged = NULL;
    OK(gabion_consumer_position(consumer, &acknowledged, &error));
    EXPECT(strcmp(acknowledged, position) == 0);
    gabion_free(acknowledged);
    gabion_free(position);
    char *json = NULL;
    OK(gabion_consumers(store, &json, &error));
    EXPECT(strstr(json, "\"mirror\"") != NULL);
    gabion_free(json);
    OK(gabion_consumer_drop(store, "mirror", &error));
    FAILS(gabion_consumer_acknowledge(consumer, "1.0.0", &error), GABION_CODE_NO_SUCH_CONSUMER,
          "mirror");
    gabion_consumer_free(&consumer);

    gabion_snapshot *snapshot = NULL;
    OK(gabion_snapshot_new(store, &snapshot, &error));
    OK(gabion_position_after(before, snapshot, &position, &error));
    OK(gabion_changes_new(store, position, NULL, &changes, &error));
    OK(gabion_changes_next(changes, 0, &change, &error));
    EXPECT(change == NULL);
    gabion_changes_free(&changes);
    gabion_free(position);
    gabion_free(before);
    gabion_snapshot_free(&snapshot);

    FAILS(gabion_changes_new(store, "soon", NULL, &changes, &error), GABION_CODE_INVALID_ARGUMENT,
          "three numbers");
    OK(gabion_changes_new(store, "900.0.9000000", NULL, &changes, &error));
    EXPECT(gabion_changes_next(changes, 0, &change, &error) == GABION_CODE_CHANGES_GONE);
    EXPECT(gabion_oldest_position(store, &position, NULL) == GABION_CODE_OK);
    EXPECT(strcmp(gabion_error_position(error), position) == 0);
    EXPECT(strlen(gabion_error_position(NULL)) == 0);
    gabion_error_free(&error);
    gabion_free(position);
    gabion_changes_free(&changes);
}

// Ends an operation when it is done.
static bool go_on(void *context, uint64_t bytes, uint64_t bytes_total) {
    int *calls = context;
    *calls += 1;
    return bytes <= bytes_total && *calls < 1000000;
}

static bool give_up(void *context, uint64_t bytes, uint64_t bytes_total) {
    (void)context;
    (void)bytes;
    (void)bytes_total;
    return false;
}

static void backups(gabion_store *store, const char *path) {
    char repository[4096];
    EXPECT(snprintf(repository, sizeof repository, "%s.backups", path) < (int)sizeof repository);
    char restored[4096];
    EXPECT(snprintf(restored, sizeof restored, "%s.restored", path) < (int)sizeof restored);
    char *json = NULL;
    FAILS(gabion_backup_list(repository, &json, &error), GABION_CODE_NOT_A_REPOSITORY, "exist");
    gabion_options *options = gabion_options_new();
    OK(gabion_options_set(options, "bytes_per_second_max", "1GiB", &error));
    int calls = 0;
    OK(gabion_backup(store, repository, options, go_on, &calls, &json, &error));
    EXPECT(calls > 0 && strstr(json, "\"id\": 1") != NULL);
    gabion_free(json);
    FAILS(gabion_backup(store, repository, options, give_up, NULL, &json, &error),
          GABION_CODE_CANCELLED, "cancelled");
    EXPECT(json == NULL);
    OK(gabion_backup(store, repository, NULL, NULL, NULL, &json, &error));
    gabion_free(json);
    OK(gabion_backup_list(repository, &json, &error));
    EXPECT(strstr(json, "\"id\": 2") != NULL);
    gabion_free(json);
    OK(gabion_backup_verify(repository, 0, options, NULL, NULL, &json, &error));
    EXPECT(strstr(json, "\"backups\": 2") != NULL && strstr(json, "\"problems\": []") != NULL);
    gabion_free(json);
    FAILS(gabion_backup_verify(repository, 3, NULL, NULL, NULL, &json, &error),
          GABION_CODE_NO_SUCH_BACKUP, "1, 2");
    OK(gabion_backup_restore(repository, 1, restored, options, go_on, &calls, &error));
    FAILS(gabion_backup_restore(repository, 1, restored, NULL, NULL, NULL, &error),
          GABION_CODE_MEDIA, "restored");
    gabion_options_free(&options);
    options = gabion_options_new();
    OK(gabion_options_set(options, "newest", "1", &error));
    OK(gabion_backup_prune(repository, options, &json, &error));
    EXPECT(strstr(json, "\"removed\": [\n    1\n  ]") != NULL);
    gabion_free(json);
    gabion_options_free(&options);
    OK(gabion_destroy(restored, &error));
}

static void followers(gabion_store *store, gabion_keyspace *own, const char *path) {
    EXPECT(strcmp(gabion_engine(store), "wip") == 0 && gabion_engine(NULL) == NULL);
    char *json = NULL;
    OK(gabion_capabilities(store, &json, &error));
    EXPECT(strstr(json, "\"followers\": true") != NULL);
    gabion_free(json);
    gabion_options *options = gabion_options_new();
    OK(gabion_options_set(options, "follower", "true", &error));
    gabion_store *follower = NULL;
    OK(gabion_open(path, options, &follower, &error));
    gabion_options_free(&options);
    gabion_keyspace *followed = NULL;
    OK(gabion_keyspace_default(follower, &followed, &error));
    OK(gabion_put(own, B("new"), B("1"), &error));
    expect_value(followed, "new", NULL);
    bool is_new = false;
    OK(gabion_catch_up(follower, &is_new, &error));
    EXPECT(is_new);
    expect_value(followed, "new", "1");
    OK(gabion_catch_up(follower, &is_new, &error));
    EXPECT(!is_new);
    OK(gabion_catch_up(store, &is_new, &error));
    EXPECT(!is_new);
    FAILS(gabion_put(followed, B("a"), B("1"), &error), GABION_CODE_READ_ONLY, "opened read-only");
    gabion_keyspace_free(&followed);
    OK(gabion_close(follower, &error));
    FAILS(gabion_catch_up(follower, &is_new, &error), GABION_CODE_CLOSED, "closed");
    gabion_store_free(&follower);
}

static void refusals(gabion_store *store, gabion_keyspace *own) {
    gabion_snapshot *snapshot = NULL;
    OK(gabion_snapshot_new(store, &snapshot, &error));
    FAILS(gabion_put((gabion_keyspace *)snapshot, B("a"), B("1"), &error),
          GABION_CODE_INVALID_ARGUMENT, "not of kind keyspace");
    FAILS(gabion_put(NULL, B("a"), B("1"), &error), GABION_CODE_INVALID_ARGUMENT, "NULL");
    FAILS(gabion_put(own, NULL, 1, B("1"), &error), GABION_CODE_INVALID_ARGUMENT, "NULL");
    FAILS(gabion_put(own, (const uint8_t *)"a", SIZE_MAX, B("1"), &error), GABION_CODE_LIMIT,
          "65535");
    EXPECT(gabion_put(NULL, B("a"), B("1"), NULL) == GABION_CODE_INVALID_ARGUMENT);
    FAILS(gabion_get(own, B("a"), NULL, NULL, &error), GABION_CODE_INVALID_ARGUMENT, "value");
    FAILS(gabion_flush((gabion_store *)own, &error), GABION_CODE_INVALID_ARGUMENT,
          "not of kind store");
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
    ingests(own);
    changes(store, own);
    backups(store, argv[1]);
    followers(store, own, argv[1]);
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
    char repaired[4096];
    EXPECT(snprintf(repaired, sizeof repaired, "%s.repaired", argv[1]) < (int)sizeof repaired);
    OK(gabion_repair(copy, repaired, &json, &error));
    EXPECT(strstr(json, "\"lost\": []") != NULL);
    gabion_free(json);
    OK(gabion_destroy(repaired, &error));
    OK(gabion_destroy(copy, &error));
    FAILS(gabion_repair(copy, repaired, &json, &error), GABION_CODE_NOT_A_STORE, "copy");
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
