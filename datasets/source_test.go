package datasets_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"glimpse/datasets"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
)

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func readAll(t *testing.T, path, format string) ([]datasets.Prompt, error) {
	t.Helper()
	r, err := datasets.OpenSource(path, format, datasets.Fields{})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var out []datasets.Prompt
	for {
		p, err := r.Next()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, p)
	}
}

type turn struct {
	Role    string `parquet:"role"`
	Content string `parquet:"content"`
}

func compressed(t *testing.T, ext, text string) string {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&b)
	if ext == ".zst" {
		var err error
		if w, err = zstd.NewWriter(&b); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestOpenSource(t *testing.T) {
	dir := t.TempDir()
	two := []datasets.Message{{Role: "user", Content: "a"}, {Role: "assistant", Content: "b"}}
	rows := filepath.Join(dir, "chat.parquet")
	if err := parquet.WriteFile(rows, []struct {
		ID       string `parquet:"id"`
		Messages []turn `parquet:"messages,list"`
		Score    int64  `parquet:"score"`
	}{{"r1", []turn{{"user", "a"}, {"assistant", "b"}}, 3}, {"r2", []turn{{"user", "c"}}, 4}}); err != nil {
		t.Fatal(err)
	}
	texts := filepath.Join(dir, "text.parquet")
	if err := parquet.WriteFile(texts, []struct {
		Text  string  `parquet:"text"`
		Other *string `parquet:"prompt,optional"`
	}{{"once", nil}, {"twice", nil}}); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "folder", "b.txt"), "second")
	write(t, filepath.Join(dir, "folder", "a.go"), "package first")
	write(t, filepath.Join(dir, "folder", "c", "d.jsonl"), `{"text": "third"}`)
	write(t, filepath.Join(dir, "folder", ".hidden"), "not this")
	for name, c := range map[string]struct {
		path, format string
		want         []datasets.Prompt
	}{
		"ShareGPT lines": {write(t, filepath.Join(dir, "s.jsonl"), `{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}], "id": "x"}`), "auto",
			[]datasets.Prompt{{ID: "x", Form: datasets.FormMessages, Messages: two}}},
		"ShareGPT array": {write(t, filepath.Join(dir, "s.json"), `[{"conversation": [{"human": "a", "assistant": "b"}]}, {"prompt": "p"}]`), "auto",
			[]datasets.Prompt{{ID: "s.json:0", Form: datasets.FormMessages, Messages: two}, {ID: "s.json:1", Form: datasets.FormPrompt, Text: "p"}}},
		"few-shot": {write(t, filepath.Join(dir, "f.jsonl"), `{"prompt": "q", "chosen": "good", "rejected": "bad"}`), "auto",
			[]datasets.Prompt{{ID: "f.jsonl:1", Form: datasets.FormFewShot, Text: "q", Chosen: "good"}}},
		"text":         {write(t, filepath.Join(dir, "t.txt"), "line\nline"), "auto", []datasets.Prompt{{ID: "t.txt", Form: datasets.FormText, Text: "line\nline"}}},
		"forced text":  {filepath.Join(dir, "f.jsonl"), "text", []datasets.Prompt{{ID: "f.jsonl", Form: datasets.FormText, Text: `{"prompt": "q", "chosen": "good", "rejected": "bad"}`}}},
		"Parquet chat": {rows, "auto", []datasets.Prompt{{ID: "r1", Form: datasets.FormMessages, Messages: two}, {ID: "r2", Form: datasets.FormMessages, Messages: []datasets.Message{{Role: "user", Content: "c"}}}}},
		"Parquet text": {texts, "auto", []datasets.Prompt{{ID: "text.parquet:0", Form: datasets.FormText, Text: "once"}, {ID: "text.parquet:1", Form: datasets.FormText, Text: "twice"}}},
		"gzip": {write(t, filepath.Join(dir, "z.jsonl.gz"), compressed(t, ".gz", `{"text": "first"}`+"\n"+`{"text": "second"}`)), "auto",
			[]datasets.Prompt{{ID: "z.jsonl.gz:1", Form: datasets.FormText, Text: "first"}, {ID: "z.jsonl.gz:2", Form: datasets.FormText, Text: "second"}}},
		"zstd":           {write(t, filepath.Join(dir, "z.json.zst"), compressed(t, ".zst", `[{"text": "first"}]`)), "auto", []datasets.Prompt{{ID: "z.json.zst:0", Form: datasets.FormText, Text: "first"}}},
		"gzip of a text": {write(t, filepath.Join(dir, "z.txt.gz"), compressed(t, ".gz", "a text")), "auto", []datasets.Prompt{{ID: "z.txt.gz", Form: datasets.FormText, Text: "a text"}}},
		"folder": {filepath.Join(dir, "folder"), "auto", []datasets.Prompt{{ID: "a.go", Form: datasets.FormText, Text: "package first"},
			{ID: "b.txt", Form: datasets.FormText, Text: "second"}, {ID: "c/d.jsonl:1", Form: datasets.FormText, Text: "third"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := readAll(t, c.path, c.format)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v\nwant %+v", got, c.want)
			}
		})
	}
	whole, err := os.ReadFile(rows)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ path, format, want string }{
		"speaker":       {write(t, filepath.Join(dir, "e1.jsonl"), `{"conversations": [{"from": "narrator", "value": "a"}]}`), "auto", `e1.jsonl:1: field "conversations": element 0: field "from": got "narrator"`},
		"no turns":      {write(t, filepath.Join(dir, "e2.jsonl"), `{"conversation": []}`), "auto", "got no messages"},
		"array cut":     {write(t, filepath.Join(dir, "e3.json"), `[{"text": "a"}, {"te`), "auto", "e3.json: element 1"},
		"empty array":   {write(t, filepath.Join(dir, "e5.json"), `[]`), "auto", "got no examples"},
		"no Parquet":    {write(t, filepath.Join(dir, "e6.parquet"), "PAR1 nonsense PAR1"), "auto", "not a Parquet file"},
		"Parquet cut":   {write(t, filepath.Join(dir, "e7.parquet"), string(whole[:len(whole)/2])), "auto", "not a Parquet file"},
		"binary":        {write(t, filepath.Join(dir, "e8.bin"), "\xfd\xfe"), "auto", "not UTF-8"},
		"empty text":    {write(t, filepath.Join(dir, "e9.txt"), ""), "auto", "got no examples"},
		"no gzip":       {write(t, filepath.Join(dir, "e10.jsonl.gz"), `{"text": "a"}`), "auto", "e10.jsonl.gz: gzip: invalid header"},
		"gzip cut":      {write(t, filepath.Join(dir, "e11.jsonl.gz"), compressed(t, ".gz", strings.Repeat(`{"text": "a"}`+"\n", 1000))[:60]), "auto", "read: unexpected EOF"},
		"no zstd":       {write(t, filepath.Join(dir, "e12.jsonl.zst"), `{"text": "a"}`), "auto", "e12.jsonl.zst:1: read: invalid input"},
		"missing":       {filepath.Join(dir, "nowhere"), "auto", "no such file"},
		"format":        {rows, "xlsx", `unknown format "xlsx", want one of: auto, csv, json, jsonl, parquet, text, tsv`},
		"Parquet field": {filepath.Join(dir, "text.parquet"), "jsonl", "text.parquet: got a Parquet file, want text"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := readAll(t, c.path, c.format); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want it to say %q", err, c.want)
			}
		})
	}
}

