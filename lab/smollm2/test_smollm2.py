#!/usr/bin/env python3
"""Tests of the prompts, of the packed answers and of the page of results: python3 lab/smollm2/test_smollm2.py

Needs bin/train (make build; TRAIN names another), whose pair file of the built-in model is packed
and joined. SMOLLM2 may name a folder of SmolLM2-135M-Instruct, whose tokenizer then cuts texts."""
import collections, json, lzma, math, os, random, re, subprocess, sys, tempfile, unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import chatml, fetch, measured, pairs, prompts, questions, results, results_runs

TRAIN = os.environ.get("TRAIN", os.path.join(HERE, "..", "..", "bin", "train"))


def made():
    """A pair file as train generate writes it."""
    with tempfile.TemporaryDirectory() as work:
        source = os.path.join(work, "prompts.jsonl")
        with open(source, "w") as f:
            for i, text in enumerate(("anna lamp harbor anna calls bruno", "bruno calls anna lamp", "lamp lamp lamp")):
                f.write(json.dumps({"id": f"train-{i:05d}", "text": text}) + "\n")
        subprocess.run([TRAIN, "generate", "-q", "--prompts", source, "--max-new", "9", "--samples", "3", "--shards", "1", "--out", work], check=True)
        with open(os.path.join(work, "pairs-00000-of-00001.jsonl"), "rb") as f:
            return f.read()


