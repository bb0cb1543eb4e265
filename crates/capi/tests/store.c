/* store.c: opening with every kind of failure, and what concerns the store as a whole. */
#include "check.h"

static void refused(int expected, const char *path, uint64_t size, const char *said) {
    damelo_store *store = (damelo_store *)(void *)&size; /* must be overwritten */
    damelo_options *options = damelo_options_new(path, size);
    CHECK(options != NULL);
    OK(damelo_options_set_memory(options, MEMORY_BYTES));
    CHECK_STATUS(expected, damelo_open(options, &store));
    CHECK(store == NULL);
    CHECK(strstr(damelo_last_error_message(), said) != NULL);
    damelo_options_free(options);
}

static void opens_that_fail(const char *directory) {
    damelo_store *store;
    damelo_options *options;
    FILE *file;
    int line;

    INVALID(damelo_open(NULL, &store));
    CHECK(store == NULL);
    options = small_options(directory);
    INVALID(damelo_open(options, NULL));
    OK(damelo_options_set_memory(options, 1));
    INVALID(damelo_open(options, &store));
    CHECK(strstr(damelo_last_error_message(), "memory") != NULL);
    OK(damelo_options_set_memory(options, MEMORY_BYTES));
    OK(damelo_options_set_must_exist(options, 1));
    CHECK_STATUS(DAMELO_EMISSING, damelo_open(options, &store));
    damelo_options_free(options);

    refused(DAMELO_EOPEN, directory, VOLUME_BYTES, "directory");
    refused(DAMELO_EMISSING, path_in(directory, "nowhere/store"), VOLUME_BYTES, "nowhere");
    refused(DAMELO_EMISSING, path_in(directory, "absent"), 0, "absent");
    refused(DAMELO_EINVAL, path_in(directory, "tiny"), 4096, "tiny");
    refused(DAMELO_ENOSPACE, path_in(directory, "huge"), (uint64_t)1 << 60, "huge");

    file = fopen(path_in(directory, "letter"), "w");
    CHECK(file != NULL);
    for (line = 0; line < 1 << 20; line++) {
        fputs("Dear reader, this is no store, it is a letter to you and to me.\n", file);
    }
    fclose(file);
    refused(DAMELO_EFOREIGN, path_in(directory, "letter"), VOLUME_BYTES, "letter");
}

static void texts(damelo_store *store) {
    char *text = NULL;
    OK(damelo_stats_text(store, &text));
    CHECK(strstr(text, "# TYPE damelo_") != NULL);
    damelo_text_free(text);
    OK(damelo_warnings_text(store, &text));
    CHECK(text != NULL);
    damelo_text_free(text);
    damelo_text_free(NULL);
    INVALID(damelo_stats_text(store, NULL));
    INVALID(damelo_warnings_text(store, NULL));
    INVALID(damelo_stats_text(NULL, &text));
    CHECK(text == NULL);
    INVALID(damelo_warnings_text(NULL, &text));
    CHECK(text == NULL);
}

static void whole_store(damelo_store *store) {
    damelo_store_info info;
    damelo_recovery_progress progress;

    OK(damelo_get_store_info(store, &info));
    CHECK(info.created == 1);
    CHECK(info.volumes == 1 && info.volumes_in_service == 1);
    CHECK(info.page_bytes == 64 << 10);
    CHECK(info.segments > 0 && info.segment_bytes >= info.page_bytes);
    CHECK(info.memory_bytes == MEMORY_BYTES);
    CHECK(info.objects_max > 0 && info.index_bytes > 0);
    OK(damelo_wait_recovered(store));
    OK(damelo_recovery(store, &progress));
    CHECK(progress.done == 1);
    CHECK(progress.segments_loaded == progress.segments_wanted);
    OK(damelo_create(store, LIT("key"), 7, LIT("value")));
    OK(damelo_set_flush_period(store, 7, 1000));
    OK(damelo_set_flush_period(store, 7, 0));
    OK(damelo_sync(store));
    OK(damelo_sync_removes(store));
    OK(damelo_checkpoint(store));
    OK(damelo_drop_memory(store));
}

static void null_handles(damelo_store *store) {
    damelo_store_info info;
    damelo_recovery_progress progress;
    INVALID(damelo_get_store_info(NULL, &info));
    INVALID(damelo_get_store_info(store, NULL));
    INVALID(damelo_recovery(NULL, &progress));
    INVALID(damelo_recovery(store, NULL));
    INVALID(damelo_wait_recovered(NULL));
    INVALID(damelo_set_flush_period(NULL, 1, 1));
    INVALID(damelo_sync(NULL));
    INVALID(damelo_sync_removes(NULL));
    INVALID(damelo_checkpoint(NULL));
    INVALID(damelo_drop_memory(NULL));
    OK(damelo_close(NULL));
}

int main(int argc, char **argv) {
    const char *directory = directory_of(argc, argv);
    damelo_store *store;
    damelo_store *again = NULL;
    damelo_options *options;

    opens_that_fail(directory);
    store = open_small(directory);
    options = small_options(directory);
    CHECK_STATUS(DAMELO_ELOCKED, damelo_open(options, &again));
    damelo_options_free(options);
    texts(store);
    whole_store(store);
    null_handles(store);
    OK(damelo_close(store));
    return 0;
}
