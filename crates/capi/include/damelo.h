/*
 * damelo.h: the C API of the Damelo object store. C99 and later; C++98 and later.
 *
 * Damelo stores data that can always be fetched again: any object may be forgotten, none is ever
 * returned wrong. Objects of one group lie together on disk and come into memory together.
 *
 * Results     Functions that can fail return an int: DAMELO_OK or a number from status.h. A panic
 *             inside the library becomes DAMELO_EPANIC; nothing unwinds into the caller. Two things
 *             end the process: an allocation that the system refuses (in damelo_open most of them
 *             are errors instead), and a kernel that refuses an io_uring it has granted.
 * Arguments   A null pointer where something is needed gives DAMELO_EINVAL (from getters: NULL or
 *             0). A pointer may be null where its length is 0. Every other pointer must be valid
 *             for its length. Keys and values are bytes, not text; nothing is read past a length.
 * Ownership   A handle that a function makes is freed by the one function its type names below,
 *             once. NULL may be freed. Every `out` is set, to NULL or 0 when the call fails.
 * Threads     A damelo_store may be used by any number of threads at once. A damelo_object or
 *             damelo_range may be read by many threads and released by any. Options, writers and
 *             readers belong to one thread at a time. Objects and ranges outlive the store.
 *
 * In C++ this header also declares the class `Damelo` of the thesis (damelo.hpp) and its `Status`,
 * unless DAMELO_NO_CLASS is defined: <X11/Xlib.h>, say, has a macro of the name `Status`. A test
 * holds these declarations to the library's source.
 */
#ifndef DAMELO_H
#define DAMELO_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

/* The version of this header; damelo_version() has the library's. */
#define DAMELO_VERSION_MAJOR 0
#define DAMELO_VERSION_MINOR 1
#define DAMELO_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif

/* ---- handles and constants ------------------------------------------------------------------ */

typedef struct damelo_options damelo_options; /* freed by damelo_options_free */
typedef struct damelo_store damelo_store;     /* freed by damelo_close */
typedef struct damelo_object damelo_object;   /* freed by damelo_object_release */
typedef struct damelo_range damelo_range;     /* freed by damelo_range_release */
typedef struct damelo_writer damelo_writer;   /* freed by damelo_writer_commit or _abort */
typedef struct damelo_reader damelo_reader;   /* freed by damelo_reader_close */
typedef struct damelo_thesis damelo_thesis;   /* freed by damelo_thesis_close */

/* How long an acknowledged delete or purge lasts. */
enum damelo_durability {
    DAMELO_DURABILITY_NONE = 0,    /* memory only */
    DAMELO_DURABILITY_FLUSHED = 1, /* survives kill -9 (default) */
    DAMELO_DURABILITY_SYNCED = 2   /* survives a loss of power */
};

/* What performs disk I/O. */
enum damelo_io_engine {
    DAMELO_IO_ENGINE_AUTO = 0,     /* io_uring where permitted, else threads (default) */
    DAMELO_IO_ENGINE_IO_URING = 1, /* io_uring or an error */
    DAMELO_IO_ENGINE_THREADS = 2   /* a pool of threads with pread and pwrite */
};

/* What happens when readers hold all memory. */
enum damelo_when_memory_full {
    DAMELO_MEMORY_FULL_WAIT = 0,  /* wait, then refuse (default) */
    DAMELO_MEMORY_FULL_REFUSE = 1 /* refuse at once */
};

/* Which objects stay in memory. */
enum damelo_residency {
    DAMELO_RESIDENCY_S3_FIFO = 0,    /* scan-resistant queues */
    DAMELO_RESIDENCY_LRU = 1,        /* oldest goes first, unless used since */
    DAMELO_RESIDENCY_CLOCK = 2,      /* first in, first out with a second chance */
    DAMELO_RESIDENCY_HIT_DENSITY = 3 /* keeps what is read most for its size (default) */
};

/* Which objects survive a turn of the ring. */
enum damelo_disk_policy {
    DAMELO_DISK_FBC = 0,       /* frequency-based cyclic (default) */
    DAMELO_DISK_LFU_AGING = 1, /* most used, with counts that age */
    DAMELO_DISK_LRU = 2,       /* used in the last turn of the ring */
    DAMELO_DISK_FIFO = 3       /* none */
};

