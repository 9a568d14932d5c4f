package serving

import (
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"glimpse/engine"
	"glimpse/eviction"

	_ "glimpse/gates"
	_ "glimpse/lora"
	_ "glimpse/softtokens"
)

// TestStandardPolicyLasts: requests that name none, or the server's own, have one and the same policy, with which conversations go on, whatever
// number of others requests name.
func TestStandardPolicyLasts(t *testing.T) {
	m, err := engine.Open(t.Context(), &engine.Options{Device: "cpu", CacheDType: "auto"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(m, Config{Policy: "lookaheadkv", Budget: eviction.Pairs(64), Rows: 1, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		m.Close()
		t.Fatal(err)
	}
	defer s.Close()
	for i := range maxPolicies + 10 {
		if _, err := s.policy(evictionChoice{Policy: fmt.Sprintf("streamingllm(sink=%d)", i)}); err != nil {
			t.Fatal(err)
		}
		for _, e := range []evictionChoice{{Policy: s.Policy}, {Policy: s.Policy, Adapter: "shipped"}} {
			if p, err := s.policy(e); err != nil || p.Configured != s.Standard().Configured || p.Adapter != "shipped" {
				t.Fatalf("after %d others %v is %v, error %v", i, e, p, err)
			}
		}
	}
	if n := len(s.policies); n > maxPolicies {
		t.Errorf("%d policies are kept, want at most %d", n, maxPolicies)
	}
}

// TestLoadingPanics: what panics while an adapter is loaded ends its request alone, and its name is free.
func TestLoadingPanics(t *testing.T) {
	s := &Server{Config: Config{AdapterDirs: []string{t.TempDir()}, AdapterTimeout: DefaultAdapterTimeout}, loads: newLoads()} // without a model
	if err := os.Mkdir(s.AdapterDirs[0]+"/a", 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		panicked := func() (v any) {
			defer func() { v = recover() }()
			err := s.loadAdapter(httptest.NewRecorder(), httptest.NewRequest("POST", "/v1/adapters", strings.NewReader(`{"from":"a"}`)))
			t.Errorf("error %v, want a panic on the request's goroutine", err)
			return nil
		}()
		if panicked == nil {
			t.Error("no panic")
		}
	}
}