// TestBrokenParquet flips every byte of a file: an error or a prompt, never a crash.
func TestBrokenParquet(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.parquet")
	if err := parquet.WriteFile(path, []struct {
		Text string `parquet:"text"`
	}{{"once upon"}, {"a time"}}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range data {
		data[i] ^= 0x55
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
		_, _ = readAll(t, path, "auto")
		data[i] ^= 0x55
	}
}

// TestMix: weights hold, each source stays in order, limits end it, and the same seed
// gives the same mix.
func TestMix(t *testing.T) {
	dir := t.TempDir()
	lines := func(name string, n int) string {
		return write(t, filepath.Join(dir, name), strings.Repeat(`{"text": "`+name+`"}`+"\n", n))
	}
	sources := []datasets.MixSource{{Path: lines("a.jsonl", 3000), Weight: 3}, {Path: lines("b.jsonl", 5000)}, {Path: lines("c.jsonl", 50), Weight: 1, Limit: 7}}
	draw := func(seed uint64) []string {
		m, err := datasets.OpenMix(sources, seed)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		var ids []string
		for {
			p, i, err := m.Next()
			if err == io.EOF {
				return ids
			}
			if err != nil {
				t.Fatal(err)
			}
			if i != len(ids) {
				t.Fatalf("index %d after %d prompts", i, len(ids))
			}
			ids = append(ids, p.ID)
		}
	}
	ids := draw(1)
	if len(ids) != 8007 {
		t.Fatalf("%d prompts, want all 3000 + 5000 + 7", len(ids))
	}
	counts := map[byte]int{}
	for i, id := range ids {
		if i < 2000 {
			counts[id[0]]++
		}
	}
	if a, b := counts['a'], counts['b']; a < 1380 || a > 1580 || b < 420 || b > 610 || counts['c'] != 7 {
		t.Errorf("of the first 2000 prompts %v, want about 1490 a, 500 b and 7 c", counts)
	}
	if !reflect.DeepEqual(ids, draw(1)) {
		t.Error("the same seed gives another mix")
	}
	if reflect.DeepEqual(ids, draw(2)) {
		t.Error("another seed gives the same mix")
	}
	for name, bad := range map[string][]datasets.MixSource{
		"got no sources": nil, "source 0: got no path": {{}}, "source 0: weight: got -1": {{Path: "x", Weight: -1}}, "no such file": {{Path: "nowhere"}},
	} {
		if _, err := datasets.OpenMix(bad, 1); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("error %v, want it to say %q", err, name)
		}
	}
}