/* Which new objects are written to disk. */
enum damelo_admission {
    DAMELO_ADMIT_ALWAYS = 0,       /* every object (default) */
    DAMELO_ADMIT_SECOND_HIT = 1,   /* objects that are created a second time */
    DAMELO_ADMIT_WRITE_BUDGET = 2, /* every object until a rate of bytes is reached */
    DAMELO_ADMIT_SIZE_MAX = 3,     /* those up to a size */
    DAMELO_ADMIT_PROBABILITY = 4   /* a percentage of them, by chance */
};

/* What is written again of what survives. */
enum damelo_reinsertion {
    DAMELO_REINSERT_WORTHY = 0,      /* all that the disk policy finds worth it (default) */
    DAMELO_REINSERT_USED = 1,        /* of that, what was used since it was written */
    DAMELO_REINSERT_USED_TWICE = 2,  /* at least twice */
    DAMELO_REINSERT_USED_THRICE = 3, /* at least three times, as far as is counted */
    DAMELO_REINSERT_NEVER = 4        /* nothing */
};

/* What a group was last told. */
enum damelo_hint {
    DAMELO_HINT_NEUTRAL = 0,
    DAMELO_HINT_LOVED = 1,
    DAMELO_HINT_HATED = 2
};

/* Whether the disks have seeks. */
enum damelo_seeks {
    DAMELO_SEEKS_AUTO = 0, /* what the system says of each (default) */
    DAMELO_SEEKS_NO = 1,   /* none has, as flash */
    DAMELO_SEEKS_YES = 2   /* all have */
};

/* Length hint for damelo_writer_open when the length is not known. */
#define DAMELO_LENGTH_UNKNOWN ((uint64_t)-1)

/* What is known of an object. Expiry 0: never. */
typedef struct damelo_info {
    uint64_t group;
    uint64_t length_bytes;
    uint64_t metadata_bytes;
    uint64_t expires_unix_s;
    uint64_t resident; /* 1: in memory, a read would cost no I/O */
    uint64_t reserved[3];
} damelo_info;

/* What is known of a group. */
typedef struct damelo_group_stats {
    uint64_t objects_created;
    uint64_t bytes_created;
    uint64_t disk_reads;
    uint64_t page_reads;
    uint64_t prefetched;
    uint64_t prefetch_hits;
    uint64_t pages_known;
    uint64_t hint; /* enum damelo_hint */
    uint64_t reserved[4];
} damelo_group_stats;

/* What a store was made with and costs. */
typedef struct damelo_store_info {
    uint64_t page_bytes;
    uint64_t segment_bytes;
    uint64_t segments;
    uint64_t objects_max;
    uint64_t index_bytes;
    uint64_t memory_bytes;
    uint64_t volumes;
    uint64_t volumes_in_service;
    uint64_t created; /* 1: this open made the store */
    uint8_t store_id[16];
    uint64_t object_bytes_max; /* largest object: at most about half of the volumes */
    uint64_t reserved[3];
} damelo_store_info;

/* How far loading after an open has come. */
typedef struct damelo_recovery_progress {
    uint64_t done; /* 1: everything is loaded */
    uint64_t segments_wanted;
    uint64_t segments_loaded;
    uint64_t objects_loaded;
    uint64_t reserved[4];
} damelo_recovery_progress;

/* ---- errors --------------------------------------------------------------------------------- */

/* The library's version, such as "0.1.0". */
const char *damelo_version(void);

/* What a status means, in English; never NULL, also for numbers that are no status. */
const char *damelo_strerror(int status);

/* Writes "prefix: what the status means" and, if this thread's last error had this status, its
 * details to stderr. The prefix may be NULL or empty. */
void damelo_perror(const char *prefix, int status);

/* Details of this thread's last error, such as the path concerned; "" if there was none. Valid
 * until the next call of the library from this thread. A success leaves it as it is. */
const char *damelo_last_error_message(void);

/* ---- options -------------------------------------------------------------------------------- */

/* A setter refuses (DAMELO_EINVAL) what is outside an enumeration, and some of what is out of
 * range. Whatever else is, or does not go with another option or the volumes, is refused by
 * damelo_open, also with DAMELO_EINVAL; damelo_last_error_message() names the option, its value and
 * its limits. */

/* Options for a store on a file or block device at `path`. A file that does not exist is made with
 * `size_bytes`, and a new store takes so much of a device, or is refused if there is less; 0
 * declares no size: the store must exist then. NULL when the path is. */
damelo_options *damelo_options_new(const char *path, uint64_t size_bytes);
void damelo_options_free(damelo_options *options);

/* A further volume; size 0: it keeps its own size. */
int damelo_options_add_volume(damelo_options *options, const char *path, uint64_t size_bytes);

