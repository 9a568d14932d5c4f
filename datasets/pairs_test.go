package datasets_test

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"glimpse/datasets"
)

var header = datasets.PairHeader{
	Model:         "reference",
	WeightsSHA256: strings.Repeat("0123456789abcdef", 4),
	Sampling:      datasets.Sampling{Temperature: 0.7, TopP: 0.95, TopK: 0, MaxNewTokens: 64},
	Seed:          math.MaxUint64, // does not survive a detour through float64
	Shard:         1,
	Shards:        3,
}

const headerText = `{"format":"glimpse-pairs","version":1,"model":"reference","weights_sha256":"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","sampling":{"temperature":0.7,"top_p":0.95,"top_k":0,"max_new_tokens":64},"seed":18446744073709551615,"shard":1,"shards":3}`

func writePairs(t *testing.T, path string, pairs ...datasets.Pair) {
	t.Helper()
	w, err := datasets.CreatePairs(path, header)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for _, p := range pairs {
		if err := w.Write(p); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
}

func TestPairsRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pairs.jsonl")
	pairs := []datasets.Pair{
		{ID: "a", Task: "copy", PromptIDs: []int32{1, 3, 383}, ResponseIDs: []int32{96}},
		{ID: "ended at once", PromptIDs: []int32{128255}},
		{ID: "<b>\n\u2028", PromptIDs: make([]int32, 200_000), ResponseIDs: []int32{math.MaxInt32 - 1}},
	}
	writePairs(t, path, pairs...)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	wantBegin := strings.TrimSuffix(headerText, "}") + `,"check":"crc32c-chain"}` + "\n" +
		`{"id":"a","task":"copy","prompt_ids":[1,3,383],"response_ids":[96],"check":"1419fac1"}` + "\n" +
		`{"id":"ended at once","prompt_ids":[128255],"response_ids":[],"check":"90f57377"}` + "\n"
	if !strings.HasPrefix(string(data), wantBegin) {
		t.Errorf("file begins\n%.600s\nwant\n%s", data, wantBegin)
	}
	h, got, err := datasets.ReadPairs(path)
	if err != nil {
		t.Fatal(err)
	}
	pairs[1].ResponseIDs = []int32{} // nil and empty are the same in the file
	if h != header || !reflect.DeepEqual(got, pairs) {
		t.Errorf("read %+v with other pairs than written", h)
	}
}

func TestPairWriterErrors(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "pairs.jsonl")
	whole := header // a shard may have no pairs
	whole.Shard, whole.Shards = 0, 1
	w, err := datasets.CreatePairs(path, whole)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		pair datasets.Pair
		want string
	}{
		{"no id", datasets.Pair{PromptIDs: []int32{1}}, `field "id": got an empty string`},
		{"no prompt", datasets.Pair{ID: "x"}, `field "prompt_ids": got no ids`},
		{"negative id", datasets.Pair{ID: "x", PromptIDs: []int32{1}, ResponseIDs: []int32{4, -1}}, "sample x: response_ids: element 1: got id -1"},
		{"too long", datasets.Pair{ID: "x", PromptIDs: make([]int32, datasets.MaxLine/2)}, "got a line of"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := w.Write(c.pair)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Fatalf("error %v, want %q and the path in it", err, c.want)
			}
		})
	}
	if err := w.Commit(); !errors.Is(err, datasets.ErrEmpty) {
		t.Errorf("commit without pairs: %v, want ErrEmpty", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("folder holds %v after the failed commit, %v", entries, err)
	}
}

func TestPairHeaderErrors(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*datasets.PairHeader)
		want   string
	}{
		{"no model", func(h *datasets.PairHeader) { h.Model = "" }, `field "model"`},
		{"short hash", func(h *datasets.PairHeader) { h.WeightsSHA256 = "ab" }, `field "weights_sha256": got "ab", want 64`},
		{"temperature", func(h *datasets.PairHeader) { h.Sampling.Temperature = math.NaN() }, "temperature: got NaN"},
		{"infinite temperature", func(h *datasets.PairHeader) { h.Sampling.Temperature = math.Inf(1) }, "temperature: got +Inf"},
		{"top p", func(h *datasets.PairHeader) { h.Sampling.TopP = 0 }, "top_p: got 0, want above 0"},
		{"top k", func(h *datasets.PairHeader) { h.Sampling.TopK = -1 }, "top_k: got -1"},
		{"min p", func(h *datasets.PairHeader) { h.Sampling.MinP = 1.5 }, "min_p: got 1.5, want 0 to 1"},
		{"no tokens", func(h *datasets.PairHeader) { h.Sampling.MaxNewTokens = 0 }, "max_new_tokens: got 0"},
		{"no shards", func(h *datasets.PairHeader) { h.Shard, h.Shards = 0, 0 }, `field "shards": got 0`},
		{"shard", func(h *datasets.PairHeader) { h.Shard = 3 }, `field "shard": got 3, want 0 to 2`},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := header
			c.change(&h)
			path := filepath.Join(t.TempDir(), "p")
			_, err := datasets.CreatePairs(path, h)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want %q in it", err, c.want)
			}
		})
	}
}