// TestLinkedFolders: a folder may be a link, and its files may be, as in the hub's cache.
func TestLinkedFolders(t *testing.T) {
	dir := t.TempDir()
	row := write(t, filepath.Join(dir, "blob"), `{"prompt":"a"}`)
	folder := filepath.Join(dir, "snapshot")
	if err := errors.Join(os.Mkdir(folder, 0o777), os.Symlink(row, filepath.Join(folder, "rows.jsonl")), os.Symlink(folder, filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{folder, filepath.Join(dir, "link")} {
		if got, errs := outcome(t, path); len(got) != 1 || len(errs) != 0 {
			t.Errorf("%s: got rows %q and errors %q, want one row", path, got, errs)
		}
		var c datasets.Contents
		if err := c.Add(t.Context(), "data", path); err != nil || len(c) != 1 || c[0].File != "data/rows.jsonl" {
			t.Errorf("%s: contents %v, %v, want the hash of data/rows.jsonl", path, c, err)
		}
	}
}

// TestPartial: what is left of a file that was not finished is read, and gets its name, with a torn line cut off.
func TestPartial(t *testing.T) {
	path := filepath.Join(t.TempDir(), datasets.ShardName(1, 3))
	h := datasets.PairHeader{Model: "m", WeightsSHA256: strings.Repeat("0a", 32), Sampling: datasets.Sampling{TopP: 1, MaxNewTokens: 4}, Shard: 1, Shards: 3, Data: "here", Device: "cpu avx2"}
	w, err := datasets.CreatePartial(path, h)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b"} {
		if err := errors.Join(w.Write(datasets.Pair{ID: id, PromptIDs: []int32{1}, ResponseIDs: []int32{2}}), w.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	partial := datasets.PartialOf(path)
	f, err := os.OpenFile(partial, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"id":"c","prompt_`); err != nil { // as a kill in the middle leaves it
		t.Fatal(err)
	}
	f.Close()
	w.Abort()
	other := h
	other.Seed = 9
	if _, _, err := readPartial(t, partial, other); err == nil || !strings.Contains(err.Error(), "other settings") {
		t.Errorf("other settings: error %v", err)
	}
	elsewhere := h // another machine goes on with it
	elsewhere.Device = "cpu avx512+vnni"
	check := func(got datasets.PairHeader, pairs []datasets.Pair, err error) {
		t.Helper()
		if err != nil || got != h || len(pairs) != 2 || pairs[1].ID != "b" {
			t.Fatalf("%v: %+v, %d pairs", err, got, len(pairs))
		}
	}
	check(readPartial(t, partial, elsewhere))
	if err := datasets.FinishPartial(path); err != nil {
		t.Fatal(err)
	}
	check(datasets.ReadPairs(path))
	if _, err := os.Stat(partial); !errors.Is(err, os.ErrNotExist) {
		t.Error("the partial file is still there")
	}
	if err := errors.Join(os.WriteFile(partial, []byte("{"), 0o600), datasets.FinishPartial(path)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(partial); !errors.Is(err, os.ErrNotExist) {
		t.Error("a file without pairs is still there")
	}
	if _, pairs, err := datasets.ReadPairs(path); err != nil || len(pairs) != 2 {
		t.Errorf("%d pairs, %v", len(pairs), err)
	}
	r, err := datasets.OpenPairs(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.Finished(elsewhere); !errors.Is(err, datasets.ErrFinished) {
		t.Errorf("a finished file: %v, want ErrFinished", err)
	}
}

// readPartial reads a file that was not finished.
func readPartial(t *testing.T, path string, want datasets.PairHeader) (datasets.PairHeader, []datasets.Pair, error) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return datasets.ReadPartial(path, data, want)
}
