// embed.cpp - one model, two threads, a session in each: the weights are there once, the parallel work takes turns.
//
//     c++ -std=c++11 -pthread -o embed embed.cpp $(pkg-config --cflags --libs taper)
//     ./embed model.tpack "And God said" "In the beginning"
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <taper.h>
#include <thread>
#include <vector>

namespace {

struct Free {
  void operator()(taper_model *m) const { taper_model_free(m); }
  void operator()(taper_session *s) const { taper_session_free(s); }
};
using Model = std::unique_ptr<taper_model, Free>;
using Session = std::unique_ptr<taper_session, Free>;

void check(taper_status status, const taper_error &error) {
  if (status != TAPER_OK) throw std::runtime_error(error.message);
}

int append(void *user, const char *text, size_t bytes) noexcept {
  try {
    static_cast<std::string *>(user)->append(text, bytes);
    return 0;
  } catch (...) { // no exception may pass through C
    return 1;
  }
}

std::string answer(taper_model *model, const std::string &prompt, uint64_t seed) {
  taper_error error{};
  taper_session *raw = nullptr;
  check(taper_session_new(model, nullptr, &raw, &error), error);
  Session session(raw);
  size_t n = 0;
  check(taper_tokenize(model, prompt.data(), prompt.size(), nullptr, 0, &n, &error), error);
  std::vector<int32_t> ids(n);
  check(taper_tokenize(model, prompt.data(), prompt.size(), ids.data(), ids.size(), &n, &error), error);
  std::string text;
  taper_generation options;
  taper_generation_init(&options);
  options.max_tokens = 100;
  options.sampling.seed = seed;
  options.on_text = append;
  options.user = &text;
  check(taper_generate(session.get(), 0, ids.data(), ids.size(), &options, nullptr, &error), error);
  return text;
}

} // namespace

int main(int argc, char **argv) {
  if (argc != 4) return std::fprintf(stderr, "usage: embed PACKAGE PROMPT PROMPT\n"), 2;
  taper_error error{};
  taper_model *raw = nullptr;
  if (taper_model_open(argv[1], nullptr, &raw, &error) != TAPER_OK)
    return std::fprintf(stderr, "embed: %s\n", error.message), 1;
  Model model(raw);
  std::string texts[2], failures[2];
  std::thread threads[2];
  for (unsigned i = 0; i < 2; i++) {
    threads[i] = std::thread([&, i] {
      try {
        texts[i] = answer(model.get(), argv[2 + i], i);
      } catch (const std::exception &e) { failures[i] = e.what(); }
    });
  }
  for (std::thread &t : threads) t.join();
  for (unsigned i = 0; i < 2; i++) {
    if (!failures[i].empty()) return std::fprintf(stderr, "embed: %s\n", failures[i].c_str()), 1;
    std::printf("%s%s\n\n", argv[2 + i], texts[i].c_str());
  }
  return 0;
}
