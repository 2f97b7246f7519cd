// Ends a program of the tests that finds something wrong.
#pragma once

#include <rocksdb/db.h>
#include <stdio.h>
#include <stdlib.h>

#include <memory>

inline void Must(const rocksdb::Status& status, const char* what) {
  if (status.ok()) return;
  fprintf(stderr, "%s: %s\n", what, status.ToString().c_str());
  exit(1);
}

inline void Expect(bool holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "not so: %s\n", what);
  exit(1);
}

// Opens a store: newer versions of RocksDB give a unique_ptr, older ones an address.
template <typename DB = rocksdb::DB, typename... Arguments>
std::unique_ptr<DB> OpenStore(Arguments... arguments) {
  std::unique_ptr<DB> db;
  if constexpr (requires { DB::Open(arguments..., &db); }) {
    Must(DB::Open(arguments..., &db), "opening");
  } else {
    DB* opened = nullptr;
    Must(DB::Open(arguments..., &opened), "opening");
    db.reset(opened);
  }
  return db;
}