/* Memory for data, in bytes. Default 256 MiB, at least 4 MiB and 16 pages. */
int damelo_options_set_memory(damelo_options *options, uint64_t bytes);

/* Objects the index has room for, for a new store, at most one for each 128 bytes of disk; 0: one
 * for each 4 KiB (default), on less than 4 GiB one for each KiB up to a million. */
int damelo_options_set_objects_max(damelo_options *options, uint64_t objects);

/* Largest object accepted, in bytes: 1 to 2^40. Default 8 GiB; at most about half of the volumes in
 * any case, see object_bytes_max of damelo_store_info. */
int damelo_options_set_object_bytes_max(damelo_options *options, uint64_t bytes);

/* Page size for a new store, a power of two from 16 KiB to 1 MiB; 0: the default, 64 KiB. */
int damelo_options_set_page(damelo_options *options, uint64_t bytes);

/* Segment size for a new store, a power of two from 256 KiB to 64 MiB; 0: chosen by size. */
int damelo_options_set_segment(damelo_options *options, uint64_t bytes);

/* One of enum damelo_durability. */
int damelo_options_set_durability(damelo_options *options, int durability);

/* One of enum damelo_io_engine. */
int damelo_options_set_io_engine(damelo_options *options, int io_engine);

/* Nonzero (default): bypass the page cache where the file system can. */
int damelo_options_set_direct(damelo_options *options, int direct);

/* Nonzero: overwrite a device or file that holds something else (not zeros in its first 4 MiB and
 * last MiB), be it what gives DAMELO_EFORMAT: a store of another version, or one that has lost both
 * of its superblocks. Default 0. */
int damelo_options_set_force(damelo_options *options, int force);

/* Nonzero: make a new store even where there is one; what the volumes hold is lost, a store's
 * objects too, and a file gets the size declared for it. Goes without force, and not together with
 * must_exist. Default 0. */
int damelo_options_set_anew(damelo_options *options, int anew);

/* Nonzero: refuse to make a store that does not exist. Default 0 (1 if no size was declared). */
int damelo_options_set_must_exist(damelo_options *options, int must_exist);

/* Nonzero: open a store of several volumes though some are missing, all but the first: a disk died, or
 * is not mounted. What they hold is as if not there; when they are back, nothing is served that was
 * removed or replaced meanwhile, and nothing at all of them once something was changed without them.
 * No effect with force or anew. Default 0. */
int damelo_options_set_without_missing(damelo_options *options, int without_missing);

/* I/Os at the device at once, 1 to 4096; at most 8 on a rotating disk, and 16 where threads do the I/O.
 * Default 64. */
int damelo_options_set_queue_depth(damelo_options *options, uint32_t depth);

/* One of enum damelo_seeks: a disk with an arm that moves gets few I/Os at once, in the order of their
 * places. Default DAMELO_SEEKS_AUTO. */
int damelo_options_set_seeks(damelo_options *options, int seeks);

/* One of enum damelo_when_memory_full, and the longest wait for memory (default 10,000 ms). It also
 * bounds the waits for the disk, whichever is chosen: with 0, what comes in faster than the disk
 * takes it gives DAMELO_EMEMORY at once, even if nobody reads. */
int damelo_options_set_when_memory_full(damelo_options *options, int what, uint64_t wait_ms);

/* The longest wait of a create, a writer or new metadata for memory or the disk, in place of the
 * above, which then bounds reads alone. Default: as long as these. 0: what finds no room gives
 * DAMELO_EMEMORY at once. Only where the death of an older version is to be journalled, and the journal
 * waits for a checkpoint, a create waits for that as removes do, up to 10 s. */
int damelo_options_set_create_wait(damelo_options *options, uint64_t wait_ms);

/* One of enum damelo_residency. */
int damelo_options_set_residency(damelo_options *options, int policy);

/* One of enum damelo_disk_policy. */
int damelo_options_set_disk_policy(damelo_options *options, int policy);

/* One of enum damelo_admission, and bytes a second, a size in bytes, or a percentage for those that
 * take a number. */
int damelo_options_set_admission(damelo_options *options, int policy, uint64_t number);

/* As DAMELO_ADMIT_WRITE_BUDGET, which averages over ten seconds, but over another time: 200 GiB in
 * 86,400,000 ms are 200 GiB a day, all of which may be written at once. */
int damelo_options_set_write_budget(damelo_options *options, uint64_t bytes, uint64_t window_ms);

