#!/usr/bin/python3
"""SentencePiece models of many kinds: ids and texts of `taperc` against the sentencepiece library, on Scripture, many scripts, emoji, NUL,
bytes that are no UTF-8, CRLF, spaces, and one letter a hundred thousand times. Models are trained here; one real vocabulary comes from a package."""
import os
import random
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TAPERC = os.path.join(os.path.abspath(sys.argv[1]), "taperc")
QUICK = bool(os.environ.get("TAPERC_QUICK"))
KJV = open(os.path.join(ROOT, "examples/data/kjv.txt"), "rb").read()
REAL = os.path.join(ROOT, "build/oracles/mistral.model.v1")
SOURCE = """model words(vocab = %d, context = 8) {
  param wte: [vocab, 4] init normal(0.02);
  forward(tokens) { return linear(embed(tokens, wte), weight = wte); }
}
train { tokenizer sentencepiece(model = "its.model"); }
"""
MODELS = {
    "bpe, bytes": dict(model_type="bpe", vocab_size=700, normalization_rule_name="identity", byte_fallback=True),
    "unigram, bytes": dict(model_type="unigram", vocab_size=700, normalization_rule_name="identity", byte_fallback=True),
    "bpe, nmt_nfkc": dict(model_type="bpe", vocab_size=300),
    "unigram, symbols": dict(model_type="unigram", vocab_size=500, user_defined_symbols=["<sep>", "LORD", "  ", "\u2581x\u2581"], control_symbols=["<ctl>"]),
    "bpe, symbols, spaces kept": dict(model_type="bpe", vocab_size=800, user_defined_symbols=["<sep>", "LORD", "\t"], byte_fallback=True, remove_extra_whitespaces=False,
                                      add_dummy_prefix=False, normalization_rule_name="nfkc"),
    "unigram, case folded": dict(model_type="unigram", vocab_size=700, allow_whitespace_only_pieces=True, remove_extra_whitespaces=False, byte_fallback=True,
                                 normalization_rule_name="nfkc_cf", split_digits=True),
    "bpe, spaces behind": dict(model_type="bpe", vocab_size=400, treat_whitespace_as_suffix=True, normalization_rule_name="nmt_nfkc_cf"),
    "unigram, across words": dict(model_type="unigram", vocab_size=600, split_by_whitespace=False, unk_surface="UNK", normalization_rule_name="identity"),
    "bpe, across words": dict(model_type="bpe", vocab_size=600, split_by_whitespace=False, byte_fallback=True),
    "characters": dict(model_type="char", vocab_size=60),
}
RANGES = [(0x20, 0x7F), (0xA0, 0x180), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x4FF), (0x590, 0x5F4), (0x600, 0x6FF), (0x900, 0x97F), (0xE00, 0xE5B), (0x1100, 0x11FF), (0x2000, 0x218F),
          (0x2500, 0x25FF), (0x3000, 0x30FF), (0x4E00, 0x4F00), (0xAC00, 0xAD00), (0xFB00, 0xFB4F), (0xFE00, 0xFE20), (0xFF00, 0xFFEF), (0x1D400, 0x1D500), (0x1F300, 0x1F6FF)]


def texts():
    rng = random.Random(7)
    out = [b"", b" ", b"   ", b"\n", b"a", b" a", b"a ", b"  a  b  ", b"\0", b"a\0b", b"a\r\nb\r\n", b"\t\ta", b"\xff", b"\xff\xfe", b"a\xc3", b"\xe2\x96", b"\xe2\x96\x81",
           b"\xe2\x96\x81a\xe2\x96\x81\xe2\x96\x81", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"<s></s><unk><sep>LORD<ctl><0x41>", b"LORDLORD  LORD the Lord",
           b"the LORD\tGod\xe3\x80\x80x\xc2\xa0y", b"\xef\xbf\xbd\xef\xbb\xbfa", b"\xe2\x81\x87",
           "\U0001F469\u200d\U0001F469\u200d\U0001F467 e\u0301 \u00e9 \ufb01 \u2167 \u3314 \u00bd \ufdfa".encode(), "  \u3000 x".encode(), "\u00a0\u2003".encode()]
    for _ in range(4 if QUICK else 12):
        out.append("".join(chr(rng.choice(range(*rng.choice(RANGES)))) for _ in range(rng.randrange(1, 400))).encode())
        out.append(bytes(rng.randrange(256) for _ in range(rng.randrange(1, 90))))
        out.append("".join(rng.choice(["a", "the ", "LORD", "  ", "\u2581", "\n", "<sep>", "\u00e9", "\U0001F600", " x "]) for _ in range(rng.randrange(1, 90))).encode())
    out += [KJV[100000:130000], KJV[:60000].replace(b"\n", b"\r\n"), b"a" * 100000, b"ab " * 30000, "\u00e9".encode() * 20000, b" " * 50000]
    return out if QUICK else out + [KJV]


def run(*args):
    p = subprocess.run([TAPERC] + list(args), stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
    if p.returncode:
        raise RuntimeError("taperc %s: exit %d: %s" % (" ".join(args), p.returncode, p.stderr.decode().strip()[-300:]))
    return p.stdout


def compare(name, path, folder, all_texts):
    import sentencepiece

    library = sentencepiece.SentencePieceProcessor(model_file=path)
    model = os.path.join(folder, "m.tmodel")
    with open(model, "w") as f:
        f.write(SOURCE % library.get_piece_size())
    os.replace(path, os.path.join(folder, "its.model")) if os.path.dirname(path) == folder else open(os.path.join(folder, "its.model"), "wb").write(open(path, "rb").read())
    wrong = []
    for i, text in enumerate(all_texts):
        data, listed = os.path.join(folder, "text"), os.path.join(folder, "ids")
        open(data, "wb").write(text)
        ids = run("tokenize", model, "--file", data).strip()
        want = library.encode(text)
        if ids != b",".join(b"%d" % w for w in want):
            wrong.append("ids of text %d, %r" % (i, text[:40]))
            continue
        open(listed, "wb").write(ids)
        if run("detokenize", model, "--file", listed)[:-1] != (library.decode(want).encode() if want else b""):
            wrong.append("text of the ids of text %d, %r" % (i, text[:40]))
    print("%s %s: %s" % ("not ok" if wrong else "ok", name, wrong[0] if wrong else "%d texts" % len(all_texts)), flush=True)


def main():
    try:
        import sentencepiece
    except ImportError:
        print("skip the sentencepiece library: it is not there; run make setup-check with PyPI in reach")
        return
    all_texts = texts()
    with tempfile.TemporaryDirectory() as folder:
        corpus = os.path.join(folder, "corpus.txt")
        open(corpus, "wb").write(KJV[:250000])
        for i, (name, options) in enumerate(MODELS.items()):
            if QUICK and i >= 4:
                break
            sentencepiece.SentencePieceTrainer.train(input=corpus, model_prefix=os.path.join(folder, "made"), num_threads=1, minloglevel=2, **options)
            compare(name, os.path.join(folder, "made.model"), folder, all_texts)
        if os.path.exists(REAL):
            compare("a real vocabulary of 32000", REAL, folder, all_texts)
        else:
            print("skip a real vocabulary: %s is not there; run make setup-check with PyPI in reach" % os.path.relpath(REAL, ROOT))


main()
