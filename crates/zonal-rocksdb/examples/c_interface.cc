// A store on a zoned drive through RocksDB's C interface: the way of bindings, such as those of Rust
// and Go, that hold a rocksdb_env_t.
//
// c++ c_interface.cc -o c_interface -lrocksdb -L. -lzonal_rocksdb && ./c_interface zonal://drive.zns
#include <rocksdb/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern "C" rocksdb_env_t* zonal_rocksdb_env_create(const char* uri, char** error);

static int failed(const char* what, char* error) {
  fprintf(stderr, "%s: %s\n", what, error);
  free(error);
  return 1;
}

int main(int count, char** arguments) {
  if (count != 2) return fprintf(stderr, "usage: c_interface zonal://DEVICE\n"), 2;
  char* error = nullptr;
  rocksdb_env_t* env = zonal_rocksdb_env_create(arguments[1], &error);
  if (env == nullptr) return failed("opening the drive", error);

  rocksdb_options_t* options = rocksdb_options_create();
  rocksdb_options_set_create_if_missing(options, 1);
  rocksdb_options_set_env(options, env);
  rocksdb_t* db = rocksdb_open(options, "/store", &error);
  if (error != nullptr) return failed("opening the store", error);

  rocksdb_writeoptions_t* durably = rocksdb_writeoptions_create();
  rocksdb_writeoptions_set_sync(durably, 1);
  rocksdb_put(db, durably, "key", 3, "value", 5, &error);
  if (error != nullptr) return failed("put", error);

  rocksdb_readoptions_t* reading = rocksdb_readoptions_create();
  size_t length = 0;
  char* value = rocksdb_get(db, reading, "key", 3, &length, &error);
  if (error != nullptr) return failed("get", error);
  printf("key is %.*s\n", static_cast<int>(length), value);
  rocksdb_free(value);

  rocksdb_readoptions_destroy(reading);
  rocksdb_writeoptions_destroy(durably);
  rocksdb_close(db);
  rocksdb_options_destroy(options);
  // The last handle: the drive is left clean.
  rocksdb_env_destroy(env);
  return 0;
}