/* One of enum damelo_reinsertion. */
int damelo_options_set_reinsertion(damelo_options *options, int policy);

/* Least time between index checkpoints, which come less often while little is written; 0: only at
 * close. Default 30,000 ms. */
int damelo_options_set_checkpoint_period(damelo_options *options, uint64_t period_ms);

/* Longest time a created object stays only in memory; 0: no limit. Default 5,000 ms. */
int damelo_options_set_flush_period(damelo_options *options, uint64_t period_ms);

/* Share of a reused segment that may be written again, in percent, at most 90. Default 20. What is
 * left of a nearly empty segment is kept besides, unless it is 0. */
int damelo_options_set_reinsert_percent_max(damelo_options *options, uint32_t percent);

/* DAMELO_DISK_FBC: hits counted per object at most (C_max), at most 3. Default 3. */
int damelo_options_set_fbc_count_max(damelo_options *options, uint32_t count);

/* DAMELO_DISK_FBC: mean count above which all are halved (A_max), in hundredths. Default 100. */
int damelo_options_set_fbc_average_max_percent(damelo_options *options, uint32_t percent);

/* Groups whose pages and hints are remembered at once, within a twelfth of the memory; 0: as few as
 * can be, at most 2^32. Default 65,536. */
int damelo_options_set_groups_tracked_max(damelo_options *options, uint64_t groups);

/* Consecutive errors after which a volume is taken out of service, at least 1. Default 16. */
int damelo_options_set_volume_errors_max(damelo_options *options, uint32_t errors);

/* A volume that leaves every read unanswered for so long is not asked for more until it answers one:
 * DAMELO_EIO. Default 5 s; 0: it is asked all the same. */
int damelo_options_set_answer_wait(damelo_options *options, uint64_t wait_ms);

/* How long damelo_open waits for what an earlier life left; loading goes on afterwards. Default
 * 100 ms. */
int damelo_options_set_open_wait(damelo_options *options, uint64_t wait_ms);

/* ---- store ---------------------------------------------------------------------------------- */

/* Opens a store, making it first if it does not exist. The options stay the caller's. */
int damelo_open(const damelo_options *options, damelo_store **out);

/* Writes out everything, closes and frees the store, also when it reports an error. No other call
 * may use the store at the same time or later. Unfinished writers are abandoned; writers and
 * readers that are not freed yet keep the volumes locked (DAMELO_ELOCKED) until they are. */
int damelo_close(damelo_store *store);

/* Blocks until everything created before is on disk and synced. */
int damelo_sync(damelo_store *store);

/* Blocks until everything removed and purged before would survive a loss of power: one sync of the
 * journal. Objects in memory stay there. With DAMELO_DURABILITY_NONE it does nothing for removes. */
int damelo_sync_removes(damelo_store *store);

/* Writes an index checkpoint now. */
int damelo_checkpoint(damelo_store *store);

/* How long objects of this group may stay only in memory; 0: never forced out. */
int damelo_set_flush_period(damelo_store *store, uint64_t group, uint64_t period_ms);

/* Forgets every object in memory that is also on disk. */
int damelo_drop_memory(damelo_store *store);

/* How far loading has come (an open store serves meanwhile), and waiting for its end. */
int damelo_recovery(const damelo_store *store, damelo_recovery_progress *out);
int damelo_wait_recovered(const damelo_store *store);

/* What the store was made with and costs. */
int damelo_get_store_info(const damelo_store *store, damelo_store_info *out);

/* Warnings of the open, one a line; free with damelo_text_free. */
int damelo_warnings_text(const damelo_store *store, char **out);

/* All statistics in OpenMetrics text; free with damelo_text_free. */
int damelo_stats_text(const damelo_store *store, char **out);
void damelo_text_free(char *text);

/* ---- objects -------------------------------------------------------------------------------- */

/* A key has 1 to 65,536 bytes. Creating one of another length gives DAMELO_EKEY; asking for it
 * gives DAMELO_ENOTFOUND, since no object can have it. Metadata has at most 1 MiB, less where
 * segments are small or memory is little; more gives DAMELO_EMETADATA. */

/* Stores an object. An existing one with this key is replaced atomically; who reads it keeps it.
 * When the new one is refused (DAMELO_ETOOLARGE, _EMETADATA, _EMEMORY, _ENOTADMITTED) the old one,
 * being out of date, is removed. */
int damelo_create(damelo_store *store, const void *key, size_t key_bytes, uint64_t group,
                  const void *value, size_t value_bytes);

