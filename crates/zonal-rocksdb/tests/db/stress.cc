// A random load on a store through RocksDB's C interface, and what is there afterwards.
//
//   stress load URI SEED COUNT: puts and deletes. A line for each operation, when it has returned: its
//     number, and 1 if it was synced. Ends with 3 when one fails.
//   stress read URI: every key and the number of the operation that put it.
#include <rocksdb/c.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <string>

extern "C" rocksdb_env_t* zonal_rocksdb_env_create(const char* uri, char** error);

namespace {

// The same numbers as in cuts.rs.
struct Random {
  uint64_t state;
  uint64_t next() {
    state += 0x9E3779B97F4A7C15;
    uint64_t mixed = state;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB;
    return mixed ^ (mixed >> 31);
  }
};

int failed(const char* what, const char* error) {
  fprintf(stderr, "%s: %s\n", what, error);
  return 3;
}

int load(rocksdb_t* db, uint64_t seed, uint64_t count) {
  Random random{seed};
  rocksdb_writeoptions_t* how[2] = {rocksdb_writeoptions_create(), rocksdb_writeoptions_create()};
  rocksdb_writeoptions_set_sync(how[1], 1);
  for (uint64_t number = 1; number <= count; ++number) {
    const std::string key = std::to_string(random.next() % 200);
    const bool deletes = random.next() % 5 == 0;
    const int synced = random.next() % 4 == 0;
    const size_t len = random.next() % 3000;
    char* error = nullptr;
    if (deletes) {
      rocksdb_delete(db, how[synced], key.data(), key.size(), &error);
    } else {
      std::string value = std::to_string(number) + " ";
      value.resize(value.size() + len, static_cast<char>('a' + number % 26));
      rocksdb_put(db, how[synced], key.data(), key.size(), value.data(), value.size(), &error);
    }
    if (error != nullptr) return failed("an operation", error);
    const std::string line = std::to_string(number) + (synced ? " 1\n" : " 0\n");
    if (write(STDOUT_FILENO, line.data(), line.size()) < 0) return 4;
  }
  return 0;
}

int read(rocksdb_t* db) {
  rocksdb_readoptions_t* options = rocksdb_readoptions_create();
  rocksdb_readoptions_set_verify_checksums(options, 1);
  rocksdb_iterator_t* at = rocksdb_create_iterator(db, options);
  for (rocksdb_iter_seek_to_first(at); rocksdb_iter_valid(at); rocksdb_iter_next(at)) {
    size_t key_len, len;
    const char* key = rocksdb_iter_key(at, &key_len);
    const char* value = rocksdb_iter_value(at, &len);
    const char* end = static_cast<const char*>(memchr(value, ' ', len));
    if (end == nullptr) return failed("a value", "has no number");
    const std::string number(value, end - value);
    const char filled = static_cast<char>('a' + strtoull(number.c_str(), nullptr, 10) % 26);
    for (const char* byte = end + 1; byte < value + len; ++byte) {
      if (*byte != filled) return failed("a value", "has other bytes");
    }
    printf("%.*s %s\n", static_cast<int>(key_len), key, number.c_str());
  }
  char* error = nullptr;
  rocksdb_iter_get_error(at, &error);
  if (error != nullptr) return failed("reading", error);
  rocksdb_iter_destroy(at);
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  const std::string what = count > 2 ? arguments[1] : "";
  const bool loads = what == "load" && count == 5;
  if (!loads && what != "read") return fprintf(stderr, "usage: see the source\n"), 2;
  char* error = nullptr;
  rocksdb_env_t* env = zonal_rocksdb_env_create(arguments[2], &error);
  if (env == nullptr) return failed("opening the drive", error);
  rocksdb_options_t* options = rocksdb_options_create();
  rocksdb_options_set_create_if_missing(options, 1);
  rocksdb_options_set_env(options, env);
  rocksdb_options_set_paranoid_checks(options, 1);
  // Small, so that there are many tables and compactions.
  rocksdb_options_set_write_buffer_size(options, 64 << 10);
  rocksdb_options_set_target_file_size_base(options, 64 << 10);
  rocksdb_options_set_max_bytes_for_level_base(options, 256 << 10);
  rocksdb_options_set_level0_file_num_compaction_trigger(options, 2);
  rocksdb_t* db = rocksdb_open(options, "/store", &error);
  if (error != nullptr) return failed("opening the store", error);
  const int result = loads ? load(db, strtoull(arguments[3], nullptr, 10),
                                  strtoull(arguments[4], nullptr, 10))
                           : read(db);
  rocksdb_close(db);
  rocksdb_options_destroy(options);
  rocksdb_env_destroy(env);
  return result;
}
