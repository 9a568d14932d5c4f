package inspection

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"glimpse/eviction"
	"glimpse/kernels"
	"glimpse/model/modeltest"
)

// inspected is what a policy keeps of a prompt, on a small model.
func inspected(t *testing.T, policy string, budget int) *Inspection {
	t.Helper()
	m := modeltest.OpenFolder(t, must(modeltest.Llama{}.Folder()), "cpu")
	ids := modeltest.Tokens(m, 1, 40)
	named, err := eviction.New(policy, 1, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := eviction.NewRuntime(m).Prefill(t.Context(), named, eviction.Prompt{Tokens: ids, Budget: budget})
	if err != nil {
		t.Fatal(err)
	}
	return &Inspection{Model: m, Policy: policy, Budget: eviction.Pairs(budget), IDs: ids, Session: s}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// arrays are those of an npz file, by name: header and bytes.
func arrays(t *testing.T, data []byte) map[string][2]string {
	t.Helper()
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string][2]string)
	for _, file := range z.File {
		f := must(file.Open())
		text := string(must(io.ReadAll(f)))
		begin, end := strings.Index(text, "{"), strings.Index(text, "\n")
		out[strings.TrimSuffix(file.Name, ".npy")] = [2]string{strings.TrimSpace(text[begin:end]), text[end+1:]}
	}
	return out
}

// TestHeads: rows, arrays and counts say the same of every head, which is what the cache
// holds.
func TestHeads(t *testing.T) {
	x := inspected(t, "snapkv", 8)
	cache, n := x.Session.Cache, len(x.IDs)
	rows := x.Heads()
	layers, kvHeads := x.Model.Config.Layers, x.Model.Config.KVHeads
	if len(rows) != layers*kvHeads {
		t.Fatalf("%d heads, want %d", len(rows), layers*kvHeads)
	}
	var npz bytes.Buffer
	if err := x.WriteNPZ(&npz); err != nil {
		t.Fatal(err)
	}
	stored := arrays(t, npz.Bytes())
	if want := fmt.Sprintf("'shape': (%d, %d, %d)", layers, kvHeads, n); !strings.Contains(stored["kept"][0], want) || !strings.Contains(stored["scores"][0], want) {
		t.Fatalf("headers %q and %q, want %s", stored["kept"][0], stored["scores"][0], want)
	}
	kept, scores := stored["kept"][1], modeltest.F32([]byte(stored["scores"][1]))
	counts := make([]int, n)
	for i, r := range rows {
		if r.Layer != i/kvHeads || r.KVHead != i%kvHeads || len(r.Positions) != 8 || cache.Entries(r.Layer, r.KVHead) != 8 || !slices.IsSorted(r.Positions) {
			t.Errorf("head %d: layer %d, KV head %d keeps %v", i, r.Layer, r.KVHead, r.Positions)
		}
		if !slices.Equal(scores[i*n:(i+1)*n], r.Scores) {
			t.Errorf("head %d: other scores in the file", i)
		}
		for p := range n {
			is := slices.Contains(r.Positions, int32(p))
			if is {
				counts[p]++
			}
			if (kept[i*n+p] == 1) != is {
				t.Errorf("head %d position %d: %d in the file, kept: %v", i, p, kept[i*n+p], is)
			}
		}
	}
	if got := eviction.KeptCounts(x.Session.Kept(), n); !slices.Equal(got, counts) {
		t.Errorf("counts %v, want %v", got, counts)
	}
	if got := eviction.KeptCounts([][][]int32{{{0, 2}, {2}}, {{2, 3}, {}}}, 5); !slices.Equal(got, []int{1, 0, 3, 1, 0}) {
		t.Errorf("counts by hand %v", got)
	}
}

// TestNothingScored: what fits its budget has no scores, in rows and in the archive.
func TestNothingScored(t *testing.T) {
	x := inspected(t, "full", 40)
	for _, r := range x.Heads() {
		if len(r.Positions) != 40 || r.Scores == nil || len(r.Scores) != 0 {
			t.Errorf("layer %d head %d: %d positions, scores %v", r.Layer, r.KVHead, len(r.Positions), r.Scores)
		}
	}
	var npz bytes.Buffer
	if err := x.WriteNPZ(&npz); err != nil {
		t.Fatal(err)
	}
	if _, ok := arrays(t, npz.Bytes())["scores"]; ok {
		t.Error("the archive has scores")
	}
}