/* The same, with metadata and the time from which it counts as missing (0: never; after 2^32 - 1,
 * in February 2106, counts as that). */
int damelo_create_with(damelo_store *store, const void *key, size_t key_bytes, uint64_t group,
                       const void *value, size_t value_bytes, const void *metadata,
                       size_t metadata_bytes, uint64_t expires_unix_s);

/* Pins an object in memory without copying it. DAMELO_ENOTFOUND: not there. DAMELO_ETOOLARGE: it
 * takes more than an eighth of the memory, or than 2 GiB; use a reader or damelo_read_range. A small
 * object pins the whole page that it lies in (64 KiB by default): release it soon, or copy it. */
int damelo_read(damelo_store *store, const void *key, size_t key_bytes, damelo_object **out);
void damelo_object_release(damelo_object *object);

/* A second pin of the same object, released on its own. NULL when `object` is. */
damelo_object *damelo_object_clone(const damelo_object *object);

/* The bytes; never to be written to. Valid until release. NULL only for a null object. */
const void *damelo_object_data(const damelo_object *object);
size_t damelo_object_length(const damelo_object *object);
const void *damelo_object_key(const damelo_object *object, size_t *key_bytes);
const void *damelo_object_metadata(const damelo_object *object, size_t *metadata_bytes);
uint64_t damelo_object_group(const damelo_object *object);
uint64_t damelo_object_expires(const damelo_object *object); /* 0: never */
int damelo_object_from_memory(const damelo_object *object);  /* 1: read without I/O */

/* Pins up to `length` bytes of an object from `offset` on; less at its end, none behind it. */
int damelo_read_range(damelo_store *store, const void *key, size_t key_bytes, uint64_t offset,
                      uint64_t length, damelo_range **out);
void damelo_range_release(damelo_range *range);
const void *damelo_range_data(const damelo_range *range);
size_t damelo_range_length(const damelo_range *range);
uint64_t damelo_range_offset(const damelo_range *range);
uint64_t damelo_range_object_length(const damelo_range *range);
const void *damelo_range_metadata(const damelo_range *range, size_t *metadata_bytes);

/* What is known of an object, without its bytes. */
int damelo_lookup(damelo_store *store, const void *key, size_t key_bytes, damelo_info *out);

/* Its length alone. */
int damelo_length(damelo_store *store, const void *key, size_t key_bytes, uint64_t *out);

/* 0: a read would find nothing; 1: perhaps it would find it. Never any I/O. What a store that recovers
 * has not loaded yet counts as not there, and so does what lies on a volume out of service, with which
 * it may come back; to be rid of it, remove it all the same. */
int damelo_may_contain(damelo_store *store, const void *key, size_t key_bytes, int *out);

/* Copies the metadata into `buffer`. `metadata_bytes` gets its length also with DAMELO_EBUFFER,
 * when `capacity` is too small and nothing is copied. */
int damelo_get_metadata(damelo_store *store, const void *key, size_t key_bytes, void *buffer,
                        size_t capacity, size_t *metadata_bytes);

/* Replaces the metadata; the value of a large object is not written again. What another thread does
 * with the same key meanwhile stands: DAMELO_ENOTFOUND if it was removed or purged,
 * DAMELO_ESUPERSEDED if it was stored anew (or, now and then, if a large object was just moved on
 * disk: try again). DAMELO_EWRITING: a large object did not get to disk in time. */
int damelo_set_metadata(damelo_store *store, const void *key, size_t key_bytes,
                        const void *metadata, size_t metadata_bytes);

/* The same, with a new time of expiry (0: never) in place of the one that the object has. */
int damelo_set_metadata_with(damelo_store *store, const void *key, size_t key_bytes,
                             const void *metadata, size_t metadata_bytes,
                             uint64_t expires_unix_s);

/* Deletes an object, without data I/O. DAMELO_ENOTFOUND: certainly not there. DAMELO_EIO: it is
 * gone, but a crash may bring it back. */
int damelo_remove(damelo_store *store, const void *key, size_t key_bytes);

/* ---- groups --------------------------------------------------------------------------------- */

/* The group of a name, which may be empty: the same number in every process and release. 0 for a
 * null name of another length than 0. */
uint64_t damelo_group_of(const void *name, size_t name_bytes);

/* Keep the group's objects in memory; let them go first; neither. */
int damelo_love(damelo_store *store, uint64_t group);
int damelo_hate(damelo_store *store, uint64_t group);
int damelo_neutral(damelo_store *store, uint64_t group);