func TestPairReaderErrors(t *testing.T) {
	const good = `{"id":"a","prompt_ids":[1],"response_ids":[2]}`
	line := func(s string) string { return headerText + "\n" + good + "\n\n" + s + "\n" }
	for _, c := range []struct{ name, file, want string }{
		{"empty file", "", "p: got no lines, want a header of format glimpse-pairs"},
		{"no header", good, `p:1: header: field "format": missing, want "glimpse-pairs"`},
		{"other format", `{"format":"x"}`, `p:1: header: field "format": got "x", want "glimpse-pairs"`},
		{"other version", `{"format":"glimpse-pairs","version":2}`, `p:1: header: field "version": got 2, want 1`},
		{"header field missing", strings.Replace(headerText, `"seed":18446744073709551615,`, "", 1), `p:1: header: field "seed": missing`},
		{"header field negative", strings.Replace(headerText, `18446744073709551615`, "-1", 1), `field "seed": got -1, want a whole number of at least 0`},
		{"header field unknown", strings.Replace(headerText, `"seed"`, `"sead"`, 1), `p:1: header: field "sead": unknown`},
		{"sampling field", strings.Replace(headerText, `"top_p":0.95`, `"top_p":"all"`, 1), `p:1: header: field "sampling": field "top_p": got "all", want a number`},
		{"sampling range", strings.Replace(headerText, `"top_p":0.95`, `"top_p":1.5`, 1), `top_p: got 1.5`},
		{"no pairs", strings.Replace(headerText, `"shard":1,"shards":3`, `"shard":0,"shards":1`, 1) + "\n", "p: got no examples, want at least one"},
		{"not JSON", line("abc"), "p:4: got abc, want a JSON object"},
		{"array", line("[1]"), "p:4: got [1], want a JSON object"},
		{"cut", line(`{"id":"b","prompt_ids":[1`), `p:4: field "prompt_ids": got the end of the line`},
		{"two objects", line(good + good), "p:4: got more text after byte"},
		{"twice", line(`{"id":"b","id":"c"}`), `p:4: field "id": got it twice`},
		{"letter case", line(`{"ID":"b","prompt_ids":[1],"response_ids":[2]}`), `p:4: field "ID": unknown`},
		{"UTF-8", line("{\"id\":\"\xff\"}"), "p:4: got bytes that are not UTF-8"},
		{"no id", line(`{"prompt_ids":[1],"response_ids":[2]}`), `p:4: field "id": missing, want a string`},
		{"number as id", line(`{"id":7,"prompt_ids":[1],"response_ids":[2]}`), `p:4: field "id": got 7, want a string`},
		{"no response", line(`{"id":"b","prompt_ids":[1]}`), `p:4: field "response_ids": missing, want an array of token ids`},
		{"null response", line(`{"id":"b","prompt_ids":[1],"response_ids":null}`), `p:4: field "response_ids": got null, want an array`},
		{"empty prompt", line(`{"id":"b","prompt_ids":[ ],"response_ids":[2]}`), `p:4: field "prompt_ids": got no ids`},
		{"null among ids", line(`{"id":"b","prompt_ids":[1, null],"response_ids":[2]}`), `element 1: got null, want a token id`},
		{"fraction", line(`{"id":"b","prompt_ids":[1.5],"response_ids":[2]}`), `element 0: got 1.5, want a token id`},
		{"negative", line(`{"id":"b","prompt_ids":[3,-1],"response_ids":[2]}`), `element 1: got -1, want a token id`},
		{"too large", line(`{"id":"b","prompt_ids":[2147483648],"response_ids":[2]}`), `element 0: got 2147483648`},
		{"nested", line(`{"id":"b","prompt_ids":[[1,2]],"response_ids":[2]}`), `element 0: got [1, want a token id`},
		{"long line", line(`{"id":"b","prompt_ids":[1` + strings.Repeat(",1", datasets.MaxLine/2)), "p:4: got a line of more than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := drainPairs(c.file)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want %q in it", err, c.want)
			}
			if c.name == "no pairs" && !errors.Is(err, datasets.ErrEmpty) {
				t.Errorf("error %v is not ErrEmpty", err)
			}
		})
	}
	if err := drainPairs(line(good)); err != nil {
		t.Errorf("good file: %v", err)
	}
	if _, _, err := datasets.ReadPairs(filepath.Join(t.TempDir(), "absent")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent file: %v", err)
	}
}

