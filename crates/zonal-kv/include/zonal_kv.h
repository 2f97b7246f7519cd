/*
 * Files on a zoned drive for the shims of key-value stores. What each function does is said in
 * crates/zonal-kv/src/abi.rs. A function returns 0 or an errno, and zkv_last_error() then has the
 * sentence for the calling thread. Not a public interface: the shims are built with the library.
 */
#ifndef ZONAL_KV_H
#define ZONAL_KV_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zkv_store zkv_store;
typedef struct zkv_file zkv_file;

typedef struct {
  const uint8_t *data;
  size_t len;
} zkv_text;

typedef struct {
  uint64_t ino;
  uint64_t size;
  uint64_t mtime;
  uint64_t links;
  uint32_t is_directory;
} zkv_stat;

/* How a file is opened. */
enum { ZKV_READ = 1, ZKV_WRITE = 2, ZKV_CREATE = 8, ZKV_TRUNCATE = 32, ZKV_DIRECT = 64 };

const char *zkv_last_error(void);

int zkv_open(zkv_text uri, zkv_store **store);
int zkv_close(zkv_store *store);
void zkv_close_all(void);
/* 0: files take writes at their end alone. */
int zkv_overwrites(const zkv_store *store, uint32_t *answer);
int zkv_sync(const zkv_store *store);
/* Bytes that a file takes at least: of a block, or on zonefs of a zone. */
int zkv_unit(const zkv_store *store, uint64_t *bytes);
int zkv_free_bytes(const zkv_store *store, uint64_t *bytes);

int zkv_stat_path(const zkv_store *store, zkv_text path, zkv_stat *stat);
/* The names, each followed by a zero byte; given back with zkv_free_list. */
int zkv_list(const zkv_store *store, zkv_text path, uint8_t **names, size_t *len);
void zkv_free_list(uint8_t *names, size_t len);
int zkv_remove(const zkv_store *store, zkv_text path);
int zkv_create_dir(const zkv_store *store, zkv_text path);
int zkv_remove_dir(const zkv_store *store, zkv_text path);
int zkv_rename(const zkv_store *store, zkv_text from, zkv_text to);
int zkv_link(const zkv_store *store, zkv_text original, zkv_text link);

int zkv_file_open(const zkv_store *store, zkv_text path, uint32_t flags, zkv_file **file);
int zkv_file_close(zkv_file *file);
int zkv_file_read(const zkv_file *file, uint64_t offset, uint8_t *buffer, size_t len, size_t *read);
/* NULL if the bytes lie nowhere in memory: zkv_file_read copies them. They stay until the file is closed. */
int zkv_file_lend(const zkv_file *file, uint64_t offset, size_t len, const uint8_t **bytes,
                  size_t *found);
int zkv_file_append(const zkv_file *file, const uint8_t *data, size_t len);
int zkv_file_write(const zkv_file *file, const uint8_t *data, size_t len, uint64_t offset);
int zkv_file_set_len(const zkv_file *file, uint64_t len);
int zkv_file_sync(const zkv_file *file);
/* 0 none, 1 short, 2 medium, 3 long, 4 extreme. */
int zkv_file_lifetime(const zkv_file *file, uint32_t lifetime);
int zkv_file_lock(const zkv_file *file);
int zkv_file_size(const zkv_file *file, uint64_t *size);
uint64_t zkv_file_id(const zkv_file *file);

#ifdef __cplusplus
}
#endif
#endif
