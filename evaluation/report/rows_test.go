package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"glimpse/evaluation"
	"glimpse/eviction"
	"glimpse/internal/stats"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// sampleRows makes a full grid of plausible results, the same for every call.
func sampleRows(tasks []string, budgets []int, policies []string) []evaluation.Row {
	random := rand.New(rand.NewPCG(7, 11))
	var rows []evaluation.Row
	add := func(policy, adapter string, budget int, task string, accuracy float64) {
		const samples, full = 64, 4096 * 1024
		p := math.Round(accuracy*samples) / samples
		r := evaluation.Row{Policy: policy, Adapter: adapter, Budget: eviction.Pairs(budget), Task: task, Tokens: 512, Samples: samples,
			Score: new(p), StdErr: new(stats.BinomialStdErr(p, samples)), KeptBytes: full, FullBytes: full,
			TTFTMillis: new(41.5), DecodeTokensPerSecond: new(88 + 900/float64(budget+10))}
		if budget > 0 {
			r.KeptBytes = full * int64(budget) / 512
			r.HitRate = new(0.5 * (1 + p) * float64(budget) / float64(budget+40))
			r.TTFTOverhead = new(0.02 + 0.1*random.Float64())
			if policy != "streamingllm" { // which does not score
				r.Recall, r.KendallTau = new(*r.HitRate*0.9), new(*r.HitRate-0.2)
			}
		}
		rows = append(rows, r)
	}
	for _, task := range tasks {
		add("full", "", 0, task, 0.9+0.1*random.Float64())
	}
	for _, budget := range budgets {
		for i, policy := range policies {
			adapter := ""
			if policy == "lookaheadkv" || policy == "judgeq" {
				adapter = "shipped"
			}
			for _, task := range tasks {
				worse := float64(i) / float64(len(policies))
				reach := float64(budget) / (float64(budget) + 10 + 200*worse)
				add(policy, adapter, budget, task, min(1, reach*(0.85+0.15*random.Float64())))
			}
		}
	}
	return rows
}

var (
	nineTasks   = []string{"single", "ask1", "ask4", "chain", "copy", "ordinal", "question_first", "variable-tracking", "multikey"}
	sixPolicies = []string{"lookaheadkv", "laq", "snapkv", "judgeq", "h2o", "streamingllm"}
)

// golden compares with a committed file; go test ./evaluation/report -update rewrites it.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (if that is meant: go test ./evaluation/report -update); got\n%s\nwant\n%s", path, got, want)
	}
}

func TestJSON(t *testing.T) {
	rows := sampleRows(nineTasks[:2], []int{16}, sixPolicies[:2])
	rows[0].TTFTMillis, rows[0].DecodeTokensPerSecond = nil, nil
	rows[1].TTFTOverhead = new(0.0) // measured, and zero
	var out bytes.Buffer
	if err := evaluation.WriteJSON(&out, rows); err != nil {
		t.Fatal(err)
	}
	golden(t, "report.json", out.Bytes())
	got, err := readRows(out.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, rows) {
		t.Errorf("read back %+v, want %+v", got, rows)
	}
}

func TestEmptyJSON(t *testing.T) {
	var out bytes.Buffer
	if err := evaluation.WriteJSON(&out, nil); err != nil || out.String() != `{"schema": "glimpse.metrics/1", "rows": []}`+"\n" {
		t.Errorf("no rows: %q, %v; want an empty list", out.String(), err)
	}
	if rows, err := readRows(out.Bytes()); err != nil || len(rows) != 0 {
		t.Errorf("read back %v, %v; want no rows", rows, err)
	}
}

// hostileRows are changes to a valid row that no measurement can give.
var hostileRows = []struct {
	name   string
	change func(*evaluation.Row)
	want   string // in the error
}{
	{"NaN accuracy", func(r *evaluation.Row) { r.Score = new(math.NaN()) }, "score: got NaN"},
	{"accuracy in percent", func(r *evaluation.Row) { r.Score = new(93.0) }, "score: got 93, want a share in [0, 1]"},
	{"negative accuracy", func(r *evaluation.Row) { r.Score = new(-0.1) }, "score"},
	{"no score of scored samples", func(r *evaluation.Row) { r.Score = nil }, "score: got none, want one of"},
	{"a score of no samples", func(r *evaluation.Row) { r.Unscored = r.Samples }, "of 0 scored samples"},
	{"more without a score than there are", func(r *evaluation.Row) { r.Unscored = r.Samples + 1 }, "unscored"},
	{"NaN standard error", func(r *evaluation.Row) { r.StdErr = new(math.NaN()) }, "stderr: got NaN"},
	{"infinite standard error", func(r *evaluation.Row) { r.StdErr = new(math.Inf(1)) }, "stderr: got +Inf"},
	{"NaN hit rate", func(r *evaluation.Row) { r.HitRate = new(math.NaN()) }, "hit_rate: got NaN"},
	{"recall above one", func(r *evaluation.Row) { r.Recall = new(1.5) }, "recall: got 1.5"},
	{"NaN tau", func(r *evaluation.Row) { r.KendallTau = new(math.NaN()) }, "kendall_tau: got NaN"},
	{"tau below -1", func(r *evaluation.Row) { r.KendallTau = new(-1.1) }, "kendall_tau: got -1.1"},
	{"hit rate above one", func(r *evaluation.Row) { r.HitRate = new(1.5) }, "hit_rate: got 1.5"},
	{"infinite time", func(r *evaluation.Row) { r.TTFTMillis = new(math.Inf(1)) }, "ttft_ms: got +Inf"},
	{"overhead below nothing", func(r *evaluation.Row) { r.TTFTOverhead = new(-1.5) }, "ttft_overhead: got -1.5"},
	{"negative traffic", func(r *evaluation.Row) { r.TrafficBytes = new(-1.0) }, "traffic_bytes_per_step: got -1"},
	{"NaN speed", func(r *evaluation.Row) { r.DecodeTokensPerSecond = new(math.NaN()) }, "decode_tokens_per_s: got NaN"},
	{"no policy", func(r *evaluation.Row) { r.Policy = "" }, "policy"},
	{"policy with a line break", func(r *evaluation.Row) { r.Policy = "a\nb" }, `policy: got "a\nb"`},
	{"adapter with an escape sequence", func(r *evaluation.Row) { r.Adapter = "\x1b[2J" }, "adapter"},
	{"endless policy", func(r *evaluation.Row) { r.Policy = strings.Repeat("x", 65) }, "at most 64"},
	{"no task", func(r *evaluation.Row) { r.Task = "" }, "task"},
	{"negative budget", func(r *evaluation.Row) { r.Budget = eviction.Pairs(-1) }, "budget: got -1"},
	{"negative length", func(r *evaluation.Row) { r.Tokens = -1 }, "tokens: got -1"},
	{"no samples", func(r *evaluation.Row) { r.Samples = 0 }, "samples: got 0"},
	{"negative bytes", func(r *evaluation.Row) { r.KeptBytes = -1 }, "kept_bytes: got -1"},
	{"negative full bytes", func(r *evaluation.Row) { r.FullBytes = -1 }, "full_bytes: got -1"},
}

