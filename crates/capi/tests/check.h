/*
 * check.h: what the test programs share. A failed check prints where and why, and ends the program
 * with 1. Every program gets an empty directory as its one argument.
 */
#ifndef DAMELO_TESTS_CHECK_H
#define DAMELO_TESTS_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "damelo.h"

#define CHECK(condition)                                                                          \
    do {                                                                                          \
        if (!(condition)) {                                                                       \
            fprintf(stderr, "%s:%d: failed: %s (last error: %s)\n", __FILE__, __LINE__,           \
                    #condition, damelo_last_error_message());                                     \
            exit(1);                                                                              \
        }                                                                                         \
    } while (0)

#define CHECK_STATUS(expected, call)                                                              \
    do {                                                                                          \
        int check_status = (call);                                                                \
        if (check_status != (expected)) {                                                         \
            fprintf(stderr, "%s:%d: failed: %s gave %d (%s), not %s; last error: %s\n", __FILE__, \
                    __LINE__, #call, check_status, damelo_strerror(check_status), #expected,      \
                    damelo_last_error_message());                                                 \
            exit(1);                                                                              \
        }                                                                                         \
    } while (0)

#define OK(call) CHECK_STATUS(DAMELO_OK, call)
#define INVALID(call) CHECK_STATUS(DAMELO_EINVAL, call)
#define MISSING(call) CHECK_STATUS(DAMELO_ENOTFOUND, call)

/* A key or value given as a string literal: its address and its length. */
#define LIT(text) (text), (sizeof(text) - 1)

#define VOLUME_BYTES ((uint64_t)64 << 20)
#define MEMORY_BYTES ((uint64_t)16 << 20)

/* `directory/name`, in a buffer that the next call overwrites. */
static inline const char *path_in(const char *directory, const char *name) {
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

static inline damelo_options *small_options(const char *directory) {
    damelo_options *options = damelo_options_new(path_in(directory, "store"), VOLUME_BYTES);
    CHECK(options != NULL);
    OK(damelo_options_set_memory(options, MEMORY_BYTES));
    return options;
}

static inline damelo_store *open_small(const char *directory) {
    damelo_options *options = small_options(directory);
    damelo_store *store = NULL;
    OK(damelo_open(options, &store));
    CHECK(store != NULL);
    damelo_options_free(options);
    return store;
}

/* The directory that the test gave. */
static inline const char *directory_of(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s EMPTY_DIRECTORY\n", argv[0]);
        exit(2);
    }
    return argv[1];
}

#endif
