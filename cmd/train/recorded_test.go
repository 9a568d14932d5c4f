package main

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/datasets"
	"glimpse/engine"
	"glimpse/eviction"
	"glimpse/model"
	"glimpse/serving"
)

// TestTrainOnRecordedTraffic: what a server has recorded is data to train on.
func TestTrainOnRecordedTraffic(t *testing.T) {
	dir := t.TempDir()
	traffic := filepath.Join(dir, "traffic")
	m, err := engine.Open(t.Context(), &engine.Options{Device: "cpu", CacheDType: "auto", Policies: "snapkv"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	s, err := serving.New(m, serving.Config{
		Name: "tiny", Policy: "snapkv", Budget: eviction.Pairs(32), Choice: model.SamplingChoice{From: model.SamplingOfModel}, MaxNew: 16,
		Rows: 2, Queue: 8, MaxBody: 1 << 20, Log: slog.New(slog.DiscardHandler), Record: traffic, RecordShare: 1, RecordLimit: 1 << 20,
	})
	if err != nil {
		m.Close()
		t.Fatal(err)
	}
	stream, err := datasets.NewStream([]string{"section"}, datasets.Train, 80, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		e, err := stream.At(i)
		if err != nil {
			t.Fatal(err)
		}
		body := fmt.Sprintf(`{"prompt": %s, "temperature": 0}`, strings.ReplaceAll(fmt.Sprint(e.Prompt), " ", ","))
		r := httptest.NewRequest(http.MethodPost, "http://localhost/v1/completions", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		if s.ServeHTTP(w, r); w.Code != http.StatusOK {
			t.Fatalf("%d: %s", w.Code, w.Body)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	mustExecute(t, "lookahead", "--data", traffic, "--steps", "2", "--batch", "2", "--rows", "2", "--validate", "2", "--out", filepath.Join(dir, "adapter"))
}
