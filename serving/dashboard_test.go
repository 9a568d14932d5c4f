package serving

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestDashboard: the Grafana dashboard reads metrics that the server has, and all of them but its own build's.
func TestDashboard(t *testing.T) {
	raw, err := os.ReadFile("../docs/serving/grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	var read []string
	for _, name := range regexp.MustCompile(`glimpse_[a-z0-9_]+`).FindAllString(string(raw), -1) {
		read = append(read, regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, ""))
	}
	all := make(chan *prometheus.Desc, 1000)
	newMetrics("v1").registry.Describe(all)
	close(all)
	var has []string
	for d := range all {
		if m := regexp.MustCompile(`fqName: "(glimpse_[^"]+)"`).FindStringSubmatch(d.String()); m != nil {
			has = append(has, m[1])
		}
	}
	if len(has) < 20 {
		t.Fatalf("the server has %d metrics", len(has))
	}
	for _, name := range read {
		if !slices.Contains(has, name) {
			t.Errorf("the server has no metric %s", name)
		}
	}
	for _, name := range has {
		if name != "glimpse_build_info" && !slices.Contains(read, name) {
			t.Errorf("the dashboard does not read %s", name)
		}
	}
}
