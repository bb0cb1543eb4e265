/* streams.c: writers and readers, with objects that take many pieces, and abandoned ones. */
#include "check.h"

#define PIECE_BYTES 60000u
#define PIECES 50u
#define TOTAL_BYTES (PIECE_BYTES * PIECES)

static unsigned char byte_at(uint64_t offset) {
    return (unsigned char)((offset * 31) ^ (offset >> 11));
}

static damelo_writer *begin(damelo_store *store, uint64_t hint) {
    damelo_writer *writer = NULL;
    OK(damelo_writer_open(store, LIT("stream"), 2, LIT("old meta"), 4102444800u, hint, &writer));
    CHECK(writer != NULL);
    return writer;
}

static void write_all(damelo_writer *writer) {
    static unsigned char piece[PIECE_BYTES];
    uint64_t offset;
    size_t i;
    for (offset = 0; offset < TOTAL_BYTES; offset += PIECE_BYTES) {
        for (i = 0; i < PIECE_BYTES; i++) {
            piece[i] = byte_at(offset + i);
        }
        OK(damelo_writer_write(writer, piece, PIECE_BYTES));
    }
}

static void read_from(damelo_reader *reader, uint64_t offset) {
    const void *data;
    size_t length, i;
    for (;;) {
        OK(damelo_reader_next(reader, &data, &length));
        if (length == 0) {
            break;
        }
        for (i = 0; i < length; i++) {
            CHECK(((const unsigned char *)data)[i] == byte_at(offset + i));
        }
        offset += length;
    }
    CHECK(data == NULL);
    CHECK(offset == TOTAL_BYTES);
}

static void round_trip(damelo_store *store, uint64_t hint) {
    damelo_writer *writer = begin(store, hint);
    damelo_reader *reader = NULL;
    damelo_info info;
    size_t length = 0;

    write_all(writer);
    OK(damelo_writer_write(writer, NULL, 0));
    OK(damelo_writer_set_metadata(writer, LIT("new")));
    MISSING(damelo_reader_open(store, LIT("stream"), &reader));
    CHECK(reader == NULL);
    OK(damelo_writer_commit(writer));

    OK(damelo_reader_open(store, LIT("stream"), &reader));
    OK(damelo_reader_info(reader, &info));
    CHECK(info.group == 2 && info.length_bytes == TOTAL_BYTES && info.metadata_bytes == 3);
    CHECK(info.expires_unix_s == 4102444800u);
    CHECK(memcmp(damelo_reader_metadata(reader, &length), "new", 3) == 0 && length == 3);
    read_from(reader, 0);
    OK(damelo_reader_seek(reader, TOTAL_BYTES - 12345));
    read_from(reader, TOTAL_BYTES - 12345);
    OK(damelo_reader_seek(reader, TOTAL_BYTES + 1));
    {
        const void *data;
        OK(damelo_reader_next(reader, &data, &length));
        CHECK(data == NULL && length == 0);
    }
    damelo_reader_close(reader);
    OK(damelo_remove(store, LIT("stream")));
}

static void abandoned(damelo_store *store) {
    damelo_writer *writer = begin(store, DAMELO_LENGTH_UNKNOWN);
    damelo_info info;
    write_all(writer);
    damelo_writer_abort(writer);
    MISSING(damelo_lookup(store, LIT("stream"), &info));
}

/* What a write that failed had taken is part of no object. */
static void torn(damelo_store *store) {
    static unsigned char piece[PIECE_BYTES];
    damelo_writer *writer = begin(store, DAMELO_LENGTH_UNKNOWN);
    damelo_info info;
    int status;
    do {
        status = damelo_writer_write(writer, piece, PIECE_BYTES);
    } while (status == DAMELO_OK);
    CHECK_STATUS(DAMELO_ETOOLARGE, status);
    CHECK_STATUS(DAMELO_ETORN, damelo_writer_write(writer, piece, 1));
    CHECK_STATUS(DAMELO_ETORN, damelo_writer_commit(writer));
    MISSING(damelo_lookup(store, LIT("stream"), &info));
}

/* A caller may not look at what a write gives: the rest alone is not the object. */
static void refused_bytes(damelo_store *store) {
    damelo_writer *writer = begin(store, DAMELO_LENGTH_UNKNOWN);
    damelo_info info;
    INVALID(damelo_writer_write(writer, NULL, 5));
    CHECK_STATUS(DAMELO_ETORN, damelo_writer_write(writer, "abc", 3));
    CHECK_STATUS(DAMELO_ETORN, damelo_writer_commit(writer));
    MISSING(damelo_lookup(store, LIT("stream"), &info));
}

static void wrong_arguments(damelo_store *store) {
    damelo_writer *writer = NULL;
    damelo_reader *reader = NULL;
    damelo_info info;
    const void *data;
    size_t length = 1;
    uint64_t hint = DAMELO_LENGTH_UNKNOWN;

    INVALID(damelo_writer_open(NULL, LIT("k"), 1, NULL, 0, 0, hint, &writer));
    INVALID(damelo_writer_open(store, NULL, 1, 1, NULL, 0, 0, hint, &writer));
    INVALID(damelo_writer_open(store, LIT("k"), 1, NULL, 1, 0, hint, &writer));
    INVALID(damelo_writer_open(store, LIT("k"), 1, NULL, 0, 0, hint, NULL));
    CHECK_STATUS(DAMELO_EKEY, damelo_writer_open(store, NULL, 0, 1, NULL, 0, 0, hint, &writer));
    CHECK(writer == NULL);
    INVALID(damelo_writer_write(NULL, LIT("x")));
    INVALID(damelo_writer_set_metadata(NULL, LIT("x")));
    INVALID(damelo_writer_commit(NULL));
    damelo_writer_abort(NULL);
    writer = begin(store, hint);
    INVALID(damelo_writer_write(writer, NULL, 1));
    INVALID(damelo_writer_set_metadata(writer, NULL, 1));
    damelo_writer_abort(writer);

    INVALID(damelo_reader_open(NULL, LIT("k"), &reader));
    INVALID(damelo_reader_open(store, NULL, 1, &reader));
    INVALID(damelo_reader_open(store, LIT("k"), NULL));
    INVALID(damelo_reader_info(NULL, &info));
    CHECK(damelo_reader_metadata(NULL, &length) == NULL && length == 0);
    INVALID(damelo_reader_next(NULL, &data, &length));
    INVALID(damelo_reader_seek(NULL, 0));
    damelo_reader_close(NULL);
    OK(damelo_create(store, LIT("k"), 1, LIT("v")));
    OK(damelo_reader_open(store, LIT("k"), &reader));
    INVALID(damelo_reader_info(reader, NULL));
    INVALID(damelo_reader_next(reader, NULL, &length));
    INVALID(damelo_reader_next(reader, &data, NULL));
    damelo_reader_close(reader);
}

int main(int argc, char **argv) {
    damelo_store *store = open_small(directory_of(argc, argv));
    damelo_writer *writer;
    round_trip(store, DAMELO_LENGTH_UNKNOWN);
    round_trip(store, TOTAL_BYTES);
    abandoned(store);
    torn(store);
    refused_bytes(store);
    wrong_arguments(store);
    writer = begin(store, DAMELO_LENGTH_UNKNOWN);
    OK(damelo_close(store));
    damelo_writer_abort(writer);
    return 0;
}
