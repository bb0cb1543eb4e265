/* options.c: every option with values inside and outside what it allows, and null handles. */
#include "check.h"

static void enumerations(damelo_options *options) {
    int value;
    for (value = 0; value <= 2; value++) {
        OK(damelo_options_set_durability(options, value));
        OK(damelo_options_set_io_engine(options, value));
        OK(damelo_options_set_residency(options, value));
        OK(damelo_options_set_admission(options, value, 1 << 20));
        OK(damelo_options_set_disk_policy(options, value));
        OK(damelo_options_set_seeks(options, value));
    }
    for (value = DAMELO_REINSERT_WORTHY; value <= DAMELO_REINSERT_NEVER; value++) {
        OK(damelo_options_set_reinsertion(options, value));
    }
    OK(damelo_options_set_admission(options, DAMELO_ADMIT_SIZE_MAX, 1 << 20));
    OK(damelo_options_set_admission(options, DAMELO_ADMIT_PROBABILITY, 100));
    INVALID(damelo_options_set_admission(options, DAMELO_ADMIT_PROBABILITY, 101));
    OK(damelo_options_set_disk_policy(options, DAMELO_DISK_FIFO));
    OK(damelo_options_set_when_memory_full(options, DAMELO_MEMORY_FULL_REFUSE, 0));
    for (value = -1; value <= 5; value += 6) {
        INVALID(damelo_options_set_durability(options, value));
        INVALID(damelo_options_set_io_engine(options, value));
        INVALID(damelo_options_set_residency(options, value));
        INVALID(damelo_options_set_admission(options, value, 0));
        INVALID(damelo_options_set_disk_policy(options, value));
        INVALID(damelo_options_set_seeks(options, value));
        INVALID(damelo_options_set_reinsertion(options, value));
        INVALID(damelo_options_set_when_memory_full(options, value, 0));
    }
}

static void null_handles(void) {
    INVALID(damelo_options_add_volume(NULL, "x", 0));
    INVALID(damelo_options_set_memory(NULL, 1));
    INVALID(damelo_options_set_objects_max(NULL, 1));
    INVALID(damelo_options_set_object_bytes_max(NULL, 1));
    INVALID(damelo_options_set_page(NULL, 1));
    INVALID(damelo_options_set_segment(NULL, 1));
    INVALID(damelo_options_set_durability(NULL, 0));
    INVALID(damelo_options_set_io_engine(NULL, 0));
    INVALID(damelo_options_set_direct(NULL, 0));
    INVALID(damelo_options_set_force(NULL, 0));
    INVALID(damelo_options_set_anew(NULL, 0));
    INVALID(damelo_options_set_must_exist(NULL, 0));
    INVALID(damelo_options_set_without_missing(NULL, 1));
    INVALID(damelo_options_set_queue_depth(NULL, 1));
    INVALID(damelo_options_set_seeks(NULL, 0));
    INVALID(damelo_options_set_when_memory_full(NULL, 0, 0));
    INVALID(damelo_options_set_residency(NULL, 0));
    INVALID(damelo_options_set_disk_policy(NULL, 0));
    INVALID(damelo_options_set_admission(NULL, 0, 0));
    INVALID(damelo_options_set_write_budget(NULL, 0, 1));
    INVALID(damelo_options_set_reinsertion(NULL, 0));
    INVALID(damelo_options_set_checkpoint_period(NULL, 0));
    INVALID(damelo_options_set_flush_period(NULL, 0));
    INVALID(damelo_options_set_reinsert_percent_max(NULL, 0));
    INVALID(damelo_options_set_fbc_count_max(NULL, 0));
    INVALID(damelo_options_set_fbc_average_max_percent(NULL, 0));
    INVALID(damelo_options_set_groups_tracked_max(NULL, 0));
    INVALID(damelo_options_set_volume_errors_max(NULL, 1));
    INVALID(damelo_options_set_create_wait(NULL, 0));
    INVALID(damelo_options_set_answer_wait(NULL, 0));
    INVALID(damelo_options_set_open_wait(NULL, 0));
    damelo_options_free(NULL);
    CHECK(damelo_options_new(NULL, 0) == NULL);
}

