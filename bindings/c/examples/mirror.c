// Keeps a copy of a store by its changes. The second round copies only what the first one did not.
//
// Usage: mirror DIRECTORY

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gabion.h>

// Ends the program with the sentence of an error.
static void check(gabion_code code, gabion_error **error) {
    if (code == GABION_CODE_OK) {
        return;
    }
    fprintf(stderr, "%s: %s\n", gabion_error_name(*error), gabion_error_message(*error));
    gabion_error_free(error);
    exit(1);
}

static gabion_keyspace *open_at(const char *directory, const char *name, gabion_store **store) {
    gabion_error *error = NULL;
    char path[4096];
    snprintf(path, sizeof path, "%s.%s", directory, name);
    check(gabion_open(path, NULL, store, &error), &error);
    gabion_keyspace *keyspace = NULL;
    check(gabion_keyspace_default(*store, &keyspace, &error), &error);
    return keyspace;
}

static void put(gabion_keyspace *keyspace, const char *key, const char *value) {
    gabion_error *error = NULL;
    check(gabion_put(keyspace, (const uint8_t *)key, strlen(key), (const uint8_t *)value,
                     strlen(value), &error),
          &error);
}

// Does to the copy what an operation has done to the original.
static void apply(const gabion_change *change, size_t index, gabion_keyspace *copy) {
    gabion_error *error = NULL;
    size_t key_len = 0;
    size_t other_len = 0;
    const uint8_t *key = gabion_change_key(change, index, &key_len);
    const uint8_t *other = NULL;
    switch (gabion_change_action(change, index)) {
    case GABION_ACTION_PUT:
        other = gabion_change_value(change, index, &other_len);
        check(gabion_put(copy, key, key_len, other, other_len, &error), &error);
        break;
    case GABION_ACTION_DELETE:
        check(gabion_delete(copy, key, key_len, &error), &error);
        break;
    case GABION_ACTION_DELETE_RANGE:
        other = gabion_change_end(change, index, &other_len);
        check(gabion_delete_range(copy, key, key_len, other, other_len, &error), &error);
        break;
    default:
        // Merges and ingests: nobody makes any here.
        break;
    }
}

// Copies what the consumer has not had, and returns how many operations that were.
static size_t catch_up(gabion_consumer *consumer, gabion_keyspace *copy) {
    gabion_error *error = NULL;
    gabion_changes *changes = NULL;
    check(gabion_consumer_changes(consumer, NULL, &changes, &error), &error);
    size_t count = 0;
    for (;;) {
        gabion_change *change = NULL;
        check(gabion_changes_next(changes, 0, &change, &error), &error);
        if (change == NULL) {
            break;
        }
        for (size_t index = 0; index < gabion_change_count(change); index++) {
            apply(change, index, copy);
            count++;
        }
        gabion_change_free(&change);
    }
    // What was applied before a crash comes again, which does no harm here.
    char *position = NULL;
    check(gabion_changes_position(changes, &position, &error), &error);
    check(gabion_consumer_acknowledge(consumer, position, &error), &error);
    gabion_free(position);
    gabion_changes_free(&changes);
    return count;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: mirror DIRECTORY\n");
        return 2;
    }
    gabion_error *error = NULL;
    gabion_store *store = NULL;
    gabion_store *mirror = NULL;
    gabion_keyspace *own = open_at(argv[1], "store", &store);
    gabion_keyspace *copy = open_at(argv[1], "mirror", &mirror);
    gabion_consumer *consumer = NULL;
    check(gabion_consumer_open(store, "mirror", &consumer, &error), &error);

    put(own, "granite", "grey");
    put(own, "slate", "black");
    printf("%zu copied\n", catch_up(consumer, copy));
    put(own, "basalt", "dark");
    check(gabion_delete_range(own, (const uint8_t *)"g", 1, (const uint8_t *)"h", 1, &error),
          &error);
    printf("%zu copied\n", catch_up(consumer, copy));

    gabion_iterator *iterator = NULL;
    check(gabion_iterator_new(copy, NULL, NULL, 0, NULL, 0, &iterator, &error), &error);
    check(gabion_iterator_first(iterator, &error), &error);
    while (gabion_iterator_valid(iterator)) {
        size_t len = 0;
        const uint8_t *key = gabion_iterator_key(iterator, &len);
        printf("%.*s\n", (int)len, (const char *)key);
        check(gabion_iterator_next(iterator, &error), &error);
    }
    gabion_iterator_free(&iterator);
    gabion_consumer_free(&consumer);
    gabion_keyspace_free(&own);
    gabion_keyspace_free(&copy);
    check(gabion_close(store, &error), &error);
    check(gabion_close(mirror, &error), &error);
    gabion_store_free(&store);
    gabion_store_free(&mirror);
    return 0;
}
