package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/model/catalog"
	"glimpse/model/hub/hubtest"
	"glimpse/model/modeltest"
)

// nameModels writes the user's own names.
func nameModels(t *testing.T, entries ...catalog.Entry) {
	t.Helper()
	data, err := json.Marshal(map[string]any{"models": entries})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "models.json")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(catalog.Variable, path)
}

// TestNamesOfModels: a name is pulled, listed, answered with and served under its name, and deleted.
func TestNamesOfModels(t *testing.T) {
	g := modeltest.GoldenNamed(t, "qwen3")
	h := hubtest.New(t, modeltest.Files(t, g.Folder))
	nameModels(t, catalog.Entry{Name: "tiny:1b", Model: "org/tiny", Bytes: 1000, Licence: "none at all"})
	listed := func() listedModel {
		t.Helper()
		out, _, err := execute(t, "list", "--json")
		if err != nil {
			t.Fatal(err)
		}
		var list struct{ Models []listedModel }
		if err := json.Unmarshal([]byte(out), &list); err != nil {
			t.Fatal(err)
		}
		for _, m := range list.Models {
			if m.Name == "tiny:1b" {
				return m
			}
		}
		t.Fatalf("tiny:1b is missing from\n%s", out)
		return listedModel{}
	}
	if m := listed(); m.Path != "" || m.Model != "org/tiny" {
		t.Errorf("before it is pulled: %+v", m)
	}
	out, log, err := execute(t, "pull", "tiny:1b")
	if err != nil || !strings.Contains(log, "B/s") {
		t.Fatalf("pull: %v, log\n%s", err, log)
	}
	path := strings.TrimSpace(out)
	if _, err := os.Stat(filepath.Join(path, "config.json")); err != nil {
		t.Fatalf("pull printed %q: %v", out, err)
	}
	if m := listed(); m.Path != path {
		t.Errorf("after it is pulled: %+v, want path %s", m, path)
	}
	table, _, err := execute(t, "list")
	if err != nil || !strings.Contains(table, "tiny:1b") || !strings.Contains(table, "none at all") || !strings.Contains(table, "smollm2:135m") {
		t.Errorf("list prints (%v)\n%s", err, table)
	}
	t.Setenv("HF_HUB_OFFLINE", "1")
	before, p := len(h.Requests), g.Prompts[0]
	out, log, err = execute(t, "run", "--model", "tiny", "--policy", "full", "--raw", "--max-new", fmt.Sprint(len(p.Greedy)), p.Text)
	if err != nil || strings.TrimRight(out, "\n") != strings.TrimRight(p.GreedyText, "\n") || len(h.Requests) != before {
		t.Errorf("run printed %q (%v), want %q without a request; log\n%s", out, err, p.GreedyText, log)
	}
	prompts := filepath.Join(t.TempDir(), "prompts.txt")
	if err := os.WriteFile(prompts, []byte(p.Text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, log, err := execute(t, "eval", "--model", "tiny:1b", "--data", prompts, "--field", "prompt={text}", "--samples", "1", "--policy", "full", "--max-new", "2"); err != nil {
		t.Errorf("eval: %v, log\n%s", err, log)
	}
	_, url, _ := serveProgram(t, "--model", "tiny:1b")
	answer, err := http.Get(url + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if models, err := io.ReadAll(answer.Body); err != nil || !strings.Contains(string(models), `"tiny:1b"`) {
		t.Errorf("served as %s (%v), want tiny:1b", models, err)
	}
	if out, _, err := execute(t, "rm", "tiny:1b"); err != nil || !strings.HasPrefix(out, "tiny:1b: deleted, ") {
		t.Errorf("rm printed %q (%v)", out, err)
	}
	if m := listed(); m.Path != "" {
		t.Errorf("after it is deleted: %+v", m)
	}
	if _, _, err := execute(t, "rm", "tiny:1b"); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("deleted twice: %v", err)
	}
}

// TestNamesWithAdapter: a name brings its adapter where none is given.
func TestNamesWithAdapter(t *testing.T) {
	reference, err := filepath.Abs("../../model/builtin/reference")
	if err != nil {
		t.Fatal(err)
	}
	judgeq, err := filepath.Abs("../../adapters/reference/judgeq")
	if err != nil {
		t.Fatal(err)
	}
	nameModels(t, catalog.Entry{Name: "ours:1", Model: reference, Adapter: judgeq})
	for _, c := range []struct{ adapter, want string }{{"", "policy judgeq, budget"}, {"shipped", "policy lookaheadkv, budget"}} {
		args := []string{"run", "--model", "ours:1", "--budget", "25%", "--example", "needle", "--max-new", "2"}
		if c.adapter != "" {
			args = append(args, "--adapter", c.adapter)
		}
		if _, log, err := execute(t, args...); err != nil || !strings.Contains(log, c.want) {
			t.Errorf("--adapter %q: %v, want %q in\n%s", c.adapter, err, c.want, log)
		}
	}
	if _, log, err := execute(t, "run", "--model", "ours:1", "--policy", "judgeq", "--example", "needle", "--max-new", "2"); err != nil {
		t.Errorf("--policy judgeq: %v\n%s", err, log)
	}
}

// TestServeTellsNames: a server of the built-in model says which models have names.
func TestServeTellsNames(t *testing.T) {
	_, _, log := serveProgram(t)
	if !strings.Contains(log.String(), "smollm2:135m (98 MB)") {
		t.Errorf("the log names no models:\n%s", log)
	}
}
