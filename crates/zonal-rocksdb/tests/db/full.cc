// Fills a drive to its end, and goes on when there is room again.
//
//   full URI
#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/file_system.h>
#include <rocksdb/sst_file_manager.h>
#include <stdio.h>
#include <stdlib.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "must.h"

using namespace rocksdb;

namespace {

std::string Key(uint64_t number) {
  char key[20];
  snprintf(key, sizeof(key), "%010llu", static_cast<unsigned long long>(number));
  return key;
}

std::string Value(uint64_t number) {
  return std::string(4000, static_cast<char>('a' + number % 26));
}

std::unique_ptr<DB> Open(const Options& options) {
  return OpenStore(options, "/store");
}

// Every key from `first` on and before `end`, and no other.
void Check(DB* db, uint64_t first, uint64_t end) {
  ReadOptions how;
  how.verify_checksums = true;
  const std::unique_ptr<Iterator> at(db->NewIterator(how));
  uint64_t number = first;
  for (at->SeekToFirst(); at->Valid(); at->Next(), ++number) {
    // A put that has failed may be there.
    if (number >= end) break;
    if (at->key() != Key(number)) {
      fprintf(stderr, "key %s in place of %s\n", at->key().ToString().c_str(), Key(number).c_str());
      exit(1);
    }
    Expect(at->value() == Value(number), "a value");
  }
  Must(at->status(), "reading");
  Expect(number == end, "every key is there");
}

// Puts keys from `from` on until one fails, and returns which.
uint64_t Fill(DB* db, uint64_t from, Status* why) {
  for (uint64_t number = from;; ++number) {
    *why = db->Put(WriteOptions(), Key(number), Value(number));
    if (!why->ok()) return number;
  }
}

// Whether a put has failed because the drive is full. To a writer that waits for a background
// thread, RocksDB returns the error of that thread as Incomplete.
bool IsFull(const Status& status) {
  return status.IsNoSpace() ||
         (status.IsIncomplete() && status.ToString().find("No space left") != std::string::npos);
}

// Waits until RocksDB has resumed: by itself, since it looks for room from time to time, or by
// Resume().
void Resume(DB* db, bool asks) {
  Status status;
  for (int tries = 0; tries < 3000; ++tries) {
    status = asks ? db->Resume() : db->Put(WriteOptions(), Key(0), "gone again");
    if (status.ok()) return;
    Expect(status.IsBusy() || IsFull(status), status.ToString().c_str());
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  Must(status, "resuming");
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) return 2;
  std::shared_ptr<FileSystem> files;
  Must(FileSystem::CreateFromString(ConfigOptions(), arguments[1], &files), "the address");
  const std::unique_ptr<Env> env = NewCompositeEnv(files);
  Options options;
  options.env = env.get();
  options.create_if_missing = true;
  options.write_buffer_size = 1 << 20;
  options.target_file_size_base = 1 << 20;
  options.max_bytes_for_level_base = 8 << 20;
  options.compression = kNoCompression;
  std::unique_ptr<DB> db = Open(options);
  uint64_t first = 0, end = 0;
  for (int round = 0; round < 3; ++round) {
    Status why;
    const uint64_t from = end;
    end = Fill(db.get(), end, &why);
    printf("round %d: %llu puts, then %s\n", round, static_cast<unsigned long long>(end - from),
           why.ToString().c_str());
    fflush(stdout);
    Expect(IsFull(why), why.ToString().c_str());
    // How many depends on the tables that could be deleted: those of the first level stay.
    Expect(end > from, "a put before that");
    Check(db.get(), first, end);
    if (round == 1) {
      // It was filled, and it opens again.
      db->Close().PermitUncheckedError();
      db.reset();
      db = Open(options);
      Check(db.get(), first, end);
      printf("opened again\n");
    }
    // Half of it goes, tables and all.
    first += (end - first) / 2;
    const std::string low = Key(0), high = Key(first);
    const Slice begin(low), limit(high);
    Must(DeleteFilesInRange(db.get(), db->DefaultColumnFamily(), &begin, &limit, false), "deleting files");
    if (round != 1) Resume(db.get(), round == 0);
    Must(db->DeleteRange(WriteOptions(), db->DefaultColumnFamily(), low, high), "deleting");
    Must(db->Put(WriteOptions(), Key(end), Value(end)), "a put after that");
    ++end;
    Check(db.get(), first, end);
  }
  Must(db->Close(), "closing");
  db.reset();
  db = Open(options);
  Check(db.get(), first, end);
  Must(db->Close(), "closing");
  return 0;
}