class Pack(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.data = made()
        cls.prompts = {p["id"].partition(":")[2]: p["prompt_ids"] for p in map(json.loads, cls.data.splitlines()[1:])}

    def test_crc32c(self):  # RFC 3720, appendix B.4
        for data, want in ((bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43), (bytes(range(32)), 0x46DD794E)):
            self.assertEqual(pairs.crc32c(data), want)

    def test_join_gives_the_file_back(self):
        packed = pairs.pack(self.data, "pairs-00000-of-00001.jsonl")
        self.assertEqual(pairs.join(packed, self.prompts.get), ("pairs-00000-of-00001.jsonl", self.data))

    def test_empty_response_and_large_ids(self):
        header = self.data.split(b"\n")[0]
        data = pairs.pair_file(header, [("a", [1, 49151], []), ("b", [2], [49151, 0, 65535])])
        got = pairs.join(pairs.pack(data, "x"), {"a": [1, 49151], "b": [2]}.get)
        self.assertEqual(got, ("x", data))

    def test_other_prompts(self):
        packed = pairs.pack(self.data, "x")
        for name, changed in (("hash of the prompt", {**self.prompts, "train-00001": [1, 2]}), ("lack", {"train-00000": self.prompts["train-00000"]})):
            with self.subTest(name), self.assertRaisesRegex(SystemExit, f"train-00001: .*{name}"):
                pairs.join(packed, changed.get)

    def test_damaged(self):
        lines = self.data.split(b"\n")
        for name, data in (("a line is missing", b"\n".join(lines[:1] + lines[2:])), ("lines changed places", b"\n".join([lines[0], lines[2], lines[1], *lines[3:]])),
                           ("an id is another", self.data.replace(b'"prompt_ids":[', b'"prompt_ids":[7,', 1))):
            with self.subTest(name), self.assertRaisesRegex(SystemExit, "damaged"):
                pairs.pack(data, "x")
        packed = pairs.pack(self.data, "x")
        raw = lzma.decompress(packed)
        for name, changed, error in (("a response is another", raw[:-1] + bytes([raw[-1] ^ 1]), "SHA-256"), ("the end is missing", raw[:-2], "bytes")):
            with self.subTest(name), self.assertRaisesRegex(SystemExit, error):
                pairs.join(lzma.compress(changed), self.prompts.get)


class Clean(unittest.TestCase):
    def test_markup(self):
        cases = [
            ("x.md", "guide", "---\ntitle: t\n---\n# Head {#a}\nSee [the *docs*](https://e.org/a_(b)) and <b>this</b> &amp; ![i](p.png)that.\n```go\nx := a[i](b)\n```\n",
             "# Head\nSee the *docs* and this & that."),
            ("x.rst", "guide", ".. _label:\n\n====\nHead\n====\n\nSee :ref:`there <a-b>` and ``code``, `a link <https://e.org>`_.\n\n.. code-block:: python\n   :linenos:\n\n   x = 1\n\n.. a comment\n   of two lines\n\nEnd.\n",
             "Head\n\nSee there and `code`, a link.\n\n   x = 1\n\nEnd.\n"),
            ("x.txt", "story", "Produced for Project Gutenberg\n*** START OF THE BOOK ***\nCall me.\r\n\r\n\r\n\r\nMore.\nEnd of Project Gutenberg's Book\nLicence", "Call me.\n\nMore.\n"),
            ("x.json", "profile", '{"A": {"Area": {"total": {"text": "5 km"}, "land": {"text": "4 km"}}, "Map": {"text": null}}}', "A\n\nArea: total: 5 km; land: 4 km\n"),
            ("x.json", "licence", '{"name": "n", "licenseText": "May be used."}', "May be used.\n"),
            ("x.go", "code", "// Copyright\n// All rights\n\npackage x\n// f does\n", "package x\n// f does\n"),
        ]
        for name, category, text, want in cases:
            with self.subTest(name + category):
                self.assertTrue(fetch.readable(name, category, text).startswith(want), fetch.readable(name, category, text))

    def test_versions_of_a_text_share_a_split(self):
        for group in (["GPL-2.0-only", "GPL-3.0", "GPL-1.0+"], ["BSD-2-Clause", "BSD-3-Clause"]):
            self.assertEqual(len({fetch.split_of(f"spdx-license-list/licenses/{name}.json") for name in group}), 1)
        self.assertEqual(fetch.split_of("shakespeare/miltondata/texts/comus.txt"), fetch.split_of("shakespeare/miltondata/texts/comus_gut.txt"))

    def test_shares_of_splits(self):
        n = collections.Counter(fetch.split_of(f"p/{i}.md") for i in range(4000))
        for split, share in zip(fetch.SPLITS, (0.9, 0.05, 0.05)):
            self.assertAlmostEqual(n[split] / 4000, share, delta=0.02)


class Questions(unittest.TestCase):
    text = "\n\n".join(f"The harbour of Porto was built by Anna Bell in {1700 + i} and has {i + 20} piers, as the old letters say." for i in range(12))

    def test_hidden_passages_hold_the_answer(self):
        for seed in range(400):
            for make in (questions.find, questions.keyvalue, questions.constant):
                rng = random.Random(f"{make.__name__} {seed}")
                q = make(rng, self.text, "guide")
                said = prompts.insert(rng, self.text, q.insert, False)
                self.assertTrue(all(p in said for p in q.insert), said)
                for one in (q, q.following) if q.following else (q,):
                    self.assertIn(one.answer, " ".join(q.insert))
                    self.assertNotRegex(one.ask, r"\{(?!\")")
                    if "____" in one.ask and make is questions.find:
                        self.assertIn(one.ask.split('"')[1].replace("____", one.answer), q.insert)
                rest = said
                for p in q.insert:
                    rest = rest.replace(p, "", 1)
                self.assertEqual("".join(rest.split()), "".join(self.text.split()))

    def test_answers_stand_in_the_text(self):
        for seed in range(200):
            rng = random.Random(seed)
            q = questions.quote(rng, self.text, "guide")
            self.assertIn(q.answer, self.text)
            b = questions.blank(rng, self.text, "guide")
            self.assertIn(b.ask[b.ask.index('"') + 1 : -1].replace("____", b.answer), self.text)

    def test_not_the_words_of_benchmarks(self):
        words = " ".join([f[0] + " ".join(f[2]) for f in questions.FACTS] + questions.SUMMARY).lower()
        for theirs in ("special magic", "hidden within", "memorize", "quiz you", "best thing to do in", "pass key", "sandwich", "grass is green"):
            self.assertNotIn(theirs, words)


class Draw(unittest.TestCase):
    def test_same_bytes_and_whole_documents(self):
        if not os.environ.get("SMOLLM2"):
            self.skipTest("SMOLLM2 names no model")
        model = chatml.Model(os.environ["SMOLLM2"])
        text = "\n\n".join(f"Paragraph {i} is about the town of Porto, which Anna Bell left in {1800 + i}. It goes on for a while, as texts do." for i in range(200))
        documents = [fetch.Document(f"p/{i}.md", c, s, text) for i, c in enumerate(("guide", "story", "code")) for s in fetch.SPLITS]
        documents = [fetch.Document(f"{d.path}-{d.split}", d.category, d.split, d.text) for d in documents]
        few, many = list(prompts.rows(model, documents, "train", 20, 1)), list(prompts.rows(model, documents, "train", 40, 1))
        self.assertEqual(few, many[:20])
        self.assertNotEqual(few, list(prompts.rows(model, documents, "train", 20, 2)))
        for row in many:
            self.assertTrue(all(p.endswith("-train") for p in row["source"].split()))
            self.assertTrue(256 <= len(model.prompt_ids(row)) <= 4096)


class Tests(unittest.TestCase):
    def test_permutation(self):
        for name, parts, above, want in (
            ("of 8 flips two are as extreme", [[1, 2, 3]], 0, 2 / 8),
            ("zeros change nothing", [[1, 0, 2, 0, 3]], 0, 2 / 8),
            ("against 2, of which nothing is left", [[2, 2]], 2, 1),
            ("signs cancel", [[1, -1]], 0, 1),
            ("tasks count alike", [[4, 4], [-1] * 8], 0, sum(math.comb(2, i) * math.comb(8, j) for i in range(3) for j in range(9)
                                                              if abs((4 * (2 * i - 2)) / 2 + (2 * j - 8) / 8) >= 3) / 2**10),
        ):
            with self.subTest(name):
                self.assertAlmostEqual(results_runs.permutation(parts, above), want)
        self.assertTrue(math.isnan(results_runs.permutation([[1]])))

    def test_permutation_of_many(self):
        # All equal, so that the exact p is that of a sign test: 15 of 20 won or lost.
        p = results_runs.permutation([[1] * 15 + [-1] * 5])
        self.assertAlmostEqual(p, 2 * sum(math.comb(20, k) for k in range(15, 21)) / 2**20, delta=0.006)
        self.assertEqual(p, results_runs.permutation([[1] * 15 + [-1] * 5]))

    def test_holm(self):  # Holm (1979): the least p times all, the next times one less, never falling
        self.assertEqual(results_runs.holm([0.04, 0.01, 0.03]), [0.06, 0.03, 0.06])


class ResultsPage(unittest.TestCase):
    def page(self, stage, predictions):
        with tempfile.TemporaryDirectory() as runs:
            os.makedirs(os.path.join(runs, "done"))
            os.makedirs(os.path.join(runs, stage))
            open(os.path.join(runs, "done", stage), "w").close()
            with open(os.path.join(runs, stage, "predictions.jsonl"), "w") as f:
                f.writelines(json.dumps(p) + "\n" for p in predictions)
            with open(os.path.join(runs, f"{stage}.commit"), "w") as f:
                f.write("abc1234\n")
            return results.write(runs, os.path.join(runs, "kept"))

    def predictions(self, task, length, policies, samples=10):
        """Of policies "name budget": scores of so many samples."""
        for policy, score in policies.items():
            name, _, budget = policy.partition(" ")
            for i in range(samples):
                yield {"task": task, "sample": f"{length}-{i}", "policy": name, **({"budget": budget} if budget else {}), "metric": "contains",
                       "groups": [{"key": "length", "value": str(length)}],
                       "measures": {"contains": score(i), "hit_rate": score(i) / 2, "kept_bytes": 2048, "traffic_bytes_per_step": 1024}}

    def test_needles(self):
        all, none, half = lambda i: 1, lambda i: 0, lambda i: i % 2
        policies = {"full": all, "lookaheadkv 5%": all, "snapkv 5%": none, "snapkv(kernel=1) 5%": half, "judgeq 5%": half, "judgeq(kernel=1) 5%": half}
        text = self.page("needle", [*self.predictions("niah", 1024, policies), *self.predictions("niah", 2048, {**policies, "snapkv 5%": half})])
        self.assertIn("commit abc1234", text)
        self.assertLess(text.index("Prompts of 1,024"), text.index("Prompts of 2,048"))
        table = text[text.index("Prompts of 1,024") : text.index("At 5%:")]
        self.assertEqual(re.findall(r"^\| (\S+) \|", table, re.M)[1:], ["lookaheadkv", "judgeq", "judgeq(kernel=1)", "snapkv(kernel=1)", "snapkv", "*full*"])
        self.assertIn("| snapkv(kernel=1) | 50.0 ± 16.7 |", table)
        rows = {cells[0].strip(): cells for cells in (line.strip("|").split(" | ") for line in text[text.index("## Claims") :].splitlines() if line.startswith("| needles"))}
        first = next(c for t, c in rows.items() if "LookaheadKV above every" in t)
        self.assertEqual((first[1], first[2]), ("holds", "lookaheadkv 100.0 ± 0.0, judgeq 50.0 ± 11.8"))
        self.assertIn("50.0 ± 11.8", first[3])
        kernel1 = next(c for t, c in rows.items() if "8 points above `snapkv(kernel=1)`" in t)
        self.assertEqual(kernel1[1], "does not hold")  # no difference at all, so 8 points below what is claimed
        self.assertIn("Stages that are not finished: `rates`, `adapters`, `pooling`, `settings`, `length`, `ruler`", text)
        self.assertNotIn("nan", text)

    def test_ruler_counts_what_the_full_cache_masters(self):
        text = self.page("ruler", [*self.predictions("ruler/vt", 2048, {"full": lambda i: 1, "snapkv 10%": lambda i: 1}),
                                   *self.predictions("ruler/cwe", 2048, {"full": lambda i: i < 4, "snapkv 10%": lambda i: 0})])
        self.assertIn("less than half: ruler/cwe 2048 (40%).", text)
        glance, rest = text[text.index("## At a glance") :].split("## RULER")
        for part in glance, rest:
            self.assertIn("| snapkv | 100.0 ± 0.0 |", part)

    def test_glance(self):
        """The best first and bounds last; what a benchmark lacks is left out."""
        every, half = lambda i: 1, lambda i: i % 2
        with tempfile.TemporaryDirectory() as runs:
            os.makedirs(os.path.join(runs, "done"))
            for stage, more in (("documents", {"quest 10%": every}), ("turns", {"snapkv 5%": every})):
                os.makedirs(os.path.join(runs, stage))
                open(os.path.join(runs, "done", stage), "w").close()
                with open(os.path.join(runs, stage, "predictions.jsonl"), "w") as f:
                    f.writelines(json.dumps(p) + "\n" for p in self.predictions("any", 1, {"full": every, "snapkv 10%": half, "laq 10%": every, "laq(kernel=1) 10%": every, **more}))
            text = results.write(runs, os.path.join(runs, "kept"))
        table = text[text.index("## At a glance") : text.index("## Documents")]
        self.assertEqual(re.findall(r"^\| (.*) \|$", table, re.M)[1:], [f"{p} | {s} | {s}" for p, s in (("laq", "100.0 ± 0.0"), ("snapkv", "50.0 ± 16.7"), ("*full*", "100.0 ± 0.0"))])

    def test_speckv_is_compared_with_apart(self):
        some = {"full": lambda i: 1, "lookaheadkv 10%": lambda i: i % 2, "speckv 10%": lambda i: 1, "snapkv 10%": lambda i: 0}
        text = self.page("ruler", list(self.predictions("ruler/vt", 2048, some)))
        self.assertIn("above every other prefill policy (arXiv:2603.10899, table 2, figure 2), 10% | not told apart | lookaheadkv 50.0 ± 16.7, snapkv 0.0 ± 0.0 |", text)
        self.assertIn("above SpecKV with the full cache's own draft, 10% | not told apart | lookaheadkv 50.0 ± 16.7, speckv 100.0 ± 0.0 |", text)

    def test_nothing_measured(self):
        with tempfile.TemporaryDirectory() as runs:
            self.assertIn("`needle`", results.write(runs, runs))

    def test_kept(self):
        """The page of what is kept is that of the runs, and what is measured anew takes the place of what was kept."""
        def write(runs, policies):
            for folder in ("done", "ruler"):
                os.makedirs(os.path.join(runs, folder), exist_ok=True)
            open(os.path.join(runs, "done", "ruler"), "w").close()
            with open(os.path.join(runs, "ruler", "predictions.jsonl"), "w") as f:
                f.writelines(json.dumps(p) + "\n" for p in self.predictions("ruler/vt", 2048, policies))
        with tempfile.TemporaryDirectory() as work:
            first, second, kept = (os.path.join(work, n) for n in ("first", "second", "kept"))
            write(first, {"full": lambda i: 1, "snapkv 10%": lambda i: 0, "h2o 10%": lambda i: i % 3 / 2})
            measured.keep(first, kept)
            self.assertEqual(results.write(work, kept), results.write(first, work))
            write(second, {"full": lambda i: 1, "snapkv 10%": lambda i: 1, "laq 10%": lambda i: 0})
            measured.keep(second, kept)
            text = results.write(work, kept)
            for row in ("| snapkv | 100.0 ± 0.0 |", "| h2o | 45.0 ± 13.8 |", "| laq | 0.0 ± 0.0 |"):
                self.assertIn(row, text)
            self.assertEqual(len(measured.load(kept, "ruler")["rows"]), 40)

    def test_parts(self):
        """A page of what two machines have kept of a stage's parts is that of the whole stage."""
        rows = list(self.predictions("ruler/vt", 2048, {"full": lambda i: 1, "snapkv 10%": lambda i: i % 2}))
        with tempfile.TemporaryDirectory() as work:
            whole, kept = os.path.join(work, "whole"), os.path.join(work, "kept")
            for runs, part, mine in ((whole, "", rows), (os.path.join(work, "a"), "0of2", rows[0::2]), (os.path.join(work, "b"), "1of2", rows[1::2])):
                source = os.path.join(runs, "ruler", f"shard-0000{part[0]}-of-00002" if part else "")
                os.makedirs(source)
                os.makedirs(os.path.join(runs, "done"))
                open(os.path.join(runs, "done", "ruler" + (part and "." + part)), "w").close()
                with open(os.path.join(source, "predictions.jsonl"), "w") as f:
                    f.writelines(json.dumps(p) + "\n" for p in mine)
                if part:
                    measured.keep(runs, kept)
                self.assertEqual("`ruler` (1 of 2 parts are)" in results.write(work, kept), part == "0of2")
            self.assertEqual(results.write(work, kept), results.write(whole, work))
            self.assertIn("| snapkv | 50.0 ± ", results.write(work, kept))


if __name__ == "__main__":
    unittest.main()
