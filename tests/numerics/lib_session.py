"""libtaper's sessions from Python: what random calls need of taper.h."""
import ctypes as c
import os

import numpy as np


class Error(c.Structure):
    _fields_ = [("status", c.c_int), ("message", c.c_char * 1000)]


class ModelOptions(c.Structure):
    _fields_ = [("size", c.c_size_t), ("threads", c.c_uint32), ("spin_us", c.c_uint32), ("cpus", c.c_void_p), ("cpu_count", c.c_size_t), ("chunk_rows", c.c_uint32),
                ("image", c.c_char_p), ("device", c.c_char_p), ("gemm", c.c_char_p), ("no_graph", c.c_int), ("allocator", c.c_void_p * 2), ("log", c.c_void_p), ("log_user", c.c_void_p)]


class SessionOptions(c.Structure):
    _fields_ = [("size", c.c_size_t), ("max_batch", c.c_uint32), ("context", c.c_uint32)]


class Entry(c.Structure):
    _fields_ = [("seq", c.c_uint32), ("tokens", c.POINTER(c.c_int32)), ("n", c.c_size_t), ("logits", c.POINTER(c.c_float))]


class Sampling(c.Structure):
    _fields_ = [("size", c.c_size_t), ("temperature", c.c_float), ("top_k", c.c_uint32), ("top_p", c.c_float), ("min_p", c.c_float), ("repeat_penalty", c.c_float),
                ("repeat_last", c.c_uint32), ("seed", c.c_uint64)]


ON_TOKEN = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_int32)


class Generation(c.Structure):
    _fields_ = [("size", c.c_size_t), ("sampling", Sampling), ("max_tokens", c.c_size_t), ("stop", c.c_void_p), ("stop_count", c.c_size_t), ("on_text", c.c_void_p),
                ("on_token", ON_TOKEN), ("user", c.c_void_p)]


def ids(tokens):
    return (c.c_int32 * max(1, len(tokens)))(*[int(t) for t in tokens])


class Library:
    def __init__(self, build):
        self.lib = c.CDLL(os.path.join(build, "libtaper.so"))
        self.lib.taper_session_length.restype = c.c_uint32

    def must(self, status, error, what):
        if status:
            raise RuntimeError("%s: status %d: %s" % (what, status, error.message.decode()))


class Session:
    """Sequences of one model; every call says what it was if it fails."""

    def __init__(self, library, package, vocab, device="sim", max_batch=8, context=0, **options):
        self.l, self.lib, self.vocab = library, library.lib, vocab
        o, s, self.error = ModelOptions(), SessionOptions(), Error()
        self.lib.taper_model_options_init(c.byref(o))
        o.device = device.encode()
        for name, value in options.items():
            setattr(o, name, value)
        self.model, self.session = c.c_void_p(), c.c_void_p()
        library.must(self.lib.taper_model_open(package.encode(), c.byref(o), c.byref(self.model), c.byref(self.error)), self.error, "open")
        self.lib.taper_session_options_init(c.byref(s))
        s.max_batch, s.context = max_batch, context
        library.must(self.lib.taper_session_new(self.model, c.byref(s), c.byref(self.session), c.byref(self.error)), self.error, "a session")

    def close(self):
        self.lib.taper_session_free(self.session)
        self.lib.taper_model_free(self.model)

    def length(self, seq):
        return self.lib.taper_session_length(self.session, seq)

    def batch(self, parts):
        """parts: {seq: tokens} -> {seq: logits after the last}"""
        logits = {seq: np.zeros(self.vocab, np.float32) for seq in parts}
        kept = [ids(tokens) for tokens in parts.values()]
        entries = (Entry * len(parts))(*[Entry(seq, k, len(parts[seq]), logits[seq].ctypes.data_as(c.POINTER(c.c_float))) for seq, k in zip(parts, kept)])
        self.l.must(self.lib.taper_session_append_batch(self.session, entries, c.c_size_t(len(parts)), c.byref(self.error)), self.error, "a batch")
        return logits

    def all(self, seq, tokens):
        logits = np.zeros((len(tokens), self.vocab), np.float32)
        self.l.must(self.lib.taper_session_append_all(self.session, seq, ids(tokens), c.c_size_t(len(tokens)), logits.ctypes.data_as(c.POINTER(c.c_float)), None, None,
                                                      c.byref(self.error)), self.error, "all logits")
        return logits

    def rewind(self, seq, length):
        self.l.must(self.lib.taper_session_rewind(self.session, seq, length, c.byref(self.error)), self.error, "a rewind")

    def clone(self):
        """Goes on with a copy; what it is a copy of is freed."""
        copy = c.c_void_p()
        self.l.must(self.lib.taper_session_clone(self.session, c.byref(copy), c.byref(self.error)), self.error, "a clone")
        self.lib.taper_session_free(self.session)
        self.session = copy

    def generate(self, seq, prompt, count, **sampling):
        told, g, finish = [], Generation(), c.c_int()
        self.lib.taper_generation_init(c.byref(g))
        for name, value in sampling.items():
            setattr(g.sampling, name, value)

        def on_token(user, token):
            told.append(token)
            return 0

        g.max_tokens, g.on_token = count, ON_TOKEN(on_token)
        self.l.must(self.lib.taper_generate(self.session, seq, ids(prompt), c.c_size_t(len(prompt)), c.byref(g), c.byref(finish), c.byref(self.error)), self.error, "generation")
        return told
