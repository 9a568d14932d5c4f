package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestJudge: a run is answered, judged by a server that wants a key, and its ratings are the
// scores that are shown.
func TestJudge(t *testing.T) {
	dir := t.TempDir()
	questions, run := filepath.Join(dir, "question.jsonl"), filepath.Join(dir, "run")
	if err := os.WriteFile(questions, []byte(`{"question_id": 1, "category": "writing", "turns": ["anna calls", "lamp"]}`), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, log, err := execute(t, "eval", "--task", "mtbench", "--data", questions, "--policy", "full,snapkv", "--budget", "2", "--max-new", "4", "--out", run); err != nil {
		t.Fatalf("%v: %s", err, log)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer open sesame" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprint(w, `{"choices": [{"message": {"role": "assistant", "content": "Rating: [[7]]"}}]}`)
	}))
	defer s.Close()
	args := []string{"judge", run, "--judge", s.URL + "/v1", "--judge-model", "m", "--judge-key-env", "TEST_JUDGE_KEY"}
	if _, _, err := execute(t, args...); err == nil || !strings.Contains(err.Error(), "401 Unauthorized") {
		t.Errorf("without a key: %v", err)
	}
	t.Setenv("TEST_JUDGE_KEY", "open sesame")
	out, _, err := execute(t, args...)
	if err != nil || !strings.Contains(out, "snapkv") || !strings.Contains(out, "70.0") || !strings.Contains(out, "mt_bench") {
		t.Errorf("%v: %s", err, out)
	}
	if _, _, err := execute(t, "judge", run); err == nil || !strings.Contains(err.Error(), `got --judge "" and --judge-model "", want both`) {
		t.Errorf("without a judge: %v", err)
	}
}
