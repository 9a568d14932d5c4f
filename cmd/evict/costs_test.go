package main

import (
	"encoding/json"
	"strings"
	"testing"

	"glimpse/engine/costmodel"
	"glimpse/eviction"
)

// TestCosts: a line for every policy and run, and as JSON an estimate for each of them by
// every convention.
func TestCosts(t *testing.T) {
	out, _, err := execute(t, "costs", "--policy", "all", "--tokens", "256,512", "--budget", "32,50%", "--max-new", "8")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Count(out, "\n| "), 4*len(eviction.Policies.Names()); got != want {
		t.Errorf("%d lines, want %d:\n%s", got, want, out)
	}
	out, _, err = execute(t, "costs", "--policy", "full,snapkv", "--tokens", "256", "--budget", "25%", "--chip", "flops=1e12,bandwidth=1e11", "--count", "runtime,paper", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var counted struct{ Estimates []costmodel.Estimate }
	if err := json.Unmarshal([]byte(out), &counted); err != nil {
		t.Fatal(err)
	}
	all := counted.Estimates
	if len(all) != 4 || all[0].Count != "runtime" || all[1].Count != "paper" || all[2].Policy != "snapkv" || all[2].Budget != 64 || !(all[2].Overhead > 0) || all[0].HeldBytes != 4*all[2].HeldBytes {
		t.Errorf("%+v", all)
	}
	for want, args := range map[string][]string{
		`unknown chip "abacus"`:                  {"--chip", "abacus"},
		`unknown conventions "mine"`:             {"--count", "mine"},
		"--tokens: got 0, want 1 to":             {"--tokens", "0"},
		`unknown policy "keepall"`:               {"--policy", "keepall"},
		"--max-new: got -1":                      {"--max-new", "-1"},
		`cache dtype: got "int2"`:                {"--cache-dtype", "int2"},
		`budget: got "lots"`:                     {"--budget", "lots"},
		"config.json: no such file":              {"--model", t.TempDir()},
		`policy snapkv has no option "whatever"`: {"--set", "snapkv.whatever=1"},
	} {
		if _, _, err := execute(t, append([]string{"costs"}, args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want one with %q", args, err, want)
		}
	}
}
