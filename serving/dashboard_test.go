package serving_test

import (
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestDashboard: every metric that the Grafana dashboard reads is one that the server has.
func TestDashboard(t *testing.T) {
	raw, err := os.ReadFile("../docs/serving/grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, nil)
	s.post(t, "/v1/completions", `{"prompt":[5,6,7],"max_tokens":3}`)
	r, err := http.Get(s.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	metrics, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`glimpse_[a-z0-9_]+`).FindAllString(string(raw), -1)
	if len(names) < 12 {
		t.Fatalf("the dashboard reads %d metrics", len(names))
	}
	for _, name := range names {
		if !strings.Contains(string(metrics), "\n"+name+"{") && !strings.Contains(string(metrics), "\n"+name+" ") {
			t.Errorf("the server has no metric %s", name)
		}
	}
}