/* Brings the group's pages into memory. `pages` and `bytes` may be NULL. */
int damelo_prefetch(damelo_store *store, uint64_t group, uint64_t *pages, uint64_t *bytes);

/* DAMELO_ENOTFOUND: nothing is known of this group. */
int damelo_get_group_stats(const damelo_store *store, uint64_t group, damelo_group_stats *out);

/* Drop all objects of a group, with a prefix, or all there are. O(1), durable. A prefix has 1 to
 * 8,192 bytes, fewer than a key may have; of another length it gives DAMELO_EKEY, and nothing is
 * dropped. DAMELO_EIO: they are dropped, but a crash may bring them back. */
int damelo_purge_group(damelo_store *store, uint64_t group);
int damelo_purge_prefix(damelo_store *store, const void *prefix, size_t prefix_bytes);
int damelo_purge_all(damelo_store *store);

/* ---- streams -------------------------------------------------------------------------------- */

/* Begins an object whose bytes come bit by bit. `length_hint` may be DAMELO_LENGTH_UNKNOWN, or
 * another than the length that comes: a commit stores what was written. A hint of more than the
 * store takes gives DAMELO_ETOOLARGE, and the object that was to be replaced is removed, as by a
 * damelo_create that is refused. */
int damelo_writer_open(damelo_store *store, const void *key, size_t key_bytes, uint64_t group,
                       const void *metadata, size_t metadata_bytes, uint64_t expires_unix_s,
                       uint64_t length_hint, damelo_writer **out);

/* Appends. When the object is refused (as by damelo_create), the one that was to be replaced is
 * removed. After an error every other write, and the commit, give DAMELO_ETORN; without one,
 * damelo_writer_abort leaves the object that was to be replaced in place. */
int damelo_writer_write(damelo_writer *writer, const void *data, size_t data_bytes);

/* Replaces the metadata that the object will have. It is the commit that refuses what is too large
 * (DAMELO_EMETADATA). */
int damelo_writer_set_metadata(damelo_writer *writer, const void *metadata, size_t metadata_bytes);

/* Makes the object visible, and frees the writer, also when it fails. */
int damelo_writer_commit(damelo_writer *writer);

/* Leaves nothing behind, and frees the writer. */
void damelo_writer_abort(damelo_writer *writer);

/* Begins to read an object in pieces; it need not fit into memory. */
int damelo_reader_open(damelo_store *store, const void *key, size_t key_bytes,
                       damelo_reader **out);
void damelo_reader_close(damelo_reader *reader);
int damelo_reader_info(const damelo_reader *reader, damelo_info *out);
const void *damelo_reader_metadata(const damelo_reader *reader, size_t *metadata_bytes);

/* The next piece, valid until the next call with this reader. At the end: NULL and 0. */
int damelo_reader_next(damelo_reader *reader, const void **data, size_t *data_bytes);

/* Where the next piece starts. */
int damelo_reader_seek(damelo_reader *reader, uint64_t offset);

/* ---- the interface of the thesis, for C; for C++ see damelo.hpp ------------------------------- */

/* Opens a store for groups 1 to `group_count` with `memory_mb` MiB of memory. The environment may
 * say DAMELO_VOLUME=PATH to use another file or device than `path`, and DAMELO_VOLUME_SIZE=64MiB to
 * make a file that does not exist. */
int damelo_thesis_open(const char *path, int group_count, int memory_mb, damelo_thesis **out);
int damelo_thesis_close(damelo_thesis *thesis);
int damelo_thesis_create(damelo_thesis *thesis, const char *name, int group, const char *data,
                         int length);
int damelo_thesis_lookup(damelo_thesis *thesis, const char *name, int *group);

/* Pins the object until as many calls of release. `data` must not be written to. */
int damelo_thesis_read(damelo_thesis *thesis, const char *name, int group, char **data,
                       int *length);
int damelo_thesis_release(damelo_thesis *thesis, const char *name, int group);
int damelo_thesis_remove(damelo_thesis *thesis, const char *name, int group);
int damelo_thesis_love(damelo_thesis *thesis, int group);
int damelo_thesis_hate(damelo_thesis *thesis, int group);
int damelo_thesis_set_checkpoint(damelo_thesis *thesis, int group, int seconds);

#ifdef __cplusplus
} /* extern "C" */

#ifndef DAMELO_NO_CLASS
#include "damelo.hpp"
#endif
#endif

#endif /* DAMELO_H */