func TestHostileRowsAreErrorsEverywhere(t *testing.T) {
	png := filepath.Join(t.TempDir(), "plot.png")
	for _, c := range hostileRows {
		t.Run(c.name, func(t *testing.T) {
			rows := sampleRows(nineTasks[:2], []int{16, 32}, sixPolicies[:2])
			c.change(&rows[4])
			var out bytes.Buffer
			_, meanErr := evaluation.MeanByPolicy(rows)
			for use, err := range map[string]error{
				"Validate":     rows[4].Validate(),
				"WriteJSON":    evaluation.WriteJSON(&out, rows),
				"WriteTable":   WriteTable(&out, rows, TableOptions{}),
				"PlotAccuracy": plotFile(png, PlotAccuracy, rows),
				"MeanByPolicy": meanErr,
			} {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s: error %v, want one with %q", use, err, c.want)
				} else if use != "Validate" && !strings.Contains(err.Error(), "row 4 ") {
					t.Errorf("%s: error %q does not say which row", use, err)
				}
			}
			if out.Len() != 0 {
				t.Errorf("output %q in spite of the error", out.String())
			}
		})
	}
	if _, err := os.Stat(png); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a plot was written in spite of the errors: %v", err)
	}
}

func TestRepeatedRowsAreErrors(t *testing.T) {
	rows := sampleRows(nineTasks[:2], []int{16}, sixPolicies[:1])
	rows = append(rows, rows[2])
	want := `rows 2 and 4 are both lookaheadkv/shipped, budget 16, task "single", 512 tokens`
	if err := evaluation.WriteJSON(new(bytes.Buffer), rows); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}

// readRows reads what WriteJSON wrote: an object with the schema, without unknown fields.
func readRows(data []byte) ([]evaluation.Row, error) {
	var m struct {
		Schema string           `json:"schema"`
		Rows   []evaluation.Row `json:"rows"`
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&m); err != nil {
		return nil, err
	}
	if m.Schema != evaluation.MetricsSchema {
		return nil, fmt.Errorf("schema %q", m.Schema)
	}
	return m.Rows, evaluation.CheckRows(m.Rows)
}

type fullDisk struct{}

var errFullDisk = errors.New("no space left")

func (fullDisk) Write([]byte) (int, error) { return 0, errFullDisk }

func TestWriteErrorsAreReported(t *testing.T) {
	rows := sampleRows(nineTasks[:1], []int{16}, sixPolicies[:1])
	if err := evaluation.WriteJSON(fullDisk{}, rows); !errors.Is(err, errFullDisk) {
		t.Errorf("WriteJSON: %v", err)
	}
	if err := WriteTable(fullDisk{}, rows, TableOptions{}); !errors.Is(err, errFullDisk) {
		t.Errorf("WriteTable: %v", err)
	}
}

func FuzzRows(f *testing.F) {
	var out bytes.Buffer
	if err := evaluation.WriteJSON(&out, sampleRows(nineTasks[:2], []int{16}, sixPolicies[:1])); err != nil {
		f.Fatal(err)
	}
	f.Add(out.Bytes())
	f.Add([]byte(`{"schema":"glimpse.metrics/1","rows":[{"policy":"x","hit_rate":1e999}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		rows, err := readRows(data)
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := evaluation.WriteJSON(&again, rows); err != nil {
			t.Fatalf("rows that were read cannot be written: %v", err)
		}
		if !json.Valid(again.Bytes()) {
			t.Fatalf("invalid JSON %q", again.Bytes())
		}
		if rows = evaluation.Overall(rows); len(rows) > 0 {
			if err := WriteTable(&again, rows, TableOptions{}); err != nil {
				t.Fatalf("rows that were read make no table: %v", err)
			}
		}
	})
}
