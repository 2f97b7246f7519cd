// Ends a program of the tests that finds something wrong.
#pragma once

#include <rocksdb/status.h>
#include <stdio.h>
#include <stdlib.h>

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