func drainPairs(file string) error {
	r, err := datasets.NewPairReader("p", strings.NewReader(file))
	if err != nil {
		return err
	}
	for {
		if _, err := r.Next(); err == io.EOF {
			return r.Close()
		} else if err != nil {
			return err
		}
	}
}

func TestPairCheckIDs(t *testing.T) {
	p := datasets.Pair{ID: "a", PromptIDs: []int32{1}, ResponseIDs: []int32{2, 383}}
	if err := p.CheckIDs(384); err != nil {
		t.Error(err)
	}
	if err := p.CheckIDs(383); err == nil || err.Error() != "sample a: response_ids: element 1: got id 383, want 0 to 382" {
		t.Errorf("error %v", err)
	}
}

// Whatever the reader accepts, the writer writes, and it reads back the same.
func FuzzPairs(f *testing.F) {
	f.Add(headerText + "\n" + `{"id":"a","task":"t","prompt_ids":[1,2],"response_ids":[]}`)
	f.Add(headerText + "\r\n\r\n" + `{"id":"\ud800","prompt_ids":[ 0 ],"response_ids":[2147483646 , 1]}`)
	f.Add(headerText + "\n" + `{"id":"a","prompt_ids":["1,2"],"response_ids":[{}]}`)
	f.Add(`{"format":"glimpse-pairs","version":1,"sampling":{"temperature":1e999}}`)
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, file string) {
		r, err := datasets.NewPairReader("p", strings.NewReader(file))
		if err != nil {
			return
		}
		var pairs []datasets.Pair
		for {
			p, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				if !strings.HasPrefix(err.Error(), "p:") {
					t.Fatalf("error %v does not begin with the file", err)
				}
				return
			}
			pairs = append(pairs, p)
		}
		path := filepath.Join(dir, fmt.Sprint(os.Getpid()))
		w, err := datasets.CreatePairs(path, r.Header())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pairs {
			if err := w.Write(p); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Commit(); err != nil {
			t.Fatal(err)
		}
		h, again, err := datasets.ReadPairs(path)
		if err != nil || h != r.Header() || !reflect.DeepEqual(again, pairs) {
			t.Fatalf("read again: %v, %v, %v, want %v, %v", h, again, err, r.Header(), pairs)
		}
	})
}

// TestChangedLines: every change of a line, and every line that is missing, repeated
// or moved, is seen at that line; in a shard that a killed worker left, too.
func TestChangedLines(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "pairs.jsonl")
	var pairs []datasets.Pair
	for i := range 6 {
		pairs = append(pairs, datasets.Pair{ID: fmt.Sprint("p", i), PromptIDs: []int32{int32(10 + i), 20, 30}, ResponseIDs: []int32{int32(40 + i)}})
	}
	writePairs(t, path, pairs...)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(strings.TrimSuffix(string(data), "\n"), "\n")
	lines[len(lines)-1] += "\n"
	for name, change := range map[string]func(l []string) []string{
		"digit":            func(l []string) []string { l[3] = strings.Replace(l[3], "20", "21", 1); return l },
		"digit of a check": func(l []string) []string { l[3] = strings.Replace(l[3], `"check":"`, `"check":"f`, 1); return l },
		"missing":          func(l []string) []string { return slices.Delete(l, 3, 4) },
		"repeated":         func(l []string) []string { return slices.Insert(l, 3, l[3]) },
		"swapped":          func(l []string) []string { l[3], l[4] = l[4], l[3]; return l },
		"check missing":    func(l []string) []string { l[3] = l[3][:strings.Index(l[3], `,"check"`)] + "}\n"; return l },
		"another header":   func(l []string) []string { l[0] = strings.Replace(l[0], `"seed":1844`, `"seed":1843`, 1); return l },
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Join(change(slices.Clone(lines)), "")
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			if _, _, err := datasets.ReadPairs(path); !errors.Is(err, datasets.ErrChanged) {
				t.Errorf("read: error %v, want ErrChanged", err)
			}
			if _, _, err := readPartial(t, path, header); err == nil || name != "another header" && !errors.Is(err, datasets.ErrChanged) {
				t.Errorf("taken up: error %v, want ErrChanged", err)
			}
		})
	}
}

// TestPairHeaderProcessors: files of settings that have none are as they were.
func TestPairHeaderProcessors(t *testing.T) {
	h := header
	h.Sampling.MinP, h.Sampling.Processors = 0.05, "repetition_penalty 1.05"
	path := filepath.Join(t.TempDir(), "pairs.jsonl")
	w, err := datasets.CreatePairs(path, h)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(datasets.Pair{ID: "a", PromptIDs: []int32{1}}); err != nil {
		t.Fatal(err)
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	r, err := datasets.OpenPairs(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got := r.Header(); got != h {
		t.Errorf("read %+v, want %+v", got, h)
	}
}