// TestPage: every token with the number of heads that keep it, and how many tokens stay
// somewhere.
func TestPage(t *testing.T) {
	x := inspected(t, "snapkv", 8)
	var page bytes.Buffer
	if err := x.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	heads := x.Model.Config.Layers * x.Model.Config.KVHeads
	for i, count := range eviction.KeptCounts(x.Session.Kept(), len(x.IDs)) {
		want := fmt.Sprintf(`title="%d (id %d): kept by %d of %d"`, i, x.IDs[i], count, heads)
		if strings.Count(page.String(), want) != 1 {
			t.Errorf("the page lacks %s", want)
		}
	}
	if err := x.WriteHTML(full{}); err == nil {
		t.Error("a page that was not written is no error")
	}
	if err := x.WriteNPZ(full{}); err == nil {
		t.Error("an archive that was not written is no error")
	}
}

// full is a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// TestCosines: by hand, over the rows that both have; a vector of zeros is like none.
func TestCosines(t *testing.T) {
	vectors := func(x ...float64) *kernels.Tensor { return kernels.FromF64(x, len(x)/4, 2, 2) }
	a := vectors(3, 4, 1, 0, 0, 0, 5, 5)
	for name, c := range map[string]struct {
		b    *kernels.Tensor
		want float64
	}{
		"itself":     {a, 3.0 / 4},
		"longer":     {vectors(6, 8, 7, 0, 1, 1, 1, 1, 9, 9, 9, 9), 3.0 / 4},
		"the other":  {vectors(-3, -4, 0, 1, 1, 1, -2, -2), -2.0 / 4},
		"first only": {vectors(4, 3, 1, 1), (24.0/25 + 1/math.Sqrt2) / 2},
	} {
		if got := cosines(a, c.b); math.Abs(got-c.want) > 1e-7 {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	s := sumUp([]float64{4, 1, 3, 2, 5})
	if s.Mean != 3 || s.Trials != 5 || s.Quartiles != [5]float64{1, 2, 3, 4, 5} {
		t.Errorf("%+v", s)
	}
}

// TestQueries: a report has the conditions of DapQ (arXiv:2603.11564, table 1) and the
// offsets that were asked for; rows that are the response's, where it stands, have its
// queries; and the seed decides what is drawn.
func TestQueries(t *testing.T) {
	m := modeltest.OpenFolder(t, must(modeltest.Llama{}.Folder()), "cpu")
	prompt := modeltest.Tokens(m, 2, 24)
	report := func(o QueryOptions) *QueryReport {
		t.Helper()
		r, err := NewQueryReport(t.Context(), m, prompt, o)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := report(QueryOptions{Rows: 3, Trials: 2, Seed: 1})
	if len(r.Conditions) != len(conditions) || len(r.Offsets) != 9 || len(r.Response) != 3 || r.Tokens != 24 {
		t.Fatalf("%+v", r)
	}
	if c := r.Conditions[0]; c.Content != "same" || c.Position != "same" || math.Abs(c.After.Mean-1) > 1e-9 || math.Abs(c.Before.Mean-1) > 1e-9 {
		t.Errorf("the response itself: %+v", c)
	}
	for i, s := range r.Offsets {
		if s.Start != i*3 || s.Offset != i*3-24 || len(s.Layers) != m.Config.Layers || math.Abs(s.After.Mean) > 1+1e-9 {
			t.Errorf("offset %d: %+v", i, s)
		}
	}
	if got := fmt.Sprint(report(QueryOptions{Rows: 3, Trials: 2, Seed: 1})); got != fmt.Sprint(r) {
		t.Error("the same seed gives another report")
	}
	other := report(QueryOptions{Rows: 3, Trials: 2, Seed: 2, Starts: []int{5}})
	if len(other.Offsets) != 1 || other.Offsets[0].Start != 5 || fmt.Sprint(other.Conditions) == fmt.Sprint(r.Conditions) {
		t.Errorf("another seed and start: %+v", other.Offsets)
	}
	for want, o := range map[string]QueryOptions{
		"0 rows and 1 trials, want at least 1 of each": {Trials: 1},
		"start -1, want 0 to":                          {Rows: 1, Trials: 1, Starts: []int{-1}},
	} {
		if _, err := NewQueryReport(t.Context(), m, prompt, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want it to say %q", err, want)
		}
	}
	var table bytes.Buffer
	if err := r.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"same        same         24      1.0000       1.0000       1", "drawn", "their own position is 24", "-24", "+0"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, table.String())
		}
	}
}
