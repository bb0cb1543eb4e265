/* errors.c: version, words for results, and the last error of each thread. */
#include <pthread.h>

#include "check.h"

static void *other_thread(void *unused) {
    (void)unused;
    CHECK(strcmp(damelo_last_error_message(), "") == 0);
    INVALID(damelo_options_set_io_engine(NULL, 0));
    CHECK(strstr(damelo_last_error_message(), "options is null") != NULL);
    return NULL;
}

int main(void) {
    pthread_t thread;
    int status, other;

    CHECK(strchr(damelo_version(), '.') != NULL);
    for (status = DAMELO_OK; status <= DAMELO_ESUPERSEDED; status++) {
        CHECK(strlen(damelo_strerror(status)) > 1);
        for (other = DAMELO_OK; other < status; other++) {
            CHECK(strcmp(damelo_strerror(status), damelo_strerror(other)) != 0);
        }
    }
    CHECK(strcmp(damelo_strerror(-1), "unknown status") == 0);
    CHECK(strcmp(damelo_strerror(DAMELO_ETORN + 1), "unknown status") == 0);

    CHECK(strcmp(damelo_last_error_message(), "") == 0);
    CHECK(damelo_options_new("", 1) == NULL);
    CHECK(strcmp(damelo_last_error_message(), "the path is empty") == 0);

    /* Another thread's errors are its own. */
    CHECK(pthread_create(&thread, NULL, other_thread, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(strcmp(damelo_last_error_message(), "the path is empty") == 0);

    /* Lines that the test compares with stderr. */
    damelo_perror("prefix", DAMELO_EINVAL);
    damelo_perror("other", DAMELO_ENOTFOUND);
    damelo_perror(NULL, DAMELO_OK);
    damelo_perror("", 12345);
    return 0;
}
