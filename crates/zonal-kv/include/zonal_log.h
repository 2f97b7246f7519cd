// A line of a database's log, as both shims write it.
#pragma once

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#include <functional>
#include <string>
#include <thread>

namespace zonal {

// Time, thread and text, with the end of the line.
inline std::string LogLine(const char* format, va_list arguments) {
  timeval now;
  gettimeofday(&now, nullptr);
  tm parts;
  localtime_r(&now.tv_sec, &parts);
  char head[96];
  const size_t thread = std::hash<std::thread::id>()(std::this_thread::get_id());
  snprintf(head, sizeof(head), "%04d/%02d/%02d-%02d:%02d:%02d.%06d %zx ", parts.tm_year + 1900,
           parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
           static_cast<int>(now.tv_usec), thread);
  std::string line = head;
  va_list again;
  va_copy(again, arguments);
  const int length = vsnprintf(nullptr, 0, format, again);
  va_end(again);
  if (length > 0) {
    const size_t begin = line.size();
    // With room for the zero byte that vsnprintf adds.
    line.resize(begin + length + 1);
    vsnprintf(&line[begin], length + 1, format, arguments);
    line.pop_back();
  }
  if (line.back() != '\n') line += '\n';
  return line;
}

}  // namespace zonal