/* A store opened with something else than the default everywhere works. */
static void all_set(const char *directory) {
    damelo_store *store = NULL;
    damelo_store_info info;
    damelo_options *options = small_options(directory);
    OK(damelo_options_add_volume(options, path_in(directory, "second"), VOLUME_BYTES));
    OK(damelo_options_set_objects_max(options, 10000));
    OK(damelo_options_set_object_bytes_max(options, 1 << 20));
    OK(damelo_options_set_page(options, 32 << 10));
    OK(damelo_options_set_segment(options, 1 << 20));
    OK(damelo_options_set_durability(options, DAMELO_DURABILITY_SYNCED));
    OK(damelo_options_set_io_engine(options, DAMELO_IO_ENGINE_THREADS));
    OK(damelo_options_set_direct(options, 0));
    OK(damelo_options_set_force(options, 1));
    OK(damelo_options_set_anew(options, 0));
    OK(damelo_options_set_must_exist(options, 0));
    OK(damelo_options_set_without_missing(options, 1));
    OK(damelo_options_set_queue_depth(options, 8));
    OK(damelo_options_set_seeks(options, DAMELO_SEEKS_YES));
    OK(damelo_options_set_when_memory_full(options, DAMELO_MEMORY_FULL_WAIT, 100));
    OK(damelo_options_set_residency(options, DAMELO_RESIDENCY_LRU));
    OK(damelo_options_set_disk_policy(options, DAMELO_DISK_LFU_AGING));
    OK(damelo_options_set_admission(options, DAMELO_ADMIT_ALWAYS, 0));
    OK(damelo_options_set_write_budget(options, 1 << 20, 86400000));
    INVALID(damelo_options_set_write_budget(options, 1 << 20, 0));
    OK(damelo_options_set_reinsertion(options, DAMELO_REINSERT_USED));
    OK(damelo_options_set_checkpoint_period(options, 0));
    OK(damelo_options_set_flush_period(options, 1000));
    OK(damelo_options_set_reinsert_percent_max(options, 90));
    OK(damelo_options_set_fbc_count_max(options, 2));
    OK(damelo_options_set_fbc_average_max_percent(options, 300));
    OK(damelo_options_set_groups_tracked_max(options, 100));
    OK(damelo_options_set_volume_errors_max(options, 1));
    OK(damelo_options_set_create_wait(options, 10000));
    OK(damelo_options_set_answer_wait(options, 5000));
    OK(damelo_options_set_open_wait(options, 60000));
    INVALID(damelo_options_set_reinsert_percent_max(options, 91));
    INVALID(damelo_options_set_reinsert_percent_max(options, 256 + 30));
    INVALID(damelo_options_set_fbc_count_max(options, 4));
    INVALID(damelo_options_set_volume_errors_max(options, 0));
    INVALID(damelo_options_set_queue_depth(options, 0));
    INVALID(damelo_options_add_volume(options, NULL, 0));
    INVALID(damelo_options_add_volume(options, "", 0));

    OK(damelo_open(options, &store));
    damelo_options_free(options);
    OK(damelo_get_store_info(store, &info));
    CHECK(info.volumes == 2);
    CHECK(info.volumes_in_service == 2);
    OK(damelo_create(store, LIT("key"), 1, LIT("value")));
    OK(damelo_close(store));
}

#define REFUSED_BY_OPEN(setting)                                                                  \
    do {                                                                                          \
        damelo_store *store = NULL;                                                               \
        damelo_options *options = small_options(directory);                                       \
        OK(setting);                                                                              \
        INVALID(damelo_open(options, &store));                                                    \
        CHECK(store == NULL);                                                                     \
        CHECK(*damelo_last_error_message() != 0);                                                 \
        damelo_options_free(options);                                                             \
    } while (0)

/* What setters take, and the open does not. */
static void only_the_open_knows(const char *directory) {
    REFUSED_BY_OPEN(damelo_options_set_memory(options, 1));
    REFUSED_BY_OPEN(damelo_options_set_memory(options, UINT64_MAX));
    REFUSED_BY_OPEN(damelo_options_set_objects_max(options, UINT64_MAX));
    REFUSED_BY_OPEN(damelo_options_set_object_bytes_max(options, 0));
    REFUSED_BY_OPEN(damelo_options_set_page(options, 20000));
    REFUSED_BY_OPEN(damelo_options_set_segment(options, 1));
    REFUSED_BY_OPEN(damelo_options_set_queue_depth(options, 4097));
    REFUSED_BY_OPEN(damelo_options_set_groups_tracked_max(options, UINT64_MAX));
    REFUSED_BY_OPEN(damelo_options_set_anew(options, 1) +
                    damelo_options_set_must_exist(options, 1));
}

/* A store made anew has nothing of the one before it, and the pages now declared. */
static void made_anew(const char *directory) {
    damelo_store *store = NULL;
    damelo_store_info info;
    damelo_object *object = NULL;
    damelo_options *options = damelo_options_new(path_in(directory, "anew"), VOLUME_BYTES);
    OK(damelo_options_set_page(options, 32 << 10));
    OK(damelo_open(options, &store));
    OK(damelo_create(store, LIT("key"), 1, LIT("value")));
    OK(damelo_close(store));

    OK(damelo_options_set_page(options, 64 << 10));
    CHECK(damelo_open(options, &store) != DAMELO_OK);
    OK(damelo_options_set_anew(options, 1));
    OK(damelo_options_set_must_exist(options, 1));
    INVALID(damelo_open(options, &store));
    OK(damelo_options_set_must_exist(options, 0));
    OK(damelo_open(options, &store));
    damelo_options_free(options);
    OK(damelo_get_store_info(store, &info));
    CHECK(info.page_bytes == 64 << 10);
    CHECK(damelo_read(store, LIT("key"), &object) == DAMELO_ENOTFOUND);
    OK(damelo_close(store));
}

/* What a day allows may be written at once, and no more on that day. */
static void spent(const char *directory) {
    damelo_store *store = NULL;
    damelo_options *options = damelo_options_new(path_in(directory, "spent"), VOLUME_BYTES);
    OK(damelo_options_set_write_budget(options, 5, 86400000));
    OK(damelo_open(options, &store));
    damelo_options_free(options);
    OK(damelo_create(store, LIT("key"), 1, LIT("value")));
    CHECK(damelo_create(store, LIT("other"), 1, LIT("value")) == DAMELO_ENOTADMITTED);
    OK(damelo_close(store));
}

int main(int argc, char **argv) {
    const char *directory = directory_of(argc, argv);
    damelo_options *options = small_options(directory);
    enumerations(options);
    damelo_options_free(options);
    null_handles();
    only_the_open_knows(directory);
    all_set(directory);
    made_anew(directory);
    spent(directory);
    return 0;
}
