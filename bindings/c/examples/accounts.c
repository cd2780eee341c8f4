// A transfer between two accounts, a scan over them, and what a conflict looks like.
//
// Usage: accounts DIRECTORY

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

static const uint8_t *bytes(const char *text) { return (const uint8_t *)text; }

// Adds an amount to the balance of a name, within a transaction.
static void add(gabion_transaction *transaction, gabion_keyspace *accounts, const char *name,
                long amount) {
    gabion_error *error = NULL;
    uint8_t *value = NULL;
    size_t len = 0;
    check(gabion_transaction_get(transaction, accounts, bytes(name), strlen(name), &value, &len,
                                 &error),
          &error);
    // A copy has a zero behind it.
    long balance = value == NULL ? 0 : strtol((const char *)value, NULL, 10);
    gabion_free(value);
    char text[32];
    int text_len = snprintf(text, sizeof text, "%ld", balance + amount);
    check(gabion_transaction_put(transaction, accounts, bytes(name), strlen(name), bytes(text),
                                 (size_t)text_len, &error),
          &error);
}

// Moves an amount, again and again until nobody is in the way.
static void transfer(gabion_store *store, gabion_keyspace *accounts, const char *from,
                     const char *to, long amount) {
    for (;;) {
        gabion_error *error = NULL;
        gabion_transaction *transaction = NULL;
        check(gabion_transaction_begin(store, NULL, &transaction, &error), &error);
        add(transaction, accounts, from, -amount);
        add(transaction, accounts, to, amount);
        gabion_code code = gabion_transaction_commit(transaction, NULL, &error);
        gabion_transaction_free(&transaction);
        if (code != GABION_CODE_CONFLICT) {
            check(code, &error);
            return;
        }
        gabion_error_free(&error);
    }
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: accounts DIRECTORY\n");
        return 2;
    }
    if (gabion_abi_version() != GABION_ABI_VERSION) {
        fprintf(stderr, "libgabion is of another version than gabion.h\n");
        return 1;
    }
    gabion_error *error = NULL;
    gabion_options *options = gabion_options_new();
    check(gabion_options_set(options, "memory_bytes_max", "64MiB", &error), &error);
    gabion_store *store = NULL;
    check(gabion_open(argv[1], options, &store, &error), &error);
    gabion_options_free(&options);
    gabion_keyspace *accounts = NULL;
    check(gabion_keyspace_open(store, "accounts", NULL, &accounts, &error), &error);

    transfer(store, accounts, "bank", "alice", 100);
    transfer(store, accounts, "alice", "bob", 30);

    gabion_iterator *iterator = NULL;
    check(gabion_iterator_new(accounts, NULL, NULL, 0, NULL, 0, &iterator, &error), &error);
    check(gabion_iterator_first(iterator, &error), &error);
    while (gabion_iterator_valid(iterator)) {
        size_t key_len = 0;
        size_t value_len = 0;
        const uint8_t *key = gabion_iterator_key(iterator, &key_len);
        const uint8_t *value = gabion_iterator_value(iterator, &value_len);
        printf("%.*s %.*s\n", (int)key_len, (const char *)key, (int)value_len, (const char *)value);
        check(gabion_iterator_next(iterator, &error), &error);
    }
    gabion_iterator_free(&iterator);

    check(gabion_close(store, &error), &error);
    // After the close every handle answers with an error, and is freed all the same.
    gabion_code code = gabion_put(accounts, bytes("carol"), 5, bytes("1"), 1, &error);
    printf("%s\n", code == GABION_CODE_CLOSED ? "closed" : "not closed");
    gabion_error_free(&error);
    gabion_keyspace_free(&accounts);
    gabion_store_free(&store);
    return 0;
}
