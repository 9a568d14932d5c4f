//go:build gpu && linux && (amd64 || arm64)

package main

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/modeltest"
)

// TestCUDAEvaluatesLikeTheCPU: the same policies with the same adapters find the same
// answers on the device, through the command that a user runs.
func TestCUDAEvaluatesLikeTheCPU(t *testing.T) {
	modeltest.NeedCUDA(t)
	results := func(device string) (rows []map[string]any) {
		out, _, err := execute(t, "eval", "--device", device, "--cache-dtype", "float32", "--policy", "full,h2o,snapkv,judgeq,lookaheadkv", "--budget", "16", "--task", "needle",
			"--tokens", "72", "--samples", "2", "--seed", "5", "--json")
		if err != nil {
			t.Fatalf("%s: %v", device, err)
		}
		if err := unmarshalRows(out, &rows); err != nil {
			t.Fatal(err)
		}
		return flat(rows)
	}
	want, got := results("cpu"), results("cuda:0")
	if len(got) != len(want) || len(got) == 0 {
		t.Fatalf("%d rows, want %d", len(got), len(want))
	}
	for i, row := range want {
		for key, value := range row {
			if number, ok := value.(float64); ok {
				other, _ := got[i][key].(float64)
				tol := 1e-4
				switch key { // entries of almost equal score may change places
				case "hit_rate", "recall":
					tol = 1e-2
				case "kendall_tau":
					tol = 3e-2
				}
				compare.Close(t, row["policy"].(string)+": "+key, []float64{other}, []float64{number}, tol, compare.Floor(1))
			} else if key != "device" && got[i][key] != value {
				t.Errorf("%v: %s is %v, on the CPU %v", row["policy"], key, got[i][key], value)
			}
		}
	}
}

// TestCUDAHalfCaches: auto chooses bf16 for the built-in model, whose weights are bf16,
// with half the memory and the CPU's answers.
func TestCUDAHalfCaches(t *testing.T) {
	modeltest.NeedCUDA(t)
	rows := func(args ...string) (rows []map[string]any) {
		out, _, err := execute(t, append(args, "--policy", "snapkv,lookaheadkv,quest,d2o", "--budget", "16", "--task", "needle", "--tokens", "72",
			"--samples", "2", "--seed", "5", "--json")...)
		if err != nil {
			t.Fatal(err)
		}
		if err := unmarshalRows(out, &rows); err != nil {
			t.Fatal(err)
		}
		return flat(rows)
	}
	got, want := rows("eval", "--device", "cuda"), rows("eval", "--cache-dtype", "bf16")
	for i, row := range want {
		for key, value := range row {
			number, ok := value.(float64)
			other, _ := got[i][key].(float64)
			switch {
			case key == "kept_bytes" && row["policy"] == "quest": // its pages have other room on a device
				compare.Close(t, "quest: kept_bytes", []float64{other}, []float64{number}, 0.1)
			case !ok && key != "device" && got[i][key] != value, ok && strings.HasSuffix(key, "_bytes") && other != number, key == "score" && other != number:
				t.Errorf("%v: %s is %v, on the CPU %v", row["policy"], key, got[i][key], value)
			case ok && (key == "hit_rate" || key == "recall"): // entries of almost equal score may change places
				compare.Close(t, row["policy"].(string)+": "+key, []float64{other}, []float64{number}, 3e-2, compare.Floor(1))
			}
		}
	}
}

// TestCUDARefusesWhatCannotFit: a command says how much memory it needs, how much there is
// and what to lower before it loads anything.
func TestCUDARefusesWhatCannotFit(t *testing.T) {
	modeltest.NeedCUDA(t)
	backend, err := kernels.Open("cuda")
	if err != nil {
		t.Fatal(err)
	}
	meter := backend
	defer meter.LimitMemory(meter.Memory().Live + 9<<20)()
	meter.ResetPeak()
	before := meter.Memory().Peak
	for _, args := range [][]string{
		{"run", "--example", "section", "--tokens", "1000", "--policy", "snapkv", "--budget", "32"},
		{"run", "--example", "section", "--tokens", "1000", "--policy", "lookaheadkv", "--budget", "32"},
		{"eval", "--policy", "full,h2o", "--tokens", "1000", "--samples", "1"},
		{"chat", "--example", "turns_section", "--tokens", "1000"},
	} {
		_, _, err := execute(t, append(args, "--device", "cuda:0")...)
		if !errors.Is(err, model.ErrMemory) || !regexp.MustCompile(`cuda:0: not enough memory: [0-9.]+ MiB needed \(weights [0-9.]+ MiB, keys and values of 1000 tokens .*\), [0-9.]+ MiB available; about \d+ tokens of prompt would fit, or lower --budget`).MatchString(err.Error()) {
			t.Errorf("%v: error %v", args, err)
		}
	}
	if peak := meter.Memory().Peak; peak != before {
		t.Errorf("%d bytes were taken before the error", peak-before)
	}
	t.Setenv(model.MemoryVariable, "off")
	if _, _, err := execute(t, "run", "--example", "section", "--tokens", "1000", "--device", "cuda:0"); err == nil || errors.Is(err, model.ErrMemory) {
		t.Errorf("without the check: error %v, want that of the allocation that failed", err)
	}
}

// flat has the other measures of every row beside its own.
func flat(rows []map[string]any) []map[string]any {
	for _, r := range rows {
		for name, v := range r["measures"].(map[string]any) {
			r[name] = v
		}
		delete(r, "measures")
	}
	return rows
}
